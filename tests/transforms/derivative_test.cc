// grad, vjp and jvp of functions: each beside the others over every operation and control flow, beside finite differences, and in
// one another.
#include "src/transforms/derivative.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "src/ops/build.h"
#include "src/ops/conv/conv_shape.h"
#include "src/ops/parameter.h"
#include "src/ops/reducer.h"
#include "src/ops/registry.h"
#include "tests/support/control_programs.h"
#include "tests/support/op_programs.h"
#include "tests/transforms/examples.h"

namespace weft::transforms {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using ir::Values;
using test::All;
using test::MakeFunction;
using test::Random;
using test::Tensors;
using ::testing::HasSubstr;

// sum(x y), and how large its terms are.
struct Dot {
  double sum = 0, size = 0;
  void Add(const HostTensor& x, const HostTensor& y) {
    for (int64_t i = 0; i < x.count(); ++i) {
      const double term = x.GetDouble(i) * y.GetDouble(i);
      sum += term, size += std::abs(term);
    }
  }
};

// What is between f32 and 16 bits is rounded on its way, forward and back.
bool Rounds(const Function& function) {
  return std::ranges::any_of(function.nodes(), [](const ir::Node* node) {
    return std::ranges::any_of(node->results(), [](const Type& type) { return type.is_tensor() && IsHalf(type.dtype); });
  });
}

// <c, J t> = <J^T c, t>. False where there is neither.
bool Transposes(const test::OpProgram& program, std::mt19937_64& random) {
  const Function& f = program.module.main();
  const auto jvp = Jvp(All(f)), vjp = Vjp(All(f));
  if (!vjp.ok() || !jvp.ok()) {
    EXPECT_EQ(vjp.status().code(), jvp.status().code()) << vjp.status() << "\n" << jvp.status();
    return false;
  }
  Tensors tangents, cotangents, forward = program.inputs, backward = program.inputs;
  for (const Value& parameter : f.parameters()) {
    if (test::IsReal(parameter)) tangents.push_back(Random(parameter.type(), random));
  }
  for (const Value& result : f.results()) {
    if (test::IsReal(result)) cotangents.push_back(Random(result.type(), random));
  }
  forward.insert(forward.end(), tangents.begin(), tangents.end());
  backward.insert(backward.end(), cotangents.begin(), cotangents.end());
  const auto ahead = reference::Interpret(**jvp, forward), back = reference::Interpret(**vjp, backward);
  EXPECT_TRUE(ahead.ok() && back.ok()) << ahead.status() << back.status();
  if (!ahead.ok() || !back.ok()) return false;
  Dot a, b;
  for (size_t i = 0; i < cotangents.size(); ++i) a.Add((*ahead)[i], cotangents[i]);
  for (size_t i = 0; i < tangents.size(); ++i) b.Add((*back)[i], tangents[i]);
  if (std::isnan(a.sum) && std::isnan(b.sum)) return true;  // where the function has no slope
  EXPECT_LE(std::abs(a.sum - b.sum), 1e-6 + (Rounds(f) ? 1e-3 : 2e-5) * (a.size + b.size)) << a.sum << " and " << b.sum << "\n" << ir::Print(program.module);
  return true;
}

TEST(Derivative, ForwardIsTheTransposeOfBackward) {
  const auto programs = test::OpPrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  std::mt19937_64 random(1);
  std::set<std::string> neither;
  int cases = 0;
  for (const test::OpProgram& program : *programs) {
    const Function& f = program.module.main();
    if (!test::Differentiable(f)) continue;
    if (program.group == "reduce_precision") continue;  // rounds cotangents and tangents, to as little as no bits
    SCOPED_TRACE(program.name);
    if (Transposes(program, random)) {
      ++cases;
    } else {
      neither.insert(program.group);
    }
  }
  EXPECT_GE(cases, 500);
  // Vectors that full_matrices adds have no derivative; implicit gradients have none of their own.
  EXPECT_EQ(std::set<std::string>({"beta", "dirichlet", "gamma", "gamma_slope", "geqrf", "igamma", "igammac", "ldl", "ldl_solve", "qr", "svd"}), neither);
}

TEST(Derivative, ForwardIsTheTransposeOfBackwardThroughControlFlow) {
  const auto programs = test::ControlPrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  std::mt19937_64 random(2);
  int cases = 0;
  for (const test::OpProgram& program : *programs) {
    const Function& f = program.module.main();
    if (!test::Differentiable(f)) continue;
    SCOPED_TRACE(program.name);
    cases += Transposes(program, random) ? 1 : 0;
  }
  EXPECT_GE(cases, 8);
}

const Type kRow = Type::Tensor(DType::kF64, {3}), kNumber = Type::Scalar(DType::kF64), kCount = Type::Scalar(DType::kI32);

std::vector<Value> ListOf(const Values& values) { return {values.begin(), values.end()}; }

// (x, rate): x grows by what rate says until its first element passes 10; a count and the last difference beside it.
Ref<const Function> Grows() {
  const auto below = MakeFunction("below", {kRow, kRow, kCount}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Compare(b, ops::Direction::kLt, ops::Reduce(b, p[0], ops::Reducer::kMax, {0}), 10)};
  });
  const auto grow = MakeFunction("grow", {kRow, kRow, kCount, kNumber}, [](Builder& b, const std::vector<Value>& p) {
    const Value next = ops::Add(b, ops::Mul(b, p[0], ops::BroadcastTo(b, p[3], {3})), ops::Tanh(b, p[0]));
    return std::vector{next, ops::Sub(b, next, p[0]), ops::Add(b, p[2], 1)};
  });
  return MakeFunction("grows", {kRow, kNumber}, [&](Builder& b, const std::vector<Value>& p) {
    return ListOf(test::While(b, below, grow, {p[0], ops::FullLike(b, p[0], 0), ops::Scalar(b, DType::kI32, 0), p[1]}));
  });
}

