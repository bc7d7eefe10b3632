// See recorder.h.
#include "src/lazy/recorder.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "src/autodiff/gradient.h"
#include "src/lazy/engine.h"
#include "src/ops/call.h"

namespace weft::lazy {
namespace {

// What was recorded is told apart by where its description lies in this library: the same in every run.
uint32_t Signature(const void* what, std::span<const ir::Value> results) {
  if (results.empty()) return 0;
  const ir::Type& type = results[0].type();
  const uint64_t place = reinterpret_cast<uintptr_t>(what) - reinterpret_cast<uintptr_t>(&Recorder::kGradientTag);
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

// Whether a barrier is why the value has no gradient. Walks all that it is made of: for the text of an error.
bool ForgotGradient(const ir::Value& value) {
  std::vector<const ir::Node*> open = {value.node.get()};
  absl::flat_hash_set<const ir::Node*> seen(open.begin(), open.end());
  while (!open.empty()) {
    const ir::Node& node = *open.back();
    open.pop_back();
    for (uint32_t i = 0; i < node.results().size(); ++i) {
      const Data* data = DataOf(node, i);
      if (data != nullptr && data->forgot_gradient) return true;
    }
    for (const ir::Value& operand : node.operands()) {
      if (operand && seen.insert(operand.node.get()).second) open.push_back(operand.node.get());
    }
  }
  return false;
}

ir::Value ValueOf(const Tensor* tensor) { return tensor != nullptr ? tensor->value() : ir::Value(); }

}  // namespace

absl::Status WithPosition(absl::Status status, ir::Location location) {
  if (location.file != 0 && !status.GetPayload(kPayloadPosition).has_value()) {
    status.SetPayload(kPayloadPosition, absl::Cord(ir::ToString(location)));
  }
  return status;
}

// --- The lock ------------------------------------------------------------------------------------------------------------

Recorder::Lock::Lock(Recorder& recorder) : recorder_(recorder), engine_(Ref<Engine>::Share(&recorder.engine_)) {
  Enter();
}

Recorder::Lock::~Lock() { Leave(); }

void Recorder::Lock::Enter() {
  recorder_.mutex_.Lock();
  Services::Locked() = true;
  recorder_.Bury();
}

void Recorder::Lock::Leave() {
  Services::Locked() = false;
  recorder_.mutex_.Unlock();
  recorder_.services_.RunReleases();
  // Tensors released by others while the lock was held.
  if (recorder_.dead_.load(std::memory_order_acquire) != nullptr) recorder_.TryBury();
  recorder_.services_.FlushLog();
}

void Recorder::Release(const Tensor* tensor) {
  Tensor* dead = dead_.load(std::memory_order_relaxed);
  do {
    tensor->next_dead_ = dead;
  } while (!dead_.compare_exchange_weak(dead, const_cast<Tensor*>(tensor), std::memory_order_release,
                                        std::memory_order_relaxed));
  // Whoever holds the lock buries the dead; if nobody does, memory goes back at once.
  TryBury();
}

void Recorder::TryBury() {
  // Who holds the lock looks again when it lets go.
  while (dead_.load(std::memory_order_acquire) != nullptr && !Services::Locked() && mutex_.TryLock()) {
    Services::Locked() = true;
    Bury();
    Services::Locked() = false;
    mutex_.Unlock();
    services_.RunReleases();
  }
}

void Recorder::Bury() {
  Tensor* tensor = dead_.exchange(nullptr, std::memory_order_acquire);
  while (tensor != nullptr) {
    Tensor* next = tensor->next_dead_;
    StateOf(tensor->device_)->live.Remove(tensor);
    delete tensor;
    tensor = next;
  }
}

// --- Devices and tensors -------------------------------------------------------------------------------------------------

void Recorder::AddDevice(Device* device, Backend* backend, compiler::ProgramCache* programs, const Options& options) {
  DeviceState& state = devices_.emplace_back();
  state.device = device;
  state.backend = backend;
  state.programs = programs;
  state.policy.Configure(options);
}

DeviceState* Recorder::StateOf(const Device* device) {
  for (DeviceState& state : devices_) {
    if (state.device == device) return &state;
  }
  return nullptr;
}

absl::StatusOr<DeviceState*> Recorder::CheckDevice(const Device* device) {
  if (closed()) return UserErrorOf(absl::StatusCode::kFailedPrecondition, "the context has been closed");
  DeviceState* state = device == nullptr ? &devices_.front() : StateOf(device);
  if (state == nullptr) return UserError("the device ", device->name, " does not belong to this context");
  return state;
}

absl::Status Recorder::CheckTensor(const Tensor* tensor, std::string_view what) const {
  if (tensor == nullptr) return UserError(what, " is null");
  if (&tensor->engine() != &engine_) return UserError(what, " belongs to another context");
  if (tensor->state.expired) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, what,
                       " is a scope's temporary that a barrier left behind; keep it before weft_sync");
  }
  return absl::OkStatus();
}

Tensor::Tensor(Ref<Engine> engine, Device* device, const ir::Type& type)
    : engine_(std::move(engine)), device_(device), type_(type) {}

