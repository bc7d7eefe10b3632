// Pools that say where, that adapt to a size, and what undoes them; windows as rows of a matrix. Data are channels-last.
#include <algorithm>
#include <cmath>

#include "src/ops/conv/pool.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/shape/taps.h"

namespace weft::ops {

using namespace ir;

absl::Status CheckPlaces(std::span<const int64_t> spatial) {
  int64_t count = 1;
  for (const int64_t size : spatial) {
    if (size > 0 && count > INT32_MAX / size) return UserError("the spatial dimensions have too many places for i32");
    count *= size;
  }
  return absl::OkStatus();
}

// One dimension after the other, the last one first: of equals the first one is found, as by going over the elements in their order.
absl::Status LargestOf(Builder& b, const Value& x, size_t spatial, TakeFn take, PlaceFn places, Value* values,
                       Value* indices) {
  Value best = x, place;
  int64_t inner = 1;
  for (size_t d = spatial; d-- > 0 && b.ok();) {
    const int64_t axis = static_cast<int64_t>(d) + 1, in = best.dims()[axis];
    const Value under = take(best, d);
    if (!under) return b.status();
    const Value at = Call(b, kOp_argmax, {under}, {axis + 1, int64_t{1}});
    const auto chosen = [&](const Value& from) {
      const Value one = Call(b, kOp_take_along_axis, {from, at}, {axis + 1});
      Dims dims = under.dims();
      dims.erase(dims.begin() + axis + 1);
      return one ? Reshape(b, one, dims) : one;
    };
    best = chosen(under);
    Value mine = chosen(places(under.dims(), d));
    if (inner != 1) mine = Mul(b, mine, static_cast<double>(inner));
    place = place ? Add(b, mine, chosen(take(place, d))) : mine;
    inner *= in;
  }
  *values = best;
  *indices = place;
  return b.status();
}

namespace {

absl::Status LargestOfTaps(Builder& b, const Value& x, std::span<const Taps> taps, Value* values, Value* indices) {
  const auto take = [&](const Value& from, size_t d) {
    return TakeTaps(b, from, static_cast<int64_t>(d) + 1, taps[d]);
  };
  const auto places = [&](const Dims& dims, size_t d) {
    HostTensor table(DType::kI32, {taps[d].out, taps[d].count});
    for (size_t i = 0; i < taps[d].index.size(); ++i) table.SetInt(static_cast<int64_t>(i), taps[d].index[i]);
    const int64_t axis = static_cast<int64_t>(d) + 1;
    return BroadcastInDim(b, Constant(b, std::move(table)), dims, {axis, axis + 1});
  };
  return LargestOf(b, x, taps.size(), take, places, values, indices);
}

}  // namespace

absl::Status LargestUnder(Builder& b, const Value& x, std::span<const Window> windows, Value* values, Value* indices) {
  std::vector<Taps> taps;
  for (const Window& w : windows) {
    WEFT_ASSIGN_OR_RETURN(Taps found, WindowTaps(w.in, w.out(), w.size, w.stride, w.dilation, w.low));
    taps.push_back(std::move(found));
  }
  return LargestOfTaps(b, x, taps, values, indices);
}

namespace {

constexpr AttrDef kSizeAttrs[] = {
    {"size", AttrType::kInts, "of the result in each spatial dimension, at least 0", true}};
constexpr AttrDef kLpAttrs[] = {kPoolAttrs[0], kPoolAttrs[1],
                                kPoolAttrs[2], kPoolAttrs[3],
                                kCeilAttr,     {"p", AttrType::kDouble, "degree of the norm, not 0", false, "2"}};
constexpr AttrDef kColumnAttrs[] = {
    {"window", AttrType::kInts, "size of the window in each spatial dimension", true},
    {"strides", AttrType::kInts, "step of the window; absent: 1"},
    {"pads", AttrType::kInts, "padding before and after each spatial dimension: [low0, high0, low1, …]; absent: 0"},
    {"dilation", AttrType::kInts, "spacing of the window's elements; absent: 1"}};
constexpr AttrDef kImageAttrs[] = {kSizeAttrs[0], kColumnAttrs[0], kColumnAttrs[1], kColumnAttrs[2], kColumnAttrs[3]};
constexpr OperandDef kImages[] = {{"x", kEveryType, "[batch, spatial…, features]"}};
constexpr OperandDef kColumns[] = {{"x", kNumber | kC, "[batch, windows, features times elements of a window]"}};
constexpr OperandDef kPooled[] = {{"x", kF, "[batch, spatial…, features]"},
                                  {"indices", kI, "where each element goes, of x's shape", false, false, 'I'}};
constexpr std::string_view kPlaces[] = {"values", "indices"};

std::span<const int64_t> Spatial(const Dims& dims) {
  return std::span<const int64_t>(dims).subspan(1, dims.size() - 2);
}

absl::Status InferMaxPoolLast(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferPool(call, results));
  WEFT_RETURN_IF_ERROR(CheckPlaces(Spatial(call.operands[0]->dims)));
  WEFT_ASSIGN_OR_RETURN(const auto windows, PoolWindows(call.op, call.attrs, call.operands[0]->dims));
  for (const Window& w : windows) {
    if (w.out() > 0 && (w.low >= w.dilated_size() || (w.out() - 1) * w.stride - w.low >= w.in)) {
      return UserError("a window lies in padding alone: there is no element under it");
    }
  }
  results->push_back(Type::Tensor(DType::kI32, results->back().dims));
  return absl::OkStatus();
}
absl::Status ExpandMaxPoolLast(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const auto windows, PoolWindows(call.op, call.attrs, x.dims()));
  return LargestUnder(call.b, x, windows, &results[0], &results[1]);
}
absl::Status InferMaxPool(const InferCall& call, Types* results) {
  return InferFirst(call, results, AttrPosition<kMaxPoolAttrs, "channels_first">(), InferMaxPoolLast);
}
absl::Status ExpandMaxPool(const ExpandCall& call, std::span<Value> results) {
  return ExpandFirst(call, results, AttrPosition<kMaxPoolAttrs, "channels_first">(), ExpandMaxPoolLast);
}

