// Reductions that are formulas of the plain ones: norms, those that leave NaN out, counts, order statistics.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/ops/axes.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/nan.h"
#include "src/ops/reduce/norms.h"
#include "src/ops/reduce/variance.h"
#include "src/ops/sort/order.h"

namespace weft::ops {

using namespace ir;

Value NormKeep(Builder& b, const Value& x, double p, const Ints& axes) {
  const Value size = Abs(b, x);
  if (!size) return {};
  if (p == 1) return ReduceKeep(b, size, Reducer::kSum, axes);
  if (std::isinf(p)) return ReduceKeep(b, size, p > 0 ? Reducer::kMax : Reducer::kMin, axes);
  const Value zero = Compare(b, Direction::kEq, size, 0), nothing = FullLike(b, size, 0);
  if (p == 0) return ReduceKeep(b, Select(b, zero, nothing, FullLike(b, size, 1)), Reducer::kSum, axes);
  // A power of 0 has no slope that is a number, nor has a root of it.
  const auto root = [&](const Value& sum, auto f) {
    const Value none = Compare(b, Direction::kEq, sum, 0);
    const Value found = f(Select(b, none, FullLike(b, sum, 1), sum));
    return Select(b, none, FullLike(b, sum, p > 0 ? 0 : std::numeric_limits<double>::infinity()), found);
  };
  if (p == 2) {
    // The square of |x| would lose its second slope where x is 0.
    const Value square = Square(b, IsComplex(x.dtype()) ? size : x);
    return root(ReduceKeep(b, square, Reducer::kSum, axes), [&](const Value& s) { return Sqrt(b, s); });
  }
  const Value safe = Select(b, zero, FullLike(b, size, 1), size);
  const double none = p > 0 ? 0 : std::numeric_limits<double>::infinity();
  const Value powers = Select(b, zero, FullLike(b, size, none), Call(b, kOp_pow, {safe, FullLike(b, size, p)}));
  const Value sum = ReduceKeep(b, powers, Reducer::kSum, axes);
  const auto power = [&](const Value& s) { return Call(b, kOp_pow, {s, FullLike(b, s, 1 / p)}); };
  return p > 0 ? root(sum, power) : power(sum);
}

namespace {

constexpr AttrDef kNormAttrs[] = {
    kReductionAttrs[0],
    kReductionAttrs[1],
    {"p", AttrType::kDouble, "degree; inf and -inf are the extremes, 0 counts", false, "2"}};
constexpr AttrDef kAxisAttrs[] = {{"axis", AttrType::kInt, "axis; negative counts from the end", false, "-1"},
                                  {"keepdims", AttrType::kBool, "keep the axis with size 1", false, "false"}};
constexpr AttrDef kRankAttrs[] = {
    {"k", AttrType::kInt, "rank of the element, 1 is the smallest", true}, kAxisAttrs[0], kAxisAttrs[1]};
constexpr std::string_view kWays[] = {"linear", "lower", "higher", "nearest", "midpoint"};
constexpr AttrDef kQuantileAttrs[] = {
    kAxisAttrs[0],
    kAxisAttrs[1],
    {"interpolation", AttrType::kEnum, "what lies between two elements", false, "linear", kWays}};

constexpr OperandDef kFloats[] = {{"x", kF, "operand"}};
constexpr OperandDef kSized[] = {{"x", kF | kC, "operand"}};
constexpr OperandDef kAny[] = {{"x", kEveryType, "operand"}};
constexpr OperandDef kOrdered[] = {{"x", kAnyType, "operand"}};
constexpr OperandDef kMatrices[] = {{"x", kNumber | kC, "[..., rows, columns]"}};
constexpr OperandDef kQuantiles[] = {{"x", kF, "operand"}, {"q", kF, "a number, or a row of them, 0 to 1"}};
constexpr std::string_view kVarMean[] = {"var", "mean"}, kStdMean[] = {"std", "mean"}, kMinMax[] = {"min", "max"};
constexpr std::string_view kFound[] = {"values", "indices"};

absl::StatusOr<Ints> AxesOf(const ExpandCall& call) { return AxesOrAll(call.attrs, 0, call.operands[0].dims().size()); }

absl::Status InferNorm(const InferCall& call, Types* results) {
  if (std::isnan(Attr<kNormAttrs, "p">(call.attrs))) return UserError("p is NaN; it must be a number");
  WEFT_RETURN_IF_ERROR(InferReduction(call, results));
  results->back().dtype = PartOf(results->back().dtype);
  return absl::OkStatus();
}
absl::Status ExpandNorm(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AxesOf(call));
  const Value kept = NormKeep(call.b, call.operands[0], Attr<kNormAttrs, "p">(call.attrs), axes);
  const bool keep = Attr<kNormAttrs, "keepdims">(call.attrs);
  results[0] = keep || !kept ? kept : Reshape(call.b, kept, Without(call.operands[0].dims(), axes));
  return absl::OkStatus();
}

Value Numbers(Builder& b, const Value& x) { return Select(b, IsNan(b, x), FullLike(b, x, 0), x); }
absl::Status ExpandNansum(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(results[0], ReduceByAttrs(call, Reducer::kSum, Numbers(call.b, call.operands[0])));
  return absl::OkStatus();
}
absl::Status ExpandNanmean(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Value counted = Select(b, IsNan(b, x), FullLike(b, x, 0), FullLike(b, x, 1));
  WEFT_ASSIGN_OR_RETURN(const Value sum, ReduceByAttrs(call, Reducer::kSum, Numbers(b, x)));
  WEFT_ASSIGN_OR_RETURN(const Value count, ReduceByAttrs(call, Reducer::kSum, counted));
  results[0] = Div(b, sum, count);
  return absl::OkStatus();
}

absl::Status InferCount(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferReduction(call, results));
  results->back().dtype = DType::kI64;
  return absl::OkStatus();
}
absl::Status ExpandCount(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Value there = IsBool(x.dtype()) ? x : Compare(b, Direction::kNe, x, FullLike(b, x, 0));
  WEFT_ASSIGN_OR_RETURN(results[0], ReduceByAttrs(call, Reducer::kSum, Convert(b, there, DType::kI64)));
  return absl::OkStatus();
}