Tensor::~Tensor() { Show({}); }

ir::Value Recorder::NewLeaf(const ir::Type& type, Ref<Data> data, bool needs_gradient) {
  Ref<const ir::Node> node = ir::Node::Create(ops::kOp_parameter, {}, {}, {type});
  if (needs_gradient) node->set_needs_gradient();
  node->set_payload(std::move(data));
  return {std::move(node), 0};
}

Ref<Tensor> Recorder::NewTensor(DeviceState& state, ir::Value value, ir::Location location) {
  auto* tensor = new Tensor(Ref<Engine>::Share(&engine_), state.device, value.type());
  Show(*tensor, std::move(value));
  tensor->state.location = location;
  state.live.Append(tensor);
  return Ref<Tensor>(tensor);
}

// --- Nodes ---------------------------------------------------------------------------------------------------------------

absl::StatusOr<DeviceState*> Recorder::PlaceOf(const ir::OpDef& op, std::span<Tensor* const> operands,
                                               ir::Location location, Device* device) {
  const Device* place = nullptr;
  const auto refuse = [&](const absl::Status& status) {
    absl::Status named(status.code(), absl::StrCat(op.c_name, ": ", status.message()));
    named.SetPayload(kPayloadOperation, absl::Cord(op.c_name));
    return WithPosition(std::move(named), location);
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor* operand = operands[i];
    if (operand == nullptr) continue;
    if (&operand->engine() != &engine_ || operand->state.expired)
      return refuse(CheckTensor(operand, OperandName(op, i)));
    if (place == nullptr) place = operand->device_;
    if (place != operand->device_) {
      return refuse(
          UserError("operands are on ", place->name, " and ", operand->device_->name,
                    "; make one of them anew on the other device (weft_tensor_to_host, weft_tensor_from_host)"));
    }
  }
  return CheckDevice(place != nullptr ? place : device);
}

ir::Values Recorder::Operation(ir::Builder& b, const ir::OpDef& op, std::span<Tensor* const> operands,
                               ir::Attrs&& attrs) {
  ir::Values values;
  for (Tensor* operand : operands) values.push_back(ValueOf(operand));
  if (op.random) {
    const size_t at = std::min(StateOperand(op), values.size());
    const auto words = generator.Words();
    values.insert(values.begin() + static_cast<ptrdiff_t>(at),
                  NewLeaf(ir::Type::Tensor(DType::kU64, {3}), MakeRef<Data>(std::span<const uint32_t>(words))));
  }
  ir::Values out = ops::CallAll(b, op, std::move(values), std::move(attrs));
  if (op.random && b.ok()) generator.Advance(RandomBlocks(out));
  return out;
}

void Recorder::Undraw(std::span<const ir::Value> results, const GeneratorState& before) {
  GeneratorState after = before;
  after.Advance(RandomBlocks(results));
  if (generator == after) generator = before;
}

absl::StatusOr<std::vector<ir::Value>> Recorder::Gradient(ir::Builder& b, Tensor& loss, std::span<Tensor* const> wrt,
                                                          Tensor* seed, ir::Location location) {
  std::vector<ir::Value> values;
  for (size_t i = 0; i < wrt.size(); ++i) {
    const std::string what = absl::StrCat("grad: xs[", i, "]");
    WEFT_RETURN_IF_ERROR(CheckTensor(wrt[i], what));
    if (wrt[i]->device_ != loss.device_) {
      return WithPosition(UserError(what, " is on ", wrt[i]->device_->name, ", y on ", loss.device_->name), location);
    }
    if (IsFloat(wrt[i]->dtype()) && !wrt[i]->value().node->needs_gradient()) {
      return WithPosition(UserErrorOf(absl::StatusCode::kFailedPrecondition, what,
                                      " does not require a gradient; call weft_tensor_require_grad on it before "
                                      "it is used"),
                          location);
    }
    values.push_back(wrt[i]->value());
  }
  absl::StatusOr<std::vector<ir::Value>> found = autodiff::Gradient(b, loss.value(), values, ValueOf(seed));
  if (found.ok() && !loss.value().node->needs_gradient()) {
    // Zeros would be right and useless.
    found = UserErrorOf(
        absl::StatusCode::kFailedPrecondition,
        ForgotGradient(loss.value())
            ? "grad: y depends on values from before a barrier, which let go of what they were made of; take gradients "
              "before weft_sync"
            : "grad: y does not depend on any tensor that requires a gradient; call weft_tensor_require_grad on xs "
              "before y is recorded from them");
  }
  if (!found.ok()) return WithPosition(found.status(), location);
  return found;
}

void Recorder::Count(DeviceState& state, const ir::Builder& b, const void* what, std::span<const ir::Value> results,
                     bool pending) {
  metrics_.Add(Counter::kNodesRecorded, b.emitted());
  if (!pending) return;
  int64_t bytes = 0;
  for (const ir::Value& value : results) {
    if (value.type().is_tensor()) bytes += value.type().bytes();
  }
  state.policy.Recorded(Signature(what, results), b.emitted(), bytes);
}