absl::StatusOr<Ints> SizesOf(const OpDef& op, const Attrs& attrs, const Dims& x) {
  if (x.size() < 3) {
    return UserError("x has shape ", DimsToString(x), "; [batch, spatial…, features] of rank 3 or more is needed");
  }
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, PerDimension(op, attrs, 0, x.size() - 2, 1));
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || sizes[d] > INT32_MAX) return UserError("size is ", sizes[d], "; it must be 0 to 2^31 - 1");
  }
  return sizes;
}
absl::Status InferAdaptive(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, SizesOf(call.op, call.attrs, x.dims));
  Dims dims = x.dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (dims[1 + d] == 0) return UserError("spatial dimension ", d, " is empty: there is nothing to pool");
    dims[1 + d] = sizes[d];
  }
  WEFT_RETURN_IF_ERROR(CheckPlaces(Spatial(x.dims)));
  WEFT_RETURN_IF_ERROR(CheckPlaces(Spatial(dims)));
  results->push_back(Type::Tensor(x.dtype, dims));
  if (call.op.results.size() == 2) results->push_back(Type::Tensor(DType::kI32, dims));
  return absl::OkStatus();
}
absl::Status ExpandAdaptiveAvg(const ExpandCall& call, std::span<Value> results) {
  Value y = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, SizesOf(call.op, call.attrs, y.dims()));
  for (size_t d = 0; d < sizes.size() && y; ++d) {
    const int64_t in = y.dims()[1 + d];
    if (in != sizes[d]) y = Weigh(call.b, y, static_cast<int64_t>(d) + 1, PartTaps(in, sizes[d]));
  }
  results[0] = y;
  return call.b.status();
}
absl::Status ExpandAdaptiveMax(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, SizesOf(call.op, call.attrs, x.dims()));
  std::vector<Taps> taps;
  for (size_t d = 0; d < sizes.size(); ++d) taps.push_back(PartTaps(x.dims()[1 + d], sizes[d]));
  if (CountOf(Dims(sizes.begin(), sizes.end())) == 0) {
    Dims dims = x.dims();
    for (size_t d = 0; d < sizes.size(); ++d) dims[1 + d] = sizes[d];
    results[0] = Full(call.b, x.dtype(), dims, 0);
    results[1] = Full(call.b, DType::kI32, dims, 0);
    return absl::OkStatus();
  }
  return LargestOfTaps(call.b, x, taps, &results[0], &results[1]);
}

