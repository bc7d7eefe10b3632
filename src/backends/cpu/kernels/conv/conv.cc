// Convolution's entry points: checks, then tiles where they serve and the plain loops elsewhere.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "src/backends/cpu/kernels/chosen.h"
#include "src/backends/cpu/kernels/conv/amx_conv.h"
#include "src/backends/cpu/kernels/conv/conv_padding.h"
#include "src/backends/cpu/kernels/conv/conv_panels.h"
#include "src/backends/cpu/kernels/conv/conv_plain.h"
#include "src/backends/cpu/kernels/conv/conv_winograd.h"
#include "src/backends/cpu/kernels/conv/conv_zeros.h"
#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "src/backends/cpu/kernels/tiles/halves.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

bool TilesServe(const ConvCall& call) { return call.batch_groups == 1 && call.in_channels > 0; }

// bf16 without a dot product in hardware (and f16): one widened copy of each operand, then everything is f32.
struct Widened {
  const void* first = nullptr;
  const void* second = nullptr;
  float* result = nullptr;
};
absl::Status Widen(const HalvesKernels& kernels, DType from, const void* first, int64_t first_count,
                   const void* second, int64_t second_count, const Duty& duty, Widened* out, int64_t result_count = 0) {
  const int64_t bytes = (first_count + second_count + result_count + 48) * 4;
  if (duty.pool == nullptr) {
    duty.needs->Once(ScratchSlot::kWiden, bytes);
    return absl::OkStatus();
  }
  float* memory = static_cast<float*>(ThreadScratch(ScratchSlot::kWiden, bytes));
  if (memory == nullptr) return OutOfScratch("widened operands of a convolution", bytes);
  float* second_out = memory + (first_count + 15) / 16 * 16;
  const auto convert = [&](const void* source, float* to, int64_t begin, int64_t end) {
    kernels.widen(from, static_cast<const uint16_t*>(source) + begin, end - begin, to + begin);
  };
  duty.pool->ParallelRanges(first_count, [&](int64_t b, int64_t e, int) { convert(first, memory, b, e); });
  duty.pool->ParallelRanges(second_count, [&](int64_t b, int64_t e, int) { convert(second, second_out, b, e); });
  *out = {memory, second_out, second_out + (second_count + 15) / 16 * 16};
  return absl::OkStatus();
}

int64_t XCount(const ConvCall& call) {
  return call.batch * PadRank(call.spatial_rank, call.dims).in * call.in_channels;
}
int64_t YCount(const ConvCall& call) {
  return call.batch * PadRank(call.spatial_rank, call.dims).out * call.out_channels;
}
int64_t WCount(const ConvCall& call) {
  return PadRank(call.spatial_rank, call.dims).window * (call.in_channels / call.feature_groups) * call.out_channels;
}

// Bytes with or without a sign, of which pairs of i16 are made: one widened copy of each operand.
absl::Status WidenBytes(const ConvCall& call, const Duty& duty, Widened* out) {
  const int64_t first_count = XCount(call), second_count = WCount(call), bytes = (first_count + second_count + 64) * 2;
  if (duty.pool == nullptr) {
    duty.needs->Once(ScratchSlot::kWiden, bytes);
    return absl::OkStatus();
  }
  auto* const memory = static_cast<int16_t*>(ThreadScratch(ScratchSlot::kWiden, bytes));
  if (memory == nullptr) return OutOfScratch("widened operands of a convolution", bytes);
  int16_t* const second_out = memory + (first_count + 31) / 32 * 32;
  const auto convert = [&]<typename T>(const T* from, int16_t* to, int64_t count) {
    duty.pool->ParallelRanges(
        count, [&](int64_t begin, int64_t end, int) { std::copy(from + begin, from + end, to + begin); });
  };
  const auto both = [&]<typename T>(T) {
    convert(static_cast<const T*>(call.x), memory, first_count);
    convert(static_cast<const T*>(call.w), second_out, second_count);
  };
  IsSigned(call.input) ? both(int8_t{}) : both(uint8_t{});
  *out = {memory, second_out, nullptr};
  return absl::OkStatus();
}
void AsI16(TypePlan* types) {
  types->micro = MicroType::kI16Dot;
  types->pack = PackKind::kPairs;
  types->source_bytes = 2;
}
// Fours of bytes are read where they lie: where a tap has no other number of them, in one block of K.
bool WidensBytes(const ConvCall& call, const TypePlan& types) {
  constexpr int64_t kMostChannels = 8192;
  const int64_t channels = call.in_channels / call.feature_groups;
  const bool fours = channels % StepElements(types.pack) == 0 && channels <= kMostChannels;
  return types.pack == PackKind::kPairsI8 || types.pack == PackKind::kPairsU8 || (IsQuads(types.pack) && !fours);
}

