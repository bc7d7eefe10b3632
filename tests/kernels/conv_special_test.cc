// Convolutions of numbers that are special: infinities and NaN, which zeros beside images meet, too, sums that round badly, and
// integers that wrap.
#include <array>
#include <limits>
#include <vector>

#include "tests/kernels/conv_support.h"

namespace weft::cpu {
namespace {

class ConvSpecial : public EveryIsa {};

enum Written { kX, kW, kY };  // what a direction computes

// Every (kernel element, result element) whose product has a zero in it: of the padding, or between pixels spread by a dilation,
// which for the gradient of x is the stride. The kernel is w or, of the gradient of w, y.
template <typename Visit>
void ForEachZero(const ConvCall& call, Written written, Visit visit) {
  const Geometry g = PadRank(call.spatial_rank, call.dims);
  const int64_t group_in = call.in_channels / call.feature_groups, group_out = call.out_channels / call.feature_groups;
  const int64_t pixels = written == kX ? g.in : g.out;
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t tap = 0; tap < g.window; ++tap) {
      Odometer p, t;
      p.Set(pixel, [&](int d) { return written == kX ? g.dims[d].in : g.dims[d].out; });
      t.Set(tap, [&](int d) { return g.dims[d].window; });
      int64_t stored = 0;
      bool zero = false;
      for (int d = 0; d < kMaxSpatialDims; ++d) {
        const SpatialDim& dim = g.dims[d];
        const int64_t at = written == kX ? p.at[d] * dim.lhs_dilation + dim.pad_lo - t.at[d] * dim.rhs_dilation
                                         : p.at[d] * dim.stride - dim.pad_lo + t.at[d] * dim.rhs_dilation;
        const int64_t step = written == kX ? dim.stride : dim.lhs_dilation, size = written == kX ? dim.out : dim.in;
        zero = zero || at < 0 || at % step != 0 || at / step >= size;
        stored = stored * dim.window + (dim.reversed ? dim.window - 1 - t.at[d] : t.at[d]);
      }
      if (!zero) continue;
      for (int64_t n = 0; n < call.batch; ++n) {
        for (int64_t co = 0; co < call.out_channels; ++co) {
          for (int64_t ci = 0; ci < group_in; ++ci) {
            const int64_t w = WeightAt(call, stored, ci, co);
            const int64_t y = (n * g.out + pixel) * call.out_channels + co;
            const int64_t x = (n * g.in + pixel) * call.in_channels + co / group_out * group_in + ci;
            written == kW ? visit(y, w) : visit(w, written == kX ? x : y);
          }
        }
      }
    }
  }
}

// An epilogue that keeps what it finds finished, as an ending with factor 2 and summand 1 or as it is.
template <typename T>
struct Keep {
  const void* from;
  T* to;
  int64_t columns;
  bool ends;

  Epilogue epilogue() { return {Run, this}; }
  static void Run(void* user, int64_t, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
    const Keep& keep = *static_cast<Keep*>(user);
    for (int64_t r = row0; r < row0 + rows; ++r) {
      for (int64_t i = r * keep.columns + col0; i < r * keep.columns + col0 + cols; ++i) {
        keep.to[i] = static_cast<const T*>(keep.from)[i];
        if (keep.ends) keep.to[i] = ElementRule<T>::Store(ElementRule<T>::Load(keep.to[i]) * 2 + 1);
      }
    }
  }
};

template <typename In, typename Out>
class SpecialKernels {
 public:
  SpecialKernels(KernelSet& kernels, const ConvCall& call, DType in, DType out, double tolerance, unsigned seed)
      : kernels_(kernels), call_(call), tolerance_(tolerance), random_(seed) {
    call_.input = in;
    call_.output = out;
    const Geometry g = PadRank(call.spatial_rank, call.dims);
    sizes_ = {call.batch * g.in * call.in_channels, g.window * (call.in_channels / call.feature_groups) * call.out_channels,
              call.batch * g.out * call.out_channels};
    for (const int64_t size : sizes_) operands_.emplace_back(size).Randomize(random_);
  }

