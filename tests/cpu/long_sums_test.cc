// Sums of many alike numbers: what one sum takes is bounded, so that it does not drift (docs/accuracy.md).
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "cpu/loop_support.h"
#include "src/ops/build.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/control_programs.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Ints;
using ir::Type;
using ir::Value;
using Vec = std::vector<Value>;

std::vector<std::string> Isas() {
  std::vector<std::string> isas = TestIsas();
  isas.emplace_back("amx-model");
  return isas;
}

HostTensor Alike(DType dtype, const Dims& dims, double value) {
  HostTensor x(dtype, dims);
  for (int64_t i = 0; i < x.count(); ++i) x.SetDouble(i, value);
  return x;
}

// The largest relative distance of all results from `want`.
double Worst(const HostTensor& x, double want) {
  double worst = 0;
  for (int64_t i = 0; i < x.count(); ++i) worst = std::max(worst, std::fabs(x.GetDouble(i) / want - 1));
  return worst;
}

// Of n additions of alike numbers about 64 + log2(n) errors pile up, and half of them at most in one direction.
double BoundOfSums(DType dtype) {
  if (dtype == DType::kF64) return 64 * 0x1p-53;
  if (dtype == DType::kBF16) return 0x1p-8;
  return dtype == DType::kF16 ? 0x1p-11 : 64 * 0x1p-24;
}

struct SumCase {
  Dims dims;
  Ints reduced;
};

TEST(LongSums, OfAlikeNumbersDoNotDrift) {
  const SumCase cases[] = {{{1 << 20, 3}, {0}}, {{3, 1 << 20}, {1}}, {{1000, 1049}, {0, 1}},     {{7, 40000, 5}, {0, 1}},
                           {{400, 3, 701}, {0, 2}}, {{70000, 2, 7}, {0, 2}}, {{50000, 40}, {0}}, {{40, 50000}, {1}}};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const SumCase& at : cases) {
      const auto sums = test::MakeFunction("main", {Type::Tensor(dtype, at.dims)}, [&](Builder& b, const Vec& p) {
        const Value sum = ops::Reduce(b, p[0], ops::Reducer::kSum, at.reduced);
        // A second one that is not of the same elements, and a maximum, which does not cascade.
        const Value squares = ops::Reduce(b, ops::Square(b, p[0]), ops::Reducer::kSum, at.reduced);
        return Vec{sum, squares, ops::Reduce(b, p[0], ops::Reducer::kMax, at.reduced)};
      });
      for (const double value : {0.1, 1.16483}) {
        const HostTensor x = Alike(dtype, at.dims, value);
        const double one = x.GetDouble(0);
        for (const std::string& isa : TestIsas()) {
          SCOPED_TRACE(absl::StrCat(isa, " ", NameOf(dtype), " ", DimsToString(at.dims), " of ", value));
          const auto have = RunOnCpu(TestBackend(), sums, {&x, 1}, isa);
          ASSERT_TRUE(have.ok()) << have.status();
          const double n = static_cast<double>(x.count()) / static_cast<double>((*have)[0].count());
          EXPECT_LE(Worst((*have)[0], n * one), BoundOfSums(dtype));
          EXPECT_LE(Worst((*have)[1], n * one * one), 2 * BoundOfSums(dtype));
          EXPECT_EQ(Worst((*have)[2], one), 0);
        }
      }
    }
  }
}