absl::Status InferUnpool(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &indices = *call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, SizesOf(call.op, call.attrs, x.dims));
  if (x.dims != indices.dims) {
    return UserError("shapes ", DimsToString(x.dims), " and ", DimsToString(indices.dims), " must be equal");
  }
  Dims dims = x.dims;
  for (size_t d = 0; d < sizes.size(); ++d) dims[1 + d] = sizes[d];
  WEFT_RETURN_IF_ERROR(CheckPlaces(Spatial(dims)));
  if (CountOf(ToDims(sizes)) == 0 && x.count() != 0) return UserError("size is empty: there is no place in it");
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandUnpool(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, SizesOf(call.op, call.attrs, x.dims()));
  const int64_t batch = x.dims()[0], features = x.dims().back(), out = CountOf(ToDims(sizes));
  const Dims rows = {batch, CountOf(ToDims(Spatial(x.dims()))), features};
  Dims dims = x.dims();
  for (size_t d = 0; d < sizes.size(); ++d) dims[1 + d] = sizes[d];
  const Value put =
      Call(b, kOp_scatter_reduce,
           {Full(b, x.dtype(), {batch, out, features}, 0), Reshape(b, call.operands[1], rows), Reshape(b, x, rows)},
           {int64_t{5}, int64_t{1}, int64_t{1}});
  results[0] = put ? Reshape(b, put, dims) : put;
  return absl::OkStatus();
}

// The attributes that all pools have.
Attrs WithoutLast(const Attrs& attrs) {
  Attrs shared;
  for (size_t i = 0; i < AttrPosition<kLpAttrs, "p">(); ++i) {
    if (attrs.has(i)) shared.set(i, attrs.at(i));
  }
  return shared;
}
absl::Status InferLp(const InferCall& call, Types* results) {
  const double p = Attr<kLpAttrs, "p">(call.attrs);
  if (!std::isfinite(p) || p == 0) return UserError("p is ", p, "; it must be finite and not 0");
  const Attrs shared = WithoutLast(call.attrs);
  return InferPool(InferCall{call.op, call.operands, shared}, results);
}
// PyTorch's: sums of powers, their sign apart, below 0 counted as 0.
absl::Status ExpandLp(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const double p = Attr<kLpAttrs, "p">(call.attrs);
  const Attrs shared = WithoutLast(call.attrs);
  WEFT_ASSIGN_OR_RETURN(const Attrs attrs, PoolAttrs(call.op, shared, x.dims(), Reducer::kSum));
  const Value powers = p == 1 ? x : p == 2 ? Square(b, x) : Call(b, kOp_pow, {x, FullLike(b, x, p)});
  const Value sum = Call(b, kOp_reduce_window, {powers}, attrs);
  if (!sum) return b.status();
  const Value none = Compare(b, Direction::kLe, sum, 0), safe = Select(b, none, FullLike(b, sum, 1), sum);
  const Value root = p == 1 ? safe : p == 2 ? Sqrt(b, safe) : Call(b, kOp_pow, {safe, FullLike(b, sum, 1 / p)});
  results[0] = Select(b, none, FullLike(b, sum, 0), root);
  return absl::OkStatus();
}

