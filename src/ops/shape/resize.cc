// Padding by own elements, resizing, sampling at computed points, and features that become places; data are channels-last.
#include <algorithm>
#include <array>
#include <cmath>

#include "src/ops/elementwise/special.h"
#include "src/ops/shape/taps.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kPadAttrs[] = {{"low", AttrType::kInts, "elements before each dimension; negative ones cut", true},
                                 {"high", AttrType::kInts, "elements behind each dimension; negative ones cut", true}};
constexpr std::string_view kModes[] = {"nearest", "nearest_exact", "linear", "cubic", "area"};
enum : int64_t { kNearest = 0, kNearestExact = 1, kLinear = 2, kCubic = 3, kArea = 4 };
constexpr AttrDef kResizeAttrs[] = {
    {"size", AttrType::kInts, "of the result in each spatial dimension, at least 1", true},
    {"mode", AttrType::kEnum, "how what lies between elements is made of them", false, "linear", kModes},
    {"align_corners", AttrType::kBool, "the first and last elements stay where they are; of linear and cubic", false,
     "false"},
    {"scales", AttrType::kDoubles, "result's over x's spacing, one for each spatial dimension; absent: of the sizes"},
    {"antialias", AttrType::kBool, "what shrinks is a mean over all that an element covers; of linear and cubic", false,
     "false"}};
constexpr AttrDef kFactorAttrs[] = {{"factor", AttrType::kInt, "elements of a side, at least 1", true}};
constexpr AttrDef kGroupsAttrs[] = {{"groups", AttrType::kInt, "groups of features, at least 1", true}};
constexpr std::string_view kSampleModes[] = {"linear", "nearest", "cubic"},
                           kOutside[] = {"zeros", "border", "reflection"};
constexpr AttrDef kGridAttrs[] = {
    {"mode", AttrType::kEnum, "how what lies between elements is made of them", false, "linear", kSampleModes},
    {"outside", AttrType::kEnum, "what lies outside", false, "zeros", kOutside},
    {"align_corners", AttrType::kBool, "-1 and 1 are the middles of the outer elements, else their outer edges", false,
     "false"}};
constexpr AttrDef kAffineAttrs[] = {{"size", AttrType::kInts, "[height, width] of the result", true},
                                    {"align_corners", AttrType::kBool, "as of grid_sample", false, "false"}};
constexpr OperandDef kAny[] = {{"x", kEveryType, "operand"}};
constexpr OperandDef kFloats[] = {{"x", kF, "[batch, spatial…, features]"}};
constexpr OperandDef kFeatures[] = {{"x", kEveryType, "[batch, spatial…, features]"}};
constexpr OperandDef kSampled[] = {
    {"x", kF, "[batch, height, width, features], or [batch, depth, height, width, features]"},
    {"grid", kF, "[batch, …, 2], where in x, across and down, from -1 to 1; [batch, …, 3] with the depth behind them"}};
constexpr OperandDef kAffine[] = {{"theta", kF, "[batch, 2, 3], what the points are multiplied by"}};

// --- Padding

enum class Edge { kReflect, kReplicate, kCircular };

