// Whole numbers by one draw: bernoulli_of, geometric, randint, randperm, multinomial.
#include <cmath>
#include <limits>

#include "src/ops/elementwise/special.h"
#include "src/ops/random/distributions.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kShareOperands[] = {{"probability", kF | kWhole, "of true, 0 to 1"}, kState};
constexpr OperandDef kTrialOperands[] = {{"probability", kF | kWhole, "of success, above 0, at most 1"}, kState};
constexpr OperandDef kRowOperands[] = {
    {"probabilities", kF | kWhole, "[..., n], shares of each row, up to a factor a row"}, kState};
constexpr OperandDef kOnlyState[] = {kState};

// By 53 bits whatever the type is: small shares are as good as large ones.
absl::Status ExpandBernoulli(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Values parameters, DrawnParameters(call));
  const Value unit = RandomUnit(b, call.operands.back(), parameters[0].dims(), DType::kF64);
  results[0] = Compare(b, Direction::kLt, unit, Convert(b, parameters[0], DType::kF64));
  return absl::OkStatus();
}

// The number of the first success: an exponential number in steps of -log1p(-p), rounded up.
absl::Status ExpandGeometric(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Values parameters, DrawnParameters(call));
  const DType dtype = parameters[0].dtype();
  const Value p = Convert(b, parameters[0], DType::kF64);
  const Value valid = And(b, Compare(b, Direction::kGt, p, 0), Compare(b, Direction::kLe, p, 1));
  const Value draw = RandomExponential(b, call.operands.back(), p.dims(), DType::kF64);
  const Value step = Neg(b, Unary(b, kOp_log1p, Neg(b, Select(b, valid, p, FullLike(b, p, 1)))));
  const Value number = Unary(b, kOp_ceil, Div(b, draw, step));
  results[0] = Convert(b, Where(b, valid, Maximum(b, number, FullLike(b, number, 1))), dtype);
  return absl::OkStatus();
}

// --- randint

constexpr AttrDef kIntAttrs[] = {{"shape", AttrType::kInts, "result shape", true},
                                 {"low", AttrType::kInt, "the least number", true},
                                 {"high", AttrType::kInt, "the end, never reached", true},
                                 {"dtype", AttrType::kDType, "u8 to u64 or i8 to i64", false, "i32"}};

absl::Status InferInt(const InferCall& call, Types* results) {
  const int64_t low = Attr<kIntAttrs, "low">(call.attrs), high = Attr<kIntAttrs, "high">(call.attrs);
  const DType dtype = Attr<kIntAttrs, "dtype">(call.attrs);
  if (!Contains(kI | kWhole, dtype)) {
    return UserError("dtype is ", NameOf(dtype), "; it must be u8 to u64 or i8 to i64");
  }
  if (low >= high) return UserError("low is ", low, " and high is ", high, "; low must be below high");
  for (const int64_t end : {low, high - 1}) {
    HostTensor stored(dtype, {});
    stored.SetInt(0, end);
    const bool negative = end < 0 && !IsSigned(dtype);
    if (negative || stored.GetInt(0) != end) return UserError("the number ", end, " does not fit ", NameOf(dtype));
  }
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands[0]));
  results->push_back(Type::Tensor(dtype, ToDims(Attr<kIntAttrs, "shape">(call.attrs))));
  return absl::OkStatus();
}

struct Halves {
  Value low, high;
};
Value Right32(Builder& b, const Value& x) { return Call(b, kOp_shift_right_logical, {x, FullLike(b, x, 32)}); }
Halves HalvesOf(Builder& b, const Value& x) { return {And(b, x, FullLike(b, x, 0xFFFFFFFF)), Right32(b, x)}; }

// The upper 64 bits of the product of two u64.
Value MulHigh(Builder& b, const Value& x, const Value& y) {
  const Halves p = HalvesOf(b, x), q = HalvesOf(b, y);
  const Halves cross = HalvesOf(b, Mul(b, p.low, q.high)), other = HalvesOf(b, Mul(b, p.high, q.low));
  const Value middle = Add(b, Add(b, Right32(b, Mul(b, p.low, q.low)), cross.low), other.low);
  const Value high = Add(b, Add(b, Mul(b, p.high, q.high), cross.high), other.high);
  return Add(b, high, Right32(b, middle));
}

