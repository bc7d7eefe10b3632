// Convolutions in all three directions against sums in double: strides, padding, both dilations, reversal, groups,
// ranks one to three, types, threads and instruction sets.
#include <bit>
#include <limits>
#include <tuple>
#include <utility>

#include "src/backends/cpu/kernels/amx_driver.h"
#include "src/backends/cpu/kernels/conv_geometry.h"
#include "tests/kernels/kernels_support.h"

namespace weft::cpu {
namespace {

SpatialDim Dim(int64_t in, int64_t window, int64_t stride = 1, int64_t low = 0, int64_t high = 0, int64_t lhs = 1,
               int64_t rhs = 1, bool reversed = false) {
  SpatialDim dim{in, window, 0, stride, low, high, lhs, rhs, reversed};
  dim.out = OutputSize(dim);
  return dim;
}

ConvCall Make(int64_t batch, int64_t in_channels, int64_t out_channels, std::vector<SpatialDim> dims, int64_t groups = 1) {
  ConvCall call;
  call.batch = batch;
  call.in_channels = in_channels;
  call.out_channels = out_channels;
  call.feature_groups = groups;
  call.spatial_rank = static_cast<int>(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) call.dims[d] = dims[d];
  return call;
}

std::vector<ConvCall> Cases() {
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
      // Images without a pixel, with padding around them and without.
      Make(1, 2, 33, {Dim(3, 3, 1, 1, 1), Dim(0, 1)}),
      Make(1, 2, 33, {Dim(3, 3, 1, 1, 1), Dim(0, 1, 1, 1, 1)}),
  };
}

std::string Words(const ConvCall& call) {
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
std::vector<ConvCall> GroupedCases() {
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
std::vector<ConvCall> WinogradCases() {
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
                  (stored * group_in + ci) * call.out_channels + co, (n * g.out + out) * call.out_channels + co);
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

class Conv : public EveryIsa {};

TEST_P(Conv, AgreesWithItsDefinitionInF32) {
  for (const ConvCall& call : Cases()) Check<float, float>(*kernels_, call, DType::kF32, DType::kF32, one_, two_, 1e-6);
}

TEST_P(Conv, AgreesWithItsDefinitionOnWinogradsTiles) {
  for (const ConvCall& call : WinogradCases()) {
    Check<float, float>(*kernels_, call, DType::kF32, DType::kF32, one_, two_, 1e-4);
  }
}

// Of normally distributed factors: the root of the mean of squared errors, divided by that of the results, and the largest error.
struct Errors {
  double mean = 0, most = 0;
};
Errors ErrorsOf(KernelSet& kernels, ConvCall call, UseWinograd use, ThreadPool& pool, std::vector<float>* bits = nullptr) {
  const Geometry g = PadRank(call.spatial_rank, call.dims);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(call.batch * g.in * call.in_channels), y(call.batch * g.out * call.out_channels);
  std::vector<float> w(g.window * call.in_channels / call.feature_groups * call.out_channels);
  for (float& value : x) value = std::max(0.0f, normal(random));
  for (float& value : w) value = normal(random);
  call.x = x.data();
  call.w = w.data();
  call.y = y.data();
  call.winograd = use;
  EXPECT_TRUE(kernels.Conv(call, pool).ok());
  if (bits != nullptr) {
    *bits = y;
    return {};
  }
  std::vector<double> want(y.size());
  ForEachTerm(call, [&](int64_t xi, int64_t wi, int64_t yi) { want[yi] += double{x[xi]} * double{w[wi]}; });
  double squares = 0, errors = 0, most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(y[i] - want[i]);
    squares += want[i] * want[i];
    errors += error * error;
    most = std::max(most, error);
  }
  return {std::sqrt(errors / squares), most / std::sqrt(squares / static_cast<double>(want.size()))};
}

// What docs/performance.md says of it.
TEST_P(Conv, ErrsLittleMoreOnWinogradsTiles) {
  const ConvCall call = Make(1, 128, 32, {Dim(28, 3, 1, 1, 1), Dim(28, 3, 1, 1, 1)});
  const Errors direct = ErrorsOf(*kernels_, call, UseWinograd::kNever, two_);
  const Errors winograd = ErrorsOf(*kernels_, call, UseWinograd::kWhereItFits, two_);
  RecordProperty("direct", std::to_string(direct.mean * 1e9) + " " + std::to_string(direct.most * 1e9));
  RecordProperty("winograd", std::to_string(winograd.mean * 1e9) + " " + std::to_string(winograd.most * 1e9));
  EXPECT_LT(winograd.mean, 4.5 * direct.mean);
  EXPECT_LT(winograd.mean, 1.3e-6);
  EXPECT_LT(winograd.most, 2e-5);
}

// By the shape alone, and nothing changes for who does not ask.
TEST_P(Conv, TakesWinogradsTilesWhereTheyAreFaster) {
  const auto same = [&](const ConvCall& call) {
    SCOPED_TRACE(Words(call));
    std::vector<float> direct, winograd;
    ErrorsOf(*kernels_, call, UseWinograd::kNever, two_, &direct);
    ErrorsOf(*kernels_, call, UseWinograd::kWhereFaster, two_, &winograd);
    return std::memcmp(direct.data(), winograd.data(), direct.size() * 4) == 0;
  };
  EXPECT_EQ(ConvCall().winograd, UseWinograd::kNever);
  const SpatialDim dim = Dim(14, 3, 1, 1, 1);
  EXPECT_FALSE(same(Make(1, 16, 16, {dim, dim})));
  EXPECT_FALSE(same(Make(2, 30, 17, {dim, Dim(18, 3)})));
  EXPECT_TRUE(same(Make(1, 15, 16, {dim, dim})));
  EXPECT_TRUE(same(Make(1, 16, 15, {dim, dim})));
  EXPECT_TRUE(same(Make(1, 16, 16, {dim, Dim(12, 3, 1, 1, 1)})));                // few tiles
  EXPECT_TRUE(same(Make(1, 16, 16, {Dim(1, 3, 1, 1, 1), Dim(90, 3, 1, 1, 1)})));  // mostly empty ones
  EXPECT_TRUE(same(Make(1, 16, 16, {dim, Dim(30, 3, 2, 1, 1)})));
  EXPECT_TRUE(same(Make(1, 16, 16, {dim, Dim(30, 3, 1, 1, 1, 1, 2)})));
  EXPECT_TRUE(same(Make(1, 16, 16, {dim, Dim(14, 3, 1, 1, 1, 2)})));
  EXPECT_TRUE(same(Make(1, 16, 16, {dim, Dim(30, 5, 1, 1, 1)})));
  EXPECT_TRUE(same(Make(1, 16, 16, {Dim(300, 3)})));
  EXPECT_TRUE(same(Make(1, 64, 64, {dim, dim}, 2)));
  // However the kernel lies: the first has 16 tiles, which a gradient would not repay.
  for (const int64_t side : {14, 12}) {
    ConvCall call = Make(1, 16, 16, {Dim(side, 3, 1, 1, 1), Dim(side, 3, 1, 1, 1)});
    call.winograd = UseWinograd::kWhereFaster;
    const int64_t bytes = PackedBytesOfW(kernels_->target(), call);
    call.w_out_first = true;
    EXPECT_EQ(PackedBytesOfW(kernels_->target(), call), bytes) << side;
  }
}

TEST_P(Conv, KeepsKernelsTransformedForWinogradsTiles) {
  for (ConvCall call : WinogradCases()) {
    SCOPED_TRACE(Words(call));
    const Geometry g = PadRank(call.spatial_rank, call.dims);
    Operand<float> x(call.batch * g.in * call.in_channels), w(g.window * call.in_channels * call.out_channels);
    Operand<float> y(call.batch * g.out * call.out_channels), kept(y.size());
    std::mt19937 random(4);
    x.Randomize(random);
    w.Randomize(random);
    call.x = x.data();
    call.w = w.data();
    call.y = y.data();
    if (y.size() == 0) continue;
    ASSERT_TRUE(kernels_->Conv(call, two_).ok());
    const CpuTarget& target = kernels_->target();
    ConvCall direct = call;
    direct.winograd = UseWinograd::kNever;
    EXPECT_NE(PackedFormOfW(target, call), PackedFormOfW(target, direct));
    EXPECT_EQ(UnpackableW(target, call), 0);
    Operand<float> packed(PackedBytesOfW(target, call) / 4);
    ASSERT_TRUE(kernels_->PackW(call, packed.data(), two_).ok());
    EXPECT_TRUE(packed.GuardsHold());
    w.Poison();
    call.w = packed.data();
    call.w_packed = true;
    call.y = kept.data();
    ASSERT_TRUE(kernels_->Conv(call, Five()).ok());
    EXPECT_TRUE(y.SameBits(kept));
  }
}

TEST_P(Conv, AgreesWithItsDefinitionInF64) {
  const std::vector<ConvCall> cases = Cases();
  for (size_t i = 0; i < cases.size(); i += 3) {
    Check<double, double>(*kernels_, cases[i], DType::kF64, DType::kF64, one_, two_, 1e-14);
  }
}

TEST_P(Conv, AccumulatesBF16InF32) {
  for (const ConvCall& call : Cases()) {
    Check<BF16, float>(*kernels_, call, DType::kBF16, DType::kF32, one_, two_, 1e-6);
    Check<BF16, BF16>(*kernels_, call, DType::kBF16, DType::kBF16, one_, two_, 4e-3);
  }
}

// To nearest even, whatever the sums are: next to ties, tiny, infinite, NaN.
TEST_P(Conv, RoundsSumsToBF16OnceAndAsElsewhere) {
  for (ConvCall call : Cases()) {
    SCOPED_TRACE(Words(call));
    call.input = DType::kBF16;
    const Geometry g = PadRank(call.spatial_rank, call.dims);
    Operand<BF16> x(call.batch * g.in * call.in_channels), y(call.batch * g.out * call.out_channels);
    Operand<BF16> w(g.window * (call.in_channels / call.feature_groups) * call.out_channels);
    Operand<float> sums(y.size());
    std::mt19937 random(5);
    constexpr float kAwkward[] = {1, 1.0078125f, -3, 0x1p-8f, -0x1.02p-9f, 0x1p-120f, -0x1.8p-126f, 0x1p-60f, 0};
    for (int64_t i = 0; i < x.size(); ++i) x[i] = {NarrowBF16(kAwkward[random() % std::size(kAwkward)])};
    for (int64_t i = 0; i < w.size(); ++i) w[i] = {NarrowBF16(kAwkward[random() % std::size(kAwkward)])};
    if (x.size() > 0) x[x.size() / 2] = {0x7F80};
    if (x.size() > 0) x[x.size() - 1] = {0x7FC1};
    call.x = x.data();
    call.w = w.data();
    call.y = sums.data();
    call.output = DType::kF32;
    ASSERT_TRUE(kernels_->Conv(call, two_).ok());
    call.y = y.data();
    call.output = DType::kBF16;
    ASSERT_TRUE(kernels_->Conv(call, two_).ok());
    for (int64_t i = 0; i < y.size(); ++i) {
      if (std::isnan(sums[i])) {
        ASSERT_TRUE(std::isnan(y.At(i))) << "at " << i;
      } else {
        ASSERT_EQ(y[i].bits, NarrowBF16(sums[i])) << "at " << i << " of " << sums[i];
      }
    }
  }
}

TEST_P(Conv, ServesIntegersAndF16) {
  Check<int32_t, int32_t>(*kernels_, Cases()[2], DType::kI32, DType::kI32, one_, two_, 0);
  Check<F16, F16>(*kernels_, Cases()[4], DType::kF16, DType::kF16, one_, two_, 5e-4);
}

TEST_P(Conv, SumsIntegersInTheResultsType) {
  std::vector<ConvCall> cases = Cases();
  const std::vector<ConvCall> grouped = GroupedCases();
  cases.insert(cases.end(), grouped.begin(), grouped.end());
  for (size_t i = 0; i < cases.size(); ++i) {
    switch (i % 5) {
      case 0: Check<int8_t, int32_t>(*kernels_, cases[i], DType::kI8, DType::kI32, one_, two_, 0); break;
      case 1: Check<int16_t, int32_t>(*kernels_, cases[i], DType::kI16, DType::kI32, one_, two_, 0); break;
      case 2: Check<uint8_t, int32_t>(*kernels_, cases[i], DType::kU8, DType::kI32, one_, two_, 0); break;
      case 3: Check<int32_t, int32_t>(*kernels_, cases[i], DType::kI32, DType::kI32, one_, two_, 0); break;
      default: Check<int64_t, int64_t>(*kernels_, cases[i], DType::kI64, DType::kI64, one_, two_, 0);
    }
  }
}

TEST_P(Conv, SumsGroupsInF32AndF64) {
  for (const ConvCall& call : GroupedCases()) {
    Check<float, float>(*kernels_, call, DType::kF32, DType::kF32, one_, two_, 0);
    Check<double, double>(*kernels_, call, DType::kF64, DType::kF64, one_, two_, 0);
  }
}

TEST_P(Conv, SumsGroupsOfHalvesInF32AndRoundsOnce) {
  for (const ConvCall& call : GroupedCases()) {
    Check<BF16, BF16>(*kernels_, call, DType::kBF16, DType::kBF16, one_, two_, 0);
    Check<BF16, float>(*kernels_, call, DType::kBF16, DType::kF32, one_, two_, 0);
    Check<F16, F16>(*kernels_, call, DType::kF16, DType::kF16, one_, two_, 0);
    Check<F16, float>(*kernels_, call, DType::kF16, DType::kF32, one_, two_, 0);
  }
}

TEST_P(Conv, KeepsNaNAndInfinityOfHalvesInTheirChannel) {
  const uint16_t nan = 0x7FC1, infinity = 0x7F80;  // bf16
  ConvCall call = Make(1, 19, 19, {Dim(6, 1)}, 19);
  call.input = call.output = DType::kBF16;
  Operand<BF16> x(6 * 19), w(19), y(6 * 19);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = {i % 19 == 3 ? nan : i % 19 == 18 ? infinity : uint16_t{0x3F80}};
  for (int64_t i = 0; i < w.size(); ++i) w[i] = {0x4000};
  call.x = x.data();
  call.w = w.data();
  call.y = y.data();
  ASSERT_TRUE(kernels_->Conv(call, one_).ok());
  for (int64_t i = 0; i < y.size(); ++i) {
    if (i % 19 == 3) {
      EXPECT_TRUE(std::isnan(y.At(i)));
    } else {
      EXPECT_EQ(y.At(i), i % 19 == 18 ? INFINITY : 2) << "at " << i;
    }
  }
}

TEST_P(Conv, DealsBatchGroupsToOutputChannels) {
  std::mt19937 random(2);
  ConvCall call = Make(4, 3, 6, {Dim(5, 3), Dim(5, 3)});
  call.batch_groups = 2;
  Operand<float> x(4 * 25 * 3), w(9 * 3 * 6), y(2 * 9 * 6);
  x.Randomize(random);
  w.Randomize(random);
  call.x = x.data();
  call.w = w.data();
  call.y = y.data();
  ASSERT_TRUE(kernels_->Conv(call, two_).ok());
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t o = 0; o < 6; ++o) {
      double want = 0;
      for (int64_t t = 0; t < 9; ++t) {
        for (int64_t c = 0; c < 3; ++c) want += x[(((n + o / 3 * 2) * 5 + t / 3) * 5 + t % 3) * 3 + c] * w[(t * 3 + c) * 6 + o];
      }
      EXPECT_NEAR(y[n * 9 * 6 + o], want, 1e-5);
    }
  }
}

