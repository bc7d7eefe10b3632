// Diagonals, windows and strided elements of a tensor, and a tensor with these replaced.
#include <algorithm>

#include "src/ops/axes.h"
#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kDiagonalAttrs[] = {
    {"offset", AttrType::kInt, "diagonal; those above the main one count up", false, "0"},
    {"axis1", AttrType::kInt, "axis of the rows; negative counts from the end", false, "-2"},
    {"axis2", AttrType::kInt, "axis of the columns; negative counts from the end", false, "-1"}};
constexpr AttrDef kDiagAttrs[] = {kDiagonalAttrs[0]};
constexpr AttrDef kAxis = {"axis", AttrType::kInt, "axis; negative counts from the end", false, "0"};
constexpr AttrDef kSelectAttrs[] = {{"index", AttrType::kInt, "which slice; negative counts from the end", true},
                                    kAxis};
constexpr AttrDef kSliceAttrs[] = {
    kAxis,
    {"start", AttrType::kInt, "first slice; negative counts from the end", false, "0"},
    {"limit", AttrType::kInt, "behind the last slice; negative counts from the end; absent: the size of the axis"},
    {"step", AttrType::kInt, "from one slice to the next, at least 1", false, "1"}};
constexpr AttrDef kUnfoldAttrs[] = {{"size", AttrType::kInt, "elements of a window, at least 0", true},
                                    {"step", AttrType::kInt, "from one window to the next, at least 1", false, "1"},
                                    kAxis};
constexpr AttrDef kStridedAttrs[] = {
    {"shape", AttrType::kInts, "of the result", true},
    {"strides", AttrType::kInts, "step in x as one row along each dimension, at least 0", true},
    {"offset", AttrType::kInt, "place of the first element, at least 0", false, "0"}};
constexpr AttrDef kRotAttrs[] = {
    {"k", AttrType::kInt, "quarters of a turn", false, "1"},
    {"dims", AttrType::kInts, "the plane, from its first axis to its second; absent: 0 and 1"}};
constexpr AttrDef kMoveAttrs[] = {{"source", AttrType::kInts, "axes that move; negative ones count from the end", true},
                                  {"destination", AttrType::kInts, "where each of them goes", true}};
constexpr AttrDef kTotalAttrs[] = {
    {"total", AttrType::kInt, "sum of the repetitions, the size of the result's axis", true}, kAxis};

constexpr OperandDef kOne[] = {{"x", kEveryType, "operand"}};
constexpr OperandDef kInto[] = {{"x", kEveryType, "operand"}, {"source", kEveryType, "what takes the place"}};
constexpr OperandDef kBlocks[] = {
    {"inputs", kEveryType, "matrices; rows and scalars are matrices of one row", false, true}};
constexpr OperandDef kRepeated[] = {{"x", kEveryType, "operand"},
                                    {"repeats", kI, "how often each slice comes, a row", false, false, 'I'}};
constexpr int64_t kMost = int64_t{1} << 40;

absl::Status CheckWithin(std::string_view name, int64_t value, int64_t low) {
  if (value < low) return UserError(name, " is ", value, "; it must be at least ", low);
  return value > kMost ? UserError(name, " is ", value, "; it must be at most 2^40") : absl::OkStatus();
}

// --- Diagonals

