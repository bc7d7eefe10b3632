// Functions of which reverse mode does something else than usual: those that compute again what they do not keep, beside those that
// keep it, bit by bit; those that have a rule of their own, beside those whose rule says the same.
#include "src/transforms/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/backends/cpu/cpu_backend.h"
#include "src/ir/rewrite.h"
#include "src/ops/control/scan.h"
#include "src/ops/registry.h"
#include "src/passes/pipeline.h"
#include "src/transforms/derivative.h"
#include "tests/support/control_programs.h"
#include "tests/support/cpu_under_test.h"
#include "tests/support/op_programs.h"
#include "tests/support/seeds.h"
#include "tests/support/run_on_backend.h"
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

constexpr ops::Keep kBoth[] = {ops::Keep::kOperands, ops::Keep::kProducts};

const Type kRow = Type::Tensor(DType::kF32, {3}), kSquare = Type::Tensor(DType::kF32, {3, 3}), kNumber = Type::Scalar(DType::kF32);

DerivativeCall All(const Function& function) { return test::All(function, true); }

Values CallOf(Builder& b, const Ref<const Function>& f, Values operands) {
  return ops::CallAll(b, ops::kOp_call, std::move(operands), {}, {&f, 1});
}

// Both, where one is there, on the same numbers.
void GiveTheSameBits(const absl::StatusOr<Ref<const Function>>& a, const absl::StatusOr<Ref<const Function>>& b, Tensors inputs, std::mt19937_64& random) {
  ASSERT_EQ(a.status().code(), b.status().code()) << a.status() << b.status();
  if (!a.ok()) return;
  for (size_t i = inputs.size(); i < (*a)->parameters().size(); ++i) inputs.push_back(Random((*a)->parameters()[i].type(), random));
  const auto x = reference::Interpret(**a, inputs), y = reference::Interpret(**b, inputs);
  ASSERT_TRUE(x.ok() && y.ok()) << x.status() << y.status();
  ASSERT_EQ(x->size(), y->size());
  for (size_t r = 0; r < x->size(); ++r) EXPECT_TRUE(std::ranges::equal((*x)[r].bytes(), (*y)[r].bytes())) << "result " << r;
}

TEST(Checkpoint, HasTheBitsOfEveryOperation) {
  auto programs = test::OpPrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  const auto control = test::ControlPrograms();
  ASSERT_TRUE(control.ok()) << control.status();
  programs->insert(programs->end(), control->begin(), control->end());
  std::mt19937_64 random(1);
  int cases = 0;
  for (size_t i = 0; i < programs->size(); i += test::kOneCaseIn) {
    const test::OpProgram& program = (*programs)[i];
    const Function& f = program.module.main();
    if (!test::Differentiable(f)) continue;
    SCOPED_TRACE(program.name);
    for (const ops::Keep keep : kBoth) {
      const auto less = Checkpoint(f, keep);
      ASSERT_TRUE(less.ok()) << less.status();
      GiveTheSameBits(Vjp(All(f)), Vjp(All(**less)), program.inputs, random);
      GiveTheSameBits(Jvp(All(f)), Jvp(All(**less)), program.inputs, random);
      ++cases;
    }
  }
  EXPECT_GE(cases, 1000 / static_cast<int>(test::kOneCaseIn));
}

