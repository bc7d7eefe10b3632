// The short spellings.
#include "src/ops/build.h"

#include <algorithm>
#include <cstring>

#include "src/ops/axes.h"
#include "src/runtime/float_environment.h"

namespace weft::ops {

using ir::Builder;
using ir::Ints;
using ir::Value;

Value Constant(Builder& b, HostTensor value) {
  return Call(b, kOp_constant, {}, {Ref<const Literal>(MakeRef<Literal>(std::move(value)))});
}

Value Scalar(Builder& b, DType dtype, double value) {
  if (!b.ok()) return {};
  const FloatScope floats;
  HostTensor tensor(dtype, {});
  tensor.SetDouble(0, value);
  return Constant(b, std::move(tensor));
}

Value Full(Builder& b, DType dtype, const Dims& dims, double value) {
  return BroadcastInDim(b, Scalar(b, dtype, value), dims, {});
}

Value FullLike(Builder& b, const Value& x, double value) { return x ? Full(b, x.dtype(), x.dims(), value) : Value(); }

Value Iota(Builder& b, DType dtype, const Dims& dims, int64_t dimension) {
  return Call(b, kOp_iota, {}, {ToInts(dims), dimension, dtype});
}

Value Add(Builder& b, Value x, Value y) { return Call(b, kOp_add, {std::move(x), std::move(y)}); }
Value Sub(Builder& b, Value x, Value y) { return Call(b, kOp_sub, {std::move(x), std::move(y)}); }
Value Mul(Builder& b, Value x, Value y) { return Call(b, kOp_mul, {std::move(x), std::move(y)}); }
Value Div(Builder& b, Value x, Value y) { return Call(b, kOp_div, {std::move(x), std::move(y)}); }
Value Maximum(Builder& b, Value x, Value y) { return Call(b, kOp_maximum, {std::move(x), std::move(y)}); }
Value Minimum(Builder& b, Value x, Value y) { return Call(b, kOp_minimum, {std::move(x), std::move(y)}); }
Value Add(Builder& b, Value x, double y) { return Add(b, x, FullLike(b, x, y)); }
Value Sub(Builder& b, double x, Value y) { return Sub(b, FullLike(b, y, x), y); }
Value Mul(Builder& b, Value x, double y) { return Mul(b, x, FullLike(b, x, y)); }
Value Div(Builder& b, double x, Value y) { return Div(b, FullLike(b, y, x), y); }
Value Unary(Builder& b, const ir::OpDef& op, Value x) { return Call(b, op, {std::move(x)}); }
Value Neg(Builder& b, Value x) { return Unary(b, kOp_neg, std::move(x)); }
Value Exp(Builder& b, Value x) { return Unary(b, kOp_exp, std::move(x)); }
Value Log(Builder& b, Value x) { return Unary(b, kOp_log, std::move(x)); }
Value Tanh(Builder& b, Value x) { return Unary(b, kOp_tanh, std::move(x)); }
Value Sigmoid(Builder& b, Value x) { return Unary(b, kOp_sigmoid, std::move(x)); }
Value Sqrt(Builder& b, Value x) { return Unary(b, kOp_sqrt, std::move(x)); }
Value Rsqrt(Builder& b, Value x) { return Unary(b, kOp_rsqrt, std::move(x)); }
Value Square(Builder& b, Value x) { return Unary(b, kOp_square, std::move(x)); }
Value Abs(Builder& b, Value x) { return Unary(b, kOp_abs, std::move(x)); }

Value Compare(Builder& b, Direction direction, Value x, Value y) {
  return Call(b, kOp_compare, {std::move(x), std::move(y)}, {static_cast<int64_t>(direction)});
}
Value Compare(Builder& b, Direction direction, Value x, double y) {
  return Compare(b, direction, x, FullLike(b, x, y));
}
Value And(Builder& b, Value x, Value y) { return Call(b, kOp_bitwise_and, {std::move(x), std::move(y)}); }
Value Select(Builder& b, Value condition, Value x, Value y) {
  return Call(b, kOp_where, {std::move(condition), std::move(x), std::move(y)});
}
Value Convert(Builder& b, Value x, DType dtype) {
  if (x && x.dtype() == dtype) return x;
  return Call(b, kOp_convert, {std::move(x)}, {dtype});
}

Value Reshape(Builder& b, Value x, const Dims& dims) {
  if (x && x.dims() == dims) return x;
  return Call(b, kOp_reshape, {std::move(x)}, {ToInts(dims)});
}
Value Transpose(Builder& b, Value x, Ints permutation) {
  if (permutation == Axes(permutation.size())) return x;
  return Call(b, kOp_transpose, {std::move(x)}, {std::move(permutation)});
}
Value BroadcastTo(Builder& b, Value x, const Dims& dims) {
  if (!x) return {};
  const size_t rank = x.dims().size();
  if (rank > dims.size()) {
    b.Fail(UserError("a tensor of shape ", DimsToString(x.dims()), " cannot be broadcast to ", DimsToString(dims)));
    return {};
  }
  Ints positions;
  for (size_t i = 0; i < rank; ++i) positions.push_back(dims.size() - rank + i);
  return BroadcastInDim(b, std::move(x), dims, std::move(positions));
}
Value BroadcastInDim(Builder& b, Value x, const Dims& dims, Ints positions) {
  if (x && x.dims() == dims && positions == Axes(dims.size())) return x;
  return Call(b, kOp_broadcast_in_dim, {std::move(x)}, {ToInts(dims), std::move(positions)});
}
Value BroadcastInAnyOrder(Builder& b, Value x, const Dims& dims, Ints positions) {
  if (!x || positions.size() != x.dims().size()) return BroadcastInDim(b, std::move(x), dims, std::move(positions));
  Ints order = Axes(positions.size());
  std::ranges::sort(order, {}, [&](int64_t d) { return positions[d]; });
  std::ranges::sort(positions);
  return BroadcastInDim(b, Transpose(b, std::move(x), std::move(order)), dims, std::move(positions));
}
Value SumTo(Builder& b, Value g, const Dims& dims) {
  if (!g || g.dims() == dims) return g;
  Ints summed;
  const size_t extra = g.dims().size() - dims.size();
  for (size_t d = 0; d < g.dims().size(); ++d) {
    if (d < extra || (dims[d - extra] == 1 && g.dims()[d] != 1)) summed.push_back(d);
  }
  return Reshape(b, summed.empty() ? g : Reduce(b, g, Reducer::kSum, summed), dims);
}
Value Slice(Builder& b, Value x, Ints start, Ints limit, Ints strides) {
  return Call(b, kOp_slice, {std::move(x)}, {std::move(start), std::move(limit), std::move(strides)});
}
Value Pad(Builder& b, Value x, double value, Ints low, Ints high, Ints interior) {
  if (!x) return {};
  auto zero = [](const Ints& ints) { return std::all_of(ints.begin(), ints.end(), [](int64_t i) { return i == 0; }); };
  if (zero(low) && zero(high) && zero(interior)) return x;
  Value fill = Scalar(b, x.dtype(), value);
  return Call(b, kOp_pad, {std::move(x), std::move(fill)}, {std::move(low), std::move(high), std::move(interior)});
}
Value Reverse(Builder& b, Value x, Ints dimensions) {
  if (dimensions.empty()) return x;
  return Call(b, kOp_reverse, {std::move(x)}, {std::move(dimensions)});
}

Value Reduce(Builder& b, Value x, Reducer reducer, Ints dimensions) {
  if (dimensions.empty()) return x;
  return Call(b, kOp_reduce, {std::move(x)}, {std::move(dimensions), static_cast<int64_t>(reducer)});
}
Value ReduceKeep(Builder& b, Value x, Reducer reducer, Ints dimensions) {
  if (!x) return {};
  Dims dims = x.dims();
  for (int64_t d : dimensions) dims[d] = 1;
  return Reshape(b, Reduce(b, std::move(x), reducer, std::move(dimensions)), dims);
}
Value Unreduce(Builder& b, Value g, const Dims& dims, std::span<const int64_t> dimensions) {
  Ints kept;
  for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
    if (std::find(dimensions.begin(), dimensions.end(), d) == dimensions.end()) kept.push_back(d);
  }
  return BroadcastInDim(b, std::move(g), dims, std::move(kept));
}
Value BatchMatmul(Builder& b, Value x, Value y, bool transpose_x, bool transpose_y) {
  if (!x || !y) return {};
  const int64_t rank = x.dims().size();
  const Ints batch = Axes(rank - 2);
  return Call(b, kOp_dot_general, {std::move(x), std::move(y)},
              {batch, batch, Ints{transpose_x ? rank - 2 : rank - 1}, Ints{transpose_y ? rank - 1 : rank - 2}});
}

