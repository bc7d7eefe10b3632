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

// The operation `by` that has an own body: the operands, what its functions capture, and the attributes as the text has them.
ir::Values ReadByBody(ir::StableHloOp& op, const ir::OpDef& by);

// reduce and reduce_window: operands, then as many first values. Where the body combines each pair on its own by a plain
// reducer, `one` makes one result; any other body is `by`'s.
template <typename One>
ir::Values ReadReduction(ir::StableHloOp& op, const ir::OpDef& by, const One& one) {
  const size_t n = op.operands.size() / 2;
  if (op.operands.size() != 2 * n || n == 0 || op.regions.size() != 1) {
    op.b.Fail(UserError(op.operands.size(), " operands and ", op.regions.size(),
                        " regions; as many first values as operands and "
                        "one region are expected"));
    return {};
  }
  std::vector<Reducer> reducers;
  for (size_t i = 0; i < n; ++i) {
    const std::optional<Reducer> reducer = ReducerOf(*op.regions[0].function, i, n);
    const ir::Type& init = op.operands[n + i].type();
    if (!reducer || !op.regions[0].captures.empty() || !init.is_tensor() || !init.dims.empty())
      return ReadByBody(op, by);
    reducers.push_back(*reducer);
  }
  ir::Values results;
  for (size_t i = 0; i < n; ++i) {
    results.push_back(StartFrom(op.b, reducers[i], op.operands[n + i], one(op.operands[i], reducers[i])));
  }
  return results;
}

}  // namespace weft::ops