// An Ending's arithmetic as the loop after a convolution has it: what the convolution calls where it does not do it.
template <typename T>
struct EndingLoop {
  const ConvCall* call;
  std::atomic<int64_t> rows{0};

  static float Rounded(float x) {
    if constexpr (sizeof(T) == 2) return WidenBF16(NarrowBF16(x));
    return x;
  }
  static float Load(const T& x) { return ElementRule<T>::Load(x); }
  float Of(const T& sum, int64_t column, const T* added) const {
    const Ending& e = call->ending;
    volatile float product = Load(sum) * e.factor[column];  // and then a sum: two roundings
    float x = Rounded(product + e.summand[column]);
    if (added != nullptr) x = Rounded(x + Load(*added));
    x = x <= e.least ? e.least : x;
    return x >= e.most ? e.most : x;
  }
  static void Run(void* user, int64_t, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
    auto* self = static_cast<EndingLoop*>(user);
    const ConvCall& call = *self->call;
    self->rows += rows;
    for (int64_t r = row0; r < row0 + rows; ++r) {
      for (int64_t c = col0; c < col0 + cols; ++c) {
        const int64_t i = r * call.out_channels + c;
        const T* added = call.ending.added == nullptr ? nullptr : static_cast<const T*>(call.ending.added) + i;
        const float x = self->Of(static_cast<const T*>(call.y)[i], c, added);
        static_cast<T*>(call.ending.to)[i] = ElementRule<T>::Store(x);
      }
    }
  }
};

