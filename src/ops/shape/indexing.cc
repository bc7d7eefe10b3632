// Elements and slices at computed places, as PyTorch and NumPy index: formulas of gather and scatter.
#include <algorithm>
#include <cmath>

#include "src/ops/axes.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/shape/gather_dims.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAxis = {"axis", AttrType::kInt, "axis that the indices count along; negative counts from the end",
                           false, "0"};
constexpr AttrDef kAxisAttrs[] = {kAxis};
constexpr AttrDef kAddAttrs[] = {kAxis, {"alpha", AttrType::kDouble, "what the source is multiplied by", false, "1"}};
constexpr std::string_view kReducers[] = {"sum", "prod", "max", "min", "mean", "set"};
enum : int64_t { kSumOf = 0, kMaxOf = 2, kMinOf = 3, kMeanOf = 4, kSetOf = 5 };
constexpr AttrDef kReduceAttrs[] = {
    {"reducer", AttrType::kEnum, "how elements of one place combine", true, {}, kReducers},
    kAxis,
    {"include_self", AttrType::kBool, "x takes part where something is combined in", false, "true"}};
constexpr AttrDef kPlaceAttrs[] = {
    {"accumulate", AttrType::kBool, "adds, where else the last value stays", false, "false"}};
constexpr AttrDef kIndexAttrs[] = {
    {"dims", AttrType::kInts, "axis of each index, ascending; negative ones count from the end", true}};
constexpr AttrDef kPutAttrs[] = {kIndexAttrs[0], kPlaceAttrs[0]};

constexpr OperandDef kAlong[] = {{"x", kEveryType, "operand"}, {"indices", kI, "of x's rank", false, false, 'I'}};
constexpr OperandDef kInto[] = {{"x", kEveryType, "operand"},
                                {"index", kI, "a row of places", false, false, 'I'},
                                {"source", kEveryType, "slices, as many as places"}};
constexpr OperandDef kFills[] = {{"x", kEveryType, "operand"},
                                 {"index", kI, "a row of places", false, false, 'I'},
                                 {"value", kEveryType, "a scalar"}};
constexpr OperandDef kPlaced[] = {{"x", kEveryType, "operand"},
                                  {"index", kI, "places in x as one row", false, false, 'I'},
                                  {"source", kEveryType, "as many elements as places"}};
constexpr OperandDef kMasked[] = {{"x", kEveryType, "operand"},
                                  {"mask", kB, "broadcasts to x", false, false, 'M'},
                                  {"source", kEveryType, "elements, in their order"}};
constexpr OperandDef kCombined[] = {{"x", kEveryType, "operand"},
                                    {"indices", kI, "of x's rank, no larger than source", false, false, 'I'},
                                    {"source", kEveryType, "of x's rank"}};
constexpr OperandDef kIndexed[] = {{"x", kEveryType, "operand"},
                                   {"indices", kI, "integer tensors that broadcast", false, true, 'I'}};
constexpr OperandDef kPut[] = {{"x", kEveryType, "operand"},
                               {"values", kEveryType, "broadcasts to what index gives"},
                               {"indices", kI, "integer tensors that broadcast", false, true, 'I'}};

Ints Others(int64_t rank, int64_t axis) {
  Ints others;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != axis) others.push_back(d);
  }
  return others;
}
// The first elements of x along each dimension.
Value FirstOf(Builder& b, const Value& x, const Dims& dims) {
  if (!x || x.dims() == dims) return x;
  return Slice(b, x, Ints(dims.size(), 0), ToInts(dims), Ints(dims.size(), 1));
}

// --- Along an axis, one index an element