// Turns a widening plan into a plain f32 one; the output may still be narrow.
void AsF32(TypePlan* types) {
  types->pack = PackKind::kF32;
  types->micro = MicroType::kF32;
  types->direct = true;
  types->source_bytes = 4;
}
bool Widens(const TypePlan& types) { return types.pack == PackKind::kWidenBF16 || types.pack == PackKind::kWidenF16; }

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

absl::Status Run(KernelSet::State& state, const GatherCall& gather, const Duty& duty) {
  const bool winograd = WinogradServes(gather);
  if (duty.pool == nullptr) {
    Chose(winograd ? "conv winograd" : IsQuads(gather.types.pack) ? "conv gather vnni" : "conv gather");
  }
  return winograd ? RunWinograd(state, gather, duty) : RunGather(state, gather, duty);
}

absl::Status Forward(KernelSet::State& state, const ConvCall& original, const TypePlan& types, const Duty& duty) {
  ConvCall call = original;
  std::optional<PaddedImage> image;
  if (PadsFirst(state.target(), call, types, true)) {
    image.emplace(call, types.source_bytes);
    TakePadding(&call);
  }
  GatherCall gather = ForwardGather(call, types);
  if (image.has_value()) {
    if (image->Flows() && !WinogradServes(gather)) {
      gather.padded = &*image;
      return RunGather(state, gather, duty);
    }
    WEFT_ASSIGN_OR_RETURN(gather.from, Pad(*image, duty));
  }
  if (DepthwiseServes(call.input, call.output, gather.groups, gather.group_from, gather.group_to)) {
    if (duty.pool == nullptr) Chose("conv depthwise");
    return RunDepthwise(state, gather, duty);
  }
  if (AmxServes(state.target(), call.input, call.output)) {
    if (duty.pool == nullptr) Chose("conv amx");
    return RunTileGather(state, gather, duty);
  }
  if (Widens(types)) {
    Widened wide;
    WEFT_RETURN_IF_ERROR(Widen(HalvesKernelsOf(state.target().isa), call.input, call.x, XCount(call), call.w,
                               WCount(call), duty, &wide));
    gather.from = wide.first;
    gather.weights = wide.second;
    AsF32(&gather.types);
  } else if (WidensBytes(call, types)) {
    Widened wide;
    WEFT_RETURN_IF_ERROR(WidenBytes(call, duty, &wide));
    gather.from = wide.first;
    gather.weights = wide.second;
    AsI16(&gather.types);
  }
  return Run(state, gather, duty);
}

absl::Status BackwardData(KernelSet::State& state, const ConvCall& call, const TypePlan& types, const Duty& duty) {
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
  if (DepthwiseServes(call.input, call.output, gather.groups, gather.group_from, gather.group_to)) {
    if (duty.pool == nullptr) Chose("conv depthwise");
    return RunDepthwise(state, gather, duty);
  }
  if (AmxServes(state.target(), call.input, call.output)) {
    if (duty.pool == nullptr) Chose("conv amx");
    return RunTileGather(state, gather, duty);
  }
  if (Widens(types)) {
    Widened wide;
    WEFT_RETURN_IF_ERROR(Widen(HalvesKernelsOf(state.target().isa), call.input, call.y, YCount(call), call.w,
                               WCount(call), duty, &wide));
    gather.from = wide.first;
    gather.weights = wide.second;
    AsF32(&gather.types);
  }
  return Run(state, gather, duty);
}

// The gradient of a 1x1 kernel is a matrix product over all pixels.
bool IsProduct(const ConvCall& call) {
  bool single = call.feature_groups == 1 && call.batch_groups == 1 && call.in_channels > 0 && call.out_channels > 0;
  for (int d = 0; d < call.spatial_rank; ++d) {
    const SpatialDim& dim = call.dims[d];
    single =
        single && dim.window == 1 && dim.stride == 1 && dim.lhs_dilation == 1 && dim.pad_lo == 0 && dim.in == dim.out;
  }
  return single;
}
// Such a call as one over long lines: tiles read a line in one run.
ConvCall InLongLines(const ConvCall& call) {
  constexpr int64_t kLongest = 1024;
  const Geometry geometry = PadRank(call.spatial_rank, call.dims);
  const int64_t pixels = call.batch * geometry.out;
  int64_t line = std::min(kLongest, std::max<int64_t>(1, pixels));
  while (pixels % line != 0) --line;
  ConvCall joined = call;
  if (line <= geometry.dims[kMaxSpatialDims - 1].out) return joined;
  joined.batch = pixels / line;
  joined.spatial_rank = 1;
  joined.dims[0] = {line, 1, line};
  return joined;
}

