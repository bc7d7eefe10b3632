// Recording: operations, gradients, assignments and updates become nodes. Nothing here computes, but for the cuts that
// the policy or the eager modes ask for.
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "src/autodiff/gradient.h"
#include "src/lazy/engine.h"
#include "src/ops/call.h"

namespace weft::lazy {
namespace {

absl::Status WithPosition(absl::Status status, ir::Location location) {
  if (location.file != 0 && !status.GetPayload(kPayloadPosition).has_value()) {
    status.SetPayload(kPayloadPosition, absl::Cord(ir::ToString(location)));
  }
  return status;
}

// What stands for an operation in signatures where many were recorded at once.
constexpr char kGradientTag = 0;
constexpr char kUpdateTag = 0;

// What was recorded is told apart by where its description lies in this library: the same in every run.
uint32_t Signature(const void* what, const ir::Type& type) {
  const uint64_t place = reinterpret_cast<uintptr_t>(what) - reinterpret_cast<uintptr_t>(&kGradientTag);
  uint64_t hash = place + static_cast<uint32_t>(type.dtype);
  for (int64_t dim : type.dims) hash = (hash ^ static_cast<uint64_t>(dim)) * 0x9E3779B97F4A7C15u;
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

// Where the operation takes the generator's state; callers do not count it.
size_t StateOperand(const ir::OpDef& op) {
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i].supplied) return i;
  }
  return op.operands.size();
}

// What the caller's i-th operand is called.
std::string_view OperandName(const ir::OpDef& op, size_t i) {
  if (op.operands.empty()) return "an operand";
  if (op.random && i >= StateOperand(op)) ++i;
  return op.operands[std::min(i, op.operands.size() - 1)].name;
}

// An upper bound, the same for every device: 64 random bits an element.
uint64_t RandomBlocks(std::span<const ir::Value> results) {
  uint64_t blocks = 1;
  for (const ir::Value& result : results) blocks += static_cast<uint64_t>(result.type().count()) / 2 + 1;
  return blocks;
}

}  // namespace

absl::Status Engine::Record(const ir::OpDef& op, std::span<Tensor* const> operands, ir::Attrs attrs,
                            ir::Location location, Tensors* results, Device* device) {
  Tensors made;
  ir::Values kept;  // operands, for the checks of debug mode
  Lock lock(*this);
  DeviceState* state = nullptr;
  const auto refuse = [&](const absl::Status& status) {
    absl::Status named(status.code(), absl::StrCat(op.c_name, ": ", status.message()));
    named.SetPayload(kPayloadOperation, absl::Cord(op.c_name));
    return WithPosition(std::move(named), location);
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    Tensor* operand = operands[i];
    if (operand == nullptr) continue;
    if (operand->engine_.get() != this || operand->expired_) return refuse(CheckTensor(operand, OperandName(op, i)));
    if (state == nullptr) state = StateOf(operand->device_);
    if (state->device != operand->device_) {
      return refuse(
          UserError("operands are on ", state->device->name, " and ", operand->device_->name,
                    "; make one of them anew on the other device (weft_tensor_to_host, weft_tensor_from_host)"));
    }
  }
  if (closed_ || state == nullptr) {
    WEFT_ASSIGN_OR_RETURN(state, CheckDevice(device));
  }
  CutIfDue(*state);
  ir::Values values;
  for (Tensor* operand : operands) values.push_back(operand != nullptr ? operand->value_ : ir::Value());
  if (op.random) {
    const size_t at = std::min(StateOperand(op), values.size());
    const auto words = generator_.Words();
    values.insert(values.begin() + static_cast<ptrdiff_t>(at),
                  NewLeaf(ir::Type::Tensor(DType::kU64, {3}), MakeRef<Data>(std::span<const uint32_t>(words))));
  }
  if (options_.mode == Mode::kDebug) kept = values;
  ir::Builder b(location);
  ir::Values out = ops::CallAll(b, op, std::move(values), std::move(attrs));
  if (!b.ok()) return WithPosition(b.status(), location);
  absl::Status status = Recorded(*state, b, &op, out);
  if (status.ok() && options_.mode == Mode::kDebug) status = CheckNumbers(op, kept, out);
  if (!status.ok()) return WithPosition(std::move(status), location);
  // Last, so that a call that failed draws the same numbers when it is repeated.
  if (op.random) generator_.Advance(RandomBlocks(out));
  metrics_.Add(Counter::kOperationsRecorded);
  for (ir::Value& value : out) made.push_back(NewTensor(*state, std::move(value), location));
  *results = std::move(made);
  return absl::OkStatus();
}

