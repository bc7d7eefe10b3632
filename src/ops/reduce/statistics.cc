// Statistics and running results that are formulas: histograms, medians beside NaN, covariances, areas, lengths held to a bound.
#include <algorithm>
#include <cmath>

#include "src/ops/axes.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/nan.h"
#include "src/ops/reduce/norms.h"
#include "src/ops/sort/order.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAxis = {"axis", AttrType::kInt, "axis; negative counts from the end", false, "-1"};
constexpr AttrDef kAxisAttrs[] = {kAxis};
constexpr AttrDef kKeptAttrs[] = {kAxis, {"keepdims", AttrType::kBool, "keep the axis with size 1", false, "false"}};
constexpr AttrDef kHistogramAttrs[] = {
    {"bins", AttrType::kInt, "how many, at least 1", true},
    {"low", AttrType::kDouble, "where the first begins; low = high: x's ends", false, "0"},
    {"high", AttrType::kDouble, "where the last one ends, itself a member", false, "0"}};
constexpr AttrDef kEdgedAttrs[] = {{"density", AttrType::kBool, "so that the bins' areas sum to 1", false, "false"}};
constexpr AttrDef kAreaAttrs[] = {kAxis, {"dx", AttrType::kDouble, "distance where no places are given", false, "1"}};
constexpr AttrDef kCovAttrs[] = {{"correction", AttrType::kInt, "taken off the count", false, "1"}};
constexpr AttrDef kRenormAttrs[] = {{"p", AttrType::kDouble, "degree of the norm, above 0", true},
                                    {"axis", AttrType::kInt, "axis of the slices; negative counts from the end", true},
                                    {"most", AttrType::kDouble, "greatest length, at least 0", true}};
constexpr AttrDef kSimilarityAttrs[] = {kAxis, {"eps", AttrType::kDouble, "least length, at least 0", false, "1e-8"}};
constexpr OperandDef kFloats[] = {{"x", kF, "operand"}};
constexpr OperandDef kEdged[] = {{"x", kF, "operand"},
                                 {"edges", kF, "[bins + 1], in ascending order; the last one is in the last bin"},
                                 {"weights", kF, "of each element, of x's shape; absent: 1", true}};
constexpr OperandDef kAreas[] = {{"y", kF, "heights"},
                                 {"x", kF, "places, a row or of y's shape; absent: dx apart", true}};
constexpr OperandDef kObserved[] = {
    {"x", kF | kC, "[variables, observations], or a row of them"},
    {"counts", kF, "how often each observation counts, in the type of x's parts; absent: once", true, false, 'W'},
    {"weights", kF, "of each observation; absent: 1", true, false, 'W'}};
constexpr OperandDef kPair[] = {{"x", kF, "operand"}, {"y", kF, "broadcasts with x"}};
constexpr std::string_view kFound[] = {"values", "indices"};

Value Part(Builder& b, const Value& x, int64_t axis, int64_t from, int64_t to) {
  if (!x) return {};
  Ints start(x.dims().size(), 0), limit = ToInts(x.dims());
  start[axis] = from;
  limit[axis] = to;
  return Slice(b, x, start, limit, Ints(x.dims().size(), 1));
}

absl::Status InferRow(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(AxisOfRow("axis", Attr<kAxisAttrs, "axis">(call.attrs), call.operands[0]->rank()).status());
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}
// A pass for each power of two below the length, as in cumsum: an element and its partner's sum. Those without a partner stay as they
// are: beside minus infinity in its place, an element that is minus infinity, too, would have half of its slope.
absl::Status ExpandLogSum(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  Value y = AsRow(b, call.operands[0]);
  if (!y) return b.status();
  const Dims dims = y.dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        AxisOfRow("axis", Attr<kAxisAttrs, "axis">(call.attrs), call.operands[0].dims().size()));
  for (int64_t by = 1; by < dims[axis] && b.ok(); by *= 2) {
    const auto part = [&](int64_t from, int64_t to) {
      Ints start(dims.size(), 0), limit = ToInts(dims);
      start[axis] = from;
      limit[axis] = to;
      return Slice(b, y, start, limit, Ints(dims.size(), 1));
    };
    const Value sums = Call(b, kOp_logaddexp, {part(by, dims[axis]), part(0, dims[axis] - by)});
    y = Call(b, kOp_concatenate, {part(0, by), sums}, {axis});
  }
  results[0] = y ? Reshape(b, y, call.operands[0].dims()) : y;
  return b.status();
}

