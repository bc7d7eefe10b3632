// argmax and argmin share this code.
#include "src/ops/reduce/extreme_index.h"

#include "src/ops/axes.h"

namespace weft::ops {

using namespace ir;

namespace {

DType IndexType(const Attrs& attrs) {
  return HasAttr<kExtremeIndexAttrs, "dtype">(attrs) ? Attr<kExtremeIndexAttrs, "dtype">(attrs) : DType::kI32;
}

absl::Status CheckIndexType(DType dtype, int64_t axis, int64_t size) {
  if (dtype != DType::kI32 && dtype != DType::kI64) {
    return UserError("dtype is ", NameOf(dtype), "; an index can be i32 or i64");
  }
  if (dtype == DType::kI64 || size <= INT32_MAX) return absl::OkStatus();
  return UserError("axis ", axis, " has ", size, " elements; their positions must fit i32, unless dtype is i64");
}

}  // namespace

absl::Status InferExtremeIndex(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AlongAxis("axis", Attr<kExtremeIndexAttrs, "axis">(call.attrs), x.rank()));
  const DType dtype = IndexType(call.attrs);
  Dims dims = x.dims;
  WEFT_RETURN_IF_ERROR(CheckIndexType(dtype, axes.empty() ? 0 : axes[0], axes.empty() ? 1 : dims[axes[0]]));
  for (const int64_t axis : axes) {
    if (dims[axis] == 0) return UserError("axis ", axis, " has size 0: there is no element to find");
    dims[axis] = 1;
  }
  results->push_back(
      Type::Tensor(dtype, Attr<kExtremeIndexAttrs, "keepdims">(call.attrs) ? dims : Without(x.dims, axes)));
  return absl::OkStatus();
}

absl::Status ExpandExtremeIndex(const ExpandCall& call, Reducer extreme, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Dims& dims = x.dims();
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AlongAxis("axis", Attr<kExtremeIndexAttrs, "axis">(call.attrs), dims.size()));
  const DType dtype = IndexType(call.attrs);
  if (axes.empty()) {
    results[0] = Full(b, dtype, dims, 0);
    return absl::OkStatus();
  }
  const int64_t axis = axes[0];
  Value best = Unreduce(b, Reduce(b, x, extreme, axes), dims, axes);
  Value won = Compare(b, Direction::kEq, x, best);
  if (IsFloat(x.dtype())) won = Call(b, kOp_bitwise_or, {won, Compare(b, Direction::kNe, x, x)});
  Value index = Iota(b, dtype, dims, axis);
  Value candidates = Select(b, won, index, FullLike(b, index, static_cast<double>(dims[axis])));
  results[0] = Attr<kExtremeIndexAttrs, "keepdims">(call.attrs) ? ReduceKeep(b, candidates, Reducer::kMin, {axis})
                                                                : Reduce(b, candidates, Reducer::kMin, {axis});
  return absl::OkStatus();
}

}  // namespace weft::ops
