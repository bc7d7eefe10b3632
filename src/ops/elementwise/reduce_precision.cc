// reduce_precision: rounds to a float type of fewer exponent and mantissa bits, and back.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/ir/stablehlo.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kWhole, "operand"}};
constexpr AttrDef kAttrs[] = {{"exponent_bits", AttrType::kInt, "of the narrow type, at least 1", true},
                              {"mantissa_bits", AttrType::kInt, "of the narrow type, at least 0", true}};

// The element type's own.
struct Bits {
  int exponent, mantissa;
};
Bits BitsOfType(DType dtype) {
  switch (dtype) {
    case DType::kF16: return {5, 10};
    case DType::kBF16: return {8, 7};
    case DType::kF32: return {8, 23};
    default: return {11, 52};
  }
}

absl::Status Infer(const InferCall& call, Types* results) {
  const int64_t exponent = Attr<kAttrs, "exponent_bits">(call.attrs),
                mantissa = Attr<kAttrs, "mantissa_bits">(call.attrs);
  if (exponent < 1 || mantissa < 0 || exponent > INT32_MAX || mantissa > INT32_MAX) {
    return UserError("exponent_bits is ", exponent, " and mantissa_bits is ", mantissa,
                     "; at least 1 and 0 are needed, at most 2147483647");
  }
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

// The cotangent is rounded alike, as in JAX.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  grads[0] = Call(call.b, kOp_reduce_precision, {call.cotangents[0]}, call.node.attrs());
  return absl::OkStatus();
}

// Rounds to nearest even by adding half to the bits; a carry into the exponent is what rounding up is. Then what is out of
// the narrow type's normal range becomes infinity or zero.
ScalarValue LowerScalar(const ScalarCall& call) {
  ScalarBuilder& b = call.b;
  const Bits own = BitsOfType(call.dtype);
  const bool wide = call.dtype == DType::kF64;
  const DType type = wide ? DType::kF64 : DType::kF32, bits_type = wide ? DType::kU64 : DType::kU32;
  const int64_t exponent = Attr<kAttrs, "exponent_bits">(call.attrs),
                mantissa = Attr<kAttrs, "mantissa_bits">(call.attrs);
  const ScalarValue x = b.Convert(call.operands[0], type);
  ScalarValue y = x;
  if (mantissa < own.mantissa) {
    const int64_t shift = (wide ? 52 : 23) - mantissa;
    const auto integer = [&](int64_t value) { return b.IntConstant(bits_type, value); };
    const ScalarValue bits = b.Bitcast(x, bits_type);
    const ScalarValue last =
        b.Binary(ScalarOp::kAnd, b.Binary(ScalarOp::kShrLogical, bits, integer(shift)), integer(1));
    const ScalarValue half = b.Binary(ScalarOp::kAdd, last, integer((int64_t{1} << (shift - 1)) - 1));
    const int64_t kept = -(int64_t{1} << shift);
    const ScalarValue rounded =
        b.Binary(ScalarOp::kAnd, b.Binary(ScalarOp::kAdd, bits, half), integer(wide ? kept : kept & 0xFFFFFFFF));
    y = b.Bitcast(rounded, type);
    if (call.dtype == DType::kF16) {  // its denormals are normal here
      const double unit = std::ldexp(1, -14 - static_cast<int>(mantissa));
      const ScalarValue steps = b.Unary(ScalarOp::kRoundEven, b.Binary(ScalarOp::kMul, x, b.Constant(type, 1 / unit)));
      const ScalarValue small = b.Binary(ScalarOp::kLt, b.Unary(ScalarOp::kAbs, x), b.Constant(type, 0x1p-14));
      y = b.Select(small, b.Binary(ScalarOp::kMul, steps, b.Constant(type, unit)), y);
    }
  }
  if (exponent < own.exponent) {
    const int bias = (1 << (exponent - 1)) - 1;
    const ScalarValue size = b.Unary(ScalarOp::kAbs, y), zero = b.Constant(type, 0);
    const double infinity = std::numeric_limits<double>::infinity();
    const ScalarValue negative = b.Binary(ScalarOp::kLt, y, zero);
    const ScalarValue large = b.Binary(ScalarOp::kGe, size, b.Constant(type, std::ldexp(1, bias + 1)));
    const ScalarValue small = b.Binary(ScalarOp::kLt, size, b.Constant(type, std::ldexp(1, 1 - bias)));
    const ScalarValue signed_zero = b.Binary(ScalarOp::kMul, y, zero);
    const ScalarValue ends = b.Select(negative, b.Constant(type, -infinity), b.Constant(type, infinity));
    y = b.Select(large, ends, b.Select(small, signed_zero, y));
  }
  const ScalarValue nan = mantissa > 0 ? x : b.Constant(type, std::numeric_limits<double>::infinity());
  return b.Convert(b.Select(b.Unary(ScalarOp::kIsNan, x), nan, y), call.dtype);
}