absl::StatusOr<int64_t> CheckAlong(const InferCall& call, size_t axis_attr) {
  const Type &x = *call.operands[0], &indices = *call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOfRow("axis", call.attrs.Int(axis_attr), x.rank()));
  if (indices.rank() != x.rank()) {
    return UserError("indices have shape ", DimsToString(indices.dims), "; they must have the rank of x, ", x.rank());
  }
  for (size_t d = 0; d < x.rank(); ++d) {
    if (static_cast<int64_t>(d) != axis && indices.dims[d] > x.dims[d]) {
      return UserError("indices have ", indices.dims[d], " elements along axis ", d, " and x has ", x.dims[d],
                       "; there must not be more");
    }
  }
  if (RowDims(x.dims)[axis] == 0 && indices.count() != 0)
    return UserError("axis ", axis, " of x is empty: there is no place in it");
  return axis;
}
absl::Status InferAlong(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckAlong(call, 0).status());
  results->push_back(Type::Tensor(call.operands[0]->dtype, call.operands[1]->dims));
  return absl::OkStatus();
}
absl::Status ExpandAlong(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Dims wanted = call.operands[1].dims();
  if (CountOf(wanted) == 0) {
    results[0] = Full(b, call.operands[0].dtype(), wanted, 0);
    return absl::OkStatus();
  }
  const Value x = AsRow(b, call.operands[0]), indices = AsRow(b, call.operands[1]);
  if (!x || !indices) return b.status();
  const int64_t rank = x.dims().size();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAxisAttrs, "axis">(call.attrs), rank));
  Dims dims = indices.dims();
  dims[axis] = x.dims()[axis];
  Ints sizes(rank, 1);
  sizes[axis] = std::min<int64_t>(1, dims[axis]);
  const Ints others = Others(rank, axis);
  const Value found = Call(b, kOp_gather, {FirstOf(b, x, dims), indices},
                           {Ints{}, Ints{axis}, Ints{axis}, rank, sizes, others, others});
  results[0] = found ? Reshape(b, found, wanted) : found;
  return absl::OkStatus();
}
template <size_t axis_attr>
absl::Status AlongInRange(const IndexCall& call) {
  const Dims dims = RowDims(call.operands[0]->dims);
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        AxisOfRow("axis", call.attrs.Int(axis_attr), call.operands[0]->dims.size()));
  return CheckIndices(call.op.operands[1].name, *call.values[1], dims[axis] - 1);
}

absl::Status CheckCombines(DType dtype, int64_t reducer) {
  if (IsBool(dtype) && reducer == kMeanOf) return UserError("bool has no ", kReducers[reducer]);
  if (IsComplex(dtype) && (reducer == kMaxOf || reducer == kMinOf)) {
    return UserError(NameOf(dtype), " has no ", kReducers[reducer]);
  }
  return absl::OkStatus();
}
absl::Status InferCombined(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckAlong(call, 1).status());
  const Type &indices = *call.operands[1], &source = *call.operands[2];
  bool fits = source.rank() == indices.rank();
  for (size_t d = 0; fits && d < source.rank(); ++d) fits = indices.dims[d] <= source.dims[d];
  if (!fits) {
    return UserError("source has shape ", DimsToString(source.dims), " and indices ", DimsToString(indices.dims),
                     "; there must be an element for each index");
  }
  WEFT_RETURN_IF_ERROR(CheckCombines(call.operands[0]->dtype, Attr<kReduceAttrs, "reducer">(call.attrs)));
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}
// Updates combined into x at indices by a scatter of the given dimension numbers.
struct Combination {
  const Value& indices;
  Ints window, axes;
  int64_t vector;
  Ints along;
};
Value Combine(Builder& b, const Combination& how, const Value& x, const Value& updates, int64_t reducer, bool self) {
  if (!x || !updates || updates.type().count() == 0) return x;
  const auto scatter = [&](const Value& into, const Value& what, int64_t by) {
    return Call(b, kOp_scatter, {into, how.indices, what},
                {how.window, how.axes, how.axes, how.vector, by, how.along, how.along});
  };
  if (reducer == kSetOf) return scatter(x, updates, kScatterSet);
  const Reducer by = reducer == kMeanOf ? Reducer::kSum : static_cast<Reducer>(reducer);
  Value part = x;
  if (!self) {
    part = scatter(part, BroadcastTo(b, Constant(b, Identity(by, x.dtype())), updates.dims()), kScatterSet);
  }
  part = scatter(part, updates, static_cast<int64_t>(by));
  if (!part || reducer != kMeanOf) return part;
  const Value begin = FullLike(b, part, self ? 1 : 0);
  const Value count = scatter(begin, FullLike(b, updates, 1), static_cast<int64_t>(Reducer::kSum));
  const Value over = Maximum(b, count, FullLike(b, part, 1));
  return IsFloat(x.dtype()) || IsComplex(x.dtype()) ? Div(b, part, over) : Call(b, kOp_floor_divide, {part, over});
}

