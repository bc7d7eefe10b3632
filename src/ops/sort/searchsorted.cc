// searchsorted, isin: where in a row in ascending order values belong, and whether they are there.
#include <algorithm>

#include "src/ops/sort/order.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kSearchOperands[] = {
    {"sorted", kAnyType, "[n], or [..., n] beside values [..., m], in ascending order, NaN at the end"},
    {"values", kAnyType, "what is looked for"}};
constexpr AttrDef kAttrs[] = {{"right", AttrType::kBool, "behind equal elements; else before them", false, "false"}};
constexpr OperandDef kIsinOperands[] = {{"x", kAnyType, "elements that are looked for"},
                                        {"among", kAnyType, "where, in any order and shape"}};

absl::Status InferSearch(const InferCall& call, Types* results) {
  const Type& sorted = *call.operands[0];
  const Dims& values = call.operands[1]->dims;
  if (sorted.rank() == 0) return UserError("sorted must have at least one dimension, not []");
  if (sorted.rank() > 1 &&
      (values.size() != sorted.rank() || !std::equal(values.begin(), values.end() - 1, sorted.dims.begin()))) {
    return UserError("values have shape ", DimsToString(values), "; rows of ", DimsToString(sorted.dims),
                     " need as many rows of them");
  }
  if (sorted.dims.back() > INT32_MAX)
    return UserError("sorted has ", sorted.dims.back(), " elements; their positions must fit i32");
  results->push_back(Type::Tensor(DType::kI32, call.operands[1]->dims));
  return absl::OkStatus();
}

// Tells whether x stands before y: NaN is larger than everything.
Value Before(Builder& b, const Value& x, const Value& y) {
  const Value less = Compare(b, Direction::kLt, x, y);
  if (!b.ok() || !IsFloat(x.dtype())) return less;
  const Value nan_behind = And(b, Compare(b, Direction::kNe, y, y), Compare(b, Direction::kEq, x, x));
  return Call(b, kOp_bitwise_or, {less, nan_behind});
}

// The element of each row at each of its places: gather with the rows running along, and a place at the end held inside.
Value InRows(Builder& b, const Value& sorted, const Value& places) {
  if (!sorted || !places) return {};
  Ints rows = Axes(sorted.dims().size()), sizes(sorted.dims().size(), 1);
  const int64_t last = rows.back();
  rows.pop_back();
  return Call(b, kOp_gather, {sorted, places}, {Ints{}, Ints{last}, Ints{last}, last + 1, sizes, rows, rows});
}

// Bisection, a step for each bit of the length: how many stand before is `low` in the end.
absl::Status ExpandSearch(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &sorted = call.operands[0], &values = call.operands[1];
  const bool right = Attr<kAttrs, "right">(call.attrs) != 0;
  const int64_t n = sorted.dims().back(), last = static_cast<int64_t>(sorted.dims().size()) - 1;
  Value low = Full(b, DType::kI32, values.dims(), 0),
        high = Full(b, DType::kI32, values.dims(), static_cast<double>(n));
  for (int64_t left = n; left > 0 && b.ok(); left /= 2) {
    // low + (high - low) / 2: a sum of both may not fit. Where low has met high nothing changes any more.
    const Value middle = Add(b, low, Div(b, Sub(b, high, low), FullLike(b, low, 2)));
    const Value there = last == 0 ? Call(b, kOp_take, {sorted, middle}, {int64_t{0}}) : InRows(b, sorted, middle);
    Value goes = Before(b, there, values);
    if (right) goes = Call(b, kOp_bitwise_not, {Before(b, values, there)});
    goes = And(b, goes, Compare(b, Direction::kLt, low, high));
    low = Select(b, goes, Add(b, middle, 1), low);
    high = Select(b, goes, high, middle);
  }
  results[0] = low;
  return b.status();
}

absl::Status InferIsin(const InferCall& call, Types* results) {
  if (call.operands[1]->count() > INT32_MAX)
    return UserError("among has too many elements; their positions must fit i32");
  results->push_back(Type::Tensor(DType::kBool, call.operands[0]->dims));
  return absl::OkStatus();
}

absl::Status ExpandIsin(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t n = call.operands[1].type().count();
  if (n == 0) {
    results[0] = Full(b, DType::kBool, x.dims(), 0);
    return absl::OkStatus();
  }
  const Value sorted = SortByFirst(b, {Reshape(b, call.operands[1], {n})}, 0, false)[0];
  const Value at = Call(b, kOp_searchsorted, {sorted, x});
  results[0] = Compare(b, Direction::kEq, x, Call(b, kOp_take, {sorted, at}, {int64_t{0}}));  // held to the last one
  return b.status();
}

constexpr Sample kSearchSamples[] = {{"i32[1]<3:4> i32[7]<0:9>"},
                                     {"T[1] T[3,4]"},
                                     {"T[1] T[5] right=true"},
                                     {"T[0] T[3]"},
                                     {"T[1] T[]"},
                                     {"T[2,1] T[2,3]"}};
constexpr Sample kIsinSamples[] = {
    {"i32[9]<0:9> i32[4]<0:9>"}, {"i8[2,5]<-3:3> i8[2,2]<-3:3>"}, {"T[3,4] T[5]"}, {"T[3] T[0]"}, {"T[] T[]"}};

}  // namespace

constinit const OpDef kOp_searchsorted = {
    .name = "weft.searchsorted",
    .c_name = "searchsorted",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "Where in a row in ascending order, or its own of many rows, each value belongs, as i32: how many elements are smaller, or, with right, not larger. "
        "NaN counts as larger than everything.",
    .example = "at = wf_searchsorted(s, edges, x);",
    .operands = kSearchOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = InferSearch,
    .expand = ExpandSearch,
    .lowering = Lowering::kExpand,
    .samples = kSearchSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
};

constinit const OpDef kOp_isin = {
    .name = "weft.isin",
    .c_name = "isin",
    .since = 1,
    .kind = Kind::kMacro,
    .doc = "Of each element whether it is among others. NaN is among none.",
    .example = "known = wf_isin(s, ids, known_ids);",
    .operands = kIsinOperands,
    .results = kResult,
    .infer = InferIsin,
    .expand = ExpandIsin,
    .lowering = Lowering::kExpand,
    .samples = kIsinSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
