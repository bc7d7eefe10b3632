// ctc_loss: the likelihood of a labelling without alignment, summed over all alignments by one scan over the steps.
#include <algorithm>
#include <limits>

#include "src/ops/control/scan.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/parameter.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"x", kF, "logarithms of probabilities, [steps, batch, classes]"},
    {"labels", kI, "[batch, most labels], never the blank; those behind a row's length do not matter", false, false,
     'I'},
    {"steps", kI, "[batch]: how many steps each row has, at least 1", false, false, 'S'},
    {"lengths", kI, "[batch]: how many labels each row has", false, false, 'L'}};
constexpr std::string_view kReductions[] = {"mean", "sum", "none"};
constexpr AttrDef kAttrs[] = {
    {"reduction", AttrType::kEnum, "mean of the losses over their lengths, sum, or none", false, "mean", kReductions},
    {"blank", AttrType::kInt, "class of the blank", false, "0"},
    {"zero_infinity", AttrType::kBool, "a labelling that no alignment has gives 0, and a gradient of 0, instead of inf",
     false, "false"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &labels = *call.operands[1];
  if (x.rank() != 3 || x.dims[0] == 0 || x.dims[2] == 0) {
    return UserError("x has shape ", DimsToString(x.dims),
                     "; [steps, batch, classes] with steps and classes is needed");
  }
  if (labels.rank() != 2 || labels.dims[0] != x.dims[1]) {
    return UserError("labels must have shape [", x.dims[1], ", most labels], not ", DimsToString(labels.dims));
  }
  for (const size_t i : {2, 3}) {
    if (call.operands[i]->dims != Dims{x.dims[1]}) {
      return UserError(kOperands[i].name, " must have shape [", x.dims[1], "], not ",
                       DimsToString(call.operands[i]->dims));
    }
  }
  if (x.dims[0] > INT32_MAX || labels.dims[1] > INT32_MAX / 2 - 1)
    return UserError("there are too many steps or labels for i32");
  const int64_t blank = Attr<kAttrs, "blank">(call.attrs);
  if (blank < 0 || blank >= x.dims[2]) return UserError("blank is ", blank, "; there are ", x.dims[2], " classes");
  results->push_back(Type::Tensor(x.dtype, Attr<kAttrs, "reduction">(call.attrs) == 2 ? Dims{x.dims[1]} : Dims()));
  return absl::OkStatus();
}

constexpr double kNever = -std::numeric_limits<double>::infinity();

// log(sum of exp), 0 where all are minus infinity: there nothing flows.
Value LogSum(Builder& b, std::span<const Value> terms) {
  Value top = terms[0];
  for (const Value& term : terms.subspan(1)) top = Maximum(b, top, term);
  top = Unary(b, kOp_stop_gradient, top);
  const Value none = Compare(b, Direction::kEq, top, kNever), shift = Select(b, none, FullLike(b, top, 0), top);
  Value sum;
  for (const Value& term : terms) {
    const Value e = Exp(b, Sub(b, term, shift));
    sum = sum ? Add(b, sum, e) : e;
  }
  if (!sum) return {};
  const Value some = Add(b, shift, Log(b, Select(b, none, FullLike(b, sum, 1), sum)));
  return Select(b, none, FullLike(b, sum, kNever), some);
}

// The alignments of a labelling: blank, label, blank, label, …, blank.
struct Alignment {
  Value classes;  // i32[batch, 2 * labels + 1]
  Value skips;    // bool, of the same shape: may come from two places before, past the blank
};
Alignment AlignmentOf(Builder& b, const Value& given, int64_t blank) {
  const int64_t batch = given.dims()[0], count = given.dims()[1];
  const Value labels = Convert(b, given, DType::kI32);
  const Value apart =
      Pad(b, labels, static_cast<double>(blank), {0, 1}, {0, count == 0 ? 0 : 1}, {0, count == 0 ? 0 : 1});
  const Value other =
      Compare(b, Direction::kNe, Slice(b, labels, {0, std::min<int64_t>(1, count)}, {batch, count}, {1, 1}),
              Slice(b, labels, {0, 0}, {batch, std::max<int64_t>(0, count - 1)}, {1, 1}));
  // Labels 1, 2, … are compared with the one before each, and that stands at places 3, 5, ….
  const Value skips =
      count < 2 ? Full(b, DType::kBool, {batch, 2 * count + 1}, 0) : Pad(b, other, 0, {0, 3}, {0, 1}, {0, 1});
  return {apart, skips};
}

// The places before, `by` back; never where there is none.
Value Before(Builder& b, const Value& alpha, int64_t by) {
  return alpha ? Pad(b, alpha, kNever, {0, by}, {0, -by}, {0, 0}) : alpha;
}

// alpha of the next step: x's rows at the classes, and which rows have ended.
Ref<const Function> StepOf(Builder& b, const Value& alpha, const Value& skips) {
  Builder body(b.location());
  std::vector<Value> p = {Parameter(alpha.type()), Parameter(alpha.type()),
                          Parameter(Type::Tensor(DType::kBool, {alpha.dims()[0]})), Parameter(skips.type())};
  const Value never = FullLike(body, p[0], kNever);
  const Value terms[] = {p[0], Before(body, p[0], 1),
                         alpha.dims()[1] < 2 ? never : Select(body, p[3], Before(body, p[0], 2), never)};
  const Value next = Add(body, LogSum(body, terms), p[1]);
  const Value goes_on = BroadcastInDim(body, p[2], alpha.dims(), {0});
  const Value out = Select(body, goes_on, next, p[0]);
  if (!body.ok()) {
    b.Fail(body.status());
    return nullptr;
  }
  return Intern(Function::Create("align", std::move(p), {out}));
}

// One element a row, at places i32[batch] that lie inside.
Value AtPlace(Builder& b, const Value& x, const Value& place) {
  if (!x || !place) return {};
  const int64_t batch = x.dims()[0];
  const Value one = Call(b, kOp_take_along_axis, {x, Reshape(b, place, {batch, 1})}, {int64_t{1}});
  return one ? Reshape(b, one, {batch}) : one;
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t steps = x.dims()[0], batch = x.dims()[1];
  const Alignment a = AlignmentOf(b, call.operands[1], Attr<kAttrs, "blank">(call.attrs));
  const Value steps_of = Convert(b, call.operands[2], DType::kI32), lengths = Convert(b, call.operands[3], DType::kI32);
  if (!b.ok()) return b.status();
  const int64_t width = a.classes.dims()[1];
  // Classes outside are held inside, as ids of a table are.
  const Value held = Minimum(b, Maximum(b, a.classes, FullLike(b, a.classes, 0)),
                             FullLike(b, a.classes, static_cast<double>(x.dims()[2] - 1)));
  const Value emitted =
      Call(b, kOp_take_along_axis, {x, BroadcastInDim(b, held, {steps, batch, width}, {1, 2})}, {int64_t{2}});
  // A row begins with the blank or its first label.
  const Value places = Iota(b, DType::kI32, {batch, width}, 1);
  const Value first = Reshape(b, Slice(b, emitted, {0, 0, 0}, {1, batch, width}, {1, 1, 1}), {batch, width});
  const Value alpha = Select(b, Compare(b, Direction::kLt, places, 2), first, FullLike(b, first, kNever));
  if (!alpha) return b.status();
  const Value later = Slice(b, emitted, {1, 0, 0}, {steps, batch, width}, {1, 1, 1});
  const Value at = Add(b, Iota(b, DType::kI32, {steps - 1, batch}, 0), 1);
  const Value running = Compare(b, Direction::kLt, at, BroadcastInDim(b, steps_of, {steps - 1, batch}, {1}));
  const Ref<const Function> step = StepOf(b, alpha, a.skips);
  if (!b.ok()) return b.status();
  Attrs attrs;
  attrs.set(AttrPosition<kScanAttrs, "length">(), steps - 1);
  attrs.set(AttrPosition<kScanAttrs, "carried">(), int64_t{1});
  attrs.set(AttrPosition<kScanAttrs, "scanned">(), int64_t{2});
  const Value ended = Call(b, kOp_scan, {alpha, later, running, a.skips}, std::move(attrs), {&step, 1});
  // The last label, or the blank behind it.
  const Value most = FullLike(b, lengths, static_cast<double>((width - 1) / 2)), zero = FullLike(b, lengths, 0);
  const Value length = Minimum(b, Maximum(b, lengths, zero), most);
  const Value last = Mul(b, length, 2), label = Maximum(b, Add(b, last, -1), zero);
  const Value at_blank = AtPlace(b, ended, last), at_label = AtPlace(b, ended, label);
  if (!at_blank || !at_label) return b.status();
  const Value empty = Compare(b, Direction::kEq, length, 0);
  const Value ends[] = {at_blank, Select(b, empty, FullLike(b, at_label, kNever), at_label)};
  Value loss = Neg(b, LogSum(b, ends));
  if (Attr<kAttrs, "zero_infinity">(call.attrs)) {
    const Value lost = Compare(b, Direction::kEq, loss, -kNever);
    loss = Select(b, lost, FullLike(b, loss, 0), loss);
  }
  const int64_t reduction = Attr<kAttrs, "reduction">(call.attrs);
  if (reduction == 0) loss = Div(b, loss, Convert(b, Maximum(b, length, FullLike(b, length, 1)), loss.dtype()));
  if (reduction != 2) loss = Reduce(b, loss, Reducer::kSum, {0});
  results[0] = reduction == 0 ? Mul(b, loss, 1 / static_cast<double>(batch)) : loss;
  return b.status();
}

constexpr Sample kSamples[] = {
    {"T[5,2,4] i32[2,2]<1:4> i32[2]<4:6> i64[2]<1:3>", -3, -0.5},
    {"T[4,2,3] i64[2,3]<1:3> i32[2]<4:5> i32[2]<0:3> reduction=none zero_infinity=true", -3, -0.5},
    {"T[3,2,3] i32[2,0]<0:1> i32[2]<2:4> i32[2]<0:1> reduction=sum blank=2", -3, -0.5}};

}  // namespace

constinit const OpDef kOp_ctc_loss = Formula({
    .name = "weft.ctc_loss",
    .c_name = "ctc_loss",
    .doc =
        "Connectionist temporal classification: minus the logarithm of the probability of each row's labels, over all ways to "
        "lay them along its steps with blanks and repetitions. The gradient is that of x as it stands; behind log_softmax it is "
        "PyTorch's, which has log_softmax's in it already. Source: Graves et al. (2006).",
    .example = "loss = wf_ctc_loss(s, log_probabilities, labels, steps, lengths);",
    .operands = kOperands,
    .attrs = kAttrs,
    .infer = Infer,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = {.f32 = 2e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 2e-5},
});

}  // namespace weft::ops