template <Edge edge>
absl::Status InferPad(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Ints &low = Attr<kPadAttrs, "low">(call.attrs), &high = Attr<kPadAttrs, "high">(call.attrs);
  if (low.size() != x.rank() || high.size() != x.rank()) {
    return UserError("low has ", low.size(), " and high ", high.size(), " entries; x has ", x.rank(), " dimensions");
  }
  Dims dims = x.dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t left = dims[d] + std::min<int64_t>(low[d], 0) + std::min<int64_t>(high[d], 0);
    const int64_t most = edge == Edge::kReflect    ? dims[d] - 1
                         : edge == Edge::kCircular ? std::max<int64_t>(left, 0)
                                                   : INT32_MAX;
    for (const int64_t amount : {low[d], high[d]}) {
      if (amount > 0 && dims[d] == 0) return UserError("dimension ", d, " is empty: there is nothing to pad with");
      if (amount > 0 && amount > most)
        return UserError("padding is ", amount, " in dimension ", d, "; there it must be at most ", most);
      if (amount < -dims[d]) return UserError("padding is ", amount, " in dimension ", d, " of size ", dims[d]);
    }
    dims[d] += low[d] + high[d];
    if (dims[d] < 0 || dims[d] > INT32_MAX) return UserError("dimension ", d, " would have ", dims[d], " elements");
  }
  if (!CheckedCount(dims)) return UserError("the result has too many elements");
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}
template <Edge edge>
absl::Status ExpandPad(const ExpandCall& call, std::span<Value> results) {
  Value y = call.operands[0];
  const Ints &low = Attr<kPadAttrs, "low">(call.attrs), &high = Attr<kPadAttrs, "high">(call.attrs);
  for (size_t d = 0; d < low.size() && y; ++d) {
    if (low[d] == 0 && high[d] == 0) continue;
    const int64_t size = y.dims()[d], out = size + low[d] + high[d];
    // A negative amount cuts the dimension first; circular padding then repeats the rest.
    const int64_t first = std::max<int64_t>(0, -low[d]), left = size - first + std::min<int64_t>(high[d], 0);
    Taps taps{.out = out};
    for (int64_t i = 0; i < out; ++i) {
      const int64_t at = i - low[d];
      taps.index.push_back(edge == Edge::kReplicate  ? std::clamp<int64_t>(at, 0, size - 1)
                           : edge == Edge::kCircular ? first + (((at - first) % left) + left) % left
                           : at < 0                  ? -at
                           : at >= size              ? 2 * (size - 1) - at
                                                     : at);
    }
    Dims dims = y.dims();
    dims[d] = out;
    const Value taken = TakeTaps(call.b, y, static_cast<int64_t>(d), taps);
    y = taken ? Reshape(call.b, taken, dims) : taken;
  }
  results[0] = y;
  return call.b.status();
}

// --- Resizing

absl::StatusOr<Ints> SizesOf(const Attrs& attrs, const Dims& x) {
  if (x.size() < 3) {
    return UserError("x has shape ", DimsToString(x), "; [batch, spatial…, features] of rank 3 or more is needed");
  }
  const Ints& sizes = Attr<kResizeAttrs, "size">(attrs);
  if (sizes.size() != x.size() - 2)
    return UserError("size has ", sizes.size(), " entries; x has ", x.size() - 2, " spatial dimensions");
  for (const int64_t size : sizes) {
    if (size < 1 || size > INT32_MAX) return UserError("size is ", size, "; it must be 1 to 2^31 - 1");
  }
  return sizes;
}
// The way in x from one element of the result to the next. Above 2^31 it is 2^31: all but the first are behind x's end then, and places
// fit i64.
constexpr double kMostStep = 0x1p31;
double StepOf(int64_t in, int64_t out, bool align, double given) {
  if (align) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  return std::min(given > 0 ? 1 / given : static_cast<double>(in) / static_cast<double>(out), kMostStep);
}
// How far an element of the result sees with antialias, and how many of x it sees at most.
double ReachOf(double step, int64_t mode) { return std::max(step, 1.0) * (mode == kLinear ? 1 : 2); }
int64_t SmoothCount(int64_t in, double step, int64_t mode) {
  return std::min(in, static_cast<int64_t>(std::ceil(ReachOf(step, mode))) * 2 + 1);
}

absl::Status InferResize(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, SizesOf(call.attrs, x.dims));
  const int64_t mode = Attr<kResizeAttrs, "mode">(call.attrs);
  const bool align = Attr<kResizeAttrs, "align_corners">(call.attrs),
             smooth = Attr<kResizeAttrs, "antialias">(call.attrs);
  if (align && mode != kLinear && mode != kCubic) {
    return UserError("align_corners goes with linear and cubic, not with ", kModes[mode]);
  }
  if (smooth && mode != kLinear && mode != kCubic) {
    return UserError("antialias goes with linear and cubic, not with ", kModes[mode]);
  }
  const bool scaled = HasAttr<kResizeAttrs, "scales">(call.attrs);
  if (scaled) {
    const auto& scales = Attr<kResizeAttrs, "scales">(call.attrs);
    if (scales.size() != sizes.size())
      return UserError("scales has ", scales.size(), " entries; x has ", sizes.size(), " spatial dimensions");
    for (const double scale : scales) {
      if (!(scale > 0 && std::isfinite(scale)))
        return UserError("scales has ", scale, "; it must be finite and above 0");
    }
  }
  Dims dims = x.dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (dims[1 + d] == 0 || dims[1 + d] > INT32_MAX) {
      return UserError("spatial dimension ", d, " of x has ", dims[1 + d], " elements; it must have 1 to 2^31 - 1");
    }
    const double scale = scaled ? Attr<kResizeAttrs, "scales">(call.attrs)[d] : 0;
    const double step = StepOf(dims[1 + d], sizes[d], align, scale);
    if (const int64_t seen = SmoothCount(dims[1 + d], step, mode); smooth && seen > INT32_MAX / sizes[d]) {
      return UserError("spatial dimension ", d, " has ", sizes[d], " elements, each of ", seen,
                       " of x; with antialias these must be fewer than 2^31 together");
    }
    dims[1 + d] = sizes[d];
  }
  if (!CheckedCount(dims)) return UserError("the result has too many elements");
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}