  // One or two elements of the kernel are infinite or NaN.
  void Run(Written written, ThreadPool& pool) {
    SCOPED_TRACE(Words(call_) + (written == kX ? " backward data" : written == kW ? " backward weights" : " forward") + " in " +
                 std::string(NameOf(call_.input)) + " to " + std::string(NameOf(call_.output)));
    const int kernel = written == kW ? kY : kW;
    if (sizes_[kernel] == 0 || sizes_[written] == 0) return;
    const Operand<In> finite = operands_[kernel];
    constexpr double kBad[] = {INFINITY, -INFINITY, NAN};
    for (unsigned i = 0; i <= random_() % 2; ++i) {
      operands_[kernel][static_cast<int64_t>(random_() % static_cast<unsigned>(sizes_[kernel]))] =
          ElementRule<In>::Store(static_cast<typename ElementRule<In>::Sum>(kBad[random_() % 3]));
    }
    want_.assign(sizes_[written], 0);
    ForEachTerm(call_, [&](int64_t xi, int64_t wi, int64_t yi) {
      if (written == kX) want_[xi] += operands_[kW].At(wi) * operands_[kY].At(yi);
      if (written == kW) want_[wi] += operands_[kX].At(xi) * operands_[kY].At(yi);
      if (written == kY) want_[yi] += operands_[kX].At(xi) * operands_[kW].At(wi);
    });
    ForEachZero(call_, written, [&](int64_t k, int64_t to) { want_[to] += 0 * operands_[kernel].At(k); });
    RunOnce(written, pool, "alone", [](ConvCall&, Operand<Out>&) {});
    Keep<Out> keep{};
    const auto keeps = [&](ConvCall& call, Operand<Out>& seen, const void* from, bool ends) {
      const bool row_of_w = written == kW && call_.columns;
      const int64_t columns = row_of_w ? sizes_[kW] / call_.out_channels : written == kX ? call_.in_channels : call_.out_channels;
      keep = {from, seen.data(), columns, ends};
      call.epilogue = keep.epilogue();
    };
    RunOnce(written, pool, "with an epilogue", [&](ConvCall& call, Operand<Out>& seen) {
      keeps(call, seen, written == kX ? call.x : written == kW ? call.w : call.y, false);
    });
    if (written == kY) {
      RunPacked(pool);
      if constexpr (std::is_same_v<typename ElementRule<Out>::Sum, float> && std::is_same_v<In, Out>) RunEnded(keeps, pool);
    }
    operands_[kernel] = finite;
  }

