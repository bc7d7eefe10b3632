// Convolutions on register tiles. Elements that these do not read are widened first: one copy of each operand.
#include <algorithm>

#include "src/backends/cpu/kernels/conv/conv_panels.h"
#include "src/backends/cpu/kernels/conv/gathers.h"
#include "src/backends/cpu/kernels/tiles/halves.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// bf16 without a dot product in hardware (and f16): one widened copy of each operand, then everything is f32.
struct Widened {
  const void* first = nullptr;
  const void* second = nullptr;
  float* result = nullptr;
};
// So many elements.
struct Operand {
  const void* data = nullptr;
  int64_t count = 0;
};
absl::Status Widen(const HalvesKernels& kernels, DType from, Operand first, Operand second, const Duty& duty,
                   Widened* out, int64_t result_count = 0) {
  const int64_t bytes = (first.count + second.count + result_count + 48) * 4;
  if (duty.pool == nullptr) {
    duty.needs->Once(ScratchSlot::kWiden, bytes);
    return absl::OkStatus();
  }
  float* memory = static_cast<float*>(ThreadScratch(ScratchSlot::kWiden, bytes));
  if (memory == nullptr) return OutOfScratch("widened operands of a convolution", bytes);
  float* second_out = memory + (first.count + 15) / 16 * 16;
  const auto convert = [&](const void* source, float* to, int64_t begin, int64_t end) {
    kernels.widen(from, static_cast<const uint16_t*>(source) + begin, end - begin, to + begin);
  };
  duty.pool->ParallelRanges(first.count, [&](int64_t b, int64_t e, int) { convert(first.data, memory, b, e); });
  duty.pool->ParallelRanges(second.count, [&](int64_t b, int64_t e, int) { convert(second.data, second_out, b, e); });
  *out = {memory, second_out, second_out + (second.count + 15) / 16 * 16};
  return absl::OkStatus();
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
// Tells whether tiles read a copy of the kernel, which is packed from there.
bool ReadsCopies(const Gathering& gathering) {
  const TypePlan& types = gathering.gather.types;
  return Widens(types) || (gathering.forward && WidensBytes(gathering.call, types));
}

const char* RefusesGather(const Gathering& gathering) {
  return gathering.tiles ? nullptr : "no register tile serves the types or the groups";
}
const char* RefusesVnni(const Gathering& gathering) {
  if (!IsQuads(gathering.gather.types.pack) || ReadsCopies(gathering)) {
    return "the target has no dot product of bytes, or these are none that lie in fours";
  }
  return RefusesGather(gathering);
}

absl::Status Gather(const Gathering& gathering, KernelSet::State& state, const Duty& duty) {
  if (!ReadsCopies(gathering)) return RunGather(state, gathering.gather, duty);
  const ConvCall& call = gathering.call;
  GatherCall gather = gathering.gather;
  Widened wide;
  if (Widens(gather.types)) {
    const Operand image = gathering.forward ? Operand{call.x, XCount(call)} : Operand{call.y, YCount(call)};
    WEFT_RETURN_IF_ERROR(
        Widen(HalvesKernelsOf(state.target().isa), call.input, image, {call.w, WCount(call)}, duty, &wide));
    AsF32(&gather.types);
  } else {
    WEFT_RETURN_IF_ERROR(WidenBytes(call, duty, &wide));
    AsI16(&gather.types);
  }
  gather.from = wide.first;
  gather.weights = wide.second;
  return RunGather(state, gather, duty);
}

GatherPlan PlanOf(const Gathering& gathering) { return GatherPlan::Make(gathering.target, gathering.gather); }
int64_t PackedBytes(const Gathering& gathering) { return ReadsCopies(gathering) ? 0 : PlanOf(gathering).PackedBytes(); }
std::vector<int64_t> PackedForm(const Gathering& gathering) {
  std::vector<int64_t> form = PlanOf(gathering).PackedForm();
  form.push_back(gathering.gather.geometry.window);  // taps that have marks
  return form;
}
absl::Status PackKernel(const Gathering& gathering, char* packed, ThreadPool& pool) {
  const GatherPlan plan = PlanOf(gathering);
  std::vector<const Phase*> phases;
  for (const Phase& phase : plan.phases) {
    if (!phase.empty()) phases.push_back(&phase);
  }
  plan.Pack(gathering.target, phases, packed, pool);
  return absl::OkStatus();
}
int64_t Unpackable(const Gathering& gathering) { return PlanOf(gathering).Unpackable(); }
void Unpack(const Gathering& gathering, const char* packed, char* weights) {
  PlanOf(gathering).Unpack(packed, weights);
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

const char* RefusesGradient(const KernelGradient& gradient) {
  const Geometry geometry = PadRank(gradient.call.spatial_rank, gradient.call.dims);
  const bool some = gradient.call.batch * geometry.out > 0 && geometry.in > 0 && WCount(gradient.call) > 0;
  return gradient.tiles && some ? nullptr
                                : "no register tile serves the types or the groups, or there is nothing to add";
}

absl::Status Gradient(const KernelGradient& gradient, KernelSet::State& state, const Duty& duty) {
  const ConvCall& call = gradient.call;
  const TypePlan& types = gradient.types;
  if (call.input != DType::kBF16 && call.input != DType::kF16) return RunWeights(state, call, duty);
  if (WeightsInPairs(call, types)) return RunWeights(state, IsProduct(call) ? InLongLines(call) : call, duty);
  const int64_t count = WCount(call);
  Widened wide;
  WEFT_RETURN_IF_ERROR(Widen(HalvesKernelsOf(state.target().isa), call.input, {call.x, XCount(call)},
                             {call.y, YCount(call)}, duty, &wide, types.narrow ? count : 0));
  ConvCall wide_call = call;
  wide_call.x = wide.first;
  wide_call.y = const_cast<void*>(wide.second);
  wide_call.input = DType::kF32;
  if (!types.narrow) return RunWeights(state, wide_call, duty);
  wide_call.w = wide.result;
  wide_call.output = DType::kF32;
  wide_call.epilogue = {};
  WEFT_RETURN_IF_ERROR(RunWeights(state, wide_call, duty));
  if (duty.pool == nullptr) return absl::OkStatus();
  const int64_t rows = count / call.out_channels;
  Narrow(call.output, wide.result, call.out_channels, const_cast<void*>(call.w), call.out_channels, rows,
         call.out_channels);
  if (call.epilogue.run != nullptr) call.epilogue.run(call.epilogue.context, 0, 0, rows, 0, call.out_channels);
  return absl::OkStatus();
}

}  // namespace

bool IsProduct(const ConvCall& call) {
  bool single = call.feature_groups == 1 && call.batch_groups == 1 && call.in_channels > 0 && call.out_channels > 0;
  for (int d = 0; d < call.spatial_rank; ++d) {
    const SpatialDim& dim = call.dims[d];
    single =
        single && dim.window == 1 && dim.stride == 1 && dim.lhs_dilation == 1 && dim.pad_lo == 0 && dim.in == dim.out;
  }
  return single;
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

constinit const GatherImplementation kGatherTilesVnni = {.name = "conv gather vnni",
                                                         .refuses = RefusesVnni,
                                                         .run = Gather,
                                                         .flows = true,
                                                         .packed_bytes = PackedBytes,
                                                         .packed_form = PackedForm,
                                                         .pack = PackKernel,
                                                         .unpackable = Unpackable,
                                                         .unpack = Unpack};
constinit const GatherImplementation kGatherTiles = {.name = "conv gather",
                                                     .refuses = RefusesGather,
                                                     .run = Gather,
                                                     .flows = true,
                                                     .packed_bytes = PackedBytes,
                                                     .packed_form = PackedForm,
                                                     .pack = PackKernel,
                                                     .unpackable = Unpackable,
                                                     .unpack = Unpack};
constinit const KernelGradientImplementation kKernelGradientTiles = {"conv weights", RefusesGradient, Gradient};

}  // namespace weft::cpu
