// take: the slices of x at given indices along one axis.
#include <algorithm>

#include "src/ops/axes.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}, {"indices", kI, "which slices", false, false, 'I'}};
constexpr AttrDef kAttrs[] = {{"axis", AttrType::kInt, "axis to take from; negative counts from the end", false, "0"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type x = Type::Tensor(call.operands[0]->dtype, RowDims(call.operands[0]->dims));
  const Type& indices = *call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        AxisOfRow("axis", Attr<kAttrs, "axis">(call.attrs), call.operands[0]->rank()));
  if (x.dims[axis] == 0 && indices.count() != 0)
    return UserError("axis ", axis, " of x is empty: nothing can be taken");
  Dims dims(x.dims.begin(), x.dims.begin() + axis);
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), x.dims.begin() + axis + 1, x.dims.end());
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const Value x = AsRow(call.b, call.operands[0]);
  if (!x) return call.b.status();
  const Value& indices = call.operands[1];
  const int64_t rank = x.dims().size(), index_rank = indices.dims().size();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), rank));
  Ints offset, sizes = ToInts(x.dims());
  for (int64_t d = 0; d < rank; ++d) {
    if (d != axis) offset.push_back(d < axis ? d : d - 1 + index_rank);
  }
  sizes[axis] = std::min<int64_t>(1, sizes[axis]);
  results[0] = Call(call.b, kOp_gather, {x, indices}, {offset, Ints{axis}, Ints{axis}, index_rank, sizes});
  return absl::OkStatus();
}

absl::Status InRange(const IndexCall& call) {
  const Dims& dims = call.operands[0]->dims;
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOfRow("axis", Attr<kAttrs, "axis">(call.attrs), dims.size()));
  return CheckIndices("indices", *call.values[1], RowDims(dims)[axis] - 1);
}

constexpr Sample kSamples[] = {{"T[5,3] i32[4]<0:5>"},
                               {"T[2,5,3] i64[2,2]<0:5> axis=1"},
                               {"T[7] u8[]<0:7>"},
                               {"T[3,4] i32[0]<0:3> axis=-1"},
                               {"T[] i32[2]<0:1> axis=-1"}};

}  // namespace

constinit const OpDef kOp_take = {
    .name = "weft.take",
    .c_name = "take",
    .kind = Kind::kMacro,
    .doc =
        "The slices of x at the given indices along one axis, whose place the indices' dimensions take. Indices "
        "outside are held to the first or last slice.",
    .example = "y = wf_take(s, x, indices);",
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
