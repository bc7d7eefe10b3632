// Convolution by its definition, all three directions, any type, rank up to four, groups of both kinds. The slow path
// and the meaning of the fast one, but for products with zeros of the padding, which are left out (conv_zeros.h).
#include <algorithm>
#include <vector>

#include "src/backends/cpu/kernels/conv/gathers.h"
#include "src/backends/cpu/kernels/tiles/elements.h"
#include "src/backends/cpu/kernels/tiles/geometry.h"
#include "src/runtime/integer_sums.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int kLast = kMaxSpatialDims;

// All three directions walk over this: every (output pixel, tap) with the input pixel it reads.
struct Walk {
  explicit Walk(const ConvCall& call) : call(call), geometry(PadRank(call.spatial_rank, call.dims)) {
    group_in = call.in_channels / call.feature_groups;
    group_out = call.out_channels / (call.feature_groups * call.batch_groups);
    out_batch = call.batch / call.batch_groups;
  }

  // The flat input position for flat output position and tap, -1 for padding.
  int64_t Input(int64_t out, int64_t tap) const {
    Odometer o, t;
    o.Set(out, [&](int d) { return geometry.dims[d].out; });
    t.Set(tap, [&](int d) { return geometry.dims[d].window; });
    int64_t flat = 0;
    for (int d = 0; d < kLast; ++d) {
      const int64_t index = InputPosition(geometry.dims[d], o.at[d], t.at[d]);
      if (index < 0) return -1;
      flat = flat * geometry.dims[d].in + index;
    }
    return flat;
  }
  int64_t Weight(int64_t tap) const {
    Odometer t;
    t.Set(tap, [&](int d) { return geometry.dims[d].window; });
    int64_t flat = 0;
    for (int d = 0; d < kLast; ++d) flat = flat * geometry.dims[d].window + WeightTap(geometry.dims[d], t.at[d]);
    return flat;
  }
  // Batch member and first channel of the input for output channel `o` of output batch member `n`.
  int64_t InputBatch(int64_t n, int64_t o) const {
    return n + o / group_out % call.batch_groups * out_batch * (call.batch_groups > 1);
  }
  int64_t InputChannel(int64_t o) const { return call.feature_groups > 1 ? o / group_out * group_in : 0; }

  const ConvCall& call;
  Geometry geometry;
  int64_t group_in, group_out, out_batch;
};

template <typename In, typename Out>
void Forward(const Walk& walk, int64_t begin, int64_t end) {
  using Rule = PairRule<In, Out>;
  const ConvCall& call = walk.call;
  const In* x = static_cast<const In*>(call.x);
  const In* w = static_cast<const In*>(call.w);
  Out* y = static_cast<Out*>(call.y);
  std::vector<typename Rule::Sum> sums(call.out_channels);
  PieceLook look(static_cast<double>(walk.group_in * call.out_channels));
  for (int64_t pixel = begin; pixel < end; ++pixel) {
    const int64_t n = pixel / walk.geometry.out;
    std::fill(sums.begin(), sums.end(), typename Rule::Sum{});
    for (int64_t tap = 0; tap < walk.geometry.window; ++tap) {
      if (look.Ends()) return;
      const int64_t in = walk.Input(pixel % walk.geometry.out, tap);
      if (in < 0) continue;
      const In* weights = w + walk.Weight(tap) * walk.group_in * call.out_channels;
      for (int64_t o = 0; o < call.out_channels; ++o) {
        const In* source =
            x + (walk.InputBatch(n, o) * walk.geometry.in + in) * call.in_channels + walk.InputChannel(o);
        for (int64_t c = 0; c < walk.group_in; ++c) {
          sums[o] =
              Rule::Add(sums[o], Rule::Multiply(Rule::Load(source[c]), Rule::Load(weights[c * call.out_channels + o])));
        }
      }
    }
    for (int64_t o = 0; o < call.out_channels; ++o) y[pixel * call.out_channels + o] = ElementRule<Out>::Store(sums[o]);
    if (call.epilogue.run != nullptr) call.epilogue.run(call.epilogue.context, 0, pixel, 1, 0, call.out_channels);
  }
}