// What results are bounded by, none first.
constexpr float kEndless = std::numeric_limits<float>::infinity();
constexpr std::pair<float, float> kBounds[] = {{-kEndless, kEndless}, {0, 6}, {0, kEndless}, {-kEndless, 6}};

// What an ending's operands are: numbers that are awkward to round, one of those for a thousand plain ones, or such that sums
// are denormal or nearly so, beside plain summands and beside none.
enum class Numbers { kAwkward, kCalm, kTiny, kTinyAlone };

// With and without an ending of its own a convolution has the same bits, for sums that round badly, are tiny or no numbers.
// `looped`: whether the loop ran.
template <typename T>
void CheckEnding(KernelSet& kernels, ConvCall call, EndingKind kind, int bounds, bool nan, ThreadPool& pool,
                 bool* looped, Numbers numbers = Numbers::kAwkward) {
  SCOPED_TRACE(Words(call));
  const bool half = sizeof(T) == 2;
  call.input = call.output = half ? DType::kBF16 : DType::kF32;
  const Geometry g = PadRank(call.spatial_rank, call.dims);
  const int64_t count = call.batch * g.out * call.out_channels;
  Operand<T> x(call.batch * g.in * call.in_channels), y(count), added(count), want(count), to(count);
  Operand<T> w(g.window * (call.in_channels / call.feature_groups) * call.out_channels);
  Operand<float> factor(call.out_channels), summand(call.out_channels);
  std::mt19937 random(5);
  constexpr float kAwkward[] = {1, 1.0078125f, -3, 0x1p-8f, -0x1.02p-9f, 0x1p-120f, -0x1.8p-126f, 0x1p-60f, 0,
                                 -0.0f, 40};
  constexpr float kTiny[] = {0x1p-120f, -0x1.8p-126f, 0x1.02p-124f, -0x1p-128f, 0}, kSmall[] = {0x1p-8f, -0x1.02p-9f, 1};
  const bool tiny = numbers == Numbers::kTiny || numbers == Numbers::kTinyAlone;
  const auto one_in = [&](unsigned count) { return !tiny && random() % (numbers == Numbers::kCalm ? 1000 : count) == 0; };
  const auto plain = [&] { return static_cast<float>(random() % 1000) / 333.5f - 1; };
  for (Operand<T>* operand : {&x, &w, &added}) {
    for (int64_t i = 0; i < operand->size(); ++i) {
      const float small = operand == &w ? kSmall[random() % std::size(kSmall)] : kTiny[random() % std::size(kTiny)];
      (*operand)[i] = ElementRule<T>::Store(tiny ? small : one_in(1) ? kAwkward[random() % std::size(kAwkward)] : plain());
    }
  }
  for (int64_t i = 0; i < factor.size(); ++i) {
    factor[i] = one_in(4) ? 0x1.8p-124f : plain();
    summand[i] = numbers == Numbers::kTinyAlone || one_in(4) ? 0 : plain();
  }
  if (x.size() > 1) x[x.size() / 2] = ElementRule<T>::Store(kEndless);
  if (nan && factor.size() > 0) factor[factor.size() / 2] = std::bit_cast<float>(0x7F812345u);
  call.x = x.data();
  call.w = w.data();
  call.y = y.data();
  ASSERT_TRUE(kernels.Conv(call, pool).ok());
  call.ending.kind = kind;
  call.ending.factor = factor.data();
  call.ending.summand = summand.data();
  std::tie(call.ending.least, call.ending.most) = kBounds[bounds];
  EndingLoop<T> loop{&call};
  call.ending.added = kind == EndingKind::kAffineAdd ? added.data() : nullptr;
  call.ending.to = want.data();
  for (int64_t pixel = 0; pixel < count / std::max<int64_t>(1, call.out_channels); ++pixel)
    EndingLoop<T>::Run(&loop, 0, pixel, 1, 0, call.out_channels);
  loop.rows = 0;
  call.epilogue = {EndingLoop<T>::Run, &loop};
  for (const bool in_place : {false, true}) {  // over what is added
    if (in_place && kind != EndingKind::kAffineAdd) continue;
    y.Poison();
    call.ending.to = in_place ? added.data() : to.data();
    const absl::Status status = Reserved(
        pool, [&](int threads, ScratchNeeds& needs) { return kernels.PrepareConv(call, threads, needs); },
        [&](ThreadPool& p) { return kernels.Conv(call, p); });
    ASSERT_TRUE(status.ok()) << status.message();
    const Operand<T>& got = in_place ? added : to;
    for (int64_t i = 0; i < count; ++i) {
      if (std::isnan(want.At(i))) {
        ASSERT_TRUE(std::isnan(got.At(i))) << "at " << i;
      } else {
        ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0)
            << "at " << i << ": " << got.At(i) << " and not " << want.At(i);
      }
    }
    EXPECT_TRUE(got.GuardsHold());
  }
  if (looped != nullptr) *looped = loop.rows > 0;
}

