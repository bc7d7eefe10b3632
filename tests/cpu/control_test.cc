// Control flow in programs: while, case, if and call on the CPU and on the reference, their rules, gradients and text.
#include <gmock/gmock.h>

#include "src/autodiff/gradient.h"
#include "src/ir/stablehlo.h"
#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "tests/cpu/run_all.h"
#include "tests/support/control_programs.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using ir::Values;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr DType kF = DType::kF32;
constexpr DType kI = DType::kI32;

using test::Below;
using test::Branches;
using test::Fibonacci;
using test::MakeFunction;
using test::NestedLoops;
using test::Piecewise;
using test::While;
const Type kCount = Type::Scalar(kI), kNumber = Type::Scalar(kF), kRow = Type::Tensor(kF, {5});

HostTensor Tensor(DType dtype, Dims dims, const std::vector<double>& values) {
  HostTensor t(dtype, std::move(dims));
  for (int64_t i = 0; i < t.count(); ++i) t.SetDouble(i, values[static_cast<size_t>(i)]);
  return t;
}
HostTensor I(double value) { return Tensor(kI, {}, {value}); }
HostTensor F(double value) { return Tensor(kF, {}, {value}); }
std::vector<double> Elements(const HostTensor& t) {
  std::vector<double> values;
  for (int64_t i = 0; i < t.count(); ++i) values.push_back(t.GetDouble(i));
  return values;
}

TEST(Control, AWhileLoopCarriesValuesThatChangePlaces) {
  for (const auto& [n, a, b] : {std::array{0, 0, 1}, {1, 1, 1}, {2, 1, 2}, {20, 6765, 10946}, {-3, 0, 1}}) {
    const std::vector<HostTensor> results = RunAll(Fibonacci(), {I(n)});
    EXPECT_EQ(results[0].GetInt(0), std::max(n, 0));
    EXPECT_EQ(results[1].GetInt(0), a);
    EXPECT_EQ(results[2].GetInt(0), b);
  }
}

// x <- w x / 2 + c, n times; w and c are captures, c is also what an equal literal outside is.
TEST(Control, BodiesUseWhatIsAroundThem) {
  const Type square = Type::Tensor(kF, {5, 5});
  const auto body = MakeFunction("step", {kCount, kRow, square, kRow}, [](Builder& b, const std::vector<Value>& p) {
    const Value x = ops::Reshape(b, p[1], {5, 1});
    const Value y = ops::Reshape(b, ops::Call(b, ops::kOp_matmul, {p[2], x}), {5});
    return std::vector{ops::Add(b, p[0], ops::Scalar(b, kI, 1)),
                       ops::Add(b, ops::Mul(b, y, ops::Full(b, kF, {5}, 0.5)), p[3])};
  });
  const auto condition = Below({kCount, kRow});
  const auto main = MakeFunction("main", {kRow, square, kRow, kCount}, [&](Builder& b, const std::vector<Value>& p) {
    const Value half = ops::Full(b, kF, {5}, 0.5);
    const Values all = While(b, condition, body, {ops::Scalar(b, kI, 0), ops::Mul(b, p[0], half), p[3], p[1], p[2]});
    return std::vector<Value>{ops::Mul(b, all[1], half), all[0]};
  });
  std::vector<double> w(25), x = {1, 2, 3, 4, 5};
  for (int i = 0; i < 25; ++i) w[static_cast<size_t>(i)] = (i * 7 % 5 - 2) / 4.0;
  const auto results = RunAll(main, {Tensor(kF, {5}, x), Tensor(kF, {5, 5}, w), Tensor(kF, {5}, {1, 0, -1, 0, 1}), I(3)});
  for (double& v : x) v /= 2;
  for (int n = 0; n < 3; ++n) {
    std::vector<double> y(5);
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j < 5; ++j) y[i] += w[i * 5 + j] * x[j];
      y[i] = y[i] / 2 + std::array{1, 0, -1, 0, 1}[i];
    }
    x = y;
  }
  for (double& v : x) v /= 2;
  EXPECT_EQ(Elements(results[0]), x);  // all of it in powers of two
  EXPECT_EQ(results[1].GetInt(0), 3);
}

TEST(Control, LoopsNest) {
  for (int n : {0, 1, 2, 6, 30}) {
    int want = 0;
    for (int i = 0; i < n; ++i) want += i * (i - 1) / 2;
    EXPECT_EQ(RunAll(NestedLoops(), {I(n)})[0].GetInt(0), want);
  }
}