absl::Status Engine::Recorded(DeviceState& state, const ir::Builder& b, const void* what,
                              std::span<const ir::Value> results) {
  int64_t bytes = 0;
  for (const ir::Value& value : results) {
    if (value.type().is_tensor()) bytes += value.type().bytes();
  }
  metrics_.Add(Counter::kNodesRecorded, b.emitted());
  if (options_.mode == Mode::kLazy) {
    state.policy.Recorded(results.empty() ? 0 : Signature(what, results[0].type()), b.emitted(), bytes);
    return absl::OkStatus();
  }
  return Compute(state, results, CutReason::kEager);
}

void Engine::CutIfDue(DeviceState& state) {
  const std::optional<CutReason> reason = state.policy.Due();
  if (!reason.has_value()) return;
  CollectLive(state, true);
  if (!outputs_.empty()) {
    absl::Status status = MakeRoom(state, 0, /*automatic=*/true);
    if (status.ok()) status = Launch(state, *reason);
    if (!status.ok()) return PostponeCut(state, status);
  }
  state.postponed = false;
  for (Tensor* tensor = state.first; tensor != nullptr; tensor = tensor->next_) tensor->overwritten_ = nullptr;
  state.policy.Cut(*reason);
}

absl::StatusOr<Tensors> Engine::Gradient(Tensor* loss, std::span<Tensor* const> wrt, Tensor* seed,
                                         ir::Location location) {
  Tensors made;
  Lock lock(*this);
  WEFT_RETURN_IF_ERROR(CheckTensor(loss, "grad: y"));
  WEFT_ASSIGN_OR_RETURN(DeviceState * state, CheckDevice(loss->device_));
  if (seed != nullptr) WEFT_RETURN_IF_ERROR(CheckTensor(seed, "grad: cotangent"));
  CutIfDue(*state);
  std::vector<ir::Value> values;
  for (size_t i = 0; i < wrt.size(); ++i) {
    const std::string what = absl::StrCat("grad: xs[", i, "]");
    WEFT_RETURN_IF_ERROR(CheckTensor(wrt[i], what));
    if (wrt[i]->device_ != loss->device_) {
      return WithPosition(UserError(what, " is on ", wrt[i]->device_->name, ", y on ", loss->device_->name), location);
    }
    if (IsFloat(wrt[i]->dtype()) && !wrt[i]->value_.node->needs_gradient()) {
      return WithPosition(UserErrorOf(absl::StatusCode::kFailedPrecondition, what,
                                      " does not require a gradient; call weft_tensor_require_grad on it before "
                                      "it is used"),
                          location);
    }
    values.push_back(wrt[i]->value_);
  }
  ir::Builder b(location);
  absl::StatusOr<std::vector<ir::Value>> found =
      autodiff::Gradient(b, loss->value_, values, seed != nullptr ? seed->value_ : ir::Value());
  if (found.ok() && !loss->value_.node->needs_gradient()) {
    // Zeros would be right and useless: almost always the loss is from before a barrier.
    found = UserErrorOf(absl::StatusCode::kFailedPrecondition,
                        "grad: y does not depend on a tensor that requires a gradient, or a barrier has passed "
                        "since it was recorded; take gradients before weft_sync");
  }
  if (!found.ok()) return WithPosition(found.status(), location);
  WEFT_RETURN_IF_ERROR(Recorded(*state, b, &kGradientTag, *found));
  metrics_.Add(Counter::kGradients);
  for (ir::Value& value : *found) made.push_back(NewTensor(*state, std::move(value), location));
  return made;
}

ir::Value Engine::Detached(ir::Builder& b, const ir::Value& value, bool requires_grad) {
  if (Data* data = DataOf(value)) {
    if (&value.node->op() == &ops::kOp_parameter && value.node->needs_gradient() == requires_grad) return value;
    return NewLeaf(value.type(), Ref<Data>::Share(data), requires_grad);
  }
  if (!requires_grad && !value.node->needs_gradient()) return value;
  ir::Value detached = ops::Call(b, ops::kOp_stop_gradient, {value});
  if (detached) detached.node->set_needs_gradient(requires_grad);
  return detached;
}

absl::Status Engine::SetRequiresGrad(Tensor* tensor, bool on) {
  Lock lock(*this);
  WEFT_RETURN_IF_ERROR(CheckTensor(tensor, "the tensor"));
  if (on && !IsFloat(tensor->dtype())) {
    return UserError("only float tensors can require gradients, not ", ir::ShortType(tensor->type()));
  }
  // An intermediate value on the way from another such tensor keeps its past.
  if (!on || !tensor->value_.node->needs_gradient()) {
    ir::Builder b(tensor->location_);
    ir::Value value = Detached(b, tensor->value_, on);
    WEFT_RETURN_IF_ERROR(b.status());
    tensor->value_ = std::move(value);
  }
  tensor->requires_grad_ = on;
  return absl::OkStatus();
}

