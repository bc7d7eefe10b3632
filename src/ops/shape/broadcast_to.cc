// broadcast_to: NumPy's broadcast to a given shape.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "tensor to repeat"}};
constexpr AttrDef kAttrs[] = {{"shape", AttrType::kInts, "result shape", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Dims shape = ToDims(Attr<kAttrs, "shape">(call.attrs));
  const bool longer = x.rank() > shape.size();
  for (size_t i = 1; !longer && i <= x.rank(); ++i) {
    const int64_t from = x.dims[x.rank() - i], to = shape[shape.size() - i];
    if (from != 1 && from != to) {
      return UserError("dimension -", i, " is ", from, " and cannot become ", to, " (it must be 1 or equal)");
    }
  }
  if (longer) return UserError("shape ", DimsToString(shape), " has fewer dimensions than x ", DimsToString(x.dims));
  results->push_back(Type::Tensor(x.dtype, shape));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  results[0] = BroadcastTo(call.b, call.operands[0], ToDims(Attr<kAttrs, "shape">(call.attrs)));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[3] shape=[2,3]"}, {"T[] shape=[4]"}, {"T[2,1] shape=[3,2,5]"}, {"T[1] shape=[0]"}};

}  // namespace

constinit const OpDef kOp_broadcast_to = {
    .name = "weft.broadcast_to",
    .c_name = "broadcast_to",
    .kind = Kind::kMacro,
    .doc = "NumPy's broadcast to a given shape: dimensions align at the last one, those of size 1 or missing repeat.",
    .example = "y = wf_broadcast_to(s, bias, WF_INTS(64, 10));",
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