// Keys' weights of the four elements around, the second of which is t before the point.
std::array<double, 4> CubicWeights(double t) {
  constexpr double kA = -0.75;
  const auto near = [](double v) { return ((kA + 2) * v - (kA + 3)) * v * v + 1; };
  const auto far = [](double v) { return ((kA * v - 5 * kA) * v + 8 * kA) * v - 4 * kA; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}
// The taps of a dimension that grows or shrinks from `in` to `out` elements: sources and weights of each element. Nearest
// places are computed in f32, as PyTorch computes them.
Taps ResizeTaps(int64_t in, int64_t out, int64_t mode, bool align, double given) {
  if (mode == kArea) return PartTaps(in, out);
  const double step = StepOf(in, out, align, given);
  const float narrow =
      given > 0 ? static_cast<float>(std::min(1 / given, kMostStep)) : static_cast<float>(in) / static_cast<float>(out);
  Taps taps{.out = out, .count = mode == kLinear ? 2 : mode == kCubic ? 4 : 1};
  for (int64_t i = 0; i < out; ++i) {
    if (mode == kNearest || mode == kNearestExact) {
      const float at = (static_cast<float>(i) + (mode == kNearestExact ? 0.5F : 0.0F)) * narrow;
      taps.index.push_back(std::min(static_cast<int64_t>(std::floor(at)), in - 1));
      continue;
    }
    const double place = static_cast<double>(i), at = align ? step * place : step * (place + 0.5) - 0.5;
    if (mode == kLinear) {
      const double from = std::max(at, 0.0);
      const int64_t low = std::min(static_cast<int64_t>(from), in - 1);
      const double share = std::min(std::max(from - static_cast<double>(low), 0.0), 1.0);
      taps.index.insert(taps.index.end(), {low, std::min(low + 1, in - 1)});
      taps.weight.insert(taps.weight.end(), {1 - share, share});
      continue;
    }
    const double low = std::floor(at);
    const std::array<double, 4> weights = CubicWeights(at - low);
    for (int64_t k = 0; k < 4; ++k) {
      taps.index.push_back(std::clamp<int64_t>(static_cast<int64_t>(low) - 1 + k, 0, in - 1));
      taps.weight.push_back(weights[k]);
    }
  }
  return taps;
}
// As ResizeTaps, with a triangle, or Keys' curve of a = -0.5, that is as wide as what an element of the result covers. Weights outside of x are
// left out, and the others sum to 1.
Taps SmoothTaps(int64_t in, int64_t out, int64_t mode, bool align, double given) {
  const double step = StepOf(in, out, align, given);
  const double width = std::max(step, 1.0), reach = ReachOf(step, mode);
  const auto curve = [&](double t) {
    t = std::fabs(t);
    if (mode == kLinear) return std::max(1 - t, 0.0);
    constexpr double kA = -0.5;
    if (t < 1) return ((kA + 2) * t - (kA + 3)) * t * t + 1;
    return t < 2 ? (((t - 5) * t + 8) * t - 4) * kA : 0.0;
  };
  Taps taps{.out = out, .count = SmoothCount(in, step, mode)};
  for (int64_t i = 0; i < out; ++i) {
    const double center = step * (static_cast<double>(i) + 0.5);
    const int64_t low = std::max<int64_t>(static_cast<int64_t>(center - reach + 0.5), 0);
    const int64_t high = std::min(static_cast<int64_t>(center + reach + 0.5), in);
    double sum = 0;
    for (int64_t k = low; k < high; ++k) sum += curve((static_cast<double>(k) + 0.5 - center) / width);
    for (int64_t k = 0; k < taps.count; ++k) {
      const bool there = low + k < high;
      taps.index.push_back(std::min(low + k, in - 1));
      taps.weight.push_back(there && sum != 0 ? curve((static_cast<double>(low + k) + 0.5 - center) / width) / sum : 0);
    }
  }
  return taps;
}
absl::Status ExpandResize(const ExpandCall& call, std::span<Value> results) {
  Value y = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, SizesOf(call.attrs, y.dims()));
  const int64_t mode = Attr<kResizeAttrs, "mode">(call.attrs);
  const bool align = Attr<kResizeAttrs, "align_corners">(call.attrs),
             scaled = HasAttr<kResizeAttrs, "scales">(call.attrs);
  for (size_t d = sizes.size(); d-- > 0 && y;) {
    const int64_t axis = static_cast<int64_t>(d) + 1, in = y.dims()[axis];
    const double scale = scaled ? Attr<kResizeAttrs, "scales">(call.attrs)[d] : 0;
    if (in == sizes[d] && (scale == 0 || scale == 1 || align || mode == kArea)) continue;
    const auto rule = Attr<kResizeAttrs, "antialias">(call.attrs) ? SmoothTaps : ResizeTaps;
    y = Weigh(call.b, y, axis, rule(in, sizes[d], mode, align, scale));
  }
  results[0] = y;
  return call.b.status();
}