absl::Status ExpandCombined(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = AsRow(b, call.operands[0]), indices = AsRow(b, call.operands[1]), source = AsRow(b, call.operands[2]);
  if (!x || !indices || !source) return b.status();
  const int64_t rank = x.dims().size(), reducer = Attr<kReduceAttrs, "reducer">(call.attrs);
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kReduceAttrs, "axis">(call.attrs), rank));
  Dims dims = indices.dims();
  dims[axis] = x.dims()[axis];
  const Ints others = Others(rank, axis);
  const Value updates = FirstOf(b, source, indices.dims());
  const bool self = Attr<kReduceAttrs, "include_self">(call.attrs);
  Value part = Combine(b, {indices, {}, {axis}, rank, others}, FirstOf(b, x, dims), updates, reducer, self);
  if (!part) return b.status();
  if (dims != x.dims()) {
    Values parts = {x, part};
    for (int64_t d = 0; d < rank; ++d) parts.push_back(Scalar(b, DType::kI32, 0));
    part = Call(b, kOp_dynamic_update_slice, std::move(parts));
  }
  results[0] = part ? Reshape(b, part, call.operands[0].dims()) : part;
  return absl::OkStatus();
}

// --- Slices at a row of places

template <size_t axis_attr>
absl::Status InferInto(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &index = *call.operands[1], &source = *call.operands[2];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOfRow("axis", call.attrs.Int(axis_attr), x.rank()));
  if (index.rank() > 1) return UserError("index has shape ", DimsToString(index.dims), "; it must be a row of places");
  Dims wanted = RowDims(x.dims);
  if (wanted[axis] == 0 && index.count() != 0)
    return UserError("axis ", axis, " of x is empty: there is no place in it");
  wanted[axis] = index.count();
  if (call.op.operands[2].name == "value") {
    if (!source.dims.empty()) return UserError("value has shape ", DimsToString(source.dims), "; it must be a scalar");
    if (!CheckedCount(wanted) || CountOf(wanted) > (int64_t{1} << 40))
      return UserError("index has too many places: ", index.count());
  } else if (RowDims(source.dims) != wanted) {
    return UserError("source has shape ", DimsToString(source.dims), "; x and index ask for ", DimsToString(wanted));
  }
  results->push_back(x);
  return absl::OkStatus();
}
// Unsigned numbers wrap.
Value Times(Builder& b, const Value& x, double factor) {
  return x && IsUnsigned(x.dtype()) && factor < 0 ? Neg(b, Mul(b, x, -factor)) : Mul(b, x, factor);
}
template <int64_t reducer>
absl::Status ExpandInto(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = AsRow(b, call.operands[0]), index = AsRow(b, call.operands[1]);
  if (!x || !index) return b.status();
  const int64_t rank = x.dims().size();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", call.attrs.Int(0), rank));
  Dims dims = x.dims();
  dims[axis] = index.dims()[0];
  Value source = call.operands[2];
  source = source && source.dims().empty() ? BroadcastTo(b, source, dims) : source;
  if (reducer == kSumOf && call.attrs.Double(1) != 1) source = Times(b, source, call.attrs.Double(1));
  const Value put = Combine(b, {index, Others(rank, axis), {axis}, 1, {}}, x, source, reducer, true);
  results[0] = put ? Reshape(b, put, call.operands[0].dims()) : put;
  return absl::OkStatus();
}
absl::Status InferIndexAdd(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferInto<0>(call, results));
  const double alpha = Attr<kAddAttrs, "alpha">(call.attrs);
  if (!IsFloat(results->back().dtype) && !IsComplex(results->back().dtype) && alpha != std::trunc(alpha)) {
    return UserError("alpha is ", alpha, "; of ", NameOf(results->back().dtype), " it must be a whole number");
  }
  return absl::OkStatus();
}
absl::Status InferIndexReduce(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckCombines(call.operands[0]->dtype, Attr<kReduceAttrs, "reducer">(call.attrs)));
  return InferInto<1>(call, results);
}
absl::Status ExpandIndexReduce(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = AsRow(b, call.operands[0]), index = AsRow(b, call.operands[1]);
  if (!x || !index) return b.status();
  const int64_t rank = x.dims().size();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kReduceAttrs, "axis">(call.attrs), rank));
  Dims dims = x.dims();
  dims[axis] = index.dims()[0];
  const Value put = Combine(b, {index, Others(rank, axis), {axis}, 1, {}}, x, Reshape(b, call.operands[2], dims),
                            Attr<kReduceAttrs, "reducer">(call.attrs), Attr<kReduceAttrs, "include_self">(call.attrs));
  results[0] = put ? Reshape(b, put, call.operands[0].dims()) : put;
  return absl::OkStatus();
}

