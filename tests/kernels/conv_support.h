// Convolutions of tests, what their definition multiplies, and all three directions against it in double.
#pragma once

#include <string>
#include <vector>

#include "src/backends/cpu/kernels/tiles/geometry.h"
#include "tests/kernels/kernels_support.h"

namespace weft::cpu {

inline SpatialDim Dim(int64_t in, int64_t window, int64_t stride = 1, int64_t low = 0, int64_t high = 0, int64_t lhs = 1,
               int64_t rhs = 1, bool reversed = false) {
  SpatialDim dim{in, window, 0, stride, low, high, lhs, rhs, reversed};
  dim.out = OutputSize(dim);
  return dim;
}

inline ConvCall Make(int64_t batch, int64_t in_channels, int64_t out_channels, std::vector<SpatialDim> dims, int64_t groups = 1) {
  ConvCall call;
  call.batch = batch;
  call.in_channels = in_channels;
  call.out_channels = out_channels;
  call.feature_groups = groups;
  call.spatial_rank = static_cast<int>(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) call.dims[d] = dims[d];
  return call;
}

inline std::vector<ConvCall> Cases() {
  return {
      Make(2, 1, 32, {Dim(9, 3), Dim(11, 3)}),
      Make(2, 32, 64, {Dim(8, 3), Dim(9, 3)}),
      Make(3, 5, 7, {Dim(7, 3, 1, 1, 1), Dim(8, 3, 1, 1, 1)}),
      Make(1, 3, 64, {Dim(19, 7, 2, 3, 3), Dim(20, 7, 2, 3, 3)}),
      Make(2, 16, 20, {Dim(9, 3, 2, 1, 0), Dim(10, 3, 2, 0, 1)}),
      Make(2, 8, 70, {Dim(6, 1, 2), Dim(7, 1, 2)}),
      Make(1, 6, 9, {Dim(12, 3, 1, 2, 2, 1, 2), Dim(12, 3, 1, 2, 2, 1, 2)}),
      Make(2, 4, 17, {Dim(5, 3, 1, 2, 2, 2), Dim(4, 4, 1, 2, 3, 3)}),
      Make(2, 4, 6, {Dim(7, 3, 2, 1, 1, 3, 2), Dim(8, 2, 3, 0, 1, 2)}),
      Make(1, 3, 5, {Dim(8, 3, 1, -1, -2), Dim(9, 2, 1, 1, -3)}),
      Make(1, 3, 5, {Dim(8, 3, 1, 1, 1, 1, 1, true), Dim(9, 2, 1, 0, 0, 1, 1, true)}),
      Make(2, 12, 18, {Dim(6, 3, 1, 1, 1), Dim(6, 3, 1, 1, 1)}, 3),
      Make(2, 6, 6, {Dim(6, 3, 1, 1, 1), Dim(6, 3, 1, 1, 1)}, 6),
      Make(2, 5, 33, {Dim(20, 5, 2, 2, 2)}),
      Make(1, 3, 4, {Dim(4, 2), Dim(5, 3, 1, 1, 1), Dim(6, 3, 2, 1, 1)}),
      Make(1, 600, 6, {Dim(3, 2), Dim(3, 3, 1, 1, 1)}),
      Make(2, 3, 4, {Dim(2, 1, 1, 4, 4), Dim(2, 3, 1, 5, 5)}),
      Make(9, 1, 4, {Dim(30, 3), Dim(30, 3)}),
      // Kernels larger than the cache: channels in blocks, single taps in blocks, chunks of panels, groups of tiles.
      Make(1, 4700, 300, {Dim(2, 1), Dim(3, 1)}),
      Make(1, 520, 400, {Dim(150, 1)}),
      Make(2, 300, 260, {Dim(3, 3, 1, 1, 1), Dim(3, 3, 1, 1, 1)}),
      Make(1, 800, 70, {Dim(4, 3, 1, 1, 1), Dim(3, 3, 1, 1, 1)}),
      Make(1, 530, 90, {Dim(5, 2, 1, 1, 1, 2), Dim(4, 2, 1, 1, 1, 2)}),
      Make(2, 6, 40, {Dim(4, 1), Dim(5, 1), Dim(3, 1)}),  // lines joined, all of them and the last
      Make(2, 6, 10, {Dim(4, 3, 1, 1, 1), Dim(5, 1), Dim(3, 1)}),
      // One channel: tiles run along the pixels, of the input with its padding and of the output's gradient.
      Make(2, 1, 20, {Dim(7, 3, 1, 1, 1), Dim(13, 3, 1, 1, 1)}),
      Make(2, 1, 33, {Dim(9, 1), Dim(8, 1)}),
      Make(1, 7, 1, {Dim(8, 3, 1, 2, 2), Dim(9, 3, 1, 2, 2)}),
      // Transposed: every window of its own, windows that overlap, and ones with gaps.
      Make(2, 12, 8, {Dim(6, 2, 1, 1, 1, 2), Dim(7, 2, 1, 1, 1, 2)}),
      Make(2, 5, 9, {Dim(6, 4, 1, 2, 3, 2), Dim(7, 3, 1, 2, 1, 2)}),
      Make(2, 20, 16, {Dim(5, 2, 1, 1, 2, 3), Dim(4, 3, 1, 4, 5, 3, 2)}, 2),
      // Lines that narrower panels make tiles of.
      Make(2, 9, 200, {Dim(7, 3, 1, 1, 1), Dim(7, 3, 1, 1, 1)}),
      Make(1, 6, 60, {Dim(9, 3, 2, 1, 1), Dim(16, 3, 2, 1, 1)}),
      // Lines whose first and last pixels are computed apart where tiles end results; one block of K, two, and three, the first
      // or last of which is all padding for some.
      Make(2, 20, 70, {Dim(5, 3, 1, 1, 1), Dim(14, 3, 1, 1, 1)}),
      Make(1, 300, 50, {Dim(7, 3, 1, 1, 1), Dim(7, 3, 1, 1, 1)}),
      Make(2, 400, 20, {Dim(2, 3, 1, 1, 1), Dim(9, 3, 1, 1, 1)}),
      Make(2, 8, 40, {Dim(7, 3, 1, 1, 1), Dim(23, 3, 2, 1, 1)}),
      Make(2, 8, 40, {Dim(6, 3, 1, 1, 1), Dim(12, 5, 1, 2, 2)}),
      Make(2, 8, 40, {Dim(6, 1), Dim(12, 3, 1, 0, 1)}),
      // Few channels: padded lines come several at a time, tiles of several members together, panels apart; windows that reach
      // far, and ones with gaps between them.
      Make(2, 3, 40, {Dim(45, 3, 2, 1, 1), Dim(48, 3, 2, 1, 1)}),
      Make(3, 3, 20, {Dim(37, 7, 2, 3, 3), Dim(12, 7, 2, 3, 3)}),
      Make(7, 2, 9, {Dim(7, 3, 1, 1, 1), Dim(3, 3, 1, 1, 1)}),
      Make(2, 1, 20, {Dim(40, 3, 1, 1, 1), Dim(13, 3, 1, 1, 1)}),
      Make(1, 3, 300, {Dim(21, 3, 1, 1, 1), Dim(7, 3, 1, 1, 1)}),
      Make(2, 3, 5, {Dim(40, 5, 1, 4, 4, 1, 2), Dim(10, 3, 1, 1, 1)}),
      Make(2, 4, 5, {Dim(90, 3, 5, 1, 1), Dim(10, 3, 1, 1, 1)}),
      Make(20, 3, 8, {Dim(2, 3, 1, 1, 1), Dim(1, 3, 1, 1, 1)}),
      // Channels that fill steps of tiles (jit/isa.h), which read a padded copy in place: groups, gaps between taps, a kernel turned
      // round, a line, a room, and two blocks of K.
      Make(2, 64, 40, {Dim(7, 3, 1, 1, 1), Dim(9, 3, 1, 1, 1)}),
      Make(2, 64, 66, {Dim(9, 3, 1, 2, 0), Dim(6, 2, 1, 0, 1)}, 2),
      Make(1, 32, 33, {Dim(9, 3, 1, 2, 2, 1, 2), Dim(11, 2, 1, 3, 3, 1, 3)}),
      Make(2, 32, 32, {Dim(40, 3, 1, 1, 1, 1, 1, true)}),
      Make(1, 32, 16, {Dim(4, 2, 1, 1, 0), Dim(5, 3, 1, 1, 1), Dim(6, 3, 1, 1, 1)}),
      Make(1, 608, 33, {Dim(5, 3, 1, 1, 1), Dim(9, 3, 1, 1, 1)}),
      // Images without a pixel, with padding around them and without.
      Make(1, 2, 33, {Dim(3, 3, 1, 1, 1), Dim(0, 1)}),
      Make(1, 2, 33, {Dim(3, 3, 1, 1, 1), Dim(0, 1, 1, 1, 1)}),
  };
}

inline std::string Words(const ConvCall& call) {
  std::string text = "n" + std::to_string(call.batch) + " c" + std::to_string(call.in_channels) + "->" +
                     std::to_string(call.out_channels) + " g" + std::to_string(call.feature_groups);
  for (int d = 0; d < call.spatial_rank; ++d) {
    const SpatialDim& dim = call.dims[d];
    for (int64_t v : {dim.in, dim.window, dim.out, dim.stride, dim.pad_lo, dim.pad_hi, dim.lhs_dilation, dim.rhs_dilation}) {
      text += (text.back() == ' ' ? "" : " ") + std::to_string(v);
    }
    text += ";";
  }
  return text;
}

// Groups of few channels (vectorised across them) and of many (on tiles), over every kind of window; channel counts that
// no vector divides.
inline std::vector<ConvCall> GroupedCases() {
  const std::vector<std::vector<SpatialDim>> windows = {
      {Dim(5, 3, 1, 1, 1), Dim(23, 3, 1, 1, 1)},
      {Dim(7, 3, 2, 1, 0), Dim(8, 5, 2, 2, 1)},
      {Dim(5, 2, 3), Dim(9, 2, 3, 0, 1)},
      {Dim(6, 3, 1, 2, 2, 1, 2), Dim(7, 3, 2, 3, 1, 1, 3)},
      {Dim(4, 3, 1, 2, 1, 2), Dim(5, 3, 2, 1, 2, 3, 2)},
      {Dim(6, 3, 1, -1, 1), Dim(9, 2, 1, 2, -3)},
      {Dim(4, 3, 1, 1, 1, 1, 1, true), Dim(5, 3, 2, 1, 1, 1, 1, true)},
      {Dim(2, 2, 1, 5, 4), Dim(3, 3, 2, 6, 7)},
      {Dim(1, 3, 1, 1, 1), Dim(1, 3, 1, 1, 1)},
      {Dim(1, 1), Dim(1, 1)},
      {Dim(0, 2, 1, 2, 2), Dim(3, 2)},
      {Dim(2, 3), Dim(4, 3)},  // does not fit: no output
      {Dim(17, 4, 1, 3, 0)},
      {Dim(3, 2), Dim(4, 3, 1, 1, 1), Dim(5, 3, 2, 1, 1)},
      {Dim(2, 2, 1, 1, 0), Dim(3, 2), Dim(3, 3, 1, 1, 1), Dim(4, 2)},
  };
  const struct {
    int64_t groups, in, out;  // channels a group
  } channels[] = {{2, 1, 1},  {5, 1, 1},  {16, 1, 1}, {37, 1, 1}, {9, 1, 2}, {19, 1, 3}, {3, 1, 17}, {21, 2, 1},
                  {7, 4, 1},  {3, 20, 1}, {6, 2, 2},  {7, 3, 3},  {5, 4, 4}, {4, 3, 5},  {2, 7, 8},  {3, 8, 8},
                  {2, 16, 16}, {3, 9, 20}};
  std::vector<ConvCall> cases;
  for (size_t c = 0; c < std::size(channels); ++c) {
    for (size_t w = 0; w < windows.size(); ++w) {
      if (c != 3 && c != 11 && (c + w) % 3 != 0) continue;  // every window with each of two, a third of the rest
      const auto& [groups, in, out] = channels[c];
      cases.push_back(Make(1 + static_cast<int64_t>((c + w) % 2), groups * in, groups * out, windows[w], groups));
    }
  }
  cases.push_back(Make(0, 6, 6, windows[0], 6));
  // Enough for several threads, for pieces of lines, and for parts of the kernel's gradient.
  cases.push_back(Make(3, 37, 37, {Dim(20, 3, 1, 1, 1), Dim(21, 3, 1, 1, 1)}, 37));
  cases.push_back(Make(3, 24, 24, {Dim(19, 3, 1, 1, 1), Dim(20, 3, 1, 1, 1)}, 6));
  cases.push_back(Make(1, 39, 39, {Dim(2500, 4, 1, 3, 0)}, 39));
  cases.push_back(Make(1, 39, 78, {Dim(2500, 3, 2, 1, 1)}, 39));
  return cases;
}

// 3x3 windows on Winograd's tiles, whatever is faster: edges that cut tiles, padding of every kind, channels that no vector divides.
inline std::vector<ConvCall> WinogradCases() {
  std::vector<ConvCall> cases;
  constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 33}, kChannels[] = {16, 17, 32, 41, 70};
  for (size_t i = 0; i < 20; ++i) {
    const int64_t height = kSizes[i % 10], width = kSizes[(i * 3 + i / 10 * 2 + 1) % 10];
    const int64_t low = static_cast<int64_t>(i % 3), high = static_cast<int64_t>(i / 2 % 3);
    const SpatialDim dims[] = {Dim(height, 3, 1, low, high, 1, 1, i % 5 == 4), Dim(width, 3, 1, high, low, 1, 1, i % 7 == 6)};
    cases.push_back(Make(i % 4 == 3 ? 3 : 1, kChannels[i % 5], kChannels[i / 2 % 5], {dims[0], dims[1]}));
  }
  cases.push_back(Make(1, 20, 24, {Dim(9, 3, 1, -1, -2), Dim(11, 3, 1, 2, -3)}));
  cases.push_back(Make(2, 18, 16, {Dim(3, 1), Dim(5, 3, 1, 1, 1), Dim(6, 3, 1, 1, 1)}));  // images along another dimension
  cases.push_back(Make(1, 3, 140, {Dim(14, 3, 1, 1, 1), Dim(13, 3, 1, 1, 1)}));
  cases.push_back(Make(3, 33, 65, {Dim(28, 3, 1, 1, 1), Dim(30, 3, 1, 1, 1)}));  // more than one block a thread
  for (ConvCall& call : cases) call.winograd = UseWinograd::kWhereItFits;
  return cases;
}

