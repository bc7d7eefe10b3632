// stack: tensors of one shape along a new dimension.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"inputs", kEveryType, "tensors of one shape", false, true}};
constexpr AttrDef kAttrs[] = {
    {"axis", AttrType::kInt, "the new dimension in the result; negative counts from its end", false, "0"}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferSame(call, results));
  Dims& dims = results->back().dims;
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), dims.size() + 1));
  dims.insert(dims.begin() + axis, static_cast<int64_t>(call.operands.size()));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Dims dims = call.operands[0].dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), dims.size() + 1));
  dims.insert(dims.begin() + axis, 1);
  Values parts;
  for (const Value& x : call.operands) parts.push_back(Reshape(call.b, x, dims));
  results[0] = Call(call.b, kOp_concatenate, std::move(parts), {axis});
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[2,3] T[2,3]"}, {"T[2,3] T[2,3] T[2,3] axis=-1"}, {"T[] T[]"}, {"T[0] T[0] axis=1"}, {"T[3] axis=1"}};

}  // namespace

constinit const OpDef kOp_stack = {
    .name = "weft.stack",
    .c_name = "stack",
    .kind = Kind::kMacro,
    .doc = "Joins tensors of one shape along a new dimension.",
    .example = "y = wf_stack(s, WF_TENSORS(a, b));",
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
