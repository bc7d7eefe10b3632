// vmap of loops, branches and calls beside one example after the other: what it shares, what stays counted, and its gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "src/autodiff/gradient.h"
#include "src/ops/build.h"
#include "src/ops/control/counted.h"
#include "tests/support/control_programs.h"
#include "tests/transforms/examples.h"

namespace weft::test {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using ir::Values;
using transforms::kNotMapped;
using Loops = std::vector<std::string_view>;

const Type kCount = Type::Scalar(DType::kI32), kNumber = Type::Scalar(DType::kF32),
           kRow = Type::Tensor(DType::kF32, {5}), kRows = Type::Tensor(DType::kF32, {4, 5});
constexpr ir::Tolerance kClose = {.f32 = 2e-6, .absolute = 1e-6};

std::vector<Value> All(const Values& values) { return {values.begin(), values.end()}; }

// Examples that differ.
HostTensor Some(const Type& type, int example) {
  HostTensor t(type.dtype, type.dims);
  for (int64_t i = 0; i < t.count(); ++i) {
    if (IsFloat(type.dtype)) {
      t.SetDouble(i, std::sin(1.0 + 7.0 * example + 1.3 * static_cast<double>(i)));
    } else {
      t.SetInt(i, (3 * example + 2 * i + 1) % 7);
    }
  }
  return t;
}

// Every choice of parameters that examples differ in, four examples each.
void CheckEveryChoice(const Function& f, int64_t* checked, Loops* loops) {
  const size_t count = f.parameters().size();
  std::vector<Tensors> examples(4);
  for (int e = 0; e < 4; ++e) {
    for (const Value& parameter : f.parameters()) examples[e].push_back(Some(parameter.type(), e));
  }
  for (uint32_t choice = 1; choice < 1u << count; ++choice) {
    SCOPED_TRACE(absl::StrCat("choice ", choice));
    for (const int64_t axis : {0, -1}) {
      std::vector<int64_t> axes;
      for (size_t i = 0; i < count; ++i) axes.push_back((choice >> i & 1) != 0 ? axis : kNotMapped);
      ExpectAsALoop(f, examples, axes, axis, kClose, loops);
    }
    if (::testing::Test::HasFailure()) return;
    ++*checked;
  }
}

Values Scan(Builder& b, const Ref<const Function>& body, Values operands, int64_t length, int64_t carried,
            int64_t scanned, bool reverse, bool indexed, bool counted, bool kept, int64_t keep_every = 1) {
  return ops::CallAll(b, ops::kOp_scan, std::move(operands),
                      {length, carried, scanned, int64_t{reverse}, int64_t{indexed}, int64_t{counted}, int64_t{kept},
                       int64_t{1}, keep_every},
                      {&body, 1});
}

// (first, passed by, rows, capture): carries a row that changes and one that does not, gives slices that depend on everything
// and on nothing but the index.
Ref<const Function> Scanned(bool reverse, int64_t keep_every) {
  const auto body =
      MakeFunction("body", {kCount, kRow, kRow, kRow, kNumber}, [](Builder& b, const std::vector<Value>& p) {
        const Value scale = ops::Add(b, ops::Convert(b, p[0], DType::kF32), p[4]);
        const Value next = ops::Add(b, ops::Mul(b, p[1], ops::BroadcastTo(b, scale, {5})), ops::Mul(b, p[2], p[3]));
        return std::vector{ops::Tanh(b, next), p[2], ops::Mul(b, p[1], p[3]), ops::Mul(b, p[0], p[0])};
      });
  return MakeFunction("scanned", {kRow, kRow, kRows, kNumber}, [&](Builder& b, const std::vector<Value>& p) {
    return All(Scan(b, body, {p[0], p[1], p[2], p[3]}, 4, 2, 1, reverse, true, false, true, keep_every));
  });
}

// (count, first): so many runs, at most 9.
Ref<const Function> CountedLoop() {
  const auto body = MakeFunction("body", {kCount, kNumber}, [](Builder& b, const std::vector<Value>& p) {
    const Value i = ops::Convert(b, p[0], DType::kF32);
    return std::vector{ops::Add(b, ops::Mul(b, p[1], 0.5), i), ops::Mul(b, p[1], i)};
  });
  return MakeFunction("counted", {kCount, kNumber}, [&](Builder& b, const std::vector<Value>& p) {
    return All(Scan(b, body, {p[0], p[1]}, 9, 1, 0, true, true, true, true));
  });
}

// (x, limit, passed by): doubles x until it passes the limit; counts.
Ref<const Function> Doubling() {
  const auto condition =
      MakeFunction("below", {kNumber, kCount, kRow, kNumber}, [](Builder& b, const std::vector<Value>& p) {
        return std::vector{ops::Compare(b, ops::Direction::kLt, ops::Abs(b, p[0]), ops::Add(b, ops::Abs(b, p[3]), 3))};
      });
  const auto body = MakeFunction("twice", {kNumber, kCount, kRow}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Add(b, ops::Add(b, p[0], p[0]), ops::Reduce(b, p[2], ops::Reducer::kMax, {0})),
                       ops::Add(b, p[1], 1), p[2]};
  });
  return MakeFunction("doubling", {kNumber, kNumber, kRow}, [&](Builder& b, const std::vector<Value>& p) {
    const Value x = ops::Add(b, ops::Abs(b, p[0]), 0.25), row = ops::Abs(b, p[2]);
    return All(While(b, condition, body, {x, ops::Scalar(b, DType::kI32, 0), row, p[1]}));
  });
}

