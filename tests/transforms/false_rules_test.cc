// Second and later derivatives of functions whose rules are not their slopes: what a rule gave is differentiated as what it is,
// forward and backward, whichever way and however deep, as JAX's custom_vjp has it. The judge has no rules: it is forward and
// backward called by hand, in the order of the chain rule, and then transformed in the same way.
#include <gtest/gtest.h>

#include "src/autodiff/gradient.h"
#include "src/ir/rewrite.h"
#include "src/ops/parameter.h"
#include "src/ops/registry.h"
#include "src/transforms/rules.h"
#include "tests/support/control_programs.h"
#include "tests/support/seeds.h"
#include "tests/transforms/examples.h"

namespace weft::transforms {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using ir::Values;
using test::MakeFunction;
using test::Random;
using test::Tensors;
using FunctionRef = Ref<const Function>;
using Made = absl::StatusOr<FunctionRef>;

const Type kRow = Type::Tensor(DType::kF64, {3}), kNumber = Type::Scalar(DType::kF64);
constexpr int kSteps = 2;

Values CallOf(Builder& b, const FunctionRef& f, Values operands, ir::Attrs attrs = {}) {
  return ops::CallAll(b, ops::kOp_call, std::move(operands), std::move(attrs), {&f, 1});
}

// x tanh(x), whose rule says 5 x + exp(-x) / 3, or 3, for which it keeps nothing.
struct Ruled {
  FunctionRef forward, backward, custom;
  bool keeps = true;

  // What follows on y, which is the function of s.
  Value After(Builder& b, const Value& y, const Value& s) const {
    return keeps ? ops::Add(b, y, ops::Mul(b, s, 0.1)) : ops::Exp(b, ops::Mul(b, y, 0.2));
  }
};
Ruled Steady() {
  const auto f = MakeFunction("f", {kRow}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[0], ops::Tanh(b, p[0]))};
  });
  const auto backward = MakeFunction("backward", {kRow}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[0], 3)};
  });
  auto custom = CustomGradient({*f, 1}, {*f, 1}, {*backward, 1});
  EXPECT_TRUE(custom.ok()) << custom.status();
  return {f, backward, *custom, false};
}
Ruled XTanh() {
  const auto f = MakeFunction("f", {kRow}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[0], ops::Tanh(b, p[0]))};
  });
  const auto forward = MakeFunction("forward", {kRow}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[0], ops::Tanh(b, p[0])), p[0], ops::Exp(b, ops::Neg(b, p[0]))};
  });
  const auto backward = MakeFunction("backward", {kRow, kRow, kRow}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[2], ops::Add(b, ops::Mul(b, p[0], 5), ops::Mul(b, p[1], 1.0 / 3)))};
  });
  auto custom = CustomGradient({*f, 1}, {*forward, 1}, {*backward, 3});
  EXPECT_TRUE(custom.ok()) << custom.status();
  return {forward, backward, *custom};
}

Value Loss(Builder& b, const Value& s) {
  return ops::Reduce(b, ops::Mul(b, s, ops::Exp(b, ops::Mul(b, s, 0.3))), ops::Reducer::kSum, {0});
}

// s <- r(s) and what follows, so many times, then the loss. The function with the rule stands in the open, in a call, a loop, a branch, a checkpoint.
enum class Where { kOpen, kCall, kCallInCall, kScan, kBranch, kCheckpoint, kLast = kCheckpoint };
FunctionRef Program(const Ruled& r, Where where) {
  const auto step = [&](Builder& b, const std::vector<Value>& p) {
    return std::vector{r.After(b, CallOf(b, r.custom, {p[0]})[0], p[0])};
  };
  const auto body = MakeFunction("step", {kRow}, step);
  return MakeFunction("program", {kRow}, [&](Builder& b, const std::vector<Value>& p) {
    const auto one = [&](const Value& s) -> Value {
      const std::vector<FunctionRef> both = {body, body};
      switch (where) {
        case Where::kOpen: return r.After(b, ir::Inline(*r.custom, std::vector{s})[0], s);
        case Where::kCall: return CallOf(b, body, {s})[0];
        case Where::kCallInCall:
          return CallOf(b, MakeFunction("outer", {kRow}, [&](Builder& c, const std::vector<Value>& q) {
                          return std::vector{CallOf(c, body, {q[0]})[0]};
                        }), {s})[0];
        case Where::kBranch:
          return ops::CallAll(b, ops::kOp_case, {ops::Scalar(b, DType::kI32, 1), s, s}, {}, both)[0];
        default: return CallOf(b, body, {s}, {int64_t{0}})[0];
      }
    };
    Value s = p[0];
    if (where == Where::kScan) {
      s = ops::CallAll(b, ops::kOp_scan, {s}, {int64_t{kSteps}, int64_t{1}, int64_t{0}}, {&body, 1})[0];
    } else {
      for (int k = 0; k < kSteps; ++k) s = one(s);
    }
    return std::vector{Loss(b, s)};
  });
}