// --- Sampling

absl::Status InferGrid(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &grid = *call.operands[1];
  if (x.rank() != 4 && x.rank() != 5) {
    return UserError("x has shape ", DimsToString(x.dims),
                     "; [batch, height, width, features] is needed, with the depth in front of the height or without");
  }
  const auto n = static_cast<int64_t>(x.rank()) - 2;
  if (grid.rank() < 2 || grid.dims.back() != n || grid.dims[0] != x.dims[0]) {
    return UserError("grid has shape ", DimsToString(grid.dims), "; [", x.dims[0], ", …, ", n, "] is needed");
  }
  for (int64_t d = 1; d <= n; ++d) {
    if (x.dims[d] == 0) return UserError("x has no elements to sample");
  }
  Dims dims = grid.dims;
  dims.back() = x.dims.back();
  if (!CheckedCount(dims)) return UserError("the result has too many elements");
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}
// At the ends and beyond, where it is a constant, there is no slope.
Value Clamped(Builder& b, const Value& x, double low, double high) {
  const Value below = Compare(b, Direction::kLe, x, low), above = Compare(b, Direction::kGe, x, high);
  return Select(b, below, FullLike(b, x, low), Select(b, above, FullLike(b, x, high), x));
}
// Points reflected at both ends of [low, high].
Value Reflected(Builder& b, const Value& x, double low, double high) {
  const double span = high - low;
  if (span == 0) return FullLike(b, x, 0);
  const Value away = Abs(b, Add(b, x, -low));
  const Value rounds = Unary(b, kOp_stop_gradient, Unary(b, kOp_floor, Mul(b, away, 1 / span)));
  const Value extra = Sub(b, away, Mul(b, rounds, span));
  const Value half = Mul(b, rounds, 0.5);
  const Value even = Compare(b, Direction::kEq, half, Unary(b, kOp_floor, half));
  return Select(b, even, Add(b, extra, low), Sub(b, high, extra));
}
struct Sampler {
  Builder& b;
  Value x;  // [batch, spatial…, features]
  int64_t outside;
  bool align;

