// Losses between a prediction and a target, element by element and then summed up, and those of distances.
#include <cmath>
#include <numbers>

#include "src/ops/elementwise/special.h"
#include "src/ops/nan.h"
#include "src/ops/reduce/norms.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kReductions[] = {"mean", "sum", "none"};
constexpr std::string_view kWithBatch[] = {"mean", "sum", "none", "batchmean"};
enum : int64_t { kMean = 0, kSum = 1, kNone = 2, kBatchMean = 3 };
constexpr AttrDef kReduction = {"reduction", AttrType::kEnum, "mean over elements, sum over elements, or none",
                                false,       "mean",          kReductions};
constexpr AttrDef kPlain[] = {kReduction};
constexpr AttrDef kBend[] = {kReduction, {"beta", AttrType::kDouble, "where the square ends, at least 0", false, "1"}};
constexpr AttrDef kDelta[] = {kReduction, {"delta", AttrType::kDouble, "where the square ends, above 0", false, "1"}};
constexpr AttrDef kDivergence[] = {
    {"reduction", AttrType::kEnum,
     "mean over elements, sum over elements, none, or the sum over the first dimension's size", false, "mean",
     kWithBatch},
    {"log_target", AttrType::kBool, "the target is a logarithm, too", false, "false"}};
constexpr AttrDef kPoisson[] = {
    kReduction,
    {"log_input", AttrType::kBool, "x is the logarithm of the rate", false, "true"},
    {"full", AttrType::kBool, "with Stirling's approximation of log(y!) where y is above 1", false, "false"},
    {"eps", AttrType::kDouble, "added to a rate whose logarithm is taken", false, "1e-8"}};
constexpr AttrDef kGaussian[] = {kReduction,
                                 {"full", AttrType::kBool, "with the constant log(2 pi) / 2", false, "false"},
                                 {"eps", AttrType::kDouble, "least variance, above 0", false, "1e-6"}};
constexpr AttrDef kUnitMargin[] = {kReduction,
                                   {"margin", AttrType::kDouble, "how far apart is far enough", false, "1"}};
constexpr AttrDef kNoMargin[] = {kReduction, {"margin", AttrType::kDouble, "how far apart is far enough", false, "0"}};
constexpr AttrDef kTriplet[] = {
    kReduction,
    {"margin", AttrType::kDouble, "how much farther is far enough", false, "1"},
    {"p", AttrType::kDouble, "degree of the norm", false, "2"},
    {"eps", AttrType::kDouble, "added to each difference", false, "1e-6"},
    {"swap", AttrType::kBool, "takes the distance from positive to negative where that is less", false, "false"}};
constexpr AttrDef kDistance[] = {{"p", AttrType::kDouble, "degree of the norm", false, "2"},
                                 {"eps", AttrType::kDouble, "added to each difference", false, "1e-6"},
                                 {"keepdims", AttrType::kBool, "keep the last axis with size 1", false, "false"}};

constexpr OperandDef kPair[] = {{"x", kF, "prediction"}, {"y", kF, "target of the same shape"}};
constexpr OperandDef kWeighted[] = {{"x", kF, "prediction"},
                                    {"y", kF, "target of the same shape"},
                                    {"weight", kF, "of each element; broadcasts", true}};
constexpr OperandDef kLogits[] = {{"x", kF, "logits"},
                                  {"y", kF, "target of the same shape, 0 to 1"},
                                  {"weight", kF, "of each element; broadcasts", true},
                                  {"pos_weight", kF, "of the part of y that is 1; broadcasts", true}};
constexpr OperandDef kNormal[] = {
    {"x", kF, "mean"}, {"y", kF, "target of the same shape"}, {"var", kF, "variance; broadcasts"}};
constexpr OperandDef kSigned[] = {{"x", kF, "prediction"}, {"y", kF, "1 or -1, of the same shape"}};
constexpr OperandDef kRanking[] = {
    {"x", kF, "first score"}, {"other", kF, "second score"}, {"y", kF, "1 where the first should be higher, else -1"}};