// The range times a random fraction of 64 bits, rounded down; of 128 bits where the range needs more than 32. So no number is
// preferred by more than one in 2^32, or in 2^64.
absl::Status ExpandInt(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const auto low = static_cast<uint64_t>(Attr<kIntAttrs, "low">(call.attrs));
  const uint64_t range = static_cast<uint64_t>(Attr<kIntAttrs, "high">(call.attrs)) - low;
  const Dims dims = ToDims(Attr<kIntAttrs, "shape">(call.attrs));
  const Value ranges = BroadcastTo(b, U64(b, range), dims);
  Value step;
  if (range <= uint64_t{1} << 32) {
    const Value bits = RandomBits(b, call.operands[0], dims, DType::kU64);
    if (!bits) return absl::OkStatus();
    const Halves word = HalvesOf(b, bits);
    step = Right32(b, Add(b, Mul(b, ranges, word.high), Right32(b, Mul(b, ranges, word.low))));
  } else {
    const Value first = RandomBits(b, StreamOfCall(b, call.operands[0], 0), dims, DType::kU64);
    const Value second = RandomBits(b, StreamOfCall(b, call.operands[0], 1), dims, DType::kU64);
    if (!b.ok()) return absl::OkStatus();
    const Value below = Mul(b, ranges, first), carried = Add(b, below, MulHigh(b, ranges, second));
    const Value carry = Convert(b, Compare(b, Direction::kLt, carried, below), DType::kU64);
    step = Add(b, MulHigh(b, ranges, first), carry);
  }
  results[0] = Convert(b, Add(b, BroadcastTo(b, U64(b, low), dims), step), Attr<kIntAttrs, "dtype">(call.attrs));
  return absl::OkStatus();
}

// --- randperm

constexpr AttrDef kPermAttrs[] = {{"count", AttrType::kInt, "how many numbers", true},
                                  {"dtype", AttrType::kDType, "i32 or i64", false, "i32"}};

absl::Status InferPerm(const InferCall& call, Types* results) {
  const int64_t count = Attr<kPermAttrs, "count">(call.attrs);
  const DType dtype = Attr<kPermAttrs, "dtype">(call.attrs);
  if (count < 0 || count > INT32_MAX) return UserError("count is ", count, "; it must be 0 to 2^31 - 1");
  if (dtype != DType::kI32 && dtype != DType::kI64)
    return UserError("dtype is ", NameOf(dtype), "; it must be i32 or i64");
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands[0]));
  results->push_back(Type::Tensor(dtype, {count}));
  return absl::OkStatus();
}

// Two of n keys of 64 bits are equal once in 2^65 / n²; their numbers then keep their order.
absl::Status ExpandPerm(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value keys = RandomBits(b, call.operands[0], {Attr<kPermAttrs, "count">(call.attrs)}, DType::kU64);
  results[0] = Convert(b, Call(b, kOp_argsort, {keys}), Attr<kPermAttrs, "dtype">(call.attrs));
  return absl::OkStatus();
}

// --- multinomial

constexpr AttrDef kRowAttrs[] = {
    {"count", AttrType::kInt, "draws of each row", true},
    {"replacement", AttrType::kBool, "a place may be drawn again; else each at most once", false, "false"}};

absl::Status InferRows(const InferCall& call, Types* results) {
  const Type& rows = *call.operands[0];
  const int64_t count = Attr<kRowAttrs, "count">(call.attrs);
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands[1]));
  if (rows.rank() == 0) return UserError("probabilities must have at least one dimension, not []");
  const int64_t n = rows.dims.back();
  if (n < 1 || n > INT32_MAX) return UserError("a row has ", n, " probabilities; there must be 1 to 2^31 - 1");
  if (count < 0) return UserError("count is ", count, "; it must not be negative");
  if (count > n && !Attr<kRowAttrs, "replacement">(call.attrs)) {
    return UserError("count is ", count, "; a row has ", n, " places, and without replacement each is drawn once");
  }
  Dims dims = rows.dims;
  dims.back() = count;
  results->push_back(Type::Tensor(DType::kI32, std::move(dims)));
  return absl::OkStatus();
}

// Where a share of a row's sum falls among its running sums. The last place with a share is the last that is drawn, also where a
// product rounds up to the sum.
Value Falls(Builder& b, const Value& shares, const Value& state, int64_t count) {
  const Dims dims = {shares.dims()[0], count}, one = {shares.dims()[0], 1};
  const int64_t n = shares.dims()[1];
  const Value sums = Call(b, kOp_cumsum, {Convert(b, shares, DType::kF64)}, {int64_t{-1}, int64_t{0}});
  if (!sums) return {};
  const Value total = Slice(b, sums, {0, n - 1}, {one[0], n}, {1, 1});
  const Value at = Mul(b, RandomUnit(b, state, dims, DType::kF64), BroadcastTo(b, total, dims));
  const Value found = Call(b, kOp_searchsorted, {sums, at}, {int64_t{1}});
  const Value last = Call(b, kOp_searchsorted, {sums, total}, {int64_t{0}});
  return b.ok() ? Minimum(b, found, BroadcastTo(b, last, dims)) : Value();
}

// Without replacement: the places of the largest log(share) - log(exponential), which are draws one after the other.
absl::Status ExpandRows(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& given = call.operands[0];
  const int64_t n = given.dims().back(), count = Attr<kRowAttrs, "count">(call.attrs);
  Dims dims = given.dims();
  dims.back() = count;
  if (weft::CountOf(dims) == 0) {
    results[0] = Full(b, DType::kI32, dims, 0);
    return b.status();
  }
  const Value rows = Reshape(b, given, {given.type().count() / n, n});
  const Value shares = Select(b, Compare(b, Direction::kGt, rows, 0), rows, FullLike(b, rows, 0));
  if (!shares) return b.status();
  Value found;
  if (Attr<kRowAttrs, "replacement">(call.attrs)) {
    found = Falls(b, shares, call.operands[1], count);
  } else {
    const Value draw = Log(b, RandomExponential(b, call.operands[1], shares.dims(), shares.dtype()));
    found = CallAll(b, kOp_top_k, {Sub(b, Log(b, shares), draw)}, {count, int64_t{-1}}).back();
  }
  if (found) results[0] = Reshape(b, found, dims);
  return b.status();
}