// The axes of rows and columns, of `rank` dimensions.
absl::StatusOr<std::pair<int64_t, int64_t>> Matrix(const Attrs& attrs, size_t rank) {
  WEFT_ASSIGN_OR_RETURN(const int64_t rows, NormalizeAxis("axis1", Attr<kDiagonalAttrs, "axis1">(attrs), rank));
  WEFT_ASSIGN_OR_RETURN(const int64_t columns, NormalizeAxis("axis2", Attr<kDiagonalAttrs, "axis2">(attrs), rank));
  if (rows == columns) return UserError("axis1 and axis2 are both ", rows, "; they must differ");
  const int64_t offset = Attr<kDiagonalAttrs, "offset">(attrs);
  if (offset < -kMost || offset > kMost) return UserError("offset is ", offset, "; it must be within 2^40");
  return std::pair(rows, columns);
}
int64_t LengthOf(int64_t rows, int64_t columns, int64_t offset) {
  return std::max<int64_t>(0, offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns));
}
Ints Behind(size_t rank, std::pair<int64_t, int64_t> axes) {
  Ints order;
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d) {
    if (d != axes.first && d != axes.second) order.push_back(d);
  }
  order.push_back(axes.first);
  order.push_back(axes.second);
  return order;
}
absl::StatusOr<Dims> DiagonalDims(const Attrs& attrs, const Dims& x) {
  if (x.size() < 2) return UserError("x must have at least 2 dimensions, not ", DimsToString(x));
  WEFT_ASSIGN_OR_RETURN(const auto axes, Matrix(attrs, x.size()));
  if (x[axes.second] >= kMost / std::max<int64_t>(x[axes.first], 1)) {
    return UserError("x has shape ", DimsToString(x), "; its matrices must have fewer than 2^40 elements");
  }
  Dims dims;
  for (const int64_t d : Behind(x.size(), axes)) dims.push_back(x[d]);
  dims.pop_back();
  dims.back() = LengthOf(x[axes.first], x[axes.second], Attr<kDiagonalAttrs, "offset">(attrs));
  return dims;
}
absl::Status InferDiagonal(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(Dims dims, DiagonalDims(call.attrs, call.operands[0]->dims));
  results->push_back(Type::Tensor(call.operands[0]->dtype, std::move(dims)));
  return absl::OkStatus();
}
// The diagonal is every (columns + 1)-th element of the matrix written as a row.
absl::Status ExpandDiagonal(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const size_t rank = call.operands[0].dims().size();
  WEFT_ASSIGN_OR_RETURN(const auto axes, Matrix(call.attrs, rank));
  const Value x = Transpose(b, call.operands[0], Behind(rank, axes));
  if (!x) return b.status();
  const int64_t rows = x.dims()[rank - 2], columns = x.dims()[rank - 1];
  const int64_t offset = Attr<kDiagonalAttrs, "offset">(call.attrs), length = LengthOf(rows, columns, offset);
  Dims flat(x.dims().begin(), x.dims().end() - 2);
  flat.push_back(rows * columns);
  Ints start(flat.size(), 0), limit = ToInts(flat), strides(flat.size(), 1);
  start.back() = length == 0 ? 0 : offset >= 0 ? offset : -offset * columns;
  limit.back() = length == 0 ? 0 : start.back() + (length - 1) * (columns + 1) + 1;
  strides.back() = columns + 1;
  results[0] = Slice(b, Reshape(b, x, flat), start, limit, strides);
  return absl::OkStatus();
}

// x with the diagonal's elements in their places: the source, moved to the rows they stand in, goes over all columns, and the
// diagonal alone takes it.
Value WithDiagonal(Builder& b, const Value& x, const Value& source, std::pair<int64_t, int64_t> axes, int64_t offset) {
  if (!x || !source) return {};
  const Dims& dims = x.dims();
  const int64_t rows = dims[axes.first], length = source.dims().back();
  if (length == 0) return x;
  Ints low(source.dims().size(), 0), high = low;
  low.back() = std::max<int64_t>(0, -offset);
  high.back() = rows - length - low.back();
  Ints positions = Behind(dims.size(), axes);
  positions.pop_back();
  const Value spread = BroadcastInAnyOrder(b, Pad(b, source, 0, low, high, Ints(low.size(), 0)), dims, positions);
  const Value row = Iota(b, DType::kI64, dims, axes.first), column = Iota(b, DType::kI64, dims, axes.second);
  return Select(b, Compare(b, Direction::kEq, Add(b, row, static_cast<double>(offset)), column), spread, x);
}
absl::Status InferDiagonalScatter(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const Dims dims, DiagonalDims(call.attrs, call.operands[0]->dims));
  if (call.operands[1]->dims != dims) {
    return UserError("source has shape ", DimsToString(call.operands[1]->dims), "; the diagonal has ",
                     DimsToString(dims));
  }
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}
absl::Status ExpandDiagonalScatter(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const auto axes, Matrix(call.attrs, call.operands[0].dims().size()));
  results[0] =
      WithDiagonal(call.b, call.operands[0], call.operands[1], axes, Attr<kDiagonalAttrs, "offset">(call.attrs));
  return absl::OkStatus();
}