constexpr OperandDef kTriple[] = {
    {"anchor", kF | kC, "[..., features]"}, {"positive", kF | kC, "alike"}, {"negative", kF | kC, "unlike"}};
constexpr OperandDef kVectors[] = {{"x", kF | kC, "[..., features]"}, {"y", kF | kC, "of the same shape"}};
constexpr OperandDef kApart[] = {{"x", kF | kC, "prediction"}, {"y", kF | kC, "target of the same shape"}};

// --- Shapes. The reduction is attribute 0.

void Reduced(const Attrs& attrs, Types* results) {
  if (attrs.Int(0) != kNone) results->back().dims.clear();
}
// x and y have one shape: a loss over [64] and [64, 1] is nearly always a mistake. The operands behind them broadcast
// to it.
absl::Status InferLoss(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &y = *call.operands[1];
  if (x.dims != y.dims)
    return UserError("shapes ", DimsToString(x.dims), " and ", DimsToString(y.dims), " must be equal");
  for (size_t i = 2; i < call.operands.size(); ++i) {
    if (call.operands[i] == nullptr) continue;
    const auto joined = BroadcastDims(x.dims, call.operands[i]->dims);
    if (!joined.ok() || *joined != x.dims) {
      return UserError(call.op.operands[i].name, " has shape ", DimsToString(call.operands[i]->dims),
                       ", which does not broadcast to ", DimsToString(x.dims));
    }
  }
  results->push_back(Type::Tensor(PartOf(x.dtype), x.dims));
  Reduced(call.attrs, results);
  return absl::OkStatus();
}
template <const auto& schema, AttrName name, bool zero>
absl::Status InferWidth(const InferCall& call, Types* results) {
  const double width = Attr<schema, name>(call.attrs);
  if (!(width > 0 || (zero && width == 0)))
    return UserError(name.text, " is ", width, "; it must be ", zero ? "at least" : "above", " 0");
  return InferLoss(call, results);
}
absl::Status InferVectors(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferSame(call, results));
  if (results->back().rank() == 0) return UserError("vectors must have shape [..., features], not []");
  results->back().dims.pop_back();
  results->back().dtype = PartOf(results->back().dtype);
  return absl::OkStatus();
}
absl::Status InferTriplet(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferVectors(call, results));
  Reduced(call.attrs, results);
  return absl::OkStatus();
}
absl::Status InferDistance(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferVectors(call, results));
  if (Attr<kDistance, "keepdims">(call.attrs)) results->back().dims.push_back(1);
  return absl::OkStatus();
}

// --- Formulas

Value Total(Builder& b, const Value& loss, int64_t reduction) {
  if (!loss || reduction == kNone) return loss;
  const Value sum = Reduce(b, loss, Reducer::kSum, Axes(loss.dims().size()));
  const Dims& dims = loss.dims();
  const double over = reduction == kMean                         ? static_cast<double>(loss.type().count())
                      : reduction == kBatchMean && !dims.empty() ? static_cast<double>(dims[0])
                                                                 : 1;
  return over == 1 ? sum : Div(b, sum, FullLike(b, sum, over));
}
Value Wide(const ExpandCall& call, size_t i) { return BroadcastTo(call.b, call.operands[i], call.operands[0].dims()); }
Value Weighed(const ExpandCall& call, const Value& loss) {
  return call.operands[2] ? Mul(call.b, loss, Wide(call, 2)) : loss;
}
// The part above 0; the slope at 0 is 0, as that of PyTorch's losses is.
Value Above(Builder& b, const Value& x) { return Select(b, Compare(b, Direction::kLe, x, 0), FullLike(b, x, 0), x); }

template <Value (*loss)(const ExpandCall&)>
absl::Status ExpandLoss(const ExpandCall& call, std::span<Value> results) {
  results[0] = Total(call.b, loss(call), call.attrs.Int(0));
  return absl::OkStatus();
}

