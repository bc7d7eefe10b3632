// pow: x to the power of y.
#include <cmath>

#include "src/ops/complex.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber | kC, "base"}, {"y", kNumber | kC, "exponent"}};

int64_t Power(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) result *= base;
  }
  return static_cast<int64_t>(result);
}
int64_t Signed(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
  return Power(static_cast<uint64_t>(x), static_cast<uint64_t>(y));
}
int64_t Unsigned(int64_t x, int64_t y) { return Power(static_cast<uint64_t>(x), static_cast<uint64_t>(y)); }

// Numbers below have reciprocals that overflow, or nearly.
double SmallestNormal(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 0x1p-14;
    case DType::kF64: return 0x1p-1022;
    default: return 0x1p-126;
  }
}

// Tells whether y is a real number of at least 0.
Value NotBelow(Builder& b, const Value& y) {
  if (!IsComplex(y.dtype())) return Compare(b, Direction::kGe, y, 0);
  const Planes planes = PlanesOf(b, y);
  return And(b, Compare(b, Direction::kGe, planes.re, 0), Compare(b, Direction::kEq, planes.im, 0));
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& g = call.cotangents[0];
  const Value& x = call.operands[0];
  const Value& y = call.operands[1];
  if (call.wanted[0]) {
    // y x^(y-1); where both are 0 (or 1 / x is not finite) that is 0, not 0 times infinity. Only there: elsewhere the
    // derivative with respect to y goes on from y = 0, too.
    Value large = Compare(b, Direction::kGe, Abs(b, x), SmallestNormal(PartOf(x.dtype())));
    Value still = And(b, Compare(b, Direction::kEq, y, 0), Unary(b, kOp_bitwise_not, large));
    Value base = Select(b, still, FullLike(b, x, 1), x);
    Value slope = Mul(b, y, Call(b, kOp_pow, {base, Add(b, y, -1)}));
    grads[0] = Mul(b, g, Select(b, still, FullLike(b, y, 0), slope));
  }
  if (call.wanted[1]) {  // x^y log(x), 0 where x is 0 and y is not below
    Value still = And(b, Compare(b, Direction::kEq, x, 0), NotBelow(b, y));
    grads[1] = Mul(b, g, Mul(b, call.results[0], Log(b, Select(b, still, FullLike(b, x, 1), x))));
  }
  return absl::OkStatus();
}

double Double(double x, double y) { return std::pow(x, y); }

absl::Status Reference(const ReferenceCall& call) {
  return IsUnsigned(call.results[0].dtype()) ? ReferenceBinary<Double, Unsigned>(call)
                                             : ReferenceBinary<Double, Signed>(call);
}

constexpr auto kSamples = BinarySamples(0.3, 3);

}  // namespace

constinit const OpDef kOp_pow = {
    .name = "power",
    .c_name = "pow",
    .doc =
        "Elementwise power x^y with NumPy broadcasting, as C pow. Integers wrap; a negative exponent gives 0 unless x "
        "is 1 or -1. At x = 0 and y >= 0 the slope along y is 0, at x < 0 NaN; at 0^0 that along x is 0, as in PyTorch. "
        "For fixed exponents see square and integer_pow.",
    .example = "z = wf_pow(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferSame,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = ScalarBinary<ScalarOp::kPow>,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 2e-14, .bf16 = 2e-2, .f16 = 4e-3},
    .cost = Cost::kFunction,
    .planes = BinaryPlanes<ComplexPow>,
};

}  // namespace weft::ops