absl::Status BackwardWeights(KernelSet::State& state, const ConvCall& call, const TypePlan& types, const Duty& duty,
                             bool* served) {
  const int64_t groups = call.feature_groups;
  if (DepthwiseServes(call.input, call.output, groups, call.in_channels / groups, call.out_channels / groups)) {
    if (duty.pool == nullptr) Chose("conv depthwise");
    return RunDepthwiseWeights(state, call, duty);
  }
  if (duty.pool == nullptr) Chose(AmxServes(state.target(), call.input, call.output) ? "conv amx" : "conv weights");
  if (AmxServes(state.target(), call.input, call.output)) return RunTileWeights(state, call, duty);
  if (call.input != DType::kBF16 && call.input != DType::kF16) return RunWeights(state, call, duty, served);
  if (WeightsInPairs(call, types)) return RunWeights(state, IsProduct(call) ? InLongLines(call) : call, duty, served);
  const int64_t count = WCount(call);
  Widened wide;
  WEFT_RETURN_IF_ERROR(Widen(HalvesKernelsOf(state.target().isa), call.input, call.x, XCount(call), call.y,
                             YCount(call), duty, &wide, types.narrow ? count : 0));
  ConvCall wide_call = call;
  wide_call.x = wide.first;
  wide_call.y = const_cast<void*>(wide.second);
  wide_call.input = DType::kF32;
  if (!types.narrow) return RunWeights(state, wide_call, duty, served);
  wide_call.w = wide.result;
  wide_call.output = DType::kF32;
  wide_call.epilogue = {};
  WEFT_RETURN_IF_ERROR(RunWeights(state, wide_call, duty, served));
  if (!*served || duty.pool == nullptr) return absl::OkStatus();
  const int64_t rows = count / call.out_channels;
  Narrow(call.output, wide.result, call.out_channels, const_cast<void*>(call.w), call.out_channels, rows,
         call.out_channels);
  if (call.epilogue.run != nullptr) call.epilogue.run(call.epilogue.context, 0, 0, rows, 0, call.out_channels);
  return absl::OkStatus();
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

// Whether the gradient of a kernel is one product, rather than sums of pairs of pixels that lie side by side before.
bool IsOneProduct(const CpuTarget& target, const ConvCall& call) {
  TypePlan types;
  return IsProduct(call) && (AmxServes(target, call.input, call.output) ||
                             !PlanTypes(target, call.input, call.output, &types) || !WeightsInPairs(call, types));
}

// The forward pass of a call that packs its kernel for tiles of registers: whether it is one. (A kernel that is widened first is
// packed from a copy, and AMX's tiles have a driver of their own.)
bool PacksW(const CpuTarget& target, const ConvCall& original, GatherCall* gather) {
  TypePlan types;
  ConvCall call = original;
  if (!CheckConv(call).ok() || !TilesServe(call) || !PlanTypes(target, call.input, call.output, &types)) return false;
  if (Widens(types) || WidensBytes(call, types) || AmxServes(target, call.input, call.output)) return false;
  if (PadsFirst(target, call, types, true)) TakePadding(&call);
  *gather = ForwardGather(call, types);
  return !DepthwiseServes(call.input, call.output, gather->groups, gather->group_from, gather->group_to) &&
         gather->batch * gather->geometry.out * gather->ToChannels() > 0;
}

// All but what zeros make of a kernel that is not finite.
absl::Status Sum(KernelSet::State& state, const ConvCall& original, Direction direction, const Duty& duty) {
  ConvCall call = original;
  TypePlan types;
  // Integers have no gradients: only tests ask for those.
  const bool tiles = TilesServe(call) && (direction == Direction::kForward || !IsInteger(call.input));
  if (tiles && PlanTypes(state.target(), call.input, call.output, &types)) {
    if (direction == Direction::kWeights && PadsFirst(state.target(), call, types, false)) {
      const PaddedImage image(call, types.source_bytes);
      TakePadding(&call);
      WEFT_ASSIGN_OR_RETURN(call.x, Pad(image, duty));
    }
    bool served = true;
    absl::Status status;
    switch (direction) {
      case Direction::kForward: status = Forward(state, call, types, duty); break;
      case Direction::kData: status = BackwardData(state, call, types, duty); break;
      case Direction::kWeights: status = BackwardWeights(state, call, types, duty, &served); break;
    }
    if (!status.ok() || served) return status;
  }
  if (duty.pool == nullptr) {
    Chose("conv plain");
    return absl::OkStatus();
  }
  switch (direction) {
    case Direction::kForward: return PlainConv(call, *duty.pool);
    case Direction::kData: return PlainConvBackwardData(call, *duty.pool);
    case Direction::kWeights: return PlainConvBackwardWeights(call, *duty.pool);
  }
  return absl::OkStatus();
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

int64_t PackedBytesOfW(const CpuTarget& target, const ConvCall& call) {
  GatherCall gather;
  if (!PacksW(target, call, &gather)) return 0;
  return MarksBytes(call) + (WinogradServes(gather) ? WinogradPackedBytes(target, gather)
                                                    : GatherPlan::Make(target, gather).PackedBytes());
}
std::vector<int64_t> PackedFormOfW(const CpuTarget& target, const ConvCall& call) {
  GatherCall gather;
  if (!PacksW(target, call, &gather)) return {};
  if (WinogradServes(gather)) return WinogradPackedForm(target, gather);
  std::vector<int64_t> form = GatherPlan::Make(target, gather).PackedForm();
  form.push_back(gather.geometry.window);  // taps that have marks
  return form;
}
int64_t UnpackableW(const CpuTarget& target, const ConvCall& call) {
  GatherCall gather;
  return PacksW(target, call, &gather) && !WinogradServes(gather) ? GatherPlan::Make(target, gather).Unpackable() : 0;
}
void UnpackW(const CpuTarget& target, const ConvCall& call, const void* packed, void* w) {
  GatherCall gather;
  if (PacksW(target, call, &gather)) {
    GatherPlan::Make(target, gather).Unpack(static_cast<const char*>(packed) + MarksBytes(call), static_cast<char*>(w));
  }
}
absl::Status KernelSet::PackW(const ConvCall& call, void* packed, ThreadPool& pool) const {
  GatherCall gather;
  if (!PacksW(target(), call, &gather))
    return InternalError("packing the kernel of a convolution that does not pack it");
  PackMarks(call, packed, pool);
  packed = static_cast<char*>(packed) + MarksBytes(call);
  if (WinogradServes(gather)) return PackWinograd(target(), gather, packed, pool);
  const GatherPlan plan = GatherPlan::Make(target(), gather);
  std::vector<const Phase*> phases;
  for (const Phase& phase : plan.phases) {
    if (!phase.empty()) phases.push_back(&phase);
  }
  plan.Pack(target(), phases, static_cast<char*>(packed), pool);
  return absl::OkStatus();
}

absl::Status KernelSet::Conv(const ConvCall& call, ThreadPool& pool) {
  const Ending& e = call.ending;
  const bool whole = e.factor != nullptr && e.summand != nullptr && e.to != nullptr &&
                     e.kind <= EndingKind::kAffineAdd && (e.added != nullptr) == (e.kind == EndingKind::kAffineAdd) &&
                     call.epilogue.run != nullptr;
  if (e.kind != EndingKind::kNone && !whole) return UserError("convolution with half an ending");
  return Dispatch(*state_, call, Direction::kForward, {&pool});
}
absl::Status KernelSet::ConvBackwardData(const ConvCall& call, ThreadPool& pool) {
  return Dispatch(*state_, call, Direction::kData, {&pool});
}
absl::Status KernelSet::ConvBackwardWeights(const ConvCall& call, ThreadPool& pool) {
  WEFT_RETURN_IF_ERROR(CheckConv(call));
  if (IsOneProduct(target(), call)) return Gemm(WeightsProduct(call), pool);
  return Dispatch(*state_, call, Direction::kWeights, {&pool});
}
absl::Status KernelSet::PrepareConv(const ConvCall& call, int threads, ScratchNeeds& needs) {
  return Dispatch(*state_, call, Direction::kForward, {nullptr, &needs, threads});
}
absl::Status KernelSet::PrepareConvBackwardData(const ConvCall& call, int threads, ScratchNeeds& needs) {
  return Dispatch(*state_, call, Direction::kData, {nullptr, &needs, threads});
}
absl::Status KernelSet::PrepareConvBackwardWeights(const ConvCall& call, int threads, ScratchNeeds& needs) {
  WEFT_RETURN_IF_ERROR(CheckConv(call));
  if (IsOneProduct(target(), call)) return PrepareGemm(WeightsProduct(call), threads, needs);
  return Dispatch(*state_, call, Direction::kWeights, {nullptr, &needs, threads});
}

}  // namespace weft::cpu