// Input batch members own their gradients: parallel over them.
template <typename In, typename Out>
void BackwardData(const Walk& walk, int64_t begin, int64_t end) {
  using Rule = PairRule<In, Out>;
  const ConvCall& call = walk.call;
  const In* w = static_cast<const In*>(call.w);
  const In* y = static_cast<const In*>(call.y);
  Out* x = static_cast<Out*>(const_cast<void*>(call.x));
  const int64_t row = walk.geometry.in * call.in_channels;
  std::vector<typename Rule::Sum> sums(row);
  PieceLook look(static_cast<double>(walk.group_in * call.out_channels));
  for (int64_t n = begin; n < end; ++n) {
    std::fill(sums.begin(), sums.end(), typename Rule::Sum{});
    for (int64_t out = 0; out < walk.geometry.out; ++out) {
      for (int64_t tap = 0; tap < walk.geometry.window; ++tap) {
        if (look.Ends()) return;
        const int64_t in = walk.Input(out, tap);
        if (in < 0) continue;
        const In* weights = w + walk.Weight(tap) * walk.group_in * call.out_channels;
        const In* gradient = y + (n * walk.geometry.out + out) * call.out_channels;
        for (int64_t o = 0; o < call.out_channels; ++o) {
          typename Rule::Sum* target = sums.data() + in * call.in_channels + walk.InputChannel(o);
          for (int64_t c = 0; c < walk.group_in; ++c) {
            target[c] = Rule::Add(
                target[c], Rule::Multiply(Rule::Load(gradient[o]), Rule::Load(weights[c * call.out_channels + o])));
          }
        }
      }
    }
    for (int64_t i = 0; i < row; ++i) x[n * row + i] = ElementRule<Out>::Store(sums[i]);
    if (call.epilogue.run != nullptr) {
      call.epilogue.run(call.epilogue.context, 0, n * walk.geometry.in, walk.geometry.in, 0, call.in_channels);
    }
  }
}

// Taps own their weights: parallel over them.
template <typename In, typename Out>
void BackwardWeights(const Walk& walk, int64_t begin, int64_t end) {
  using Rule = PairRule<In, Out>;
  const ConvCall& call = walk.call;
  const In* x = static_cast<const In*>(call.x);
  const In* y = static_cast<const In*>(call.y);
  Out* w = static_cast<Out*>(const_cast<void*>(call.w));
  const int64_t block = walk.group_in * call.out_channels;
  std::vector<typename Rule::Sum> sums(block);
  PieceLook look(static_cast<double>(block));
  for (int64_t tap = begin; tap < end; ++tap) {
    std::fill(sums.begin(), sums.end(), typename Rule::Sum{});
    for (int64_t pixel = 0; pixel < call.batch * walk.geometry.out; ++pixel) {
      if (look.Ends()) return;
      const int64_t in = walk.Input(pixel % walk.geometry.out, tap);
      if (in < 0) continue;
      const In* source = x + (pixel / walk.geometry.out * walk.geometry.in + in) * call.in_channels;
      const In* gradient = y + pixel * call.out_channels;
      for (int64_t c = 0; c < walk.group_in; ++c) {
        for (int64_t o = 0; o < call.out_channels; ++o) {
          auto& sum = sums[c * call.out_channels + o];
          sum = Rule::Add(sum, Rule::Multiply(Rule::Load(source[walk.InputChannel(o) + c]), Rule::Load(gradient[o])));
        }
      }
    }
    const int64_t at = walk.Weight(tap) * block;
    for (int64_t i = 0; i < block; ++i) w[at + i] = ElementRule<Out>::Store(sums[i]);
    if (call.epilogue.run != nullptr) {
      call.epilogue.run(call.epilogue.context, 0, walk.Weight(tap) * walk.group_in, walk.group_in, 0,
                        call.out_channels);
    }
  }
}