 private:
  template <typename Change>
  void RunOnce(Written written, ThreadPool& pool, const char* how, Change change) {
    SCOPED_TRACE(how);
    ConvCall call = call_;
    Operand<Out> result(sizes_[written]), seen(sizes_[written]);
    void* const to = result.data();
    call.x = written == kX ? to : operands_[kX].data();
    call.w = written == kW ? to : operands_[kW].data();
    call.y = written == kY ? to : operands_[kY].data();
    change(call, seen);
    const absl::Status status = Reserved(
        pool,
        [&](int threads, ScratchNeeds& needs) {
          ConvCall first = call;
          first.w = first.w_plain = nullptr;
          first.w_packed = false;
          return written == kX   ? kernels_.PrepareConvBackwardData(first, threads, needs)
                 : written == kW ? kernels_.PrepareConvBackwardWeights(first, threads, needs)
                                 : kernels_.PrepareConv(first, threads, needs);
        },
        [&](ThreadPool& p) {
          return written == kX   ? kernels_.ConvBackwardData(call, p)
                 : written == kW ? kernels_.ConvBackwardWeights(call, p)
                                 : kernels_.Conv(call, p);
        });
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(result.GuardsHold() && seen.GuardsHold());
    const bool ends = call.ending.kind != EndingKind::kNone;
    const Operand<Out>& got = call.epilogue.run != nullptr ? seen : result;
    for (size_t i = 0; i < want_.size(); ++i) {
      const double want = ends ? want_[i] * 2 + 1 : want_[i], value = got.At(static_cast<int64_t>(i));
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(value)) << value << " and not NaN at " << i;
      } else if (std::isinf(want)) {
        ASSERT_EQ(value, want) << "at " << i;
      } else {
        ASSERT_NEAR(value, want, tolerance_ * (std::abs(want) + 1)) << "at " << i;
      }
    }
  }

  // From w as it is, and as PyTorch has it.
  void RunPacked(ThreadPool& pool) {
    const CpuTarget& target = kernels_.target();
    const int64_t bytes = call_.columns ? 0 : PackedBytesOfW(target, call_);
    if (bytes == 0) return;
    const int64_t columns = call_.out_channels, rows = sizes_[kW] / columns;
    const int64_t depth = call_.in_channels / call_.feature_groups, taps = rows / depth;
    Operand<In> turned(sizes_[kW]);
    for (int64_t i = 0; i < sizes_[kW]; ++i) {
      turned[(i % columns * depth + i / columns % depth) * taps + i / columns / depth] = operands_[kW][i];
    }
    for (const bool out_first : {false, true}) {
      Operand<uint8_t> packed((bytes + 63) / 64 * 64);
      RunOnce(kY, pool, out_first ? "packed, output channels first" : "packed", [&](ConvCall& call, Operand<Out>&) {
        call.w_out_first = out_first;
        call.w = out_first ? turned.data() : operands_[kW].data();
        ASSERT_TRUE(kernels_.PackW(call, packed.data(), pool).ok());
        ASSERT_TRUE(packed.GuardsHold());
        if (UnpackableW(target, call) > 0) {
          Operand<In> again(sizes_[kW]);
          UnpackW(target, call, packed.data(), again.data());
          ASSERT_TRUE(again.SameBits(out_first ? turned : operands_[kW]));
        }
        call.w_plain = call.w;
        call.w = packed.data();
        call.w_packed = true;
      });
    }
  }

  template <typename Keeps>
  void RunEnded(Keeps keeps, ThreadPool& pool) {
    const std::vector<float> factor(call_.out_channels, 2), summand(call_.out_channels, 1);
    RunOnce(kY, pool, "with an ending", [&](ConvCall& call, Operand<Out>& seen) {
      call.ending.kind = EndingKind::kAffine;
      call.ending.factor = factor.data();
      call.ending.summand = summand.data();
      call.ending.to = seen.data();
      keeps(call, seen, call.y, true);
    });
  }

  KernelSet& kernels_;
  ConvCall call_;
  const double tolerance_;
  std::mt19937 random_;
  std::array<int64_t, 3> sizes_;
  std::vector<Operand<In>> operands_;
  std::vector<double> want_;
};

// Windows of every kind over images of a few pixels, of which most see padding.
std::vector<ConvCall> SmallCases() {
  std::mt19937 random(17);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<unsigned>(high - low + 1));
  };
  constexpr struct {
    int64_t groups, in, out;
  } kChannels[] = {{1, 1, 3}, {1, 3, 8}, {1, 5, 19}, {1, 16, 32}, {1, 33, 70}, {6, 1, 1}, {40, 1, 1}, {3, 2, 5}, {2, 9, 24}};
  std::vector<ConvCall> cases;
  for (int i = 0; i < 150; ++i) {
    std::vector<SpatialDim> dims;
    for (int64_t rank = pick(1, 3); rank > 0; --rank) {
      const int64_t window = pick(1, rank > 2 ? 2 : 4), low = pick(-1, 3), high = pick(-1, 3);
      dims.push_back(Dim(pick(1, 7), window, pick(1, 3), low, high, i % 3 == 0 ? pick(1, 3) : 1, i % 4 == 0 ? pick(1, 2) : 1,
                         pick(0, 3) == 0));
    }
    const auto& [groups, in, out] = kChannels[i % std::size(kChannels)];
    cases.push_back(Make(pick(1, 3), groups * in, groups * out, dims, groups));
  }
  return cases;
}

int64_t Products(const ConvCall& call) {
  const Geometry g = PadRank(call.spatial_rank, call.dims);
  return call.batch * std::max(g.in, g.out) * g.window * (call.in_channels / call.feature_groups) * call.out_channels;
}

