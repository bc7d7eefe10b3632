// expand_dims: inserts dimensions of size 1.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {
    {"dims", AttrType::kInts, "axes of the result that are new, negative ones count from its end", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Ints& given = Attr<kAttrs, "dims">(call.attrs);
  WEFT_ASSIGN_OR_RETURN(const Ints axes, NormalizeAxes("dims", given, x.rank() + given.size()));
  Dims dims = x.dims;
  for (int64_t axis : axes) dims.insert(dims.begin() + axis, 1);  // ascending, so each lands where it belongs
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const Type* operand = &call.operands[0].type();
  Types types;
  WEFT_RETURN_IF_ERROR(Infer(InferCall{call.op, {&operand, 1}, call.attrs}, &types));
  results[0] = Reshape(call.b, call.operands[0], types[0].dims);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3] dims=[0]"}, {"T[3] dims=[0,-1]"}, {"T[] dims=[0]"}, {"T[0,2] dims=[1]"}};

}  // namespace

constinit const OpDef kOp_expand_dims = {
    .name = "weft.expand_dims",
    .c_name = "expand_dims",
    .kind = Kind::kMacro,
    .doc = "Inserts dimensions of size 1 so that they stand at the named axes of the result.",
    .example = "y = wf_expand_dims(s, x, WF_INTS(-1));",
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
