// Losses of classes that are formulas: weights, classes left out, probabilities, margins.
#include <cmath>

#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kReductions[] = {"mean", "sum", "none"};
enum : int64_t { kMean = 0, kSum = 1, kNone = 2 };
constexpr AttrDef kReduction = {"reduction", AttrType::kEnum, "mean, sum, or none", false, "mean", kReductions};
constexpr AttrDef kSmoothing = {"label_smoothing", AttrType::kDouble,
                                "share of the target spread evenly over all classes, 0 to 1", false, "0"};
constexpr AttrDef kNllAttrs[] = {
    kReduction, {"ignore_index", AttrType::kInt, "label of rows that count nothing", false, "-100"}, kSmoothing};
constexpr AttrDef kSoftAttrs[] = {kReduction, kSmoothing};
constexpr AttrDef kMarginAttrs[] = {kReduction,
                                    {"p", AttrType::kInt, "exponent, 1 or 2", false, "1"},
                                    {"margin", AttrType::kDouble, "how far apart is far enough", false, "1"}};
constexpr AttrDef kPlainAttrs[] = {kReduction};
constexpr AttrDef kCosineAttrs[] = {
    kReduction, {"margin", AttrType::kDouble, "how much of a cosine is far enough apart", false, "0"}};
constexpr OperandDef kLabelled[] = {{"x", kF, "[..., classes], logarithms of probabilities"},
                                    {"labels", kI, "[...], 0 to classes - 1", false, false, 'I'},
                                    {"weight", kF, "of each class; absent: 1", true}};
constexpr OperandDef kProbable[] = {{"x", kF, "[..., classes], logits"},
                                    {"y", kF, "probabilities, of x's shape"},
                                    {"weight", kF, "of each class; absent: 1", true}};
constexpr OperandDef kScores[] = {{"x", kF, "[..., classes]"},
                                  {"labels", kI, "[...], 0 to classes - 1", false, false, 'I'},
                                  {"weight", kF, "of each class; absent: 1", true}};
constexpr OperandDef kListed[] = {{"x", kF, "[..., classes]"},
                                  {"labels", kI, "classes first, then -1, of x's shape", false, false, 'I'}};
constexpr OperandDef kVectors[] = {
    {"x", kF, "[..., features]"}, {"other", kF, "[..., features]"}, {"y", kF, "[...], 1 or -1"}};

Dims Rows(const Dims& dims) { return Dims(dims.begin(), dims.end() - 1); }
absl::Status CheckClasses(const InferCall& call, bool rows, Types* results) {
  const Type &x = *call.operands[0], &y = *call.operands[1];
  if (x.rank() == 0 || x.dims.back() == 0)
    return UserError("x has shape ", DimsToString(x.dims), "; [..., classes] with at least one is needed");
  const Dims wanted = rows ? Rows(x.dims) : x.dims;
  if (y.dims != wanted)
    return UserError(call.op.operands[1].name, " must have shape ", DimsToString(wanted), ", not ",
                     DimsToString(y.dims));
  if (call.operands.size() > 2 && call.operands[2] != nullptr && call.operands[2]->dims != Dims{x.dims.back()}) {
    return UserError("weight must have shape [", x.dims.back(), "], not ", DimsToString(call.operands[2]->dims));
  }
  results->push_back(Type::Tensor(x.dtype, call.attrs.Int(0) == kNone ? Rows(x.dims) : Dims()));
  return absl::OkStatus();
}
absl::Status CheckSmoothing(double smoothing) {
  return smoothing >= 0 && smoothing <= 1 ? absl::OkStatus()
                                          : UserError("label_smoothing is ", smoothing, "; it must be 0 to 1");
}
// `over`: what a mean divides by; absent: the number of rows.
Value Total(Builder& b, const Value& loss, int64_t reduction, const Value& over = {}) {
  if (!loss || reduction == kNone) return loss;
  const Ints all = Axes(loss.dims().size());
  const Value sum = Reduce(b, loss, Reducer::kSum, all);
  if (reduction == kSum) return sum;
  return over ? Div(b, sum, Reduce(b, over, Reducer::kSum, all))
              : Div(b, sum, FullLike(b, sum, static_cast<double>(loss.type().count())));
}
// The element of each row at its label.
Value Chosen(Builder& b, const Value& x, const Value& labels) {
  if (!x || !labels) return {};
  Dims dims = labels.dims();
  dims.push_back(1);
  const Value found = Call(b, kOp_take_along_axis, {x, Reshape(b, labels, dims)}, {int64_t{-1}});
  return found ? Reshape(b, found, labels.dims()) : found;
}
Value OfEach(Builder& b, const Value& weight, const Dims& dims) {
  return BroadcastInDim(b, weight, dims, {static_cast<int64_t>(dims.size()) - 1});
}