absl::Status InferNanmedian(const InferCall& call, Types* results) {
  return kOp_median.infer(InferCall{kOp_median, call.operands, call.attrs}, results);
}
absl::Status ExpandNanmedian(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = AsRow(b, call.operands[0]);
  if (!x) return b.status();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        AxisOfRow("axis", Attr<kKeptAttrs, "axis">(call.attrs), call.operands[0].dims().size()));
  const Values sorted = SortByFirst(b, {x, Iota(b, DType::kI32, x.dims(), axis)}, axis, /*descending=*/false);
  if (!b.ok()) return b.status();
  // NaN is behind the numbers: the middle one of these.
  const Value numbers = Call(b, kOp_bitwise_not, {IsNan(b, x)});
  const Value count = ReduceKeep(b, Convert(b, numbers, DType::kI32), Reducer::kSum, {axis});
  const Value last = Maximum(b, Add(b, count, -1), FullLike(b, count, 0));
  const Value middle = Call(b, kOp_shift_right_arithmetic, {last, FullLike(b, count, 1)});
  Dims dims = call.operands[0].dims();
  if (!dims.empty() && Attr<kKeptAttrs, "keepdims">(call.attrs)) dims[axis] = 1;
  if (!dims.empty() && !Attr<kKeptAttrs, "keepdims">(call.attrs)) dims.erase(dims.begin() + axis);
  for (size_t i = 0; i < 2; ++i) {
    const Value found = Call(b, kOp_take_along_axis, {sorted[i], middle}, {axis});
    results[i] = found ? Reshape(b, found, dims) : found;
  }
  return b.status();
}

absl::Status InferHistogram(const InferCall& call, Types* results) {
  const int64_t bins = Attr<kHistogramAttrs, "bins">(call.attrs);
  const double low = Attr<kHistogramAttrs, "low">(call.attrs), high = Attr<kHistogramAttrs, "high">(call.attrs);
  if (bins < 1 || bins > INT32_MAX) return UserError("bins is ", bins, "; it must be 1 to 2^31 - 1");
  if (!(low <= high && std::isfinite(low) && std::isfinite(high))) {
    return UserError("low is ", low, " and high ", high, "; they must be finite, and low at most high");
  }
  if (call.operands[0]->count() > INT32_MAX) {
    return UserError("x has ", call.operands[0]->count(), " elements; there may be 2^31 - 1");
  }
  results->push_back(Type::Tensor(call.operands[0]->dtype, {bins}));
  return absl::OkStatus();
}
absl::Status ExpandHistogram(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const int64_t bins = Attr<kHistogramAttrs, "bins">(call.attrs), count = call.operands[0].type().count();
  const double low = Attr<kHistogramAttrs, "low">(call.attrs), high = Attr<kHistogramAttrs, "high">(call.attrs);
  if (count == 0) {
    results[0] = Full(b, call.operands[0].dtype(), {bins}, 0);
    return absl::OkStatus();
  }
  const Value x = Unary(b, kOp_stop_gradient, Reshape(b, call.operands[0], {count}));
  Value from = Scalar(b, x.dtype(), low), to = Scalar(b, x.dtype(), high);
  if (low == high) {
    from = Reduce(b, x, Reducer::kMin, {0});
    to = Reduce(b, x, Reducer::kMax, {0});
    const Value same = Compare(b, Direction::kEq, from, to);
    from = Select(b, same, Add(b, from, -1), from);
    to = Select(b, same, Add(b, to, 1), to);
  }
  from = BroadcastTo(b, from, {count});
  to = BroadcastTo(b, to, {count});
  const Value there = And(b, Compare(b, Direction::kGe, x, from), Compare(b, Direction::kLe, x, to));
  const Value share = Div(b, Mul(b, Sub(b, x, from), static_cast<double>(bins)), Sub(b, to, from));
  const Value safe =
      Select(b, there, Minimum(b, Unary(b, kOp_floor, share), FullLike(b, x, static_cast<double>(bins - 1))),
             FullLike(b, x, -1));
  const Value counts = Call(b, kOp_bincount, {Convert(b, safe, DType::kI32), Value()}, {bins});
  results[0] = Convert(b, counts, x.dtype());
  return b.status();
}