// Results that are a parameter, a literal, the same value twice; an empty tensor.
TEST(Control, CarriesWhatNothingComputes) {
  const Type empty = Type::Tensor(kF, {0, 3});
  const auto body = MakeFunction("body", {kCount, kRow, kRow, kRow, empty}, [](Builder& b, const std::vector<Value>& p) {
    const Value next = ops::Add(b, p[0], 1);
    return std::vector{next, p[1], p[1], ops::Full(b, kF, {5}, 7), p[4]};
  });
  const auto main = MakeFunction("main", {kCount, kRow, kRow, empty}, [&](Builder& b, const std::vector<Value>& p) {
    const Values all = While(b, Below({kCount, kRow, kRow, kRow, empty}), body,
                             {ops::Scalar(b, kI, 0), p[1], p[2], p[2], p[3], p[0]});
    return std::vector<Value>(all.begin(), all.end());
  });
  const HostTensor x = Tensor(kF, {5}, {1, 2, 3, 4, 5}), y = Tensor(kF, {5}, {5, 5, 5, 5, 5});
  const HostTensor nothing(kF, {0, 3});
  auto results = RunAll(main, {I(0), x, y, nothing});
  EXPECT_EQ(Elements(results[2]), Elements(y));
  EXPECT_EQ(Elements(results[3]), Elements(y));
  results = RunAll(main, {I(4), x, y, nothing});
  EXPECT_EQ(results[0].GetInt(0), 4);
  EXPECT_EQ(Elements(results[2]), Elements(x));
  EXPECT_EQ(Elements(results[3]), std::vector<double>(5, 7));
}

TEST(Control, ACaseRunsTheOneThatIsChosenAndTheLastWhereThereIsNone) {
  const HostTensor x = Tensor(kF, {5}, {1, 2, 3, 4, 5}), y = Tensor(kF, {5}, {2, 2, 2, 2, -2});
  for (const int index : {0, 1, 2, 3, -1, 1 << 30}) {
    const auto results = RunAll(Branches(), {I(index), x, y});
    const int chosen = index >= 0 && index < 3 ? index : 2;
    EXPECT_EQ(results[1].GetInt(0), chosen);
    EXPECT_EQ(results[0].GetDouble(4), (std::array{10, -10, -1}[static_cast<size_t>(chosen)]));
  }
}

TEST(Control, AnIfRunsOneOfTwoAndACallIsItsFunction) {
  EXPECT_EQ(RunAll(Piecewise(), {F(2), F(3)})[0].GetDouble(0), 6);
  EXPECT_EQ(RunAll(Piecewise(), {F(0), F(3)})[0].GetDouble(0), 10);
}

TEST(Control, GradientsGoThroughTheBranchThatRan) {
  const Ref<const Function> main = Piecewise();
  const bool wanted[] = {true, true};
  const auto gradient = autodiff::RegionGradient(*main, wanted);
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  auto results = RunAll(*gradient, {F(2), F(3), F(1)});
  EXPECT_EQ(results[0].GetDouble(0), 3);
  EXPECT_EQ(results[1].GetDouble(0), 2);
  results = RunAll(*gradient, {F(0), F(3), F(2)});
  EXPECT_EQ(results[0].GetDouble(0), 2);   // 2 exp(0)
  EXPECT_EQ(results[1].GetDouble(0), 12);  // 2 * 2 y
  // Of one capture alone, and of the case, whose branches see different ones.
  const bool first[] = {false, true, false};
  const auto of_case = autodiff::RegionGradient(*Branches(), first);
  ASSERT_TRUE(of_case.ok()) << of_case.status();
  const HostTensor x = Tensor(kF, {5}, {1, 2, 3, 4, 5}), y = Tensor(kF, {5}, {2, 2, 2, 2, -2});
  const HostTensor seed = Tensor(kF, {5}, {1, 1, 1, 1, 1});
  EXPECT_EQ(Elements(RunAll(*of_case, {I(0), x, y, seed})[0]), std::vector<double>(5, 2));
  EXPECT_EQ(Elements(RunAll(*of_case, {I(1), x, y, seed})[0]), Elements(y));
  EXPECT_EQ(Elements(RunAll(*of_case, {I(2), x, y, seed})[0]), std::vector<double>(5, 0));
  // Second order: of the gradient's gradient only exp(x) is left below 0.
  const bool x_only[] = {true, false, false};
  const auto second = autodiff::RegionGradient(**gradient, x_only);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(RunAll(*second, {F(0), F(3), F(1), F(1), F(0)})[0].GetDouble(0), 1);
  EXPECT_EQ(RunAll(*second, {F(2), F(3), F(1), F(1), F(0)})[0].GetDouble(0), 0);
  const bool counted[] = {true};
  const auto loop = MakeFunction("main", {kNumber}, [](Builder& b, const std::vector<Value>& p) {
    const auto condition = MakeFunction("c", {kNumber}, [](Builder& b, const std::vector<Value>& q) {
      return std::vector{ops::Compare(b, ops::Direction::kLt, q[0], 10)};
    });
    const auto body = MakeFunction("b", {kNumber}, [](Builder& b, const std::vector<Value>& q) {
      return std::vector{ops::Add(b, q[0], q[0])};
    });
    return std::vector{While(b, condition, body, {p[0]})[0]};
  });
  EXPECT_THAT(autodiff::RegionGradient(*loop, counted).status().message(),
              HasSubstr("a loop without a known number of iterations has no reverse-mode gradient"));
}

