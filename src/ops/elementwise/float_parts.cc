// Formulas about the parts of a number: its sign, its fraction, what it is no number for, its neighbour.
#include <cmath>
#include <limits>

#include "src/ops/elementwise/special.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr OperandDef kNumbers[] = {{"x", kAnyType, "operand"}};
constexpr OperandDef kAll[] = {{"x", kEveryType, "operand"}};
constexpr OperandDef kBits[] = {{"x", kNumber | kWhole, "operand"}};
constexpr OperandDef kTwoBits[] = {{"x", kF | kWhole, "operand"}, {"y", kF | kWhole, "whose sign it takes"}};
constexpr OperandDef kTowards[] = {{"x", kF | kWhole, "where to begin"}, {"y", kF | kWhole, "where to go"}};
constexpr OperandDef kSteps[] = {{"x", kAnyType, "operand"}, {"values", kAnyType, "results where x is 0"}};
constexpr OperandDef kScaled[] = {{"x", kF, "operand"}, {"n", kNumber, "exponent of 2", false, false, 0}};

// False of what can be no such number.
template <int sign>
absl::Status ExpandInfinite(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  if (IsComplex(x.dtype())) {  // is_inf alone
    const Planes planes = PlanesOf(b, x);
    results[0] = Either(b, Compare(b, Direction::kEq, Abs(b, planes.re), kInf),
                        Compare(b, Direction::kEq, Abs(b, planes.im), kInf));
  } else if (!IsFloat(x.dtype())) {
    results[0] = Full(b, DType::kBool, x.dims(), 0);
  } else {
    results[0] = Compare(b, Direction::kEq, sign == 0 ? Abs(b, x) : x, sign < 0 ? -kInf : kInf);
  }
  return absl::OkStatus();
}

Value Frac(Builder& b, const Value& x) { return Sub(b, x, Unary(b, kOp_trunc, x)); }

DType ImageOf(DType dtype) {
  const int bits = BitsOf(dtype);
  return bits == 64 ? DType::kI64 : bits == 32 ? DType::kI32 : bits == 16 ? DType::kI16 : DType::kI8;
}
Value Image(Builder& b, const Value& x) { return Call(b, kOp_bitcast_convert, {x}, {ImageOf(x.dtype())}); }

Value Signbit(Builder& b, const Value& x) {
  return Compare(b, Direction::kLt, IsFloat(x.dtype()) ? Image(b, x) : x, 0);
}

// Goes by |x|, whose derivative at 0 is 0, as PyTorch's of copysign is there.
Value Copysign(Builder& b, const Value& x, const Value& y) {
  const Value size = Abs(b, x);
  return Select(b, Signbit(b, y), Neg(b, size), size);
}

// One more or less as integers, whose order within a sign is that of the floats.
Value Nextafter(Builder& b, const Value& x, const Value& y) {
  const DType integer = ImageOf(x.dtype());
  const auto whole = [&](int64_t value) {
    HostTensor one(integer, {});
    one.SetInt(0, value);
    return BroadcastInDim(b, Constant(b, std::move(one)), x.dims(), {});
  };
  const int bits = BitsOf(x.dtype());
  const Value sign = whole(static_cast<int64_t>(~uint64_t{0} << (bits - 1)));
  const Value magnitude = whole(INT64_MAX >> (64 - bits));
  const Value i = Image(b, x), j = Image(b, y), zero = whole(0), one = whole(1);
  const Value i_size = And(b, i, magnitude), j_size = And(b, j, magnitude);
  const Value same_sign = Compare(b, Direction::kEq, And(b, i, sign), And(b, j, sign));
  const Value grows = And(b, same_sign, Compare(b, Direction::kLt, i_size, j_size));
  // Steps from zero to the smallest number of the other's sign; from both zeros to the other.
  const Value from_zero = Select(b, Compare(b, Direction::kEq, j_size, zero), j, Either(b, And(b, j, sign), one));
  const Value step = Add(b, i, Select(b, grows, one, whole(-1)));
  const Value next = Select(b, Compare(b, Direction::kEq, i_size, zero), from_zero, step);
  const Value bit = Select(b, Compare(b, Direction::kEq, i, j), j, next);
  const Value number = Call(b, kOp_bitcast_convert, {bit}, {x.dtype()});
  return Select(b, Either(b, IsNan(b, x), IsNan(b, y)), FullLike(b, x, kNan), number);
}

Value Heaviside(Builder& b, const Value& x, const Value& values) {
  const Value above = Convert(b, Compare(b, Direction::kGt, x, 0), x.dtype());
  return Select(b, Compare(b, Direction::kEq, x, 0), values, above);
}

