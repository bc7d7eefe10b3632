// Pooling and its gradient against the definition.
#include <limits>
#include <span>

#include "src/backends/cpu/kernels/pool/pool_planes.h"
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

// Of channels side by side: NaN first, in the middle, last, several, in windows that overlap and at padding; of every type.
template <typename T>
void CheckNanGradient(KernelSet& kernels, DType dtype, ThreadPool& pool) {
  using Rule = ElementRule<T>;
  for (const bool gives_way : {false, true}) {
    for (const int64_t channels : {1, 7, 40}) {
      for (const SpatialDim& dim : {SpatialDim{9, 3, 0, 3}, SpatialDim{9, 3, 0, 2, 1, 1}, SpatialDim{9, 2, 0, 1}}) {
        PoolCall call = Make(PoolKind::kMax, 2, channels, dim, {1, 1, 0, 1});
        call.dims[2] = {1, 1, 1, 1};
        if (channels == 1) call.spatial_rank = 3;  // no planes
        call.dtype = dtype;
        call.nan_gives_way = gives_way;
        const SpatialDim& d = call.dims[0];
        Operand<T> x(2 * d.in * channels), dy(2 * d.out * channels), dx(x.size());
        std::mt19937 random(7);
        x.Randomize(random);
        dy.Randomize(random);
        for (int64_t i = 0; i < x.size(); ++i) {
          if (random() % 3 == 0) x[i] = Rule::Store(std::numeric_limits<typename Rule::Sum>::quiet_NaN());
        }
        call.x = x.data();
        ASSERT_TRUE(kernels.PoolBackward({call, dy.data(), dx.data()}, pool).ok());
        std::vector<double> want(x.size());
        for (int64_t i = 0; i < dy.size(); ++i) {
          const int64_t c = i % channels, o = i / channels % d.out, n = i / channels / d.out;
          int64_t chosen = -1;
          for (int64_t t = 0; t < d.window; ++t) {
            const int64_t in = o * d.stride - d.pad_lo + t;
            if (in < 0 || in >= d.in) continue;
            const int64_t at = (n * d.in + in) * channels + c;
            const bool stays = chosen >= 0 && (x.At(chosen) >= x.At(at) || (!gives_way && std::isnan(x.At(chosen))));
            if (!stays) chosen = at;
          }
          want[chosen] += dy.At(i);
        }
        for (int64_t i = 0; i < x.size(); ++i) ASSERT_NEAR(dx.At(i), want[i], 1e-5) << i << " of " << channels;
      }
    }
  }
}
TEST_P(Pooling, GradientsGoToNanUnlessItGivesWay) {
  CheckNanGradient<float>(*kernels_, DType::kF32, two_);
  CheckNanGradient<double>(*kernels_, DType::kF64, two_);
  CheckNanGradient<BF16>(*kernels_, DType::kBF16, two_);
  CheckNanGradient<F16>(*kernels_, DType::kF16, two_);
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

// Rows that no window sees, that several see, padding alone.
TEST_P(Pooling, GradientsOfHalvesAreSumsRoundedOnce) {
  const SpatialDim dims[][2] = {{{9, 5, 0, 2, 1, 1}, {8, 4, 0, 1, 0, 1}}, {{13, 2, 0, 5}, {9, 2, 0, 3, 1, 1}}, {{6, 2, 0, 2, 5, 4}, {7, 3, 0, 2, 1, 1}}, {{1}, {30, 3, 0, 2, 1, 1}}};
  for (const auto& [rows, columns] : dims) {
    for (const PoolKind kind : {PoolKind::kMax, PoolKind::kMin}) {
      for (const int64_t channels : {2, 19, 64}) {
        PoolCall call = Make(kind, 3, channels, rows, columns);
        ASSERT_TRUE(RoundsOnce(call));
        const int64_t inputs = 3 * rows.in * columns.in * channels, outputs = 3 * call.dims[0].out * call.dims[1].out * channels;
        Operand<BF16> x(inputs), dy(outputs), dx(inputs);
        Operand<float> wide_x(inputs), wide_dy(outputs), want(inputs);
        std::mt19937 random(4);
        x.Randomize(random);
        for (int64_t i = 0; i < inputs; ++i) wide_x[i] = WidenBF16(x[i].bits);
        for (int64_t i = 0; i < outputs; ++i) {
          dy[i].bits = NarrowBF16(static_cast<float>(random() % 1000) * 0.37f);
          wide_dy[i] = WidenBF16(dy[i].bits);
        }
        call.x = wide_x.data();
        ASSERT_TRUE(kernels_->PoolBackward({call, wide_dy.data(), want.data()}, one_).ok());
        call.dtype = DType::kBF16;
        call.x = x.data();
        ASSERT_TRUE(kernels_->PoolBackward({call, dy.data(), dx.data()}, two_).ok());
        EXPECT_TRUE(dx.GuardsHold());
        for (int64_t i = 0; i < inputs; ++i) ASSERT_EQ(dx[i].bits, NarrowBF16(want[i])) << "at " << i;
      }
    }
  }
  PoolCall deep = Make(PoolKind::kMax, 1, 2, {4, 2, 0, 2}, {4, 2, 0, 2});
  deep.spatial_rank = 3;
  EXPECT_FALSE(RoundsOnce(deep));
}

// --- planes: one channel, rows that lie one after another

// The definitions, an element at a time in f32: the first of the largest, where a NaN wins; of the gradient, where it may give way.
struct Planes {
  explicit Planes(const PoolCall& of) : call(of), h(call.dims[0]), w(call.dims[1]) {
    inputs = call.batch * h.in * w.in;
    outputs = call.batch * h.out * w.out;
    x.resize(inputs);
    dy.resize(outputs);
  }
  // Calls fn(output, input) for every tap of every window that is no padding, in order.
  template <typename Fn>
  void ForEachTap(Fn fn) const {
    for (int64_t i = 0; i < outputs; ++i) {
      const int64_t ow = i % w.out, oh = i / w.out % h.out, n = i / w.out / h.out;
      for (int64_t t = 0; t < h.window * w.window; ++t) {
        const int64_t ih = oh * h.stride - h.pad_lo + t / w.window * h.rhs_dilation;
        const int64_t iw = ow * w.stride - w.pad_lo + t % w.window * w.rhs_dilation;
        if (ih >= 0 && iw >= 0 && ih < h.in && iw < w.in) fn(i, (n * h.in + ih) * w.in + iw);
      }
    }
  }
  std::vector<float> Y() const {
    std::vector<float> y(outputs, -std::numeric_limits<float>::infinity());
    std::vector<bool> some(outputs);
    ForEachTap([&](int64_t i, int64_t at) {
      if (!some[i] || !(y[i] >= x[at] || std::isnan(y[i]))) y[i] = x[at];
      some[i] = true;
    });
    return y;
  }
  std::vector<float> Dx() const {
    std::vector<int64_t> chosen(outputs, -1);
    ForEachTap([&](int64_t i, int64_t at) {
      const bool stays = chosen[i] >= 0 && (x[chosen[i]] >= x[at] || (!call.nan_gives_way && std::isnan(x[chosen[i]])));
      if (!stays) chosen[i] = at;
    });
    const bool overlap = h.stride < h.window || w.stride < w.window;
    std::vector<float> dx(inputs);
    for (int64_t i = 0; i < outputs; ++i) {
      if (chosen[i] >= 0) dx[chosen[i]] = overlap ? dx[chosen[i]] + dy[i] : dy[i];
    }
    return dx;
  }

  PoolCall call;
  SpatialDim h, w;
  int64_t inputs, outputs;
  std::vector<float> x, dy;
};

std::vector<PoolCall> PlaneCases() {
  std::vector<PoolCall> cases;
  for (int64_t window = 1; window <= 5; ++window) {
    for (int64_t stride = 1; stride <= 4; ++stride) {
      for (const int64_t size : {1, 6, 9, 16, 33, 67, 130}) {
        const int64_t low = (size + stride) % window, high = (size * stride) % window;
        if (size + low + high < window) continue;
        cases.push_back(Make(PoolKind::kMax, 2, 1, {7, window, 0, stride, low, high}, {size, window, 0, stride, low, high}));
      }
    }
  }
  cases.push_back(Make(PoolKind::kMax, 3, 1, {9, 2, 0, 1}, {70, 8, 0, 2, 5, 9}));
  cases.push_back(Make(PoolKind::kMax, 1, 1, {4, 3, 0, 3, 7, 6}, {21, 2, 0, 1, 20, 3}));  // windows of padding alone
  cases.push_back(Make(PoolKind::kMax, 41, 1, {37, 3, 0, 2, 1, 1}, {40, 3, 0, 2, 1, 1}));  // enough for several threads
  PoolCall rows = Make(PoolKind::kMax, 5, 1, {50, 3, 0, 2, 1, 1}, {});
  rows.spatial_rank = 1;
  cases.push_back(rows);
  return cases;
}

template <typename T>
void CheckPlanes(KernelSet& kernels, Planes& planes, DType dtype, std::span<ThreadPool* const> pools, bool gradient) {
  using Rule = ElementRule<T>;
  PoolCall call = planes.call;
  call.dtype = dtype;
  ASSERT_TRUE(PoolsPlanes(call, gradient));
  Operand<T> x(planes.inputs), dy(planes.outputs);
  for (int64_t i = 0; i < planes.inputs; ++i) planes.x[i] = Rule::Load(x[i] = Rule::Store(planes.x[i]));
  for (int64_t i = 0; i < planes.outputs; ++i) planes.dy[i] = Rule::Load(dy[i] = Rule::Store(planes.dy[i]));
  const std::vector<float> want_y = planes.Y(), want_dx = planes.Dx();
  call.x = x.data();
  for (ThreadPool* const pool : pools) {
    Operand<T> y(planes.outputs), dx(planes.inputs);
    call.y = y.data();
    ASSERT_TRUE(kernels.Pool(call, *pool).ok());
    EXPECT_TRUE(y.GuardsHold());
    for (int64_t i = 0; i < planes.outputs; ++i) {
      const T want = Rule::Store(want_y[i]);
      ASSERT_EQ(std::memcmp(&y[i], &want, sizeof(T)), 0) << "y " << i << ": " << y.At(i) << " for " << want_y[i];
    }
    if (!gradient) continue;
    ASSERT_TRUE(kernels.PoolBackward({call, dy.data(), dx.data()}, *pool).ok());
    EXPECT_TRUE(dx.GuardsHold());
    for (int64_t i = 0; i < planes.inputs; ++i) {
      const T want = Rule::Store(want_dx[i]);
      ASSERT_EQ(std::memcmp(&dx[i], &want, sizeof(T)), 0) << "dx " << i << ": " << dx.At(i) << " for " << want_dx[i];
    }
  }
}

TEST_P(Pooling, OfPlanesHasTheBitsOfItsDefinition) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  // Equal elements, both zeros, -inf beside padding; then NaNs among them.
  const std::vector<float> plain = {-kInfinity, -0.0f, 0.0f, 1, 1.5f, -2, kInfinity, 3}, some = {-kInfinity, -0.0f, 0.0f, 1, 1.5f, -2, kNan, -3};
  ThreadPool* const pools[] = {&one_, &two_, &Five()};
  std::mt19937 random(7);
  for (const PoolCall& call : PlaneCases()) {
    for (const int kind : {0, 1, 2}) {
      const std::vector<float>& values = kind == 0 ? plain : some;
      Planes planes(call);
      planes.call.nan_gives_way = kind == 2;
      for (float& x : planes.x) x = random() % 3 == 0 ? values[0] : values[random() % values.size()];
      for (float& dy : planes.dy) dy = 0.1f * (static_cast<int>(random() % 16) - 8);
      SCOPED_TRACE(::testing::Message() << "window " << planes.w.window << ", stride " << planes.w.stride << ", " << planes.w.in << " columns, "
                                        << planes.w.pad_lo << " before them");
      CheckPlanes<float>(*kernels_, planes, DType::kF32, pools, true);
      CheckPlanes<BF16>(*kernels_, planes, DType::kBF16, pools, true);
      CheckPlanes<F16>(*kernels_, planes, DType::kF16, pools, true);
      if (HasFatalFailure()) return;
    }
  }
  for (int64_t dilation = 2; dilation <= 3; ++dilation) {
    for (int64_t stride = 1; stride <= 3; ++stride) {
      Planes planes(Make(PoolKind::kMax, 2, 1, {12, 3, 0, stride, 1, 2, 1, dilation}, {45, 3, 0, stride, 2, 1, 1, dilation}));
      for (float& x : planes.x) x = some[random() % some.size()];
      CheckPlanes<float>(*kernels_, planes, DType::kF32, pools, false);
      if (HasFatalFailure()) return;
    }
  }
}

