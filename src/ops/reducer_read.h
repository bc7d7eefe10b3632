// How reduce, reduce_window, scatter and select_and_scatter read the function they combine elements with.
#pragma once

#include <optional>

#include "src/ir/stablehlo_read.h"
#include "src/ops/build.h"

namespace weft::ops {

// The plain reducer that result i of a function of 2 n scalars is of its parameters i and n + i; nothing if it is another.
std::optional<Reducer> ReducerOf(const ir::Function& body, size_t i = 0, size_t n = 1);

// Combines a first value with what has been reduced without one. No node if it is the reducer's identity.
ir::Value StartFrom(ir::Builder& b, Reducer reducer, const ir::Value& init, ir::Value reduced);

// reduce and reduce_window: operands, then as many first values, and a body that combines each pair on its own. `one` makes
// one result. Other bodies are refused: whoever has an operation for them asks it here.
template <typename One>
ir::Values ReadReduction(ir::StableHloOp& op, const One& one) {
  const size_t n = op.operands.size() / 2;
  if (op.operands.size() != 2 * n || n == 0 || op.regions.size() != 1) {
    op.b.Fail(UserError(op.operands.size(), " operands and ", op.regions.size(),
                        " regions; as many first values as operands and "
                        "one region are expected"));
    return {};
  }
  ir::Values results;
  for (size_t i = 0; i < n; ++i) {
    const std::optional<Reducer> reducer = ReducerOf(*op.regions[0].function, i, n);
    if (!reducer || !op.regions[0].captures.empty()) {
      return op.Refuse("only bodies that combine each pair by add, multiply, maximum, minimum, and, or are supported");
    }
    const ir::Value& init = op.operands[n + i];
    if (!init.type().is_tensor() || !init.dims().empty()) {
      op.b.Fail(UserError("first value ", i, " is ", ir::ShortType(init.type()), "; it must be a scalar"));
      return {};
    }
    results.push_back(StartFrom(op.b, *reducer, init, one(op.operands[i], *reducer)));
  }
  return results;
}

}  // namespace weft::ops
