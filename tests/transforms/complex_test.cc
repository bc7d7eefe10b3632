// Derivatives of functions of complex numbers: what they are of z is what those of its two parts are, as re + i im, through control
// flow, checkpoints and rules of one's own; and what those of the parts are differences say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "src/ops/complex.h"
#include "src/transforms/derivative.h"
#include "src/transforms/rules.h"
#include "src/transforms/vmap.h"
#include "tests/ops/op_matrix.h"
#include "tests/support/control_programs.h"
#include "tests/transforms/examples.h"

namespace weft::transforms {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using ir::Values;
using test::MakeFunction;
using test::Tensors;

const Type kRow = Type::Tensor(DType::kC128, {3}), kNumber = Type::Scalar(DType::kC128), kReal = Type::Tensor(DType::kF64, {3});
const std::vector<Type> kTypes = {kRow, kNumber, kReal};

Values CallOf(Builder& b, const Function& f, Values operands) {
  const Ref<const Function> callee = Ref<const Function>::Share(&f);
  return ops::CallAll(b, ops::kOp_call, std::move(operands), {}, {&callee, 1});
}
Value Everywhere(Builder& b, const Value& number) { return ops::BroadcastTo(b, number, {3}); }
Value Norm(Builder& b, const Value& z) { return ops::Reduce(b, ops::Square(b, ops::Abs(b, z)), ops::Reducer::kSum, {0}); }

// (z, w, x) -> tanh(z w) x: a row.
Ref<const Function> Layer() {
  return MakeFunction("layer", kTypes, [](Builder& b, const std::vector<Value>& p) {
    const Value y = ops::Tanh(b, ops::Mul(b, p[0], Everywhere(b, p[1])));
    return std::vector{ops::Mul(b, y, ops::Convert(b, p[2], DType::kC128))};
  });
}

// The loss of a function of that kind.
template <typename F>
Ref<const Function> Loss(F row) {
  return MakeFunction("loss", kTypes, [&](Builder& b, const std::vector<Value>& p) { return std::vector{Norm(b, row(b, p))}; });
}

Ref<const Function> Scans() {
  const auto body = MakeFunction("step", {kRow, kReal, kNumber}, [](Builder& b, const std::vector<Value>& p) {
    const Value turned = ops::Mul(b, p[0], Everywhere(b, p[2]));
    return std::vector{ops::Add(b, ops::Unary(b, ops::kOp_sin, turned), ops::Convert(b, p[1], DType::kC128)), p[0]};
  });
  return Loss([&](Builder& b, const std::vector<Value>& p) {
    const Value rows = ops::BroadcastTo(b, p[2], {4, 3});
    // length, carried, scanned, reverse, indexed, counted, kept, unroll, keep_every
    const Values all = ops::CallAll(b, ops::kOp_scan, {p[0], rows, p[1]},
                                    {int64_t{4}, int64_t{1}, int64_t{1}, int64_t{0}, int64_t{0}, int64_t{0}, int64_t{1}, int64_t{1}, int64_t{1}}, {&body, 1});
    return ops::Add(b, all[0], ops::Reduce(b, all[1], ops::Reducer::kSum, {0}));
  });
}

Ref<const Function> Branches() {
  const auto turn = MakeFunction("turn", {kRow, kNumber}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[0], Everywhere(b, p[1]))};
  });
  const auto layer = Layer();
  return Loss([&](Builder& b, const std::vector<Value>& p) {
    const Value positive = ops::Compare(b, ops::Direction::kGt, ops::Reduce(b, p[2], ops::Reducer::kSum, {0}), 0);
    const Ref<const Function> functions[] = {turn, layer};
    return ops::CallAll(b, ops::kOp_case, {ops::Convert(b, positive, DType::kI32), p[0], p[1], p[0], p[1], p[2]}, {}, functions)[0];
  });
}