// In three steps, of which none leaves the range where the result does not.
absl::Status ExpandLdexp(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Value n = Held(b, Convert(b, call.operands[1], x.dtype()), x.dtype() == DType::kF64 ? 2400 : 330);
  const Value third = Unary(b, kOp_trunc, Mul(b, n, 1.0 / 3));
  const Value power = Unary(b, kOp_exp2, third), rest = Unary(b, kOp_exp2, Sub(b, n, Mul(b, third, 2)));
  results[0] = Mul(b, Mul(b, Mul(b, x, power), power), rest);
  return absl::OkStatus();
}

constexpr AttrDef kReplacements[] = {
    {"nan", AttrType::kDouble, "in the place of NaN", false, "0"},
    {"posinf", AttrType::kDouble, "in that of inf; absent: the largest number of the type"},
    {"neginf", AttrType::kDouble, "in that of -inf; absent: the lowest number of the type"}};

double LargestOf(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 65504;
    case DType::kBF16: return 0x1.FEp127;
    case DType::kF64: return std::numeric_limits<double>::max();
    default: return std::numeric_limits<float>::max();
  }
}

Value NanToNum(const ExpandCall& call, const Value& x) {
  Builder& b = call.b;
  const double most = LargestOf(x.dtype());
  const auto number = [&](size_t at, double otherwise) {
    return FullLike(b, x, call.attrs.has(at) ? call.attrs.Double(at) : otherwise);
  };
  Value y = Select(b, IsNan(b, x), number(AttrPosition<kReplacements, "nan">(), 0), x);
  y = Select(b, Compare(b, Direction::kEq, x, kInf), number(AttrPosition<kReplacements, "posinf">(), most), y);
  return Select(b, Compare(b, Direction::kEq, x, -kInf), number(AttrPosition<kReplacements, "neginf">(), -most), y);
}
absl::Status ExpandNanToNum(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  results[0] = x;
  if (IsFloat(x.dtype())) results[0] = NanToNum(call, x);
  if (IsComplex(x.dtype())) {
    const Planes planes = PlanesOf(call.b, x);
    results[0] = ComplexFrom(call.b, {NanToNum(call, planes.re), NanToNum(call, planes.im)});
  }
  return call.b.status();
}

constexpr AttrDef kDecimals[] = {{"decimals", AttrType::kInt, "digits behind the point, below 0 in front of it", true}};

absl::Status InferDecimals(const InferCall& call, Types* results) {
  const int64_t decimals = Attr<kDecimals, "decimals">(call.attrs);
  if (decimals < -300 || decimals > 300) return UserError("decimals is ", decimals, "; it must be -300 to 300");
  return InferSame(call, results);
}

absl::Status ExpandDecimals(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t decimals = Attr<kDecimals, "decimals">(call.attrs);
  const Value power = FullLike(b, x, std::pow(10.0, static_cast<double>(decimals < 0 ? -decimals : decimals)));
  const Value whole = Unary(b, kOp_round, decimals < 0 ? Div(b, x, power) : Mul(b, x, power));
  results[0] = decimals < 0 ? Mul(b, whole, power) : Div(b, whole, power);
  return absl::OkStatus();
}

constexpr Sample kOne[] = {{"T[2,3]", -3, 3, false}, {"T[]", -3, 3, false}, {"T[0,3]", -3, 3, false}};
constexpr Sample kSmooth[] = {{"T[2,3]", 0.5, 0.95}, {"T[]", -0.95, -0.5}, {"T[0,3]"}};
constexpr Sample kPair[] = {{"T[2,3] T[3]", 0.5, 3}, {"T[] T[]", -3, -0.5}, {"T[0,3] T[3]"}};
constexpr Sample kPairOnly[] = {{"T[2,3] T[3]", -3, 3, false}, {"T[] T[]", -3, 3, false}, {"T[0] T[]", -3, 3, false}};
constexpr Sample kLdexp[] = {{"T[2,3] i32[3]<-9:9>"}, {"T[] i64[]<0:5>"}, {"T[0,3] i32[3]<0:2>"}};
constexpr Sample kNanToNum[] = {{"T[2,3]"}, {"T[131] nan=1 posinf=2 neginf=-2"}, {"T[0]"}};
constexpr Sample kRounded[] = {
    {"T[2,3] decimals=1", -3, 3, false}, {"T[] decimals=-1", -99, 99, false}, {"T[0] decimals=0"}};
constexpr Tolerance kRoundedTolerance = {.f32 = 4e-7, .f64 = 1e-15, .bf16 = 1e-2, .f16 = 2e-3};

}  // namespace