absl::StatusOr<Dims> EmbeddedDims(const Attrs& attrs, const Dims& x) {
  if (x.empty()) return UserError("x must have at least 1 dimension, not []");
  WEFT_ASSIGN_OR_RETURN(const auto axes, Matrix(attrs, x.size() + 1));
  const int64_t size = x.back() + std::abs(Attr<kDiagonalAttrs, "offset">(attrs));
  Dims dims(x.size() + 1, size);
  const Ints order = Behind(x.size() + 1, axes);
  for (size_t d = 0; d + 2 < order.size(); ++d) dims[order[d]] = x[d];
  if (!CheckedCount(dims)) return UserError("a matrix of ", size, " rows has too many elements");
  return dims;
}
absl::Status InferDiagEmbed(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(Dims dims, EmbeddedDims(call.attrs, call.operands[0]->dims));
  results->push_back(Type::Tensor(call.operands[0]->dtype, std::move(dims)));
  return absl::OkStatus();
}
absl::Status ExpandDiagEmbed(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Dims dims, EmbeddedDims(call.attrs, x.dims()));
  WEFT_ASSIGN_OR_RETURN(const auto axes, Matrix(call.attrs, dims.size()));
  const Value zeros = Full(call.b, x.dtype(), dims, 0);
  results[0] = WithDiagonal(call.b, zeros, x, axes, Attr<kDiagonalAttrs, "offset">(call.attrs));
  return absl::OkStatus();
}

Attrs DiagonalOf(const Attrs& attrs) { return {attrs.Int(0), int64_t{-2}, int64_t{-1}}; }
absl::Status InferDiag(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() != 1 && x.rank() != 2) return UserError("x must have 1 or 2 dimensions, not ", DimsToString(x.dims));
  const Attrs attrs = DiagonalOf(call.attrs);
  WEFT_ASSIGN_OR_RETURN(Dims dims, x.rank() == 1 ? EmbeddedDims(attrs, x.dims) : DiagonalDims(attrs, x.dims));
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}
absl::Status ExpandDiag(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  results[0] = Call(call.b, x.dims().size() == 1 ? kOp_diag_embed : kOp_diagonal, {x}, DiagonalOf(call.attrs));
  return absl::OkStatus();
}

// --- Slices

// x with the slices of `source` written along an axis, from `start` on, each `step` behind the one before.
Value WithSlices(Builder& b, const Value& x, const Value& source, int64_t axis, int64_t start, int64_t step) {
  if (!x || !source || source.type().count() == 0) return x;
  const Dims& dims = x.dims();
  Ints low(dims.size(), 0), high = low, interior = low;
  const int64_t last = start + (source.dims()[axis] - 1) * step;
  low[axis] = start;
  high[axis] = dims[axis] - last - 1;
  interior[axis] = step - 1;
  const Value spread = Pad(b, source, 0, low, high, interior);
  const Value at = Iota(b, DType::kI64, dims, axis), first = FullLike(b, at, static_cast<double>(start));
  Value there =
      And(b, Compare(b, Direction::kGe, at, first), Compare(b, Direction::kLe, at, static_cast<double>(last)));
  if (step != 1) {
    const Value rest = Call(b, kOp_rem, {Sub(b, at, first), FullLike(b, at, static_cast<double>(step))});
    there = And(b, there, Compare(b, Direction::kEq, rest, 0));
  }
  return Select(b, there, spread, x);
}
struct Slices {
  int64_t axis, start, step, count;
};
absl::StatusOr<Slices> SlicesOf(const Attrs& attrs, const Dims& x) {
  if (x.empty()) return UserError("x must have at least 1 dimension, not []");
  Slices found;
  WEFT_ASSIGN_OR_RETURN(found.axis, NormalizeAxis("axis", Attr<kSliceAttrs, "axis">(attrs), x.size()));
  found.step = Attr<kSliceAttrs, "step">(attrs);
  WEFT_RETURN_IF_ERROR(CheckWithin("step", found.step, 1));
  const int64_t size = x[found.axis];
  const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  found.start = place(Attr<kSliceAttrs, "start">(attrs));
  const int64_t limit = HasAttr<kSliceAttrs, "limit">(attrs) ? place(Attr<kSliceAttrs, "limit">(attrs)) : size;
  found.count = limit <= found.start ? 0 : (limit - found.start - 1) / found.step + 1;
  return found;
}
absl::Status InferSliceScatter(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &source = *call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const Slices slices, SlicesOf(call.attrs, x.dims));
  Dims dims = x.dims;
  dims[slices.axis] = slices.count;
  if (source.dims != dims) {
    return UserError("source has shape ", DimsToString(source.dims), "; the slices have ", DimsToString(dims));
  }
  results->push_back(x);
  return absl::OkStatus();
}
absl::Status ExpandSliceScatter(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Slices slices, SlicesOf(call.attrs, x.dims()));
  results[0] = WithSlices(call.b, x, call.operands[1], slices.axis, slices.start, slices.step);
  return absl::OkStatus();
}