// (x, rows) -> what a scan carries and gives, with what it keeps.
Ref<const Function> Scans(int64_t every) {
  const auto body = MakeFunction("step", {kCount, kRow, kRow, kNumber}, [](Builder& b, const std::vector<Value>& p) {
    const Value at = ops::Add(b, ops::Convert(b, p[0], DType::kF64), p[3]);
    const Value next = ops::Tanh(b, ops::Add(b, ops::Mul(b, p[1], ops::BroadcastTo(b, at, {3})), p[2]));
    return std::vector{next, ops::Mul(b, next, p[1])};
  });
  return MakeFunction("scans", {kRow, Type::Tensor(DType::kF64, {5, 3}), kNumber}, [&](Builder& b, const std::vector<Value>& p) {
    // length, carried, scanned, reverse, indexed, counted, kept, unroll, keep_every
    return ListOf(ops::CallAll(b, ops::kOp_scan, {p[0], p[1], p[2]},
                               {int64_t{5}, int64_t{1}, int64_t{1}, int64_t{1}, int64_t{1}, int64_t{0}, int64_t{1}, int64_t{1}, every}, {&body, 1}));
  });
}

// The tangents of f64 functions by differences of fourth order.
void AgreesWithDifferences(const Function& f, const Tensors& inputs) {
  std::mt19937_64 random(3);
  const auto jvp = Jvp({.function = f, .inputs = inputs.size(), .values = true});
  ASSERT_TRUE(jvp.ok()) << jvp.status();
  Tensors tangents, all = inputs;
  for (const HostTensor& x : inputs) tangents.push_back(Random(Type::Tensor(x.dtype(), x.dims()), random));
  all.insert(all.end(), tangents.begin(), tangents.end());
  const auto found = reference::Interpret(**jvp, all);
  ASSERT_TRUE(found.ok()) << found.status();
  const auto at = [&](double step) {
    Tensors moved = inputs;
    for (size_t i = 0; i < moved.size(); ++i) {
      for (int64_t k = 0; k < moved[i].count(); ++k) moved[i].SetDouble(k, inputs[i].GetDouble(k) + step * tangents[i].GetDouble(k));
    }
    auto results = reference::Interpret(f, moved);
    EXPECT_TRUE(results.ok()) << results.status();
    return *std::move(results);
  };
  constexpr double kStep = 1e-3;
  const Tensors far_below = at(-2 * kStep), below = at(-kStep), here = at(0), above = at(kStep), far_above = at(2 * kStep);
  size_t tangent = here.size();
  for (size_t r = 0; r < here.size(); ++r) {
    EXPECT_EQ(here[r], (*found)[r]);
    if (!IsFloat(here[r].dtype())) continue;
    const HostTensor& slope = (*found)[tangent++];
    for (int64_t k = 0; k < slope.count(); ++k) {
      const double expected = (8 * (above[r].GetDouble(k) - below[r].GetDouble(k)) - (far_above[r].GetDouble(k) - far_below[r].GetDouble(k))) / (12 * kStep);
      EXPECT_NEAR(expected, slope.GetDouble(k), 1e-8 * (1 + std::abs(expected))) << r << " " << k;
    }
  }
}