// --- Any axes at once

// The index vectors of a gather or scatter, and the dimensions of the result that run within a slice.
struct Places {
  Value vectors;
  Ints axes, window, sizes;
  Dims dims;  // of the result
};
absl::StatusOr<Places> PlacesOf(const Attrs& attrs, const Dims& x, std::span<const Dims> indices) {
  Places places;
  for (const int64_t given : attrs.IntList(0)) {
    WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("dims", given, x.size()));
    if (!places.axes.empty() && places.axes.back() >= axis) return UserError("dims must ascend");
    places.axes.push_back(axis);
  }
  if (places.axes.size() != indices.size())
    return UserError(indices.size(), " indices need as many dims, not ", places.axes.size());
  Dims joined;
  for (const Dims& dims : indices) {
    WEFT_ASSIGN_OR_RETURN(joined, BroadcastDims(joined, dims));
  }
  places.sizes = ToInts(x);
  for (const int64_t axis : places.axes) {
    if (x[axis] == 0 && CountOf(joined) != 0)
      return UserError("axis ", axis, " of x is empty: there is no place in it");
    places.sizes[axis] = std::min<int64_t>(1, x[axis]);
  }
  // Axes side by side keep their place; others move in front.
  const bool together = places.axes.back() - places.axes.front() + 1 == static_cast<int64_t>(places.axes.size());
  const int64_t front = together ? places.axes.front() : 0, rank = joined.size();
  for (int64_t d = 0; d < static_cast<int64_t>(x.size()); ++d) {
    if (std::ranges::count(places.axes, d) != 0) continue;
    if (static_cast<int64_t>(places.window.size()) == front)
      places.dims.insert(places.dims.end(), joined.begin(), joined.end());
    places.window.push_back(static_cast<int64_t>(places.window.size()) +
                            (static_cast<int64_t>(places.window.size()) < front ? 0 : rank));
    places.dims.push_back(x[d]);
  }
  if (static_cast<int64_t>(places.window.size()) <= front)
    places.dims.insert(places.dims.end(), joined.begin(), joined.end());
  return places;
}
// Negative indices count from the end of `size`. Unsigned ones of 64 bits that are no i64 lie behind all.
Value FromEnd(Builder& b, const Value& index, int64_t size) {
  if (!index) return {};
  const Value at = Convert(b, index, size > INT32_MAX || BitsOf(index.dtype()) == 64 ? DType::kI64 : DType::kI32);
  if (IsUnsigned(index.dtype())) {
    return index.dtype() == DType::kU64
               ? Select(b, Compare(b, Direction::kLt, at, 0), FullLike(b, at, static_cast<double>(size)), at)
               : at;
  }
  return Select(b, Compare(b, Direction::kLt, at, 0), Add(b, at, static_cast<double>(size)), at);
}
absl::StatusOr<Places> PlacesOf(const ExpandCall& call, size_t first) {
  Builder& b = call.b;
  const Dims& x = call.operands[0].dims();
  std::vector<Dims> shapes;
  for (const Value& index : call.operands.subspan(first)) shapes.push_back(index.dims());
  WEFT_ASSIGN_OR_RETURN(Places places, PlacesOf(call.attrs, x, shapes));
  Dims joined;
  for (const Dims& dims : shapes) {
    WEFT_ASSIGN_OR_RETURN(joined, BroadcastDims(joined, dims));
  }
  Dims column = joined;
  column.push_back(1);
  Values parts;
  bool wide = false;
  for (size_t i = 0; i < shapes.size(); ++i) {
    wide = wide || x[places.axes[i]] > INT32_MAX || BitsOf(call.operands[first + i].dtype()) == 64;
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    const int64_t size = x[places.axes[i]];
    parts.push_back(
        Reshape(b,
                BroadcastTo(b, Convert(b, FromEnd(b, call.operands[first + i], size), wide ? DType::kI64 : DType::kI32),
                            joined),
                column));
  }
  places.vectors = Call(b, kOp_concatenate, std::move(parts), {static_cast<int64_t>(joined.size())});
  return b.ok() ? absl::StatusOr<Places>(std::move(places)) : b.status();
}
absl::StatusOr<Places> PlacesOf(const InferCall& call, size_t first) {
  std::vector<Dims> shapes;
  for (const Type* index : call.operands.subspan(first)) shapes.push_back(index->dims);
  return PlacesOf(call.attrs, call.operands[0]->dims, shapes);
}
absl::Status InferIndex(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const Places places, PlacesOf(call, 1));
  results->push_back(Type::Tensor(call.operands[0]->dtype, places.dims));
  return absl::OkStatus();
}
absl::Status ExpandIndex(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const Places places, PlacesOf(call, 1));
  const int64_t last = static_cast<int64_t>(places.vectors.dims().size()) - 1;
  results[0] = Call(call.b, kOp_gather, {call.operands[0], places.vectors},
                    {places.window, places.axes, places.axes, last, places.sizes});
  return absl::OkStatus();
}
absl::Status InferPut(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const Places places, PlacesOf(call, 2));
  const auto joined = BroadcastDims(places.dims, call.operands[1]->dims);
  if (!joined.ok() || *joined != places.dims) {
    return UserError("values have shape ", DimsToString(call.operands[1]->dims), ", which does not broadcast to ",
                     DimsToString(places.dims));
  }
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}
absl::Status ExpandPut(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const Places places, PlacesOf(call, 2));
  const int64_t last = static_cast<int64_t>(places.vectors.dims().size()) - 1;
  const Value values = BroadcastTo(call.b, call.operands[1], places.dims);
  const int64_t reducer = Attr<kPutAttrs, "accumulate">(call.attrs) ? static_cast<int64_t>(Reducer::kSum) : kScatterSet;
  results[0] = Call(call.b, kOp_scatter, {call.operands[0], places.vectors, values},
                    {places.window, places.axes, places.axes, last, reducer});
  return absl::OkStatus();
}

