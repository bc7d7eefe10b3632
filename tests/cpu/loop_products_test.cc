// What runs of a loop do with products: gates are computed with the products that they read, rows of stacks are read in place.
#include <array>
#include <random>

#include "src/autodiff/gradient.h"
#include "src/ops/build.h"
#include "tests/cpu/run_all.h"
#include "tests/support/control_programs.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using ir::Values;
using test::MakeFunction;
using Vec = std::vector<Value>;

Ref<const Function> GradientOf(const Ref<const Function>& function, std::initializer_list<bool> wanted) {
  const std::vector<char> list(wanted.begin(), wanted.end());
  const auto gradient = autodiff::RegionGradient(*function, std::span(reinterpret_cast<const bool*>(list.data()), list.size()));
  EXPECT_TRUE(gradient.ok()) << gradient.status();
  return *gradient;
}

std::vector<HostTensor> ArgumentsOf(const Function& function) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> number(-0.5, 0.5);
  std::vector<HostTensor> arguments;
  for (const Value& parameter : function.parameters()) {
    HostTensor& value = arguments.emplace_back(parameter.dtype(), parameter.dims());
    for (int64_t i = 0; i < value.count(); ++i) value.SetDouble(i, number(random));
  }
  return arguments;
}

void ExpectSameBits(const Ref<const Function>& function, const Ref<const Function>& held) {
  const std::vector<HostTensor> arguments = ArgumentsOf(*function);
  for (const std::string& isa : TestIsas()) {
    const auto have = RunOnCpu(TestBackend(), function, arguments, isa), want = RunOnCpu(TestBackend(), held, arguments, isa);
    ASSERT_TRUE(have.ok() && want.ok()) << have.status() << want.status();
    for (size_t r = 0; r < want->size(); ++r) {
      EXPECT_TRUE(std::ranges::equal((*have)[r].bytes(), (*want)[r].bytes())) << isa << ": result " << r;
    }
  }
}

// (h, c, xs, w, u, bias) -> all h of an LSTM. `apart`: a barrier stands between the product of h and the gates.
Ref<const Function> Lstm(int64_t runs, int64_t rows, int64_t width, bool apart) {
  const DType f = DType::kF32;
  const Type h = Type::Tensor(f, {rows, width}), w = Type::Tensor(f, {width, 4 * width}), bias = Type::Tensor(f, {4 * width});
  const auto body = MakeFunction("cell", {h, h, h, w, w, bias}, [&](Builder& b, const Vec& p) {
    Value product = ops::Call(b, ops::kOp_matmul, {p[0], p[4]});
    if (apart) product = ops::Call(b, ops::kOp_optimization_barrier, {product});
    const Value all = ops::Call(b, ops::kOp_add, {ops::Add(b, ops::Call(b, ops::kOp_matmul, {p[2], p[3]}), product), p[5]});
    Vec gates;
    for (int64_t i = 0; i < 4; ++i) gates.push_back(ops::Slice(b, all, {0, i * width}, {rows, (i + 1) * width}, {1, 1}));
    const Value c = ops::Add(b, ops::Mul(b, ops::Sigmoid(b, gates[1]), p[1]), ops::Mul(b, ops::Sigmoid(b, gates[0]), ops::Tanh(b, gates[2])));
    const Value next = ops::Mul(b, ops::Sigmoid(b, gates[3]), ops::Tanh(b, c));
    return Vec{next, c, next};
  });
  return MakeFunction("main", {h, h, Type::Tensor(f, {runs, rows, width}), w, w, bias}, [&](Builder& b, const Vec& p) {
    const Values all = ops::CallAll(b, ops::kOp_scan, {p[0], p[1], p[2], p[3], p[4], p[5]}, {runs, int64_t{2}, int64_t{1}}, {&body, 1});
    return Vec{all[2]};
  });
}

TEST(PartsOfProducts, GatesRunWithTheProductThatTheyRead) {
  for (const auto& [rows, width] : {std::pair{32, 64}, {9, 20}, {3, 64}, {200, 96}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << width);
    const auto module = Prepared(TestBackend(), Lstm(4, rows, width, false));
    ASSERT_TRUE(module.ok()) << module.status();
    const auto text = TestBackend().CodeText(*module, {}, CodeForm::kLoops);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_NE(text->find("  gemm_pair then loop"), std::string::npos) << *text;
    ExpectSameBits(Lstm(4, rows, width, false), Lstm(4, rows, width, true));
    const auto gradient = GradientOf(Lstm(4, rows, width, false), {true, true, true, true, true, true});
    ExpectSameBits(gradient, GradientOf(Lstm(4, rows, width, true), {true, true, true, true, true, true}));
  }
}

