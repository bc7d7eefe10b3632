// Scaled losses of mixed precision without a host branch: amp_non_finite_check_and_unscale, amp_update_scale.
#include <cmath>

#include "src/ops/elementwise/special.h"
#include "src/ops/nan.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kGradients[] = {
    {"x", kF, "a gradient of the scaled loss"},
    {"found", kF, "scalar: above 0 where something was not finite before", false, false, 'F'},
    {"inverse_scale", kF, "scalar: 1 / scale", false, false, 'F'}};
constexpr std::string_view kUnscaled[] = {"unscaled", "found"};
constexpr OperandDef kScales[] = {
    {"scale", kF, "scalar: the scale of this step", false, false, 'F'},
    {"tracker", kSI, "scalar: steps since the scale changed", false, false, 0},
    {"found", kF, "scalar: above 0 where something was not finite in this step", false, false, 'F'}};
constexpr std::string_view kNext[] = {"scale", "tracker"};
constexpr AttrDef kAttrs[] = {
    {"growth_factor", AttrType::kDouble, "of the scale after growth_interval steps that were finite", false, "2"},
    {"backoff_factor", AttrType::kDouble, "of the scale after a step that was not", false, "0.5"},
    {"growth_interval", AttrType::kInt, "steps, at least 1", false, "2000"}};

absl::Status CheckScalars(const InferCall& call, size_t first) {
  for (size_t i = first; i < call.operands.size(); ++i) {
    if (call.operands[i]->count() == 1) continue;
    return UserError(call.op.operands[i].name, " has shape ", DimsToString(call.operands[i]->dims),
                     "; a scalar is needed");
  }
  return absl::OkStatus();
}

absl::Status InferUnscale(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckScalars(call, 1));
  results->push_back(*call.operands[0]);
  results->push_back(*call.operands[1]);
  return absl::OkStatus();
}
absl::Status ExpandUnscale(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &found = call.operands[1];
  const Value bad = Call(b, kOp_bitwise_not, {Unary(b, kOp_is_finite, Unary(b, kOp_stop_gradient, x))});
  if (!bad) return b.status();
  const Value any = Reshape(b, Reduce(b, bad, Reducer::kOr, Axes(x.dims().size())), found.dims());
  results[1] = Maximum(b, found, Convert(b, any, found.dtype()));
  const Value inverse = Convert(b, Reshape(b, call.operands[2], {}), x.dtype());
  results[0] = Mul(b, x, BroadcastTo(b, inverse, x.dims()));
  return b.status();
}

absl::Status InferUpdate(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckScalars(call, 0));
  const double growth = Attr<kAttrs, "growth_factor">(call.attrs), backoff = Attr<kAttrs, "backoff_factor">(call.attrs);
  const int64_t interval = Attr<kAttrs, "growth_interval">(call.attrs);
  if (!(growth >= 1 && std::isfinite(growth)))
    return UserError("growth_factor is ", growth, "; it must be finite, at least 1");
  if (!(backoff > 0 && backoff <= 1))
    return UserError("backoff_factor is ", backoff, "; it must be above 0, at most 1");
  if (interval < 1 || interval > INT32_MAX)
    return UserError("growth_interval is ", interval, "; it must be 1 to 2^31 - 1");
  results->push_back(*call.operands[0]);
  results->push_back(*call.operands[1]);
  return absl::OkStatus();
}
// A scale that would grow out of range stays.
absl::Status ExpandUpdate(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &scale = call.operands[0], &tracker = call.operands[1];
  const Value bad = Reshape(b, Compare(b, Direction::kGt, call.operands[2], 0), {});
  if (!bad) return b.status();
  const auto like = [&](const Value& flag, const Value& x) { return Reshape(b, flag, x.dims()); };
  const Value next = Add(b, tracker, 1);
  const Value full = Compare(b, Direction::kGe, next, static_cast<double>(Attr<kAttrs, "growth_interval">(call.attrs)));
  const Value grown = Mul(b, scale, Attr<kAttrs, "growth_factor">(call.attrs));
  const Value grows = And(b, like(full, scale), Unary(b, kOp_is_finite, grown));
  const Value finite = Select(b, grows, grown, scale);
  results[0] = Select(b, like(bad, scale), Mul(b, scale, Attr<kAttrs, "backoff_factor">(call.attrs)), finite);
  results[1] = Select(b, Either(b, like(bad, tracker), full), FullLike(b, tracker, 0), next);
  return b.status();
}

constexpr Sample kUnscales[] = {{"T[2,3] T[] T[]"}, {"T[0] T[] T[]"}, {"T[131] T[] T[]", 0.5, 2}};
constexpr Sample kUpdates[] = {{"f32[] i32[]<0:5> f32[]", -1, 0, false},
                               {"f32[] i32[]<0:5> f32[] growth_interval=1", 0.5, 2, false},
                               {"f64[1] i64[1]<3:4> f64[1] growth_interval=4 growth_factor=4", -2, -1, false}};

}  // namespace

constinit const OpDef kOp_amp_non_finite_check_and_unscale = Formula({
    .name = "weft.amp_non_finite_check_and_unscale",
    .c_name = "amp_non_finite_check_and_unscale",
    .doc =
        "A gradient of a scaled loss times inverse_scale, and whether it, or one before it, has an element that is not "
        "finite: 1 where found was above 0 or one is, as a scalar like found. Nothing is read on the host.",
    .example = "g = wf_amp_non_finite_check_and_unscale(s, g, found, inverse_scale, .out_found = &found);",
    .operands = kGradients,
    .results = kUnscaled,
    .infer = InferUnscale,
    .expand = ExpandUnscale,
    .samples = kUnscales,
});
constinit const OpDef kOp_amp_update_scale = Formula({
    .name = "weft.amp_update_scale",
    .c_name = "amp_update_scale",
    .doc =
        "The scale of the next step of mixed precision, and the steps since it changed: smaller after a step in which "
        "something was not finite, larger after growth_interval steps in a row that were. Nothing is read on the host.",
    .example = "scale = wf_amp_update_scale(s, scale, tracker, found, .out_tracker = &tracker);",
    .operands = kScales,
    .attrs = kAttrs,
    .results = kNext,
    .infer = InferUpdate,
    .expand = ExpandUpdate,
    .samples = kUpdates,
});

}  // namespace weft::ops
