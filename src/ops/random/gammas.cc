// gamma, and what is made of its numbers: beta, dirichlet.
#include "src/ops/elementwise/special.h"
#include "src/ops/random/distributions.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kShapeOperands[] = {{"alpha", kF | kWhole, "shape parameter, above 0"}, kState};
constexpr OperandDef kTwoOperands[] = {
    {"alpha", kF | kWhole, "first parameter, above 0"}, {"beta", kF | kWhole, "second parameter, above 0"}, kState};
constexpr OperandDef kRowOperands[] = {{"alpha", kF | kWhole, "[..., n], parameters of each row, above 0"}, kState};
constexpr AttrDef kAttrs[] = {
    kDrawAttrs[0],
    {"logarithm", AttrType::kBool, "gives the logarithm of the number, which is in range where the number is not",
     false, "false"}};

// Marsaglia and Tsang, A simple method for generating gamma variables (2000), for alpha >= 1: d v with v = (1 + c z)³. Gives log v.
Try TryGamma(Builder& b, const Value& state, const Value& d, const Value& c) {
  const Value z = RandomNormal(b, StreamOf(b, state, U64(b, 0)), d.dims(), DType::kF64);
  const Value u = RandomOpen(b, StreamOf(b, state, U64(b, 1)), d.dims());
  const Value root = Add(b, Mul(b, c, z), 1), inside = Compare(b, Direction::kGt, root, 0);
  if (!inside) return {};
  const Value held = Select(b, inside, root, FullLike(b, root, 1));
  const Value v = Mul(b, Square(b, held), held), log = Log(b, v);
  const Value bound = Add(b, Mul(b, Square(b, z), 0.5), Mul(b, d, Add(b, Sub(b, 1, v), log)));
  return {And(b, inside, Compare(b, Direction::kLt, Log(b, u), bound)), log};
}

// The logarithm of the number; below 1 of a number of alpha + 1 times u^(1 / alpha), which may be far below the range.
Value LogGamma(Builder& b, const Value& alpha, const Value& state) {
  const Value valid = And(b, Compare(b, Direction::kGt, alpha, 0), Unary(b, kOp_is_finite, alpha));
  const Value small = Compare(b, Direction::kLt, alpha, 1);
  const Value held = Select(b, valid, alpha, FullLike(b, alpha, 1));
  const Value d = Add(b, Select(b, small, Add(b, held, 1), held), -1.0 / 3);
  const Value c = Rsqrt(b, Mul(b, d, 9));
  if (!c) return {};
  const Value log = Reject(b, StreamOfCall(b, state, 0), valid, FullLike(b, c, 0), {d, c},
                           [](Builder& in, const Value& own, std::span<const Value> fixed) {
                             return TryGamma(in, own, fixed[0], fixed[1]);
                           });
  const Value draw = RandomExponential(b, StreamOfCall(b, state, 1), d.dims(), DType::kF64);
  const Value boost = Select(b, small, Div(b, draw, held), FullLike(b, d, 0));
  return Where(b, valid, Sub(b, Add(b, Log(b, d), log), boost));
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Values parameters, DrawnParameters(call));
  const Value& alpha = parameters[0];
  const Value flat = Convert(b, Reshape(b, alpha, {alpha.type().count()}), DType::kF64);
  Value x = LogGamma(b, flat, call.operands.back());
  if (!Attr<kAttrs, "logarithm">(call.attrs)) x = Exp(b, x);
  if (x) results[0] = Convert(b, Reshape(b, x, alpha.dims()), alpha.dtype());
  return absl::OkStatus();
}

// Implicitly: what alpha does to a number whose share below it stays. Figurnov et al., Implicit reparameterization gradients (2018).
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  if (!call.wanted[0]) return absl::OkStatus();
  Builder& b = call.b;
  const Value &alpha = call.operands[0], &x = call.results[0], &g = call.cotangents[0];
  const Value all = BroadcastTo(b, alpha, x.dims());
  Value slope;
  if (Attr<kAttrs, "logarithm">(call.node.attrs())) {
    slope = Call(b, kOp_gamma_slope, {all, x});
  } else {
    const Value there = Compare(b, Direction::kGt, x, 0);  // of what has become 0 the slope is 0
    const Value log = Log(b, Select(b, there, x, FullLike(b, x, 1)));
    slope = Mul(b, x, Call(b, kOp_gamma_slope, {all, log}));
  }
  grads[0] = SumTo(b, Mul(b, g, slope), alpha.dims());
  return absl::OkStatus();
}

