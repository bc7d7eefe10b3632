// Products of matrices, vectors and tensors that are formulas of dot_general.
#include <algorithm>
#include <cmath>

#include "src/ops/axes.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/reduce/norms.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kScaledAttrs[] = {
    {"alpha", AttrType::kDouble, "what the product is multiplied by", false, "1"},
    {"beta", AttrType::kDouble, "what the first operand is multiplied by; 0 leaves it out", false, "1"}};
constexpr AttrDef kAxisAttrs[] = {
    {"axis", AttrType::kInt, "axis of the vectors; negative counts from the end", false, "-1"}};
constexpr AttrDef kDistanceAttrs[] = {{"p", AttrType::kDouble, "degree of the norm", false, "2"}};
constexpr AttrDef kVanderAttrs[] = {
    {"count", AttrType::kInt, "of the powers, at least 0", true},
    {"increasing", AttrType::kBool, "from the power 0 on; else down to it", false, "false"}};
constexpr AttrDef kPowerAttrs[] = {
    {"n", AttrType::kInt, "exponent; below 0, which integers have not, powers of the inverse", true}};
constexpr OperandDef kScaled[] = {{"x", kNumber | kC, "broadcasts to the product"},
                                  {"a", kNumber | kC, "[..., m, k], or [k]"},
                                  {"b", kNumber | kC, "[..., k, n], or [k]"}};
constexpr OperandDef kPair[] = {{"x", kNumber | kC, "operand"}, {"y", kNumber | kC, "operand"}};
constexpr OperandDef kPoints[] = {{"x", kF, "[..., m, features]"}, {"y", kF, "[..., n, features]"}};
constexpr OperandDef kPointsOfOne[] = {{"x", kF, "[points, features]"}};
constexpr OperandDef kOne[] = {{"x", kNumber | kC, "operand"}};

absl::Status InferScaled(const InferCall& call, Types* results) {
  const Type* pair[] = {call.operands[1], call.operands[2]};
  const Attrs none;
  Types product;
  WEFT_RETURN_IF_ERROR(kOp_matmul.infer(InferCall{kOp_matmul, pair, none}, &product));
  const Type& x = *call.operands[0];
  const auto joined = BroadcastDims(x.dims, product[0].dims);
  if (!joined.ok() || *joined != product[0].dims) {
    return UserError("x has shape ", DimsToString(x.dims), ", which does not broadcast to ",
                     DimsToString(product[0].dims));
  }
  for (size_t i = 0; i < 2; ++i) {
    const double factor = call.attrs.Double(i);
    if (IsInteger(x.dtype) && factor != std::trunc(factor)) {
      return UserError(kScaledAttrs[i].name, " is ", factor, "; of ", NameOf(x.dtype), " it must be a whole number");
    }
  }
  results->push_back(product[0]);
  return absl::OkStatus();
}
Value Times(Builder& b, const Value& x, double factor) {
  if (factor == 1 || !x) return x;
  return IsUnsigned(x.dtype()) && factor < 0 ? Neg(b, Mul(b, x, -factor)) : Mul(b, x, factor);
}
absl::Status ExpandScaled(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const double alpha = Attr<kScaledAttrs, "alpha">(call.attrs), beta = Attr<kScaledAttrs, "beta">(call.attrs);
  const Value product = Times(b, Call(b, kOp_matmul, {call.operands[1], call.operands[2]}), alpha);
  if (!product) return b.status();
  results[0] = beta == 0 ? product : Add(b, Times(b, BroadcastTo(b, call.operands[0], product.dims()), beta), product);
  return absl::OkStatus();
}

