// Formulas of arithmetic: quotients that are whole numbers, sums of scaled products, choices between numbers, truth of
// numbers.
#include <cmath>
#include <limits>
#include <numbers>

#include "src/ops/complex.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kQuotient[] = {{"x", kNumber, "dividend"}, {"y", kNumber, "divisor"}};
constexpr OperandDef kOrdered[] = {{"x", kAnyType, "first operand"}, {"y", kAnyType, "second operand"}};
constexpr OperandDef kInvertible[] = {{"x", kF | kC, "operand"}};
constexpr OperandDef kPairs[] = {{"x", kEveryType, "first operand"}, {"y", kEveryType, "second operand"}};
constexpr OperandDef kAny[] = {{"x", kEveryType, "operand"}};
constexpr OperandDef kBetween[] = {{"x", kF | kC, "the result at weight 0"},
                                   {"y", kF | kC, "the result at weight 1"},
                                   {"weight", kF | kC, "share of y"}};
constexpr OperandDef kScaledSum[] = {
    {"x", kNumber | kC, "addend"}, {"y", kNumber | kC, "first factor"}, {"z", kNumber | kC, "second factor"}};
constexpr OperandDef kScaledQuotient[] = {
    {"x", kF | kC, "addend"}, {"y", kF | kC, "dividend"}, {"z", kF | kC, "divisor"}};
constexpr OperandDef kMasked[] = {{"x", kEveryType, "operand"},
                                  {"mask", kB, "where the value stands", false, false, 0},
                                  {"value", kEveryType, "what stands there"}};

Value Not(Builder& b, const Value& x) { return Unary(b, kOp_bitwise_not, x); }
Value Still(Builder& b, const Value& x) { return Unary(b, kOp_stop_gradient, x); }
Value Floor(Builder& b, const Value& x) { return Unary(b, kOp_floor, x); }
Value Negative(Builder& b, const Value& x) { return Compare(b, Direction::kLt, x, 0); }
Value Nonzero(Builder& b, const Value& x) {
  return IsBool(x.dtype()) ? x : Compare(b, Direction::kNe, x, FullLike(b, x, 0));
}

// True where a remainder that has the dividend's sign must move into the divisor's.
Value Crosses(Builder& b, const Value& rest, const Value& y) {
  return And(b, Nonzero(b, rest), Call(b, kOp_bitwise_xor, {Negative(b, rest), Negative(b, y)}));
}

Value Mod(Builder& b, const Value& x, const Value& y) {
  const Value rest = Call(b, kOp_rem, {x, y});
  return Add(b, rest, Select(b, Crosses(b, rest, y), y, FullLike(b, y, 0)));
}

Value FloorDivide(Builder& b, const Value& given_x, const Value& given_y) {
  const Value x = Still(b, given_x), y = Still(b, given_y), rest = Call(b, kOp_rem, {x, y});
  if (!IsFloat(x.dtype())) {
    const Value whole = Div(b, x, y), lower = Add(b, whole, FullLike(b, whole, -1));
    const Value floor = Select(b, Crosses(b, rest, y), lower, whole);
    return Select(b, Compare(b, Direction::kEq, y, 0), whole, floor);
  }
  Value quotient = Div(b, Sub(b, x, rest), y);
  quotient = Select(b, Crosses(b, rest, y), Add(b, quotient, -1), quotient);
  // Nearly whole, because the remainder was exact.
  const Value floor = Floor(b, quotient), far = Compare(b, Direction::kGt, Sub(b, quotient, floor), 0.5);
  const Value plain = Div(b, x, y);
  const Value near = Select(b, far, Add(b, floor, 1), floor);
  const Value whole = Select(b, Compare(b, Direction::kEq, quotient, 0), Mul(b, plain, 0.0), near);
  return Select(b, Compare(b, Direction::kEq, y, 0), plain, whole);
}

Value TruncDivide(Builder& b, const Value& given_x, const Value& given_y) {
  const Value quotient = Div(b, Still(b, given_x), Still(b, given_y));
  return IsFloat(quotient.dtype()) ? Unary(b, kOp_trunc, quotient) : quotient;
}

Value Reciprocal(Builder& b, const Value& x) { return Div(b, FullLike(b, x, 1), x); }
Value Deg2rad(Builder& b, const Value& x) { return Mul(b, x, std::numbers::pi / 180); }
Value Rad2deg(Builder& b, const Value& x) { return Mul(b, x, 180 / std::numbers::pi); }

// Interpolates from the nearer end, so that both ends are exact.
absl::Status ExpandLerp(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &y = call.operands[1], &weight = call.operands[2];
  const Value way = Sub(b, y, x);
  const Value from_x = Add(b, x, Mul(b, weight, way)), from_y = Sub(b, y, Mul(b, Sub(b, 1, weight), way));
  results[0] = Select(b, Compare(b, Direction::kLt, Abs(b, weight), 0.5), from_x, from_y);
  return absl::OkStatus();
}