TEST_P(Conv, EndsItsResultsAsTheLoopBehindItWould) {
  std::vector<ConvCall> calls = Cases();
  for (const std::vector<ConvCall>& more : {GroupedCases(), WinogradCases()}) calls.insert(calls.end(), more.begin(), more.end());
  for (const int64_t channels : {16, 40, 96, 37}) {  // depthwise, in rows of three
    for (const int64_t stride : {1, 2}) {
      calls.push_back(Make(1, channels, channels, {Dim(9, 3, stride, 1, 1), Dim(25, 3, stride, 1, 1)}, channels));
    }
  }
  // Lines of which padding hides something to the left, to the right, more than a tap or all.
  for (const SpatialDim& dim : {Dim(1, 3, 1, 1, 1), Dim(2, 3, 1, 1, 1), Dim(3, 3, 1, 1, 1), Dim(9, 3, 1, 0, 1),
                                Dim(9, 3, 1, 1, 0), Dim(8, 3, 2, 0, 1), Dim(8, 3, 2, 1, 0), Dim(9, 3, 1, 2, 2), Dim(9, 3, 2, 2, 1)}) {
    calls.push_back(Make(2, 72, 72, {Dim(3, 3, 1, 1, 1), dim}, 72));
  }
  // Two blocks of K, also of bf16, and lines whose part of the second one is padding.
  for (const int64_t channels : {300, 600}) {
    calls.push_back(Make(2, channels, 40, {Dim(4, 3, 1, 1, 1), Dim(6, 3, 1, 1, 1)}));
    calls.push_back(Make(1, channels, 70, {Dim(3, 3, 1, 1, 1), Dim(13, 3, 1, 1, 1)}));
  }
  int i = 0;
  for (const ConvCall& call : calls) {
    const EndingKind kind = i % 2 == 0 ? EndingKind::kAffine : EndingKind::kAffineAdd;
    ThreadPool& pool = i % 3 == 0 ? one_ : i % 3 == 1 ? two_ : Five();
    CheckEnding<float>(*kernels_, call, kind, i / 2 % 4, i % 7 == 0, pool, nullptr);
    CheckEnding<BF16>(*kernels_, call, kind, i / 2 % 4, i % 7 == 0, pool, nullptr);
    CheckEnding<BF16>(*kernels_, call, EndingKind::kAffine, (i + 1) % 4, false, pool, nullptr);
    CheckEnding<BF16>(*kernels_, call, kind, (i / 2 + 2) % 4, false, pool, nullptr, Numbers::kCalm);
    for (const Numbers numbers : {Numbers::kTiny, Numbers::kTinyAlone}) {
      CheckEnding<BF16>(*kernels_, call, EndingKind::kAffine, (i + 3) % 4, false, pool, nullptr, numbers);
    }

    ++i;
  }
}