absl::Status InferTwice(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferReduction(call, results));
  results->push_back(results->back());
  return absl::OkStatus();
}
absl::Status InferVarMean(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferVariance(call, results));
  results->push_back(Type::Tensor(call.operands[0]->dtype, results->back().dims));
  return absl::OkStatus();
}
template <const OpDef& spread>
absl::Status ExpandVarMean(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  results[0] = Call(b, spread, {x}, call.attrs);
  WEFT_ASSIGN_OR_RETURN(const int64_t count, ReducedCount(call.attrs, x.dims()));
  WEFT_ASSIGN_OR_RETURN(const Value sum, ReduceByAttrs(call, Reducer::kSum, x));
  results[1] = Div(b, sum, FullLike(b, sum, static_cast<double>(count)));
  return absl::OkStatus();
}
absl::Status ExpandMinMax(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(results[0], ReduceByAttrs(call, Reducer::kMin, call.operands[0]));
  WEFT_ASSIGN_OR_RETURN(results[1], ReduceByAttrs(call, Reducer::kMax, call.operands[0]));
  return absl::OkStatus();
}

absl::Status InferTrace(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() < 2) return UserError("x must have at least 2 dimensions, not ", DimsToString(x.dims));
  const int64_t rows = x.dims[x.rank() - 2], columns = x.dims[x.rank() - 1];
  if (columns >= (int64_t{1} << 40) / std::max<int64_t>(rows, 1)) {  // as diagonal
    return UserError("x has shape ", DimsToString(x.dims), "; its matrices must have fewer than 2^40 elements");
  }
  results->push_back(Type::Tensor(x.dtype, Dims(x.dims.begin(), x.dims.end() - 2)));
  return absl::OkStatus();
}
absl::Status ExpandTrace(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t rank = x.dims().size();
  const Value diagonal = Call(b, kOp_diagonal, {x}, {int64_t{0}, rank - 2, rank - 1});
  results[0] = diagonal ? Reduce(b, diagonal, Reducer::kSum, {rank - 2}) : diagonal;
  return absl::OkStatus();
}

// --- Order statistics: of the sorted elements, NaN being the largest.

// Slice `at` of x along an axis, which stays with size 1.
Value At(Builder& b, const Value& x, int64_t axis, int64_t at) {
  if (!x) return {};
  Ints start(x.dims().size(), 0), limit = ToInts(x.dims());
  start[axis] = at;
  limit[axis] = at + 1;
  return Slice(b, x, start, limit, Ints(x.dims().size(), 1));
}