// x, a cotangent -> the loss, its slope by the rules.
FunctionRef Judge(const Ruled& r) {
  const auto loss = MakeFunction("loss", {kRow}, [](Builder& b, const std::vector<Value>& p) { return std::vector{Loss(b, p[0])}; });
  const Made slope = Vjp(test::All(*loss));
  EXPECT_TRUE(slope.ok()) << slope.status();
  return MakeFunction("judge", {kRow, kNumber}, [&](Builder& b, const std::vector<Value>& p) {
    Value s = p[0];
    std::vector<Values> kept, after;
    for (int k = 0; k < kSteps; ++k) {
      kept.push_back(CallOf(b, r.forward, {s}));
      s = r.After(b, kept.back()[0], s);
      after.push_back({s});
    }
    Value g = CallOf(b, *slope, {s, p[1]})[0];
    for (int k = kSteps; k-- > 0;) {
      g = r.keeps ? ops::Add(b, CallOf(b, r.backward, {kept[k][1], kept[k][2], g})[0], ops::Mul(b, g, 0.1))
                  : CallOf(b, r.backward, {ops::Mul(b, ops::Mul(b, g, after[k][0]), 0.2)})[0];
    }
    return std::vector{Loss(b, s), g};
  });
}

Made Next(int kind, const Function& f) {
  const size_t n = f.parameters().size();
  const std::vector<int64_t> in(n, 0), out(f.results().size(), 0);
  switch (kind) {
    case 0: return Vjp(test::All(f));
    case 1: return Vjp(test::All(f, true));
    case 2: return Jvp(test::All(f));
    case 3: return Jvp(test::All(f, true));
    case 4: return Vmap({.function = f, .size = 2, .in_axes = in, .out_axes = out});
    default: return Checkpoint(f, ops::Keep::kOperands);
  }
}

Made Chain(Made f, const std::vector<int>& kinds) {
  for (const int kind : kinds) {
    if (f.ok()) f = Next(kind, **f);
  }
  return f;
}

// What a first vjp makes of the program, whatever came before it, is what the judge is; both go through the same chain behind it.
TEST(FalseRules, AreDifferentiatedAsWhatTheyAreInEveryNesting) {
  const Ruled ruled[] = {XTanh(), Steady()};
  const FunctionRef judges[] = {Judge(ruled[0]), Judge(ruled[1])};
  const auto [first, last] = test::Seeds(80);
  int cases = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    std::mt19937_64 random(seed);
    const size_t which = random() % 2;
    const Ruled& r = ruled[which];
    const FunctionRef& judge = judges[which];
    const auto where = static_cast<Where>(seed % (static_cast<uint64_t>(Where::kLast) + 1));
    std::vector<int> before, mapped, chain;
    if (random() % 2 == 0) before.push_back(5);
    if (random() % 3 == 0) mapped.push_back(4);
    before.insert(before.end(), mapped.begin(), mapped.end());
    const size_t length = 1 + random() % 3;
    while (chain.size() < length) chain.push_back(static_cast<int>(random() % 6));
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", where " << static_cast<int>(where) << ", before "
                                    << testing::PrintToString(before) << ", chain " << testing::PrintToString(chain));
    before.push_back(1);
    const Made found = Chain(Chain(Program(r, where), before), chain), wanted = Chain(Chain(judge, mapped), chain);
    ASSERT_TRUE(found.ok() && wanted.ok()) << found.status() << wanted.status();
    Tensors inputs;
    for (const Value& parameter : (*wanted)->parameters()) inputs.push_back(Random(parameter.type(), random));
    const auto x = reference::Interpret(**found, inputs), y = reference::Interpret(**wanted, inputs);
    ASSERT_TRUE(x.ok() && y.ok()) << x.status() << y.status();
    ASSERT_EQ(x->size(), y->size());
    for (size_t i = 0; i < x->size(); ++i, ++cases) {
      EXPECT_LE(test::Error((*x)[i], (*y)[i], {.f64 = 1e-10, .absolute = 1e-4}), 1) << "result " << i;
    }
  }
  EXPECT_GT(cases, 0);
}