// The windows over `spatial` sizes; attributes are kColumnAttrs from `first` on.
absl::StatusOr<std::vector<Window>> ColumnWindows(const OpDef& op, const Attrs& attrs, size_t first,
                                                  std::span<const int64_t> spatial) {
  const size_t n = spatial.size();
  WEFT_ASSIGN_OR_RETURN(const Ints sizes, PerDimension(op, attrs, first, n, 1));
  WEFT_ASSIGN_OR_RETURN(const Ints strides, PerDimension(op, attrs, first + 1, n, 1));
  WEFT_ASSIGN_OR_RETURN(const Ints pads, PerDimension(op, attrs, first + 2, n, 0, 2));
  WEFT_ASSIGN_OR_RETURN(const Ints dilation, PerDimension(op, attrs, first + 3, n, 1));
  std::vector<Window> windows;
  for (size_t d = 0; d < n; ++d) {
    windows.push_back({.in = spatial[d],
                       .size = sizes[d],
                       .stride = strides[d],
                       .low = pads[2 * d],
                       .high = pads[2 * d + 1],
                       .dilation = dilation[d]});
    WEFT_RETURN_IF_ERROR(CheckWindow(windows.back(), d));
    // The places of all taps are a literal.
    constexpr int64_t kMostTaps = int64_t{1} << 26;
    if (sizes[d] > kMostTaps || (sizes[d] > 0 && windows.back().out() > kMostTaps / sizes[d])) {
      return UserError("the ", windows.back().out(), " windows of ", sizes[d], " in spatial dimension ", d,
                       " have too many elements; there may be 2^26 a dimension");
    }
    if (pads[2 * d] < 0 || pads[2 * d + 1] < 0)
      return UserError("pads of spatial dimension ", d, " must be at least 0");
  }
  return windows;
}
// The taps of a window over the padded dimension.
Taps Padded(const Window& w) {
  Taps taps{.out = w.out(), .count = w.size};
  for (int64_t at = 0; at < taps.out; ++at) {
    for (int64_t tap = 0; tap < w.size; ++tap) taps.index.push_back(at * w.stride + tap * w.dilation);
  }
  return taps;
}
// [batch, out0, size0, out1, …, features] as [batch, out…, features, size…].
Ints ColumnOrder(size_t n) {
  Ints order = {0};
  for (size_t d = 0; d < n; ++d) order.push_back(static_cast<int64_t>(1 + 2 * d));
  order.push_back(static_cast<int64_t>(1 + 2 * n));
  for (size_t d = 0; d < n; ++d) order.push_back(static_cast<int64_t>(2 + 2 * d));
  return order;
}
absl::Status InferColumns(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() < 3) {
    return UserError("x has shape ", DimsToString(x.dims), "; [batch, spatial…, features] of rank 3 or more is needed");
  }
  WEFT_ASSIGN_OR_RETURN(const auto windows, ColumnWindows(call.op, call.attrs, 0, Spatial(x.dims)));
  Dims dims = {x.dims[0], 1, x.dims.back()};
  for (const Window& w : windows) {
    dims[1] *= w.out();
    dims[2] *= w.size;
    if (!CheckedCount(dims)) return UserError("the windows have too many elements");
  }
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandColumns(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Dims dims = x.dims();
  WEFT_ASSIGN_OR_RETURN(const auto windows, ColumnWindows(call.op, call.attrs, 0, Spatial(dims)));
  Ints low(dims.size(), 0), high = low;
  Dims wanted = {dims[0], 1, dims.back()};
  for (size_t d = 0; d < windows.size(); ++d) {
    low[1 + d] = windows[d].low;
    high[1 + d] = windows[d].high;
    wanted[1] *= windows[d].out();
    wanted[2] *= windows[d].size;
  }
  Value y = Pad(b, x, 0, low, high, Ints(dims.size(), 0));
  for (size_t d = windows.size(); d-- > 0;) y = TakeTaps(b, y, static_cast<int64_t>(d) + 1, Padded(windows[d]));
  results[0] = y ? Reshape(b, Transpose(b, y, ColumnOrder(windows.size())), wanted) : y;
  return absl::OkStatus();
}