constexpr Sample kShares[] = {{"T[2,3] u64[3]<0:1000>", 0, 1, false},
                              {"T[] u64[3]<0:1000> shape=[131]", 0.2, 0.9, false},
                              {"T[0,3] u64[3]<0:9>", 0, 1, false}};
constexpr Sample kInts[] = {{"u64[3]<0:1000> shape=[2,3] low=-3 high=4"},
                            {"u64[3]<0:1000> shape=[131] low=0 high=256 dtype=u8"},
                            {"u64[3]<-2:-1> shape=[70] low=-9223372036854775807 high=9223372036854775807 dtype=i64"},
                            {"u64[3]<0:9> shape=[0] low=0 high=1"}};
constexpr Sample kPerms[] = {{"u64[3]<0:1000> count=131"}, {"u64[3]<0:9> count=0"}, {"u64[3]<0:9> count=5 dtype=i64"}};
constexpr Sample kRows[] = {{"T[2,5] u64[3]<0:1000> count=3", 0, 1, false},
                            {"T[4] u64[3]<0:1000> count=131 replacement=true", 0, 1, false},
                            {"T[2,3,4] u64[3]<0:9> count=7 replacement=true", 0, 1, false},
                            {"T[0,3] u64[3]<0:9> count=2", 0, 1, false}};

}  // namespace

constinit const OpDef kOp_bernoulli_of = Drawn({
    .name = "weft.bernoulli_of",
    .c_name = "bernoulli_of",
    .kind = Kind::kComposite,
    .doc =
        "Random bools, true with the probabilities given by a tensor, drawn from the context's generator by 53 bits. "
        "Probabilities below 0 and NaN are never true, those above 1 always.",
    .example = "mask = wf_bernoulli_of(s, p);",
    .operands = kShareOperands,
    .infer = InferDrawnBool,
    .expand = ExpandBernoulli,
    .samples = kShares,
    .tolerance = kExact,
    .absent = kCompositeNoGradient,
});
constinit const OpDef kOp_geometric = Drawn({
    .name = "weft.geometric",
    .c_name = "geometric",
    .kind = Kind::kComposite,
    .doc = "The number, from 1 on, of the first success in a row of trials of these probabilities, drawn from the "
           "context's generator, in the type of the probabilities. NaN where one is not above 0 or larger than 1.",
    .example = "n = wf_geometric(s, p);",
    .operands = kTrialOperands,
    .expand = ExpandGeometric,
    .samples = kShares,
    .tolerance = kExact,
    .absent = kCompositeNoGradient,
});
constinit const OpDef kOp_randint = Drawn({
    .name = "weft.randint",
    .c_name = "randint",
    .kind = Kind::kComposite,
    .doc =
        "Random whole numbers, at least low and below high, drawn from the context's generator: the range times 64 random "
        "bits as a fraction (128 where it is above 2^32), so that no number is preferred by more than one in 2^32. The "
        "ends are part of the program.",
    .example = "n = wf_randint(s, WF_INTS(8), 0, 10);",
    .operands = kOnlyState,
    .attrs = kIntAttrs,
    .infer = InferInt,
    .expand = ExpandInt,
    .samples = kInts,
    .tolerance = kExact,
    .absent = kCompositeNoGradient,
});
constinit const OpDef kOp_randperm = Drawn({
    .name = "weft.randperm",
    .c_name = "randperm",
    .kind = Kind::kComposite,
    .doc =
        "The numbers 0 to count - 1 in random order, drawn from the context's generator: the order of as many random "
        "words of 64 bits.",
    .example = "order = wf_randperm(s, 100);",
    .operands = kOnlyState,
    .attrs = kPermAttrs,
    .infer = InferPerm,
    .expand = ExpandPerm,
    .samples = kPerms,
    .tolerance = kExact,
    .absent = kCompositeNoGradient,
});
constinit const OpDef kOp_multinomial = Drawn({
    .name = "weft.multinomial",
    .c_name = "multinomial",
    .kind = Kind::kComposite,
    .doc =
        "Places in rows of probabilities, so many of each row, drawn from the context's generator, as i32. With "
        "replacement by where a share of the row's sum falls; without, each place at most once, as draws one after "
        "the other would. Shares that are negative or NaN count as 0 and are not drawn while there are others; a row "
        "of nothing else gives its first places. Source: Vieira, Gumbel-max trick and weighted reservoir sampling (2014).",
    .example = "at = wf_multinomial(s, p, 2);",
    .operands = kRowOperands,
    .attrs = kRowAttrs,
    .infer = InferRows,
    .expand = ExpandRows,
    .samples = kRows,
    .tolerance = kExact,
    .absent = kCompositeNoGradient,
});

}  // namespace weft::ops
