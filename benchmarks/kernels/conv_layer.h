// A convolution layer and its operands, for the benchmarks that link the CPU kernels.
#pragma once

#include <algorithm>
#include <vector>

#include "src/backends/cpu/kernels/kernels.h"

namespace bench {

// A square window with the same padding on both sides. `spread` dilates the input, as a transposed convolution does.
struct Layer {
  Layer(int64_t batch, int64_t size, int64_t in, int64_t out, int64_t window, int64_t stride, int64_t pad, int64_t groups,
        int64_t spread = 1) {
    call.batch = batch;
    call.in_channels = in;
    call.out_channels = out;
    call.feature_groups = groups;
    for (int d = 0; d < 2; ++d) {
      call.dims[d] = {size, window, 0, stride, pad, pad, spread};
      call.dims[d].out = weft::cpu::OutputSize(call.dims[d]);
    }
    const int64_t pixels = batch * call.dims[0].out * call.dims[1].out, kernel = window * window * (in / groups) * out;
    x = Filled(batch * size * size * in, 0.5f);
    w = Filled(kernel, 0.25f);
    y = Filled(pixels * out, 0.125f);
    call.x = x.data();
    call.w = w.data();
    call.y = y.data();
    // A tap meets one in spread² of a spread input's pixels.
    flops = 2.0 * static_cast<double>(pixels * kernel) / static_cast<double>(spread * spread);
  }
  // Aligned as a program's buffers are: vectors that cross cache lines take depthwise layers twice the time.
  struct alignas(64) Line {
    float values[16];
  };
  static std::vector<Line> Filled(int64_t count, float value) {
    Line line;
    std::fill_n(line.values, 16, value);
    return std::vector<Line>(static_cast<size_t>(count / 16 + 1), line);
  }
  weft::cpu::ConvCall call;
  double flops = 0;
  std::vector<Line> x, w, y;
};

}  // namespace bench