absl::Status InferEdged(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &edges = *call.operands[1];
  if (edges.rank() != 1 || edges.dims[0] < 2 || edges.dims[0] > INT32_MAX) {
    return UserError("edges have shape ", DimsToString(edges.dims), "; [bins + 1] with at least one bin is needed");
  }
  if (call.operands[2] != nullptr && call.operands[2]->dims != x.dims) {
    return UserError("weights must have x's shape ", DimsToString(x.dims), ", not ",
                     DimsToString(call.operands[2]->dims));
  }
  if (x.count() > INT32_MAX) return UserError("x has ", x.count(), " elements; there may be 2^31 - 1");
  results->push_back(Type::Tensor(x.dtype, {edges.dims[0] - 1}));
  return absl::OkStatus();
}
absl::Status ExpandEdged(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &edges = call.operands[1];
  const int64_t bins = edges.dims()[0] - 1;
  const Value last = BroadcastTo(b, Slice(b, edges, {bins}, {bins + 1}, {1}), x.dims().empty() ? Dims{1} : x.dims());
  if (!last) return b.status();
  const Value bin = Add(b, Call(b, kOp_searchsorted, {edges, x}, {int64_t{1}}), -1);
  const Value at_end = Compare(b, Direction::kEq, x, Reshape(b, last, x.dims()));
  const Value safe = Select(b, at_end, FullLike(b, bin, static_cast<double>(bins - 1)), bin);
  const Value ones = call.operands[2] ? call.operands[2] : FullLike(b, x, 1);
  Value counts = Call(b, kOp_bincount, {safe, ones}, {bins});
  if (Attr<kEdgedAttrs, "density">(call.attrs)) {
    const Value widths = Sub(b, Slice(b, edges, {1}, {bins + 1}, {1}), Slice(b, edges, {0}, {bins}, {1}));
    const Value sum = Reduce(b, counts, Reducer::kSum, {0});
    counts = Div(b, counts, Mul(b, widths, BroadcastTo(b, sum, {bins})));
  }
  results[0] = counts;
  return b.status();
}

// --- Areas under a line

absl::StatusOr<int64_t> CheckArea(const InferCall& call) {
  const Type& y = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAreaAttrs, "axis">(call.attrs), y.rank()));
  if (call.operands[1] != nullptr && call.operands[1]->dims != y.dims && call.operands[1]->dims != Dims{y.dims[axis]}) {
    return UserError("x has shape ", DimsToString(call.operands[1]->dims), "; [", y.dims[axis], "] or ",
                     DimsToString(y.dims), " is needed");
  }
  return axis;
}
absl::Status InferArea(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, CheckArea(call));
  Dims dims = call.operands[0]->dims;
  dims.erase(dims.begin() + axis);
  results->push_back(Type::Tensor(call.operands[0]->dtype, dims));
  return absl::OkStatus();
}
absl::Status InferAreas(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, CheckArea(call));
  Dims dims = call.operands[0]->dims;
  dims[axis] = std::max<int64_t>(0, dims[axis] - 1);
  results->push_back(Type::Tensor(call.operands[0]->dtype, dims));
  return absl::OkStatus();
}
template <bool running>
absl::Status ExpandArea(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& y = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("axis", Attr<kAreaAttrs, "axis">(call.attrs), y.dims().size()));
  const int64_t size = y.dims()[axis];
  const int64_t parts = std::max<int64_t>(0, size - 1);
  const Value sides = Add(b, Part(b, y, axis, size - parts, size), Part(b, y, axis, 0, parts));
  Value area = Mul(b, sides, Attr<kAreaAttrs, "dx">(call.attrs) / 2);
  if (call.operands[1]) {
    const Value x =
        call.operands[1].dims() == y.dims() ? call.operands[1] : BroadcastInDim(b, call.operands[1], y.dims(), {axis});
    area = Mul(b, Mul(b, sides, Sub(b, Part(b, x, axis, size - parts, size), Part(b, x, axis, 0, parts))), 0.5);
  }
  results[0] = running ? Call(b, kOp_cumsum, {area}, {axis, int64_t{0}}) : Reduce(b, area, Reducer::kSum, {axis});
  return b.status();
}