// A product whose rule is its own: z w, the cotangents conj(w) g and sum(conj(z) g), as a caller writes them.
absl::StatusOr<Ref<const Function>> WithItsOwnRule() {
  const std::vector<Type> both = {kRow, kNumber}, behind = {kRow, kNumber, kRow};
  const auto f = MakeFunction("product", both, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[0], Everywhere(b, p[1]))};
  });
  const auto forward = MakeFunction("ahead", both, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, p[0], Everywhere(b, p[1])), p[0], p[1]};
  });
  const auto backward = MakeFunction("back", behind, [](Builder& b, const std::vector<Value>& p) {
    return std::vector{ops::Mul(b, ops::Conj(b, Everywhere(b, p[1])), p[2]),
                       ops::Reduce(b, ops::Mul(b, ops::Conj(b, p[0]), p[2]), ops::Reducer::kSum, {0})};
  });
  WEFT_ASSIGN_OR_RETURN(const auto ruled, CustomGradient({*f, 2}, {*forward, 2}, {*backward, 3}));
  return Loss([&](Builder& b, const std::vector<Value>& p) {
    return ops::Mul(b, CallOf(b, *ruled, {p[0], p[1]})[0], ops::Convert(b, p[2], DType::kC128));
  });
}

std::vector<Type> PartTypes(std::span<const Value> values) {
  std::vector<Type> types;
  for (const Value& value : values) types.insert(types.end(), IsComplex(value.dtype()) ? 2 : 1, Type::Tensor(PartOf(value.dtype()), value.dims()));
  return types;
}

// The function on parts, giving parts.
Ref<const Function> OfParts(const Function& f) {
  return MakeFunction("parts", PartTypes(f.parameters()), [&](Builder& b, const std::vector<Value>& p) {
    Values operands;
    size_t next = 0;
    for (const Value& parameter : f.parameters()) {
      const bool complex = IsComplex(parameter.dtype());
      operands.push_back(complex ? ops::ComplexFrom(b, {p[next], p[next + 1]}) : p[next]);
      next += complex ? 2 : 1;
    }
    std::vector<Value> parts;
    for (const Value& result : CallOf(b, f, operands)) {
      if (!IsComplex(result.dtype())) {
        parts.push_back(result);
        continue;
      }
      const ops::Planes planes = ops::PlanesOf(b, result);
      parts.push_back(planes.re);
      parts.push_back(planes.im);
    }
    return parts;
  });
}

Tensors Results(const Function& f, const Tensors& inputs) {
  auto found = test::EvaluateSplit(f.parameters(), f.results(), inputs);
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? *std::move(found) : Tensors();
}

Tensors Draw(const Function& f, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensors drawn;
  for (const Value& parameter : f.parameters()) drawn.push_back(test::Random(parameter.type(), random));
  return drawn;
}

void ExpectSame(const Tensors& a, const Tensors& b, std::string_view what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t r = 0; r < a.size(); ++r) EXPECT_LE(test::Error(a[r], b[r], {.f64 = 1e-11, .absolute = 1e-5}), 1) << what << ", result " << r;
}

void ExpectDifferences(const Function& loss, const Function& slopes) {
  const Tensors at = Draw(loss, 1), along = Draw(loss, 2), found = Results(slopes, at);
  ASSERT_EQ(found.size(), at.size());
  double got = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    for (int64_t k = 0; k < at[i].count(); ++k) got += found[i].GetDouble(k) * along[i].GetDouble(k);
  }
  const auto value = [&](double step) {
    Tensors moved = at;
    for (size_t i = 0; i < at.size(); ++i) {
      for (int64_t k = 0; k < at[i].count(); ++k) moved[i].SetDouble(k, at[i].GetDouble(k) + step * along[i].GetDouble(k));
    }
    return Results(loss, moved)[0].GetDouble(0);
  };
  constexpr double h = 1e-3;
  const double expected = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h);
  EXPECT_NEAR(expected, got, 1e-8 * (1 + std::abs(expected)));
}

