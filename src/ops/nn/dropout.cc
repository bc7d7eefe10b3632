// dropout: zeroes elements at random and scales the others up.
#include <algorithm>
#include <cmath>

#include "src/ops/random/bits.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF, "operand"}, kState};
constexpr AttrDef kAttrs[] = {
    {"rate", AttrType::kDouble, "share that is zeroed, 0 to 1 (not included)", false, "0.5"},
    {"shared", AttrType::kInts,
     "dimensions along which all elements share one draw; negative ones count from the end: features are dropped whole where "
     "the others are shared",
     false, "[]"},
    {"alpha", AttrType::kBool, "what is dropped becomes the lower end of selu, and all keep mean 0 and variance 1",
     false, "false"}};

// selu's lower end, minus scale times alpha.
constexpr double kLowerEnd = -1.7580993408473766;

absl::Status Infer(const InferCall& call, Types* results) {
  const double rate = Attr<kAttrs, "rate">(call.attrs);
  if (!(rate >= 0 && rate < 1)) return UserError("rate is ", rate, "; it must be at least 0 and below 1");
  WEFT_RETURN_IF_ERROR(NormalizeAxes("shared", Attr<kAttrs, "shared">(call.attrs), call.operands[0]->rank()).status());
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands[1]));
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

// Tells which elements stay. In f32 whatever they are, so that precision does not change the mask.
absl::StatusOr<Value> Kept(Builder& b, const Attrs& attrs, const Value& state, const Dims& dims) {
  WEFT_ASSIGN_OR_RETURN(const Ints shared, NormalizeAxes("shared", Attr<kAttrs, "shared">(attrs), dims.size()));
  Dims drawn = dims;
  for (const int64_t d : shared) drawn[d] = std::min<int64_t>(1, drawn[d]);
  const Value kept = Compare(b, Direction::kGe, RandomUnit(b, state, drawn, DType::kF32), Attr<kAttrs, "rate">(attrs));
  return shared.empty() ? kept : BroadcastTo(b, kept, dims);
}

// With alpha, y = kept ? a x + c : a low + c, where a and c give mean 0 and variance 1 to what had them.
double FactorOf(const Attrs& attrs) {
  const double rate = Attr<kAttrs, "rate">(attrs);
  if (!Attr<kAttrs, "alpha">(attrs)) return 1 / (1 - rate);
  return 1 / std::sqrt((1 - rate) * (1 + rate * kLowerEnd * kLowerEnd));
}

// The same mask on the cotangent: the state makes it again, so nothing is kept.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Attrs& attrs = call.node.attrs();
  const Value& g = call.cotangents[0];
  if (!Attr<kAttrs, "alpha">(attrs)) {
    grads[0] = Call(b, kOp_dropout, {g, call.operands[1]}, attrs);
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const Value kept, Kept(b, attrs, call.operands[1], g.dims()));
  grads[0] = Select(b, kept, Mul(b, g, FactorOf(attrs)), FullLike(b, g, 0));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const double factor = FactorOf(call.attrs), rate = Attr<kAttrs, "rate">(call.attrs);
  WEFT_ASSIGN_OR_RETURN(const Value kept, Kept(b, call.attrs, call.operands[1], x.dims()));
  if (!Attr<kAttrs, "alpha">(call.attrs)) {
    results[0] = Select(b, kept, Mul(b, x, factor), FullLike(b, x, 0));
    return absl::OkStatus();
  }
  const double offset = -factor * rate * kLowerEnd;
  results[0] = Select(b, kept, Add(b, Mul(b, x, factor), offset), FullLike(b, x, factor * kLowerEnd + offset));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[2,3] u64[3]<0:1000>"},
                               {"T[131] u64[3]<0:1000> rate=0.1"},
                               {"T[0] u64[3]<0:9>"},
                               {"T[] u64[3]<0:9> rate=0"},
                               {"T[2,3,4] u64[3]<0:1000> shared=[-1]"},
                               {"T[131] u64[3]<0:1000> rate=0.25 alpha=true"}};

}  // namespace

constinit const OpDef kOp_dropout = {
    .name = "weft.dropout",
    .c_name = "dropout",
    .kind = Kind::kComposite,
    .doc =
        "Zeroes a random share of the elements and multiplies the others by 1 / (1 - rate), for training. The mask "
        "comes from the context's generator. shared drops whole features, as PyTorch's dropout1d to 3d; alpha is its "
        "alpha_dropout. Sources: Srivastava et al. (2014), Klambauer et al. (2017).",
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