// Rounds the element's bits.
uint64_t Rounded(uint64_t x, const Bits& own, int64_t exponent, int64_t mantissa) {
  const uint64_t sign = x & uint64_t{1} << (own.exponent + own.mantissa);
  const uint64_t infinity = ((uint64_t{1} << own.exponent) - 1) << own.mantissa;
  if ((x & ~sign) > infinity) return mantissa > 0 ? x : infinity;
  uint64_t size = x & ~sign;
  if (mantissa < own.mantissa) {
    const int64_t shift = own.mantissa - mantissa;
    const uint64_t last = size >> shift & 1;
    size = (size + last + (uint64_t{1} << (shift - 1)) - 1) >> shift << shift;
  }
  if (exponent < own.exponent) {
    const int64_t bias = (int64_t{1} << (own.exponent - 1)) - 1, reduced = (int64_t{1} << (exponent - 1)) - 1;
    const auto found = static_cast<int64_t>(size >> own.mantissa);
    if (found > bias + reduced) size = infinity;
    if (found <= bias - reduced) size = 0;
  }
  return sign | size;
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  const Bits own = BitsOfType(x.dtype());
  const size_t width = BytesOf(x.dtype());
  for (int64_t k = 0; k < x.count(); ++k) {
    uint64_t bits = 0;
    std::memcpy(&bits, x.bytes().data() + k * width, width);
    bits = Rounded(bits, own, Attr<kAttrs, "exponent_bits">(call.attrs), Attr<kAttrs, "mantissa_bits">(call.attrs));
    std::memcpy(call.results[0].mutable_bytes().data() + k * width, &bits, width);
  }
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  writer.Emit("reduce_precision", {{"exponent_bits", absl::StrCat(Attr<kAttrs, "exponent_bits">(a), " : i32")},
                                   {"mantissa_bits", absl::StrCat(Attr<kAttrs, "mantissa_bits">(a), " : i32")}});
}

// Only what keeps f64 as it is has a slope to measure.
constexpr Sample kSamples[] = {{"T[131] exponent_bits=5 mantissa_bits=10", -2, 2, false},
                               {"T[131] exponent_bits=4 mantissa_bits=3", -2, 2, false},
                               {"T[2,3] exponent_bits=11 mantissa_bits=52"},
                               {"T[131] exponent_bits=8 mantissa_bits=7", -1e5, 1e5, false},
                               {"f16[131] exponent_bits=5 mantissa_bits=2", -1e-4, 1e-4, false},
                               {"T[0,3] exponent_bits=8 mantissa_bits=1", -2, 2, false},
                               {"T[131] exponent_bits=3 mantissa_bits=0", -9, 9, false},
                               {"T[131] exponent_bits=1 mantissa_bits=1", -9, 9, false}};

}  // namespace

constinit const OpDef kOp_reduce_precision = {
    .name = "reduce_precision",
    .c_name = "reduce_precision",
    .since = 1,
    .doc =
        "Rounds to nearest even to a float type of so many exponent and mantissa bits, and back: what is too large for it "
        "becomes infinity, what is below its normal numbers zero; no mantissa bits make NaN infinity. The gradient is "
        "rounded alike.",
    .example = "y = wf_reduce_precision(s, x, 8, 7);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = Reference,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = kExact,
    .rounds_once = true,
};

}  // namespace weft::ops
