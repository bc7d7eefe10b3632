// Convolutions with few channels a group (depthwise above all), vectorised across channels: every lane is an output
// channel and has weights of its own. These are the inner loops, one set per instruction set; conv_depthwise.cc drives them.
#pragma once

#include <cstdint>

#include "src/backends/cpu/jit/isa.h"
#include "src/backends/cpu/kernels/kernels.h"
#include "src/backends/cpu/kernels/tiles/halves.h"
#include "src/runtime/dtype.h"

namespace weft::cpu {

// `pixels` neighbouring output pixels that see the same taps. Pointers are to the first pixel, steps count elements.
template <typename T>
struct ChannelRun {
  const T* const* x = nullptr;  // per tap
  T* const* w = nullptr;        // per tap: one weight a channel
  int64_t taps = 0;
  T* y = nullptr;
  int64_t pixels = 0, x_step = 0, y_step = 0, channels = 0;
  // For `gather` in f32: x really is bf16, and its steps count bf16.
  bool halves = false;
  // For `gather`: taps come in rows of three that are one pixel apart, which is x_step over this; 0 if they do not.
  int64_t stride = 0;
  // For `gather_pairs`, in rows of three: the first pixel's first tap of each row is padding, the last one's last.
  bool lacks_first = false, lacks_last = false;
  // Instead of y, of `gather` in f32: where sums go as bf16 or f16.
  uint16_t* narrow = nullptr;
  DType narrow_to = DType::kBF16;
  // Likewise: what becomes of the sums, if kAffine; `to` is unused. A NaN in it has no low digits where y is bf16.
  Ending ending;
};

// Pixels of `from` channels to pixels of `count` channels, out[i] = in[index[i]].
template <typename T>
struct ChannelSpread {
  const T* in = nullptr;
  T* out = nullptr;
  int64_t pixels = 0, from = 0, count = 0;
  const int32_t* index = nullptr;
};

struct ChannelKernels {
  const HalvesKernels* halves = nullptr;  // of the same instruction set
  template <typename T>
  struct Of {
    void (*gather)(const ChannelRun<T>&) = nullptr;   // y = sum over taps of x[tap] * w[tap]
    void (*weights)(const ChannelRun<T>&) = nullptr;  // w[tap] += sum over pixels of x[tap] * y
    void (*spread)(const ChannelSpread<T>&) = nullptr;
  };
  Of<float> f32;
  Of<double> f64;
  // As f32.gather does, of bf16 from bf16 with an ending, if there are so many channels and the kernel's rows lie as
  // `pair_row` widens them: each takes whole `pairs`. Null where that is not quicker.
  void (*pair_row)(const uint16_t* row, int64_t channels, float* to) = nullptr;
  void (*gather_pairs)(const ChannelRun<float>&) = nullptr;
  int64_t pairs = 0;
};
// As gather_pairs of kChannelsAvx512, where the processor converts to bf16 and takes denormals for zeros.
void GatherPairsBF16(const ChannelRun<float>& run);
extern const ChannelKernels kChannelsPortable, kChannelsAvx2, kChannelsAvx512;
// The loops for a CpuTarget's isa.
const ChannelKernels& ChannelKernelsOf(Isa vectors);

}  // namespace weft::cpu