Value Distance(const ExpandCall& call) { return Abs(call.b, Sub(call.b, call.operands[0], call.operands[1])); }

// A square of slope `steep` up to `width`, then a line.
Value Bent(const ExpandCall& call, double width, double steep) {
  Builder& b = call.b;
  const Value z = Sub(b, call.operands[0], call.operands[1]), size = Abs(b, z);
  if (width == 0) return Mul(b, size, steep);
  const Value near = Compare(b, Direction::kLt, size, width), held = Select(b, near, z, FullLike(b, z, 0));
  return Select(b, near, Mul(b, Square(b, held), 0.5 * steep), Mul(b, Add(b, size, -0.5 * width), width * steep));
}
Value SmoothL1(const ExpandCall& call) {
  const double beta = Attr<kBend, "beta">(call.attrs);
  return Bent(call, beta, beta == 0 ? 1 : 1 / beta);
}
Value Huber(const ExpandCall& call) { return Bent(call, Attr<kDelta, "delta">(call.attrs), 1); }

// log(p), not below -100.
Value HeldLog(Builder& b, const Value& p, const Value& log) {
  return Select(b, Compare(b, Direction::kLt, p, 4e-44), FullLike(b, p, -100), log);
}
Value Bce(const ExpandCall& call) {
  Builder& b = call.b;
  const Value &p = call.operands[0], &y = call.operands[1], rest = Sub(b, 1, p), one = FullLike(b, p, 1);
  const Value at_zero = Compare(b, Direction::kLt, p, 4e-44), at_one = Compare(b, Direction::kLt, rest, 4e-44);
  const Value log = HeldLog(b, p, Log(b, Select(b, at_zero, one, p)));
  const Value log_rest = HeldLog(b, rest, Unary(b, kOp_log1p, Neg(b, Select(b, at_one, FullLike(b, p, 0), p))));
  return Weighed(call, Neg(b, Add(b, Mul(b, y, log), Mul(b, Sub(b, 1, y), log_rest))));
}
Value BceWithLogits(const ExpandCall& call) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &y = call.operands[1];
  Value bend = Unary(b, kOp_softplus, Neg(b, x));
  if (call.operands[3]) bend = Mul(b, bend, Add(b, Mul(b, Add(b, Wide(call, 3), -1), y), 1));
  return Weighed(call, Add(b, Mul(b, Sub(b, 1, y), x), bend));
}
Value KlDiv(const ExpandCall& call) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &y = call.operands[1];
  if (Attr<kDivergence, "log_target">(call.attrs)) return Mul(b, Exp(b, y), Sub(b, y, x));
  return Sub(b, Call(b, kOp_xlogy, {y, y}), Mul(b, y, x));
}
Value PoissonNll(const ExpandCall& call) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &y = call.operands[1];
  const Value loss = Attr<kPoisson, "log_input">(call.attrs)
                         ? Sub(b, Exp(b, x), Mul(b, y, x))
                         : Sub(b, x, Mul(b, y, Log(b, Add(b, x, Attr<kPoisson, "eps">(call.attrs)))));
  if (!Attr<kPoisson, "full">(call.attrs)) return loss;
  const Value above = Compare(b, Direction::kGt, y, 1), safe = Select(b, above, y, FullLike(b, y, 1));
  const Value more =
      Add(b, Sub(b, Mul(b, safe, Log(b, safe)), safe), Mul(b, Log(b, Mul(b, safe, 2 * std::numbers::pi)), 0.5));
  return Add(b, loss, Select(b, above, more, FullLike(b, y, 0)));
}
// The variance is held to eps, its gradient is not.
Value GaussianNll(const ExpandCall& call) {
  Builder& b = call.b;
  const Value given = Wide(call, 2), eps = FullLike(b, given, Attr<kGaussian, "eps">(call.attrs));
  const Value low = Compare(b, Direction::kLt, given, eps);
  const Value raise = Select(b, low, Sub(b, eps, Unary(b, kOp_stop_gradient, given)), FullLike(b, given, 0));
  const Value var = Add(b, given, raise), off = Square(b, Sub(b, call.operands[0], call.operands[1]));
  const Value loss = Mul(b, Add(b, Log(b, var), Div(b, off, var)), 0.5);
  return Attr<kGaussian, "full">(call.attrs) ? Add(b, loss, 0.5 * std::log(2 * std::numbers::pi)) : loss;
}
Value HingeEmbedding(const ExpandCall& call) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &y = call.operands[1], zero = FullLike(b, x, 0);
  const Value apart = Above(b, Sub(b, Attr<kUnitMargin, "margin">(call.attrs), x));
  return Add(b, Select(b, Compare(b, Direction::kNe, y, 1), apart, zero),
             Select(b, Compare(b, Direction::kNe, y, -1), x, zero));
}
Value MarginRanking(const ExpandCall& call) {
  Builder& b = call.b;
  const Value ahead = Mul(b, Neg(b, call.operands[2]), Sub(b, call.operands[0], call.operands[1]));
  return Above(b, Add(b, ahead, Attr<kNoMargin, "margin">(call.attrs)));
}
Value SoftMargin(const ExpandCall& call) {
  return Unary(call.b, kOp_softplus, Neg(call.b, Mul(call.b, call.operands[1], call.operands[0])));
}

