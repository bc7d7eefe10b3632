// Bodies of functions: what is recorded where, what a body captures, what it refuses, and an operation that carries one.
#include <cmath>

#include "src/backends/cpu/cpu_backend.h"
#include "src/ir/stablehlo.h"
#include "src/ir/text.h"
#include "tests/lazy/shelf.h"
#include "tests/lazy/world.h"
#include "tests/support/cpu_under_test.h"

namespace weft::lazy {
namespace {

using Function = Ref<const ir::Function>;

struct Body {
  Body(World& world, std::string name, std::vector<ir::Type> inputs, Frame* parent = nullptr) : w(world) {
    auto begun = w.engine->BeginFunction({nullptr, parent}, std::move(name), inputs, &parameters);
    EXPECT_TRUE(begun.ok()) << begun.status();
    frame = *std::move(begun);
  }
  Recorder::Finished Finish(std::vector<T> outputs) {
    std::vector<Tensor*> raw;
    for (const T& output : outputs) raw.push_back(output.get());
    auto finished = w.engine->FinishFunction(*frame, raw);
    EXPECT_TRUE(finished.ok()) << finished.status();
    return finished.ok() ? *std::move(finished) : Recorder::Finished();
  }
  // Made through the body's handle.
  T Number(double value) { return w.engine->Scalar({nullptr, frame.get()}, DType::kF32, value).value(); }
  T Op(const ir::OpDef& op, std::vector<T> operands) {
    std::vector<Tensor*> raw;
    for (const T& operand : operands) raw.push_back(operand.get());
    Tensors results;
    const absl::Status status = w.engine->Record(op, raw, {}, {}, &results, {nullptr, frame.get()});
    EXPECT_TRUE(status.ok()) << status;
    return status.ok() ? results[0] : nullptr;
  }
  World& w;
  Tensors parameters;
  Ref<Frame> frame;
};

const ir::Type kF32 = ir::Type::Scalar(DType::kF32);

absl::StatusOr<T> TryMap(World& w, const Function& function, std::vector<T> inputs) {
  std::vector<Tensor*> raw;
  for (const T& input : inputs) raw.push_back(input.get());
  Tensors results;
  WEFT_RETURN_IF_ERROR(w.engine->Record(ops::kOp_map, raw, {}, {}, &results, {}, {&function, 1}));
  return results[0];
}
T Map(World& w, const Function& function, std::vector<T> inputs) {
  auto result = TryMap(w, function, std::move(inputs));
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : nullptr;
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(Frames, AnOperationBelongsToTheDeepestOfItsFramesAndLeavesTheProgramAlone) {
  World w;
  const T x = w.Vector({1, 2});
  Body f(w, "f", {kF32, kF32});
  const int64_t pending = w.Count(Counter::kCuts);
  const T product = w.Op("multiply", {f.parameters[0], f.parameters[1]});  // through the program's handle
  EXPECT_EQ(product->frame(), f.frame.get());
  const T two = f.Number(2);
  EXPECT_EQ(two->frame(), f.frame.get());
  const T sum = w.Op("add", {product, two});
  w.Sync();  // the program's barrier sees nothing of it
  EXPECT_EQ(w.Count(Counter::kCuts), pending);
  EXPECT_EQ(w.Op("add", {x, x})->frame(), nullptr);
  const auto finished = f.Finish({sum});
  EXPECT_EQ(finished.captures.size(), 0u);
  EXPECT_EQ(ir::Print(*finished.function),
            "func @f(%0: tensor<f32>, %1: tensor<f32>) -> (tensor<f32>) {\n"
            "  %2 = multiply(%0, %1) : tensor<f32>\n"
            "  %3 = constant() {value = dense tensor<f32> [2.0]} : tensor<f32>\n"
            "  %4 = add(%2, %3) : tensor<f32>\n"
            "  return %4\n"
            "}\n");
}

TEST(Frames, RecordsInEveryModeAndIsNeverCut) {
  for (Mode mode : {Mode::kLazy, Mode::kEager, Mode::kDebug}) {
    Options options;
    options.mode = mode;
    options.max_pending_nodes = 4;
    World w(options);
    Body f(w, "f", {kF32});
    T y = f.parameters[0];
    for (int i = 0; i < 20; ++i) y = w.Op("log", {y});  // NaN, were it computed
    const auto finished = f.Finish({y});
    EXPECT_EQ(w.Count(Counter::kLaunches), 0);
    EXPECT_EQ(finished.function->nodes().size(), 21u);
  }
}

TEST(Frames, CapturesWhatItUsesOfTheFramesAroundItOnce) {
  World w;
  const T a = w.Number(3), b = w.Op("neg", {w.Number(5)});
  Body outer(w, "outer", {kF32});
  Body inner(w, "inner", {kF32}, outer.frame.get());
  const T h = w.Op("multiply", {inner.parameters[0], a});
  w.Sync();  // what a body captured is still the same value afterwards
  const T y = w.Op("add", {w.Op("add", {h, a}), w.Op("multiply", {b, outer.parameters[0]})});
  EXPECT_EQ(y->frame(), inner.frame.get());
  const auto g = inner.Finish({y});
  // The product of b and the outer parameter was recorded in the outer body: the inner one sees one value of it.
  ASSERT_EQ(g.captures.size(), 2u);
  EXPECT_EQ(g.captures[0]->frame(), outer.frame.get());
  EXPECT_EQ(g.captures[1]->frame(), outer.frame.get());
  const T called = [&] {
    Tensors results;
    std::vector<Tensor*> inputs = {outer.parameters[0].get(), g.captures[0].get(), g.captures[1].get()};
    EXPECT_TRUE(w.engine->Record(ops::kOp_map, inputs, {}, {}, &results, {}, {&g.function, 1}).ok());
    return results[0];
  }();
  const auto f = outer.Finish({called});
  ASSERT_EQ(f.captures.size(), 2u);
  EXPECT_EQ(f.captures[0]->frame(), nullptr);
  // x -> (x a + a) + b x
  EXPECT_EQ(w.Read(Map(w, f.function, {w.Number(2), f.captures[0], f.captures[1]})), std::vector<float>{2 * 3 + 3 - 5 * 2});
}

TEST(Frames, ACaptureIsAValueAndComputedLikeATensor) {
  World w;
  T x = w.Vector({1, 2});
  T shown = w.Op("neg", {x});
  Body f(w, "f", {ir::Type::Tensor(DType::kF32, {2})});
  const T y = w.Op("add", {f.parameters[0], shown});
  const auto finished = f.Finish({y});
  ASSERT_TRUE(w.engine->Assign(shown.get(), x.get()).ok());
  w.Sync();
  EXPECT_THAT(w.Read(finished.captures[0]), ElementsAre(-1, -2));
}

TEST(Frames, RefuseByNameWhatNoBodyCanDo) {
  World w;
  const T x = w.Number(1);
  Body f(w, "f", {kF32}), g(w, "g", {kF32});
  const T p = f.parameters[0];
  const Where inside(nullptr, f.frame.get());
  float value;
  const auto bytes = std::as_writable_bytes(std::span(&value, 1));
  Tensor* const raw[] = {p.get()};
  EXPECT_THAT(Text(w.engine->ToHost(p.get(), bytes)), HasSubstr("read: the tensor in the body of @f: nothing has a value"));
  EXPECT_THAT(Text(w.engine->ToBuffer(p.get()).status()), HasSubstr("export: the tensor in the body of @f"));
  EXPECT_THAT(Text(w.engine->Eval(raw).status()), HasSubstr("eval: a tensor in the body of @f"));
  EXPECT_THAT(Text(w.engine->GraphText(raw).status()), HasSubstr("in the body of @f"));
  EXPECT_THAT(Text(w.engine->Sync(inside).status()), HasSubstr("a barrier in the body of @f"));
  EXPECT_THAT(Text(w.engine->Wait(inside)), HasSubstr("waiting in the body of @f"));
  EXPECT_THAT(Text(w.engine->Adopt(inside, DType::kF32, {}, &value, nullptr).status()), HasSubstr("in the body of @f"));
  EXPECT_THAT(Text(w.engine->SetRequiresGrad(p.get(), true)), HasSubstr("require_grad in the body of @f"));
  EXPECT_THAT(Text(w.engine->Assign(x.get(), p.get())),
              HasSubstr("assign: the target belongs to the program, the value to the body of @f; a body changes nothing outside"));
  EXPECT_THAT(Text(w.TryOp("add", {p, g.parameters[0]}).status()),
              HasSubstr("add: tensors of the body of @f and of the body of @g cannot meet"));
  Tensors made;
  EXPECT_THAT(Text(w.engine->FinishFunction(*f.frame, std::array{g.parameters[0].get()}).status()),
              HasSubstr("output 0 of @f belongs to the body of @g"));
  {
    Body within(w, "within", {}, f.frame.get());
    EXPECT_THAT(Text(w.engine->FinishFunction(*f.frame, raw).status()), HasSubstr("1 bodies inside it"));
    w.engine->AbandonFunction(*within.frame);
  }
  f.Finish({p});
  EXPECT_THAT(Text(w.TryOp("neg", {p}).status()), HasSubstr("neg: x belongs to the body of @f, which has been finished"));
  EXPECT_THAT(Text(w.engine->Scalar(inside, DType::kF32, 1).status()), HasSubstr("the body of @f, which has been finished"));
  EXPECT_THAT(Text(w.engine->FinishFunction(*f.frame, raw).status()), HasSubstr("which has been finished"));
  w.engine->AbandonFunction(*g.frame);
  EXPECT_THAT(Text(w.TryOp("neg", {g.parameters[0]}).status()), HasSubstr("which has been abandoned"));
  const std::vector<ir::Type> bad = {ir::Type::Tensor(DType::kF32, {-1})};
  EXPECT_THAT(Text(w.engine->BeginFunction({}, "h", bad, &made).status()), HasSubstr("input 0 of the function @h: shape [-1]"));
}

// Two draws of 5 numbers, with what fails in between or without.
Recorder::Finished TwoDraws(World& w, bool fail) {
  Body f(w, "f", {kF32});
  const Where inside(nullptr, f.frame.get());
  Tensors drawn;
  EXPECT_TRUE(w.engine->Record(ops::kOp_uniform, {}, {ir::Ints{5}, 0.0, 1.0, DType::kF32}, {}, &drawn, inside).ok());
  if (fail) {
    Tensors none;
    EXPECT_THAT(Text(w.engine->Record(ops::kOp_uniform, {}, {ir::Ints{5}, 1.0, 0.0, DType::kF32}, {}, &none, inside)),
                HasSubstr("low below high"));
  }
  Tensors more;
  EXPECT_TRUE(w.engine->Record(ops::kOp_uniform, {}, {ir::Ints{5}, 0.0, 1.0, DType::kF32}, {}, &more, inside).ok());
  return f.Finish({drawn[0], w.Op("mul", {more[0], f.parameters[0]})});
}

TEST(Frames, WhatABodyDrawsIsAStreamBehindItsParametersAndNoLiteral) {
  World w;
  const GeneratorState before = w.engine->generator();
  Body f(w, "f", {kF32});
  const T shown = w.Vector({1, 2});
  const T dropped = w.Op("dropout", {f.parameters[0]}), more = w.Op("dropout", {shown});
  EXPECT_EQ(more->frame(), nullptr);
  EXPECT_FALSE(w.engine->generator() == before);
  const auto finished = f.Finish({dropped, w.Op("multiply", {dropped, w.Sum(shown)})});
  EXPECT_TRUE(finished.draws);
  ASSERT_EQ(finished.captures.size(), 1u);
  ASSERT_EQ(finished.function->parameters().size(), 3u);
  EXPECT_EQ(finished.function->parameters()[2].type(), ir::Type::Tensor(DType::kU64, {3}));
}

TEST(Frames, BodiesThatDrawAlikeAreOneObjectAndAFailureDrawsNothing) {
  World w;
  const GeneratorState before = w.engine->generator();
  const auto one = TwoDraws(w, false), other = TwoDraws(w, true);
  EXPECT_EQ(one.function.get(), other.function.get());
  EXPECT_EQ(w.engine->generator(), before);  // a body draws nothing by being recorded
  const T x = w.Number(1);
  Tensor* const operands[] = {x.get(), nullptr};
  Tensor* const wrong[] = {nullptr, nullptr};
  Tensors a, b, none;
  EXPECT_FALSE(w.engine->Record(ops::kOp_call, wrong, {}, {}, &none, {}, {&one.function, 1}).ok());
  EXPECT_EQ(w.engine->generator(), before);
  ASSERT_TRUE(w.engine->Record(ops::kOp_call, operands, {}, {}, &a, {}, {&one.function, 1}).ok());
  GeneratorState after = before;
  after.Advance(1);
  EXPECT_EQ(w.engine->generator(), after);
  ASSERT_TRUE(w.engine->Record(ops::kOp_call, operands, {}, {}, &b, {}, {&one.function, 1}).ok());
  EXPECT_NE(w.Read(a[0]), w.Read(b[0]));
  const int64_t compiled = w.Count(Counter::kProgramsCompiled);
  Tensors again;  // a state is an argument
  ASSERT_TRUE(w.engine->Record(ops::kOp_call, operands, {}, {}, &again, {}, {&one.function, 1}).ok());
  EXPECT_NE(w.Read(again[0]), w.Read(b[0]));
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), compiled);
}

// The bytes of the key of a training step of so many layers that are calls of one function: value and gradients.
size_t KeyOfLayers(int layers) {
  Shelf shelf;
  World w({}, 1, false, std::make_unique<FakeStore>(&shelf));
  const ir::Type row = ir::Type::Tensor(DType::kF32, {4});
  Body layer(w, "layer", {row, row, row, row});
  const Tensors& p = layer.parameters;
  T h = layer.Op(ops::kOp_gelu, {layer.Op(ops::kOp_layer_norm, {p[0], p[1], p[2]})});
  h = layer.Op(ops::kOp_tanh, {layer.Op(ops::kOp_mul, {h, p[3]})});
  const Function function = layer.Finish({layer.Op(ops::kOp_add, {p[0], h})}).function;
  std::vector<T> weights, wanted;
  T x = w.Vector({1, 2, 3, 4});
  for (int l = 0; l < layers; ++l) {
    std::vector<Tensor*> operands = {x.get()};
    for (int i = 0; i < 3; ++i) {
      weights.push_back(w.Vector({1, 2, 3, 4}));
      EXPECT_TRUE(w.engine->SetRequiresGrad(weights.back().get(), true).ok());
      operands.push_back(weights.back().get());
    }
    Tensors results;
    EXPECT_TRUE(w.engine->Record(ops::kOp_call, operands, {}, {}, &results, {}, {&function, 1}).ok());
    x = results[0];
  }
  wanted = {w.Sum(x)};
  for (T& gradient : w.Grad(wanted[0], weights)) wanted.push_back(std::move(gradient));
  std::vector<Tensor*> raw;
  for (const T& each : wanted) raw.push_back(each.get());
  EXPECT_TRUE(w.engine->CompileEval(raw, true).ok());
  EXPECT_EQ(shelf.entries.size(), 1u);
  return shelf.entries.empty() ? 0 : shelf.entries.begin()->second.canonical.size();
}

TEST(Frames, AHundredEqualLayersHaveAKeyLikeThatOfAFew) {
  const size_t two = KeyOfLayers(2), few = KeyOfLayers(3), many = KeyOfLayers(96);
  EXPECT_LE(2 * many, 3 * two) << few;
  EXPECT_LE(many, few + 93 * 4) << two;  // bytes a layer
}

TEST(Frames, AssignInsideABody) {
  World w;
  const T two = w.Number(2);
  Body f(w, "f", {kF32});
  const T state = w.Op("neg", {f.parameters[0]});
  ASSERT_TRUE(w.engine->Assign(state.get(), two.get()).ok());  // a capture
  ASSERT_TRUE(w.engine->Assign(state.get(), w.Op("multiply", {state, f.parameters[0]}).get()).ok());
  const auto finished = f.Finish({state});
  EXPECT_EQ(w.Read(Map(w, finished.function, {w.Number(4), finished.captures[0]})), std::vector<float>{8});
}

TEST(Frames, BodiesMayOutliveTheirEngineHandleAndDieInAnyOrder) {
  Ref<Frame> frame;
  Function function;
  T tensor;
  {
    World w;
    Body f(w, "f", {kF32});
    tensor = w.Op("multiply", {f.parameters[0], w.Number(3)});
    frame = f.frame;
    function = f.Finish({tensor}).function;
    Body open(w, "open", {kF32});
    w.Op("add", {open.parameters[0], w.Number(1)});
  }
  frame = nullptr;
  tensor = nullptr;
  EXPECT_EQ(function->nodes().size(), 3u);
}

// softplus by hand, with a literal, a comparison and a composite (sigmoid's gradient rule) in it.
Function Curve(World& w) {
  Body f(w, "curve", {kF32, kF32});
  const T x = f.parameters[0], scale = f.parameters[1];
  const T soft = w.Op("log_plus_one", {w.Op("exponential", {w.Op("multiply", {x, scale})})});
  const T bent = w.Op("select", {w.Op("gt", {x, f.Number(0.5)}), soft, w.Op("logistic", {x})});
  return f.Finish({bent}).function;
}
double CurveOf(double x, double s) { return x > 0.5 ? std::log1p(std::exp(x * s)) : 1 / (1 + std::exp(-x)); }
double SlopeOf(double x, double s) {
  const double y = 1 / (1 + std::exp(-x));
  return x > 0.5 ? s / (1 + std::exp(-x * s)) : y * (1 - y);
}

void CheckMap(World& w) {
  const Function curve = Curve(w);
  const std::vector<float> at = {-2, -0.5, 0.25, 0.75, 1.5, 3}, by = {1, 2, 3, 0.5, -1, 2};
  const T x = w.F32({2, 3}, at), s = w.F32({2, 3}, by);
  ASSERT_TRUE(w.engine->SetRequiresGrad(x.get(), true).ok());
  ASSERT_TRUE(w.engine->SetRequiresGrad(s.get(), true).ok());
  const T y = Map(w, curve, {x, s});
  const std::vector<T> grads = w.Grad(w.Sum(w.Op("multiply", {y, y})), {x, s});
  const std::vector<T> second = w.Grad(w.Sum(w.Op("square", {grads[0]})), {x});
  w.Sync();
  const auto got = w.Read(y), dx = w.Read(grads[0]), ds = w.Read(grads[1]), dxx = w.Read(second[0]);
  for (size_t i = 0; i < at.size(); ++i) {
    const double v = CurveOf(at[i], by[i]), slope = SlopeOf(at[i], by[i]);
    EXPECT_NEAR(got[i], v, 1e-5 * (1 + v)) << i;
    EXPECT_NEAR(dx[i], 2 * v * slope, 1e-5 * (1 + std::abs(v * slope))) << i;
    const double by_scale = at[i] > 0.5 ? at[i] / (1 + std::exp(-at[i] * by[i])) : 0;
    EXPECT_NEAR(ds[i], 2 * v * by_scale, 2e-5 * (1 + v * std::abs(by_scale))) << i;
    // d/dx (dL/dx)^2 by central differences of the formula.
    const auto squared = [&](double p) { return std::pow(2 * CurveOf(p, by[i]) * SlopeOf(p, by[i]), 2); };
    const double h = 1e-5, want = (squared(at[i] + h) - squared(at[i] - h)) / (2 * h);
    EXPECT_NEAR(dxx[i], want, 1e-3 * (1 + std::abs(want))) << i;
  }
}

TEST(Map, AndItsGradientsOnTheReference) {
  World w;
  CheckMap(w);
}

TEST(Map, AndItsGradientsFusedOnTheCpu) {
  World w({}, test::NewCpuBackend({.threads = 1}).value());
  CheckMap(w);
  const int64_t before = w.Count(Counter::kKernelLaunches);
  const T x = w.Vector(std::vector<float>(1000, 0.75f));
  const T y = w.Op("neg", {Map(w, Curve(w), {w.Op("multiply", {x, x}), x})});
  w.Sync();
  EXPECT_EQ(w.Count(Counter::kKernelLaunches), before + 1);  // with what is around it
  EXPECT_NEAR(w.Read(y)[999], -CurveOf(0.5625, 0.75), 1e-6);
}

TEST(Map, SameProgramSameBody) {
  World w;
  for (int i = 0; i < 3; ++i) w.Read(Map(w, Curve(w), {w.Vector({1, 2}), w.Vector({3, 4})}));
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 1);
  Body f(w, "curve", {kF32, kF32});
  const Function other = f.Finish({w.Op("add", {f.parameters[0], f.parameters[1]})}).function;
  EXPECT_THAT(w.Read(Map(w, other, {w.Vector({1, 2}), w.Vector({3, 4})})), ElementsAre(4, 6));
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 2);
}