// --- Covariances

absl::Status InferCov(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() > 2) return UserError("x has shape ", DimsToString(x.dims), "; [variables, observations] is needed");
  const int64_t observed = x.rank() == 0 ? 1 : x.dims.back();
  for (size_t i = 1; i < call.operands.size(); ++i) {
    if (call.operands[i] != nullptr && call.operands[i]->dims != Dims{observed}) {
      return UserError(call.op.operands[i].name, " must have shape [", observed, "], not ",
                       DimsToString(call.operands[i]->dims));
    }
    if (call.operands[i] != nullptr && call.operands[i]->dtype != PartOf(x.dtype)) {
      return UserError(call.op.operands[i].name, " are ", NameOf(call.operands[i]->dtype), "; of x, ", NameOf(x.dtype),
                       ", they must be ", NameOf(PartOf(x.dtype)));
    }
  }
  results->push_back(Type::Tensor(x.dtype, x.rank() == 2 && x.dims[0] != 1 ? Dims{x.dims[0], x.dims[0]} : Dims()));
  return absl::OkStatus();
}
absl::Status ExpandCov(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& given = call.operands[0];
  const int64_t n = given.dims().empty() ? 1 : given.dims().back(),
                variables = given.dims().size() == 2 ? given.dims()[0] : 1;
  const Value x = Reshape(b, given, {variables, n});
  Value weight = call.operands[1];
  if (call.operands[2]) weight = weight ? Mul(b, weight, call.operands[2]) : call.operands[2];
  const auto total = [&](const Value& v) { return Reduce(b, v, Reducer::kSum, {0}); };
  const auto as_x = [&](const Value& v) { return v && v.dtype() != x.dtype() ? Convert(b, v, x.dtype()) : v; };
  const Value sum = weight ? total(weight) : Scalar(b, PartOf(given.dtype()), static_cast<double>(n));
  const auto weighted = [&](const Value& v) {
    return weight ? Mul(b, v, BroadcastInDim(b, as_x(weight), {variables, n}, {1})) : v;
  };
  const Value mean = Div(b, Reduce(b, weighted(x), Reducer::kSum, {1}), BroadcastTo(b, as_x(sum), {variables}));
  const Value apart = Sub(b, x, BroadcastInDim(b, mean, {variables, n}, {0}));
  const double correction = static_cast<double>(Attr<kCovAttrs, "correction">(call.attrs));
  Value over = Add(b, sum, -correction);
  if (call.operands[2] && correction != 0)
    over = Sub(b, sum, Mul(b, Div(b, total(Mul(b, weight, call.operands[2])), sum), correction));
  over = Maximum(b, over, FullLike(b, over, 0));
  const Value product = Call(b, kOp_dot_general, {weighted(apart), Conj(b, apart)}, {Ints{}, Ints{}, Ints{1}, Ints{1}});
  const Value all = Div(b, product, BroadcastTo(b, as_x(over), {variables, variables}));
  results[0] = all && variables == 1 ? Reshape(b, all, {}) : all;
  return b.status();
}
absl::Status ExpandCorrcoef(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value cov = Call(b, kOp_cov, {call.operands[0], Value(), Value()}, {int64_t{1}});
  if (!cov) return b.status();
  if (cov.dims().empty()) {
    results[0] = Div(b, cov, cov);
    return absl::OkStatus();
  }
  const bool complex = IsComplex(cov.dtype());
  const Value variance = Call(b, kOp_diagonal, {cov}, {int64_t{0}, int64_t{0}, int64_t{1}});
  Value deviation = Sqrt(b, complex ? Unary(b, kOp_real, variance) : variance);
  if (complex) deviation = Convert(b, deviation, cov.dtype());
  const Value even =
      Div(b, Div(b, cov, BroadcastInDim(b, deviation, cov.dims(), {0})), BroadcastInDim(b, deviation, cov.dims(), {1}));
  const auto held = [&](const Value& v) { return Call(b, kOp_clip, {v}, {-1.0, 1.0}); };
  if (!even) return b.status();
  if (complex) {
    const Planes planes = PlanesOf(b, even);
    results[0] = ComplexFrom(b, {held(planes.re), held(planes.im)});
  } else {
    results[0] = held(even);
  }
  return b.status();
}