absl::StatusOr<std::pair<int64_t, int64_t>> SliceOf(const Attrs& attrs, const Dims& x) {
  if (x.empty()) return UserError("x must have at least 1 dimension, not []");
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kSelectAttrs, "axis">(attrs), x.size()));
  const int64_t index = Attr<kSelectAttrs, "index">(attrs), size = x[axis];
  if (index < -size || index >= size) {
    return UserError("index is ", index, "; axis ", axis, " has ", size, " slices");
  }
  return std::pair(axis, index < 0 ? index + size : index);
}
absl::Status InferSelectScatter(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &source = *call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const auto slice, SliceOf(call.attrs, x.dims));
  Dims dims = x.dims;
  dims.erase(dims.begin() + slice.first);
  if (source.dims != dims) {
    return UserError("source has shape ", DimsToString(source.dims), "; the slice has ", DimsToString(dims));
  }
  results->push_back(x);
  return absl::OkStatus();
}
absl::Status ExpandSelectScatter(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const auto slice, SliceOf(call.attrs, x.dims()));
  Dims dims = x.dims();
  dims[slice.first] = 1;
  results[0] = WithSlices(call.b, x, Reshape(call.b, call.operands[1], dims), slice.first, slice.second, 1);
  return absl::OkStatus();
}

// --- Windows and strides

absl::StatusOr<std::pair<int64_t, int64_t>> WindowsAlong(const Attrs& attrs, const Dims& x) {  // the axis, how many
  const int64_t size = Attr<kUnfoldAttrs, "size">(attrs), step = Attr<kUnfoldAttrs, "step">(attrs);
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOfRow("axis", Attr<kUnfoldAttrs, "axis">(attrs), x.size()));
  WEFT_RETURN_IF_ERROR(CheckWithin("size", size, 0));
  WEFT_RETURN_IF_ERROR(CheckWithin("step", step, 1));
  const int64_t room = RowDims(x)[axis] - size;
  if (room < 0) return UserError("size is ", size, "; axis ", axis, " has ", RowDims(x)[axis], " elements");
  return std::pair(axis, room / step + 1);
}
absl::Status InferUnfold(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const auto windows, WindowsAlong(call.attrs, x.dims));
  Dims dims = x.dims;
  if (!dims.empty()) dims[windows.first] = windows.second;
  dims.push_back(Attr<kUnfoldAttrs, "size">(call.attrs));
  if (!CheckedCount(dims)) return UserError("the windows have too many elements");
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}
absl::Status ExpandUnfold(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = AsRow(b, call.operands[0]);
  if (!x) return b.status();
  WEFT_ASSIGN_OR_RETURN(const auto windows, WindowsAlong(call.attrs, call.operands[0].dims()));
  const int64_t size = Attr<kUnfoldAttrs, "size">(call.attrs), step = Attr<kUnfoldAttrs, "step">(call.attrs);
  const int64_t axis = windows.first, rank = x.dims().size();
  const Dims box = {windows.second, size};
  const Value from = Mul(b, Iota(b, DType::kI64, box, 0), static_cast<double>(step));
  const Value taken = Call(b, kOp_take, {x, Add(b, from, Iota(b, DType::kI64, box, 1))}, {axis});
  Ints order;
  for (int64_t d = 0; d <= rank; ++d) {
    if (d != axis + 1) order.push_back(d);
  }
  order.push_back(axis + 1);
  const Value last = Transpose(b, taken, order);
  results[0] = last && call.operands[0].dims().empty() ? Reshape(b, last, {size}) : last;
  return absl::OkStatus();
}

