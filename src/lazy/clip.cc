// See clip.h. One factor for all gradients, recorded and never read.
#include "src/lazy/clip.h"

#include <utility>

#include "src/ops/build.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"

namespace weft::lazy {
namespace {

// The norm gets this much before max_norm is divided by it, as in PyTorch.
constexpr double kAboveNorm = 1e-6;

// Calls of a list in which each may use results of earlier ones.
class CallList {
 public:
  // An operand: a tensor, or the only result of an earlier call.
  struct Input {
    Tensor* tensor = nullptr;
    size_t call = 0;
  };

  size_t Add(const ir::OpDef& op, std::span<const Input> inputs, ir::Attrs attrs = {}) {
    calls_.push_back({&op, {inputs.begin(), inputs.end()}, std::move(attrs), true});
    return calls_.size() - 1;
  }
  Input Of(size_t call) const { return {.call = call}; }
  // Keeps a call's result, which then comes out of Record, in the order of the calls.
  void Keep(size_t call) { calls_[call].drop = false; }

  absl::StatusOr<std::vector<Ref<Tensor>>> Record(Engine& engine, Frame* frame, ir::Location location) {
    using Call = Engine::Call;
    std::vector<Call> calls(calls_.size());
    std::vector<std::vector<Tensor*>> operands(calls_.size());
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
    WEFT_RETURN_IF_ERROR(engine.RecordMany(calls, found, location, &failed, frame));
    std::vector<Ref<Tensor>> results;
    for (Call& call : calls) {
      for (Ref<Tensor>& result : call.results) results.push_back(std::move(result));
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

}  // namespace

DType NormType(std::span<const DType> dtypes) {
  for (const DType dtype : dtypes) {
    if (PartOf(dtype) == DType::kF64) return DType::kF64;
  }
  return DType::kF32;
}

// norm = |(|g0|, |g1|, ...)|, each norm in f32 or f64; factor = min(1, max_norm / (norm + 1e-6)), as PyTorch's
// clip_grad_norm_; a clipped gradient is g * factor, rounded once.
absl::StatusOr<std::vector<Ref<Tensor>>> ClipByGlobalNorm(Engine& engine, const Where& where,
                                                          std::span<Tensor* const> grads, double max_norm,
                                                          ir::Location location) {
  using Input = CallList::Input;
  const size_t count = grads.size();
  std::vector<DType> dtypes;
  for (const Tensor* grad : grads) {
    if (grad != nullptr) dtypes.push_back(grad->dtype());
  }
  const DType wide = NormType(dtypes);
  std::vector<Ref<Tensor>> numbers;
  for (const double value : {max_norm, kAboveNorm, 1.0}) {
    WEFT_ASSIGN_OR_RETURN(Ref<Tensor> number, engine.Scalar(where, wide, value, location));
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
  return calls.Record(engine, where.frame, location);
}

ir::Value ClipParts(ir::Builder& b, const StateParts& parts, const ir::Value& max_norm, std::span<ir::Value> grads) {
  ir::Values norms;
  std::vector<DType> dtypes;
  for (const ir::Value& grad : grads) dtypes.push_back(grad.dtype());
  const DType wide = NormType(dtypes);
  const auto computed = [&](const ir::Value& grad) { return ops::Convert(b, grad, ComputeType(grad.dtype())); };
  for (const ir::Value& grad : grads) {
    norms.push_back(ops::Convert(b, ops::Call(b, ops::kOp_norm, {computed(grad)}), wide));
  }
  // One number of each process; their order is that of ranks.
  const ir::Value own = ops::Call(b, ops::kOp_norm, {ops::Call(b, ops::kOp_stack, std::move(norms))});
  if (!b.ok()) return {};
  ir::Value norm = ops::Call(b, ops::kOp_norm, {parts.Gather(b, ops::Reshape(b, own, {1}))});
  const ir::Value above = ops::Add(b, norm, kAboveNorm);
  const ir::Value ratio = ops::Div(b, ops::Convert(b, max_norm, wide), above);
  const ir::Value factor = ops::Minimum(b, ratio, ops::FullLike(b, ratio, 1));
  for (ir::Value& grad : grads) {
    if (!b.ok()) return {};
    const ir::Value by = ops::Convert(b, factor, ComputeType(grad.dtype()));
    grad = ops::Convert(b, ops::Mul(b, computed(grad), ops::BroadcastTo(b, by, grad.dims())), grad.dtype());
  }
  return norm;
}

}  // namespace weft::lazy