TEST(Map, ErrorsShowTheFunctionAndTheInputs) {
  World w;
  const Function curve = Curve(w);
  const T x = w.Vector({1, 2}), y = w.Vector({1, 2, 3});
  EXPECT_THAT(Text(TryMap(w, curve, {x}).status()), HasSubstr("map(f32[2]): the function @curve takes 2 scalars; there are 1 inputs"));
  EXPECT_THAT(Text(TryMap(w, curve, {x, y}).status()), HasSubstr("inputs 0 and 1 have shapes [2] and [3]"));
  const T wide = w.engine->ScalarInt({}, DType::kI32, 1).value();
  EXPECT_THAT(Text(TryMap(w, curve, {w.Number(1), wide}).status()),
              HasSubstr("parameter 1 of the function @curve is f32[]; for an input i32[] it must be i32[]"));
  EXPECT_THAT(Text(TryMap(w, nullptr, {x}).status()), HasSubstr("function computation is missing"));
  Tensors results;
  Tensor* const raw[] = {x.get()};
  EXPECT_THAT(Text(w.engine->Record(ops::kOp_map, raw, {}, {}, &results)), HasSubstr("0 functions given, 1 expected"));
  EXPECT_THAT(Text(w.engine->Record(ops::kOp_neg, raw, {}, {}, &results, {}, {&curve, 1})), HasSubstr("1 functions given, 0 expected"));
  Body pair(w, "pair", {kF32});
  EXPECT_THAT(Text(TryMap(w, pair.Finish({pair.parameters[0], pair.parameters[0]}).function, {x}).status()), HasSubstr("gives 2 results"));
  Body sorted(w, "prefix", {kF32});
  const T one = w.Op("reshape", {sorted.parameters[0]}, {ir::Ints{1}});
  const T many = w.Op("concatenate", {one, one}, {int64_t{0}});
  EXPECT_THAT(Text(TryMap(w, sorted.Finish({w.Sum(many)}).function, {x}).status()),
              HasSubstr("the function @prefix contains concatenate, which does not work element by element"));
}