TEST(LongSums, OfProductsDoNotDrift) {
  struct Shape {
    int64_t m, n;
    bool a_columns, b_columns;
  };
  constexpr int64_t k = 300'007;
  const Shape shapes[] = {{1, 4, false, false}, {1, 4, false, true}, {4, 1, false, false}, {8, 3, true, false}, {20, 17, false, false}, {20, 17, true, true}, {2, 40, false, false}};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const Shape& at : shapes) {
      const Dims a = at.a_columns ? Dims{k, at.m} : Dims{at.m, k}, c = at.b_columns ? Dims{at.n, k} : Dims{k, at.n};
      const auto product = test::MakeFunction("main", {Type::Tensor(dtype, a), Type::Tensor(dtype, c)}, [&](Builder& b, const Vec& p) {
        const Ints none, left = {at.a_columns ? 0 : 1}, right = {at.b_columns ? 1 : 0};
        const Value y = ops::Call(b, ops::kOp_dot_general, {p[0], p[1]}, {none, none, left, right});
        return Vec{y, ops::Maximum(b, y, ops::FullLike(b, y, 1))};
      });
      const HostTensor operands[] = {Alike(dtype, a, 1), Alike(dtype, c, 0.1)};
      const double want = static_cast<double>(k) * operands[1].GetDouble(0);
      for (const std::string& isa : Isas()) {
        SCOPED_TRACE(absl::StrCat(isa, " ", NameOf(dtype), " ", at.m, "x", k, "x", at.n));
        const auto have = RunOnCpu(TestBackend(), product, operands, isa);
        ASSERT_TRUE(have.ok()) << have.status();
        const double bound = dtype == DType::kF64 ? 512 * 0x1p-53 : dtype == DType::kF32 ? 512 * 0x1p-24 : 0x1p-8;
        EXPECT_LE(Worst((*have)[0], want), bound);
        EXPECT_LE(Worst((*have)[1], want), bound);
      }
    }
  }
}

TEST(LongSums, OfLargeWindowsDoNotDrift) {
  struct Case {
    Dims dims;
    Ints window, padding;
  };
  const Case cases[] = {{{1, 500, 501, 3}, {1, 500, 501, 1}, {}}, {{1, 3, 500, 501}, {1, 1, 500, 501}, {}}, {{2, 700, 5}, {1, 690, 1}, {0, 0, 0, 0, 0, 0}}, {{60000}, {59990}, {}}, {{1, 200, 200, 2}, {1, 199, 199, 1}, {0, 0, 1, 0, 0, 0, 0, 0}}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& at : cases) {
      const auto sums = test::MakeFunction("main", {Type::Tensor(dtype, at.dims)}, [&](Builder& b, const Vec& p) {
        const Ints ones(at.dims.size(), 1);
        Ints padding(2 * at.dims.size(), 0);
        std::ranges::copy(at.padding, padding.begin());
        return Vec{ops::Call(b, ops::kOp_reduce_window, {p[0]}, {at.window, static_cast<int64_t>(ops::Reducer::kSum), ones, ones, ones, padding})};
      });
      const HostTensor x = Alike(dtype, at.dims, 0.1);
      int64_t taps = 1;
      for (const int64_t size : at.window) taps *= size;
      for (const std::string& isa : TestIsas()) {
        SCOPED_TRACE(absl::StrCat(isa, " ", NameOf(dtype), " ", DimsToString(at.dims)));
        const auto have = RunOnCpu(TestBackend(), sums, {&x, 1}, isa);
        ASSERT_TRUE(have.ok()) << have.status();
        const HostTensor& y = (*have)[0];
        // The last one lies where there is no padding.
        EXPECT_LE(std::fabs(y.GetDouble(y.count() - 1) / (static_cast<double>(taps) * x.GetDouble(0)) - 1), taps > 1024 || dtype == DType::kBF16 ? BoundOfSums(dtype) : 512 * 0x1p-24);
      }
    }
  }
}

// Two kinds of keys, one of which has a value: the sums of weights and of values round each in their own way.
TEST(LongSums, OfAttentionDoNotDrift) {
  constexpr int64_t n = 1 << 19;
  const double score = -0.3;
  for (const int64_t queries : {1, 40}) {
    const auto y = test::MakeFunction("main", {Type::Tensor(DType::kF32, {1, queries, 4}), Type::Tensor(DType::kF32, {1, n, 4}), Type::Tensor(DType::kF32, {1, n, 4})}, [&](Builder& b, const Vec& p) {
      return Vec{ops::Call(b, ops::kOp_scaled_dot_product_attention, {p[0], p[1], p[2], Value()})};
    });
    HostTensor keys = Alike(DType::kF32, {1, n, 4}, 0), values = keys;
    for (int64_t i = 0; i < keys.count(); ++i) {
      if (i / 4 % 2 != 0) continue;
      keys.SetDouble(i, score / 2);  // times 4 elements of the query, which are 1, by the square root of 4
      values.SetDouble(i, 0.1);
    }
    const double weight = std::exp(2 * keys.GetDouble(0)), want = values.GetDouble(0) * weight / (1 + weight);
    const HostTensor arguments[] = {Alike(DType::kF32, {1, queries, 4}, 1), keys, values};
    for (const std::string& isa : TestIsas()) {
      SCOPED_TRACE(absl::StrCat(isa, " ", queries));
      const auto have = RunOnCpu(TestBackend(), y, arguments, isa);
      ASSERT_TRUE(have.ok()) << have.status();
      EXPECT_LE(Worst((*have)[0], want), (1100 + n / 512.0) * 0x1p-24);
    }
  }
}