TEST(VmapControl, GivesWhatALoopOverExamplesGives) {
  int64_t checked = 0;
  Loops loops;
  for (const auto& f : {Fibonacci(), NestedLoops(), Branches(), Piecewise(), Doubling(), Scanned(false, 1), Scanned(true, 1),
                        Scanned(false, 2), Scanned(true, 3), CountedLoop()}) {
    SCOPED_TRACE(ir::Print(ir::Module{.functions = {f}}));
    CheckEveryChoice(*f, &checked, &loops);
    if (HasFailure()) return;
  }
  // That of counts that differ.
  EXPECT_EQ(std::set<std::string_view>({"weft.scan"}), std::set<std::string_view>(loops.begin(), loops.end()));
  EXPECT_GE(checked, 80);
}

TEST(VmapControl, OfGradientsGivesWhatALoopOverExamplesGives) {
  int64_t checked = 0;
  const auto check = [&](const Function& f, std::vector<bool> wanted) {
    const std::unique_ptr<bool[]> flags(new bool[wanted.size()]);
    std::ranges::copy(wanted, flags.get());
    const auto gradient = autodiff::RegionGradient(f, {flags.get(), wanted.size()});
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    CheckEveryChoice(**gradient, &checked, nullptr);
  };
  check(*Branches(), {false, true, true});
  check(*Piecewise(), {true, true});
  const auto first_result = [](const Ref<const Function>& f) {
    return Function::Create(f->name(), {f->parameters().begin(), f->parameters().end()}, {f->results()[0]});
  };
  for (const int64_t every : {1, 2}) check(*first_result(Scanned(false, every)), {true, true, true, true});
  check(*first_result(CountedLoop()), {false, true});
  EXPECT_GE(checked, 70);
}

