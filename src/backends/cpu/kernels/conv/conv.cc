// Convolution's entry points: checks, then the first implementation of gathers.list or kernel_gradients.list that takes the call.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "src/backends/cpu/kernels/chosen.h"
#include "src/backends/cpu/kernels/conv/conv_columns.h"
#include "src/backends/cpu/kernels/conv/conv_padding.h"
#include "src/backends/cpu/kernels/conv/conv_zeros.h"
#include "src/backends/cpu/kernels/conv/gathers.h"
#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "src/backends/cpu/kernels/tiles/implementation.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr const GatherImplementation* kGathers[] = {
#define WEFT_GATHER(name) &kGather##name,
#include "src/backends/cpu/kernels/conv/gathers.list"
#undef WEFT_GATHER
};
constexpr const KernelGradientImplementation* kKernelGradients[] = {
#define WEFT_KERNEL_GRADIENT(name) &kKernelGradient##name,
#include "src/backends/cpu/kernels/conv/kernel_gradients.list"
#undef WEFT_KERNEL_GRADIENT
};

// Tells whether register tiles serve the call, and how. Integers have no gradients: only tests ask for those.
bool TilesServe(const CpuTarget& target, const ConvCall& call, bool forward, TypePlan* types) {
  return call.batch_groups == 1 && call.in_channels > 0 && (forward || !IsInteger(call.input)) &&
         PlanTypes(target, call.input, call.output, types);
}

GatherCall ForwardGather(const ConvCall& call, const TypePlan& types) {
  GatherCall gather;
  gather.types = types;
  gather.input = call.input;
  gather.output = call.output;
  gather.batch = call.batch;
  gather.geometry = PadRank(call.spatial_rank, call.dims);
  gather.groups = call.feature_groups;
  gather.group_from = call.in_channels / call.feature_groups;
  gather.group_to = call.out_channels / call.feature_groups;
  gather.from = call.x;
  (call.w_packed ? gather.packed : gather.weights) = call.w;
  gather.to = call.y;
  gather.tap_stride = gather.group_from * call.out_channels;
  gather.from_stride = call.out_channels;
  gather.to_stride = 1;
  gather.group_stride = gather.group_to;
  if (call.w_out_first) {
    gather.tap_stride = 1;
    gather.from_stride = gather.geometry.window;
    gather.to_stride = gather.from_stride * gather.group_from;
    gather.group_stride = gather.to_stride * gather.group_to;
  }
  gather.epilogue = call.epilogue;
  gather.ending = call.ending;
  gather.winograd = call.winograd;
  gather.forward = true;
  return gather;
}

GatherCall BackwardGather(const ConvCall& call, const TypePlan& types) {
  GatherCall gather;
  gather.types = types;
  gather.input = call.input;
  gather.output = call.output;
  gather.batch = call.batch;
  gather.geometry = PadRank(call.spatial_rank, call.dims);
  // x[i] gathers y[o] where o * stride = i * lhs_dilation + pad_lo - t * rhs_dilation: the same form with stride and
  // input dilation exchanged and the window turned round.
  for (SpatialDim& dim : gather.geometry.dims) {
    std::swap(dim.in, dim.out);
    std::swap(dim.stride, dim.lhs_dilation);
    dim.pad_lo = (dim.window - 1) * dim.rhs_dilation - dim.pad_lo;
    dim.pad_hi = 0;
    dim.reversed = !dim.reversed;
  }
  std::swap(gather.geometry.in, gather.geometry.out);
  gather.groups = call.feature_groups;
  gather.group_from = call.out_channels / call.feature_groups;
  gather.group_to = call.in_channels / call.feature_groups;
  gather.from = call.y;
  gather.weights = call.w;
  gather.to = const_cast<void*>(call.x);
  gather.tap_stride = gather.group_to * call.out_channels;
  gather.from_stride = 1;
  gather.to_stride = call.out_channels;
  gather.group_stride = gather.group_from;
  gather.epilogue = call.epilogue;
  gather.winograd = call.winograd;
  return gather;
}

// The call as it runs: the padding of a forward pass of few channels goes to `image`, if there is one.
Gathering GatheringOf(const CpuTarget& target, const ConvCall& call, bool forward,
                      std::optional<PaddedImage>* image = nullptr) {
  Gathering gathering{target, call, forward, true, {}};
  TypePlan types;
  gathering.tiles = TilesServe(target, call, forward, &types);
  if (forward && gathering.tiles && PadsFirst(target, call, types, true)) {
    if (image != nullptr) image->emplace(call, types.source_bytes);
    TakePadding(&gathering.call);
  }
  gathering.gather = forward ? ForwardGather(gathering.call, types) : BackwardGather(call, types);
  return gathering;
}

GemmCall WeightsProduct(const ConvCall& call) {
  GemmCall gemm;
  gemm.input = call.input;
  gemm.output = call.output;
  gemm.m = call.in_channels;
  gemm.n = call.out_channels;
  gemm.k = call.batch * PadRank(call.spatial_rank, call.dims).out;
  gemm.a = {call.x, 1, call.in_channels, {}};
  gemm.b = {call.y, call.out_channels, 1, {}};
  gemm.c = const_cast<void*>(call.w);
  gemm.epilogue = call.epilogue;
  return gemm;
}

