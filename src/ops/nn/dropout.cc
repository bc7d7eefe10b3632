// dropout: zeroes elements at random and scales the others up.
#include "src/ops/random/bits.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}, kState};
constexpr AttrDef kAttrs[] = {{"rate", AttrType::kDouble, "share that is zeroed, 0 to 1 (not included)", false, "0.5"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const double rate = Attr<kAttrs, "rate">(call.attrs);
  if (!(rate >= 0 && rate < 1)) return UserError("rate is ", rate, "; it must be at least 0 and below 1");
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands[1]));
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

// The same mask on the cotangent: the state makes it again, so nothing is kept.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  grads[0] = Call(call.b, kOp_dropout, {call.cotangents[0], call.operands[1]}, call.node.attrs());
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const double rate = Attr<kAttrs, "rate">(call.attrs);
  // In f32 whatever x is, so that precision does not change the mask.
  Value kept = Compare(b, Direction::kGe, RandomUnit(b, call.operands[1], x.dims(), DType::kF32), rate);
  results[0] = Select(b, kept, Mul(b, x, 1 / (1 - rate)), FullLike(b, x, 0));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[2,3] u64[3]<0:1000>"}, {"T[131] u64[3]<0:1000> rate=0.1"}, {"T[0] u64[3]<0:9>"}, {"T[] u64[3]<0:9> rate=0"}};

}  // namespace

constinit const OpDef kOp_dropout = {
    .name = "weft.dropout",
    .c_name = "dropout",
    .kind = Kind::kComposite,
    .doc =
        "Zeroes a random share of the elements and multiplies the others by 1 / (1 - rate), for training. The mask "
        "comes from the context's generator. Source: Srivastava et al. (2014).",
    .example = "h = wf_dropout(s, h, .rate = 0.1);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .absent = kCompositeAbsent,
    .random = true,
};

}  // namespace weft::ops