// xs [runs, rows, width] -> each row times 2, plus what the runs before it gave.
TEST(RowsOfStacks, AreReadWhereTheyLie) {
  constexpr int64_t kRuns = 5, kRows = 3, kWidth = 70;
  const Type row = Type::Tensor(DType::kF32, {kRows, kWidth}), stack = Type::Tensor(DType::kF32, {kRuns, kRows, kWidth});
  const auto body = MakeFunction("sum", {row, row}, [&](Builder& b, const Vec& p) {
    const Value next = ops::Add(b, p[0], ops::Mul(b, p[1], 2.0));
    return Vec{next, next};
  });
  const auto function = MakeFunction("main", {row, stack}, [&](Builder& b, const Vec& p) {
    const Values all = ops::CallAll(b, ops::kOp_scan, {p[0], p[1]}, {kRuns, int64_t{1}, int64_t{1}}, {&body, 1});
    return Vec{all[1]};
  });
  const auto module = Prepared(TestBackend(), function);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto text = TestBackend().CodeText(*module, {}, CodeForm::kLoops);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->find("find_run"), std::string::npos) << *text;
  EXPECT_EQ(text->find("read_run"), std::string::npos) << *text;
  const std::vector<HostTensor> arguments = ArgumentsOf(*function);
  const auto results = RunOnCpu(TestBackend(), function, arguments);
  ASSERT_TRUE(results.ok()) << results.status();
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    auto sum = static_cast<float>(arguments[0].GetDouble(i));
    for (int64_t run = 0; run < kRuns; ++run) {
      const int64_t at = run * kRows * kWidth + i;
      sum += 2 * static_cast<float>(arguments[1].GetDouble(at));
      ASSERT_EQ((*results)[0].GetDouble(at), sum) << at;
    }
  }
}

// (sum, other, bias, xs, hs, ds) -> sum + all x' d, other + all h' d, bias + all d; a gradient's sums over the runs of a loop.
// `apart`: barriers stand between products and additions.
Ref<const Function> SumsOfRuns(int64_t runs, int64_t rows, int64_t x, int64_t h, int64_t d, bool apart) {
  const DType f = DType::kF32;
  const auto type = [&](int64_t width) { return Type::Tensor(f, {rows, width}); };
  const auto stack = [&](int64_t width) { return Type::Tensor(f, {runs, rows, width}); };
  const Type of_x = Type::Tensor(f, {x, d}), of_h = Type::Tensor(f, {h, d}), bias = Type::Tensor(f, {d});
  const auto body = MakeFunction("sums", {of_x, of_h, bias, type(x), type(h), type(d)}, [&](Builder& b, const Vec& p) {
    const auto sum = [&](const Value& before, const Value& rows) {
      Value product = ops::Call(b, ops::kOp_matmul, {ops::Transpose(b, rows, {1, 0}), p[5]});
      if (apart) product = ops::Call(b, ops::kOp_optimization_barrier, {product});
      return ops::Add(b, before, product);
    };
    return Vec{sum(p[0], p[3]), sum(p[1], p[4]), ops::Add(b, p[2], ops::SumTo(b, p[5], {d}))};
  });
  return MakeFunction("main", {of_x, of_h, bias, stack(x), stack(h), stack(d)}, [&](Builder& b, const Vec& p) {
    const Values all = ops::CallAll(b, ops::kOp_scan, Values(p.begin(), p.end()), {runs, int64_t{3}, int64_t{3}}, {&body, 1});
    return Vec{all[0], all[1], all[2]};
  });
}

