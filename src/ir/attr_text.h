// One attribute's value in words.
#pragma once

#include <string>

#include "src/ir/op_def.h"

namespace weft::ir {

// Writes the value as texts of programs have it; a literal of one value, or of one value again and again, is that
// value, a longer one its type.
std::string AttrText(const OpDef& op, size_t i, const AttrValue& value);

}  // namespace weft::ir