absl::Status InferRanked(const InferCall& call, size_t axis_attr, Types* results) {
  const Type x = Type::Tensor(call.operands[0]->dtype, RowDims(call.operands[0]->dims));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOfRow("axis", call.attrs.Int(axis_attr), call.operands[0]->rank()));
  if (x.dims[axis] == 0) return UserError("axis ", axis, " has size 0: there is no element to find");
  if (x.dims[axis] > INT32_MAX)
    return UserError("axis ", axis, " has ", x.dims[axis], " elements; their positions must fit i32");
  Dims dims = call.operands[0]->dims;
  if (!dims.empty() && call.attrs.Bool(axis_attr + 1)) dims[axis] = 1;
  if (!dims.empty() && !call.attrs.Bool(axis_attr + 1)) dims.erase(dims.begin() + axis);
  results->push_back(Type::Tensor(x.dtype, dims));
  results->push_back(Type::Tensor(DType::kI32, dims));
  return absl::OkStatus();
}
absl::Status InferKth(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferRanked(call, 1, results));
  const Dims dims = RowDims(call.operands[0]->dims);
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOfRow("axis", call.attrs.Int(1), call.operands[0]->rank()));
  const int64_t k = call.attrs.Int(0);
  if (k < 1 || k > dims[axis])
    return UserError("k is ", k, "; it must be 1 to ", dims[axis], ", the size of axis ", axis);
  return absl::OkStatus();
}
absl::Status InferMedian(const InferCall& call, Types* results) { return InferRanked(call, 0, results); }

// k from 0. `nan`: of rows with a NaN the first of them.
absl::Status Ranked(const ExpandCall& call, size_t axis_attr, std::optional<int64_t> k, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = AsRow(b, call.operands[0]);
  if (!x) return b.status();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        AxisOfRow("axis", call.attrs.Int(axis_attr), call.operands[0].dims().size()));
  const int64_t size = x.dims()[axis];
  const Values sorted = SortByFirst(b, {x, Iota(b, DType::kI32, x.dims(), axis)}, axis, /*descending=*/false);
  if (!b.ok()) return b.status();
  Value value = At(b, sorted[0], axis, k.value_or((size - 1) / 2)),
        index = At(b, sorted[1], axis, k.value_or((size - 1) / 2));
  if (!k && IsFloat(x.dtype())) {
    const Value last = At(b, sorted[0], axis, size - 1);
    const Value first = Call(b, kOp_argmax, {x}, {axis, int64_t{1}});
    const Value nan = IsNan(b, last);
    value = Select(b, nan, last, value);
    index = Select(b, nan, first, index);
  }
  Dims dims = call.operands[0].dims();
  if (!dims.empty() && call.attrs.Bool(axis_attr + 1)) dims[axis] = 1;
  if (!dims.empty() && !call.attrs.Bool(axis_attr + 1)) dims.erase(dims.begin() + axis);
  results[0] = Reshape(b, value, dims);
  results[1] = Reshape(b, index, dims);
  return absl::OkStatus();
}
absl::Status ExpandKth(const ExpandCall& call, std::span<Value> results) {
  return Ranked(call, 1, Attr<kRankAttrs, "k">(call.attrs) - 1, results);
}
absl::Status ExpandMedian(const ExpandCall& call, std::span<Value> results) {
  return Ranked(call, 0, std::nullopt, results);
}