absl::Status CheckStrided(const Attrs& attrs, const Dims& x) {
  const Ints &shape = Attr<kStridedAttrs, "shape">(attrs), &strides = Attr<kStridedAttrs, "strides">(attrs);
  if (shape.size() != strides.size()) {
    return UserError("shape has ", shape.size(), " dimensions and strides ", strides.size());
  }
  int64_t last = Attr<kStridedAttrs, "offset">(attrs);
  WEFT_RETURN_IF_ERROR(CheckWithin("offset", last, 0));
  for (size_t d = 0; d < shape.size(); ++d) {
    WEFT_RETURN_IF_ERROR(CheckWithin("shape", shape[d], 0));
    WEFT_RETURN_IF_ERROR(CheckWithin("strides", strides[d], 0));
  }
  const auto count = CheckedCount(ToDims(shape));
  if (!count) return UserError("shape ", DimsToString(ToDims(shape)), " has too many elements");
  if (*count == 0) return absl::OkStatus();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1 && strides[d] > kMost / (shape[d] - 1)) return UserError("strides are too large");
    last += (shape[d] - 1) * strides[d];
  }
  if (last >= CountOf(x)) {
    return UserError("the last element is ", last, " of x as one row, which has ", CountOf(x), " elements");
  }
  return absl::OkStatus();
}
Value PlacesOf(Builder& b, const Attrs& attrs) {
  const Dims dims = ToDims(Attr<kStridedAttrs, "shape">(attrs));
  Value at = Full(b, DType::kI64, dims, static_cast<double>(Attr<kStridedAttrs, "offset">(attrs)));
  for (size_t d = 0; d < dims.size(); ++d) {
    const double stride = static_cast<double>(Attr<kStridedAttrs, "strides">(attrs)[d]);
    if (dims[d] > 1) at = Add(b, at, Mul(b, Iota(b, DType::kI64, dims, static_cast<int64_t>(d)), stride));
  }
  return at;
}
absl::Status InferStrided(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckStrided(call.attrs, call.operands[0]->dims));
  results->push_back(Type::Tensor(call.operands[0]->dtype, ToDims(Attr<kStridedAttrs, "shape">(call.attrs))));
  return absl::OkStatus();
}
absl::Status ExpandStrided(const ExpandCall& call, std::span<Value> results) {
  const Value row = Reshape(call.b, call.operands[0], {call.operands[0].type().count()});
  results[0] = Call(call.b, kOp_take, {row, PlacesOf(call.b, call.attrs)}, {int64_t{0}});
  return absl::OkStatus();
}
absl::Status InferStridedScatter(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckStrided(call.attrs, call.operands[0]->dims));
  const Dims dims = ToDims(Attr<kStridedAttrs, "shape">(call.attrs));
  if (call.operands[1]->dims != dims) {
    return UserError("source has shape ", DimsToString(call.operands[1]->dims), "; shape says ", DimsToString(dims));
  }
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}
absl::Status ExpandStridedScatter(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  if (call.operands[1].type().count() == 0) {
    results[0] = x;
    return absl::OkStatus();
  }
  results[0] = Call(call.b, kOp_put, {x, PlacesOf(call.b, call.attrs), call.operands[1]}, {int64_t{0}});
  return absl::OkStatus();
}

// --- Turned, moved, repeated, joined

absl::StatusOr<Ints> PlaneOf(const Attrs& attrs, size_t rank) {
  const Ints dims = HasAttr<kRotAttrs, "dims">(attrs) ? Attr<kRotAttrs, "dims">(attrs) : Ints{0, 1};
  if (dims.size() != 2) return UserError("dims has ", dims.size(), " entries; a plane has 2 axes");
  Ints plane;
  for (const int64_t given : dims) {
    WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("dims", given, rank));
    plane.push_back(axis);
  }
  if (plane[0] == plane[1]) return UserError("dims are both ", plane[0], "; they must differ");
  return plane;
}
absl::Status InferRot(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints plane, PlaneOf(call.attrs, x.rank()));
  Dims dims = x.dims;
  if (Attr<kRotAttrs, "k">(call.attrs) % 2 != 0) std::swap(dims[plane[0]], dims[plane[1]]);
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}
absl::Status ExpandRot(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints plane, PlaneOf(call.attrs, x.dims().size()));
  const int64_t k = (Attr<kRotAttrs, "k">(call.attrs) % 4 + 4) % 4;
  Ints order = Axes(x.dims().size());
  std::swap(order[plane[0]], order[plane[1]]);
  results[0] = k == 0   ? x
               : k == 2 ? Reverse(b, x, {std::min(plane[0], plane[1]), std::max(plane[0], plane[1])})
               : k == 1 ? Reverse(b, Transpose(b, x, order), {plane[0]})
                        : Transpose(b, Reverse(b, x, {plane[0]}), order);
  return absl::OkStatus();
}

