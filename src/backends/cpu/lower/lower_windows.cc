// Pools and windows: any dimension order to the kernels' NHWC, with copies only where the order differs.
#include <algorithm>

#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/lower/fold.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/conv/window.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using ir::Ints;
using ir::Node;
using ir::Value;

struct Pooling {
  std::vector<ops::Window> windows;
  Dims in, out;
};

absl::StatusOr<Pooling> ReadPooling(const Node& node, const Dims& in, const ops::WindowAttrs& at) {
  Pooling p;
  p.in = in;
  WEFT_ASSIGN_OR_RETURN(p.windows, ops::WindowsOf(node.op(), node.attrs(), in, at));
  for (const ops::Window& w : p.windows) p.out.push_back(w.out());
  return p;
}

bool IsTrivial(const ops::Window& w) {
  return w.size == 1 && w.stride == 1 && w.low == 0 && w.high == 0 && w.base_dilation == 1;
}

// [batch, up to kMaxSpatialDims dimensions with windows, channels]; false if there are more.
bool ToPool(const Pooling& p, PoolCall* call) {
  size_t begin = 0, end = p.windows.size();
  call->channels = 1;
  call->batch = 1;
  if (end > 0 && IsTrivial(p.windows[end - 1])) call->channels = p.in[--end];
  while (begin < end && IsTrivial(p.windows[begin])) call->batch *= p.in[begin++];
  if (end - begin > static_cast<size_t>(kMaxSpatialDims)) return false;
  call->spatial_rank = std::max<int>(1, static_cast<int>(end - begin));
  for (size_t d = begin; d < end; ++d) {
    const ops::Window& w = p.windows[d];
    call->dims[d - begin] =
        SpatialDim{w.in, w.size, w.out(), w.stride, w.low, w.high, w.base_dilation, w.dilation, false};
  }
  return true;
}

double PoolCost(const Pooling& p) {
  double taps = 100;
  for (const ops::Window& w : p.windows) taps *= w.size;
  return CountOf(p.out) * taps;
}

// The operand spread by its dilation between padding, so that windows are overlapping reads of it.
struct Spread {
  Dims padded, dense;  // shape and strides of what is read
  Dims sizes, strides,
      from;  // of the elements that negative padding leaves: how many, where they go, where they come from
  int64_t offset = 0, from_offset = 0;
};
absl::StatusOr<Spread> SpreadOf(const Pooling& p) {
  constexpr int64_t kMost = int64_t{1} << 59;  // of any tensor: its bytes fit 63 bits
  Spread s;
  for (const ops::Window& w : p.windows) s.padded.push_back(std::max<int64_t>(0, w.dilated_in() + w.low + w.high));
  if (CheckedCount(s.padded).value_or(kMost + 1) > kMost) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "padding and dilation make ", DimsToString(s.padded), " of ",
                       DimsToString(p.in), ", more elements than memory could hold");
  }
  s.dense = StridesOf(s.padded);
  s.from = StridesOf(p.in);
  for (size_t d = 0; d < s.padded.size(); ++d) {
    const ops::Window& w = p.windows[d];
    int64_t first = 0, last = w.in - 1;
    while (first <= last && first * w.base_dilation + w.low < 0) ++first;
    while (last >= first && last * w.base_dilation + w.low >= s.padded[d]) --last;
    s.sizes.push_back(last - first + 1);
    s.strides.push_back(s.dense[d] * w.base_dilation);
    s.offset += (first * w.base_dilation + w.low) * s.dense[d];
    s.from_offset += first * s.from[d];
  }
  return s;
}

// Elements of the scalar `fill` with `x` among them; without `x`, with the scalar `inside` in its place.
StorageId AddSpread(Lowering& lowering, const Spread& s, DType dtype, StorageId fill, StorageId x,
                    StorageId inside = -1) {
  const StorageId wide = lowering.Temporary(CountOf(s.padded) * BytesOf(dtype));
  const Dims none(s.padded.size(), 0);
  lowering.CopyBox(dtype, s.padded, {fill, 0, none}, {wide, 0, s.dense});
  const Lowering::Layout from = x >= 0 ? Lowering::Layout{x, s.from_offset, s.from} : Lowering::Layout{inside, 0, none};
  lowering.CopyBox(dtype, s.sizes, from, {wide, s.offset, s.strides});
  return wide;
}