absl::StatusOr<int64_t> NormalizeAxis(std::string_view attribute, int64_t axis, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  if (n == 0) return UserError(attribute, " is ", axis, "; a tensor of rank 0 has no axes");
  if (axis < -n || axis >= n) {
    return UserError(attribute, " is ", axis, "; a tensor of rank ", n, " has axes ", -n, " to ", n - 1);
  }
  return axis < 0 ? axis + n : axis;
}

absl::StatusOr<Ints> NormalizeAxes(std::string_view attribute, std::span<const int64_t> axes, size_t rank) {
  Ints result;
  for (int64_t axis : axes) {
    WEFT_ASSIGN_OR_RETURN(int64_t at, NormalizeAxis(attribute, axis, rank));
    if (std::find(result.begin(), result.end(), at) != result.end()) {
      return UserError(attribute, " ", DimsToString(axes), " names axis ", at, " twice");
    }
    result.push_back(at);
  }
  std::sort(result.begin(), result.end());
  return result;
}

absl::StatusOr<Ints> AxesOrAll(const ir::Attrs& attrs, size_t i, size_t rank) {
  if (!attrs.has(i)) return Axes(rank);
  const Ints& axes = attrs.IntList(i);
  return axes.size() == 1 ? AlongAxis("dims", axes[0], rank) : NormalizeAxes("dims", axes, rank);
}

Ints Axes(size_t rank) {
  Ints axes(rank);
  for (size_t i = 0; i < rank; ++i) axes[i] = i;
  return axes;
}

Dims Without(const Dims& dims, std::span<const int64_t> dimensions) {
  Dims kept;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (std::find(dimensions.begin(), dimensions.end(), static_cast<int64_t>(d)) == dimensions.end()) {
      kept.push_back(dims[d]);
    }
  }
  return kept;
}

void CopyElement(const HostTensor& from, int64_t i, HostTensor& to, int64_t j) {
  const size_t size = BytesOf(from.dtype());
  std::memcpy(to.mutable_bytes().data() + j * size, from.bytes().data() + i * size, size);
}

}  // namespace weft::ops