// --- Lengths

absl::Status InferRenorm(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const double p = Attr<kRenormAttrs, "p">(call.attrs), most = Attr<kRenormAttrs, "most">(call.attrs);
  WEFT_RETURN_IF_ERROR(NormalizeAxis("axis", Attr<kRenormAttrs, "axis">(call.attrs), x.rank()).status());
  if (!(p > 0)) return UserError("p is ", p, "; it must be above 0");
  if (!(most >= 0)) return UserError("most is ", most, "; it must be at least 0");
  results->push_back(x);
  return absl::OkStatus();
}
absl::Status ExpandRenorm(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("axis", Attr<kRenormAttrs, "axis">(call.attrs), x.dims().size()));
  Ints others = Axes(x.dims().size());
  others.erase(others.begin() + axis);
  const double most = Attr<kRenormAttrs, "most">(call.attrs);
  const Value norm = others.empty() ? Abs(b, x) : NormKeep(b, x, Attr<kRenormAttrs, "p">(call.attrs), others);
  const Value long_ = Compare(b, Direction::kGt, norm, most);
  const Value factor = Select(b, long_, Div(b, most, Add(b, norm, 1e-7)), FullLike(b, norm, 1));
  const Value each = IsComplex(x.dtype()) && factor ? Convert(b, factor, x.dtype()) : factor;
  results[0] = each ? Mul(b, x, BroadcastTo(b, each, x.dims())) : each;
  return b.status();
}

absl::Status InferSimilarity(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(Dims dims, BroadcastDims(call.operands[0]->dims, call.operands[1]->dims));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOfRow("axis", Attr<kSimilarityAttrs, "axis">(call.attrs), dims.size()));
  const double eps = Attr<kSimilarityAttrs, "eps">(call.attrs);
  if (!(eps >= 0)) return UserError("eps is ", eps, "; it must be at least 0");
  if (!dims.empty()) dims.erase(dims.begin() + axis);
  results->push_back(Type::Tensor(call.operands[0]->dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandSimilarity(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Dims dims, BroadcastDims(call.operands[0].dims(), call.operands[1].dims()));
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AlongAxis("axis", Attr<kSimilarityAttrs, "axis">(call.attrs), dims.size()));
  const double eps = Attr<kSimilarityAttrs, "eps">(call.attrs);
  const auto even = [&](const Value& given) {
    const Value x = BroadcastTo(b, given, dims), norm = NormKeep(b, x, 2, axes);
    return norm ? Div(b, x, BroadcastTo(b, Maximum(b, norm, FullLike(b, norm, eps)), dims)) : norm;
  };
  results[0] = Reduce(b, Mul(b, even(call.operands[0]), even(call.operands[1])), Reducer::kSum, axes);
  return b.status();
}

constexpr Sample kRows[] = {{"T[2,5] axis=0"}};
constexpr Sample kMedians[] = {{.call = "T[2,5]", .gradient = false}, {"T[2,4] axis=0 keepdims=true"}};
constexpr Sample kHistograms[] = {{"T[9] bins=4 low=-1 high=1", -2, 2, false}};
constexpr Sample kEdgedSamples[] = {{"T[9] T[2]"}, {"T[3,3] T[2] T[3,3]"}};
constexpr Sample kAreaSamples[] = {{"T[2,5] T[5]"}, {"T[4,2] none axis=0 dx=0.5"}};
constexpr Sample kCovs[] = {{"T[2,5] none T[5]", 0.5, 2}};
constexpr Sample kCoefficients[] = {{"T[2,5]"}};
constexpr Sample kRenorms[] = {{"T[2,3] p=2 axis=0 most=1"}};
constexpr Sample kSimilarities[] = {{"T[2,3] T[3]", 0.5, 2}};
constexpr Tolerance kTolerance = {.f32 = 2e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 2e-5};

}  // namespace

