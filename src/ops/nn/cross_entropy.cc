// cross_entropy: the negative log probability of the right class.
#include <limits>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"logits", kF, "[..., classes]"},
                                    {"labels", kI, "[...], the right class of each row", false, false, 'L'}};
constexpr std::string_view kReductions[] = {"mean", "sum", "none"};
enum : int64_t { kMean = 0, kSum = 1, kNone = 2 };
constexpr AttrDef kAttrs[] = {
    {"reduction", AttrType::kEnum, "mean over rows, sum over rows, or none", false, "mean", kReductions},
    {"label_smoothing", AttrType::kDouble, "share of the target spread evenly over all classes, 0 to 1", false, "0"},
};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& logits = *call.operands[0];
  const Type& labels = *call.operands[1];
  if (logits.rank() == 0) return UserError("logits must have shape [..., classes], not []");
  const Dims rows(logits.dims.begin(), logits.dims.end() - 1);
  if (labels.dims != rows) {
    return UserError("labels must have shape ", DimsToString(rows), ", that of logits without the last dimension, not ",
                     DimsToString(labels.dims));
  }
  if (logits.dims.back() == 0) return UserError("logits have 0 classes; at least 1 is needed");
  const double smoothing = Attr<kAttrs, "label_smoothing">(call.attrs);
  if (!(smoothing >= 0 && smoothing <= 1)) return UserError("label_smoothing is ", smoothing, "; it must be 0 to 1");
  results->push_back(Type::Tensor(logits.dtype, Attr<kAttrs, "reduction">(call.attrs) == kNone ? rows : Dims()));
  return absl::OkStatus();
}

// One row for each label: true at its class.
Value OneHot(Builder& b, const Value& labels, const Dims& dims) {
  Value index = Iota(b, labels.dtype(), dims, dims.size() - 1);
  Value wanted = BroadcastInDim(b, labels, dims, Axes(labels.dims().size()));
  return Compare(b, Direction::kEq, index, wanted);
}

// dlogits = (softmax - target) * g, over the number of rows for the mean.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& logits = call.operands[0];
  const Value& labels = call.operands[1];
  const Dims& dims = logits.dims();
  const double smoothing = Attr<kAttrs, "label_smoothing">(call.node.attrs());
  const auto classes = static_cast<double>(dims.back());
  Value g = call.cotangents[0];
  if (Attr<kAttrs, "reduction">(call.node.attrs()) == kMean)
    g = Mul(b, g, 1.0 / static_cast<double>(labels.type().count()));
  Value hot = OneHot(b, labels, dims);
  Value target = Select(b, hot, FullLike(b, logits, 1 - smoothing + smoothing / classes),
                        FullLike(b, logits, smoothing / classes));
  Value error = Sub(b, Call(b, kOp_softmax, {logits}), target);
  const Ints rows = Axes(labels.dims().size());
  if (b.ok()) g = BroadcastInDim(b, g, dims, g.dims().empty() ? Ints() : rows);
  grads[0] = Mul(b, error, g);
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& logits = call.operands[0];
  const Value& labels = call.operands[1];
  const int64_t last = logits.dims().size() - 1;
  const double smoothing = Attr<kAttrs, "label_smoothing">(call.attrs);
  Value logp = Call(b, kOp_log_softmax, {logits});
  Value picked =
      Reduce(b, Select(b, OneHot(b, labels, logits.dims()), logp, FullLike(b, logp, 0)), Reducer::kSum, {last});
  Value loss = Neg(b, picked);
  if (smoothing != 0) {
    const double share = smoothing / static_cast<double>(logits.dims().back());
    loss = Sub(b, Mul(b, loss, 1 - smoothing), Mul(b, Reduce(b, logp, Reducer::kSum, {last}), share));
  }
  // A label outside the classes is a mistake that a finite loss would hide.
  Value inside = Compare(b, Direction::kLt, labels, static_cast<double>(logits.dims().back()));
  if (IsSigned(labels.dtype())) inside = And(b, inside, Compare(b, Direction::kGe, labels, 0));
  loss = Select(b, inside, loss, FullLike(b, loss, std::numeric_limits<double>::quiet_NaN()));
  const int64_t reduction = Attr<kAttrs, "reduction">(call.attrs);
  if (reduction != kNone) loss = Reduce(b, loss, Reducer::kSum, Axes(labels.dims().size()));
  if (reduction == kMean) loss = Mul(b, loss, 1.0 / static_cast<double>(labels.type().count()));
  results[0] = loss;
  return absl::OkStatus();
}

absl::Status InRange(const IndexCall& call) {
  return CheckIndices("labels", *call.values[1], call.operands[0]->dims.back() - 1);
}

constexpr Sample kSamples[] = {{"T[4,7] i32[4]<0:7>"},
                               {"T[5,10] i64[5]<0:10> reduction=sum"},
                               {"T[2,3,4] i32[2,3]<0:4> reduction=none"},
                               {"T[4,7] i32[4]<0:7> label_smoothing=0.1"},
                               {"T[3] i32[]<0:3>"},
                               {"T[0,3] i32[0]<0:3> reduction=sum"},
                               {"T[64,10] u8[64]<0:10>"}};

}  // namespace

constinit const OpDef kOp_cross_entropy = {
    .name = "weft.cross_entropy",
    .c_name = "cross_entropy",
    .kind = Kind::kComposite,
    .doc =
        "Negative log softmax probability of the right class: logits [..., classes] and integer labels [...]. The "
        "mean over rows, unless reduction says sum or none. A label outside the classes makes its row's loss NaN.",
    .example = "loss = wf_cross_entropy(s, logits, labels);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .indices = InRange,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 2e-6},
    .absent = kCompositeAbsent,
};

}  // namespace weft::ops