  double size(int64_t axis) const { return static_cast<double>(x.dims()[axis]); }
  // Moves a position into the image. Positions count in elements, whose centres are at 0, 1, …
  Value Held(const Value& at, int64_t axis) const {
    if (outside == 0) return at;
    const double top = size(axis) - 1;
    Value held = at;
    if (outside == 2) held = align ? Reflected(b, at, 0, top) : Reflected(b, at, -0.5, top + 0.5);
    return Clamped(b, held, 0, top);
  }
  Value Point(const Value& grid, int64_t axis) const {
    const double n = size(axis);
    return align ? Mul(b, Add(b, grid, 1), (n - 1) / 2) : Mul(b, Add(b, Mul(b, Add(b, grid, 1), n), -1), 0.5);
  }
  // The elements at whole coordinates, each [batch, points], one a spatial dimension; 0 outside.
  Value At(const Values& places) const {
    if (!b.ok()) return {};
    const Dims points = places[0].dims();
    const auto n = static_cast<int64_t>(places.size());
    Value there;
    for (int64_t d = 0; d < n; ++d) {
      const Value inside =
          And(b, Compare(b, Direction::kGe, places[d], 0), Compare(b, Direction::kLe, places[d], size(d + 1) - 1));
      there = there ? And(b, there, inside) : inside;
    }
    Values whole;
    for (int64_t d = 0; d < n; ++d) {
      const Value held = Clamped(b, Select(b, there, places[d], FullLike(b, places[d], 0)), 0, size(d + 1) - 1);
      whole.push_back(Reshape(b, Convert(b, held, DType::kI32), {points[0], points[1], 1}));
    }
    Ints axes = Axes(n + 1), box(n + 1, 1);
    axes.erase(axes.begin());
    box.push_back(x.dims().back());
    const Value found = Call(b, kOp_gather, {x, Call(b, kOp_concatenate, whole, {int64_t{2}})},
                             {Ints{2}, axes, axes, int64_t{2}, box, Ints{0}, Ints{0}});
    if (!found) return {};
    return Select(b, BroadcastInDim(b, there, found.dims(), {0, 1}), found, FullLike(b, found, 0));
  }
  Value Weighted(const Values& places, const Value& weight) const {
    const Value found = At(places);
    return found ? Mul(b, found, BroadcastInDim(b, weight, found.dims(), {0, 1})) : found;
  }
};
// The corners of the box around each point, by their shares.
Value SampleLinear(const Sampler& s, const Values& places) {
  Builder& b = s.b;
  Values low, share;
  for (const Value& place : places) {
    low.push_back(Unary(b, kOp_stop_gradient, Unary(b, kOp_floor, place)));
    share.push_back(Sub(b, place, low.back()));
  }
  Value sum;
  for (size_t corner = 0; corner < (size_t{1} << places.size()); ++corner) {
    Values at;
    Value weight;
    for (size_t d = 0; d < places.size(); ++d) {
      const bool high = (corner >> (places.size() - 1 - d)) % 2 == 1;
      at.push_back(high ? Add(b, low[d], 1) : low[d]);
      const Value part = high ? share[d] : Sub(b, 1, share[d]);
      weight = weight ? Mul(b, weight, part) : part;
    }
    const Value part = s.Weighted(at, weight);
    sum = sum ? Add(b, sum, part) : part;
  }
  return sum;
}
// The four elements around in each dimension, by the products of Keys' weights.
Value SampleCubic(const Sampler& s, const Values& places) {
  Builder& b = s.b;
  const auto weights = [&](const Value& t) {
    constexpr double kA = -0.75;
    const auto near = [&](const Value& v) {
      return Add(b, Mul(b, Mul(b, Add(b, Mul(b, v, kA + 2), -(kA + 3)), v), v), 1);
    };
    const auto far = [&](const Value& v) {
      return Add(b, Mul(b, Add(b, Mul(b, Add(b, Mul(b, v, kA), -5 * kA), v), 8 * kA), v), -4 * kA);
    };
    return Values{far(Add(b, t, 1)), near(t), near(Sub(b, 1, t)), far(Sub(b, 2, t))};
  };
  std::vector<Values> shares, at;
  for (size_t d = 0; d < places.size(); ++d) {
    const Value low = Unary(b, kOp_stop_gradient, Unary(b, kOp_floor, places[d]));
    shares.push_back(weights(Sub(b, places[d], low)));
    at.emplace_back();
    for (int i = 0; i < 4; ++i) at[d].push_back(s.Held(Add(b, low, i - 1), static_cast<int64_t>(d) + 1));
  }
  Value sum;
  for (size_t box = 0; box < (size_t{1} << (2 * places.size())); ++box) {
    Values one;
    Value weight;
    for (size_t d = 0; d < places.size(); ++d) {
      const size_t i = (box >> (2 * (places.size() - 1 - d))) % 4;
      one.push_back(at[d][i]);
      weight = weight ? Mul(b, weight, shares[d][i]) : shares[d][i];
    }
    const Value part = s.Weighted(one, weight);
    sum = sum ? Add(b, sum, part) : part;
  }
  return sum;
}
absl::Status ExpandGrid(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& grid = call.operands[1];
  const Dims dims = grid.dims();
  const int64_t batch = dims[0], mode = Attr<kGridAttrs, "mode">(call.attrs);
  int64_t points = 1;
  for (size_t d = 1; d + 1 < dims.size(); ++d) points *= dims[d];
  const Sampler s{b, call.operands[0], Attr<kGridAttrs, "outside">(call.attrs),
                  Attr<kGridAttrs, "align_corners">(call.attrs)};
  const int64_t n = dims.back();
  const Value flat = Reshape(b, grid, {batch, points, n});
  Values places;  // across comes first in the grid, and last among dimensions
  for (int64_t k = n; k-- > 0;) {
    const Value part = Reshape(b, Slice(b, flat, {0, 0, k}, {batch, points, k + 1}, {1, 1, 1}), {batch, points});
    places.push_back(s.Point(part, n - k));
  }
  Value found;
  if (mode == 2) {
    found = SampleCubic(s, places);
  } else {
    for (int64_t d = 0; d < n; ++d) {
      places[d] = s.Held(places[d], d + 1);
      if (mode == 1) places[d] = Unary(b, kOp_stop_gradient, Unary(b, kOp_round, places[d]));
    }
    found = mode == 1 ? s.At(places) : SampleLinear(s, places);
  }
  Dims wanted = dims;
  wanted.back() = call.operands[0].dims().back();
  results[0] = found ? Reshape(b, found, wanted) : found;
  return b.status();
}

