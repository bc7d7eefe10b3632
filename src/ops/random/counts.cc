// poisson, binomial: how often something happened. In f64 whatever the type is: for a small mean down the distribution from 0, else
// by rejection.
#include <limits>
#include <numbers>

#include "src/ops/elementwise/special.h"
#include "src/ops/elementwise/stirling.h"
#include "src/ops/nan.h"
#include "src/ops/random/distributions.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kRateOperands[] = {{"rate", kF | kWhole, "mean, from 0 on"}, kState};
constexpr OperandDef kTrialOperands[] = {{"trials", kF | kWhole, "how many, a whole number from 0 on"},
                                         {"probability", kF | kWhole, "of success, 0 to 1"},
                                         kState};
// The mean from which on rejection takes less than two tries.
constexpr double kSearched = 10;

Value Floor(Builder& b, const Value& x) { return Unary(b, kOp_floor, x); }
Value Not(Builder& b, const Value& x) { return Call(b, kOp_bitwise_not, {x}); }
Value Between(Builder& b, const Value& x, double low, double high) {
  return And(b, Compare(b, Direction::kGe, x, low), Compare(b, Direction::kLe, x, high));
}

// The parameters as rows of f64, as no loop goes through a reshape, and the shape of the result.
struct Flat {
  Values parameters;
  Dims dims;
};
absl::StatusOr<Flat> FlatParameters(const ExpandCall& call) {
  Flat flat;
  WEFT_ASSIGN_OR_RETURN(flat.parameters, DrawnParameters(call));
  flat.dims = flat.parameters[0].dims();
  for (Value& each : flat.parameters) {
    each = Convert(call.b, Reshape(call.b, each, {each.type().count()}), DType::kF64);
  }
  WEFT_RETURN_IF_ERROR(call.b.status());
  return flat;
}
Value Finished(const ExpandCall& call, const Value& counts, const Dims& dims) {
  return Convert(call.b, Reshape(call.b, counts, dims), call.operands[0].dtype());
}

// Counts up from 0 while u is not below the share of what is counted. `share` is that of 0, and of k + 1 it is (top - k odds) / (k + 1)
// times that of k. Shares below 1e-20 end it: u has 53 bits.
Value Search(Builder& b, const Value& stream, const Value& active, const Value& share, const Values& fixed) {
  const Value u = RandomUnit(b, stream, share.dims(), DType::kF64);
  if (!u) return {};
  const Values found = Repeat(
      b, "search", {active, FullLike(b, u, 0), share, u}, fixed,
      [](Builder&, std::span<const Value> carried) { return carried[0]; },
      [](Builder& in, std::span<const Value> c, std::span<const Value> o) -> Values {
        const Value k = c[1], next = Add(in, k, 1);
        const Value ratio = Div(in, Sub(in, o[0], Mul(in, k, o[1])), next);
        const Value share = Mul(in, c[2], ratio);
        const Value more =
            And(in, And(in, c[0], Compare(in, Direction::kGe, c[3], c[2])), Compare(in, Direction::kGt, share, 1e-20));
        return {more, Select(in, more, next, k), Select(in, more, share, c[2]),
                Select(in, more, Sub(in, c[3], c[2]), c[3])};
      });
  return found[1];
}

// One word as two numbers inside (0, 1), the first less a half, and how far that is from its ends.
struct Point {
  Value u, v, inside;
};
Point PointOf(Builder& b, const Value& state, const Dims& dims) {
  const Value bits = RandomBits(b, state, dims, DType::kU64);
  if (!bits) return {};
  const auto unit = [&](const Value& x) { return Mul(b, Add(b, Convert(b, x, DType::kF64), 0.5), 0x1p-32); };
  const Value u = Add(b, unit(Call(b, kOp_shift_right_logical, {bits, FullLike(b, bits, 32)})), -0.5);
  return {u, unit(And(b, bits, FullLike(b, bits, 0xFFFFFFFF))), Sub(b, 0.5, Abs(b, u))};
}
// Accepted at once.
Value Quick(Builder& b, const Point& at, const Value& most) {
  return And(b, Compare(b, Direction::kGe, at.inside, 0.07), Compare(b, Direction::kLe, at.v, most));
}
// (2 a / inside + b) u + centre, rounded down.
Value Proposal(Builder& b, const Point& at, const Value& a, const Value& width, const Value& centre) {
  return Floor(b, Add(b, Mul(b, Add(b, Div(b, Mul(b, a, 2), at.inside), width), at.u), centre));
}
Value Line(Builder& b, const Value& x, double factor, double summand) { return Add(b, Mul(b, x, factor), summand); }