// (x, w) -> tanh(exp(x w)) w, and the sum of it.
Ref<const Function> Layer() {
  return MakeFunction("layer", {kRow, kSquare}, [](Builder& b, const std::vector<Value>& p) {
    const Value y = ops::Tanh(b, ops::Exp(b, ops::Call(b, ops::kOp_matmul, {p[0], p[1]})));
    return std::vector{ops::Call(b, ops::kOp_matmul, {y, p[1]})};
  });
}
Ref<const Function> Total(const Ref<const Function>& f) {
  return MakeFunction("total", {kRow, kSquare}, [&](Builder& b, const std::vector<Value>& p) {
    const Value once = CallOf(b, f, {p[0], p[1]})[0];
    return std::vector{ops::Reduce(b, CallOf(b, f, {once, p[1]})[0], ops::Reducer::kSum, {0})};
  });
}
Ref<const Function> Less(const Ref<const Function>& f, ops::Keep keep) {
  auto made = Checkpoint(*f, keep);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

size_t Count(const ir::Module& module, const ir::OpDef& op) {
  size_t count = 0;
  for (const Ref<const Function>& function : module.functions) {
    for (const Function* each : ir::CalleesFirst(*function)) {
      count += static_cast<size_t>(std::ranges::count_if(each->nodes(), [&](const ir::Node* node) { return &node->op() == &op; }));
    }
  }
  return count;
}

absl::StatusOr<ir::Module> Passed(const Ref<const Function>& f) {
  ir::Module module;
  module.functions.push_back(ir::CopyFunction(*f));
  return passes::RunPipeline(std::move(module), {.verify_between = true});
}

TEST(Checkpoint, WhatIsComputedAgainStaysApart) {
  const auto f = Layer();
  struct Found {
    size_t exponentials = 0, products = 0;
  };
  const auto of = [](const Ref<const Function>& layer) {
    const auto slope = Grad(All(*Total(layer)));
    EXPECT_TRUE(slope.ok()) << slope.status();
    const auto module = Passed(*slope);
    EXPECT_TRUE(module.ok()) << module.status();
    return Found{Count(*module, ops::kOp_exp), Count(*module, ops::kOp_dot_general)};
  };
  // Two layers; of each the exponential and the product in front of it run again.
  const Found kept = of(f), less = of(Less(f, ops::Keep::kOperands)), products = of(Less(f, ops::Keep::kProducts));
  EXPECT_EQ(2u, kept.exponentials);
  EXPECT_EQ(4u, less.exponentials);
  EXPECT_EQ(kept.products + 2, less.products);
  EXPECT_EQ(4u, products.exponentials);
  EXPECT_EQ(kept.products, products.products);
}

// One in another, on the CPU: the same bits with and without.
TEST(Checkpoint, ComposesWithEveryTransform) {
  auto backend = test::NewCpuBackend();
  ASSERT_TRUE(backend.ok()) << backend.status();
  std::mt19937_64 random(2);
  using Made = absl::StatusOr<Ref<const Function>>;
  const auto then = [](const Made& f, auto next) -> Made { return f.ok() ? next(**f) : f; };
  const auto grad = [](const Function& f) { return Grad({.function = f, .inputs = f.parameters().size()}); };
  const auto jvp = [](const Function& f) { return Jvp({.function = f, .inputs = f.parameters().size()}); };
  const auto less = [](const Function& f) { return Checkpoint(f, ops::Keep::kOperands); };
  const auto total = [](const Function& f) -> Made {
    std::vector<Type> types;
    for (const Value& parameter : f.parameters()) types.push_back(parameter.type());
    return MakeFunction("sum", types, [&](Builder& b, const std::vector<Value>& p) {
      const Values y = CallOf(b, Ref<const Function>::Share(&f), {p.begin(), p.end()});
      return std::vector{ops::Reduce(b, y[0], ops::Reducer::kSum, ops::Axes(y[0].dims().size()))};
    });
  };
  const auto vmap = [](const Function& f) {
    const std::vector<int64_t> in(f.parameters().size(), 0), out(f.results().size(), 0);
    return Vmap({.function = f, .size = 4, .in_axes = in, .out_axes = out});
  };
  for (const ops::Keep keep : kBoth) {
    std::vector<std::vector<Made>> programs(2);
    for (const bool kept : {false, true}) {
      const Ref<const Function> f = Total(kept ? Layer() : Less(Layer(), keep));
      std::vector<Made>& made = programs[kept ? 0 : 1];
      made.push_back(grad(*f));
      made.push_back(then(grad(*f), vmap));
      made.push_back(then(then(vmap(*f), total), grad));
      made.push_back(then(grad(*f), jvp));
      made.push_back(then(jvp(*f), grad));
      made.push_back(then(then(jvp(*f), vmap), jvp));
      made.push_back(then(then(grad(*f), total), grad));
      made.push_back(kept ? grad(*f) : then(less(*f), grad));
      made.push_back(kept ? then(then(grad(*f), total), grad) : then(then(then(less(*f), grad), total), grad));
    }
    for (size_t i = 0; i < programs[0].size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_TRUE(programs[0][i].ok() && programs[1][i].ok()) << programs[0][i].status() << programs[1][i].status();
      Tensors inputs;
      for (const Value& parameter : (*programs[0][i])->parameters()) inputs.push_back(Random(parameter.type(), random));
      Tensors found[2];
      for (const int k : {0, 1}) {
        ir::Module module;
        module.functions.push_back(ir::CopyFunction(**programs[k][i]));
        auto run = test::RunOnBackend(**backend, module, inputs);
        ASSERT_TRUE(run.ok()) << run.status();
        found[k] = *std::move(run);
      }
      // Sums of two paths to one value are added in another order where there are second derivatives.
      for (size_t r = 0; r < found[0].size(); ++r) EXPECT_LE(test::Error(found[1][r], found[0][r], {.f32 = 2e-6, .absolute = 1e-6}), 1) << r;
    }
  }
}

// A loop of layers keeps what it carries, and nothing of what is inside of a layer.
TEST(Checkpoint, KeepsNothingInsideOfScans) {
  const auto loop = [](const Ref<const Function>& layer) {
    return MakeFunction("loop", {kRow, kSquare}, [&](Builder& b, const std::vector<Value>& p) {
      // length, carried, scanned
      const Values y = ops::CallAll(b, ops::kOp_scan, {p[0], p[1]}, {int64_t{6}, int64_t{1}, int64_t{0}}, {&layer, 1});
      return std::vector{ops::Reduce(b, y[0], ops::Reducer::kSum, {0})};
    });
  };
  std::mt19937_64 random(3);
  const auto kept = Grad(All(*loop(Layer()))), less = Grad(All(*loop(Less(Layer(), ops::Keep::kOperands))));
  GiveTheSameBits(kept, less, {}, random);
  const auto stacked = [](const Function& f) {
    int64_t bytes = 0;
    for (const ir::Node* node : f.nodes()) {
      if (&node->op() != &ops::kOp_scan) continue;
      for (const Value& operand : node->operands()) bytes += operand.dims().size() == 2 && operand.dims()[0] == 6 ? operand.type().bytes() : 0;
    }
    return bytes;
  };
  EXPECT_EQ(6 * kRow.bytes(), stacked(**less));
  EXPECT_GT(stacked(**kept), stacked(**less));
}

// (x, w, i) -> tanh(x) w, i + 1, with its rule: the slope of tanh is kept, w is scaled by what is captured.
struct Ruled {
  Ref<const Function> function, custom;
};
Ruled TanhTimes() {
  const Type index = Type::Scalar(DType::kI32);
  const auto f = MakeFunction("f", {kRow, kNumber, index}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, ops::Tanh(b, p[0]), ops::BroadcastTo(b, p[1], {3})), ops::Add(b, p[2], 1)};
  });
  const auto forward = MakeFunction("forward", {kRow, kNumber, index}, [](Builder& b, const std::vector<Value>& p) {
    const Value y = ops::Tanh(b, p[0]), w = ops::BroadcastTo(b, p[1], {3});
    return std::vector{ops::Mul(b, y, w), ops::Add(b, p[2], 1), y, p[1]};
  });
  const auto backward = MakeFunction("backward", {kRow, kNumber, kRow}, [](Builder& b, const std::vector<Value>& p) {
    const Value slope = ops::Sub(b, ops::FullLike(b, p[0], 1), ops::Mul(b, p[0], p[0]));
    return std::vector{ops::Mul(b, ops::Mul(b, p[2], slope), ops::BroadcastTo(b, p[1], {3})), ops::Reduce(b, ops::Mul(b, p[2], p[0]), ops::Reducer::kSum, {0})};
  });
  auto custom = CustomGradient({*f, 3}, {*forward, 3}, {*backward, 3});
  EXPECT_TRUE(custom.ok()) << custom.status();
  return {f, *custom};
}

