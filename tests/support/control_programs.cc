// See control_programs.h.
#include "tests/support/control_programs.h"

#include <gtest/gtest.h>
#include "src/autodiff/gradient.h"
#include "src/ops/build.h"

namespace weft::test {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using ir::Values;

constexpr DType kF = DType::kF32;
constexpr DType kI = DType::kI32;

const Type kCount = Type::Scalar(kI), kNumber = Type::Scalar(kF), kRow = Type::Tensor(kF, {5});

HostTensor Tensor(DType dtype, Dims dims, const std::vector<double>& values) {
  HostTensor t(dtype, std::move(dims));
  for (int64_t i = 0; i < t.count(); ++i) t.SetDouble(i, values[static_cast<size_t>(i)]);
  return t;
}

OpProgram Program(std::string name, std::string group, Ref<const Function> function, std::vector<HostTensor> inputs,
                  size_t forward_results) {
  OpProgram program{.name = std::move(name), .group = std::move(group), .inputs = std::move(inputs)};
  program.forward_results = forward_results;
  program.module.functions.push_back(std::move(function));
  return program;
}

}  // namespace

Ref<const Function> MakeFunction(std::string name, const std::vector<Type>& types, const Formula& formula) {
  std::vector<Value> parameters;
  for (const Type& type : types) parameters.push_back(Value{ir::Node::Create(ops::kOp_parameter, {}, {}, {type}), 0});
  Builder b;
  std::vector<Value> results = formula(b, parameters);
  EXPECT_TRUE(b.ok()) << b.status();
  return Function::Create(std::move(name), std::move(parameters), std::move(results));
}

Values While(Builder& b, const Ref<const Function>& condition, const Ref<const Function>& body, Values operands) {
  return ops::CallAll(b, ops::kOp_while, std::move(operands), {}, std::vector{condition, body});
}

Ref<const Function> Below(std::vector<Type> carried) {
  carried.push_back(kCount);
  return MakeFunction("below", carried, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Compare(b, ops::Direction::kLt, p.front(), p.back())};
  });
}

Ref<const Function> Fibonacci() {
  const auto body = MakeFunction("next", {kCount, kCount, kCount}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Add(b, p[0], 1), p[2], ops::Add(b, p[1], p[2])};
  });
  const auto condition = Below({kCount, kCount, kCount});
  return MakeFunction("main", {kCount}, [&](Builder& b, const std::vector<Value>& p) {
    const Values all = While(b, condition, body,
                             {ops::Scalar(b, kI, 0), ops::Scalar(b, kI, 0), ops::Scalar(b, kI, 1), p[0]});
    return std::vector<Value>(all.begin(), all.end());
  });
}

Ref<const Function> NestedLoops() {
  const auto inner_body = MakeFunction("inner", {kCount, kCount}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Add(b, p[0], 1), ops::Add(b, p[1], p[0])};
  });
  const auto below = Below({kCount, kCount});
  const auto outer_body = MakeFunction("outer", {kCount, kCount}, [&](Builder& b, const std::vector<Value>& p) {
    const Values sums = While(b, below, inner_body, {ops::Scalar(b, kI, 0), p[1], p[0]});
    return std::vector{ops::Add(b, p[0], 1), sums[1]};
  });
  return MakeFunction("main", {kCount}, [&](Builder& b, const std::vector<Value>& p) {
    return std::vector{While(b, below, outer_body, {ops::Scalar(b, kI, 0), ops::Scalar(b, kI, 0), p[0]})[1]};
  });
}

Ref<const Function> Branches() {
  const auto twice = MakeFunction("twice", {kRow}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Add(b, p[0], p[0]), ops::Scalar(b, kI, 0)};
  });
  const auto product = MakeFunction("product", {kRow, kRow}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[0], p[1]), ops::Scalar(b, kI, 1)};
  });
  const auto constant = MakeFunction("constant", {}, [](Builder& b, const std::vector<Value>&) {
    return std::vector{ops::Full(b, kF, {5}, -1), ops::Scalar(b, kI, 2)};
  });
  return MakeFunction("main", {kCount, kRow, kRow}, [&](Builder& b, const std::vector<Value>& p) {
    const Values all = ops::CallAll(b, ops::kOp_case, {p[0], p[1], p[1], p[2]}, {}, std::vector{twice, product, constant});
    return std::vector<Value>(all.begin(), all.end());
  });
}

Ref<const Function> Piecewise() {
  const auto positive = MakeFunction("positive", {kNumber, kNumber}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[0], p[1])};
  });
  const auto callee = MakeFunction("callee", {kNumber, kNumber}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Add(b, ops::Exp(b, p[0]), ops::Mul(b, p[1], p[1]))};
  });
  const auto negative = MakeFunction("negative", {kNumber, kNumber}, [&](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Call(b, ops::kOp_call, {p[0], p[1]}, {}, {&callee, 1})};
  });
  return MakeFunction("main", {kNumber, kNumber}, [&](Builder& b, const std::vector<Value>& p) {
    const Value pred = ops::Compare(b, ops::Direction::kGt, p[0], 0);
    return std::vector{
        ops::Call(b, ops::kOp_if, {pred, p[0], p[1], p[0], p[1]}, {}, std::vector{positive, negative})};
  });
}

absl::StatusOr<std::vector<OpProgram>> ControlPrograms() {
  std::vector<OpProgram> programs;
  const auto count = [](double n) { return Tensor(kI, {}, {n}); };
  for (const double n : {0, 1, 20}) {
    programs.push_back(Program(absl::StrCat("while: fibonacci ", n), "while", Fibonacci(), {count(n)}, 3));
    programs.push_back(Program(absl::StrCat("while: nested ", n), "while", NestedLoops(), {count(n)}, 1));
  }
  const HostTensor x = Tensor(kF, {5}, {1, 2, 3, 4, 5}), y = Tensor(kF, {5}, {2, 2, 2, 2, -2});
  const bool wanted[] = {false, true, true}, both[] = {true, true};
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> of_case, autodiff::RegionGradient(*Branches(), wanted));
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> of_if, autodiff::RegionGradient(*Piecewise(), both));
  for (const double index : {0, 1, 2, 3, -1}) {
    programs.push_back(Program(absl::StrCat("case ", index), "case", Branches(), {count(index), x, y}, 2));
    programs.push_back(Program(absl::StrCat("case ", index, " gradient"), "case", of_case, {count(index), x, y, x}, 0));
  }
  for (const double at : {-1.5, 0.0, 2.0}) {
    const HostTensor a = Tensor(kF, {}, {at}), b = Tensor(kF, {}, {3}), seed = Tensor(kF, {}, {2});
    programs.push_back(Program(absl::StrCat("if ", at), "if", Piecewise(), {a, b}, 1));
    programs.push_back(Program(absl::StrCat("if ", at, " gradient"), "if", of_if, {a, b, seed}, 0));
  }
  return programs;
}

}  // namespace weft::test