// log of the share of k, and of nothing that cancels: with t = (rate - k - 1) / (k + 1) it is k (log(1 + t) - t) - t - log(2 π (k + 1)) / 2
// less Binet's function of k + 1.
Value LogShare(Builder& b, const Value& k, const Value& rate) {
  const Value z = Add(b, k, 1), t = Div(b, Sub(b, rate, z), z);
  const Value root = Mul(b, Log(b, Mul(b, z, 2 * std::numbers::pi)), 0.5);
  return Sub(b, Sub(b, Sub(b, Mul(b, k, Log1pLess(b, t)), t), root), Binet(b, z));
}

// Hörmann, The transformed rejection method for generating Poisson random variables (1993): PTRS.
Try TryPoisson(Builder& b, const Value& state, const Value& rate) {
  const Point at = PointOf(b, state, rate.dims());
  const Value width = Line(b, Sqrt(b, rate), 2.53, 0.931), a = Line(b, width, 0.02483, -0.059);
  const Value inverse = Add(b, Div(b, 1.1328, Add(b, width, -3.4)), 1.1239);
  const Value most = Sub(b, 0.9277, Div(b, 3.6224, Add(b, width, -2)));
  const Value k = Proposal(b, at, a, width, Add(b, rate, 0.43));
  if (!k) return {};
  const Value held = Maximum(b, k, FullLike(b, k, 0));
  const Value hat = Add(b, Div(b, a, Square(b, at.inside)), width);
  const Value below = Compare(b, Direction::kLe, Log(b, Div(b, Mul(b, at.v, inverse), hat)), LogShare(b, held, rate));
  const Value corner =
      And(b, Compare(b, Direction::kLt, at.inside, 0.013), Compare(b, Direction::kGt, at.v, at.inside));
  const Value slow = And(b, And(b, Compare(b, Direction::kGe, k, 0), Not(b, corner)), below);
  return {Either(b, Quick(b, at, most), slow), held};
}

absl::Status ExpandPoisson(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Flat flat, FlatParameters(call));
  const Value& rate = flat.parameters[0];
  const Value valid = Between(b, rate, 0, std::numeric_limits<double>::max());
  const Value few = And(b, valid, Compare(b, Direction::kLt, rate, kSearched));
  const Value many = And(b, valid, Compare(b, Direction::kGe, rate, kSearched));
  const Value low = Select(b, few, rate, FullLike(b, rate, 1)), high = Select(b, many, rate, FullLike(b, rate, 100));
  const Value& state = call.operands.back();
  const Value searched = Search(b, StreamOfCall(b, state, 0), few, Exp(b, Neg(b, low)), {low, FullLike(b, low, 0)});
  const Value rejected =
      Reject(b, StreamOfCall(b, state, 1), many, high, {high},
             [](Builder& in, const Value& own, std::span<const Value> fixed) { return TryPoisson(in, own, fixed[0]); });
  results[0] = Finished(call, Where(b, valid, Select(b, few, searched, rejected)), flat.dims);
  return absl::OkStatus();
}

// Hörmann, The generation of binomial random variates (1993): BTRS, for a probability of at most a half.
Try TryBinomial(Builder& b, const Value& state, const Value& n, const Value& p) {
  const Point at = PointOf(b, state, n.dims());
  const Value mean = Mul(b, n, p), odds = Div(b, p, Sub(b, 1, p));
  const Value deviation = Sqrt(b, Mul(b, mean, Sub(b, 1, p)));
  const Value width = Line(b, deviation, 2.53, 1.15);
  const Value a = Add(b, Line(b, width, 0.0248, -0.0873), Mul(b, p, 0.01));
  const Value most = Sub(b, 0.92, Div(b, 4.2, width));
  const Value alpha = Mul(b, Add(b, Div(b, 5.1, width), 2.83), deviation);
  const Value k = Proposal(b, at, a, width, Add(b, mean, 0.5));
  if (!k) return {};
  const Value possible = And(b, Compare(b, Direction::kGe, k, 0), Compare(b, Direction::kLe, k, n));
  const Value held = Select(b, possible, k, FullLike(b, k, 0));
  const Value mode = Floor(b, Mul(b, Add(b, n, 1), p));
  const auto rest = [&](const Value& x) { return Add(b, Sub(b, n, x), 1); };  // n - x + 1
  const auto ratio = [&](const Value& over, const Value& under) { return Log(b, Div(b, over, under)); };
  const Value first = Mul(b, Add(b, mode, 0.5), ratio(Add(b, mode, 1), Mul(b, odds, rest(mode))));
  const Value second = Mul(b, Add(b, n, 1), Unary(b, kOp_log1p, Div(b, Sub(b, held, mode), rest(held))));
  const Value third = Mul(b, Add(b, held, 0.5), ratio(Mul(b, odds, rest(held)), Add(b, held, 1)));
  const Value modes = Add(b, Binet(b, Add(b, mode, 1)), Binet(b, rest(mode)));
  const Value tails = Add(b, Binet(b, Add(b, held, 1)), Binet(b, rest(held)));
  const Value bound = Add(b, Add(b, Add(b, first, second), third), Sub(b, modes, tails));
  const Value hat = Add(b, Div(b, a, Square(b, at.inside)), width);
  const Value below = Compare(b, Direction::kLe, Log(b, Div(b, Mul(b, at.v, alpha), hat)), bound);
  return {And(b, possible, Either(b, Quick(b, at, most), below)), held};
}

