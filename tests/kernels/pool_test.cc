// Pooling and its gradient against the definition.
#include <limits>

#include "tests/kernels/kernels_support.h"

namespace weft::cpu {
namespace {

PoolCall Make(PoolKind kind, int64_t batch, int64_t channels, SpatialDim a, SpatialDim b) {
  PoolCall call;
  call.kind = kind;
  call.batch = batch;
  call.channels = channels;
  call.dims[0] = a;
  call.dims[1] = b;
  for (int d = 0; d < 2; ++d) call.dims[d].out = OutputSize(call.dims[d]);
  return call;
}

std::vector<PoolCall> Cases() {
  std::vector<PoolCall> cases;
  for (PoolKind kind : {PoolKind::kMax, PoolKind::kMin, PoolKind::kSum}) {
    cases.push_back(Make(kind, 3, 64, {8, 2, 0, 2}, {10, 2, 0, 2}));
    cases.push_back(Make(kind, 2, 23, {9, 3, 0, 2, 1, 1}, {8, 3, 0, 1, 0, 1}));
    cases.push_back(Make(kind, 5, 1, {7, 2, 0, 3}, {7, 2, 0, 2, 0, 0, 1, 2}));
  }
  return cases;
}

template <typename T>
void Check(KernelSet& kernels, PoolCall call, DType dtype, ThreadPool& one, ThreadPool& two) {
  call.dtype = dtype;
  if (call.kind == PoolKind::kSum && dtype == DType::kF32) call.scale = 0.25;
  const SpatialDim &h = call.dims[0], &w = call.dims[1];
  std::mt19937 random(13);
  Operand<T> x(call.batch * h.in * w.in * call.channels), dy(call.batch * h.out * w.out * call.channels);
  Operand<T> y(dy.size()), y2(dy.size()), dx(x.size()), dx2(x.size());
  x.Randomize(random);
  dy.Randomize(random);
  std::vector<double> want_dx(x.size());
  call.x = x.data();
  for (ThreadPool* pool : {&one, &two}) {
    call.y = pool == &one ? y.data() : y2.data();
    ASSERT_TRUE(kernels.Pool(call, *pool).ok());
    PoolBackwardCall backward{call, dy.data(), pool == &one ? dx.data() : dx2.data()};
    ASSERT_TRUE(kernels.PoolBackward(backward, *pool).ok());
  }
  EXPECT_TRUE(y.SameBits(y2));
  EXPECT_TRUE(dx.SameBits(dx2));
  EXPECT_TRUE(y.GuardsHold() && dx.GuardsHold());
  for (int64_t i = 0; i < dy.size(); ++i) {
    const int64_t c = i % call.channels, ow = i / call.channels % w.out, oh = i / call.channels / w.out % h.out;
    const int64_t n = i / call.channels / w.out / h.out;
    double sum = call.kind == PoolKind::kSum ? 0 : std::numeric_limits<double>::quiet_NaN();
    int64_t chosen = -1;
    for (int64_t a = 0; a < h.window; ++a) {
      for (int64_t b = 0; b < w.window; ++b) {
        const int64_t ih = oh * h.stride - h.pad_lo + a * h.rhs_dilation, iw = ow * w.stride - w.pad_lo + b * w.rhs_dilation;
        if (ih < 0 || iw < 0 || ih >= h.in || iw >= w.in) continue;
        const int64_t at = ((n * h.in + ih) * w.in + iw) * call.channels + c;
        if (call.kind == PoolKind::kSum) {
          sum += x.At(at);
          want_dx[at] += dy.At(i) * call.scale;
        } else if (chosen < 0 || (call.kind == PoolKind::kMax ? x.At(at) > sum : x.At(at) < sum)) {
          sum = x.At(at);
          chosen = at;
        }
      }
    }
    if (chosen >= 0) want_dx[chosen] += dy.At(i);
    ASSERT_NEAR(y.At(i), sum * (call.kind == PoolKind::kSum ? call.scale : 1.0), 1e-5) << i;
  }
  for (int64_t i = 0; i < x.size(); ++i) ASSERT_NEAR(dx.At(i), want_dx[i], 1e-5) << i;
}

class Pooling : public EveryIsa {};

TEST_P(Pooling, AgreesWithItsDefinitionAndSendsTheGradientToTheFirstLargest) {
  for (const PoolCall& call : Cases()) {
    Check<float>(*kernels_, call, DType::kF32, one_, two_);
    Check<double>(*kernels_, call, DType::kF64, one_, two_);
    Check<int32_t>(*kernels_, call, DType::kI32, one_, two_);
  }
}

TEST_P(Pooling, LetsNanThroughTheMaximum) {
  std::vector<float> x(4 * 32, 1.0f), y(32);
  x[1 * 32 + 3] = std::numeric_limits<float>::quiet_NaN();
  x[3 * 32 + 7] = std::numeric_limits<float>::quiet_NaN();
  PoolCall call = Make(PoolKind::kMax, 1, 32, {2, 2, 0, 2}, {2, 2, 0, 2});
  call.x = x.data();
  call.y = y.data();
  ASSERT_TRUE(kernels_->Pool(call, one_).ok());
  for (int c = 0; c < 32; ++c) EXPECT_EQ(std::isnan(y[c]), c == 3 || c == 7) << c;
}

TEST_P(Pooling, GivesTheNeutralElementForAWindowOfPadding) {
  std::vector<float> x(16, 1.0f), y(3 * 3 * 16);
  PoolCall call = Make(PoolKind::kMax, 1, 16, {1, 1, 0, 1, 1, 1}, {1, 1, 0, 1, 1, 1});
  call.x = x.data();
  call.y = y.data();
  ASSERT_TRUE(kernels_->Pool(call, one_).ok());
  EXPECT_EQ(y[0], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(y[4 * 16], 1.0f);
}

// Windows of more taps and channels than are widened at once.
TEST_P(Pooling, OfHalvesIsThatOfTheSameFloatsRoundedOnce) {
  for (const PoolKind kind : {PoolKind::kMax, PoolKind::kMin, PoolKind::kSum}) {
    for (const int64_t channels : {1, 19, 600}) {
      PoolCall call = Make(kind, 2, channels, {9, 5, 0, 2, 1, 1}, {8, 4, 0, 1, 0, 1});
      call.scale = kind == PoolKind::kSum ? 0.05 : 1;
      const int64_t outputs = 2 * call.dims[0].out * call.dims[1].out * channels;
      Operand<BF16> x(2 * 9 * 8 * channels), y(outputs);
      Operand<float> wide(x.size()), want(outputs);
      std::mt19937 random(4);
      x.Randomize(random);
      for (int64_t i = 0; i < x.size(); ++i) wide[i] = WidenBF16(x[i].bits);
      call.x = wide.data();
      call.y = want.data();
      ASSERT_TRUE(kernels_->Pool(call, one_).ok());
      call.dtype = DType::kBF16;
      call.x = x.data();
      call.y = y.data();
      ASSERT_TRUE(kernels_->Pool(call, two_).ok());
      EXPECT_TRUE(y.GuardsHold());
      for (int64_t i = 0; i < outputs; ++i) ASSERT_EQ(y[i].bits, NarrowBF16(want[i])) << "at " << i;
    }
  }
}

WEFT_EVERY_ISA(Pooling);

}  // namespace
}  // namespace weft::cpu