absl::Status Within(std::string_view name, const HostTensor& values, int64_t size) {
  for (int64_t i = 0; i < values.count(); ++i) {
    const int64_t value = values.GetInt(i);
    if (value >= (IsUnsigned(values.dtype()) ? 0 : -size) && value < size) continue;
    return UserErrorOf(absl::StatusCode::kOutOfRange, name, ": element ", i, " is ", value, "; ", -size, " to ",
                       size - 1, " are possible (checked in debug mode)");
  }
  return absl::OkStatus();
}
template <size_t first>
absl::Status PlacesInRange(const IndexCall& call) {
  const Dims& x = call.operands[0]->dims;
  const Ints& dims = call.attrs.IntList(0);
  for (size_t i = 0; i < dims.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("dims", dims[i], x.size()));
    WEFT_RETURN_IF_ERROR(Within("indices", *call.values[first + i], x[axis]));
  }
  return absl::OkStatus();
}

// --- Elements of all

absl::Status InferPlaced(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &index = *call.operands[1], &source = *call.operands[2];
  if (source.count() != index.count()) {
    return UserError("source has shape ", DimsToString(source.dims), " and index ", DimsToString(index.dims),
                     "; there must be an element for each place");
  }
  if (x.count() == 0 && index.count() != 0) return UserError("x is empty: there is no place in it");
  results->push_back(x);
  return absl::OkStatus();
}
absl::Status ExpandPlaced(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &index = call.operands[1], &source = call.operands[2];
  const int64_t count = index.type().count(), reducer = Attr<kPlaceAttrs, "accumulate">(call.attrs) ? kSumOf : kSetOf;
  const Value at = FromEnd(b, Reshape(b, index, {count}), x.type().count());
  const Value put =
      Combine(b, {at, {}, {0}, 1, {}}, Reshape(b, x, {x.type().count()}), Reshape(b, source, {count}), reducer, true);
  results[0] = put ? Reshape(b, put, x.dims()) : put;
  return absl::OkStatus();
}
absl::Status PlacedInRange(const IndexCall& call) {
  return Within("index", *call.values[1], call.operands[0]->count());
}