HostTensor Numbers(Dims dims, std::vector<double> values) {
  HostTensor x(DType::kF64, std::move(dims));
  for (int64_t i = 0; i < x.count(); ++i) x.SetDouble(i, values[static_cast<size_t>(i) % values.size()]);
  return x;
}

TEST(Derivative, ForwardThroughLoopsIsWhatDifferencesSay) {
  AgreesWithDifferences(*Grows(), {Numbers({3}, {0.5, -0.25, 0.125}), Numbers({}, {1.4})});
  for (const int64_t every : {1, 2}) {
    AgreesWithDifferences(*Scans(every), {Numbers({3}, {0.5, -0.25, 0.125}), Numbers({5, 3}, {0.3, 0.1, -0.2, 0.7}), Numbers({}, {0.4})});
  }
}

// Hessian times vector: forward over backward, and backward of a product with backward.
// Forward mode picks the tangents of the largest elements also where they are infinite: an infinity is no factor of the others' zeros.
TEST(Derivative, ForwardOfInfiniteExtremes) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  struct Row {
    double x[3], largest, smallest;
  };
  constexpr double kTangent[] = {3, 5, 11};
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const Row& row : {Row{{kInf, 1, -kInf}, 3, 11}, {{kInf, kInf, 0}, 4, 11}, {{-kInf, -kInf, -kInf}, 19.0 / 3, 19.0 / 3},
                           {{-kInf, 2, kInf}, 11, 3}, {{kNan, kInf, 0}, kNan, kNan}}) {
      for (const bool largest : {true, false}) {
        Builder b;
        const Value x = ops::Parameter(Type::Tensor(dtype, {3}));
        const Value y = ops::Reduce(b, x, largest ? ops::Reducer::kMax : ops::Reducer::kMin, {0});
        const auto f = Function::Create("f", {x}, {y});
        const auto jvp = Jvp(All(*f));
        ASSERT_TRUE(jvp.ok()) << jvp.status();
        Tensors given = {HostTensor(dtype, {3}), HostTensor(dtype, {3})};
        for (int64_t i = 0; i < 3; ++i) {
          given[0].SetDouble(i, row.x[i]);
          given[1].SetDouble(i, kTangent[i]);
        }
        const auto found = reference::Interpret(**jvp, given);
        ASSERT_TRUE(found.ok()) << found.status();
        const double slope = (*found)[0].GetDouble(0), right = largest ? row.largest : row.smallest;
        EXPECT_TRUE(std::isnan(right) ? std::isnan(slope) : std::abs(slope - right) <= 0.02 * right)
            << slope << " instead of " << right << (largest ? ", largest of " : ", smallest of ") << row.x[0] << " " << row.x[1] << " " << row.x[2];
      }
    }
  }
}