TEST_P(ConvSpecial, MultipliesZerosWithKernelsThatAreNotFinite) {
  std::vector<ConvCall> calls = SmallCases();
  for (const std::vector<ConvCall>& more : {Cases(), GroupedCases(), WinogradCases()}) {
    for (const ConvCall& call : more) {
      if (Products(call) < 4'000'000) calls.push_back(call);
    }
  }
  unsigned i = 0;
  for (const ConvCall& call : calls) {
    ThreadPool& pool = i % 3 == 0 ? one_ : i % 3 == 1 ? two_ : Five();
    const double tolerance = call.winograd == UseWinograd::kNever ? 1e-5 : 1e-3;
    for (const Written written : {kX, kW, kY}) {
      SpecialKernels<float, float>(*kernels_, call, DType::kF32, DType::kF32, tolerance, i).Run(written, pool);
      SpecialKernels<BF16, BF16>(*kernels_, call, DType::kBF16, DType::kBF16, 8e-3, i + 1).Run(written, pool);
      switch (i % 4) {
        case 0: SpecialKernels<double, double>(*kernels_, call, DType::kF64, DType::kF64, 1e-13, i).Run(written, pool); break;
        case 1: SpecialKernels<BF16, float>(*kernels_, call, DType::kBF16, DType::kF32, 1e-5, i).Run(written, pool); break;
        case 2: SpecialKernels<F16, F16>(*kernels_, call, DType::kF16, DType::kF16, 1e-3, i).Run(written, pool); break;
        default: SpecialKernels<F16, float>(*kernels_, call, DType::kF16, DType::kF32, 1e-5, i).Run(written, pool);
      }
    }
    ++i;
  }
}

TEST_P(ConvSpecial, MultipliesZerosOfColumns) {
  unsigned i = 0;
  for (const std::vector<ConvCall>& calls : {ByColumns(SmallCases()), ByColumns(Cases())}) {
    for (const ConvCall& call : calls) {
      if (Products(call) >= 4'000'000) continue;
      ThreadPool& pool = i % 3 == 0 ? one_ : i % 3 == 1 ? two_ : Five();
      for (const Written written : {kX, kW, kY}) {
        SpecialKernels<float, float>(*kernels_, call, DType::kF32, DType::kF32, 1e-5, i).Run(written, pool);
      }
      ++i;
    }
  }
  EXPECT_GT(i, 100u);
}

// The plain loops, which alone serve these.
TEST_P(ConvSpecial, MultipliesZerosOfBatchGroups) {
  ConvCall call = Make(4, 2, 6, {Dim(3, 3, 1, 1, 1), Dim(4, 2, 2, 0, 1)});
  call.batch_groups = 2;
  const Geometry g = PadRank(call.spatial_rank, call.dims);
  Operand<float> x(4 * g.in * 2), w(6 * 2 * 6), y(2 * g.out * 6);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = 1;
  for (int64_t i = 0; i < w.size(); ++i) w[i] = 1;
  w[(1 * 2 + 1) * 6 + 4] = INFINITY;  // tap (0, 1), output channel 4
  call.x = x.data();
  call.w = w.data();
  call.y = y.data();
  ASSERT_TRUE(kernels_->Conv(call, two_).ok());
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t pixel = i / 6 % g.out, line = pixel / call.dims[1].out;
    const bool zero = line == 0 || pixel % call.dims[1].out * 2 + 1 >= 4;
    if (i % 6 != 4) {
      EXPECT_TRUE(std::isfinite(y[i])) << "at " << i;
    } else if (zero) {
      EXPECT_TRUE(std::isnan(y[i])) << "at " << i;
    } else {
      EXPECT_EQ(y[i], INFINITY) << "at " << i;
    }
  }
}

// To nearest even, whatever the sums are: next to ties, tiny, infinite, NaN.
TEST_P(ConvSpecial, RoundsSumsToBF16OnceAndAsElsewhere) {
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

TEST_P(ConvSpecial, ServesIntegersAndF16) {
  Check<int32_t, int32_t>(*kernels_, Cases()[2], DType::kI32, DType::kI32, one_, two_, 0);
  Check<F16, F16>(*kernels_, Cases()[4], DType::kF16, DType::kF16, one_, two_, 5e-4);
}

TEST_P(ConvSpecial, SumsIntegersInTheResultsType) {
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

TEST_P(ConvSpecial, KeepsNaNAndInfinityOfHalvesInTheirChannel) {
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

WEFT_EVERY_ISA(ConvSpecial);

}  // namespace
}  // namespace weft::cpu