absl::Status InferMasked(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &mask = *call.operands[1];
  const auto joined = BroadcastDims(x.dims, mask.dims);
  if (!joined.ok() || *joined != x.dims) {
    return UserError("mask has shape ", DimsToString(mask.dims), ", which does not broadcast to ",
                     DimsToString(x.dims));
  }
  if (call.operands[2]->count() == 0 && x.count() != 0) return UserError("source is empty: there is nothing to take");
  if (x.count() > INT32_MAX) return UserError("x has ", x.count(), " elements; their positions must fit i32");
  results->push_back(x);
  return absl::OkStatus();
}
// The n-th place of the mask takes the n-th element.
absl::Status ExpandMasked(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &source = call.operands[2];
  const Value mask = BroadcastTo(b, call.operands[1], x.dims());
  const int64_t count = x.type().count();
  if (count == 0) {
    results[0] = x;
    return absl::OkStatus();
  }
  const Value flat = Convert(b, Reshape(b, mask, {count}), DType::kI32);
  const Value at = Add(b, Call(b, kOp_cumsum, {flat}, {int64_t{0}, int64_t{0}}), -1);
  const Value row = Reshape(b, source, {source.type().count()});
  const Value taken = Call(b, kOp_take, {row, at}, {int64_t{0}});
  results[0] = taken ? Select(b, mask, Reshape(b, taken, x.dims()), x) : taken;
  return absl::OkStatus();
}

constexpr Sample kAlongs[] = {{"T[3,4] i32[2,4]<0:3>"}, {"T[3,4] i64[2,6]<0:4> axis=1"}, {"T[] i32[]<0:1>"}};
constexpr Sample kIntos[] = {{"T[5,3] i32[2]<0:5> T[2,3]"}, {"T[2,4] i64[3]<0:4> T[2,3] axis=-1"}};
constexpr Sample kReductions[] = {{"T[5,3] i32[2]<0:5> T[2,3] reducer=sum"},
                                  {"f32[5,3] i32[2]<0:5> f32[2,3] reducer=max"}};
constexpr Sample kPlacings[] = {{"T[3,4] i32[2,2]<-12:12> T[4] accumulate=true"}, {"T[4] i64[1]<0:4> T[]"}};
constexpr Sample kMaskings[] = {{"T[3,4] bool[4] T[12]"}, {"T[] bool[] T[1]"}};
constexpr Sample kFilled[] = {{"T[5,3] i32[2]<0:5> T[]"}, {"T[2,4] i64[3]<0:4> T[] axis=-1"}};
constexpr Sample kCombinations[] = {{"T[3,4] i32[2,4]<0:3> T[2,4] reducer=sum"},
                                    {"f32[3,4] i64[2,6]<0:4> f32[3,6] reducer=mean axis=1 include_self=false", 0.5, 2}};
constexpr Sample kIndices[] = {{"T[4,3] i32[5]<-4:4> dims=[0]"},
                               {"T[3,2,4] i64[2,1]<0:3> i64[3]<0:4> dims=[0,2]"},
                               {"T[3,4,2] i32[2]<0:3> i32[2]<0:2> dims=[0,1]"}};
constexpr Sample kPuts[] = {{"T[4,3] T[5,3] i32[5]<-4:4> dims=[0] accumulate=true"},
                            {"T[5,4] T[] i32[1]<0:5> i32[1]<0:4> dims=[0,1]"}};
constexpr Tolerance kTolerance = {.f32 = 2e-6, .f64 = 1e-14, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-6};

}  // namespace