// An element of w: of a stored tap, a group's input channel, and an output channel.
inline int64_t WeightAt(const ConvCall& call, int64_t stored_tap, int64_t ci, int64_t co) {
  const int64_t depth = call.in_channels / call.feature_groups;
  if (!call.w_out_first) return (stored_tap * depth + ci) * call.out_channels + co;
  return (co * depth + ci) * PadRank(call.spatial_rank, call.dims).window + stored_tap;
}

// Calls that may be products with columns of pixels, as such, whatever is faster.
inline std::vector<ConvCall> ByColumns(std::vector<ConvCall> calls) {
  std::erase_if(calls, [](const ConvCall& call) {
    const Geometry g = PadRank(call.spatial_rank, call.dims);
    return call.feature_groups > 1 || call.batch * g.out * g.window == 0;
  });
  for (ConvCall& call : calls) {
    call.columns = call.w_out_first = true;
    call.winograd = UseWinograd::kNever;
  }
  return calls;
}

// Every (x, w, y) index triple that the definition multiplies.
template <typename Visit>
void ForEachTerm(const ConvCall& call, Visit visit) {
  const Geometry g = PadRank(call.spatial_rank, call.dims);
  const int64_t group_in = call.in_channels / call.feature_groups, group_out = call.out_channels / call.feature_groups;
  for (int64_t out = 0; out < g.out; ++out) {
    for (int64_t tap = 0; tap < g.window; ++tap) {
      Odometer o, t;
      o.Set(out, [&](int d) { return g.dims[d].out; });
      t.Set(tap, [&](int d) { return g.dims[d].window; });
      int64_t in = 0, stored = 0;
      bool inside = true;
      for (int d = 0; d < kMaxSpatialDims && inside; ++d) {
        const SpatialDim& dim = g.dims[d];
        const int64_t at = o.at[d] * dim.stride + t.at[d] * dim.rhs_dilation - dim.pad_lo;
        inside = at >= 0 && at % dim.lhs_dilation == 0 && at / dim.lhs_dilation < dim.in;
        in = in * dim.in + at / dim.lhs_dilation;
        stored = stored * dim.window + (dim.reversed ? dim.window - 1 - t.at[d] : t.at[d]);
      }
      if (!inside) continue;
      for (int64_t n = 0; n < call.batch; ++n) {
        for (int64_t co = 0; co < call.out_channels; ++co) {
          for (int64_t ci = 0; ci < group_in; ++ci) {
            visit((n * g.in + in) * call.in_channels + co / group_out * group_in + ci,
                  WeightAt(call, stored, ci, co), (n * g.out + out) * call.out_channels + co);
          }
        }
      }
    }
  }
}