constinit const OpDef kOp_logcumsumexp = Formula({
    .name = "weft.logcumsumexp",
    .c_name = "logcumsumexp",
    .doc = "The logarithm of the sum of exponentials of the elements up to each one along an axis.",
    .example = "y = wf_logcumsumexp(s, x);",
    .operands = kFloats,
    .attrs = kAxisAttrs,
    .infer = InferRow,
    .expand = ExpandLogSum,
    .samples = kRows,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_nanmedian = Formula({
    .name = "weft.nanmedian",
    .c_name = "nanmedian",
    .doc = "The median of what is not NaN along an axis, of two in the middle the lower one, and its place; NaN "
           "where all are.",
    .example = "wf_nanmedian(s, x);",
    .operands = kFloats,
    .attrs = kKeptAttrs,
    .results = kFound,
    .infer = InferNanmedian,
    .expand = ExpandNanmedian,
    .samples = kMedians,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_histc = Formula({
    .name = "weft.histc",
    .c_name = "histc",
    .doc = "How many elements lie in each of so many equal bins from low to high; those outside and NaN are left out.",
    .example = "h = wf_histc(s, x, 10, .low = -1, .high = 1);",
    .operands = kFloats,
    .attrs = kHistogramAttrs,
    .infer = InferHistogram,
    .expand = ExpandHistogram,
    .samples = kHistograms,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
});
constinit const OpDef kOp_histogram = Formula({
    .name = "weft.histogram",
    .c_name = "histogram",
    .doc =
        "How many elements lie between each edge and the next one, or the sum of their weights; the last bin has its end, too. "
        "Those outside and NaN are left out. The gradient goes to the weights.",
    .example = "h = wf_histogram(s, x, edges, NULL);",
    .operands = kEdged,
    .attrs = kEdgedAttrs,
    .infer = InferEdged,
    .expand = ExpandEdged,
    .samples = kEdgedSamples,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_trapezoid = Formula({
    .name = "weft.trapezoid",
    .c_name = "trapezoid",
    .doc = "The area under the line through the elements along an axis.",
    .example = "a = wf_trapezoid(s, y, x);",
    .operands = kAreas,
    .attrs = kAreaAttrs,
    .infer = InferArea,
    .expand = ExpandArea<false>,
    .samples = kAreaSamples,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_cumulative_trapezoid = Formula({
    .name = "weft.cumulative_trapezoid",
    .c_name = "cumulative_trapezoid",
    .doc = "The areas under the line through the elements along an axis up to each one but the first.",
    .example = "a = wf_cumulative_trapezoid(s, y, x);",
    .operands = kAreas,
    .attrs = kAreaAttrs,
    .infer = InferAreas,
    .expand = ExpandArea<true>,
    .samples = kAreaSamples,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_cov = Formula({
    .name = "weft.cov",
    .c_name = "cov",
    .doc =
        "The covariances of variables, each a row of observations, of complex ones with conjugates; of one variable its variance as a "
        "scalar.",
    .example = "c = wf_cov(s, x, NULL, NULL);",
    .operands = kObserved,
    .attrs = kCovAttrs,
    .infer = InferCov,
    .expand = ExpandCov,
    .samples = kCovs,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_corrcoef = Formula({
    .name = "weft.corrcoef",
    .c_name = "corrcoef",
    .doc = "The correlations of variables, each a row of observations, held to -1 and 1, of complex ones both parts.",
    .example = "c = wf_corrcoef(s, x);",
    .operands = kRealOrComplex,
    .infer = InferCov,
    .expand = ExpandCorrcoef,
    .samples = kCoefficients,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_renorm = Formula({
    .name = "weft.renorm",
    .c_name = "renorm",
    .doc = "x with each slice along an axis that is longer than the greatest length made that long.",
    .example = "y = wf_renorm(s, x, 2, 0, 1);",
    .operands = kRealOrComplex,
    .attrs = kRenormAttrs,
    .infer = InferRenorm,
    .expand = ExpandRenorm,
    .samples = kRenorms,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_cosine_similarity = Formula({
    .name = "weft.cosine_similarity",
    .c_name = "cosine_similarity",
    .doc = "The cosine of the angle between vectors along an axis; lengths below eps count as eps.",
    .example = "c = wf_cosine_similarity(s, x, y);",
    .operands = kPair,
    .attrs = kSimilarityAttrs,
    .infer = InferSimilarity,
    .expand = ExpandSimilarity,
    .samples = kSimilarities,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