constinit const OpDef kOp_take_along_axis = Formula({
    .name = "weft.take_along_axis",
    .c_name = "take_along_axis",
    .doc = "The element of x at each index along one axis, the other coordinates being the index's own: PyTorch's "
           "gather. Indices outside are held to the ends.",
    .example = "y = wf_take_along_axis(s, x, order);",
    .operands = kAlong,
    .attrs = kAxisAttrs,
    .infer = InferAlong,
    .expand = ExpandAlong,
    .indices = AlongInRange<0>,
    .samples = kAlongs,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_scatter_reduce = Formula({
    .name = "weft.scatter_reduce",
    .c_name = "scatter_reduce",
    .doc = "Combines each element of the source into x at its index along one axis, the other coordinates being its "
           "own: PyTorch's scatter, scatter_add and scatter_reduce. What lies outside is left out.",
    .example = "y = wf_scatter_reduce(s, x, indices, source, WEFT_SCATTER_REDUCE_REDUCER_SUM);",
    .operands = kCombined,
    .attrs = kReduceAttrs,
    .infer = InferCombined,
    .expand = ExpandCombined,
    .indices = AlongInRange<1>,
    .samples = kCombinations,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_index_add = Formula({
    .name = "weft.index_add",
    .c_name = "index_add",
    .doc = "Adds alpha times each slice of the source to the slice of x at its place along one axis. What lies "
           "outside is left out.",
    .example = "y = wf_index_add(s, x, index, source);",
    .operands = kInto,
    .attrs = kAddAttrs,
    .infer = InferIndexAdd,
    .expand = ExpandInto<kSumOf>,
    .indices = AlongInRange<0>,
    .samples = kIntos,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_index_copy = Formula({
    .name = "weft.index_copy",
    .c_name = "index_copy",
    .doc = "Puts each slice of the source in the place of the slice of x at its index along one axis. What lies "
           "outside is left out.",
    .example = "y = wf_index_copy(s, x, index, source);",
    .operands = kInto,
    .attrs = kAxisAttrs,
    .infer = InferInto<0>,
    .expand = ExpandInto<kSetOf>,
    .indices = AlongInRange<0>,
    .samples = kIntos,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_index_fill = Formula({
    .name = "weft.index_fill",
    .c_name = "index_fill",
    .doc = "Fills the slices of x at the indices along one axis with a value. What lies outside is left out.",
    .example = "y = wf_index_fill(s, x, index, value);",
    .operands = kFills,
    .attrs = kAxisAttrs,
    .infer = InferInto<0>,
    .expand = ExpandInto<kSetOf>,
    .indices = AlongInRange<0>,
    .samples = kFilled,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_index = Formula({
    .name = "weft.index",
    .c_name = "index",
    .doc = "The elements or slices of x at integer tensors along some axes, as NumPy's x[..., i, j]: the indices' "
           "dimensions stand in the place of axes side by side, else in front. Negative indices count from the end; "
           "those outside are held to the ends.",
    .example = "y = wf_index(s, x, &rows, 1, WF_INTS(0));",
    .operands = kIndexed,
    .attrs = kIndexAttrs,
    .infer = InferIndex,
    .expand = ExpandIndex,
    .indices = PlacesInRange<1>,
    .samples = kIndices,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_index_put = Formula({
    .name = "weft.index_put",
    .c_name = "index_put",
    .doc = "Puts values in the places of x that index would give, or adds them. Negative indices count from the end; "
           "what lies outside is left out.",
    .example = "y = wf_index_put(s, x, values, &rows, 1, WF_INTS(0));",
    .operands = kPut,
    .attrs = kPutAttrs,
    .infer = InferPut,
    .expand = ExpandPut,
    .indices = PlacesInRange<2>,
    .samples = kPuts,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_index_reduce = Formula({
    .name = "weft.index_reduce",
    .c_name = "index_reduce",
    .doc = "Combines each slice of the source into the slice of x at its place along one axis. What lies outside is "
           "left out.",
    .example = "y = wf_index_reduce(s, x, index, source, WEFT_INDEX_REDUCE_REDUCER_MEAN);",
    .operands = kInto,
    .attrs = kReduceAttrs,
    .infer = InferIndexReduce,
    .expand = ExpandIndexReduce,
    .indices = AlongInRange<1>,
    .samples = kReductions,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_put = Formula({
    .name = "weft.put",
    .c_name = "put",
    .doc = "Puts elements in places of x as one row, or adds them. Negative places count from the end; what lies "
           "outside is left out.",
    .example = "y = wf_put(s, x, index, source);",
    .operands = kPlaced,
    .attrs = kPlaceAttrs,
    .infer = InferPlaced,
    .expand = ExpandPlaced,
    .indices = PlacedInRange,
    .samples = kPlacings,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_masked_scatter = Formula({
    .name = "weft.masked_scatter",
    .c_name = "masked_scatter",
    .doc = "x with the elements of the source, one after the other, where the mask is true. Where the source has too "
           "few, its last one is repeated.",
    .example = "y = wf_masked_scatter(s, x, mask, source);",
    .operands = kMasked,
    .infer = InferMasked,
    .expand = ExpandMasked,
    .samples = kMaskings,
    .tolerance = kExact,
    .rounds_once = true,
});

}  // namespace weft::ops
