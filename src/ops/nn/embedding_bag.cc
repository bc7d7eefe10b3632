// embedding_bag: sums, means or maxima of rows of a table, bag by bag.
#include <cmath>

#include "src/ops/elementwise/special.h"
#include "src/ops/nn/embedding.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"table", kF, "[entries, width]"},
    {"ids", kI, "which rows: [bags, n], or [n] with offsets", false, false, 'I'},
    {"offsets", kI, "[bags]: where in ids each bag begins, in ascending order from 0", true, false, 'O'},
    {"weights", kF, "of each row that is taken, of ids' shape, for sums; absent: 1", true}};
constexpr std::string_view kModes[] = {"sum", "mean", "max"};
enum : int64_t { kSum = 0, kMean = 1, kMax = 2 };
constexpr AttrDef kAttrs[] = {
    {"mode", AttrType::kEnum, "sum, mean or max; of an empty bag each is 0", false, "mean", kModes},
    {"padding", AttrType::kInt,
     "row that bags pass over and that has no gradient; negative counts from the end; absent: none"},
    {"include_last_offset", AttrType::kBool, "the last offset is where the last bag ends", false, "false"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type &table = *call.operands[0], &ids = *call.operands[1];
  const Type *const offsets = call.operands[2], *const weights = call.operands[3];
  if (table.rank() != 2) return UserError("table must have shape [entries, width], not ", DimsToString(table.dims));
  if (table.dims[0] == 0 && ids.count() != 0) return UserError("table has no entries");
  const bool last = Attr<kAttrs, "include_last_offset">(call.attrs);
  if (offsets != nullptr ? ids.rank() != 1 || offsets->rank() != 1 : ids.rank() != 2) {
    return UserError("ids have shape ", DimsToString(ids.dims),
                     "; [bags, n] is needed without offsets, and [n] with offsets [bags]");
  }
  if (last && (offsets == nullptr || offsets->dims[0] == 0)) {
    return UserError("include_last_offset is true; offsets with at least one entry are needed");
  }
  if (ids.count() > INT32_MAX) return UserError("ids has too many elements; their positions must fit i32");
  if (weights != nullptr && weights->dims != ids.dims) {
    return UserError("weights must have ids' shape ", DimsToString(ids.dims), ", not ", DimsToString(weights->dims));
  }
  if (weights != nullptr && Attr<kAttrs, "mode">(call.attrs) != kSum)
    return UserError("weights are for mode sum alone");
  if (HasAttr<kAttrs, "padding">(call.attrs)) {
    WEFT_RETURN_IF_ERROR(NormalizeEntry(Attr<kAttrs, "padding">(call.attrs), table.dims[0]).status());
  }
  const int64_t bags = offsets == nullptr ? ids.dims[0] : offsets->dims[0] - (last ? 1 : 0);
  results->push_back(Type::Tensor(table.dtype, {bags, table.dims[1]}));
  return absl::OkStatus();
}

// Rows [bags, n, width] and which of them count, combined along n.
Value Combined(Builder& b, int64_t mode, const Value& rows, const Value& counts) {
  const Dims dims = rows.dims();
  const Value all = BroadcastInDim(b, counts, dims, {0, 1}), nothing = FullLike(b, rows, 0);
  if (dims[1] == 0) return Full(b, rows.dtype(), {dims[0], dims[2]}, 0);
  if (mode == kMax) {
    const Value any = BroadcastInDim(b, Reduce(b, counts, Reducer::kOr, {1}), {dims[0], dims[2]}, {0});
    const Value top = Reduce(b, Select(b, all, rows, FullLike(b, rows, -HUGE_VAL)), Reducer::kMax, {1});
    return Select(b, any, top, FullLike(b, top, 0));
  }
  const Value sum = Reduce(b, Select(b, all, rows, nothing), Reducer::kSum, {1});
  if (mode == kSum) return sum;
  const Value number = Reduce(b, Convert(b, counts, rows.dtype()), Reducer::kSum, {1});
  const Value least = Maximum(b, number, FullLike(b, number, 1));
  return Div(b, sum, BroadcastInDim(b, least, {dims[0], dims[2]}, {0}));
}

// Rows [n, width] into the bag of each, one behind the last where it counts nothing.
Value Scattered(Builder& b, int64_t mode, const Value& rows, const Value& bag, int64_t bags) {
  const int64_t width = rows.dims()[1];
  const auto into = [&](const Value& updates, Reducer reducer, double first) {
    const Dims dims = updates.dims().size() == 1 ? Dims{bags} : Dims{bags, width};
    return Call(
        b, kOp_scatter, {Full(b, updates.dtype(), dims, first), bag, updates},
        {updates.dims().size() == 1 ? Ints{} : Ints{1}, Ints{0}, Ints{0}, int64_t{1}, static_cast<int64_t>(reducer)});
  };
  const Value ones = Full(b, rows.dtype(), {rows.dims()[0]}, 1);
  if (mode == kSum) return into(rows, Reducer::kSum, 0);
  const Value number = BroadcastInDim(b, into(ones, Reducer::kSum, 0), {bags, width}, {0});
  if (mode == kMean) return Div(b, into(rows, Reducer::kSum, 0), Maximum(b, number, FullLike(b, number, 1)));
  const Value top = into(rows, Reducer::kMax, -HUGE_VAL);
  return Select(b, Compare(b, Direction::kGt, number, 0), top, FullLike(b, top, 0));
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &table = call.operands[0], &ids = call.operands[1], &offsets = call.operands[2],
              &weights = call.operands[3];
  const int64_t mode = Attr<kAttrs, "mode">(call.attrs);
  Value rows = Call(b, kOp_take, {table, ids}, {int64_t{0}});
  if (!rows) return b.status();
  const auto last = static_cast<int64_t>(rows.dims().size()) - 1;
  if (weights) rows = Mul(b, rows, BroadcastInDim(b, weights, rows.dims(), Axes(static_cast<size_t>(last))));
  Value counts = Full(b, DType::kBool, ids.dims(), 1);
  if (HasAttr<kAttrs, "padding">(call.attrs)) {
    WEFT_ASSIGN_OR_RETURN(const int64_t row, NormalizeEntry(Attr<kAttrs, "padding">(call.attrs), table.dims()[0]));
    counts = Compare(b, Direction::kNe, Convert(b, ids, DType::kI64), static_cast<double>(row));
  }
  if (!offsets) {
    results[0] = Combined(b, mode, rows, counts);
    return b.status();
  }
  const int64_t bags = offsets.dims()[0] - (Attr<kAttrs, "include_last_offset">(call.attrs) ? 1 : 0);
  const int64_t n = ids.dims()[0];
  if (bags == 0) {
    results[0] = Full(b, rows.dtype(), {0, rows.dims()[1]}, 0);
    return b.status();
  }
  // The last bag that begins at or before a place; with include_last_offset those behind the end are in none.
  const Value place = Iota(b, DType::kI32, {n}, 0);
  Value bag = Add(b, Call(b, kOp_searchsorted, {Convert(b, offsets, DType::kI32), place}, {int64_t{1}}), -1);
  bag = Select(b, counts, bag, FullLike(b, bag, static_cast<double>(bags)));
  results[0] = Scattered(b, mode, rows, bag, bags);
  return b.status();
}

absl::Status InRange(const IndexCall& call) {
  return CheckIndices("ids", *call.values[1], call.operands[0]->dims[0] - 1);
}

constexpr Sample kSamples[] = {{"T[5,3] i32[2,4]<0:5>"},
                               {"T[5,3] i64[2,4]<0:5> none T[2,4] mode=sum padding=1"},
                               {"T[5,3] i32[2,3]<0:5> mode=max padding=-1"},
                               {"T[5,3] i32[6]<0:5> i32[1]<0:1> T[6] mode=sum"},
                               {"T[5,3] i32[6]<0:5> i32[1]<0:1> mode=max"},
                               {"T[5,3] i32[0]<0:5> i32[2]<0:1> padding=2"}};

}  // namespace

constinit const OpDef kOp_embedding_bag = Formula({
    .name = "weft.embedding_bag",
    .c_name = "embedding_bag",
    .doc =
        "For each bag of ids the sum, mean or maximum of the rows of a table [entries, width]. The gradient adds up in the rows "
        "that were taken; of a maximum equal rows share it. Ids outside are held to the first or last row. PyTorch's "
        "embedding_bag.",
    .example = "y = wf_embedding_bag(s, table, ids, offsets, NULL);",
    .operands = kOperands,
    .attrs = kAttrs,
    .infer = Infer,
    .expand = Expand,
    .indices = InRange,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 4e-6},
});

}  // namespace weft::ops