TEST(SumsOverRuns, AreOneEntryWhereTheyReadTheSameFactor) {
  for (const auto& [rows, x, h, d] : {std::array<int64_t, 4>{32, 64, 64, 256}, {7, 20, 33, 70}, {1, 12, 12, 16}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows");
    const auto module = Prepared(TestBackend(), SumsOfRuns(4, rows, x, h, d, false));
    ASSERT_TRUE(module.ok()) << module.status();
    const auto text = TestBackend().CodeText(*module, {}, CodeForm::kLoops);
    ASSERT_TRUE(text.ok()) << text.status();
    const size_t at = text->find("  gemm_sums: ");
    ASSERT_NE(at, std::string::npos) << *text;
    EXPECT_EQ(text->find("  gemm_sums: ", at + 1), std::string::npos) << *text;
    EXPECT_EQ(text->find("  gemm: "), std::string::npos) << *text;
    ExpectSameBits(SumsOfRuns(4, rows, x, h, d, false), SumsOfRuns(4, rows, x, h, d, true));
  }
}

// Only what is added as a whole: here the first rows of a product.
TEST(SumsOverRuns, StayProductsOfWhichAPartIsAdded) {
  const auto function = [](bool apart) {
    const Type sum = Type::Tensor(DType::kF32, {12, 64}), x = Type::Tensor(DType::kF32, {9, 20}), d = Type::Tensor(DType::kF32, {9, 64});
    const auto body = MakeFunction("sums", {sum, x, d}, [&](Builder& b, const Vec& p) {
      Value product = ops::Call(b, ops::kOp_matmul, {ops::Transpose(b, p[1], {1, 0}), p[2]});
      if (apart) product = ops::Call(b, ops::kOp_optimization_barrier, {product});
      return Vec{ops::Add(b, p[0], ops::Slice(b, product, {0, 0}, {12, 64}, {1, 1}))};
    });
    const Type xs = Type::Tensor(DType::kF32, {3, 9, 20}), ds = Type::Tensor(DType::kF32, {3, 9, 64});
    return MakeFunction("main", {sum, xs, ds}, [&](Builder& b, const Vec& p) {
      return Vec{ops::CallAll(b, ops::kOp_scan, Values(p.begin(), p.end()), {int64_t{3}, int64_t{1}, int64_t{2}}, {&body, 1})[0]};
    });
  };
  ExpectSameBits(function(false), function(true));
}

// What long rows of K sum is added in pieces, few rows of the result are streamed: they stay products with a loop behind them.
TEST(SumsOverRuns, StayProductsWhereTheyAreLargeOrOfFewRows) {
  for (const auto& [rows, x, h, d] : {std::array<int64_t, 4>{200, 20, 20, 64}, {40, 4, 4, 3000}}) {
    const auto module = Prepared(TestBackend(), SumsOfRuns(3, rows, x, h, d, false));
    ASSERT_TRUE(module.ok()) << module.status();
    const auto text = TestBackend().CodeText(*module, {}, CodeForm::kLoops);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(text->find("gemm_sums"), std::string::npos) << *text;
    ExpectSameBits(SumsOfRuns(3, rows, x, h, d, false), SumsOfRuns(3, rows, x, h, d, true));
  }
}

// [tanh(x), x * y, y] side by side along an axis, and another result of the same size made of a value that stands in one of them.
TEST(PartsOfResults, AreWrittenWhereTheyGo) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t axis : {0, 1, 2}) {
      const auto parts = [&](bool apart) {
        const Type type = Type::Tensor(dtype, {3, 9, 40});
        return MakeFunction("main", {type, type}, [&](Builder& b, const Vec& p) {
          const Value product = ops::Mul(b, p[0], p[1]);
          Values all = {ops::Tanh(b, p[0]), ops::Add(b, product, p[1]), p[1]};
          for (Value& part : all) {
            if (apart) part = ops::Call(b, ops::kOp_optimization_barrier, {part});
          }
          return Vec{ops::Call(b, ops::kOp_concatenate, std::move(all), {axis}), ops::Mul(b, product, p[0])};
        });
      };
      const auto module = Prepared(TestBackend(), parts(false));
      ASSERT_TRUE(module.ok()) << module.status();
      const auto text = TestBackend().CodeText(*module, {}, CodeForm::kLoops);
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_NE(text->find("loop 0, "), std::string::npos) << *text;
      EXPECT_EQ(text->find("loop 1, "), std::string::npos) << *text;
      ExpectSameBits(parts(false), parts(true));
    }
  }
}

}  // namespace
}  // namespace weft::cpu