// Where nobody shall have to look whether it does: one block of K, several, a channel a group.
TEST_P(Conv, EndsResultsInRegisters) {
  const ConvCall small = Make(2, 16, 40, {Dim(7, 1), Dim(9, 1)}), deep = Make(1, 2400, 70, {Dim(3, 1), Dim(5, 1)});
  const ConvCall depthwise = Make(1, 40, 40, {Dim(9, 3, 1, 1, 1), Dim(9, 3, 1, 1, 1)}, 40);
  bool looped = true;
  for (const EndingKind kind : {EndingKind::kAffine, EndingKind::kAffineAdd}) {
    CheckEnding<float>(*kernels_, small, kind, 1, false, two_, &looped);
    EXPECT_FALSE(looped);
    CheckEnding<float>(*kernels_, deep, kind, 1, false, two_, &looped);
    EXPECT_FALSE(looped);
    CheckEnding<BF16>(*kernels_, small, kind, 1, false, two_, &looped);
    const CpuTarget& target = kernels_->target();
    EXPECT_EQ(looped, !target.has_bf16_dot || AmxServes(target, DType::kBF16, DType::kBF16));
  }
  CheckEnding<float>(*kernels_, depthwise, EndingKind::kAffine, 1, false, two_, &looped);
  EXPECT_FALSE(looped);
  CheckEnding<BF16>(*kernels_, depthwise, EndingKind::kAffine, 1, false, two_, &looped);
  EXPECT_FALSE(looped);
}