// grad, jvp, jvp of grad, and vmap of grad.
void AgreesWithItsParts(const Function& loss) {
  const auto parts = OfParts(loss);
  const auto of_z = Grad({.function = loss, .inputs = 3}), of_parts = Grad({.function = *parts, .inputs = 5});
  ASSERT_TRUE(of_z.ok() && of_parts.ok()) << of_z.status() << of_parts.status();
  ExpectDifferences(*parts, **of_parts);
  const auto slopes = OfParts(**of_z);
  const Tensors inputs = Draw(*slopes, 3);
  ExpectSame(Results(*slopes, inputs), Results(**of_parts, inputs), "grad");

  const std::vector<int64_t> every(5, 0);
  const auto many = Vmap({.function = *slopes, .size = 2, .in_axes = every, .out_axes = every});
  ASSERT_TRUE(many.ok()) << many.status();
  const Tensors other = Draw(*slopes, 4), one = Results(*slopes, inputs), two = Results(*slopes, other);
  Tensors stacked, expected;
  for (size_t i = 0; i < 5; ++i) {
    stacked.push_back(test::Stacked({inputs[i], other[i]}, 0));
    expected.push_back(test::Stacked({one[i], two[i]}, 0));
  }
  ExpectSame(Results(**many, stacked), expected, "vmap of grad");
}

void ForwardAgreesWithItsParts(const Function& f) {
  const size_t inputs = f.parameters().size();
  const auto parts = OfParts(f);
  const auto of_z = Jvp({.function = f, .inputs = inputs}), of_parts = Jvp({.function = *parts, .inputs = parts->parameters().size()});
  ASSERT_TRUE(of_z.ok() && of_parts.ok()) << of_z.status() << of_parts.status();
  const auto ahead = OfParts(**of_z);
  const Tensors at = Draw(*ahead, 5);
  ExpectSame(Results(*ahead, at), Results(**of_parts, at), "jvp");
}

TEST(ComplexDerivatives, AreThoseOfTheParts) {
  const auto layer = Layer(), plain = Loss([&](Builder& b, const std::vector<Value>& p) { return CallOf(b, *layer, {p[0], p[1], p[2]})[0]; });
  for (const auto& loss : {plain, Scans(), Branches()}) {
    AgreesWithItsParts(*loss);
    ForwardAgreesWithItsParts(*loss);
    const auto slope = Grad({.function = *loss, .inputs = 3});
    ASSERT_TRUE(slope.ok()) << slope.status();
    ForwardAgreesWithItsParts(**slope);  // Hessian times vector
  }
  ForwardAgreesWithItsParts(*layer);
}

TEST(ComplexDerivatives, OfCheckpointsAndRulesOfOnesOwn) {
  for (const ops::Keep keep : {ops::Keep::kOperands, ops::Keep::kProducts}) {
    const auto less = Checkpoint(*Layer(), keep);
    ASSERT_TRUE(less.ok()) << less.status();
    AgreesWithItsParts(*Loss([&](Builder& b, const std::vector<Value>& p) { return CallOf(b, **less, {p[0], p[1], p[2]})[0]; }));
  }
  const auto ruled = WithItsOwnRule();
  ASSERT_TRUE(ruled.ok()) << ruled.status();
  AgreesWithItsParts(**ruled);
}

// f = z w x: backward conj(w) x g, as PyTorch has it, where JAX has w x g.
TEST(ComplexDerivatives, BackwardConjugates) {
  const auto f = MakeFunction("f", {kNumber, kNumber}, [](Builder& b, const std::vector<Value>& p) { return std::vector{ops::Mul(b, p[0], p[1])}; });
  const auto vjp = Vjp({.function = *f, .inputs = 2});
  ASSERT_TRUE(vjp.ok()) << vjp.status();
  const auto parts = OfParts(**vjp);
  Tensors inputs;
  for (const double x : {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}) {
    inputs.emplace_back(DType::kF64, Dims{});
    inputs.back().SetDouble(0, x);
  }
  const Tensors found = Results(*parts, inputs);
  std::vector<double> numbers;
  for (const HostTensor& x : found) numbers.push_back(x.GetDouble(0));
  EXPECT_THAT(numbers, testing::ElementsAre(39, -2, 17, -4));  // (3 - 4i)(5 + 6i), (1 - 2i)(5 + 6i)
  EXPECT_EQ("result 0 of the function @f is c128[]; a gradient is of one float: reduce it, or give cotangents to a vjp",
            Grad({.function = *f, .inputs = 2}).status().message());
}

}  // namespace
}  // namespace weft::transforms