absl::Status InferQuantile(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferRanked(call, 0, results));
  results->pop_back();
  const Dims& q = call.operands[1]->dims;
  if (q.size() > 1) return UserError("q has shape ", DimsToString(q), "; it must be a number or a row of them");
  if (!q.empty()) results->back().dims.insert(results->back().dims.begin(), q[0]);
  return absl::OkStatus();
}
// Quantiles of rows without NaN, or of the numbers of rows, whose last rank is then each row's own.
template <bool numbers>
absl::Status ExpandQuantile(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = AsRow(b, call.operands[0]), q = AsRow(b, call.operands[1]);
  if (!x || !q) return b.status();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOfRow("axis", call.attrs.Int(0), call.operands[0].dims().size()));
  const int64_t size = x.dims()[axis], way = Attr<kQuantileAttrs, "interpolation">(call.attrs);
  const Value sorted = SortByFirst(b, {x}, axis, /*descending=*/false)[0];
  Value rank = Mul(b, q, static_cast<double>(size - 1));
  Dims spread = x.dims();
  spread[axis] = q.dims()[0];
  if (numbers) {
    const Value there = Convert(b, Call(b, kOp_bitwise_not, {IsNan(b, x)}), x.dtype());
    const Value last = Add(b, ReduceKeep(b, there, Reducer::kSum, {axis}), -1);
    if (!last) return b.status();
    rank = Mul(b, BroadcastInDim(b, q, spread, {axis}), BroadcastTo(b, Maximum(b, last, FullLike(b, last, 0)), spread));
  }
  const Value low = Unary(b, kOp_floor, rank), high = Unary(b, kOp_ceil, rank);
  // [.., q, ..], then q in front.
  const auto taken = [&](const Value& at) {
    return Call(b, numbers ? kOp_take_along_axis : kOp_take, {sorted, Convert(b, at, DType::kI32)}, {axis});
  };
  const auto along = [&](const Value& share, const Value& like) {
    return !like || numbers ? share : BroadcastInDim(b, share, like.dims(), {axis});
  };
  Value found;
  if (way == 1 || way == 2 || way == 3) {
    found = taken(way == 1 ? low : way == 2 ? high : Unary(b, kOp_round, rank));
  } else {
    const Value from = taken(low), to = taken(high);
    const Value share = way == 4 ? FullLike(b, rank, 0.5) : Sub(b, rank, low);
    found = Call(b, kOp_lerp, {from, to, along(share, from)});
  }
  const Value last = At(b, sorted, axis, size - 1);
  if (!found || !last) return b.status();
  if (!numbers) {
    const Value nan = IsNan(b, BroadcastTo(b, last, found.dims()));
    found = Select(b, nan, FullLike(b, found, std::numeric_limits<double>::quiet_NaN()), found);
  }
  Ints order = {axis};
  for (int64_t d = 0; d < static_cast<int64_t>(x.dims().size()); ++d) {
    if (d != axis) order.push_back(d);
  }
  found = Transpose(b, found, order);
  Dims dims = call.operands[0].dims();
  if (!dims.empty() && call.attrs.Bool(1)) dims[axis] = 1;
  if (!dims.empty() && !call.attrs.Bool(1)) dims.erase(dims.begin() + axis);
  if (!call.operands[1].dims().empty()) dims.insert(dims.begin(), q.dims()[0]);
  results[0] = Reshape(b, found, dims);
  return absl::OkStatus();
}

constexpr Sample kNorms[] = {
    {"T[2,3]", 0.5, 2}, {"T[4,5] dims=[1] p=3", 0.5, 2}, {"T[2,3] keepdims=true p=1", 0.5, 2}, {"T[0,3] dims=[0]"}};
constexpr Sample kReductions[] = {{"T[2,3]", 0.5, 2}, {"T[4,5] dims=[1] keepdims=true", 0.5, 2}, {"T[2,131] dims=[0]"}};
constexpr Sample kCounts[] = {{"T[2,3]", -2, 2, false}, {"T[4,5] dims=[1] keepdims=true", -2, 2, false}};
constexpr Sample kTraces[] = {{"T[3,3]"}, {"T[2,3,4]"}, {"T[0,0]"}};
// Where three tie the slope goes to one of them, which no difference says: of two it lies between the sides.
constexpr Sample kKths[] = {{.call = "T[7] k=3", .gradient = false}, {"T[2,5] k=2 axis=0 keepdims=true"}, {"T[] k=1"}};
constexpr Sample kMedians[] = {{.call = "T[7]", .gradient = false}, {"T[2,4] axis=0 keepdims=true"}, {"T[]"}};
constexpr Sample kQuantileSamples[] = {{"T[7] T[]", 0.1, 0.9, false},
                                       {"T[2,3] T[2] axis=0", 0.1, 0.9},
                                       {"T[3,5] T[2] axis=0 interpolation=midpoint", 0.1, 0.9, false}};
constexpr Tolerance kTolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 4e-6};

}  // namespace