void Engine::AssignValue(Tensor& dst, ir::Value value) {
  if (dst.value_) {
    if (Data* data = DataOf(dst.value_); data != nullptr && data->word_count == 0) {
      dst.overwritten_ = Ref<Data>::Share(data);
    }
  }
  dst.value_ = std::move(value);
  dst.assigned_ = true;
  dst.expired_ = dst.set_aside_ = false;
}

absl::Status Engine::Assign(Tensor* dst, Tensor* src, ir::Location location) {
  Lock lock(*this);
  if (dst == nullptr || dst->engine_.get() != this) return CheckTensor(dst, "assign: target");
  WEFT_RETURN_IF_ERROR(CheckTensor(src, "assign: value"));
  if (dst == src) return absl::OkStatus();
  if (!(dst->type() == src->type())) {
    return WithPosition(UserError("assign: target is ", ir::ShortType(dst->type()), ", value ",
                                  ir::ShortType(src->type()), "; dtype and shape must be the same"),
                        location);
  }
  if (dst->device_ != src->device_) {
    return WithPosition(UserError("assign: target is on ", dst->device_->name, ", value on ", src->device_->name),
                        location);
  }
  ir::Builder b(location);
  ir::Value value = Detached(b, src->value_, dst->requires_grad_);
  if (!b.ok()) return WithPosition(b.status(), location);
  if (options_.mode != Mode::kLazy)
    WEFT_RETURN_IF_ERROR(Compute(*StateOf(dst->device_), {&value, 1}, CutReason::kEager));
  AssignValue(*dst, std::move(value));
  return absl::OkStatus();
}

absl::Status Engine::Update(std::span<Tensor* const> operands, std::span<const double> scalars,
                            std::span<Tensor* const> targets, ir::Location location,
                            absl::FunctionRef<absl::Status(const UpdateCall&)> build) {
  Lock lock(*this);
  if (targets.empty()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckTensor(targets[0], "update: target 0"));
  WEFT_ASSIGN_OR_RETURN(DeviceState * state, CheckDevice(targets[0]->device_));
  bool f64 = false;
  for (size_t i = 0; i < operands.size() + targets.size(); ++i) {
    Tensor* tensor = i < operands.size() ? operands[i] : targets[i - operands.size()];
    if (tensor == nullptr && i < operands.size()) continue;
    WEFT_RETURN_IF_ERROR(CheckTensor(tensor, "update: a tensor"));
    if (tensor->device_ != state->device) {
      return WithPosition(UserError("update: tensors are on ", state->device->name, " and ", tensor->device_->name),
                          location);
    }
    f64 = f64 || tensor->dtype() == DType::kF64;
  }
  CutIfDue(*state);
  std::vector<ir::Value> values;
  for (Tensor* operand : operands) values.push_back(operand != nullptr ? operand->value_ : ir::Value());
  std::vector<ir::Value> f32_scalars, f64_scalars;
  for (double scalar : scalars) {
    const uint32_t word = __builtin_bit_cast(uint32_t, static_cast<float>(scalar));
    f32_scalars.push_back(NewLeaf(ir::Type::Scalar(DType::kF32), MakeRef<Data>(std::span(&word, 1))));
    if (!f64) continue;
    const auto bits = __builtin_bit_cast(uint64_t, scalar);
    const uint32_t words[] = {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
    f64_scalars.push_back(NewLeaf(ir::Type::Scalar(DType::kF64), MakeRef<Data>(std::span<const uint32_t>(words))));
  }
  ir::Builder b(location);
  std::vector<ir::Value> out(targets.size());
  WEFT_RETURN_IF_ERROR(build(UpdateCall{b, values, f32_scalars, f64_scalars, out}));
  if (!b.ok()) return WithPosition(b.status(), location);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!out[i] || !(out[i].type() == targets[i]->type())) {
      return InternalError("update: target ", i, " of type ", ir::ShortType(targets[i]->type()), " gets ",
                           out[i] ? ir::ShortType(out[i].type()) : "nothing");
    }
    out[i] = Detached(b, out[i], targets[i]->requires_grad_);
  }
  WEFT_RETURN_IF_ERROR(b.status());
  WEFT_RETURN_IF_ERROR(Recorded(*state, b, &kUpdateTag, out));
  for (size_t i = 0; i < targets.size(); ++i) AssignValue(*targets[i], std::move(out[i]));
  return absl::OkStatus();
}

}  // namespace weft::lazy