TEST_P(Conv, CallsTheEpilogueOnceForEveryElement) {
  for (const ConvCall& base : {Cases()[1], Cases()[7], Cases()[11], GroupedCases().back(), WinogradCases()[17],
                               WinogradCases().back()}) {
    ConvCall call = base;
    const Geometry g = PadRank(call.spatial_rank, call.dims);
    Operand<float> x(call.batch * g.in * call.in_channels), y(call.batch * g.out * call.out_channels);
    Operand<float> w(g.window * call.in_channels / call.feature_groups * call.out_channels);
    std::vector<std::atomic<int>> seen(y.size());
    struct Context {
      std::vector<std::atomic<int>>* seen;
      int64_t channels;
    } context{&seen, call.out_channels};
    call.x = x.data();
    call.w = w.data();
    call.y = y.data();
    call.epilogue.context = &context;
    call.epilogue.run = [](void* user, int64_t, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
      auto* context = static_cast<Context*>(user);
      for (int64_t r = row0; r < row0 + rows; ++r) {
        for (int64_t c = col0; c < col0 + cols; ++c) ++(*context->seen)[r * context->channels + c];
      }
    };
    ASSERT_TRUE(kernels_->Conv(call, two_).ok());
    for (auto& count : seen) ASSERT_EQ(count, 1);
  }
}

TEST_P(Conv, SaysWhatIsWrongWithACall) {
  ConvCall call = Make(1, 3, 4, {Dim(5, 3)});
  call.dims[0].out = 4;
  EXPECT_EQ(kernels_->Conv(call, one_).message(), "convolution: output of spatial dimension 0 is 4, the window gives 3");
  call = Make(1, 3, 4, {Dim(5, 3)}, 2);
  EXPECT_EQ(kernels_->Conv(call, one_).message(),
            "convolution: 2 feature groups and 1 batch groups do not divide batch 1 and channels 3 to 4");
}

WEFT_EVERY_ISA(Conv);

}  // namespace
}  // namespace weft::cpu
