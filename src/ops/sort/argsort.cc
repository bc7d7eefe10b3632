// argsort: where the elements along one axis stand that a sorted row would have.
#include "src/ops/axes.h"
#include "src/ops/sort/order.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status Infer(const InferCall& call, Types* results) {
  const Type x = Type::Tensor(call.operands[0]->dtype, RowDims(call.operands[0]->dims));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        AxisOfRow("axis", Attr<kSortAttrs, "axis">(call.attrs), call.operands[0]->rank()));
  if (x.dims[axis] > INT32_MAX) {
    return UserError("axis ", axis, " has ", x.dims[axis], " elements; their positions must fit i32");
  }
  results->push_back(Type::Tensor(DType::kI32, x.dims));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const Value x = AsRow(call.b, call.operands[0]);
  if (!x) return call.b.status();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("axis", Attr<kSortAttrs, "axis">(call.attrs), x.dims().size()));
  results[0] = SortByFirst(call.b, {x, Iota(call.b, DType::kI32, x.dims(), axis)}, axis,
                           Attr<kSortAttrs, "descending">(call.attrs))[1];
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[7]"},   {"T[3,5] axis=0"}, {"T[2,300] descending=true"},
                               {"T[0,3]"}, {"bool[9]"},       {"T[]"}};

}  // namespace

constinit const OpDef kOp_argsort = {
    .name = "weft.argsort",
    .c_name = "argsort",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "The positions in x, as i32, of what stands along one axis of sort of x. "
        "Equal elements keep their order; NaN counts as larger than everything.",
    .example = "order = wf_argsort(s, x);",
    .operands = kSortOperands,
    .attrs = kSortAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