Value LogOf(Builder& b, const Value& alpha, const Value& state) {
  return Call(b, kOp_gamma, {alpha, state}, {ToInts(alpha.dims()), int64_t{1}});
}

absl::Status ExpandBeta(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Values parameters, DrawnParameters(call));
  const Value& state = call.operands.back();
  const Value x = LogOf(b, parameters[0], StreamOfCall(b, state, 0));
  const Value y = LogOf(b, parameters[1], StreamOfCall(b, state, 1));
  results[0] = Sigmoid(b, Sub(b, x, y));
  return absl::OkStatus();
}

absl::Status InferDirichlet(const InferCall& call, Types* results) {
  if (call.operands[0]->rank() == 0 || call.operands[0]->dims.back() < 1) {
    return UserError("alpha must have a last dimension of at least 1: the parameters of one draw");
  }
  return InferDrawn(call, results);
}
absl::Status ExpandDirichlet(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const Values parameters, DrawnParameters(call));
  const Value log = LogOf(call.b, parameters[0], call.operands.back());
  results[0] = Call(call.b, kOp_softmax, {log}, {int64_t{-1}});
  return absl::OkStatus();
}

// Numbers of a rejection are no smooth function of alpha for the state that is drawn: implicit gradients are compared elsewhere.
constexpr Sample kSamples[] = {{"T[2,3] u64[3]<0:1000>", 0.5, 4, false},
                               {"T[] u64[3]<0:1000> shape=[131]", 0.3, 2, false},
                               {"T[0,3] u64[3]<0:9>", 0.5, 4, false},
                               {"T[5] u64[3]<-2:-1> logarithm=true", 0.1, 2, false}};
constexpr Sample kPairs[] = {{"T[2,3] T[3] u64[3]<0:1000>", 0.5, 4, false},
                             {"T[] T[5] u64[3]<0:1000> shape=[3,5]", 0.3, 2, false},
                             {"T[0,3] T[] u64[3]<0:9>", 0.5, 4, false}};
constexpr Sample kRows[] = {{"T[2,3] u64[3]<0:1000>", 0.5, 4, false},
                            {"T[5] u64[3]<0:1000> shape=[4,5]", 0.3, 2, false},
                            {"T[0,3] u64[3]<0:9>", 0.5, 4, false}};
constexpr Tolerance kTolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 3e-2, .f16 = 6e-3, .absolute = 1e-6};

}  // namespace

constinit const OpDef kOp_gamma = Drawn({
    .name = "weft.gamma",
    .c_name = "gamma",
    .kind = Kind::kComposite,
    .doc =
        "Random numbers of gamma distributions with these shape parameters and rate 1, drawn from the context's generator "
        "in f64 (divide by a rate). NaN where alpha is not above 0 or infinite; of small alpha most numbers are below the "
        "type's range and 0, their logarithms are not. The gradient flows to alpha, implicitly, and no further. Source: "
        "Marsaglia, Tsang (2000); Figurnov et al. (2018).",
    .example = "x = wf_gamma(s, alpha);",
    .operands = kShapeOperands,
    .attrs = kAttrs,
    .gradient = Gradient,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = kTolerance,
    .absent = kCompositeAbsent,
});
constinit const OpDef kOp_beta = Drawn({
    .name = "weft.beta",
    .c_name = "beta",
    .kind = Kind::kMacro,
    .doc = "Random numbers of beta distributions, drawn from the context's generator: sigmoid of the difference of two "
           "logarithms of gamma numbers. NaN where a parameter is not above 0. The gradient flows to both, as gamma's.",
    .example = "x = wf_beta(s, alpha, beta);",
    .operands = kTwoOperands,
    .expand = ExpandBeta,
    .samples = kPairs,
    .tolerance = kTolerance,
    .absent = kMacroAbsent,
});
constinit const OpDef kOp_dirichlet = Drawn({
    .name = "weft.dirichlet",
    .c_name = "dirichlet",
    .kind = Kind::kMacro,
    .doc =
        "Random rows of Dirichlet distributions, each of sum 1, drawn from the context's generator: softmax of logarithms "
        "of gamma numbers. NaN where a parameter is not above 0. The gradient flows to alpha, as gamma's.",
    .example = "p = wf_dirichlet(s, alpha);",
    .operands = kRowOperands,
    .infer = InferDirichlet,
    .expand = ExpandDirichlet,
    .samples = kRows,
    .tolerance = kTolerance,
    .absent = kMacroAbsent,
});

}  // namespace weft::ops