absl::Status NoSuchTypes(const ConvCall& call) {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "the CPU backend has no convolution from ", NameOf(call.input),
                     " to ", NameOf(call.output));
}

bool HalfToFloat(const ConvCall& call) {
  return call.output == DType::kF32 && (call.input == DType::kBF16 || call.input == DType::kF16);
}

absl::Status NoBatchGroups() {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "the gradient of a convolution with batch groups is not a ",
                     "convolution of the same kind: rewrite it with feature groups");
}

#define WEFT_PLAIN_DIRECTION(direction, count)                                                                         \
  const Walk walk(call);                                                                                               \
  bool known = false;                                                                                                  \
  if (call.input == call.output) {                                                                                     \
    known = VisitElement(call.input, [&]<typename T>() {                                                               \
      pool.ParallelRanges(count, [&](int64_t begin, int64_t end, int) { direction<T, T>(walk, begin, end); });         \
    });                                                                                                                \
  } else if (HalfToFloat(call)) {                                                                                      \
    known = true;                                                                                                      \
    pool.ParallelRanges(count, [&](int64_t begin, int64_t end, int) {                                                  \
      call.input == DType::kBF16 ? direction<BF16, float>(walk, begin, end) : direction<F16, float>(walk, begin, end); \
    });                                                                                                                \
  } else if (SumsInI32(call.input) && call.output == DType::kI32) {                                                    \
    known = VisitElement(call.input, [&]<typename T>() {                                                               \
      if constexpr (std::is_integral_v<T> && sizeof(T) < 4) {                                                          \
        pool.ParallelRanges(count, [&](int64_t begin, int64_t end, int) { direction<T, int32_t>(walk, begin, end); }); \
      }                                                                                                                \
    });                                                                                                                \
  }                                                                                                                    \
  return known ? absl::OkStatus() : NoSuchTypes(call)

absl::Status PlainConv(const ConvCall& call, ThreadPool& pool) {
  WEFT_PLAIN_DIRECTION(Forward, walk.out_batch * walk.geometry.out);
}
absl::Status PlainConvBackwardData(const ConvCall& call, ThreadPool& pool) {
  if (call.batch_groups > 1) return NoBatchGroups();
  WEFT_PLAIN_DIRECTION(BackwardData, call.batch);
}
absl::Status PlainConvBackwardWeights(const ConvCall& call, ThreadPool& pool) {
  if (call.batch_groups > 1) return NoBatchGroups();
  WEFT_PLAIN_DIRECTION(BackwardWeights, walk.geometry.window);
}
#undef WEFT_PLAIN_DIRECTION

const char* Refuses(const Gathering& gathering) { return gathering.tiles ? "tiles serve the types" : nullptr; }
const char* RefusesGradient(const KernelGradient& gradient) {
  const bool nothing = kKernelGradientTiles.refuses(gradient) != nullptr;
  return gradient.tiles && !nothing ? "tiles serve the types" : nullptr;
}

absl::Status Run(const Gathering& gathering, KernelSet::State&, const Duty& duty) {
  if (duty.pool == nullptr) return absl::OkStatus();
  const ConvCall& call = gathering.call;
  return gathering.forward ? PlainConv(call, *duty.pool) : PlainConvBackwardData(call, *duty.pool);
}
absl::Status RunGradient(const KernelGradient& gradient, KernelSet::State&, const Duty& duty) {
  return duty.pool == nullptr ? absl::OkStatus() : PlainConvBackwardWeights(gradient.call, *duty.pool);
}

}  // namespace

constinit const GatherImplementation kGatherPlain = {.name = "conv plain", .refuses = Refuses, .run = Run};
constinit const KernelGradientImplementation kKernelGradientPlain = {"conv plain", RefusesGradient, RunGradient};

}  // namespace weft::cpu