absl::Status InferImage(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() != 3) return UserError("x has shape ", DimsToString(x.dims), "; [batch, windows, columns] is needed");
  const Ints& sizes = Attr<kImageAttrs, "size">(call.attrs);
  if (sizes.empty()) return UserError("size has no entries; it must have one for each spatial dimension");
  for (const int64_t size : sizes) {
    if (size < 0 || size > INT32_MAX) return UserError("size is ", size, "; it must be 0 to 2^31 - 1");
  }
  WEFT_ASSIGN_OR_RETURN(const auto windows, ColumnWindows(call.op, call.attrs, 1, sizes));
  Dims box = {1, 1};
  for (const Window& w : windows) {
    box[0] *= w.out();
    box[1] *= w.size;
    if (!CheckedCount(box)) return UserError("the windows have too many elements");
  }
  if (box[0] != x.dims[1] || x.dims[2] % box[1] != 0) {
    return UserError("x has ", x.dims[1], " windows of ", x.dims[2], " columns; size and window ask for ", box[0],
                     " of a multiple of ", box[1]);
  }
  Dims dims = {x.dims[0]};
  dims.insert(dims.end(), sizes.begin(), sizes.end());
  dims.push_back(x.dims[2] / box[1]);
  if (!CheckedCount(dims)) return UserError("the image has too many elements");
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}
// Each window's elements are added where they were, one dimension after the other.
absl::Status ExpandImage(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Ints& sizes = Attr<kImageAttrs, "size">(call.attrs);
  WEFT_ASSIGN_OR_RETURN(const auto windows, ColumnWindows(call.op, call.attrs, 1, sizes));
  const size_t n = windows.size();
  Dims split = {x.dims()[0]};
  int64_t box = 1;
  for (const Window& w : windows) {
    split.push_back(w.out());
    box *= w.size;
  }
  split.push_back(x.dims()[2] / box);
  for (const Window& w : windows) split.push_back(w.size);
  Ints back(2 * n + 2, 0);
  const Ints order = ColumnOrder(n);
  for (size_t d = 0; d < order.size(); ++d) back[order[d]] = static_cast<int64_t>(d);
  Value y = Transpose(b, Reshape(b, x, split), back);
  for (size_t d = 0; d < n && y; ++d) {
    const int64_t axis = static_cast<int64_t>(d) + 1;
    const Taps taps = Padded(windows[d]);
    Dims dims = y.dims();
    dims.erase(dims.begin() + axis + 1);
    dims[axis] = taps.out * taps.count;
    Dims into = dims;
    into[axis] = sizes[d] + windows[d].low + windows[d].high;
    HostTensor places(DType::kI32, {taps.out * taps.count});
    for (size_t i = 0; i < taps.index.size(); ++i) places.SetInt(static_cast<int64_t>(i), taps.index[i]);
    y = Call(b, kOp_index_add, {Full(b, x.dtype(), into, 0), Constant(b, std::move(places)), Reshape(b, y, dims)},
             {axis, 1.0});
    if (!y) return b.status();
    Ints start(into.size(), 0), limit = ToInts(into);
    start[axis] = windows[d].low;
    limit[axis] = windows[d].low + sizes[d];
    y = Slice(b, y, start, limit, Ints(into.size(), 1));
  }
  results[0] = y;
  return b.status();
}

constexpr Sample kMaxPools[] = {
    {"T[1,5,7,2] window=[3,2] strides=[2,2] padding=explicit pads=[1,1,1,0] ceil_mode=true"},
    {"T[2,7,3] window=[2] dilation=[3]"}};
constexpr Sample kAdaptives[] = {{"T[1,5,4,2] size=[3,2]"}};
constexpr Sample kUnpools[] = {{"T[2,1,2] i32[2,1,2]<0:5> size=[5]"}};
constexpr Sample kLps[] = {{"T[1,5,2] window=[2] p=3", 0.5, 2},
                           {"T[1,5,2] window=[3] strides=[2] padding=explicit pads=[1,1]", 0.5, 2}};
constexpr Sample kColumnSamples[] = {{"T[1,5,4,2] window=[3,2] strides=[2,1] pads=[1,0,0,1] dilation=[1,2]"}};
constexpr Sample kImageSamples[] = {{"T[1,3,6] size=[5] window=[3] pads=[1,1] dilation=[2]"},
                                    {"T[2,2,4] size=[4] window=[2] strides=[2]"}};