ir::Value Recorder::Detached(ir::Builder& b, const ir::Value& value, bool requires_grad) {
  if (Data* data = DataOf(value)) {
    if (&value.node->op() == &ops::kOp_parameter && value.node->needs_gradient() == requires_grad) return value;
    return NewLeaf(value.type(), Ref<Data>::Share(data), requires_grad);
  }
  if (!requires_grad && !value.node->needs_gradient()) return value;
  ir::Value detached = ops::Call(b, ops::kOp_stop_gradient, {value});
  if (detached) detached.node->set_needs_gradient(requires_grad);
  return detached;
}

absl::Status Recorder::SetRequiresGrad(Tensor& tensor, bool on) {
  if (on && !IsFloat(tensor.dtype())) {
    return UserError("only float tensors can require gradients, not ", ir::ShortType(tensor.type()));
  }
  // An intermediate value on the way from another such tensor keeps its past.
  if (!on || !tensor.value().node->needs_gradient()) {
    ir::Builder b(tensor.state.location);
    ir::Value value = Detached(b, tensor.value(), on);
    WEFT_RETURN_IF_ERROR(b.status());
    Show(tensor, std::move(value));
  }
  tensor.state.requires_grad = on;
  return absl::OkStatus();
}

absl::StatusOr<ir::Value> Recorder::Assignable(const Tensor& dst, const Tensor& src, ir::Location location) const {
  if (!(dst.type() == src.type())) {
    return WithPosition(UserError("assign: target is ", ir::ShortType(dst.type()), ", value ",
                                  ir::ShortType(src.type()), "; dtype and shape must be the same"),
                        location);
  }
  if (dst.device_ != src.device_) {
    return WithPosition(UserError("assign: target is on ", dst.device_->name, ", value on ", src.device_->name),
                        location);
  }
  ir::Builder b(location);
  ir::Value value = Detached(b, src.value(), dst.state.requires_grad);
  if (!b.ok()) return WithPosition(b.status(), location);
  return value;
}

void Recorder::Assign(Tensor& dst, ir::Value value) {
  if (dst.value()) {
    if (Data* data = DataOf(dst.value()); data != nullptr && data->word_count == 0) {
      dst.state.overwritten = Ref<Data>::Share(data);
    }
  }
  Show(dst, std::move(value));
  dst.state.assigned = true;
  dst.state.expired = dst.state.set_aside = false;
}

absl::StatusOr<DeviceState*> Recorder::PlaceOfUpdate(std::span<Tensor* const> operands,
                                                     std::span<Tensor* const> targets, ir::Location location) {
  WEFT_RETURN_IF_ERROR(CheckTensor(targets[0], "update: target 0"));
  WEFT_ASSIGN_OR_RETURN(DeviceState * state, CheckDevice(targets[0]->device_));
  for (size_t i = 0; i < operands.size() + targets.size(); ++i) {
    const Tensor* tensor = i < operands.size() ? operands[i] : targets[i - operands.size()];
    if (tensor == nullptr && i < operands.size()) continue;
    WEFT_RETURN_IF_ERROR(CheckTensor(tensor, "update: a tensor"));
    if (tensor->device_ != state->device) {
      return WithPosition(UserError("update: tensors are on ", state->device->name, " and ", tensor->device_->name),
                          location);
    }
  }
  return state;
}

absl::StatusOr<std::vector<ir::Value>> Recorder::Update(ir::Builder& b, std::span<Tensor* const> operands,
                                                        std::span<const double> scalars,
                                                        std::span<Tensor* const> targets, ir::Location location,
                                                        UpdateFn build) {
  bool f64 = false;
  for (const Tensor* tensor : operands) f64 = f64 || (tensor != nullptr && tensor->dtype() == DType::kF64);
  for (const Tensor* tensor : targets) f64 = f64 || tensor->dtype() == DType::kF64;
  std::vector<ir::Value> values;
  for (const Tensor* operand : operands) values.push_back(ValueOf(operand));
  std::vector<ir::Value> f32_scalars, f64_scalars;
  for (double scalar : scalars) {
    const uint32_t word = __builtin_bit_cast(uint32_t, static_cast<float>(scalar));
    f32_scalars.push_back(NewLeaf(ir::Type::Scalar(DType::kF32), MakeRef<Data>(std::span(&word, 1))));
    if (!f64) continue;
    const auto bits = __builtin_bit_cast(uint64_t, scalar);
    const uint32_t words[] = {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
    f64_scalars.push_back(NewLeaf(ir::Type::Scalar(DType::kF64), MakeRef<Data>(std::span<const uint32_t>(words))));
  }
  std::vector<ir::Value> out(targets.size());
  WEFT_RETURN_IF_ERROR(build(UpdateCall{b, values, f32_scalars, f64_scalars, out}));
  if (!b.ok()) return WithPosition(b.status(), location);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!out[i] || !(out[i].type() == targets[i]->type())) {
      return InternalError("update: target ", i, " of type ", ir::ShortType(targets[i]->type()), " gets ",
                           out[i] ? ir::ShortType(out[i].type()) : "nothing");
    }
    out[i] = Detached(b, out[i], targets[i]->state.requires_grad);
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return out;
}

}  // namespace weft::lazy