absl::Status InferKron(const InferCall& call, Types* results) {
  const Dims &x = call.operands[0]->dims, &y = call.operands[1]->dims;
  const size_t rank = std::max(x.size(), y.size());
  Dims dims(rank, 1);
  for (size_t d = 0; d < x.size(); ++d) dims[rank - x.size() + d] *= x[d];
  for (size_t d = 0; d < y.size(); ++d) dims[rank - y.size() + d] *= y[d];
  if (!CheckedCount(dims)) return UserError("the product has too many elements");
  results->push_back(Type::Tensor(call.operands[0]->dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandKron(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Dims &x = call.operands[0].dims(), &y = call.operands[1].dims();
  const size_t rank = std::max(x.size(), y.size());
  Dims outer(2 * rank, 1), inner = outer, dims(rank, 1);
  for (size_t d = 0; d < x.size(); ++d) outer[2 * (rank - x.size() + d)] = x[d];
  for (size_t d = 0; d < y.size(); ++d) inner[2 * (rank - y.size() + d) + 1] = y[d];
  for (size_t d = 0; d < rank; ++d) dims[d] = outer[2 * d] * inner[2 * d + 1];
  const Value product = Call(b, kOp_mul, {Reshape(b, call.operands[0], outer), Reshape(b, call.operands[1], inner)});
  results[0] = product ? Reshape(b, product, dims) : product;
  return absl::OkStatus();
}

absl::StatusOr<Dims> VectorDims(const InferCall& call, int64_t* axis) {
  WEFT_ASSIGN_OR_RETURN(const Dims dims, BroadcastDims(call.operands[0]->dims, call.operands[1]->dims));
  WEFT_ASSIGN_OR_RETURN(*axis, NormalizeAxis("axis", Attr<kAxisAttrs, "axis">(call.attrs), dims.size()));
  return dims;
}
absl::Status InferCross(const InferCall& call, Types* results) {
  int64_t axis = 0;
  WEFT_ASSIGN_OR_RETURN(const Dims dims, VectorDims(call, &axis));
  if (dims[axis] != 3) return UserError("axis ", axis, " has ", dims[axis], " elements; a cross product is of 3");
  results->push_back(Type::Tensor(call.operands[0]->dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandCross(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Dims dims, BroadcastDims(call.operands[0].dims(), call.operands[1].dims()));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAxisAttrs, "axis">(call.attrs), dims.size()));
  const auto turned = [&](size_t i, int64_t by) {
    return Call(b, kOp_roll, {BroadcastTo(b, call.operands[i], dims)}, {Ints{by}, Ints{axis}});
  };
  results[0] = Sub(b, Mul(b, turned(0, -1), turned(1, -2)), Mul(b, turned(0, -2), turned(1, -1)));
  return absl::OkStatus();
}
absl::Status InferVecdot(const InferCall& call, Types* results) {
  int64_t axis = 0;
  WEFT_ASSIGN_OR_RETURN(Dims dims, VectorDims(call, &axis));
  dims.erase(dims.begin() + axis);
  results->push_back(Type::Tensor(call.operands[0]->dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandVecdot(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &y = call.operands[1];
  const Value product = Call(b, kOp_mul, {IsComplex(x.dtype()) ? Unary(b, kOp_conj, x) : x, y});
  if (!product) return b.status();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("axis", Attr<kAxisAttrs, "axis">(call.attrs), product.dims().size()));
  results[0] = Reduce(b, product, Reducer::kSum, {axis});
  return absl::OkStatus();
}

absl::Status InferCdist(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &y = *call.operands[1];
  const double p = Attr<kDistanceAttrs, "p">(call.attrs);
  if (!(p >= 0)) return UserError("p is ", p, "; it must be at least 0");
  if (x.rank() < 2 || y.rank() < 2) return UserError("points must have shape [..., points, features]");
  if (x.dims.back() != y.dims.back()) {
    return UserError("x has ", x.dims.back(), " features and y ", y.dims.back(), "; they must be equal");
  }
  const Dims before_x(x.dims.begin(), x.dims.end() - 2), before_y(y.dims.begin(), y.dims.end() - 2);
  WEFT_ASSIGN_OR_RETURN(Dims dims, BroadcastDims(before_x, before_y));
  dims.push_back(x.dims[x.rank() - 2]);
  dims.push_back(y.dims[y.rank() - 2]);
  if (!CheckedCount(dims)) return UserError("the result has too many elements");
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandCdist(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  Dims x = call.operands[0].dims(), y = call.operands[1].dims();
  x.insert(x.end() - 1, 1);
  y.insert(y.end() - 2, 1);
  const Value apart = Call(b, kOp_sub, {Reshape(b, call.operands[0], x), Reshape(b, call.operands[1], y)});
  if (!apart) return b.status();
  Dims dims = apart.dims();
  const int64_t last = static_cast<int64_t>(dims.size()) - 1;
  dims.pop_back();
  const double p = Attr<kDistanceAttrs, "p">(call.attrs);
  const Value kept = apart.dims().back() == 0 ? Full(b, apart.dtype(), dims, 0) : NormKeep(b, apart, p, {last});
  results[0] = kept ? Reshape(b, kept, dims) : kept;
  return absl::OkStatus();
}

absl::Status InferPdist(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const double p = Attr<kDistanceAttrs, "p">(call.attrs);
  if (!(p >= 0)) return UserError("p is ", p, "; it must be at least 0");
  if (x.rank() != 2) return UserError("x has shape ", DimsToString(x.dims), "; [points, features] is needed");
  const int64_t n = x.dims[0];
  if (n > 46340) return UserError("x has ", n, " points; at most 46340 can be, whose pairs i32 counts");
  results->push_back(Type::Tensor(x.dtype, {n * (n - 1) / 2}));
  return absl::OkStatus();
}
// Pairs in the order of a triangle's rows: the first of each against those behind it.
absl::Status ExpandPdist(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t n = x.dims()[0], pairs = n < 2 ? 0 : n * (n - 1) / 2;
  if (pairs == 0 || x.dims()[1] == 0) {
    results[0] = Full(b, x.dtype(), {pairs}, 0);
    return b.status();
  }
  const Value places = Call(b, kOp_triu_indices, {}, {n, n, int64_t{1}});
  const auto of = [&](int64_t row) {
    const Value index = Reshape(b, Slice(b, places, {row, 0}, {row + 1, pairs}, {1, 1}), {pairs});
    return Call(b, kOp_take, {x, index}, {int64_t{0}});
  };
  const Value kept = NormKeep(b, Sub(b, of(0), of(1)), Attr<kDistanceAttrs, "p">(call.attrs), {1});
  results[0] = kept ? Reshape(b, kept, {pairs}) : kept;
  return b.status();
}

absl::Status InferVander(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const int64_t count = Attr<kVanderAttrs, "count">(call.attrs);
  if (x.rank() == 0) return UserError("x must have at least 1 dimension, not []");
  if (count < 0 || count > INT32_MAX) return UserError("count is ", count, "; it must be 0 to 2^31 - 1");
  Dims dims = x.dims;
  dims.push_back(count);
  if (!CheckedCount(dims)) return UserError("the powers have too many elements");
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandVander(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t count = Attr<kVanderAttrs, "count">(call.attrs), axis = static_cast<int64_t>(x.dims().size());
  Dims dims = x.dims();
  dims.push_back(count);
  if (count == 0) {
    results[0] = Full(b, x.dtype(), dims, 0);
    return absl::OkStatus();
  }
  // The products of 1, x, x, …: no power of a negative number.
  const Value spread = BroadcastInDim(b, x, dims, Axes(x.dims().size()));
  const Value first = Compare(b, Direction::kEq, Iota(b, DType::kI64, dims, axis), 0);
  const Value powers = Call(b, kOp_cumprod, {Select(b, first, FullLike(b, spread, 1), spread)}, {axis, int64_t{0}});
  results[0] = Attr<kVanderAttrs, "increasing">(call.attrs) ? powers : Reverse(b, powers, {axis});
  return absl::OkStatus();
}

absl::Status InferPower(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const int64_t n = Attr<kPowerAttrs, "n">(call.attrs);
  if (x.rank() < 2 || x.dims[x.rank() - 1] != x.dims[x.rank() - 2]) {
    return UserError("x has shape ", DimsToString(x.dims), "; square matrices are needed");
  }
  if (n < 0 && !Contains(kF | kC, x.dtype)) {
    return UserError("n is ", n, "; of ", NameOf(x.dtype), " it must be at least 0, as inverses are not whole");
  }
  results->push_back(x);
  return absl::OkStatus();
}
absl::Status ExpandPower(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t rank = static_cast<int64_t>(x.dims().size());
  const int64_t exponent = Attr<kPowerAttrs, "n">(call.attrs);
  Value power = exponent < 0 ? Call(b, kOp_inv, {x}) : x, found;
  const auto size = static_cast<uint64_t>(exponent);
  for (uint64_t n = exponent < 0 ? -size : size; n > 0 && b.ok(); n /= 2) {
    if (n % 2 == 1) found = found ? Call(b, kOp_matmul, {found, power}) : power;
    if (n > 1) power = Call(b, kOp_matmul, {power, power});
  }
  if (!found) {
    const Value along =
        Compare(b, Direction::kEq, Iota(b, DType::kI64, x.dims(), rank - 2), Iota(b, DType::kI64, x.dims(), rank - 1));
    found = Select(b, along, FullLike(b, x, 1), FullLike(b, x, 0));
  }
  results[0] = found;
  return b.status();
}

constexpr Sample kScaledSamples[] = {{"T[3] T[2,4] T[4,3] alpha=2 beta=3"}, {"T[2,3] T[2,2,4] T[4,3] beta=0"}};
constexpr Sample kKrons[] = {{"T[2,3] T[2]"}};
constexpr Sample kCrosses[] = {{"T[2,3] T[3]"}};
constexpr Sample kVecdots[] = {{"T[2,3] T[2,1] axis=0"}};
constexpr Sample kCdists[] = {{"T[2,3] T[4,3]"}, {"T[2,3] T[1,3] p=1", 0.5, 2, false}};
constexpr Sample kPdists[] = {{"T[4,3]"}, {"T[3,2] p=1"}, {"T[3,2] p=3"}, {"T[1,2]"}, {"T[3,0]"}};
constexpr Sample kVanders[] = {{"T[3] count=4"}};
constexpr Sample kPowers[] = {{"T[3,3] n=3"}, {"T[2,2] n=0"}, {"f64[3,3]<dominant> n=-2"}};
constexpr Tolerance kTolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-5};

}  // namespace

constinit const OpDef kOp_addmm = Formula({
    .name = "weft.addmm",
    .c_name = "addmm",
    .doc = "beta x + alpha a b, the product being matmul's; rounded once.",
    .example = "y = wf_addmm(s, bias, x, w);",
    .operands = kScaled,
    .attrs = kScaledAttrs,
    .infer = InferScaled,
    .expand = ExpandScaled,
    .samples = kScaledSamples,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_kron = Formula({
    .name = "weft.kron",
    .c_name = "kron",
    .doc = "The Kronecker product: x with each element replaced by its product with y.",
    .example = "y = wf_kron(s, a, b);",
    .operands = kPair,
    .infer = InferKron,
    .expand = ExpandKron,
    .samples = kKrons,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_cross = Formula({
    .name = "weft.cross",
    .c_name = "cross",
    .doc = "The cross product of vectors of 3 elements along an axis.",
    .example = "n = wf_cross(s, u, v);",
    .operands = kPair,
    .attrs = kAxisAttrs,
    .infer = InferCross,
    .expand = ExpandCross,
    .samples = kCrosses,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_vecdot = Formula({
    .name = "weft.vecdot",
    .c_name = "vecdot",
    .doc = "The dot product of vectors along an axis, the first conjugated.",
    .example = "d = wf_vecdot(s, u, v);",
    .operands = kPair,
    .attrs = kAxisAttrs,
    .infer = InferVecdot,
    .expand = ExpandVecdot,
    .samples = kVecdots,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_cdist = Formula({
    .name = "weft.cdist",
    .c_name = "cdist",
    .doc = "The p-norm of the difference of every point of x and every point of y, [..., m, n]. The gradient of a "
           "distance of 0 is 0.",
    .example = "d = wf_cdist(s, points, centers);",
    .operands = kPoints,
    .attrs = kDistanceAttrs,
    .infer = InferCdist,
    .expand = ExpandCdist,
    .samples = kCdists,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_pdist = Formula({
    .name = "weft.pdist",
    .c_name = "pdist",
    .doc =
        "The p-norm of the difference of every two of x's points, in the order of a triangle's rows: 0 and 1, 0 and 2, …, 1 and 2, …. "
        "The gradient of a distance of 0 is 0.",
    .example = "d = wf_pdist(s, points);",
    .operands = kPointsOfOne,
    .attrs = kDistanceAttrs,
    .infer = InferPdist,
    .expand = ExpandPdist,
    .samples = kPdists,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_vander = Formula({
    .name = "weft.vander",
    .c_name = "vander",
    .doc = "The powers of each element as a row, from the highest down to 0, as running products.",
    .example = "v = wf_vander(s, x, 4);",
    .operands = kOne,
    .attrs = kVanderAttrs,
    .infer = InferVander,
    .expand = ExpandVander,
    .samples = kVanders,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_matrix_power = Formula({
    .name = "weft.matrix_power",
    .c_name = "matrix_power",
    .doc =
        "Square matrices multiplied by themselves n times, by squares; the power 0 is the identity, and powers below it are those of the inverse.",
    .example = "y = wf_matrix_power(s, x, 3);",
    .operands = kOne,
    .attrs = kPowerAttrs,
    .infer = InferPower,
    .expand = ExpandPower,
    .samples = kPowers,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