TEST(Derivative, OfDerivatives) {
  const auto f = MakeFunction("f", {kRow, kNumber}, [](Builder& b, const std::vector<Value>& p) {
    const Value y = ops::Mul(b, ops::Exp(b, p[0]), ops::BroadcastTo(b, ops::Tanh(b, p[1]), {3}));
    return std::vector{ops::Reduce(b, ops::Mul(b, y, p[0]), ops::Reducer::kSum, {0}), y};
  });
  const auto slope = Grad({.function = *f, .inputs = 2});
  ASSERT_TRUE(slope.ok()) << slope.status();
  ASSERT_EQ(2u, (*slope)->results().size());
  AgreesWithDifferences(**slope, {Numbers({3}, {0.5, -0.25, 0.125}), Numbers({}, {0.4})});
  const auto forward = Jvp({.function = **slope, .inputs = 2});
  ASSERT_TRUE(forward.ok()) << forward.status();
  const auto backward = Vjp({.function = **slope, .inputs = 2});
  ASSERT_TRUE(backward.ok()) << backward.status();
  const Tensors inputs = {Numbers({3}, {0.5, -0.25, 0.125}), Numbers({}, {0.4}), Numbers({3}, {1, 2, 3}), Numbers({}, {-1})};
  const auto a = reference::Interpret(**forward, inputs), b = reference::Interpret(**backward, inputs);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  for (size_t r = 0; r < 2; ++r) EXPECT_LE(test::Error((*a)[r], (*b)[r], {.f64 = 1e-13, .absolute = 1e-6}), 1);  // it is symmetric
}

// The gradients of each example of a convolutional network: one line.
TEST(Derivative, OfEachExample) {
  const Type image = Type::Tensor(DType::kF64, {1, 6, 6, 2}), kernel = Type::Tensor(DType::kF64, {3, 3, 2, 4});
  const auto loss = MakeFunction("loss", {kernel, image}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Reduce(b, ops::Tanh(b, ops::Call(b, ops::kOp_conv, {p[1], p[0]})), ops::Reducer::kSum, {0, 1, 2, 3})};
  });
  const std::vector<int64_t> kernels = {0}, axes = {kNotMapped, 0}, first = {0};
  const auto slope = Grad({.function = *loss, .inputs = 2, .wrt = kernels});
  ASSERT_TRUE(slope.ok()) << slope.status();
  std::vector<std::string_view> loops;
  std::mt19937_64 random(4);
  const HostTensor weights = Random(kernel, random);
  std::vector<Tensors> examples;
  for (int e = 0; e < 4; ++e) examples.push_back({weights, Random(image, random)});
  test::ExpectAsALoop(**slope, examples, axes, 0, {.f64 = 1e-12, .absolute = 1e-5}, &loops);
  EXPECT_TRUE(loops.empty());
}

// vmap(grad(scan)), jvp(vmap(while)), vmap(jvp(while)).
TEST(Derivative, ComposesWithVmapThroughLoops) {
  std::mt19937_64 random(5);
  const auto scans = Scans(1);
  const auto carried = Function::Create("total", {scans->parameters().begin(), scans->parameters().end()}, {scans->results()[0]});
  const auto total = MakeFunction("total", {kRow, Type::Tensor(DType::kF64, {5, 3}), kNumber}, [&](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Reduce(b, ops::Call(b, ops::kOp_call, {p[0], p[1], p[2]}, {}, {&carried, 1}), ops::Reducer::kSum, {0})};
  });
  const auto slope = Grad({.function = *total, .inputs = 3});
  ASSERT_TRUE(slope.ok()) << slope.status();
  std::vector<Tensors> examples(3);
  for (Tensors& example : examples) {
    for (const Value& parameter : total->parameters()) example.push_back(Random(parameter.type(), random));
  }
  const std::vector<int64_t> rows = {0, 1, kNotMapped};
  std::vector<std::string_view> loops;
  test::ExpectAsALoop(**slope, examples, rows, 0, {.f64 = 1e-12, .absolute = 1e-5}, &loops);
  EXPECT_TRUE(loops.empty());

  const auto grows = Grows();
  const std::vector<int64_t> alone = {0, kNotMapped}, first(3, 0), every(4, 0);
  const auto many = Vmap({.function = *grows, .size = 2, .in_axes = alone, .out_axes = first});
  ASSERT_TRUE(many.ok()) << many.status();
  AgreesWithDifferences(**many, {Numbers({2, 3}, {0.5, -0.25, 0.125, 2, 1, -0.5}), Numbers({}, {1.4})});
  const auto forward = Jvp({.function = *grows, .inputs = 2});
  ASSERT_TRUE(forward.ok()) << forward.status();
  std::vector<Tensors> duals;
  for (int e = 0; e < 3; ++e) {
    duals.push_back({Random(kRow, random), Numbers({}, {1.2 + 0.2 * e}), Random(kRow, random), Random(kNumber, random)});
    duals.back()[0].SetDouble(0, 0.5);  // grows at all
  }
  test::ExpectAsALoop(**forward, duals, every, 0, {.f64 = 1e-12, .absolute = 1e-5}, &loops);
}