absl::Status InferAffine(const InferCall& call, Types* results) {
  const Type& theta = *call.operands[0];
  if (theta.rank() != 3 || theta.dims[1] != 2 || theta.dims[2] != 3) {
    return UserError("theta has shape ", DimsToString(theta.dims), "; [batch, 2, 3] is needed");
  }
  const Ints& size = Attr<kAffineAttrs, "size">(call.attrs);
  if (size.size() != 2 || size[0] < 1 || size[1] < 1) return UserError("size must be [height, width], both at least 1");
  const Dims dims = {theta.dims[0], size[0], size[1], 2};
  if (!CheckedCount(dims)) return UserError("the grid has too many elements");
  results->push_back(Type::Tensor(theta.dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandAffine(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& theta = call.operands[0];
  const Ints& size = Attr<kAffineAttrs, "size">(call.attrs);
  const Dims plane = {size[0], size[1], 1};
  const auto coordinates = [&](int64_t axis) {
    const double n = static_cast<double>(size[axis]);
    const Value at = Iota(b, theta.dtype(), plane, axis);
    if (!Attr<kAffineAttrs, "align_corners">(call.attrs)) return Add(b, Mul(b, at, 2 / n), 1 / n - 1);
    return n > 1 ? Add(b, Mul(b, at, 2 / (n - 1)), -1) : FullLike(b, at, 0);
  };
  const Value points = Reshape(
      b, Call(b, kOp_concatenate, {coordinates(1), coordinates(0), Full(b, theta.dtype(), plane, 1)}, {int64_t{2}}),
      {size[0] * size[1], 3});
  const Value found = Call(b, kOp_dot_general, {theta, points}, {Ints{}, Ints{}, Ints{2}, Ints{1}});
  const Value turned = Transpose(b, found, {0, 2, 1});
  results[0] = turned ? Reshape(b, turned, {theta.dims()[0], size[0], size[1], 2}) : turned;
  return b.status();
}

// --- Features and places

absl::StatusOr<int64_t> FactorOf(const Attrs& attrs, const Dims& x) {
  const int64_t factor = attrs.Int(0);
  if (x.size() < 3)
    return UserError("x has shape ", DimsToString(x), "; [batch, spatial…, features] of rank 3 or more is needed");
  if (factor < 1 || factor > (int64_t{1} << 20)) return UserError("factor is ", factor, "; it must be 1 to 2^20");
  return factor;
}
int64_t Power(int64_t factor, size_t n) {
  int64_t all = 1;
  for (size_t d = 0; d < n && all < (int64_t{1} << 40); ++d) all *= factor;
  return all;
}
template <bool shuffle>
absl::Status InferShuffle(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t factor, FactorOf(call.attrs, x.dims));
  Dims dims = x.dims;
  const int64_t box = Power(factor, dims.size() - 2);
  if (shuffle && dims.back() % box != 0)
    return UserError("x has ", dims.back(), " features; they must be a multiple of ", box);
  for (size_t d = 1; d + 1 < dims.size(); ++d) {
    if (!shuffle && dims[d] % factor != 0)
      return UserError("spatial dimension ", d - 1, " has ", dims[d], " elements; they must be a multiple of ", factor);
    dims[d] = shuffle ? dims[d] * factor : dims[d] / factor;
  }
  dims.back() = shuffle ? dims.back() / box : dims.back() * box;
  if (!CheckedCount(dims)) return UserError("the result has too many elements");
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}
// Between [batch, spatial…, features, factor…] and [batch, spatial0, factor0, …, features].
template <bool shuffle>
absl::Status ExpandShuffle(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t factor, FactorOf(call.attrs, x.dims()));
  const int64_t n = static_cast<int64_t>(x.dims().size()) - 2;
  const int64_t box = Power(factor, n);
  Dims split = {x.dims()[0]}, wanted = {x.dims()[0]};
  Ints order = {0};
  for (int64_t d = 1; d <= n; ++d) {
    split.push_back(shuffle ? x.dims()[d] : x.dims()[d] / factor);
    if (!shuffle) split.push_back(factor);
    wanted.push_back(shuffle ? x.dims()[d] * factor : x.dims()[d] / factor);
    order.push_back(shuffle ? d : 2 * d - 1);
    if (shuffle) order.push_back(n + 1 + d);
  }
  split.push_back(shuffle ? x.dims().back() / box : x.dims().back());
  order.push_back(shuffle ? n + 1 : 2 * n + 1);
  wanted.push_back(shuffle ? x.dims().back() / box : x.dims().back() * box);
  for (int64_t d = 1; d <= n; ++d) {
    if (shuffle) {
      split.push_back(factor);
    } else {
      order.push_back(2 * d);
    }
  }
  const Value moved = Transpose(b, Reshape(b, x, split), order);
  results[0] = moved ? Reshape(b, moved, wanted) : moved;
  return absl::OkStatus();
}
absl::Status InferChannels(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const int64_t groups = Attr<kGroupsAttrs, "groups">(call.attrs);
  if (x.rank() == 0) return UserError("x must have at least 1 dimension, not []");
  if (groups < 1 || x.dims.back() % groups != 0)
    return UserError("groups is ", groups, "; it must divide the ", x.dims.back(), " features");
  results->push_back(x);
  return absl::OkStatus();
}
absl::Status ExpandChannels(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t groups = Attr<kGroupsAttrs, "groups">(call.attrs), features = x.dims().back();
  Dims split = x.dims();
  split.back() = groups;
  split.push_back(features / groups);
  Ints order = Axes(split.size());
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  const Value moved = Transpose(b, Reshape(b, x, split), order);
  results[0] = moved ? Reshape(b, moved, x.dims()) : moved;
  return absl::OkStatus();
}

constexpr Sample kPads[] = {{"T[3,4] low=[2,-1] high=[1,3]"}};
constexpr Sample kResizes[] = {{"T[1,3,4,2] size=[5,3]"},
                               {"T[1,4,2] size=[7] mode=cubic align_corners=true"},
                               {"T[1,4,2] size=[7] mode=nearest"},
                               {"T[1,4,2] size=[3] mode=area"},
                               {"T[1,9,2] size=[4] antialias=true"}};
constexpr Sample kGrids[] = {{"T[1,3,4,2] T[1,3,2]", -0.7, 0.7},
                             {"T[1,3,4,1] T[1,2,2] mode=cubic outside=reflection align_corners=true", -0.7, 0.7, false},
                             {"T[1,2,3,2,1] T[1,2,3]", -0.4, 0.4, false},
                             {"T[1,3,2,4,2] T[1,2,3] mode=cubic outside=border", -0.4, 0.4, false}};
constexpr Sample kAffines[] = {{"T[1,2,3] size=[2,3]"}};
constexpr Sample kShuffles[] = {{"T[1,2,3,8] factor=2"}};
constexpr Sample kUnshuffles[] = {{"T[1,2,4,3] factor=2"}};
constexpr Sample kChannels[] = {{"T[2,6] groups=3"}};
constexpr Tolerance kTolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 1e-5};