absl::StatusOr<Ints> OrderOf(const Attrs& attrs, size_t rank) {
  const Ints &source = Attr<kMoveAttrs, "source">(attrs), &destination = Attr<kMoveAttrs, "destination">(attrs);
  if (source.size() != destination.size()) {
    return UserError("source has ", source.size(), " axes and destination ", destination.size());
  }
  WEFT_ASSIGN_OR_RETURN(const Ints moving, NormalizeAxes("source", source, rank));
  WEFT_RETURN_IF_ERROR(NormalizeAxes("destination", destination, rank).status());
  Ints order(rank, -1);
  const int64_t ranks = static_cast<int64_t>(rank);
  for (size_t i = 0; i < source.size(); ++i) {
    order[(destination[i] + ranks) % ranks] = (source[i] + ranks) % ranks;
  }
  int64_t next = 0;
  for (int64_t& from : order) {
    if (from >= 0) continue;
    while (std::ranges::binary_search(moving, next)) ++next;
    from = next++;
  }
  return order;
}
absl::Status InferMove(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints order, OrderOf(call.attrs, x.rank()));
  Dims dims;
  for (const int64_t d : order) dims.push_back(x.dims[d]);
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}
absl::Status ExpandMove(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const Ints order, OrderOf(call.attrs, call.operands[0].dims().size()));
  results[0] = Transpose(call.b, call.operands[0], order);
  return absl::OkStatus();
}

absl::Status InferRepeats(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &repeats = *call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOfRow("axis", Attr<kTotalAttrs, "axis">(call.attrs), x.rank()));
  Dims dims = RowDims(x.dims);
  const int64_t total = Attr<kTotalAttrs, "total">(call.attrs);
  WEFT_RETURN_IF_ERROR(CheckWithin("total", total, 0));
  if (repeats.dims != Dims{dims[axis]}) {
    return UserError("repeats has shape ", DimsToString(repeats.dims), "; axis ", axis, " has ", dims[axis], " slices");
  }
  if (dims[axis] == 0 && total > 0) return UserError("axis ", axis, " of x is empty: nothing can be repeated");
  dims[axis] = total;
  if (!CheckedCount(dims)) return UserError("total is ", total, ": the result has too many elements");
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}
absl::Status ExpandRepeats(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = AsRow(b, call.operands[0]);
  if (!x) return b.status();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        AxisOfRow("axis", Attr<kTotalAttrs, "axis">(call.attrs), call.operands[0].dims().size()));
  const int64_t total = Attr<kTotalAttrs, "total">(call.attrs);
  const Value ends = Call(b, kOp_cumsum, {Convert(b, call.operands[1], DType::kI64)}, {int64_t{0}, int64_t{0}});
  const Value at = Call(b, kOp_searchsorted, {ends, Iota(b, DType::kI64, {total}, 0)}, {int64_t{1}});
  results[0] = Call(b, kOp_take, {x, at}, {axis});
  return absl::OkStatus();
}