TEST(LongSums, OfConvolutionsDriftLittle) {
  constexpr int64_t n = 300'007;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto y = test::MakeFunction("main", {Type::Tensor(dtype, {1, n, 1}), Type::Tensor(dtype, {n, 1, 3})}, [&](Builder& b, const Vec& p) {
      return Vec{ops::Call(b, ops::kOp_conv, {p[0], p[1]})};
    });
    const HostTensor arguments[] = {Alike(dtype, {1, n, 1}, 1), Alike(dtype, {n, 1, 3}, 0.1)};
    for (const std::string& isa : Isas()) {
      SCOPED_TRACE(absl::StrCat(isa, " ", NameOf(dtype)));
      const auto have = RunOnCpu(TestBackend(), y, arguments, isa);
      ASSERT_TRUE(have.ok()) << have.status();
      const double bound = (2400 + n / 2304.0) * 0x1p-24;
      EXPECT_LE(Worst((*have)[0], static_cast<double>(n) * arguments[1].GetDouble(0)), dtype == DType::kBF16 ? 0x1p-8 : bound);
    }
  }
}

// A scatter adds many updates to one place, as the gradient of an embedding does for a frequent word: rows, elements, and rows
// that overlap.
TEST(LongSums, OfScatteredUpdatesDoNotDrift) {
  constexpr int64_t n = 1 << 18;
  struct Case {
    Dims operand, updates;
    Ints window, inserted;
  };
  const Case cases[] = {{{3, 5}, {n, 5}, {1}, {0}}, {{3}, {n}, {}, {0}}, {{9, 2}, {n, 4, 2}, {1, 2}, {}}};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const Case& at : cases) {
      const auto sums = test::MakeFunction("main", {Type::Tensor(dtype, at.updates), Type::Tensor(dtype, at.operand)}, [&](Builder& b, const Vec& p) {
        // All updates go to row 1, but that every seventh one goes to row 2.
        const Value number = ops::Iota(b, DType::kI32, {n}, 0);
        const Value seventh = ops::Compare(b, ops::Direction::kEq, ops::Call(b, ops::kOp_rem, {number, ops::FullLike(b, number, 7)}), 0);
        const Value rows = ops::Add(b, ops::Convert(b, seventh, DType::kI32), 1);
        return Vec{ops::Call(b, ops::kOp_scatter, {p[1], rows, p[0]}, {at.window, at.inserted, Ints{0}, int64_t{1}, int64_t{0}})};
      });
      const HostTensor arguments[] = {Alike(dtype, at.updates, 0.1), Alike(dtype, at.operand, 0)};
      const double one = arguments[0].GetDouble(0);
      const int64_t seventh = (n + 6) / 7, width = CountOf(at.operand) / at.operand[0];
      for (const std::string& isa : TestIsas()) {
        SCOPED_TRACE(absl::StrCat(isa, " ", NameOf(dtype), " ", DimsToString(at.updates)));
        const auto have = RunOnCpu(TestBackend(), sums, arguments, isa);
        ASSERT_TRUE(have.ok()) << have.status();
        const double unit = dtype == DType::kF64 ? 0x1p-53 : dtype == DType::kBF16 ? 0x1p-8 : 0x1p-24;
        for (int64_t i = 0; i < (*have)[0].count(); ++i) {
          const int64_t row = i / width, tall = at.inserted.empty() ? at.updates[1] : 1;
          const int64_t first = row >= 1 && row < 1 + tall ? n - seventh : 0, second = row >= 2 && row < 2 + tall ? seventh : 0;
          const double want = static_cast<double>(first + second) * one;
          ASSERT_NEAR((*have)[0].GetDouble(i), want, 4 * unit * want) << "at " << i;
        }
      }
    }
  }
}

