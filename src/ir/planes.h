// Complex values as two real ones, a real and an imaginary plane: what OpDef::planes takes and gives.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "src/ir/op_def.h"

namespace weft::ir {

// Both of one real type and shape.
struct Planes {
  Value re, im;
};

// The result of splitting a value: the value itself, or two values of the part's type. Empty for an operand that is
// absent.
struct Split {
  Value whole;
  Planes planes;
  bool complex() const { return static_cast<bool>(planes.re); }
};
using Splits = std::vector<Split>;

struct PlanesCall {
  Builder& b;
  const Node& node;  // as it was, on complex values
  std::span<const Split> operands;
  std::span<const Ref<const Function>> regions;  // already split: parameters and results double in place

  const OpDef& op() const { return node.op(); }
  const Attrs& attrs() const { return node.attrs(); }
  const Planes& planes(size_t i) const { return operands[i].planes; }
};

}  // namespace weft::ir