std::string Refusal(const ir::OpDef& op, Values operands, const std::vector<Ref<const Function>>& functions) {
  Builder b;
  (void)ops::CallAll(b, op, std::move(operands), {}, functions);
  return std::string(b.status().message());
}

TEST(Control, WhatDoesNotFitIsRefusedByName) {
  const Value i = test::NewParameter(kCount), x = test::NewParameter(kRow), flag = test::NewParameter(Type::Scalar(DType::kBool));
  const auto below = Below({kCount});
  const auto next = MakeFunction("next", {kCount}, [](Builder& b, const std::vector<Value>& p) { return std::vector{ops::Add(b, p[0], 1)}; });
  const auto wide = MakeFunction("wide", {kCount}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Convert(b, p[0], kF)};
  });
  const auto none = MakeFunction("none", {kCount}, [](Builder&, const std::vector<Value>&) { return std::vector<Value>(); });
  EXPECT_EQ(Refusal(ops::kOp_while, {i, i}, {below, wide}),
            "while(i32[], i32[]): carried value 0 begins as i32[] and goes on as f32[] (result 0 of the function @wide); they "
            "must be of one type");
  EXPECT_EQ(Refusal(ops::kOp_while, {i}, {below, next}),
            "while(i32[]): 1 values are carried, the functions capture 1 and 0; there are 1 operands");
  EXPECT_EQ(Refusal(ops::kOp_while, {x, i}, {below, next}),
            "while(f32[5], i32[]): carried value 0 begins as f32[5] and goes on as i32[] (result 0 of the function @next); they "
            "must be of one type");
  EXPECT_EQ(Refusal(ops::kOp_while, {i}, {next, next}),
            "while(i32[]): the function @next gives 1 results, the first i32[]; a condition is one bool scalar");
  EXPECT_EQ(Refusal(ops::kOp_while, {i, i}, {below, none}),
            "while(i32[], i32[]): the function @none carries nothing: it has no results");
  EXPECT_EQ(Refusal(ops::kOp_case, {flag, i}, {next}), "case(bool[], i32[]): operand index has dtype bool; allowed are i2 to i64");
  EXPECT_EQ(Refusal(ops::kOp_case, {i}, {}), "case(i32[]): at least one function is needed");
  EXPECT_EQ(Refusal(ops::kOp_if, {flag, i, i}, {next, wide}),
            "if(bool[], i32[], i32[]): result 0 of the function @next is i32[], of @wide f32[]; they must be of one type");
  EXPECT_EQ(Refusal(ops::kOp_if, {flag, i, x}, {next, next}),
            "if(bool[], i32[], f32[5]): parameter 0 of the function @next is i32[]; the operand for it is f32[5]");
  EXPECT_EQ(Refusal(ops::kOp_call, {i, i}, {next}), "call(i32[], i32[]): the function @next has 1 parameters; there are 2 operands");
}

TEST(Control, AnUnrolledScanIsBounded) {
  const auto next = MakeFunction("next", {kNumber}, [](Builder& b, const std::vector<Value>& p) { return std::vector{ops::Add(b, p[0], 1)}; });
  const auto said = [&](int64_t length, int64_t unroll) {
    ir::Attrs attrs;
    attrs.set(ops::ScanAttrs::kLength, length);
    attrs.set(ops::ScanAttrs::kCarried, int64_t{1});
    attrs.set(ops::ScanAttrs::kScanned, int64_t{0});
    attrs.set(ops::ScanAttrs::kUnroll, unroll);
    Builder b;
    (void)ops::CallAll(b, ops::kOp_scan, {test::NewParameter(kNumber)}, std::move(attrs), {&next, 1});
    return std::string(b.status().message());
  };
  EXPECT_EQ(said(1 << 30, 4), "");
  EXPECT_EQ(said(5, 1 << 30), "");
  EXPECT_THAT(said(1 << 30, 1 << 30), HasSubstr("unroll is 1073741824; so many runs of the function @next, of 3 operations each, are more than "
                                                "the 1048576 operations that may be written out"));
}

TEST(Control, PrintsAsStableHloWithCapturesByTheirNames) {
  ir::Module module;
  module.functions.push_back(Fibonacci());
  const auto text = ir::ToStableHlo(module);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("\"stablehlo.while\""));
  // The condition compares what is carried with main's argument.
  EXPECT_THAT(*text, ContainsRegex("stablehlo.compare\"\\(%[0-9]+, %0\\)"));
}

}  // namespace
}  // namespace weft::cpu
