// categorical: draws an index from the distribution that logits describe.
#include "src/ops/axes.h"
#include "src/ops/random/distributions.h"
#include "src/ops/reduce/extreme_index.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"logits", kF, "logarithms of the probabilities, up to a constant a row"}, kState};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands[1]));
  return InferExtremeIndex(call, results);
}

// Argmax of logits + g, g = -log(exponential), is one draw. The largest logit becomes 0 first, so that no bit of g is lost to the
// size of the logits; what is not finite stays as it is.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& logits = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        AlongAxis("axis", Attr<kExtremeIndexAttrs, "axis">(call.attrs), logits.dims().size()));
  Value most = ReduceKeep(b, logits, Reducer::kMax, axes);
  most = Select(b, Unary(b, kOp_is_finite, most), most, FullLike(b, most, 0));
  const Value gumbel = Neg(b, Log(b, RandomExponential(b, call.operands[1], logits.dims(), logits.dtype())));
  results[0] = Call(b, kOp_argmax, {Add(b, Sub(b, logits, most), gumbel)}, call.attrs);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,7] u64[3]<0:1000>"}, {"T[3,5,2] u64[3]<0:1000> axis=1 keepdims=true"},
                               {"T[1] u64[3]<0:9>"},      {"T[0,3] u64[3]<0:9>"},
                               {"T[] u64[3]<0:9>"},       {"T[3,4] u64[3]<0:9> dtype=i64"},
                               {"T[2,131] u64[3]<-2:-1>"}};

}  // namespace

constinit const OpDef kOp_categorical = {
    .name = "weft.categorical",
    .c_name = "categorical",
    .since = 1,
    .kind = Kind::kComposite,
    .doc =
        "An index along one axis, drawn from the context's generator with the probabilities softmax(logits): the argmax "
        "of logits - log(e), e exponentially distributed. Logits of -inf are never drawn (a row of nothing else gives 0); of "
        "several +inf the first is, and before everything the first NaN, as argmax finds them. Divide by a temperature before; "
        "broadcast for several draws of a row. Source: Gumbel (1954); Maddison et al., A* Sampling (2014).",
    .example = "token = wf_categorical(s, wf_div_n(s, logits, 0.8));",
    .operands = kOperands,
    .attrs = kExtremeIndexAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kCompositeNoGradient,
    .random = true,
};

}  // namespace weft::ops