// The gradients of an element that is read several times are added in f32, so pads do not round once as moves do.
consteval OpDef Pads(OpDef named) {
  named.tolerance = kExact;
  return Formula(named);
}
consteval OpDef Moves(OpDef named) {
  named.tolerance = kExact;
  named.rounds_once = true;
  return Formula(named);
}

}  // namespace

constinit const OpDef kOp_pad_reflect = Pads({
    .name = "weft.pad_reflect",
    .c_name = "pad_reflect",
    .doc =
        "x with each dimension continued by its elements backwards, the outer one not repeated; negative amounts cut.",
    .example = "y = wf_pad_reflect(s, x, WF_INTS(0, 1), WF_INTS(0, 2));",
    .operands = kAny,
    .attrs = kPadAttrs,
    .infer = InferPad<Edge::kReflect>,
    .expand = ExpandPad<Edge::kReflect>,
    .samples = kPads,
});
constinit const OpDef kOp_pad_replicate = Pads({
    .name = "weft.pad_replicate",
    .c_name = "pad_replicate",
    .doc = "x with the outer elements of each dimension repeated; negative amounts cut.",
    .example = "y = wf_pad_replicate(s, x, WF_INTS(0, 1), WF_INTS(0, 2));",
    .operands = kAny,
    .attrs = kPadAttrs,
    .infer = InferPad<Edge::kReplicate>,
    .expand = ExpandPad<Edge::kReplicate>,
    .samples = kPads,
});
constinit const OpDef kOp_pad_circular = Pads({
    .name = "weft.pad_circular",
    .c_name = "pad_circular",
    .doc = "x with each dimension continued by its other end; negative amounts cut.",
    .example = "y = wf_pad_circular(s, x, WF_INTS(0, 1), WF_INTS(0, 2));",
    .operands = kAny,
    .attrs = kPadAttrs,
    .infer = InferPad<Edge::kCircular>,
    .expand = ExpandPad<Edge::kCircular>,
    .samples = kPads,
});
constinit const OpDef kOp_resize = Formula({
    .name = "weft.resize",
    .c_name = "resize",
    .doc = "Channels-last data in other spatial sizes, PyTorch's interpolate: nearest elements, linear or cubic "
           "(Keys, a = -0.75; with antialias -0.5) in each dimension, or means of areas.",
    .example = "y = wf_resize(s, image, WF_INTS(64, 64));",
    .operands = kFloats,
    .attrs = kResizeAttrs,
    .infer = InferResize,
    .expand = ExpandResize,
    .samples = kResizes,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_grid_sample = Formula({
    .name = "weft.grid_sample",
    .c_name = "grid_sample",
    .doc =
        "Images, or volumes, at the points of a grid, each two or three coordinates from -1 to 1, across, down and into the depth: "
        "PyTorch's grid_sample of channels-last data.",
    .example = "y = wf_grid_sample(s, image, grid);",
    .operands = kSampled,
    .attrs = kGridAttrs,
    .infer = InferGrid,
    .expand = ExpandGrid,
    .samples = kGrids,
    .tolerance = {.f32 = 4e-5, .f64 = 1e-12, .bf16 = 8e-2, .f16 = 2e-2, .absolute = 4e-5},
});
constinit const OpDef kOp_affine_grid = Formula({
    .name = "weft.affine_grid",
    .c_name = "affine_grid",
    .doc = "A grid for grid_sample, [batch, height, width, 2]: the points of the result by an affine map each example.",
    .example = "grid = wf_affine_grid(s, theta, WF_INTS(8, 8));",
    .operands = kAffine,
    .attrs = kAffineAttrs,
    .infer = InferAffine,
    .expand = ExpandAffine,
    .samples = kAffines,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_pixel_shuffle = Moves({
    .name = "weft.pixel_shuffle",
    .c_name = "pixel_shuffle",
    .doc = "Features that become places: [batch, spatial…, features] with each spatial dimension a factor larger.",
    .example = "y = wf_pixel_shuffle(s, x, 2);",
    .operands = kFeatures,
    .attrs = kFactorAttrs,
    .infer = InferShuffle<true>,
    .expand = ExpandShuffle<true>,
    .samples = kShuffles,
});
constinit const OpDef kOp_pixel_unshuffle = Moves({
    .name = "weft.pixel_unshuffle",
    .c_name = "pixel_unshuffle",
    .doc = "Places that become features: what pixel_shuffle undoes.",
    .example = "y = wf_pixel_unshuffle(s, x, 2);",
    .operands = kFeatures,
    .attrs = kFactorAttrs,
    .infer = InferShuffle<false>,
    .expand = ExpandShuffle<false>,
    .samples = kUnshuffles,
});
constinit const OpDef kOp_channel_shuffle = Moves({
    .name = "weft.channel_shuffle",
    .c_name = "channel_shuffle",
    .doc = "The features, which stand group by group, one of each group after the other.",
    .example = "y = wf_channel_shuffle(s, x, 4);",
    .operands = kFeatures,
    .attrs = kGroupsAttrs,
    .infer = InferChannels,
    .expand = ExpandChannels,
    .samples = kChannels,
});

}  // namespace weft::ops
