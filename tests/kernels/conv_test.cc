// Convolutions in all three directions against sums in double: strides, padding, both dilations, reversal, groups,
// ranks one to three, types, threads and instruction sets.
#include <bit>
#include <limits>
#include <tuple>
#include <utility>

#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "tests/kernels/conv_support.h"

namespace weft::cpu {
namespace {

class Conv : public EveryIsa {};

TEST_P(Conv, AgreesWithItsDefinitionInF32) {
  for (const ConvCall& call : Cases()) Check<float, float>(*kernels_, call, DType::kF32, DType::kF32, one_, two_, 1e-6);
}

TEST_P(Conv, AgreesWithItsDefinitionByColumns) {
  for (const ConvCall& call : ByColumns(Cases())) {
    Check<float, float>(*kernels_, call, DType::kF32, DType::kF32, one_, two_, 1e-6);
  }
}

// By sizes alone: many channels to a pixel, and nothing but f32 in one group.
TEST_P(Conv, TakesColumnsWherePixelsAreFew) {
  const SpatialDim two = Dim(2, 3, 1, 1, 1), four = Dim(4, 3, 1, 1, 1), eight = Dim(8, 3, 1, 1, 1);
  EXPECT_TRUE(TakesColumns(Make(4, 512, 512, {two, two})));
  EXPECT_TRUE(TakesColumns(Make(4, 256, 256, {four, four})));
  EXPECT_TRUE(TakesColumns(Make(1, 256, 256, {Dim(1, 1), Dim(1, 1)})));
  EXPECT_FALSE(TakesColumns(Make(4, 128, 128, {eight, eight})));
  EXPECT_FALSE(TakesColumns(Make(4, 8, 64, {two, two})));  // a small kernel
  EXPECT_FALSE(TakesColumns(Make(4, 512, 512, {two, two}, 2)));
  EXPECT_FALSE(TakesColumns(Make(0, 512, 512, {two, two})));
  ConvCall call = Make(4, 512, 512, {two, two});
  call.input = call.output = DType::kBF16;
  EXPECT_FALSE(TakesColumns(call));
  call.columns = call.w_out_first = true;
  EXPECT_FALSE(kernels_->Conv(call, one_).ok());
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
