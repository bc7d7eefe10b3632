// The attributes of an operation as HLO spells them.
#pragma once

#include <string>
#include <vector>

#include "src/stablehlo/syntax.h"

namespace weft::stablehlo {

struct HloSpelling {
  std::string name;        // "shift-left"; empty: HLO has none, or it is not known here
  std::string attributes;  // ", dimensions={0,1}"
  // The roles of the regions: what each is to the operation.
  std::vector<std::string> roles;  // "to_apply"
};
// All but operations whose operands change with it: constants, broadcasts, control flow, calls.
HloSpelling HloSpellingOf(const Operation& op);

// "{0,1}"
std::string HloList(const std::vector<int64_t>& values);
// The attribute's integers, or the field's of a #stablehlo.x<…>; none where it is left out.
std::vector<int64_t> IntsIn(const Operation& op, std::string_view attribute);
std::vector<int64_t> IntsIn(const ir::ShloAttr* fields, std::string_view field);
// "1.5", "{ { 1, 2 }, { 3, 4 } }", "{...}"
std::string HloLiteral(const ir::ShloAttr& dense);

}  // namespace weft::stablehlo
