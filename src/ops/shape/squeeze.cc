// squeeze: drops dimensions of size 1.
#include "src/ops/axes.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {{"dims", AttrType::kInts, "axes to drop; absent: all of size 1"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  Ints axes;
  if (HasAttr<kAttrs, "dims">(call.attrs)) {
    WEFT_ASSIGN_OR_RETURN(axes, AxesOrAll(call.attrs, AttrPosition<kAttrs, "dims">(), x.rank()));
  } else {
    for (size_t d = 0; d < x.rank(); ++d) {
      if (x.dims[d] == 1) axes.push_back(d);
    }
  }
  for (int64_t axis : axes) {
    if (x.dims[axis] != 1) return UserError("axis ", axis, " has size ", x.dims[axis], "; only size 1 can be dropped");
  }
  results->push_back(Type::Tensor(x.dtype, Without(x.dims, axes)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const Type* operand = &call.operands[0].type();
  Types types;
  WEFT_RETURN_IF_ERROR(Infer(InferCall{call.op, {&operand, 1}, call.attrs}, &types));
  results[0] = Reshape(call.b, call.operands[0], types[0].dims);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,1,3]"}, {"T[1,3,1] dims=[-1]"}, {"T[1]"},
                               {"T[0,1]"},   {"T[2,3] dims=[]"},     {"T[] dims=[0]"}};

}  // namespace

constinit const OpDef kOp_squeeze = {
    .name = "weft.squeeze",
    .c_name = "squeeze",
    .kind = Kind::kMacro,
    .doc = "Drops dimensions of size 1: those named, or all.",
    .example = "y = wf_squeeze(s, x);",
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
