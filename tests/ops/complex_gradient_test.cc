// Gradients through complex values: each operation that takes them, to the second derivative, against finite differences along real and
// imaginary parts, in f64 on the reference; and what a complex gradient is. PyTorch and JAX judge in complex_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "src/autodiff/gradient.h"
#include "src/ops/complex.h"
#include "tests/support/only_op.h"
#include "tests/ops/op_matrix.h"

namespace weft {
namespace {

using test::Case;

// The parameters that carry gradients are real: of complex operands the two parts.
struct Parts {
  ir::Builder b;
  ir::Values operands;
  std::vector<ir::Value> parameters, wanted;
  std::vector<HostTensor> arguments;
  std::vector<size_t> index;  // of wanted among the parameters

  explicit Parts(const Case& c) {
    size_t next = 0;
    for (const ir::Value& operand : c.operands) {
      if (!operand) {
        operands.push_back({});
        continue;
      }
      const HostTensor& value = c.arguments[next++];
      if (!IsComplex(operand.dtype())) {
        operands.push_back(Add(value));
        continue;
      }
      const ir::Value re = Add(value.Part(0)), im = Add(value.Part(1));
      operands.push_back(ops::ComplexFrom(b, {re, im}));
    }
  }

  ir::Value Add(HostTensor value) {
    parameters.push_back(test::NewParameter(ir::Type::Tensor(value.dtype(), value.dims())));
    if (IsFloat(value.dtype())) {
      wanted.push_back(parameters.back());
      index.push_back(arguments.size());
    }
    arguments.push_back(std::move(value));
    return parameters.back();
  }

