// embedding: rows of a table.
#include "src/ops/nn/embedding.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"table", kF, "[entries, width]"}, {"ids", kI, "which rows", false, false, 'I'}};
constexpr AttrDef kAttrs[] = {
    {"dtype", AttrType::kDType, "element type of the result; absent: the table's"},
    {"padding", AttrType::kInt, "row without a gradient; negative counts from the end; absent: none"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& table = *call.operands[0];
  if (table.rank() != 2) return UserError("table must have shape [entries, width], not ", DimsToString(table.dims));
  if (table.dims[0] == 0 && call.operands[1]->count() != 0) return UserError("table has no entries");
  if (HasAttr<kAttrs, "dtype">(call.attrs) && !Contains(kF, Attr<kAttrs, "dtype">(call.attrs))) {
    return UserError("dtype ", NameOf(Attr<kAttrs, "dtype">(call.attrs)),
                     " is not a float; f16, bf16, f32 and f64 are");
  }
  if (HasAttr<kAttrs, "padding">(call.attrs)) {
    WEFT_RETURN_IF_ERROR(NormalizeEntry(Attr<kAttrs, "padding">(call.attrs), table.dims[0]).status());
  }
  Dims dims = call.operands[1]->dims;
  dims.push_back(table.dims[1]);
  results->push_back(Type::Tensor(
      HasAttr<kAttrs, "dtype">(call.attrs) ? Attr<kAttrs, "dtype">(call.attrs) : table.dtype, std::move(dims)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &table = call.operands[0], &ids = call.operands[1];
  Value rows = Call(b, kOp_take, {table, ids});
  if (rows && HasAttr<kAttrs, "padding">(call.attrs)) {
    WEFT_ASSIGN_OR_RETURN(const int64_t row, NormalizeEntry(Attr<kAttrs, "padding">(call.attrs), table.dims()[0]));
    const Value padding = Compare(b, Direction::kEq, Convert(b, ids, DType::kI64), static_cast<double>(row));
    const Value all = BroadcastInDim(b, padding, rows.dims(), Axes(ids.dims().size()));
    rows = Select(b, all, Unary(b, kOp_stop_gradient, rows), rows);
  }
  results[0] = HasAttr<kAttrs, "dtype">(call.attrs) ? Convert(b, rows, Attr<kAttrs, "dtype">(call.attrs)) : rows;
  return b.status();
}

absl::Status InRange(const IndexCall& call) {
  return CheckIndices("ids", *call.values[1], call.operands[0]->dims[0] - 1);
}

constexpr Sample kSamples[] = {{"T[5,3] i32[4]<0:5>"},
                               {"T[9,2] i64[2,3]<0:9>"},
                               {"T[4,1] i32[]<0:4>"},
                               {"T[4,3] i32[0]<0:4>"},
                               {.call = "T[5,3] i32[4]<0:5> padding=-2", .gradient = false}};

}  // namespace

absl::StatusOr<int64_t> NormalizeEntry(int64_t row, int64_t entries) {
  if (row >= -entries && row < entries) return row < 0 ? row + entries : row;
  return UserError("padding is ", row, "; a table of ", entries, " entries allows ", -entries, " to ", entries - 1);
}

constinit const OpDef kOp_embedding = {
    .name = "weft.embedding",
    .c_name = "embedding",
    .kind = Kind::kMacro,
    .doc =
        "The rows of a table [entries, width] at the given ids. The gradient adds up in the rows that were taken, but for "
        "padding. Ids outside are held to the first or last row.",
    .example = "h = wf_embedding(s, table, ids);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .indices = InRange,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
