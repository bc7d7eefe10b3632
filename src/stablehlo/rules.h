// Rules by an operation's name: how each operation of the text becomes nodes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/ir/stablehlo_read.h"
#include "src/ops/registry.h"

namespace weft::stablehlo {

struct Rule {
  std::string_view name;
  ir::StableHloReadFn read;
  const ir::OpDef* op = nullptr;  // read(op) finds it there
};

// Null if Weft has nothing for the name.
const Rule* FindRule(std::string_view name);
std::vector<std::string> RuleNames();  // in no order

// Operations that are others in disguise (rewrites.cc), those of CHLO (chlo.cc, chlo_products.cc) and calls of LAPACK (lapack.cc).
std::span<const Rule> Rewrites();
std::span<const Rule> LapackRules();
std::span<const Rule> ChloRules();
std::span<const Rule> ChloProductRules();

// op.op at the operands and captures with the schema's attributes and the regions' functions.
ir::Values ReadBySchema(ir::StableHloOp& op);

}  // namespace weft::stablehlo
