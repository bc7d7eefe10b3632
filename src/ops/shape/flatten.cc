// flatten: joins neighbouring dimensions into one.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {
    {"start_axis", AttrType::kInt, "first joined axis; negative counts from the end", false, "0"},
    {"end_axis", AttrType::kInt, "last joined axis; negative counts from the end", false, "-1"}};

absl::Status Infer(const InferCall& call, Types* results) {
  Type x = *call.operands[0];
  if (x.rank() == 0) {
    x.dims.push_back(1);
  } else {
    WEFT_ASSIGN_OR_RETURN(const int64_t start,
                          NormalizeAxis("start_axis", Attr<kAttrs, "start_axis">(call.attrs), x.rank()));
    WEFT_ASSIGN_OR_RETURN(const int64_t end, NormalizeAxis("end_axis", Attr<kAttrs, "end_axis">(call.attrs), x.rank()));
    if (end < start) return UserError("start_axis ", start, " comes after end_axis ", end);
    const auto joined = CheckedCount(std::span(x.dims).subspan(start, end + 1 - start));
    if (!joined) return UserError("dimensions ", start, " to ", end, " have too many elements together");
    x.dims.erase(x.dims.begin() + start + 1, x.dims.begin() + end + 1);
    x.dims[start] = *joined;
  }
  results->push_back(std::move(x));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const Type* operand = &call.operands[0].type();
  Types types;
  WEFT_RETURN_IF_ERROR(Infer(InferCall{call.op, {&operand, 1}, call.attrs}, &types));
  results[0] = Reshape(call.b, call.operands[0], types[0].dims);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[2,3,4]"}, {"T[2,3,4] start_axis=1"}, {"T[2,3,4,5] start_axis=1 end_axis=-2"}, {"T[]"}, {"T[0,3] start_axis=1"}};

}  // namespace

constinit const OpDef kOp_flatten = {
    .name = "weft.flatten",
    .c_name = "flatten",
    .kind = Kind::kMacro,
    .doc = "Joins the axes from start_axis to end_axis into one; by default all. A scalar becomes one element.",
    .example = "h = wf_flatten(s, h, .start_axis = 1);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