constexpr Tolerance kTolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 4e-6};

}  // namespace

constinit const OpDef kOp_max_pool_with_indices = Formula({
    .name = "weft.max_pool_with_indices",
    .c_name = "max_pool_with_indices",
    .doc = "The largest element under each window of channels-last data and its place, counted over the spatial "
           "dimensions as one row, as i32: of equals the first, of NaNs as well.",
    .example = "wf_max_pool_with_indices(s, x, WF_INTS(2, 2));",
    .operands = kMaxPoolOperands,
    .attrs = kMaxPoolAttrs,
    .results = kPlaces,
    .infer = InferMaxPool,
    .expand = ExpandMaxPool,
    .samples = kMaxPools,
    .tolerance = kExact,
});
constinit const OpDef kOp_max_unpool = Formula({
    .name = "weft.max_unpool",
    .c_name = "max_unpool",
    .doc = "The elements of x at the places that max_pool_with_indices gives, in a result of the given spatial sizes "
           "that is 0 elsewhere.",
    .example = "y = wf_max_unpool(s, x, places, WF_INTS(8, 8));",
    .operands = kPooled,
    .attrs = kSizeAttrs,
    .infer = InferUnpool,
    .expand = ExpandUnpool,
    .samples = kUnpools,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_adaptive_avg_pool = Formula({
    .name = "weft.adaptive_avg_pool",
    .c_name = "adaptive_avg_pool",
    .doc = "The mean of each of so many parts of the spatial dimensions: element i of n stands for the elements from "
           "floor(i size / n) to ceil((i + 1) size / n).",
    .example = "y = wf_adaptive_avg_pool(s, x, WF_INTS(7, 7));",
    .operands = kPoolOperands,
    .attrs = kSizeAttrs,
    .infer = InferAdaptive,
    .expand = ExpandAdaptiveAvg,
    .samples = kAdaptives,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_adaptive_max_pool = Formula({
    .name = "weft.adaptive_max_pool",
    .c_name = "adaptive_max_pool",
    .doc = "The largest element of each of so many parts of the spatial dimensions, which are adaptive_avg_pool's, "
           "and its place, counted over these as one row.",
    .example = "wf_adaptive_max_pool(s, x, WF_INTS(7, 7));",
    .operands = kMaxPoolOperands,
    .attrs = kSizeAttrs,
    .results = kPlaces,
    .infer = InferAdaptive,
    .expand = ExpandAdaptiveMax,
    .samples = kAdaptives,
    .tolerance = kExact,
});
constinit const OpDef kOp_lp_pool = Formula({
    .name = "weft.lp_pool",
    .c_name = "lp_pool",
    .doc = "The p-norm under each window of channels-last data, (Σ x^p)^(1 / p), 0 where the sum is below it. The "
           "gradient at 0 is 0.",
    .example = "y = wf_lp_pool(s, x, WF_INTS(2, 2));",
    .operands = kPoolOperands,
    .attrs = kLpAttrs,
    .infer = InferLp,
    .expand = ExpandLp,
    .samples = kLps,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_im2col = Formula({
    .name = "weft.im2col",
    .c_name = "im2col",
    .doc = "The windows of channels-last data as rows: [batch, windows, features times elements of a window], a "
           "feature's elements together. PyTorch's unfold, transposed.",
    .example = "columns = wf_im2col(s, image, WF_INTS(3, 3));",
    .operands = kImages,
    .attrs = kColumnAttrs,
    .infer = InferColumns,
    .expand = ExpandColumns,
    .samples = kColumnSamples,
    .tolerance = kExact,
});
constinit const OpDef kOp_col2im = Formula({
    .name = "weft.col2im",
    .c_name = "col2im",
    .doc = "Adds the windows that im2col gives up to channels-last data of the given spatial sizes. PyTorch's fold.",
    .example = "image = wf_col2im(s, columns, WF_INTS(8, 8), WF_INTS(3, 3));",
    .operands = kColumns,
    .attrs = kImageAttrs,
    .infer = InferImage,
    .expand = ExpandImage,
    .samples = kImageSamples,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