TEST(Map, NestsOnlySoDeep) {
  World w;
  Function function;
  for (int depth = 0;; ++depth) {
    ASSERT_LE(depth, ir::kMaxRegionDepth + 1);
    Body f(w, "f", {kF32});
    const T x = f.parameters[0];
    const absl::StatusOr<T> y = depth == 0 ? absl::StatusOr<T>(w.Op("neg", {x})) : TryMap(w, function, {x});
    if (!y.ok()) {
      EXPECT_THAT(Text(y.status()), HasSubstr("the function @f holds functions within functions 64 deep; less than 64"));
      EXPECT_EQ(depth, ir::kMaxRegionDepth + 1);
      break;
    }
    function = f.Finish({*y}).function;
    EXPECT_EQ(function->depth(), depth);
  }
}

TEST(Map, IsWrittenAndReadAgain) {
  World w;
  const T y = Map(w, Curve(w), {w.F32({2, 1}, {1, 2}), w.F32({2, 1}, {3, 4})});
  Tensor* const raw[] = {y.get()};
  const std::string text = w.engine->GraphText(raw).value();
  EXPECT_THAT(text, HasSubstr("map(%0, %1) regions {"));
  const auto module = ir::Parse(text, ops::FindOp);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(ir::Print(*module), text);
  const auto written = ir::ToStableHlo(*module);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_THAT(*written, HasSubstr("\"stablehlo.map\"(%0, %1) ({\n      ^bb0(%2: tensor<f32>, %3: tensor<f32>):"));
  EXPECT_THAT(*written, HasSubstr("{dimensions = array<i64: 0, 1>}"));
}

}  // namespace
}  // namespace weft::lazy