TEST(LongSums, OfScatteredUpdatesKeepWhatIsNotFinite) {
  constexpr int64_t n = 10'000;
  const auto sums = test::MakeFunction("main", {Type::Tensor(DType::kF32, {n}), Type::Tensor(DType::kF32, {5})}, [&](Builder& b, const Vec& p) {
    const Value number = ops::Iota(b, DType::kI32, {n}, 0);
    const Value rows = ops::Call(b, ops::kOp_rem, {number, ops::FullLike(b, number, 5)});
    return Vec{ops::Call(b, ops::kOp_scatter, {p[1], rows, p[0]}, {Ints{}, Ints{0}, Ints{0}, int64_t{1}, int64_t{0}})};
  });
  HostTensor updates = Alike(DType::kF32, {n}, 1), before = Alike(DType::kF32, {5}, 0);
  updates.SetDouble(5000, HUGE_VAL);
  updates.SetDouble(5001, -HUGE_VAL);
  updates.SetDouble(5002, std::nan(""));
  updates.SetDouble(5003, HUGE_VAL);
  updates.SetDouble(5013, -HUGE_VAL);
  before.SetDouble(4, HUGE_VAL);
  const HostTensor arguments[] = {updates, before};
  const double want[] = {HUGE_VAL, -HUGE_VAL, NAN, NAN, HUGE_VAL};
  for (const std::string& isa : TestIsas()) {
    const auto have = RunOnCpu(TestBackend(), sums, arguments, isa);
    ASSERT_TRUE(have.ok()) << have.status();
    for (int64_t i = 0; i < 5; ++i) {
      const double got = (*have)[0].GetDouble(i);
      EXPECT_TRUE(got == want[i] || (std::isnan(got) && std::isnan(want[i]))) << i << ": " << got;
    }
  }
}

// Cutting rows into blocks is a matter of their length: rows that lie across memory have the bits of those that lie along it.
TEST(LongSums, HaveTheSameBitsInBothOrders) {
  for (const auto& [rows, outer, length] : {std::array<int64_t, 3>{5, 1, 20011}, {17, 3, 5003}, {33, 400, 37}, {6, 9001, 3}}) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      const int64_t count = rows * outer * length;
      std::mt19937_64 random(5);
      std::normal_distribution<double> values;
      HostTensor along(dtype, {count}), across(dtype, {count});
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < outer * length; ++i) {
          const double x = values(random);
          along.SetDouble(r * outer * length + i, x);
          across.SetDouble(i * rows + r, x);
        }
      }
      for (const CpuTarget& target : TestTargets()) {
        SCOPED_TRACE(absl::StrCat(NameOf(target.isa), " ", NameOf(dtype), " ", rows, "x", outer, "x", length));
        const Jit jit(target);
        HostTensor sums[2] = {HostTensor(dtype, {rows}), HostTensor(dtype, {rows})};
        for (const bool turned : {false, true}) {
          LoopKernel k;
          LoopBuilder b(k);
          k.dims = {Dim{rows}, Dim{outer, true}, Dim{length, true}};
          k.dims[2].apart = true;
          k.buffers = 2;
          const int64_t step = turned ? rows : 1, row = turned ? 1 : outer * length;
          k.stores.push_back({{1, dtype, 0, {1, 0, 0}}, b.Reduce(ops::Reducer::kSum, b.Load({0, dtype, 0, {row, length * step, step}})).id, true});
          k.vector_reduces = true;
          Finish(k);
          ASSERT_EQ(k.turned, turned);
          RunLoop(jit, k, {(turned ? across : along).mutable_bytes().data(), sums[turned].mutable_bytes().data()});
        }
        EXPECT_TRUE(std::ranges::equal(sums[0].bytes(), sums[1].bytes()));
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
