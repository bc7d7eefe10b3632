// Gradients of convolution kernels in bf16, which may multiply pairs of pixels, against the same in f32: what is no pixel takes
// no part, whatever lies beside it.
#include "src/backends/cpu/kernels/tiles/geometry.h"
#include "tests/kernels/kernels_support.h"

namespace weft::cpu {
namespace {

class ConvWeights : public EveryIsa {};

struct Line {
  int64_t in, window, stride, low, high, dilation;
  bool reversed;
};
constexpr Line kLines[] = {
    {1, 1, 1, 0, 0, 1, false}, {5, 1, 2, 0, 0, 1, false}, {6, 1, 3, 0, 0, 1, false}, {4, 3, 1, 1, 1, 1, false},
    {5, 3, 1, 1, 1, 1, false}, {7, 3, 2, 1, 1, 1, false}, {8, 3, 2, 0, 1, 1, false}, {6, 2, 1, 0, 1, 1, false},
    {9, 5, 1, 2, 2, 1, false}, {9, 3, 1, 2, 2, 2, false}, {6, 3, 1, 1, 1, 1, true},  {8, 4, 3, 3, 2, 1, false},
    {3, 5, 1, 4, 4, 1, false}, {9, 3, 1, -1, 2, 1, false}, {9, 7, 1, 3, 3, 1, false}, {5, 1, 1, 0, 0, 1, false},
    {347, 1, 1, 0, 0, 1, false}, {1031, 1, 1, 0, 0, 1, false},
};

// Numbers whose sums are exact, so that their order decides nothing; and, if `awkward`, infinities and NaN here and there, most of
// all in the first and the last pixels of lines.
void Fill(std::mt19937& random, int64_t line, int64_t channels, bool awkward, Operand<BF16>& x, Operand<float>& wide) {
  x.Randomize(random);
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t pixel = i / channels % line;
    const bool edge = pixel == 0 || pixel + 1 == line;
    if (awkward && random() % (edge ? 40 : 400) == 0) x[i] = {random() % 2 == 0 ? uint16_t{0x7F80} : uint16_t{0x7FC1}};
    wide[i] = static_cast<float>(x.At(i));
  }
}

TEST_P(ConvWeights, OfBF16AreThoseOfF32) {
  for (const Line& line : kLines) {
    for (const auto& [in_channels, out_channels, groups] :
         {std::tuple<int64_t, int64_t, int64_t>{8, 16, 1}, {9, 21, 1}, {40, 70, 1}, {24, 20, 2}, {7, 16, 1}}) {
      for (const bool awkward : {false, true}) {
        SCOPED_TRACE(testing::Message() << line.in << " by " << line.window << " stride " << line.stride << " padding " << line.low
                                        << " " << line.high << " dilation " << line.dilation << ", " << in_channels << " to "
                                        << out_channels << " in " << groups << (awkward ? ", awkward" : ""));
        ConvCall call;
        call.batch = 3;
        call.in_channels = in_channels;
        call.out_channels = out_channels;
        call.feature_groups = groups;
        if (line.window * line.stride == 1) {
          call.dims[0] = {line.in > 1000 ? 1 : 6, 1};  // all dimensions: the product over all pixels
        } else {
          call.dims[0] = {6, 3, 0, 1, 1, 1, 1, 1, false};
        }
        call.dims[1] = {line.in, line.window, 0, line.stride, line.low, line.high, 1, line.dilation, line.reversed};
        for (SpatialDim& dim : call.dims) dim.out = OutputSize(dim);
        const Geometry g = PadRank(call.spatial_rank, call.dims);
        std::mt19937 random(11);
        Operand<BF16> x(call.batch * g.in * in_channels), y(call.batch * g.out * out_channels);
        Operand<float> wide_x(x.size()), wide_y(y.size());
        Fill(random, line.in, in_channels, awkward, x, wide_x);
        Fill(random, call.dims[1].out, out_channels, awkward, y, wide_y);
        Operand<float> want(g.window * (in_channels / groups) * out_channels), got(want.size()), again(want.size());
        Operand<BF16> rounded(want.size());
        const auto run = [&](DType input, DType output, const void* from, void* to, void* w, ThreadPool& pool) {
          call.input = input;
          call.output = output;
          call.x = from;
          call.y = to;
          call.w = w;
          const absl::Status status = Reserved(
              pool, [&](int threads, ScratchNeeds& needs) { return kernels_->PrepareConvBackwardWeights(call, threads, needs); },
              [&](ThreadPool& p) { return kernels_->ConvBackwardWeights(call, p); });
          ASSERT_TRUE(status.ok()) << status;
        };
        run(DType::kF32, DType::kF32, wide_x.data(), wide_y.data(), want.data(), one_);
        run(DType::kBF16, DType::kF32, x.data(), y.data(), got.data(), two_);
        run(DType::kBF16, DType::kF32, x.data(), y.data(), again.data(), Five());
        run(DType::kBF16, DType::kBF16, x.data(), y.data(), rounded.data(), two_);
        EXPECT_TRUE(got.SameBits(again));
        EXPECT_TRUE(got.GuardsHold() && rounded.GuardsHold());
        for (int64_t i = 0; i < want.size(); ++i) {
          if (std::isnan(want[i])) {
            ASSERT_TRUE(std::isnan(got[i]) && std::isnan(rounded.At(i))) << "at " << i;
          } else {
            ASSERT_EQ(got[i], want[i]) << "at " << i;
            ASSERT_EQ(rounded.At(i), static_cast<double>(WidenBF16(NarrowBF16(want[i])))) << "at " << i;
          }
        }
      }
    }
  }
}

TEST_P(ConvWeights, OfNoPixelAreZero) {
  ConvCall call;
  call.batch = 0;
  call.in_channels = call.out_channels = 16;
  call.dims[0] = call.dims[1] = {4, 1, 4};
  call.input = call.output = DType::kBF16;
  Operand<BF16> w(16 * 16);
  call.w = w.data();
  ASSERT_TRUE(kernels_->ConvBackwardWeights(call, two_).ok());
  for (int64_t i = 0; i < w.size(); ++i) ASSERT_EQ(w[i].bits, 0);
}

WEFT_EVERY_ISA(ConvWeights);

}  // namespace
}  // namespace weft::cpu