Value Apart(Builder& b, const Value& x, const Value& y, double p, double eps) {
  if (!b.ok()) return {};
  const Ints last = {static_cast<int64_t>(x.dims().size()) - 1};
  return NormKeep(b, Add(b, Sub(b, x, y), eps), p, last);
}
Value WithoutLast(Builder& b, const Value& x) {
  return x ? Reshape(b, x, Dims(x.dims().begin(), x.dims().end() - 1)) : x;
}
Value TripletMargin(const ExpandCall& call) {
  Builder& b = call.b;
  const double p = Attr<kTriplet, "p">(call.attrs), eps = Attr<kTriplet, "eps">(call.attrs);
  const Value near = Apart(b, call.operands[0], call.operands[1], p, eps);
  Value far = Apart(b, call.operands[0], call.operands[2], p, eps);
  if (Attr<kTriplet, "swap">(call.attrs)) far = Minimum(b, far, Apart(b, call.operands[1], call.operands[2], p, eps));
  return Above(b, Add(b, Sub(b, WithoutLast(b, near), WithoutLast(b, far)), Attr<kTriplet, "margin">(call.attrs)));
}
absl::Status ExpandDistance(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value apart = Apart(b, call.operands[0], call.operands[1], Attr<kDistance, "p">(call.attrs),
                            Attr<kDistance, "eps">(call.attrs));
  results[0] = Attr<kDistance, "keepdims">(call.attrs) ? apart : WithoutLast(b, apart);
  return absl::OkStatus();
}

constexpr Sample kPairs[] = {{"T[4,3] T[4,3]"}, {"T[5] T[5] reduction=sum"}, {"T[2,3] T[2,3] reduction=none"}};
constexpr Sample kBends[] = {
    {"T[4,3] T[4,3] reduction=none beta=0.7"}, {"T[5] T[5] beta=0.3"}, {"T[3] T[3] reduction=none beta=0"}};
constexpr Sample kHubers[] = {{"T[4,3] T[4,3] reduction=none delta=0.7"}, {"T[5] T[5] delta=0.3"}};
constexpr Sample kShares[] = {{"T[4,3] T[4,3] none", 0.1, 0.9}, {"T[5] T[5] T[1] reduction=none", 0.1, 0.9}};
constexpr Sample kLogitSamples[] = {{"T[4,3] T[4,3] none none", 0.1, 0.9},
                                    {"T[5,2] T[5,2] T[5,1] T[2] reduction=sum", 0.1, 0.9}};