constexpr AttrDef kScale[] = {{"value", AttrType::kDouble, "what the second term is multiplied by", false, "1"}};

absl::Status InferScaled(const InferCall& call, Types* results) {
  const double value = Attr<kScale, "value">(call.attrs);
  const DType dtype = call.operands[0]->dtype;
  if (IsInteger(dtype) && value != std::floor(value)) {
    return UserError("value is ", value, "; of ", NameOf(dtype), " it must be a whole number");
  }
  return InferSame(call, results);
}
template <Value (*term)(Builder&, Value, Value)>
absl::Status ExpandScaled(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const double value = Attr<kScale, "value">(call.attrs);
  const Value y = value == 1 ? call.operands[1] : Mul(b, call.operands[1], FullLike(b, call.operands[1], value));
  results[0] = Add(b, call.operands[0], term(b, y, call.operands[2]));
  return absl::OkStatus();
}

// NaN only where both are, and then x's, which the gradient goes to, as in PyTorch and JAX.
template <Value (*extreme)(Builder&, Value, Value)>
Value Extreme(Builder& b, const Value& x, const Value& y) {
  const Value found = extreme(b, x, y);
  return IsFloat(x.dtype()) ? Select(b, IsNan(b, y), x, Select(b, IsNan(b, x), y, found)) : found;
}

absl::Status ExpandMaskedFill(const ExpandCall& call, std::span<Value> results) {
  results[0] = Select(call.b, call.operands[1], call.operands[2], call.operands[0]);
  return absl::OkStatus();
}

constexpr AttrDef kNear[] = {{"rtol", AttrType::kDouble, "tolerance relative to y, at least 0", false, "1e-5"},
                             {"atol", AttrType::kDouble, "tolerance as it is, at least 0", false, "1e-8"},
                             {"equal_nan", AttrType::kBool, "NaN is close to NaN", false, "false"}};
absl::Status InferClose(const InferCall& call, Types* results) {
  const double rtol = Attr<kNear, "rtol">(call.attrs), atol = Attr<kNear, "atol">(call.attrs);
  if (!(rtol >= 0)) return UserError("rtol is ", rtol, "; it must be at least 0");
  if (!(atol >= 0)) return UserError("atol is ", atol, "; it must be at least 0");
  return InferBool(call, results);
}
Value IsClose(const ExpandCall& call) {
  Builder& b = call.b;
  Value x = call.operands[0], y = call.operands[1];
  Value close = Compare(b, Direction::kEq, x, y);
  if (IsBool(x.dtype())) return close;
  if (IsInteger(x.dtype())) {
    x = Convert(b, x, DType::kF64);
    y = Convert(b, y, DType::kF64);
  } else if (Attr<kNear, "equal_nan">(call.attrs)) {
    close = Either(b, close, And(b, IsNan(b, x), IsNan(b, y)));
  }
  const Value distance = Abs(b, Sub(b, x, y));
  const Value allowed = Add(b, Mul(b, Abs(b, y), Attr<kNear, "rtol">(call.attrs)), Attr<kNear, "atol">(call.attrs));
  const Value near = And(b, Unary(b, kOp_is_finite, distance), Compare(b, Direction::kLe, distance, allowed));
  return Either(b, close, near);
}
absl::Status ExpandClose(const ExpandCall& call, std::span<Value> results) {
  results[0] = IsClose(call);
  return absl::OkStatus();
}
absl::Status InferAllClose(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferClose(call, results));
  results->back().dims.clear();
  return absl::OkStatus();
}
absl::Status ExpandAllClose(const ExpandCall& call, std::span<Value> results) {
  const Value close = IsClose(call);
  results[0] = close ? Reduce(call.b, close, Reducer::kAnd, Axes(close.dims().size())) : close;
  return absl::OkStatus();
}

template <const OpDef& op>
Value Logical(Builder& b, const Value& x, const Value& y) {
  return Call(b, op, {Nonzero(b, x), Nonzero(b, y)});
}
Value LogicalNot(Builder& b, const Value& x) { return Not(b, Nonzero(b, x)); }

absl::Status InferAngle(const InferCall& call, Types* results) {
  results->push_back(*call.operands[0]);
  results->back().dtype = PartOf(results->back().dtype);
  return absl::OkStatus();
}
Value Angle(Builder& b, const Value& x) {
  if (IsComplex(x.dtype())) return Call(b, kOp_atan2, {Unary(b, kOp_imag, x), Unary(b, kOp_real, x)});
  const Value turned = Select(b, Negative(b, x), FullLike(b, x, std::numbers::pi), FullLike(b, x, 0));
  return Select(b, IsNan(b, x), Still(b, x), turned);
}