// Of all examples: cotangents of what they share are sums, whatever is mapped.
TEST(CustomGradient, OfManyExamplesIsThatOfTheFunction) {
  const Ruled ruled = TanhTimes();
  std::mt19937_64 random(4);
  const std::vector<int64_t> out = {0, 0};
  int cases = 0;
  for (int mapped = 1; mapped < 8; ++mapped) {
    SCOPED_TRACE(mapped);
    std::vector<int64_t> in;
    for (int i = 0; i < 3; ++i) in.push_back((mapped >> i & 1) != 0 ? 0 : kNotMapped);
    Tensors found[2], inputs;
    for (const bool custom : {false, true}) {
      const auto many = Vmap({.function = custom ? *ruled.custom : *ruled.function, .size = 4, .in_axes = in, .out_axes = out});
      ASSERT_TRUE(many.ok()) << many.status();
      const auto vjp = Vjp(All(**many));
      ASSERT_TRUE(vjp.ok()) << vjp.status();
      const auto parameters = (*vjp)->parameters();
      for (size_t i = inputs.size(); i < parameters.size(); ++i) inputs.push_back(Random(parameters[i].type(), random));
      auto run = reference::Interpret(**vjp, inputs);
      ASSERT_TRUE(run.ok()) << run.status();
      found[custom ? 1 : 0] = *std::move(run);
    }
    ASSERT_EQ(found[0].size(), found[1].size());
    for (size_t r = 0; r < found[0].size(); ++r) {
      EXPECT_LE(test::Error(found[1][r], found[0][r], {.f32 = 1e-6, .absolute = 1e-6}), 1) << r;
      ++cases;
    }
  }
  EXPECT_EQ(28, cases);
}

