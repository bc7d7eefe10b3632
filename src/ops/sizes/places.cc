// See places.h.
#include "src/ops/sizes/places.h"

#include "src/ops/axes.h"
#include "src/ops/shape/gather_dims.h"
#include "src/ops/sort/order.h"

namespace weft::ops {

using namespace ir;

absl::Status CheckSize(const Attrs& attrs, size_t size_attr) {
  const int64_t size = attrs.Int(size_attr);
  if (size < 0 || size > INT32_MAX) return UserError("size is ", size, "; it must be 0 to ", INT32_MAX);
  return absl::OkStatus();
}

absl::Status CheckPlaces(std::string_view name, const Type& x) {
  if (x.count() <= INT32_MAX) return absl::OkStatus();
  return UserError(name, " has ", x.count(), " elements; their positions must fit i32");
}

namespace {

Value IsTrue(Builder& b, const Value& x) {
  if (!b.ok()) return {};
  return IsBool(x.dtype()) ? x : Compare(b, Direction::kNe, x, 0);
}
Value Counts(Builder& b, const Value& x) { return Convert(b, IsTrue(b, x), DType::kI32); }
Value IsBefore(Builder& b, const Value& count, int64_t size) {
  return Compare(b, Direction::kLt, Iota(b, DType::kI32, {size}, 0), BroadcastInDim(b, count, {size}, {}));
}
// The last of a running sum [n].
Value LastOf(Builder& b, const Value& upto) {
  if (!b.ok()) return {};
  const int64_t n = upto.type().count();
  return Reshape(b, Slice(b, upto, {n - 1}, {n}, {1}), {});
}
Value RowsOf(Builder& b, const Value& x, const Value& rows) {
  if (!b.ok()) return {};
  const Dims dims = x.dims();
  if (dims.size() == 1) return Call(b, kOp_gather, {x, rows}, {Ints{}, Ints{0}, Ints{0}, int64_t{1}, Ints{1}});
  return Call(b, kOp_gather, {x, rows}, {Ints{1}, Ints{0}, Ints{0}, int64_t{1}, Ints{1, dims[1]}});
}

// How many elements are counted together, of which those that one result needs are looked at again: elements of few results, bits
// of more. Of 2^27 bytes, 10 results take twice a maximum's time and a million six times; a running sum of all, with thirty times
// as much memory, takes 150 times as long. 0: each by itself.
constexpr int64_t kLong = 512, kShort = 64;
int64_t BlockOf(int64_t n, int64_t size) {
  constexpr int64_t kLeast = 4;  // blocks
  if (n >= kLeast * kLong && size <= n / (16 * kLong)) return kLong;
  return n >= kLeast * kShort && size <= n / 8 ? kShort : 0;
}

// The block of each result, and how many of the block's elements are results before it.
struct InBlocks {
  Value own, others, count;  // i32[size], i32[size], i32[]
};
InBlocks FindBlocks(Builder& b, const Value& counts, int64_t size) {
  if (!b.ok()) return {};
  const int64_t blocks = counts.type().count();
  const Value upto = Call(b, kOp_cumsum, {counts}, {int64_t{0}, int64_t{0}}), before = Sub(b, upto, counts);
  // Each block that has any stands where its first one does, and then for all results until the next block's.
  const Value slots =
      Select(b, Compare(b, Direction::kGt, counts, 0), before, FullLike(b, before, static_cast<double>(size)));
  const Value begun = PutAt(b, slots, Iota(b, DType::kI32, {blocks}, 0), size, -1);
  const Value index = Iota(b, DType::kI32, {size}, 0), zero = FullLike(b, index, 0);
  const Values own = CallAll(b, kOp_cummax, {begun}, {int64_t{0}, int64_t{0}});
  const Values since =
      CallAll(b, kOp_cummax, {Select(b, Compare(b, Direction::kGe, begun, 0), index, zero)}, {int64_t{0}, int64_t{0}});
  if (!b.ok()) return {};
  return {Maximum(b, own[0], zero), Sub(b, index, since[0]), LastOf(b, upto)};
}

// The position in its line of 512 of each result.
Value LookAtElements(Builder& b, const Value& lines, const InBlocks& found, int64_t size) {
  const Value within =
      Call(b, kOp_cumsum, {Convert(b, IsTrue(b, RowsOf(b, lines, found.own)), DType::kI16)}, {int64_t{1}, int64_t{0}});
  const Value passed =
      Compare(b, Direction::kLe, Convert(b, within, DType::kI32), BroadcastInDim(b, found.others, {size, kLong}, {0}));
  return Reduce(b, Convert(b, passed, DType::kI32), Reducer::kSum, {1});
}

// Lines of 64 as words of bits, the first element's the lowest.
Value BitsOfLines(Builder& b, const Value& lines) {
  if (!b.ok()) return {};
  HostTensor each(DType::kU64, {kShort});
  for (int64_t i = 0; i < kShort; ++i) each.SetInt(i, static_cast<int64_t>(uint64_t{1} << i));
  const Value bit = BroadcastInDim(b, Constant(b, std::move(each)), lines.dims(), {1});
  return Reduce(b, Select(b, IsTrue(b, lines), bit, FullLike(b, bit, 0)), Reducer::kSum, {1});
}
Value BitCounts(Builder& b, const Value& words) { return Convert(b, Call(b, kOp_popcount, {words}), DType::kI32); }

// The position in its line of 64 of each result: of the halves of a word, the one is taken that has the bit, six times.
Value LookAtBits(Builder& b, const Value& bits, const InBlocks& found) {
  Value word = RowsOf(b, bits, found.own), others = found.others, at = FullLike(b, others, 0);
  for (int64_t half = kShort / 2; half >= 1; half /= 2) {
    const double lowest = static_cast<double>((int64_t{1} << half) - 1);
    const Value lower = Call(b, kOp_bitwise_and, {word, FullLike(b, word, lowest)});
    const Value count = BitCounts(b, lower), upper = Compare(b, Direction::kGe, others, count);
    const Value shifted = Call(b, kOp_shift_right_logical, {word, FullLike(b, word, static_cast<double>(half))});
    word = Select(b, upper, shifted, lower);
    others = Select(b, upper, Sub(b, others, count), others);
    at = Select(b, upper, Add(b, at, static_cast<double>(half)), at);
  }
  return at;
}

Places FirstInBlocks(Builder& b, const Value& x, int64_t size, int64_t block) {
  const int64_t n = x.type().count(), blocks = (n + block - 1) / block;
  if (!b.ok()) return {};
  const Value padded = blocks * block == n ? x : Pad(b, x, 0, {0}, {blocks * block - n}, {0});
  const Value lines = Reshape(b, padded, {blocks, block});
  const bool by_bits = block == kShort;
  const Value bits = by_bits ? BitsOfLines(b, lines) : Value();
  const Value counts = by_bits ? BitCounts(b, bits) : Reduce(b, Counts(b, lines), Reducer::kSum, {1});
  const InBlocks found = FindBlocks(b, counts, size);
  const Value within = by_bits ? LookAtBits(b, bits, found) : LookAtElements(b, lines, found, size);
  const Value at = Add(b, Mul(b, found.own, static_cast<double>(block)), within);
  Places places;
  places.count = found.count;
  places.at = Minimum(b, at, FullLike(b, at, static_cast<double>(n - 1)));
  places.there = IsBefore(b, places.count, size);
  return places;
}

}  // namespace

Places FirstTrue(Builder& b, const Value& x, int64_t size) {
  if (!b.ok()) return {};
  const int64_t n = x.type().count();
  if (n == 0) {
    return {Full(b, DType::kI32, {size}, 0), Full(b, DType::kBool, {size}, 0), Scalar(b, DType::kI32, 0)};
  }
  if (size == 0) {  // a count alone
    return {Full(b, DType::kI32, {0}, 0), Full(b, DType::kBool, {0}, 0), Reduce(b, Counts(b, x), Reducer::kSum, {0})};
  }
  if (const int64_t block = BlockOf(n, size); block > 0) return FirstInBlocks(b, x, size, block);
  // How many are true up to each one: a true element's number among them, and in the end all.
  const Value upto = Call(b, kOp_cumsum, {Counts(b, x)}, {int64_t{0}, int64_t{0}});
  Places places;
  places.count = LastOf(b, upto);
  const Value slots = Select(b, IsTrue(b, x), Add(b, upto, -1), FullLike(b, upto, static_cast<double>(size)));
  places.at = PutAt(b, slots, Iota(b, DType::kI32, {n}, 0), size, 0);
  places.there = IsBefore(b, places.count, size);
  return places;
}

Value PutAt(Builder& b, const Value& slots, const Value& values, int64_t count, double fill, bool add) {
  if (!b.ok()) return {};
  Dims dims = values.dims();
  dims[0] = count;
  const Value begun = Full(b, values.dtype(), dims, fill);
  if (count == 0) return Slice(b, values, Ints(dims.size(), 0), ToInts(dims), Ints(dims.size(), 1));
  Ints window = Axes(dims.size());
  window.erase(window.begin());
  return Call(b, kOp_scatter, {begun, slots, values},
              {window, Ints{0}, Ints{0}, int64_t{1}, add ? int64_t{0} : kScatterSet});
}

Value WhereThere(Builder& b, const Value& there, const Value& x, int64_t axis, double fill) {
  if (!b.ok()) return {};
  return Select(b, BroadcastInDim(b, there, x.dims(), {axis}), x, FullLike(b, x, fill));
}

Dims Uniques::Values(int64_t size) const {
  Dims dims = shape;
  dims[axis] = size;
  return dims;
}

Value Uniques::Nothing(Builder& b, const Value& x, int64_t size, double fill) const {
  Ints high(shape.size(), 0);
  high[axis] = size;
  return Pad(b, x, fill, Ints(shape.size(), 0), high, Ints(shape.size(), 0));
}

absl::StatusOr<Uniques> UniquesOf(const Attrs& attrs, size_t axis_attr, const Dims& dims) {
  if (!attrs.has(axis_attr)) return Uniques{.shape = {CountOf(dims)}, .inverse = dims};
  Uniques of = {.slices = true, .shape = RowDims(dims)};
  WEFT_ASSIGN_OR_RETURN(of.axis, AxisOfRow("axis", attrs.Int(axis_attr), dims.size()));
  of.inverse = {of.shape[of.axis]};
  return of;
}

Value SliceRows(Builder& b, const Value& x, int64_t axis) {
  if (!b.ok()) return {};
  const Dims& dims = x.dims();
  Ints order = {axis};
  for (size_t d = 0; d < dims.size(); ++d) {
    if (static_cast<int64_t>(d) != axis) order.push_back(static_cast<int64_t>(d));
  }
  const int64_t n = dims[axis];
  return Reshape(b, Transpose(b, Call(b, kOp_stop_gradient, {x}), order), {n, n == 0 ? 0 : x.type().count() / n});
}

Value Begins(Builder& b, const Value& x, bool equal_nan) {
  if (!b.ok()) return {};
  const Dims& dims = x.dims();
  const Ints none(dims.size(), 0), step(dims.size(), 1);
  Ints first = none, last = ToInts(dims);
  first[0] = 1;
  const Value after = Slice(b, x, first, last, step);
  --last[0];
  const Value before = Slice(b, x, none, last, step);
  Value differs = Compare(b, Direction::kNe, after, before);
  if (b.ok() && IsFloat(x.dtype()) && equal_nan) {
    // NaN come last in ascending order, so what follows one is one.
    differs = And(b, differs, Compare(b, Direction::kEq, before, before));
  }
  return Pad(b, differs, 1, first, none, none);
}

// Each column's elements become their ranks in it; then two columns beside each other become one, whose elements are n times the
// left rank and the right one, until one is left: two sorts for each halving.
Value RowRanks(Builder& b, const Value& x, bool equal_nan) {
  Value ranks = x;
  while (b.ok()) {
    const Dims dims = ranks.dims();
    const int64_t n = dims[0], m = dims[1];
    if (m == 0) return Full(b, DType::kI32, {n}, 0);
    const Values sorted = SortByFirst(b, {ranks, Iota(b, DType::kI32, dims, 0)}, 0, false);
    const Value upto =
        Call(b, kOp_cumsum, {Convert(b, Begins(b, sorted[0], equal_nan), DType::kI32)}, {int64_t{0}, int64_t{0}});
    ranks = SortByFirst(b, {sorted[1], Add(b, upto, -1)}, 0, false)[1];
    if (m == 1) return Reshape(b, ranks, {n});
    ranks = Convert(b, Pad(b, ranks, 0, {0, 0}, {0, m % 2}, {0, 0}), DType::kI64);
    const Value left = Slice(b, ranks, {0, 0}, {n, m + m % 2}, {1, 2}),
                right = Slice(b, ranks, {0, 1}, {n, m + m % 2}, {1, 2});
    ranks = Add(b, Mul(b, left, static_cast<double>(n)), right);
  }
  return {};
}

}  // namespace weft::ops