// The gradient of a vmapped function is that of the loop.
TEST(VmapControl, HasGradients) {
  const auto f = Scanned(false, 1);
  const auto one = Function::Create("one", {f->parameters().begin(), f->parameters().end()}, {f->results()[0]});
  const bool wanted[] = {true, true, true, true};
  const std::vector<int64_t> axes(5, 0);
  const auto many = transforms::Vmap({.function = *one, .size = 3, .in_axes = std::span(axes).first(4), .out_axes = std::span(axes).first(1)});
  ASSERT_TRUE(many.ok()) << many.status();
  const auto gradient_of_many = autodiff::RegionGradient(**many, wanted);
  const auto gradient = autodiff::RegionGradient(*one, wanted);
  ASSERT_TRUE(gradient_of_many.ok() && gradient.ok()) << gradient_of_many.status();
  std::vector<Tensors> want(4);
  Tensors given;
  for (size_t i = 0; i < 5; ++i) {
    Tensors each;
    for (int e = 0; e < 3; ++e) each.push_back(Some((*gradient)->parameters()[i].type(), e + static_cast<int>(i)));
    given.push_back(Stacked(each, 0));
  }
  for (int e = 0; e < 3; ++e) {
    Tensors example;
    for (size_t i = 0; i < 5; ++i) example.push_back(Some((*gradient)->parameters()[i].type(), e + static_cast<int>(i)));
    auto slopes = reference::Interpret(**gradient, example);
    ASSERT_TRUE(slopes.ok()) << slopes.status();
    for (size_t r = 0; r < 4; ++r) want[r].push_back((*slopes)[r]);
  }
  const auto got = reference::Interpret(**gradient_of_many, given);
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t r = 0; r < want.size(); ++r) EXPECT_LE(Error((*got)[r], Stacked(want[r], 0), kClose), 1) << r;
}

const ir::Node* FindNode(const Function& f, const ir::OpDef& op) {
  const auto found = std::ranges::find_if(f.nodes(), [&](const ir::Node* node) { return &node->op() == &op; });
  return found == f.nodes().end() ? nullptr : *found;
}

absl::StatusOr<Ref<const Function>> Mapped(const Function& f, std::vector<int64_t> in_axes) {
  return transforms::Vmap({.function = f, .size = 3, .in_axes = in_axes, .out_axes = std::vector<int64_t>(f.results().size(), 0)});
}

TEST(VmapControl, MakesACalledFunctionOnce) {
  const auto callee = MakeFunction("callee", {kRow, kRow}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, ops::Tanh(b, p[0]), p[1])};
  });
  const auto f = MakeFunction("f", {kRow, kRow}, [&](Builder& b, const std::vector<Value>& p) {
    const Value once = ops::Call(b, ops::kOp_call, {p[0], p[1]}, {}, {&callee, 1});
    return std::vector{ops::Call(b, ops::kOp_call, {once, p[1]}, {}, {&callee, 1})};
  });
  const auto many = Mapped(*f, {0, kNotMapped});
  ASSERT_TRUE(many.ok()) << many.status();
  ASSERT_EQ(1u, (*many)->callees().size());
  EXPECT_EQ(kRow, (*many)->callees()[0]->parameters()[1].type());
}

TEST(VmapControl, KeepsLoopsCountedAndBranchesThatAllTake) {
  const auto add = MakeFunction("f", {kCount, kRow}, [&](Builder& b, const std::vector<Value>& p) {
    const auto body = MakeFunction("body", {kCount, kRow}, [](Builder& b, const std::vector<Value>& q) {
      return std::vector{ops::Add(b, q[0], 1), ops::Tanh(b, q[1])};
    });
    return All(While(b, Below({kCount, kRow}), body, {ops::Scalar(b, DType::kI32, 0), p[1], p[0]}));
  });
  const auto many = Mapped(*add, {kNotMapped, 0});
  ASSERT_TRUE(many.ok()) << many.status();
  const ir::Node* repeated = FindNode(**many, ops::kOp_while);
  ASSERT_NE(repeated, nullptr);
  EXPECT_TRUE(ops::EndsByItself(*repeated->regions()[0], *repeated->regions()[1]));
  const auto branches = Branches();
  const auto chosen = Mapped(*branches, {kNotMapped, 0, kNotMapped});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_NE(FindNode(**chosen, ops::kOp_case), nullptr);
  const auto all = Mapped(*branches, {0, kNotMapped, kNotMapped});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(FindNode(**all, ops::kOp_case), nullptr);
}

}  // namespace
}  // namespace weft::test
