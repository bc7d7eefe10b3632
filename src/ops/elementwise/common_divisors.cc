// gcd, lcm: Euclid's algorithm on all elements until the last has ended, at most 92 steps for 64 bits.
#include "src/ops/control/repeat.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kI | kWhole, "first number"}, {"y", kI | kWhole, "second number"}};

Value Size(Builder& b, const Value& x) { return x && IsSigned(x.dtype()) ? Abs(b, x) : x; }
Value IsZero(Builder& b, const Value& x) { return Compare(b, Direction::kEq, x, 0); }
Value Nonzero(Builder& b, const Value& x) { return Select(b, IsZero(b, x), FullLike(b, x, 1), x); }

Value Gcd(Builder& b, const Value& x, const Value& y) {
  const Values found = Repeat(
      b, "divide", {x, y}, {},
      [](Builder& in, std::span<const Value> c) { return Compare(in, Direction::kNe, c[1], 0); },
      [](Builder& in, std::span<const Value> c, std::span<const Value>) -> Values {
        const Value ended = IsZero(in, c[1]);
        const Value rest = Call(in, kOp_rem, {c[0], Nonzero(in, c[1])});
        return {Select(in, ended, c[0], c[1]), Select(in, ended, c[1], rest)};
      });
  return Size(b, found[0]);
}

Value Lcm(Builder& b, const Value& x, const Value& y) {
  const Value none = Either(b, IsZero(b, x), IsZero(b, y)), common = Nonzero(b, Call(b, kOp_gcd, {x, y}));
  const Value product = Mul(b, Call(b, kOp_div, {x, common}), y);
  return Select(b, none, FullLike(b, x, 0), Size(b, product));
}

constexpr Sample kSamples[] = {{"T[2,3] T[3]"},
                               {"i32[131]<-90:90> i32[131]<-60:60>"},
                               {"u8[9]<0:200> u8[9]<0:200>"},
                               {"T[0,3] T[3]"},
                               {"T[] T[]"}};

consteval OpDef OfIntegers(OpDef named) {
  named.operands = kOperands;
  named.rule = OperandRule::kBroadcast;
  named.samples = kSamples;
  named.tolerance = kExact;
  named = Special(named);
  named.absent = kCompositeNoGradient;
  return named;
}

}  // namespace

constinit const OpDef kOp_gcd = OfIntegers({
    .name = "weft.gcd",
    .c_name = "gcd",
    .doc =
        "Elementwise greatest common divisor of two integers, not negative; that of 0 and 0 is 0. With NumPy broadcasting.",
    .example = "y = wf_gcd(s, n, m);",
    .expand = ExpandBinary<Gcd>,
});
constinit const OpDef kOp_lcm = OfIntegers({
    .name = "weft.lcm",
    .c_name = "lcm",
    .doc =
        "Elementwise least common multiple of two integers, not negative, 0 where one is 0; wraps where it does not fit. "
        "With NumPy broadcasting.",
    .example = "y = wf_lcm(s, n, m);",
    .expand = ExpandBinary<Lcm>,
});

}  // namespace weft::ops