// (x, w) -> the sum of the function's first result, inside of another that is called, or run three times.
Ref<const Function> Around(const Ref<const Function>& f, bool loops) {
  return MakeFunction("around", {kRow, kNumber}, [&](Builder& b, const std::vector<Value>& p) {
    const auto body = MakeFunction("body", {kRow, kNumber}, [&](Builder& c, const std::vector<Value>& q) {
      return std::vector{CallOf(c, f, {q[0], q[1], ops::Scalar(c, DType::kI32, 1)})[0]};
    });
    const Values y = loops ? ops::CallAll(b, ops::kOp_scan, {p[0], p[1]}, {int64_t{3}, int64_t{1}, int64_t{0}}, {&body, 1}) : CallOf(b, body, {p[0], p[1]});
    return std::vector{ops::Reduce(b, y[0], ops::Reducer::kSum, {0})};
  });
}

// In loops, calls, checkpoints; the function runs once, as forward.
TEST(CustomGradient, IsFoundWhereverTheFunctionIs) {
  const Ruled ruled = TanhTimes();
  std::mt19937_64 random(5);
  for (const bool loops : {false, true}) {
    const auto plain = Grad(All(*Around(ruled.function, loops))), custom = Grad(All(*Around(ruled.custom, loops)));
    ASSERT_TRUE(plain.ok() && custom.ok()) << plain.status() << custom.status();
    const Tensors inputs = {Random(kRow, random), Random(kNumber, random)};
    const auto x = reference::Interpret(**plain, inputs), y = reference::Interpret(**custom, inputs);
    ASSERT_TRUE(x.ok() && y.ok()) << x.status() << y.status();
    for (size_t r = 0; r < x->size(); ++r) EXPECT_LE(test::Error((*y)[r], (*x)[r], {.f32 = 1e-6, .absolute = 1e-6}), 1) << r;
    const auto module = Passed(*custom);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(1u, Count(*module, ops::kOp_tanh));
  }
}

// What reverse mode has come by has a forward mode: forward and backward do. The function's own results are then forward's.
TEST(CustomGradient, HasForwardModeOnceItsGradientIsTaken) {
  const Ruled ruled = TanhTimes();
  std::mt19937_64 random(6);
  const std::vector<int64_t> rows = {0, kNotMapped, 0, kNotMapped}, each(6, 0);
  int cases = 0;
  const auto outside = [](const Ref<const Function>& f) {
    return MakeFunction("outside", {kRow, kNumber}, [&](Builder& b, const std::vector<Value>& p) {
      return std::vector{ops::Exp(b, CallOf(b, f, {p[0], p[1]})[0])};
    });
  };
  for (int form = 0; form < 8; ++form) {  // in a loop; in one more function; mapped
    SCOPED_TRACE(form);
    const auto made = [&](const Ref<const Function>& f) -> absl::StatusOr<Ref<const Function>> {
      Ref<const Function> around = Around(f, (form & 1) != 0);
      if ((form & 2) != 0) around = outside(around);
      WEFT_ASSIGN_OR_RETURN(const Ref<const Function> gradient, Grad(All(*around)));
      WEFT_ASSIGN_OR_RETURN(Ref<const Function> made, Jvp(All(*gradient)));
      if ((form & 4) != 0) {
        WEFT_ASSIGN_OR_RETURN(made, Vmap({.function = *made, .size = 4, .in_axes = rows, .out_axes = each}));
      }
      return made;
    };
    const auto plain = made(ruled.function), custom = made(ruled.custom);
    ASSERT_TRUE(plain.ok() && custom.ok()) << plain.status() << custom.status();
    Tensors inputs;
    for (const Value& parameter : (*plain)->parameters()) inputs.push_back(Random(parameter.type(), random));
    const auto x = reference::Interpret(**plain, inputs), y = reference::Interpret(**custom, inputs);
    ASSERT_TRUE(x.ok() && y.ok()) << x.status() << y.status();
    ASSERT_EQ(6u, y->size());
    for (size_t r = 0; r < x->size(); ++r, ++cases) EXPECT_LE(test::Error((*y)[r], (*x)[r], {.f32 = 1e-5, .absolute = 1e-6}), 1) << r;
  }
  EXPECT_EQ(48, cases);
}

}  // namespace
}  // namespace weft::transforms
