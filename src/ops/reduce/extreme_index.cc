// What argmax and argmin share.
#include "src/ops/reduce/extreme_index.h"

namespace weft::ops {

using namespace ir;

absl::Status InferExtremeIndex(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("axis", Attr<kExtremeIndexAttrs, "axis">(call.attrs), x.rank()));
  if (x.dims[axis] == 0) return UserError("axis ", axis, " has size 0: there is no element to find");
  Dims dims = x.dims;
  dims[axis] = 1;
  results->push_back(
      Type::Tensor(DType::kI32, Attr<kExtremeIndexAttrs, "keepdims">(call.attrs) ? dims : Without(x.dims, Ints{axis})));
  return absl::OkStatus();
}

absl::Status ExpandExtremeIndex(const ExpandCall& call, Reducer extreme, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Dims& dims = x.dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("axis", Attr<kExtremeIndexAttrs, "axis">(call.attrs), dims.size()));
  Value best = Unreduce(b, Reduce(b, x, extreme, {axis}), dims, Ints{axis});
  Value won = Compare(b, Direction::kEq, x, best);
  if (IsFloat(x.dtype())) won = Call(b, kOp_bitwise_or, {won, Compare(b, Direction::kNe, x, x)});
  Value index = Iota(b, DType::kI32, dims, axis);
  Value candidates = Select(b, won, index, FullLike(b, index, static_cast<double>(dims[axis])));
  results[0] = Attr<kExtremeIndexAttrs, "keepdims">(call.attrs) ? ReduceKeep(b, candidates, Reducer::kMin, {axis})
                                                                : Reduce(b, candidates, Reducer::kMin, {axis});
  return absl::OkStatus();
}

}  // namespace weft::ops