// Tells whether the gradient of a kernel is one product, rather than sums of pairs of pixels that lie side by side before.
bool IsOneProduct(const CpuTarget& target, const ConvCall& call) {
  TypePlan types;
  return IsProduct(call) && (AmxServes(target, call.input, call.output) ||
                             !PlanTypes(target, call.input, call.output, &types) || !WeightsInPairs(call, types));
}

// The forward pass of a call that packs its kernel, and who does; nobody if it packs none.
struct Packing {
  Packing(const CpuTarget& target, const ConvCall& call) {
    if (!CheckConv(call).ok()) return;
    gathering.emplace(GatheringOf(target, call, true));
    const GatherCall& gather = gathering->gather;
    const GatherImplementation& chosen = ChooseGather(*gathering);
    if (chosen.packed_bytes == nullptr || gather.batch * gather.geometry.out * gather.ToChannels() == 0) return;
    bytes = chosen.packed_bytes(*gathering);
    if (bytes > 0) by = &chosen;
  }
  std::optional<Gathering> gathering;
  const GatherImplementation* by = nullptr;
  int64_t bytes = 0;
};

absl::Status SumGather(KernelSet::State& state, const ConvCall& call, bool forward, const Duty& duty) {
  std::optional<PaddedImage> image;
  Gathering gathering = GatheringOf(state.target(), call, forward, &image);
  const GatherImplementation& chosen = ChooseGather(gathering);
  if (duty.pool == nullptr) Chose(chosen.name);
  if (image.has_value() && chosen.flows && image->Flows()) {
    gathering.gather.padded = &*image;
  } else if (image.has_value()) {
    WEFT_ASSIGN_OR_RETURN(gathering.gather.from, Pad(*image, duty));
  }
  return chosen.run(gathering, state, duty);
}

absl::Status SumWeights(KernelSet::State& state, const ConvCall& original, const Duty& duty) {
  ConvCall call = original;
  TypePlan types;
  const bool tiles = TilesServe(state.target(), call, false, &types);
  if (tiles && PadsFirst(state.target(), call, types, false)) {
    const PaddedImage image(call, types.source_bytes);
    TakePadding(&call);
    WEFT_ASSIGN_OR_RETURN(call.x, Pad(image, duty));
  }
  const KernelGradient gradient{state.target(), call, tiles, types};
  const KernelGradientImplementation& chosen = ChooseKernelGradient(gradient);
  if (duty.pool == nullptr) Chose(chosen.name);
  return chosen.run(gradient, state, duty);
}

// All but what zeros make of a kernel that is not finite.
absl::Status Sum(KernelSet::State& state, const ConvCall& call, Direction direction, const Duty& duty) {
  if (direction == Direction::kWeights) return SumWeights(state, call, duty);
  return SumGather(state, call, direction == Direction::kForward, duty);
}

// A transformed kernel adds up infinities of both signs: one that is not finite is taken as it is.
bool MayTransform(const ConvCall& call) {
  return call.winograd != UseWinograd::kNever && call.input == DType::kF32 &&
         PadRank(call.spatial_rank, call.dims).window == 9;
}

absl::Status Dispatch(KernelSet::State& state, const ConvCall& original, Direction direction, const Duty& duty) {
  WEFT_RETURN_IF_ERROR(CheckConv(original));
  if (duty.pool == nullptr) {
    WEFT_RETURN_IF_ERROR(Sum(state, original, direction, duty));
    if (!MayTransform(original)) return absl::OkStatus();
    ConvCall direct = original;
    direct.winograd = UseWinograd::kNever;
    return Sum(state, direct, direction, {nullptr, duty.needs, duty.threads, false});
  }
  const bool meets = MeetsZeros(original, direction);
  const bool transforms = direction != Direction::kWeights && MayTransform(original);
  if (!meets && !transforms && !original.w_packed) return Sum(state, original, direction, duty);
  ConvCall call = original;
  const uint8_t* marks = nullptr;
  if (call.w_packed) {
    marks = PackedMarks(call.w);
    call.w = static_cast<const char*>(call.w) + MarksBytes(call);
  }
  if (!meets && !transforms) return Sum(state, call, direction, duty);
  if (direction == Direction::kWeights) {
    call.epilogue = {};
    WEFT_RETURN_IF_ERROR(Sum(state, call, direction, duty));
    MendWeights(call, *duty.pool);
    const int64_t rows = WCount(call) / std::max<int64_t>(1, call.out_channels);
    const Epilogue& epilogue = original.epilogue;
    if (epilogue.run != nullptr) epilogue.run(epilogue.context, 0, 0, rows, 0, call.out_channels);
    return absl::OkStatus();
  }
  std::vector<uint8_t> own;
  if (!call.w_packed && AnyNotFinite(call.input, call.w, WCount(call), *duty.pool)) {
    own.resize(static_cast<size_t>(MarkCount(call, direction)));
    MarkNotFinite(call, direction, own.data());
    marks = own.data();
  }
  if (marks == nullptr) return Sum(state, call, direction, duty);
  if (transforms && (!call.w_packed || call.w_plain != nullptr)) {
    call.winograd = UseWinograd::kNever;
    if (call.w_packed) call.w = call.w_plain;
    call.w_packed = false;
  }
  const ConvCall asked = call;
  NaNOfZeros nans(asked, direction, marks);
  call.ending = {};  // the epilogue does the same, after this
  call.epilogue = nans.epilogue();
  return Sum(state, call, direction, duty);
}

}  // namespace