constexpr Sample kDivergences[] = {{"T[4,3] T[4,3]", 0.1, 2}, {"T[5] T[5] reduction=batchmean log_target=true"}};
constexpr Sample kRates[] = {{"T[4,3] T[4,3]", 1.1, 2}, {"T[5] T[5] reduction=sum log_input=false full=true", 1.1, 2}};
constexpr Sample kNormals[] = {{"T[4,3] T[4,3] T[4,1]", 0.5, 2}, {"T[5] T[5] T[5] reduction=sum full=true", 0.5, 2}};
constexpr Sample kMargins[] = {{"T[4,3] T[4,3]"}, {"T[5] T[5] reduction=sum margin=0.5"}};
constexpr Sample kRanks[] = {{"T[4,3] T[4,3] T[4,3] reduction=none margin=0.4"}, {"T[5] T[5] T[5] margin=0.3"}};
constexpr Sample kTriples[] = {{"T[4,3] T[4,3] T[4,3]"}, {"T[2,5] T[2,5] T[2,5] reduction=none p=3 swap=true"}};
constexpr Sample kDistances[] = {{"T[4,3] T[4,3]"}, {"T[5] T[5] p=1 keepdims=true"}};
constexpr Tolerance kTolerance = {.f32 = 8e-6, .f64 = 2e-13, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 4e-6};

consteval OpDef Loss(OpDef named) {
  if (named.attrs.empty()) named.attrs = kPlain;
  if (named.operands.empty()) named.operands = kPair;
  if (named.infer == nullptr) named.infer = InferLoss;
  if (named.samples.empty()) named.samples = kPairs;
  named.tolerance = kTolerance;
  return Formula(named);
}

}  // namespace