constexpr Sample kTwo[] = {{"T[2,3] T[3]", 0.5, 0.95}, {"T[] T[]", 0.5, 2}, {"T[0,3] T[3]"}};
constexpr Sample kTwoOnly[] = {{"T[2,3] T[3]", 0.5, 4, false}, {"T[] T[]", -4, -0.5, false}, {"T[0,3] T[3]"}};
constexpr Sample kOne[] = {{"T[2,3]", 0.5, 2}, {"T[]", -2, -0.5}, {"T[0,3]"}};
constexpr Sample kThree[] = {{"T[2,3] T[3] T[]", 0.6, 2}, {"T[] T[] T[]", 0.6, 2}, {"T[0,3] T[3] T[3]"}};
constexpr Sample kSums[] = {
    {"T[2,3] T[3] T[]", 0.6, 2}, {"T[131] T[131] T[131] value=-2", 0.6, 2}, {"T[0,3] T[3] T[3]"}};
constexpr Sample kFills[] = {{"T[2,3] bool[3] T[]"}, {"T[] bool[] T[]"}, {"T[0,3] bool[3] T[]"}};
constexpr Sample kCloses[] = {
    {"T[2,3] T[3]", -2, 2, false}, {"T[5] T[5] rtol=0.5 atol=0.5 equal_nan=true", -2, 2, false}, {"T[0] T[]"}};
constexpr Tolerance kTolerance = {.f32 = 2e-6, .f64 = 1e-14, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-6};

}  // namespace