constinit const OpDef kOp_norm = Formula({
    .name = "weft.norm",
    .c_name = "norm",
    .doc = "The p-norm of vectors, (Σ |x|^p)^(1 / p), over some axes, by default all; real of complex numbers. The "
           "gradient of a norm of 0 is 0.",
    .example = "n = wf_norm(s, g);",
    .operands = kSized,
    .attrs = kNormAttrs,
    .infer = InferNorm,
    .expand = ExpandNorm,
    .samples = kNorms,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_nansum = Formula({
    .name = "weft.nansum",
    .c_name = "nansum",
    .doc = "The sum over some axes, by default all, of what is not NaN.",
    .example = "y = wf_nansum(s, x);",
    .operands = kFloats,
    .attrs = kReductionAttrs,
    .infer = InferReduction,
    .expand = ExpandNansum,
    .samples = kReductions,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_nanmean = Formula({
    .name = "weft.nanmean",
    .c_name = "nanmean",
    .doc = "The mean over some axes, by default all, of what is not NaN; NaN where nothing is left.",
    .example = "y = wf_nanmean(s, x);",
    .operands = kFloats,
    .attrs = kReductionAttrs,
    .infer = InferReduction,
    .expand = ExpandNanmean,
    .samples = kReductions,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_count_nonzero = Formula({
    .name = "weft.count_nonzero",
    .c_name = "count_nonzero",
    .doc = "How many elements are not 0 over some axes, by default all, as i64. NaN is not 0.",
    .example = "n = wf_count_nonzero(s, mask);",
    .operands = kAny,
    .attrs = kReductionAttrs,
    .infer = InferCount,
    .expand = ExpandCount,
    .samples = kCounts,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});
constinit const OpDef kOp_var_mean = Formula({
    .name = "weft.var_mean",
    .c_name = "var_mean",
    .doc = "Variance and mean over some axes, by default all; see var.",
    .example = "spread = wf_var_mean(s, x);",
    .operands = kVarianceOperands,
    .attrs = kVarianceAttrs,
    .results = kVarMean,
    .infer = InferVarMean,
    .expand = ExpandVarMean<kOp_var>,
    .samples = kReductions,
    .tolerance = kVarianceTolerance,
});
constinit const OpDef kOp_std_mean = Formula({
    .name = "weft.std_mean",
    .c_name = "std_mean",
    .doc = "Standard deviation and mean over some axes, by default all; see std.",
    .example = "spread = wf_std_mean(s, x);",
    .operands = kVarianceOperands,
    .attrs = kVarianceAttrs,
    .results = kStdMean,
    .infer = InferVarMean,
    .expand = ExpandVarMean<kOp_std>,
    .samples = kReductions,
    .tolerance = kVarianceTolerance,
});
constinit const OpDef kOp_aminmax = Formula({
    .name = "weft.aminmax",
    .c_name = "aminmax",
    .doc = "Minimum and maximum over some axes, by default all; see min and max.",
    .example = "ends = wf_aminmax(s, x);",
    .operands = kOrdered,
    .attrs = kReductionAttrs,
    .results = kMinMax,
    .infer = InferTwice,
    .expand = ExpandMinMax,
    .samples = kReductions,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_trace = Formula({
    .name = "weft.trace",
    .c_name = "trace",
    .doc = "The sum of the main diagonal of the last two dimensions.",
    .example = "y = wf_trace(s, x);",
    .operands = kMatrices,
    .infer = InferTrace,
    .expand = ExpandTrace,
    .samples = kTraces,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_kthvalue = Formula({
    .name = "weft.kthvalue",
    .c_name = "kthvalue",
    .doc =
        "The k-th smallest element along one axis and its position as i32, of equal ones the k-th as they stand. NaN "
        "counts as the largest.",
    .example = "second = wf_kthvalue(s, x, 2);",
    .operands = kOrdered,
    .attrs = kRankAttrs,
    .results = kFound,
    .infer = InferKth,
    .expand = ExpandKth,
    .samples = kKths,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_median = Formula({
    .name = "weft.median",
    .c_name = "median",
    .doc = "The median along one axis, of two in the middle the lower one, and its position as i32; of a row with NaN "
           "the first NaN.",
    .example = "middle = wf_median(s, x);",
    .operands = kOrdered,
    .attrs = kAxisAttrs,
    .results = kFound,
    .infer = InferMedian,
    .expand = ExpandMedian,
    .samples = kMedians,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_quantile = Formula({
    .name = "weft.quantile",
    .c_name = "quantile",
    .doc = "Quantiles along one axis, for a row of q in front of the other dimensions; NaN of a row with NaN.",
    .example = "y = wf_quantile(s, x, q);",
    .operands = kQuantiles,
    .attrs = kQuantileAttrs,
    .infer = InferQuantile,
    .expand = ExpandQuantile<false>,
    .samples = kQuantileSamples,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_nanquantile = Formula({
    .name = "weft.nanquantile",
    .c_name = "nanquantile",
    .doc =
        "Quantiles along one axis of what is not NaN, for a row of q in front of the other dimensions; NaN where nothing is left.",
    .example = "y = wf_nanquantile(s, x, q);",
    .operands = kQuantiles,
    .attrs = kQuantileAttrs,
    .infer = InferQuantile,
    .expand = ExpandQuantile<true>,
    .samples = kQuantileSamples,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