constinit const OpDef kOp_l1 = Loss({
    .name = "weft.l1",
    .c_name = "l1",
    .doc = "Absolute error |x - y|, its mean unless reduction says sum or none. Where x is y the gradient is 0.",
    .example = "loss = wf_l1(s, prediction, target);",
    .operands = kApart,
    .expand = ExpandLoss<Distance>,
});
constinit const OpDef kOp_smooth_l1 = Loss({
    .name = "weft.smooth_l1",
    .c_name = "smooth_l1",
    .doc = "|x - y| - beta / 2, and (x - y)² / (2 beta) where |x - y| is below beta.",
    .example = "loss = wf_smooth_l1(s, prediction, target);",
    .attrs = kBend,
    .infer = InferWidth<kBend, "beta", true>,
    .expand = ExpandLoss<SmoothL1>,
    .samples = kBends,
});
constinit const OpDef kOp_huber = Loss({
    .name = "weft.huber",
    .c_name = "huber",
    .doc = "delta (|x - y| - delta / 2), and (x - y)² / 2 where |x - y| is below delta. Source: Huber (1964).",
    .example = "loss = wf_huber(s, prediction, target);",
    .attrs = kDelta,
    .infer = InferWidth<kDelta, "delta", false>,
    .expand = ExpandLoss<Huber>,
    .samples = kHubers,
});
constinit const OpDef kOp_bce = Loss({
    .name = "weft.bce",
    .c_name = "bce",
    .doc = "Binary cross entropy -(y log(x) + (1 - y) log(1 - x)) of probabilities x, times a weight where one is "
           "given. Logarithms are not "
           "below -100, where their gradient is 0.",
    .example = "loss = wf_bce(s, p, target, NULL);",
    .operands = kWeighted,
    .expand = ExpandLoss<Bce>,
    .samples = kShares,
});
constinit const OpDef kOp_bce_with_logits = Loss({
    .name = "weft.bce_with_logits",
    .c_name = "bce_with_logits",
    .doc = "Binary cross entropy of the sigmoid of x, (1 - y) x + log(1 + e^-x), without overflow; times weights where "
           "they are given.",
    .example = "loss = wf_bce_with_logits(s, logits, target, NULL, NULL);",
    .operands = kLogits,
    .expand = ExpandLoss<BceWithLogits>,
    .samples = kLogitSamples,
});
constinit const OpDef kOp_kl_div = Loss({
    .name = "weft.kl_div",
    .c_name = "kl_div",
    .doc = "Kullback and Leibler's divergence y (log(y) - x), x a logarithm of probabilities, y probabilities or their "
           "logarithm.",
    .example = "loss = wf_kl_div(s, logp, q);",
    .attrs = kDivergence,
    .expand = ExpandLoss<KlDiv>,
    .samples = kDivergences,
});
constinit const OpDef kOp_poisson_nll = Loss({
    .name = "weft.poisson_nll",
    .c_name = "poisson_nll",
    .doc =
        "Negative log likelihood of counts y under Poisson's distribution, e^x - y x, x being the logarithm of the rate.",
    .example = "loss = wf_poisson_nll(s, log_rate, counts);",
    .attrs = kPoisson,
    .expand = ExpandLoss<PoissonNll>,
    .samples = kRates,
});
constinit const OpDef kOp_gaussian_nll = Loss({
    .name = "weft.gaussian_nll",
    .c_name = "gaussian_nll",
    .doc = "Negative log likelihood of y under a normal distribution, (log(var) + (x - y)² / var) / 2.",
    .example = "loss = wf_gaussian_nll(s, mean, target, var);",
    .operands = kNormal,
    .attrs = kGaussian,
    .infer = InferWidth<kGaussian, "eps", false>,
    .expand = ExpandLoss<GaussianNll>,
    .samples = kNormals,
});
constinit const OpDef kOp_hinge_embedding = Loss({
    .name = "weft.hinge_embedding",
    .c_name = "hinge_embedding",
    .doc = "x where y is 1, max(0, margin - x) where y is -1, of distances x.",
    .example = "loss = wf_hinge_embedding(s, distance, same);",
    .operands = kSigned,
    .attrs = kUnitMargin,
    .expand = ExpandLoss<HingeEmbedding>,
    .samples = kMargins,
});
constinit const OpDef kOp_margin_ranking = Loss({
    .name = "weft.margin_ranking",
    .c_name = "margin_ranking",
    .doc = "max(0, margin - y (x - other)).",
    .example = "loss = wf_margin_ranking(s, better, worse, one);",
    .operands = kRanking,
    .attrs = kNoMargin,
    .expand = ExpandLoss<MarginRanking>,
    .samples = kRanks,
});
constinit const OpDef kOp_soft_margin = Loss({
    .name = "weft.soft_margin",
    .c_name = "soft_margin",
    .doc = "log(1 + e^(-y x)), without overflow.",
    .example = "loss = wf_soft_margin(s, score, side);",
    .operands = kSigned,
    .expand = ExpandLoss<SoftMargin>,
});
constinit const OpDef kOp_triplet_margin = Loss({
    .name = "weft.triplet_margin",
    .c_name = "triplet_margin",
    .doc = "max(0, margin + |anchor - positive| - |anchor - negative|) by the p-norm over the last axis.",
    .example = "loss = wf_triplet_margin(s, anchor, alike, unlike);",
    .operands = kTriple,
    .attrs = kTriplet,
    .infer = InferTriplet,
    .expand = ExpandLoss<TripletMargin>,
    .samples = kTriples,
});
constinit const OpDef kOp_pairwise_distance = Loss({
    .name = "weft.pairwise_distance",
    .c_name = "pairwise_distance",
    .doc = "The p-norm of x - y + eps over the last axis.",
    .example = "d = wf_pairwise_distance(s, x, y);",
    .operands = kVectors,
    .attrs = kDistance,
    .infer = InferDistance,
    .expand = ExpandDistance,
    .samples = kDistances,
});

}  // namespace weft::ops