constinit const OpDef kOp_mod = Broadcasting({
    .name = "weft.mod",
    .c_name = "mod",
    .doc = "The remainder of a division whose quotient is rounded down, so with the sign of y, elementwise with NumPy "
           "broadcasting: "
           "PyTorch's remainder and NumPy's mod; see rem for the sign of x. Of integers by 0: x.",
    .example = "z = wf_mod(s, x, y);",
    .operands = kQuotient,
    .expand = ExpandBinary<Mod>,
    .samples = kTwo,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_floor_divide = Broadcasting({
    .name = "weft.floor_divide",
    .c_name = "floor_divide",
    .doc = "The quotient rounded down, elementwise with NumPy broadcasting; of floats from the exact remainder, as "
           "Python's //. Integers by "
           "0 give what div gives. The gradient is 0.",
    .example = "z = wf_floor_divide(s, x, y);",
    .operands = kQuotient,
    .expand = ExpandBinary<FloorDivide>,
    .samples = kTwoOnly,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
});
constinit const OpDef kOp_trunc_divide = Broadcasting({
    .name = "weft.trunc_divide",
    .c_name = "trunc_divide",
    .doc = "The quotient rounded towards 0, elementwise with NumPy broadcasting; integers as div. The gradient is 0.",
    .example = "z = wf_trunc_divide(s, x, y);",
    .operands = kQuotient,
    .expand = ExpandBinary<TruncDivide>,
    .samples = kTwoOnly,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
});
constinit const OpDef kOp_reciprocal = Formula({
    .name = "weft.reciprocal",
    .c_name = "reciprocal",
    .doc = "1 / x, elementwise.",
    .example = "y = wf_reciprocal(s, x);",
    .operands = kInvertible,
    .expand = ExpandUnary<Reciprocal>,
    .samples = kOne,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_deg2rad = Formula({
    .name = "weft.deg2rad",
    .c_name = "deg2rad",
    .doc = "Degrees as radians, x pi / 180, elementwise.",
    .example = "y = wf_deg2rad(s, x);",
    .expand = ExpandUnary<Deg2rad>,
    .samples = kOne,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_rad2deg = Formula({
    .name = "weft.rad2deg",
    .c_name = "rad2deg",
    .doc = "Radians as degrees, x 180 / pi, elementwise.",
    .example = "y = wf_rad2deg(s, x);",
    .expand = ExpandUnary<Rad2deg>,
    .samples = kOne,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_angle = Formula({
    .name = "weft.angle",
    .c_name = "angle",
    .doc = "The angle of a complex number in [-pi, pi], elementwise; of real ones 0, or pi where they are negative.",
    .example = "y = wf_angle(s, z);",
    .operands = kInvertible,
    .infer = InferAngle,
    .expand = ExpandUnary<Angle>,
    .samples = kOne,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_lerp = Broadcasting({
    .name = "weft.lerp",
    .c_name = "lerp",
    .doc = "Between x and y, x + weight (y - x), elementwise with NumPy broadcasting; exact at weights 0 and 1.",
    .example = "z = wf_lerp(s, x, y, weight);",
    .operands = kBetween,
    .expand = ExpandLerp,
    .samples = kThree,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_addcmul = Broadcasting({
    .name = "weft.addcmul",
    .c_name = "addcmul",
    .doc = "x + value y z, elementwise with NumPy broadcasting.",
    .example = "m = wf_addcmul(s, m, g, g, .value = 0.1);",
    .operands = kScaledSum,
    .attrs = kScale,
    .infer = InferScaled,
    .expand = ExpandScaled<Mul>,
    .samples = kSums,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_addcdiv = Broadcasting({
    .name = "weft.addcdiv",
    .c_name = "addcdiv",
    .doc = "x + value y / z, elementwise with NumPy broadcasting.",
    .example = "w = wf_addcdiv(s, w, m, root, .value = -0.1);",
    .operands = kScaledQuotient,
    .attrs = kScale,
    .infer = InferScaled,
    .expand = ExpandScaled<Div>,
    .samples = kSums,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_fmax = Broadcasting({
    .name = "weft.fmax",
    .c_name = "fmax",
    .doc =
        "The larger number, elementwise with NumPy broadcasting; a number beats NaN, unlike in maximum. The gradient "
        "goes to the one that "
        "is taken, half of it to each where they are equal.",
    .example = "z = wf_fmax(s, x, y);",
    .operands = kOrdered,
    .expand = ExpandBinary<Extreme<Maximum>>,
    .samples = kTwo,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_fmin = Broadcasting({
    .name = "weft.fmin",
    .c_name = "fmin",
    .doc = "The smaller number, elementwise with NumPy broadcasting; a number beats NaN, unlike in minimum. The "
           "gradient goes to the one "
           "that is taken, half of it to each where they are equal.",
    .example = "z = wf_fmin(s, x, y);",
    .operands = kOrdered,
    .expand = ExpandBinary<Extreme<Minimum>>,
    .samples = kTwo,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_masked_fill = Broadcasting({
    .name = "weft.masked_fill",
    .c_name = "masked_fill",
    .doc = "The value where the mask is true, x elsewhere, with NumPy broadcasting of all three.",
    .example = "y = wf_masked_fill(s, x, mask, value);",
    .operands = kMasked,
    .expand = ExpandMaskedFill,
    .samples = kFills,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_isclose = Broadcasting({
    .name = "weft.isclose",
    .c_name = "isclose",
    .doc = "True where x and y are equal or |x - y| <= atol + rtol |y|, elementwise with NumPy broadcasting; gives "
           "bool. Infinities are close "
           "to themselves alone.",
    .example = "mask = wf_isclose(s, x, y);",
    .operands = kPairs,
    .attrs = kNear,
    .infer = InferClose,
    .expand = ExpandClose,
    .samples = kCloses,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
});
constinit const OpDef kOp_allclose = Broadcasting({
    .name = "weft.allclose",
    .c_name = "allclose",
    .doc = "Whether isclose is true of all elements, a bool; true of none.",
    .example = "same = wf_allclose(s, x, y);",
    .operands = kPairs,
    .attrs = kNear,
    .infer = InferAllClose,
    .expand = ExpandAllClose,
    .samples = kCloses,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
});
constinit const OpDef kOp_logical_and = Broadcasting({
    .name = "weft.logical_and",
    .c_name = "logical_and",
    .doc = "True where both are not 0, elementwise with NumPy broadcasting; gives bool. NaN is not 0.",
    .example = "mask = wf_logical_and(s, x, y);",
    .operands = kPairs,
    .infer = InferBool,
    .expand = ExpandBinary<Logical<kOp_bitwise_and>>,
    .samples = kTwoOnly,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});
constinit const OpDef kOp_logical_or = Broadcasting({
    .name = "weft.logical_or",
    .c_name = "logical_or",
    .doc = "True where one is not 0, elementwise with NumPy broadcasting; gives bool. NaN is not 0.",
    .example = "mask = wf_logical_or(s, x, y);",
    .operands = kPairs,
    .infer = InferBool,
    .expand = ExpandBinary<Logical<kOp_bitwise_or>>,
    .samples = kTwoOnly,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});
constinit const OpDef kOp_logical_xor = Broadcasting({
    .name = "weft.logical_xor",
    .c_name = "logical_xor",
    .doc = "True where exactly one is not 0, elementwise with NumPy broadcasting; gives bool. NaN is not 0.",
    .example = "mask = wf_logical_xor(s, x, y);",
    .operands = kPairs,
    .infer = InferBool,
    .expand = ExpandBinary<Logical<kOp_bitwise_xor>>,
    .samples = kTwoOnly,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});
constinit const OpDef kOp_logical_not = Formula({
    .name = "weft.logical_not",
    .c_name = "logical_not",
    .doc = "True where x is 0, elementwise; gives bool. NaN is not 0.",
    .example = "mask = wf_logical_not(s, x);",
    .operands = kAny,
    .infer = InferBool,
    .expand = ExpandUnary<LogicalNot>,
    .samples = kOne,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});

}  // namespace weft::ops
