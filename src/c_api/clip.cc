// weft_clip_by_global_norm: one factor for all gradients, recorded and never read.
#include <cmath>

#include "src/c_api/context.h"
#include "src/c_api/op_call.h"
#include "src/ir/differentiable.h"
#include "src/ops/build.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/generated/attributes.h"
#include "weft.h"

namespace weft::c_api {
namespace {

// Calls of a list in which each may use results of earlier ones.
class CallList {
 public:
  // An operand: a tensor, or the only result of an earlier call.
  struct Input {
    lazy::Tensor* tensor = nullptr;
    size_t call = 0;
  };

  size_t Add(const ir::OpDef& op, std::span<const Input> inputs, ir::Attrs attrs = {}) {
    calls_.push_back({&op, {inputs.begin(), inputs.end()}, std::move(attrs), true});
    return calls_.size() - 1;
  }
  Input Of(size_t call) const { return {.call = call}; }
  // Keeps a call's result, which then comes out of Record, in the order of the calls.
  void Keep(size_t call) { calls_[call].drop = false; }

  absl::StatusOr<std::vector<Ref<lazy::Tensor>>> Record(lazy::Engine& engine, lazy::Frame* frame) {
    using Call = lazy::Engine::Call;
    std::vector<Call> calls(calls_.size());
    std::vector<std::vector<lazy::Tensor*>> operands(calls_.size());
    std::vector<std::vector<Call::Earlier>> earlier(calls_.size());
    for (size_t i = 0; i < calls_.size(); ++i) {
      for (size_t j = 0; j < calls_[i].inputs.size(); ++j) {
        const Input& input = calls_[i].inputs[j];
        operands[i].push_back(input.tensor);
        if (input.tensor == nullptr) earlier[i].push_back({.operand = j, .call = input.call, .result = 0});
      }
      calls[i].op = calls_[i].op;
      calls[i].operands = operands[i];
      calls[i].earlier = earlier[i];
      calls[i].attrs = std::move(calls_[i].attrs);
      calls[i].drop = calls_[i].drop;
    }
    size_t failed = 0;
    const auto found = [] { return absl::OkStatus(); };
    WEFT_RETURN_IF_ERROR(engine.RecordMany(calls, found, CurrentLocation(engine), &failed, frame));
    std::vector<Ref<lazy::Tensor>> results;
    for (Call& call : calls) {
      for (Ref<lazy::Tensor>& result : call.results) results.push_back(std::move(result));
    }
    return results;
  }

 private:
  struct Planned {
    const ir::OpDef* op;
    std::vector<Input> inputs;
    ir::Attrs attrs;
    bool drop;
  };
  std::vector<Planned> calls_;
};

ir::Attrs To(DType dtype) {
  ir::Attrs attrs;
  attrs.set(ops::ConvertAttrs::kDtype, dtype);
  return attrs;
}

// norm = |(|g0|, |g1|, ...)|, each norm in f32 or f64; factor = min(1, max_norm / (norm + 1e-6)), as PyTorch's
// clip_grad_norm_; a clipped gradient is g * factor, rounded once.
absl::StatusOr<std::vector<Ref<lazy::Tensor>>> Clip(const Context& context, const TensorList& grads, size_t count,
                                                    double max_norm) {
  using Input = CallList::Input;
  DType wide = DType::kF32;  // of the norm
  const lazy::Tensor* first = nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (grads[i] == nullptr) continue;
    if (first == nullptr) first = grads[i];
    if (PartOf(grads[i]->dtype()) == DType::kF64) wide = DType::kF64;
  }
  lazy::Engine& engine = context.engine();
  std::vector<Ref<lazy::Tensor>> numbers;
  const lazy::Where where = context.frame() != nullptr ? context.where() : lazy::Where(&first->sharding().mesh());
  for (const double value : {max_norm, 1e-6, 1.0}) {
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> number, engine.Scalar(where, wide, value, CurrentLocation(engine)));
    numbers.push_back(std::move(number));
  }
  CallList calls;
  std::vector<Input> norms, wides(count);
  for (size_t i = 0; i < count; ++i) {
    if (grads[i] == nullptr) continue;
    const DType own = grads[i]->dtype();
    wides[i] = {.tensor = grads[i]};
    if (ComputeType(own) != own) wides[i] = calls.Of(calls.Add(ops::kOp_convert, {{wides[i]}}, To(ComputeType(own))));
    Input norm = calls.Of(calls.Add(ops::kOp_norm, {{wides[i]}}));
    if (PartOf(ComputeType(own)) != wide) norm = calls.Of(calls.Add(ops::kOp_convert, {{norm}}, To(wide)));
    norms.push_back(norm);
  }
  const size_t norm = calls.Add(ops::kOp_norm, {{calls.Of(calls.Add(ops::kOp_stack, norms))}});
  calls.Keep(norm);
  const Input above = calls.Of(calls.Add(ops::kOp_add, {{calls.Of(norm), Input{numbers[1].get()}}}));
  const Input ratio = calls.Of(calls.Add(ops::kOp_div, {{Input{numbers[0].get()}, above}}));
  const Input factor = calls.Of(calls.Add(ops::kOp_minimum, {{ratio, Input{numbers[2].get()}}}));
  for (size_t i = 0; i < count; ++i) {
    if (grads[i] == nullptr) continue;
    const DType own = grads[i]->dtype(), computed = ComputeType(own);
    const Input by = computed == wide ? factor : calls.Of(calls.Add(ops::kOp_convert, {{factor}}, To(computed)));
    size_t clipped = calls.Add(ops::kOp_mul, {{wides[i], by}});
    if (computed != own) clipped = calls.Add(ops::kOp_convert, {{calls.Of(clipped)}}, To(own));
    calls.Keep(clipped);
  }
  return calls.Record(engine, context.frame());
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_clip_by_global_norm(weft_context* ctx, weft_tensor* const* grads, size_t count, double max_norm,
                                     weft_tensor** out_grads, weft_tensor** out_norm) noexcept {
  return Guard([&]() -> absl::Status {
    const FloatScope floats;  // constants are computed here
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    if (!(max_norm >= 0)) return UserError("max_norm is ", max_norm, "; it must be 0 or more");
    WEFT_NOT_NULL(out_grads);
    TensorList list;
    WEFT_RETURN_IF_ERROR(GetOptionalTensors(grads, count, "grads", &list));
    bool any = false;
    for (size_t i = 0; i < count; ++i) {
      if (list[i] == nullptr) continue;
      any = true;
      if (&list[i]->engine() != &context->engine()) return UserError("grads[", i, "] belongs to another context");
      if (ir::CarriesGradient(list[i]->dtype())) continue;
      return UserError("grads[", i, "] is ", ir::ShortType(list[i]->type()), "; it must be a float or complex");
    }
    if (!any)
      return UserError("there is no gradient: count is ", count, count == 0 ? "" : " and every grads[i] is NULL");
    WEFT_ASSIGN_OR_RETURN(std::vector<Ref<lazy::Tensor>> results, Clip(*context, list, count, max_norm));
    std::vector<weft_tensor*> made;
    WEFT_RETURN_IF_ERROR(MakeTensors(results, &made));
    size_t next = 1;
    for (size_t i = 0; i < count; ++i) out_grads[i] = list[i] == nullptr ? nullptr : made[next++];
    if (out_norm != nullptr) {
      *out_norm = made[0];
    } else {
      weft_tensor_release(made[0]);
    }
    return absl::OkStatus();
  });
}

}  // extern "C"
