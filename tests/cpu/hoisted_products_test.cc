// Loops whose products have left them give the bits that they gave, on every instruction set, forwards and backwards.
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

struct Case {
  int64_t runs, rows, depth, width;
  DType dtype = DType::kF32;
  bool reverse = false;
  int64_t keep_every = 1;
};

// (h, xs, w, u, bias) -> h and all h of h <- tanh(x w + h u + bias). `held`: behind a barrier in the body, so that nobody sees
// that w is the same in all runs.
Ref<const Function> Recurrent(const Case& c, bool held) {
  const Type h = Type::Tensor(c.dtype, {c.rows, c.width}), x = Type::Tensor(c.dtype, {c.rows, c.depth}),
             w = Type::Tensor(c.dtype, {c.depth, c.width}), u = Type::Tensor(c.dtype, {c.width, c.width}),
             bias = Type::Tensor(c.dtype, {c.width});
  const auto body = MakeFunction("cell", {h, x, w, u, bias}, [&](Builder& b, const Vec& p) {
    const Value matrix = held ? ops::Call(b, ops::kOp_optimization_barrier, {p[2]}) : p[2];
    const Value sum = ops::Add(b, ops::Call(b, ops::kOp_matmul, {p[1], matrix}), ops::Call(b, ops::kOp_matmul, {p[0], p[3]}));
    const Value next = ops::Tanh(b, ops::Call(b, ops::kOp_add, {sum, p[4]}));
    return Vec{next, next};
  });
  return MakeFunction("main", {h, Type::Tensor(c.dtype, {c.runs, c.rows, c.depth}), w, u, bias}, [&](Builder& b, const Vec& p) {
    // length, carried, scanned, reverse, indexed, counted, kept, unroll, keep_every
    const Values all = ops::CallAll(b, ops::kOp_scan, {p[0], p[1], p[2], p[3], p[4]},
                                    {c.runs, int64_t{1}, int64_t{1}, int64_t{c.reverse}, int64_t{0}, int64_t{0}, int64_t{1}, int64_t{1},
                                     c.keep_every},
                                    {&body, 1});
    return Vec{all[0], all[1]};
  });
}

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

// How many entries of the program's first list are products.
int64_t ProductsBefore(const Ref<const Function>& function) {
  const auto module = Prepared(TestBackend(), function);
  EXPECT_TRUE(module.ok()) << module.status();
  const auto text = TestBackend().Explain(*module, {});
  EXPECT_TRUE(text.ok()) << text.status();
  int64_t found = 0;
  for (size_t at = 0; (at = text->find("\n  %", at)) != std::string::npos; ++at) {
    const std::string line = text->substr(at + 1, text->find('\n', at + 1) - at);
    found += line.find("dot_general(") != std::string::npos;
  }
  return found;
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

const Case kCases[] = {{5, 31, 24, 40},
                       {3, 9, 7, 5},
                       {2, 30, 33, 70},
                       {4, 13, 500, 20, DType::kF32, true},
                       {4, 17, 24, 24, DType::kF64},
                       {4, 16, 40, 64, DType::kBF16},
                       {3, 20, 41, 35, DType::kF16, true}};

TEST(HoistedProducts, AreTheBitsOfProductsInTheLoop) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << NameOf(c.dtype) << " " << c.runs << " runs of " << c.rows << " x " << c.depth << " x " << c.width);
    EXPECT_EQ(ProductsBefore(Recurrent(c, false)), 1);
    EXPECT_EQ(ProductsBefore(Recurrent(c, true)), 0);
    ExpectSameBits(Recurrent(c, false), Recurrent(c, true));
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
    const auto text = TestBackend().Explain(*module, {});
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_NE(text->find(rows < 32 && rows > 8 ? "  gemm then loop" : "  gemm_pair then loop"), std::string::npos) << *text;
    ExpectSameBits(Lstm(4, rows, width, false), Lstm(4, rows, width, true));
    const auto gradient = GradientOf(Lstm(4, rows, width, false), {true, true, true, true, true, true});
    ExpectSameBits(gradient, GradientOf(Lstm(4, rows, width, true), {true, true, true, true, true, true}));
  }
}

TEST(HoistedProducts, StayInLoopsOfFewRowsAndOfMany) {
  for (const Case& c : {Case{5, 8, 24, 40}, Case{5, 32, 24, 40}, Case{5, 20, 24, 1}}) {
    EXPECT_EQ(ProductsBefore(Recurrent(c, false)), 0);
    ExpectSameBits(Recurrent(c, false), Recurrent(c, true));
  }
  const auto none = Recurrent({0, 32, 24, 40}, false);
  EXPECT_EQ(ProductsBefore(none), 0);
  const auto results = RunOnCpu(TestBackend(), none, ArgumentsOf(*none));
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0], ArgumentsOf(*none)[0]);
}

TEST(HoistedProducts, GradientsHaveTheSameBits) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << NameOf(c.dtype) << " " << c.rows << " x " << c.depth << " x " << c.width);
    const auto function = GradientOf(Recurrent(c, false), {true, true, true, true, true});
    ExpectSameBits(function, GradientOf(Recurrent(c, true), {true, true, true, true, true}));
    Case segments = c;
    segments.keep_every = 2;
    const auto less = GradientOf(Recurrent(segments, false), {true, true, true, true, true});
    const std::vector<HostTensor> arguments = ArgumentsOf(*function);
    const auto have = RunOnCpu(TestBackend(), less, arguments), want = RunOnCpu(TestBackend(), function, arguments);
    ASSERT_TRUE(have.ok() && want.ok()) << have.status() << want.status();
    for (size_t r = 0; r < want->size(); ++r) {
      EXPECT_TRUE(std::ranges::equal((*have)[r].bytes(), (*want)[r].bytes())) << "segments: result " << r;
    }
  }
}

}  // namespace
}  // namespace weft::cpu