absl::Status ExpandBinomial(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Flat flat, FlatParameters(call));
  const Value &n = flat.parameters[0], &given = flat.parameters[1];
  const Value whole =
      And(b, Between(b, n, 0, std::numeric_limits<double>::max()), Compare(b, Direction::kEq, n, Floor(b, n)));
  const Value valid = And(b, whole, Between(b, given, 0, 1));
  const Value flip = Compare(b, Direction::kGt, given, 0.5);
  const Value p = Select(b, flip, Sub(b, 1, given), given);
  const Value small = Compare(b, Direction::kLt, Mul(b, n, p), kSearched);
  const Value few = And(b, valid, small), many = And(b, valid, Not(b, small));
  const auto only = [&](const Value& where, const Value& x, double otherwise) {
    return Select(b, where, x, FullLike(b, x, otherwise));
  };
  const Value low_n = only(few, n, 1), low_p = only(few, p, 0.5);
  const Value high_n = only(many, n, 100), high_p = only(many, p, 0.5);
  const Value odds = Div(b, low_p, Sub(b, 1, low_p));
  const Value none = Exp(b, Mul(b, low_n, Unary(b, kOp_log1p, Neg(b, low_p))));
  const Value& state = call.operands.back();
  const Value searched = Search(b, StreamOfCall(b, state, 0), few, none, {Mul(b, low_n, odds), odds});
  const Value rejected = Reject(b, StreamOfCall(b, state, 1), many, high_n, {high_n, high_p},
                                [](Builder& in, const Value& own, std::span<const Value> fixed) {
                                  return TryBinomial(in, own, fixed[0], fixed[1]);
                                });
  const Value counts = Select(b, few, searched, rejected);
  results[0] = Finished(call, Where(b, valid, Select(b, flip, Sub(b, n, counts), counts)), flat.dims);
  return absl::OkStatus();
}

constexpr Sample kRates[] = {{"T[2,3] u64[3]<0:1000>", 0, 30},
                             {"T[] u64[3]<0:1000> shape=[131]", 11, 30},
                             {"T[0,3] u64[3]<0:9>", 0, 9},
                             {"T[7] u64[3]<-2:-1>", -1, 3}};
constexpr Sample kTrials[] = {{"T[2,3] T[2,3] u64[3]<0:1000>", 0, 1},
                              {"f32[] f32[5] u64[3]<0:1000> shape=[3,5]", 1, 1},
                              {"T[0,3] T[3] u64[3]<0:9>", 0, 1}};

}  // namespace

constinit const OpDef kOp_poisson = Drawn({
    .name = "weft.poisson",
    .c_name = "poisson",
    .kind = Kind::kComposite,
    .doc =
        "Random counts of Poisson distributions with these means, drawn from the context's generator, in the type of the "
        "rates (f16, bf16 and, above 2^24, f32 round them). NaN where a rate is negative, infinite or NaN. Source: below 10 "
        "down the distribution; else Hörmann, The transformed rejection method for Poisson random variables (1993).",
    .example = "n = wf_poisson(s, rate);",
    .operands = kRateOperands,
    .expand = ExpandPoisson,
    .samples = kRates,
    .tolerance = kExact,
    .absent = kCompositeNoGradient,
});
constinit const OpDef kOp_binomial = Drawn({
    .name = "weft.binomial",
    .c_name = "binomial",
    .kind = Kind::kComposite,
    .doc =
        "How many of so many trials succeed, each with this probability, drawn from the context's generator, in the type "
        "of the operands. NaN where trials is no whole number from 0 on or a probability is not 0 to 1. Source: below a "
        "mean of 10 down the distribution; else Hörmann, The generation of binomial random variates (1993); up to 1e12 "
        "trials.",
    .example = "n = wf_binomial(s, trials, p);",
    .operands = kTrialOperands,
    .expand = ExpandBinomial,
    .samples = kTrials,
    .tolerance = kExact,
    .absent = kCompositeNoGradient,
});

}  // namespace weft::ops