absl::Status InferNll(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckSmoothing(Attr<kNllAttrs, "label_smoothing">(call.attrs)));
  return CheckClasses(call, true, results);
}
absl::Status ExpandNll(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &weight = call.operands[2];
  const Value labels = Convert(b, call.operands[1], DType::kI64);
  const int64_t reduction = Attr<kNllAttrs, "reduction">(call.attrs);
  const double smoothing = Attr<kNllAttrs, "label_smoothing">(call.attrs),
               classes = static_cast<double>(x.dims().back());
  const Value none = FullLike(b, labels, 0),
              ignored =
                  Compare(b, Direction::kEq, labels, static_cast<double>(Attr<kNllAttrs, "ignore_index">(call.attrs)));
  const Value safe = Select(b, ignored, none, labels), picked = Chosen(b, x, safe);
  if (!picked) return b.status();
  const Value nothing = FullLike(b, picked, 0);
  const Value each = weight ? Call(b, kOp_take, {weight, safe}, {int64_t{0}}) : FullLike(b, picked, 1);
  const Value counted = Select(b, ignored, nothing, each);
  Value loss = Neg(b, Mul(b, picked, each));
  if (smoothing != 0) {
    const Value all = weight ? Mul(b, x, OfEach(b, weight, x.dims())) : x;
    const Value smooth = Neg(b, Reduce(b, all, Reducer::kSum, {static_cast<int64_t>(x.dims().size()) - 1}));
    loss = Add(b, Mul(b, loss, 1 - smoothing), Mul(b, smooth, smoothing / classes));
  }
  results[0] = Total(b, Select(b, ignored, nothing, loss), reduction, counted);
  return b.status();
}

absl::Status InferSoft(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckSmoothing(Attr<kSoftAttrs, "label_smoothing">(call.attrs)));
  return CheckClasses(call, false, results);
}
absl::Status ExpandSoft(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &weight = call.operands[2];
  const double smoothing = Attr<kSoftAttrs, "label_smoothing">(call.attrs),
               classes = static_cast<double>(x.dims().back());
  Value y = call.operands[1];
  if (smoothing != 0) y = Add(b, Mul(b, y, 1 - smoothing), smoothing / classes);
  Value each = Mul(b, Call(b, kOp_log_softmax, {x}), y);
  if (weight) each = Mul(b, each, OfEach(b, weight, x.dims()));
  const Value loss = Neg(b, Reduce(b, each, Reducer::kSum, {static_cast<int64_t>(x.dims().size()) - 1}));
  results[0] = Total(b, loss, Attr<kSoftAttrs, "reduction">(call.attrs));
  return b.status();
}

absl::Status InferMargin(const InferCall& call, Types* results) {
  const int64_t p = Attr<kMarginAttrs, "p">(call.attrs);
  if (p != 1 && p != 2) return UserError("p is ", p, "; it must be 1 or 2");
  return CheckClasses(call, true, results);
}
absl::Status ExpandMargin(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &labels = call.operands[1], &weight = call.operands[2];
  const Dims& dims = x.dims();
  const int64_t last = static_cast<int64_t>(dims.size()) - 1;
  const auto spread = [&](const Value& v) { return BroadcastInDim(b, v, dims, Axes(dims.size() - 1)); };
  const Value mine = Compare(b, Direction::kEq, Iota(b, labels.dtype(), dims, last), spread(labels));
  const Value short_ = Add(b, Sub(b, x, spread(Chosen(b, x, labels))), Attr<kMarginAttrs, "margin">(call.attrs));
  Value each = Unary(b, kOp_relu, short_);
  if (Attr<kMarginAttrs, "p">(call.attrs) == 2) each = Square(b, each);
  if (weight) each = Mul(b, each, spread(Call(b, kOp_take, {weight, labels}, {int64_t{0}})));
  const Value sum = Reduce(b, Select(b, mine, FullLike(b, x, 0), each), Reducer::kSum, {last});
  results[0] = Total(b, Mul(b, sum, 1 / static_cast<double>(dims.back())), Attr<kMarginAttrs, "reduction">(call.attrs));
  return b.status();
}