// The rule 5 g x of x^2 under y^2, at 2: by hand the gradient is 10 x y = 80, and its slope 10 y + 20 x^2 = 120, since y is forward's
// and so x^2. All ways of recording and transforming agree.
TEST(FalseRules, OfASquareAgreeInEveryMode) {
  const auto f = MakeFunction("f", {kNumber}, [](Builder& b, const std::vector<Value>& p) { return std::vector{ops::Mul(b, p[0], p[0])}; });
  const auto forward = MakeFunction("forward", {kNumber}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[0], p[0]), p[0]};
  });
  const auto backward = MakeFunction("backward", {kNumber, kNumber}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, ops::Mul(b, p[0], p[1]), 5)};
  });
  const Made custom = CustomGradient({*f, 1}, {*forward, 1}, {*backward, 2});
  ASSERT_TRUE(custom.ok()) << custom.status();
  HostTensor two(DType::kF64, {}), one(DType::kF64, {});
  two.SetDouble(0, 2);
  one.SetDouble(0, 1);
  const auto at = [&](const Made& function, Tensors inputs) {
    EXPECT_TRUE(function.ok()) << function.status();
    const auto found = reference::Interpret(**function, inputs);
    EXPECT_TRUE(found.ok()) << found.status();
    return found->back().GetDouble(0);
  };
  const auto loss = MakeFunction("loss", {kNumber}, [&](Builder& b, const std::vector<Value>& p) {
    const Value y = CallOf(b, *custom, {p[0]})[0];
    return std::vector{ops::Mul(b, y, y)};
  });
  const Made gradient = Grad(test::All(*loss)), both = Grad(test::All(*loss, true));
  EXPECT_EQ(80, at(gradient, {two}));
  EXPECT_EQ(120, at(Grad(test::All(**gradient)), {two}));
  EXPECT_EQ(120, at(Vjp(test::All(**gradient)), {two, one}));
  EXPECT_EQ(120, at(Jvp(test::All(**gradient)), {two, one}));
  EXPECT_EQ(120, at(Jvp(test::All(**Grad(test::All(**gradient)))), {two, one}));  // 60 x: the slope of 30 x^2
  // Of the value that comes with the gradient the slope is forward's, too: d(x^4)/dx.
  EXPECT_EQ(32, at(Grad(test::All(**both)), {two}));
  EXPECT_EQ(32 + 120, at(Vjp(test::All(**both)), {two, one, one}));
  // Recorded: of the loss itself, which no gradient was taken of, the slope is the rule's again.
  Builder b;
  const Value x = ops::Parameter(kNumber), y = ir::Inline(**custom, std::vector{x})[0], l = ops::Mul(b, y, y);
  const auto g = autodiff::Gradient(b, l, {{x}});
  ASSERT_TRUE(g.ok()) << g.status();
  const auto h = autodiff::Gradient(b, (*g)[0], {{x}}), sum = autodiff::Gradient(b, ops::Add(b, l, (*g)[0]), {{x}});
  ASSERT_TRUE(h.ok() && sum.ok()) << h.status() << sum.status();
  EXPECT_EQ(120, at(Function::Create("h", {x}, {(*h)[0]}), {two}));
  EXPECT_EQ(80 + 120, at(Function::Create("sum", {x}, {(*sum)[0]}), {two}));
}

}  // namespace
}  // namespace weft::transforms