// Captures and the stream stay behind; what is not asked for is not there.
TEST(Derivative, KeepsWhatStandsBehindTheInputs) {
  const auto f = MakeFunction("f", {kRow, kCount, kNumber, kRow}, [](Builder& b, const std::vector<Value>& p) {
    const Value scale = ops::Mul(b, ops::Convert(b, p[1], DType::kF64), p[2]);
    return std::vector{ops::Reduce(b, ops::Mul(b, ops::Mul(b, p[0], p[3]), ops::BroadcastTo(b, scale, {3})), ops::Reducer::kSum, {0}), p[1]};
  });
  const std::vector<int64_t> second = {2};
  const auto types = [](const Function& g) {
    std::vector<std::string> names;
    for (const Value& parameter : g.parameters()) names.push_back(ir::ShortType(parameter.type()));
    names.push_back("->");
    for (const Value& result : g.results()) names.push_back(ir::ShortType(result.type()));
    return names;
  };
  using ::testing::ElementsAre;
  const auto grad = Grad({.function = *f, .inputs = 3, .values = true});
  ASSERT_TRUE(grad.ok()) << grad.status();
  EXPECT_THAT(types(**grad), ElementsAre("f64[3]", "i32[]", "f64[]", "f64[3]", "->", "f64[]", "i32[]", "f64[3]", "f64[]"));
  const auto vjp = Vjp({.function = *f, .inputs = 3, .wrt = second});
  ASSERT_TRUE(vjp.ok()) << vjp.status();
  EXPECT_THAT(types(**vjp), ElementsAre("f64[3]", "i32[]", "f64[]", "f64[]", "f64[3]", "->", "f64[]"));
  const auto jvp = Jvp({.function = *f, .inputs = 3});
  ASSERT_TRUE(jvp.ok()) << jvp.status();
  EXPECT_THAT(types(**jvp), ElementsAre("f64[3]", "i32[]", "f64[]", "f64[3]", "f64[]", "f64[3]", "->", "f64[]"));
}

TEST(Derivative, WhatIsWrongIsSaid) {
  const auto f = MakeFunction("f", {kRow, kCount}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Tanh(b, p[0]), p[1]};
  });
  const auto refused = [&](auto derivative, std::vector<int64_t> wrt) {
    return std::string(derivative({.function = *f, .inputs = 2, .wrt = wrt}).status().message());
  };
  EXPECT_EQ("result 0 of the function @f is f64[3]; a gradient is of one float: reduce it, or give cotangents to a vjp", refused(Grad, {}));
  EXPECT_EQ("wrt[1] is 2; the function @f has 2 inputs", refused(Vjp, {0, 2}));
  EXPECT_EQ("wrt[0] is -1; the function @f has 2 inputs", refused(Jvp, {-1}));
  EXPECT_EQ("wrt[0] is 1; input 1 of the function @f is i32[], and only floats and complex numbers have derivatives", refused(Jvp, {1}));
  EXPECT_EQ("wrt[1] is 0, which wrt names before", refused(Vjp, {0, 0}));
  const auto counts = MakeFunction("counts", {kCount}, [](Builder& b, const std::vector<Value>& p) { return std::vector{ops::Add(b, p[0], 1)}; });
  EXPECT_EQ("none of the 1 results of the function @counts is a float or complex: it has no derivative", Vjp({.function = *counts, .inputs = 1}).status().message());
  EXPECT_THAT(Vjp(All(*Grows())).status().message(), HasSubstr("has no reverse-mode gradient"));
}

}  // namespace
}  // namespace weft::transforms