absl::Status InferListed(const InferCall& call, Types* results) { return CheckClasses(call, false, results); }
// Every listed class beside every one that is not listed.
absl::Status ExpandListed(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Value labels = Convert(b, call.operands[1], DType::kI64);
  const Dims dims = x.dims();
  const int64_t last = static_cast<int64_t>(dims.size()) - 1;
  const Value ended = Convert(b, Compare(b, Direction::kLt, labels, 0), DType::kI32);
  const Value listed = Compare(b, Direction::kEq, Call(b, kOp_cumsum, {ended}, {last, int64_t{0}}), 0);
  Dims square = dims;
  square.push_back(dims.back());
  const auto rows = [&](const Value& v) { return BroadcastInDim(b, v, square, Axes(dims.size())); };
  Ints beside = Axes(dims.size());
  beside.back() = last + 1;
  const auto columns = [&](const Value& v) { return BroadcastInDim(b, v, square, beside); };
  const Value hit =
      And(b, rows(listed), Compare(b, Direction::kEq, rows(labels), Iota(b, DType::kI64, square, last + 1)));
  const Value target = Reduce(b, hit, Reducer::kOr, {last});
  const Value safe = Select(b, listed, labels, FullLike(b, labels, 0));
  const Value score = Call(b, kOp_take_along_axis, {x, safe}, {last});
  const Value each = Unary(b, kOp_relu, Add(b, Sub(b, columns(x), rows(score)), 1));
  const Value counts = And(b, rows(listed), Call(b, kOp_bitwise_not, {columns(target)}));
  const Value sum = Reduce(b, Select(b, counts, each, FullLike(b, each, 0)), Reducer::kSum, {last, last + 1});
  results[0] = Total(b, Mul(b, sum, 1 / static_cast<double>(dims.back())), Attr<kPlainAttrs, "reduction">(call.attrs));
  return b.status();
}

absl::Status InferSoftMargin(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (const Type* weight = call.operands[2]; weight != nullptr) {
    const auto joined = BroadcastDims(x.dims, weight->dims);
    if (!joined.ok() || *joined != x.dims) {
      return UserError("weight has shape ", DimsToString(weight->dims), ", which does not broadcast to ",
                       DimsToString(x.dims));
    }
  }
  return CheckClasses(InferCall{call.op, call.operands.first(2), call.attrs}, false, results);
}
absl::Status ExpandSoftMargin(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &y = call.operands[1], &weight = call.operands[2];
  const Value right = Mul(b, y, Call(b, kOp_logsigmoid, {x}));
  Value each = Add(b, right, Mul(b, Sub(b, 1, y), Call(b, kOp_logsigmoid, {Neg(b, x)})));
  if (weight) each = Mul(b, each, BroadcastTo(b, weight, x.dims()));
  const Value sum = Reduce(b, each, Reducer::kSum, {static_cast<int64_t>(x.dims().size()) - 1});
  results[0] =
      Total(b, Mul(b, sum, -1 / static_cast<double>(x.dims().back())), Attr<kPlainAttrs, "reduction">(call.attrs));
  return b.status();
}

absl::Status InferCosine(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &other = *call.operands[1], &y = *call.operands[2];
  if (x.rank() == 0 || x.dims != other.dims) {
    return UserError("shapes ", DimsToString(x.dims), " and ", DimsToString(other.dims),
                     " must be equal and [..., features]");
  }
  if (y.dims != Rows(x.dims))
    return UserError("y must have shape ", DimsToString(Rows(x.dims)), ", not ", DimsToString(y.dims));
  results->push_back(Type::Tensor(x.dtype, Attr<kCosineAttrs, "reduction">(call.attrs) == kNone ? y.dims : Dims()));
  return absl::OkStatus();
}
absl::Status ExpandCosine(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &other = call.operands[1], &y = call.operands[2];
  const int64_t last = static_cast<int64_t>(x.dims().size()) - 1;
  const auto dot = [&](const Value& p, const Value& q) { return Reduce(b, Mul(b, p, q), Reducer::kSum, {last}); };
  const Value lengths = Mul(b, Add(b, dot(x, x), 1e-12), Add(b, dot(other, other), 1e-12));
  const Value cosine = Div(b, dot(x, other), Sqrt(b, lengths)), nothing = FullLike(b, cosine, 0);
  const Value near = Select(b, Compare(b, Direction::kEq, y, 1), Sub(b, 1, cosine), nothing);
  const Value far = Unary(b, kOp_relu, Add(b, cosine, -Attr<kCosineAttrs, "margin">(call.attrs)));
  const Value loss = Add(b, near, Select(b, Compare(b, Direction::kEq, y, -1), far, nothing));
  results[0] = Total(b, loss, Attr<kCosineAttrs, "reduction">(call.attrs));
  return b.status();
}