absl::Status LowerReduceWindow(Lowering& lowering, const Node& node) {
  using Attrs = ops::ReduceWindowAttrs;
  const Value& x = node.operands()[0];
  const Value result{Ref<const Node>::Share(&node), 0};
  WEFT_ASSIGN_OR_RETURN(const Pooling p, ReadPooling(node, x.dims(),
                                                     {Attrs::kWindowDimensions, Attrs::kWindowStrides, Attrs::kPadding,
                                                      Attrs::kBaseDilations, Attrs::kWindowDilations}));
  const auto reducer = static_cast<ops::Reducer>(Attrs{node.attrs()}.reducer());
  PoolCall call;
  call.dtype = x.dtype();
  // Sums of large windows are loops, whose sums cascade.
  constexpr int64_t kMostSummed = 1024;
  int64_t taps = 1;
  for (const ops::Window& w : p.windows) taps = std::min(taps * w.size, kMostSummed + 1);
  const bool sums = reducer == ops::Reducer::kSum && (taps <= kMostSummed || !IsFloat(x.dtype()));
  const bool kind = reducer == ops::Reducer::kMax || reducer == ops::Reducer::kMin || sums;
  if (kind && !IsBool(x.dtype()) && ToPool(p, &call)) {
    call.kind = reducer == ops::Reducer::kMax   ? PoolKind::kMax
                : reducer == ops::Reducer::kMin ? PoolKind::kMin
                                                : PoolKind::kSum;
    const StorageId out = lowering.Define(result);
    if (result.type().count() == 0) return absl::OkStatus();
    lowering.Host("pool", {lowering.Of(x)}, {out}, EncodePool(call), PoolCost(p));
    return absl::OkStatus();
  }
  // Spread and padded with what changes nothing, then a reduction over overlapping reads.
  HostTensor identity(x.dtype(), {});
  if (IsFloat(x.dtype())) {
    identity.SetDouble(0, ops::IdentityDouble(reducer));
  } else {
    identity.SetInt(0, ops::IdentityInt(reducer, x.dtype()));
  }
  WEFT_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(p));
  const Dims& dense = spread.dense;
  const bool gaps = std::ranges::any_of(
      p.windows, [](const ops::Window& w) { return w.low != 0 || w.high != 0 || w.base_dilation != 1; });
  const StorageId wide =
      gaps ? AddSpread(lowering, spread, x.dtype(), lowering.Constant(identity), lowering.Of(x)) : lowering.Of(x);
  LoopKernel kernel;
  LoopBuilder builder(kernel);
  Access load{0, x.dtype(), 0, {}}, store{1, x.dtype(), 0, {}};
  const Dims out_strides = StridesOf(p.out);
  for (size_t d = 0; d < p.out.size(); ++d) {
    kernel.dims.push_back(Dim{p.out[d], false});
    load.strides.push_back(p.windows[d].stride * dense[d]);
    store.strides.push_back(out_strides[d]);
  }
  for (size_t d = 0; d < p.out.size(); ++d) {
    kernel.dims.push_back(Dim{p.windows[d].size, true});
    load.strides.push_back(p.windows[d].dilation * dense[d]);
    store.strides.push_back(0);
  }
  const ir::ScalarValue sum = builder.Round(builder.Reduce(reducer, builder.Load(load)), x.dtype());
  kernel.stores.push_back(Store{store, sum.id, true, 0});
  kernel.buffers = 2;
  Finish(kernel);
  lowering.Loop(std::move(kernel), {wide, lowering.Define(result)});
  return absl::OkStatus();
}