absl::Status InferBlocks(const InferCall& call, Types* results) {
  int64_t rows = 0, columns = 0;
  for (const Type* x : call.operands) {
    if (x->rank() > 2) return UserError("inputs must have at most 2 dimensions, not ", DimsToString(x->dims));
    rows += x->rank() == 2 ? x->dims[0] : 1;
    columns += x->rank() == 0 ? 1 : x->dims.back();
  }
  const Dims dims = {rows, columns};
  if (!CheckedCount(dims) || rows >= kMost || columns >= kMost)
    return UserError("the matrix of all has too many elements");
  results->push_back(Type::Tensor(call.operands[0]->dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandBlocks(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  int64_t columns = 0, before = 0;
  for (const Value& x : call.operands) columns += x.dims().empty() ? 1 : x.dims().back();
  Values rows;
  for (const Value& x : call.operands) {
    const int64_t width = x.dims().empty() ? 1 : x.dims().back();
    const Value matrix = Reshape(b, x, {x.dims().size() == 2 ? x.dims()[0] : 1, width});
    rows.push_back(Pad(b, matrix, 0, {0, before}, {0, columns - before - width}, {0, 0}));
    before += width;
  }
  results[0] = Call(b, kOp_concatenate, std::move(rows), {int64_t{0}});
  return absl::OkStatus();
}

constexpr Sample kDiagonals[] = {{"T[3,4]"}, {"T[2,3,4] offset=-1 axis1=2 axis2=0"}};
constexpr Sample kDiagonalPuts[] = {{"T[3,4] T[3]"}, {"T[2,3,4] T[3,2] offset=-1 axis1=2 axis2=0"}};
constexpr Sample kEmbeds[] = {{"T[2,3] offset=-1 axis1=0 axis2=2"}};
constexpr Sample kDiags[] = {{"T[3] offset=1"}, {"T[2,3]"}};
constexpr Sample kSelects[] = {{"T[3,4] T[3] index=-1 axis=1"}};
constexpr Sample kSlicePuts[] = {{"T[3,7] T[3,3] axis=1 start=1 step=2"}};
constexpr Sample kUnfolds[] = {{"T[7,2] size=3 step=2"}, {"T[] size=1"}};
constexpr Sample kStrideds[] = {{"T[3,4] shape=[2,3] strides=[1,4] offset=1"}};
constexpr Sample kStridedPuts[] = {{"T[3,4] T[2,3] shape=[2,3] strides=[1,4] offset=1"},
                                   {"T[6] T[2] shape=[2] strides=[3]"}};
constexpr Sample kRots[] = {{"T[2,3]"}, {"T[2,3,2] k=-1 dims=[2,1]"}};
constexpr Sample kMoves[] = {{"T[2,3,4] source=[0] destination=[-1]"}};
constexpr Sample kRepeats[] = {{"T[2,3] i32[2]<2:3> total=4"}};
constexpr Sample kBlockSamples[] = {{"T[2,3] T[2] T[]"}};

// Operations that move elements.
consteval OpDef Moves(OpDef named) {
  named.tolerance = kExact;
  named.rounds_once = true;
  if (named.operands.empty()) named.operands = kOne;
  return Formula(named);
}

}  // namespace

constinit const OpDef kOp_diagonal = Moves({
    .name = "weft.diagonal",
    .c_name = "diagonal",
    .doc = "A diagonal of the matrices that two axes make, behind the other axes.",
    .example = "d = wf_diagonal(s, x);",
    .attrs = kDiagonalAttrs,
    .infer = InferDiagonal,
    .expand = ExpandDiagonal,
    .samples = kDiagonals,
});
constinit const OpDef kOp_diagonal_scatter = Moves({
    .name = "weft.diagonal_scatter",
    .c_name = "diagonal_scatter",
    .doc = "x with the source in the place of what diagonal gives.",
    .example = "y = wf_diagonal_scatter(s, x, d);",
    .operands = kInto,
    .attrs = kDiagonalAttrs,
    .infer = InferDiagonalScatter,
    .expand = ExpandDiagonalScatter,
    .samples = kDiagonalPuts,
});
constinit const OpDef kOp_diag_embed = Moves({
    .name = "weft.diag_embed",
    .c_name = "diag_embed",
    .doc = "Square matrices along two axes of the result, whose diagonals are the rows of x and which are 0 elsewhere.",
    .example = "y = wf_diag_embed(s, x);",
    .attrs = kDiagonalAttrs,
    .infer = InferDiagEmbed,
    .expand = ExpandDiagEmbed,
    .samples = kEmbeds,
});
constinit const OpDef kOp_diag = Moves({
    .name = "weft.diag",
    .c_name = "diag",
    .doc = "The diagonal of a matrix, or the matrix of a row, which is 0 beside its diagonal.",
    .example = "d = wf_diag(s, x);",
    .attrs = kDiagAttrs,
    .infer = InferDiag,
    .expand = ExpandDiag,
    .samples = kDiags,
});
constinit const OpDef kOp_select_scatter = Moves({
    .name = "weft.select_scatter",
    .c_name = "select_scatter",
    .doc = "x with the source in the place of one slice along an axis.",
    .example = "y = wf_select_scatter(s, x, row, 2);",
    .operands = kInto,
    .attrs = kSelectAttrs,
    .infer = InferSelectScatter,
    .expand = ExpandSelectScatter,
    .samples = kSelects,
});
constinit const OpDef kOp_slice_scatter = Moves({
    .name = "weft.slice_scatter",
    .c_name = "slice_scatter",
    .doc = "x with the source in the place of the slices [start : limit : step] along an axis; start and limit are "
           "held to its ends, as Python's.",
    .example = "y = wf_slice_scatter(s, x, rows, .start = 1);",
    .operands = kInto,
    .attrs = kSliceAttrs,
    .infer = InferSliceScatter,
    .expand = ExpandSliceScatter,
    .samples = kSlicePuts,
});
constinit const OpDef kOp_unfold = Moves({
    .name = "weft.unfold",
    .c_name = "unfold",
    .doc = "The windows of a size that slide along an axis by a step, each one row of a new last dimension.",
    .example = "y = wf_unfold(s, x, 3);",
    .attrs = kUnfoldAttrs,
    .infer = InferUnfold,
    .expand = ExpandUnfold,
    .samples = kUnfolds,
});
constinit const OpDef kOp_as_strided = Moves({
    .name = "weft.as_strided",
    .c_name = "as_strided",
    .doc = "Elements of x as one row, a stride apart along each dimension of the result: a copy, whose gradient adds "
           "up what was read several times.",
    .example = "y = wf_as_strided(s, x, WF_INTS(2, 2), WF_INTS(1, 2));",
    .attrs = kStridedAttrs,
    .infer = InferStrided,
    .expand = ExpandStrided,
    .samples = kStrideds,
});
constinit const OpDef kOp_as_strided_scatter = Moves({
    .name = "weft.as_strided_scatter",
    .c_name = "as_strided_scatter",
    .doc = "x with the source in the place of what as_strided gives. Of several elements for one place the last "
           "stays on the CPU.",
    .example = "y = wf_as_strided_scatter(s, x, part, WF_INTS(2, 2), WF_INTS(1, 2));",
    .operands = kInto,
    .attrs = kStridedAttrs,
    .infer = InferStridedScatter,
    .expand = ExpandStridedScatter,
    .samples = kStridedPuts,
});
constinit const OpDef kOp_rot90 = Moves({
    .name = "weft.rot90",
    .c_name = "rot90",
    .doc = "x turned by quarters in the plane of two axes, from the first to the second.",
    .example = "y = wf_rot90(s, image);",
    .attrs = kRotAttrs,
    .infer = InferRot,
    .expand = ExpandRot,
    .samples = kRots,
});
constinit const OpDef kOp_movedim = Moves({
    .name = "weft.movedim",
    .c_name = "movedim",
    .doc = "x with some axes at other places; the rest keep their order.",
    .example = "y = wf_movedim(s, x, WF_INTS(0), WF_INTS(-1));",
    .attrs = kMoveAttrs,
    .infer = InferMove,
    .expand = ExpandMove,
    .samples = kMoves,
});
constinit const OpDef kOp_repeat_interleave_static = Moves({
    .name = "weft.repeat_interleave_static",
    .c_name = "repeat_interleave_static",
    .doc = "Each slice along an axis as often as its entry of repeats says, one after the other. What is missing to "
           "the total repeats the last slice.",
    .example = "y = wf_repeat_interleave_static(s, x, repeats, 5);",
    .operands = kRepeated,
    .attrs = kTotalAttrs,
    .infer = InferRepeats,
    .expand = ExpandRepeats,
    .samples = kRepeats,
});
constinit const OpDef kOp_block_diag = Moves({
    .name = "weft.block_diag",
    .c_name = "block_diag",
    .doc = "A matrix with the given ones along its diagonal, and 0 elsewhere.",
    .example = "y = wf_block_diag(s, WF_TENSORS(a, b));",
    .operands = kBlocks,
    .infer = InferBlocks,
    .expand = ExpandBlocks,
    .samples = kBlockSamples,
});

}  // namespace weft::ops