  std::vector<HostTensor> Evaluate(std::span<const ir::Value> results, std::span<const HostTensor> at) const {
    auto values = test::EvaluateSplit(parameters, results, at);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *std::move(values) : std::vector<HostTensor>();
  }
};

// The parts of all results, each with a weight of its own, in one number.
ir::Value Weigh(ir::Builder& b, std::span<const ir::Value> results, std::mt19937& random) {
  ir::Value total;
  const auto add = [&](const ir::Value& part) {
    if (!part || !IsFloat(part.dtype())) return;
    HostTensor weights(part.dtype(), part.dims());
    for (int64_t i = 0; i < weights.count(); ++i) weights.SetDouble(i, 0.5 + 0x1p-32 * random());
    const ir::Value sum = ops::Reduce(b, ops::Mul(b, part, ops::Constant(b, std::move(weights))), ops::Reducer::kSum,
                                      ops::Axes(part.dims().size()));
    total = total ? ops::Add(b, total, sum) : sum;
  };
  for (const ir::Value& result : results) {
    if (!IsComplex(result.dtype())) {
      add(result);
      continue;
    }
    const ops::Planes planes = ops::PlanesOf(b, result);
    add(planes.re);
    add(planes.im);
  }
  return total;
}

// Both orders along some directions, dense ones and single elements. How many slopes were compared.
int CheckOrders(const ir::OpDef& op, const Case& c) {
  std::mt19937 random(5);
  Parts p(c);
  ir::Values results = ops::CallAll(p.b, op, p.operands, c.parsed.attrs);
  EXPECT_TRUE(p.b.ok()) << p.b.status();
  int compared = 0;
  for (int order = 1; order <= 2 && p.b.ok(); ++order) {
    const ir::Value total = Weigh(p.b, results, random);
    if (!total) return compared;
    const auto gradients = autodiff::Gradient(p.b, total, p.wanted);
    if (absl::IsUnimplemented(gradients.status())) return compared;  // nor is it one of real numbers
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    if (!gradients.ok()) return compared;
    const std::vector<HostTensor> found = p.Evaluate(*gradients, p.arguments);
    if (found.size() != p.wanted.size()) return compared;
    for (int direction = 0; direction < 5; ++direction) {
      std::vector<std::vector<double>> along;
      double got = 0;
      for (size_t w = 0; w < p.wanted.size(); ++w) {
        along.emplace_back(found[w].count(), 0.0);
        const size_t single = along[w].empty() ? 0 : random() % along[w].size();
        for (size_t i = 0; i < along[w].size(); ++i) {
          if (direction >= 2 && i != single) continue;
          along[w][i] = 0x1p-31 * random() - 1;
          got += along[w][i] * found[w].GetDouble(static_cast<int64_t>(i));
        }
      }
      const auto at = [&](double t) {
        std::vector<HostTensor> moved = p.arguments;
        for (size_t w = 0; w < along.size(); ++w) {
          for (size_t i = 0; i < along[w].size(); ++i) {
            HostTensor& x = moved[p.index[w]];
            x.SetDouble(static_cast<int64_t>(i), x.GetDouble(static_cast<int64_t>(i)) + t * along[w][i]);
          }
        }
        const auto values = p.Evaluate({&total, 1}, moved);
        return values.empty() ? NAN : values[0].GetDouble(0);
      };
      // Error h^4.
      const auto slope = [&](double h) { return (8 * (at(h / 2) - at(-h / 2)) - (at(h) - at(-h))) / (6 * h); };
      const double wide = slope(0x1p-9), narrow = slope(0x1p-11);
      if (!(std::fabs(wide - narrow) <= 1e-5 * (1 + std::fabs(narrow)))) continue;  // a cut or a pole is near
      EXPECT_NEAR(got, narrow, 1e-6 * (1 + std::fabs(narrow))) << "order " << order << ", direction " << direction;
      ++compared;
    }
    results.assign(gradients->begin(), gradients->end());
  }
  return compared;
}

bool TakesComplex(const ir::OpDef& op) {
  return std::ranges::any_of(op.operands, [](const ir::OperandDef& operand) { return ir::Contains(operand.types, DType::kC128); });
}
// It says that nothing flows through it.
bool Ends(const ir::OpDef& op) {
  return std::ranges::any_of(op.absent, [](const ir::Absent& absent) {
    return absent.part == ir::Part::kGradient && absent.reason != ir::Reason::kExpands;
  });
}
// Vectors whose factor of modulus 1 is LAPACK's to choose: no function of them alone has a slope (linalg_gradient_test.py).
bool HasFreePhases(const ir::OpDef& op) { return op.c_name == "eigh" || op.c_name == "eig" || op.c_name == "svd"; }
bool InDouble(const ir::Type& type) { return PartOf(type.dtype) == DType::kF64 || !(IsFloat(type.dtype) || IsComplex(type.dtype)); }

TEST(ComplexGradients, OfTwoOrdersAgreeWithFiniteDifferences) {
  std::map<std::string_view, int> compared;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (test::LeftOut(*op)) continue;
    if (!TakesComplex(*op) && op != &ops::kOp_complex && op != &ops::kOp_fft) continue;
    if (Ends(*op) || HasFreePhases(*op)) continue;
    for (const ir::Sample& sample : op->samples) {
      const auto c = test::MakeCase(*op, sample, DType::kC128, 3);
      if (!c.ok()) continue;  // its attributes are for another type
      SCOPED_TRACE(c->name);
      ir::Builder trial;
      const ir::Values results = ops::CallAll(trial, *op, c->operands, c->parsed.attrs);
      if (!trial.ok()) continue;  // an order, or bits, which complex numbers do not have
      bool exact = true, complex = false;
      for (const auto& values : {c->operands, results}) {
        for (const ir::Value& value : values) {
          exact = exact && (!value || InDouble(value.type()));
          complex = complex || (value && IsComplex(value.dtype()));
        }
      }
      if (exact && complex) compared[op->c_name] += CheckOrders(*op, *c);
    }
  }
  for (const std::string_view name : {"add", "sub", "mul", "div", "pow", "neg", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan",
                                      "tanh", "sigmoid", "square", "abs", "sign", "real", "imag", "complex", "convert", "fft", "dot_general",
                                      "matmul", "convolution", "conv_backward_input", "conv_backward_kernel", "reduce", "sum", "mean", "prod",
                                      "cumsum", "cumprod", "reduce_window", "gather", "scatter", "slice", "pad", "concatenate", "where",
                                      "transpose", "reshape", "broadcast_in_dim", "reverse", "dynamic_slice", "dynamic_update_slice", "take",
                                      "cholesky", "triangular_solve", "lu", "qr", "eigvalsh", "svdvals", "eigvals", "solve", "inv", "det", "slogdet", "pinv", "lstsq",
                                      "matrix_exp", "householder_product"}) {
    EXPECT_GT(compared[name], 0) << name;
  }
}

HostTensor Number(DType dtype, double re, double im) {
  HostTensor value(dtype, {});
  HostTensor part(PartOf(dtype), {});
  part.SetDouble(0, re);
  value.SetPart(0, part);
  part.SetDouble(0, im);
  value.SetPart(1, part);
  return value;
}

// L = |z|² w for a real w: 2 w z, where JAX says its conjugate.
TEST(ComplexGradients, PointTheWayUp) {
  ir::Builder b;
  const ir::Value z = test::NewParameter(ir::Type::Tensor(DType::kC128, {}));
  const ir::Value loss = ops::Mul(b, ops::Square(b, ops::Abs(b, z)), 3);
  const auto found = autodiff::Gradient(b, loss, {&z, 1});
  ASSERT_TRUE(found.ok()) << found.status();
  const HostTensor at = Number(DType::kC128, 0.6, -0.8);
  const auto values = test::EvaluateSplit({&z, 1}, *found, {&at, 1});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_NEAR((*values)[0].Part(0).GetDouble(0), 3.6, 1e-12);
  EXPECT_NEAR((*values)[0].Part(1).GetDouble(0), -4.8, 1e-12);
}

TEST(ComplexGradients, OfAComplexValueNeedACotangent) {
  ir::Builder b;
  const ir::Value z = test::NewParameter(ir::Type::Tensor(DType::kC64, {}));
  const ir::Value y = ops::Square(b, z);
  EXPECT_EQ(autodiff::Gradient(b, y, {&z, 1}).status().message(),
            "grad: y is c64[]; without a cotangent it must be real (take its abs or its real part, or give a cotangent)");
  const ir::Value real = test::NewParameter(ir::Type::Tensor(DType::kF32, {}));
  EXPECT_EQ(autodiff::Gradient(b, y, {&z, 1}, real).status().message(), "grad: cotangent is f32[]; it must have y's type c64[]");
  EXPECT_TRUE(autodiff::Gradient(b, y, {&z, 1}, z).ok());
}

}  // namespace
}  // namespace weft