absl::Status LowerReduceWindowBy(Lowering& lowering, const Node& node) {
  using Attrs = ops::ReduceWindowByAttrs;
  const ir::Function& body = *node.regions()[0];
  const size_t n = body.results().size();
  WEFT_ASSIGN_OR_RETURN(const Pooling p, ReadPooling(node, node.operands()[0].dims(),
                                                     {Attrs::kWindowDimensions, Attrs::kWindowStrides, Attrs::kPadding,
                                                      Attrs::kBaseDilations, Attrs::kWindowDilations}));
  Fold fold{body, {}, p.out, {}, {}, {}, {}};
  WEFT_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(p));
  FoldOperand x;
  bool gaps = false;
  for (size_t d = 0; d < p.out.size(); ++d) {
    const ops::Window& w = p.windows[d];
    gaps = gaps || w.low != 0 || w.high != 0 || w.base_dilation != 1;
    fold.reduced.push_back(w.size);
    x.kept.push_back(w.stride * spread.dense[d]);
    x.reduced.push_back(w.dilation * spread.dense[d]);
  }
  const bool empty = CountOf(p.out) == 0;
  for (size_t i = 0; i < n; ++i) {
    const Value &input = node.operands()[i], &first = node.operands()[n + i];
    fold.starts.push_back({lowering.Of(first), 0, std::vector<int64_t>(p.out.size(), 0), {}});
    x.storage = lowering.Of(input);
    if (gaps && !empty) x.storage = AddSpread(lowering, spread, input.dtype(), lowering.Of(first), x.storage);
    fold.taken.push_back(x);
  }
  if (gaps && !empty) {  // what is padding is not taken in
    HostTensor no(DType::kBool, {}), yes(DType::kBool, {});
    yes.SetInt(0, 1);
    x.storage = AddSpread(lowering, spread, DType::kBool, lowering.Constant(no), -1, lowering.Constant(yes));
    fold.valid = x;
  }
  for (const Value& capture : node.operands().subspan(2 * n)) fold.captures.push_back(lowering.Of(capture));
  WEFT_ASSIGN_OR_RETURN(const std::vector<StorageId> results, AddFold(lowering, fold));
  for (uint32_t i = 0; i < n; ++i) lowering.Alias(Value{Ref<const Node>::Share(&node), i}, results[i]);
  return absl::OkStatus();
}

absl::Status LowerSelectAndScatter(Lowering& lowering, const Node& node) {
  using Attrs = ops::SelectAndScatterAttrs;
  const Value &x = node.operands()[0], &source = node.operands()[1];
  WEFT_ASSIGN_OR_RETURN(
      const Pooling p, ReadPooling(node, x.dims(), {Attrs::kWindowDimensions, Attrs::kWindowStrides, Attrs::kPadding}));
  PoolCall call;
  call.dtype = x.dtype();
  call.kind = PoolKind::kMax;
  call.nan_gives_way = Attrs{node.attrs()}.select() == 1;
  if (!ToPool(p, &call)) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the CPU backend runs select_and_scatter over at most ",
                       kMaxSpatialDims, " neighbouring dimensions");
  }
  const Value result{Ref<const Node>::Share(&node), 0};
  if (IsHalf(x.dtype()) && x.type().count() != 0 && !RoundsOnce(call)) {
    // An element that several windows chose is a sum: kept in f32 and rounded once.
    call.dtype = DType::kF32;
    const StorageId wide_x = lowering.Converted(lowering.Of(x), x.dtype(), DType::kF32, x.type().count());
    const StorageId wide_source =
        lowering.Converted(lowering.Of(source), source.dtype(), DType::kF32, source.type().count());
    const StorageId wide = lowering.Temporary(x.type().count() * BytesOf(DType::kF32));
    lowering.Host("pool_backward", {wide_x, wide_source}, {wide}, EncodePool(call), PoolCost(p) * 2);
    lowering.Alias(result, lowering.Converted(wide, DType::kF32, x.dtype(), x.type().count()));
    return absl::OkStatus();
  }
  const StorageId out = lowering.Define(result);
  if (x.type().count() == 0) return absl::OkStatus();
  lowering.Host("pool_backward", {lowering.Of(x), lowering.Of(source)}, {out}, EncodePool(call), PoolCost(p) * 2);
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {
    {&ops::kOp_reduce_window, LowerReduceWindow},
    {&ops::kOp_reduce_window_by, LowerReduceWindowBy},
    {&ops::kOp_select_and_scatter, LowerSelectAndScatter},
};

}  // namespace

std::span<const OpRule> WindowRules() { return kRules; }

}  // namespace weft::cpu