constinit const OpDef kOp_is_inf = Formula({
    .name = "weft.is_inf",
    .c_name = "is_inf",
    .doc =
        "True where an element, or either part of a complex one, is inf or -inf, elementwise; gives bool. False of integers.",
    .example = "mask = wf_is_inf(s, x);",
    .operands = kAll,
    .infer = InferBool,
    .expand = ExpandInfinite<0>,
    .samples = kOne,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});
constinit const OpDef kOp_is_pos_inf = Formula({
    .name = "weft.is_pos_inf",
    .c_name = "is_pos_inf",
    .doc = "True where an element is inf, elementwise; gives bool. False of integers.",
    .example = "mask = wf_is_pos_inf(s, x);",
    .operands = kNumbers,
    .infer = InferBool,
    .expand = ExpandInfinite<1>,
    .samples = kOne,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});
constinit const OpDef kOp_is_neg_inf = Formula({
    .name = "weft.is_neg_inf",
    .c_name = "is_neg_inf",
    .doc = "True where an element is -inf, elementwise; gives bool. False of integers.",
    .example = "mask = wf_is_neg_inf(s, x);",
    .operands = kNumbers,
    .infer = InferBool,
    .expand = ExpandInfinite<-1>,
    .samples = kOne,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});
constinit const OpDef kOp_signbit = Formula({
    .name = "weft.signbit",
    .c_name = "signbit",
    .doc =
        "True where the sign bit is set, elementwise: of negative numbers, of -0 and of NaN with that bit; gives bool.",
    .example = "mask = wf_signbit(s, x);",
    .operands = kBits,
    .infer = InferBool,
    .expand = ExpandUnary<Signbit>,
    .samples = kOne,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});
constinit const OpDef kOp_frac = Formula({
    .name = "weft.frac",
    .c_name = "frac",
    .doc = "What truncation takes away, x - trunc(x), elementwise, with the sign of x; NaN of infinities.",
    .example = "y = wf_frac(s, x);",
    .expand = ExpandUnary<Frac>,
    .samples = kSmooth,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_nan_to_num = Formula({
    .name = "weft.nan_to_num",
    .c_name = "nan_to_num",
    .doc =
        "Numbers in the place of NaN and infinities, elementwise, of complex numbers in either part; integers stay. The gradient of "
        "what was replaced is 0.",
    .example = "y = wf_nan_to_num(s, x, .nan = 0);",
    .operands = kAll,
    .attrs = kReplacements,
    .expand = ExpandNanToNum,
    .samples = kNanToNum,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_round_decimals = Formula({
    .name = "weft.round_decimals",
    .c_name = "round_decimals",
    .doc = "The nearest multiple of a power of ten, elementwise, ties to the even one: round(x 10^decimals) / "
           "10^decimals, as PyTorch's "
           "and NumPy's round. The gradient is 0.",
    .example = "y = wf_round_decimals(s, x, 2);",
    .attrs = kDecimals,
    .infer = InferDecimals,
    .expand = ExpandDecimals,
    .samples = kRounded,
    .tolerance = kRoundedTolerance,
});
constinit const OpDef kOp_copysign = Broadcasting({
    .name = "weft.copysign",
    .c_name = "copysign",
    .doc = "The size of x with the sign of y, elementwise with NumPy broadcasting; -0 and NaN have signs, too. The "
           "gradient at x = 0 is 0, "
           "along y there is none.",
    .example = "z = wf_copysign(s, x, y);",
    .operands = kTwoBits,
    .expand = ExpandBinary<Copysign>,
    .samples = kPair,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_nextafter = Broadcasting({
    .name = "weft.nextafter",
    .c_name = "nextafter",
    .doc = "The next number of the type from x towards y, elementwise with NumPy broadcasting; NaN where either is.",
    .example = "z = wf_nextafter(s, x, y);",
    .operands = kTowards,
    .expand = ExpandBinary<Nextafter>,
    .samples = kPairOnly,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});
constinit const OpDef kOp_heaviside = Broadcasting({
    .name = "weft.heaviside",
    .c_name = "heaviside",
    .doc =
        "0 where x is negative or NaN, 1 where it is positive and the value given where it is 0, elementwise, as PyTorch's.",
    .example = "z = wf_heaviside(s, x, half);",
    .operands = kSteps,
    .expand = ExpandBinary<Heaviside>,
    .samples = kPair,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_ldexp = Broadcasting({
    .name = "weft.ldexp",
    .c_name = "ldexp",
    .doc = "x 2^n, elementwise with NumPy broadcasting, exact where n is whole and the result a normal number.",
    .example = "y = wf_ldexp(s, x, n);",
    .operands = kScaled,
    .expand = ExpandLdexp,
    .samples = kLdexp,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 3e-2, .f16 = 4e-3},
    .narrow_in_f64 = true,
});

}  // namespace weft::ops