// Others go through one channel at a time.
TEST_P(Pooling, OfPlanesLeavesToOthersWhatItDoesNotServe) {
  const PoolCall served = Make(PoolKind::kMax, 2, 1, {9, 3, 0, 2, 1, 1}, {20, 3, 0, 2, 1, 1});
  const auto serves = [&](auto change, bool gradient = false) {
    PoolCall call = served;
    change(call);
    return PoolsPlanes(call, gradient);
  };
  EXPECT_TRUE(serves([](PoolCall&) {}));
  EXPECT_TRUE(serves([](PoolCall& call) { call.dims[1].rhs_dilation = 2; }));
  EXPECT_FALSE(serves([](PoolCall& call) { call.dims[1].rhs_dilation = 2; }, true));
  EXPECT_FALSE(serves([](PoolCall& call) { call.dims[0].lhs_dilation = 2; }));
  EXPECT_FALSE(serves([](PoolCall& call) { call.dims[0].pad_lo = -1; }));
  EXPECT_FALSE(serves([](PoolCall& call) { call.dims[0].window = 9; }));
  EXPECT_FALSE(serves([](PoolCall& call) { call.kind = PoolKind::kMin; }));
  EXPECT_FALSE(serves([](PoolCall& call) { call.kind = PoolKind::kSum; }));
  EXPECT_FALSE(serves([](PoolCall& call) { call.dtype = DType::kF64; }));
  EXPECT_FALSE(serves([](PoolCall& call) { call.channels = 2; }));
  EXPECT_FALSE(serves([](PoolCall& call) { call.spatial_rank = 3; }));
}

WEFT_EVERY_ISA(Pooling);

}  // namespace
}  // namespace weft::cpu