constexpr Sample kNlls[] = {{"T[3,4] i32[3]<0:4> T[4] ignore_index=2", 0.5, 2},
                            {"T[2,3,4] i64[2,3]<0:4> none reduction=none label_smoothing=0.25"}};
constexpr Sample kSofts[] = {{"T[3,4] T[3,4] T[4] label_smoothing=0.25", 0.1, 0.9}};
constexpr Sample kMargins[] = {{"T[3,4] i32[3]<0:4> T[4] p=2", 0.5, 2}};
constexpr Sample kLists[] = {{"T[2,4] i32[2,4]<-1:4>"}};
constexpr Sample kSoftMargins[] = {{"T[3,4] T[3,4] none", 0.1, 0.9}};
constexpr Sample kCosines[] = {{"T[3,4] T[3,4] T[3]", 0.5, 2}};
constexpr Tolerance kTolerance = {.f32 = 1e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 1e-5};

}  // namespace

constinit const OpDef kOp_nll = Formula({
    .name = "weft.nll",
    .c_name = "nll",
    .doc = "The negative logarithm of each row's probability of its label, times the class's weight; rows of a label "
           "that is ignored count nothing, and a mean divides by the weights.",
    .example = "loss = wf_nll(s, log_probabilities, labels, NULL);",
    .operands = kLabelled,
    .attrs = kNllAttrs,
    .infer = InferNll,
    .expand = ExpandNll,
    .samples = kNlls,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_soft_cross_entropy = Formula({
    .name = "weft.soft_cross_entropy",
    .c_name = "soft_cross_entropy",
    .doc = "Cross entropy of logits beside probabilities of all classes, times weights of the classes; a mean is "
           "that of the rows.",
    .example = "loss = wf_soft_cross_entropy(s, logits, probabilities, NULL);",
    .operands = kProbable,
    .attrs = kSoftAttrs,
    .infer = InferSoft,
    .expand = ExpandSoft,
    .samples = kSofts,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_multi_margin = Formula({
    .name = "weft.multi_margin",
    .c_name = "multi_margin",
    .doc =
        "How far each class's score comes within a margin of the label's, to the power p, over the number of classes.",
    .example = "loss = wf_multi_margin(s, scores, labels, NULL);",
    .operands = kScores,
    .attrs = kMarginAttrs,
    .infer = InferMargin,
    .expand = ExpandMargin,
    .samples = kMargins,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_multilabel_margin = Formula({
    .name = "weft.multilabel_margin",
    .c_name = "multilabel_margin",
    .doc = "How far the classes that are not listed come within 1 of each one that is, over the number of classes. A "
           "row's list ends before its first -1.",
    .example = "loss = wf_multilabel_margin(s, scores, labels);",
    .operands = kListed,
    .attrs = kPlainAttrs,
    .infer = InferListed,
    .expand = ExpandListed,
    .samples = kLists,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_multilabel_soft_margin = Formula({
    .name = "weft.multilabel_soft_margin",
    .c_name = "multilabel_soft_margin",
    .doc = "The mean over classes of the binary cross entropy of logits, times weights of the classes.",
    .example = "loss = wf_multilabel_soft_margin(s, logits, targets, NULL);",
    .operands = kProbable,
    .attrs = kPlainAttrs,
    .infer = InferSoftMargin,
    .expand = ExpandSoftMargin,
    .samples = kSoftMargins,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_cosine_embedding = Formula({
    .name = "weft.cosine_embedding",
    .c_name = "cosine_embedding",
    .doc = "1 - cosine where y is 1, and how far the cosine is above a margin where it is -1.",
    .example = "loss = wf_cosine_embedding(s, a, b, y);",
    .operands = kVectors,
    .attrs = kCosineAttrs,
    .infer = InferCosine,
    .expand = ExpandCosine,
    .samples = kCosines,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