bool GatherCall::DenormalsVanish() const {
  for (int64_t c = 0; c < ToChannels(); ++c) {
    const float factor = ending.factor[c], summand = ending.summand[c];
    const bool vanish = std::abs(summand) >= 0x1p-80f || (factor == 0 && summand == 0);
    if (!vanish || !(std::abs(factor) <= 0x1p20f)) return false;
  }
  return true;
}

const GatherImplementation& ChooseGather(const Gathering& gathering) { return FirstThatTakes(kGathers, gathering); }
const KernelGradientImplementation& ChooseKernelGradient(const KernelGradient& gradient) {
  return FirstThatTakes(kKernelGradients, gradient);
}

int64_t PackedBytesOfW(const CpuTarget& target, const ConvCall& call) {
  const Packing packing(target, call);
  return packing.by == nullptr ? 0 : MarksBytes(call) + packing.bytes;
}
std::vector<int64_t> PackedFormOfW(const CpuTarget& target, const ConvCall& call) {
  const Packing packing(target, call);
  return packing.by == nullptr ? std::vector<int64_t>() : packing.by->packed_form(*packing.gathering);
}
int64_t UnpackableW(const CpuTarget& target, const ConvCall& call) {
  const Packing packing(target, call);
  return packing.by == nullptr || packing.by->unpackable == nullptr ? 0 : packing.by->unpackable(*packing.gathering);
}
void UnpackW(const CpuTarget& target, const ConvCall& call, const void* packed, void* w) {
  const Packing packing(target, call);
  if (packing.by == nullptr || packing.by->unpack == nullptr) return;
  packing.by->unpack(*packing.gathering, static_cast<const char*>(packed) + MarksBytes(call), static_cast<char*>(w));
}
absl::Status KernelSet::PackW(const ConvCall& call, void* packed, ThreadPool& pool) const {
  const Packing packing(target(), call);
  if (packing.by == nullptr) return InternalError("packing the kernel of a convolution that does not pack it");
  PackMarks(call, packed, pool);
  return packing.by->pack(*packing.gathering, static_cast<char*>(packed) + MarksBytes(call), pool);
}

absl::Status KernelSet::Conv(const ConvCall& call, ThreadPool& pool) {
  const Ending& e = call.ending;
  const bool whole = e.factor != nullptr && e.summand != nullptr && e.to != nullptr &&
                     e.kind <= EndingKind::kAffineAdd && (e.added != nullptr) == (e.kind == EndingKind::kAffineAdd) &&
                     call.epilogue.run != nullptr;
  if (e.kind != EndingKind::kNone && !whole) return UserError("convolution with half an ending");
  if (call.columns) return RunColumns(*this, call, Direction::kForward, {&pool});
  return Dispatch(*state_, call, Direction::kForward, {&pool});
}
absl::Status KernelSet::ConvBackwardData(const ConvCall& call, ThreadPool& pool) {
  if (call.columns) return RunColumns(*this, call, Direction::kData, {&pool});
  return Dispatch(*state_, call, Direction::kData, {&pool});
}
absl::Status KernelSet::ConvBackwardWeights(const ConvCall& call, ThreadPool& pool) {
  if (call.columns) return RunColumns(*this, call, Direction::kWeights, {&pool});
  WEFT_RETURN_IF_ERROR(CheckConv(call));
  if (IsOneProduct(target(), call)) return Gemm(WeightsProduct(call), pool);
  return Dispatch(*state_, call, Direction::kWeights, {&pool});
}
absl::Status KernelSet::PrepareConv(const ConvCall& call, int threads, ScratchNeeds& needs) {
  if (call.columns) return RunColumns(*this, call, Direction::kForward, {nullptr, &needs, threads});
  return Dispatch(*state_, call, Direction::kForward, {nullptr, &needs, threads});
}
absl::Status KernelSet::PrepareConvBackwardData(const ConvCall& call, int threads, ScratchNeeds& needs) {
  if (call.columns) return RunColumns(*this, call, Direction::kData, {nullptr, &needs, threads});
  return Dispatch(*state_, call, Direction::kData, {nullptr, &needs, threads});
}
absl::Status KernelSet::PrepareConvBackwardWeights(const ConvCall& call, int threads, ScratchNeeds& needs) {
  if (call.columns) return RunColumns(*this, call, Direction::kWeights, {nullptr, &needs, threads});
  WEFT_RETURN_IF_ERROR(CheckConv(call));
  if (IsOneProduct(target(), call)) return PrepareGemm(WeightsProduct(call), threads, needs);
  return Dispatch(*state_, call, Direction::kWeights, {nullptr, &needs, threads});
}

}  // namespace weft::cpu