template <typename T>
double Rounded(double value) {
  return static_cast<double>(ElementRule<T>::Load(ElementRule<T>::Store(static_cast<typename ElementRule<T>::Sum>(value))));
}

// Tolerance 0: the sum, rounded once. (Sums of eighths times eighths are exact in f32.)
template <typename In, typename Out>
void Check(KernelSet& kernels, ConvCall call, DType in, DType out, ThreadPool& one, ThreadPool& two, double tolerance) {
  SCOPED_TRACE(Words(call));
  call.input = in;
  call.output = out;
  const Geometry g = PadRank(call.spatial_rank, call.dims);
  std::mt19937 random(11);
  const int64_t sizes[3] = {call.batch * g.in * call.in_channels,
                            g.window * (call.in_channels / call.feature_groups) * call.out_channels,
                            call.batch * g.out * call.out_channels};
  Operand<In> x(sizes[0]), w(sizes[1]), y(sizes[2]);
  x.Randomize(random);
  w.Randomize(random);
  y.Randomize(random);
  for (int written = 0; written < 3; ++written) {  // 0: gradient of x, 1: of w, 2: forward
    SCOPED_TRACE(written == 0 ? "backward data" : written == 1 ? "backward weights" : "forward");
    std::vector<double> want(sizes[written]);
    ForEachTerm(call, [&](int64_t xi, int64_t wi, int64_t yi) {
      if (written == 0) want[xi] += w.At(wi) * y.At(yi);
      if (written == 1) want[wi] += x.At(xi) * y.At(yi);
      if (written == 2) want[yi] += x.At(xi) * w.At(wi);
    });
    Operand<Out> first(sizes[written]), second(sizes[written]);
    for (ThreadPool* pool : {&one, &two, &Five()}) {
      Operand<Out>& result = pool == &one ? first : second;
      result.Poison();
      call.x = written == 0 ? static_cast<void*>(result.data()) : x.data();
      call.w = written == 1 ? static_cast<void*>(result.data()) : w.data();
      call.y = written == 2 ? static_cast<void*>(result.data()) : y.data();
      const absl::Status status = Reserved(
          *pool,
          [&](int threads, ScratchNeeds& needs) {
            return written == 0   ? kernels.PrepareConvBackwardData(call, threads, needs)
                   : written == 1 ? kernels.PrepareConvBackwardWeights(call, threads, needs)
                                  : kernels.PrepareConv(call, threads, needs);
          },
          [&](ThreadPool& p) {
            return written == 0   ? kernels.ConvBackwardData(call, p)
                   : written == 1 ? kernels.ConvBackwardWeights(call, p)
                                  : kernels.Conv(call, p);
          });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(pool == &one || first.SameBits(second)) << pool->threads() << " threads give other bits";
    }
    EXPECT_TRUE(first.GuardsHold());
    for (int64_t i = 0; i < sizes[written]; ++i) {
      const double expected = tolerance > 0 ? want[i] : Rounded<Out>(want[i]);
      ASSERT_NEAR(first.At(i), expected, tolerance * (std::abs(want[i]) + 1)) << "at " << i;
    }
  }
}

}  // namespace weft::cpu
