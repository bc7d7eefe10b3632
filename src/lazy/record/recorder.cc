// See recorder.h.
#include "src/lazy/record/recorder.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "src/autodiff/gradient.h"
#include "src/ir/differentiable.h"
#include "src/ir/rewrite.h"
#include "src/ir/text.h"
#include "src/ops/call.h"
#include "src/ops/random/bits.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/philox.h"

namespace weft::lazy {
namespace {

// Identifies a recorded operation by the address of its description within this library: the same in every run.
uint32_t Signature(const void* what, std::span<const ir::Value> results) {
  if (results.empty()) return 0;
  const ir::Type& type = results[0].type();
  const uint64_t place = reinterpret_cast<uintptr_t>(what) - reinterpret_cast<uintptr_t>(&Recorder::kGradientTag);
  uint64_t hash = place + static_cast<uint32_t>(type.dtype);
  for (int64_t dim : type.dims) hash = (hash ^ static_cast<uint64_t>(dim)) * 0x9E3779B97F4A7C15u;
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

// Returns the name of the caller's i-th operand.
std::string_view OperandName(const ir::OpDef& op, size_t i) {
  if (op.operands.empty()) return "an operand";
  if (op.random && i >= StateOperand(op)) ++i;
  return op.operands[std::min(i, op.operands.size() - 1)].name;
}

// "the body of @f, which has been finished".
absl::Status Ended(const Frame& frame) {
  std::string how = "finished";
  if (frame.state() == Frame::State::kAbandoned) how = "abandoned";
  if (frame.state() == Frame::State::kAbandonedAround) {
    how = absl::StrCat("abandoned with ", NameOf(frame.parent.get()), " around it");
  }
  return UserErrorOf(absl::StatusCode::kFailedPrecondition, NameOf(&frame), ", which has been ", how);
}

absl::Status Apart(const Frame* a, const Frame* b) {
  return UserError("tensors of ", NameOf(a), " and of ", NameOf(b), " cannot meet: neither body is inside the other");
}

// Tells whether a barrier is why the value has no gradient. Walks everything that the value is made of: for the text of
// an error.
bool ForgotGradient(const ir::Value& value) {
  std::vector<const ir::Node*> open = {value.node.get()};
  HashSet<const ir::Node*> seen(open.begin(), open.end());
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

}  // namespace

absl::Status WithPosition(absl::Status status, ir::Location location) {
  if (location.file != 0 && !status.GetPayload(kPayloadPosition).has_value()) {
    return WithDetail(status, kPayloadPosition, ir::ToString(location));
  }
  return status;
}

size_t StateOperand(const ir::OpDef& op) {
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i].supplied) return i;
  }
  return op.operands.size();
}

// --- The lock ------------------------------------------------------------------------------------------------------------

Recorder::Lock::Lock(Recorder& recorder, To to, Replay::Miss why) : recorder_(recorder) {
  if (recorder.services_.HasEnded()) recorder.owner_.PutBackEnded();
  Enter();
  if (to != To::kChange) return;
  try {
    recorder.Interrupt(why);
  } catch (...) {
    Leave();
    throw;
  }
}

Recorder::Lock::~Lock() { Leave(); }

void Recorder::Lock::Enter() {
  recorder_.services_.StartsWork();  // a fork may come while it is held
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

void Recorder::AddDead(const Tensor* tensor) {
  Tensor* dead = dead_.load(std::memory_order_relaxed);
  do {
    tensor->next_dead_ = dead;
  } while (!dead_.compare_exchange_weak(dead, const_cast<Tensor*>(tensor), std::memory_order_release,
                                        std::memory_order_relaxed));
}

void Recorder::Release(const Tensor* tensor) {
  AddDead(tensor);
  // The lock's holder buries the dead; if nobody does, memory goes back at once. In a fork's child nobody does any
  // more: what the parent's threads held when it was made stays so.
  if (!services_.fork().Forked()) TryBury();
}

void Recorder::TryBury() {
  // The lock's holder looks again when it lets go.
  while (dead_.load(std::memory_order_acquire) != nullptr && !Services::Locked() && mutex_.TryLock()) {
    Services::Locked() = true;
    Bury();
    Services::Locked() = false;
    mutex_.Unlock();
    services_.RunReleases();
  }
}

void Recorder::Bury() {
  if (dead_.load(std::memory_order_relaxed) == nullptr) return;
  for (MeshState& state : meshes_) state.Land();
  Tensor* tensor = dead_.exchange(nullptr, std::memory_order_acquire);
  while (tensor != nullptr) {
    Tensor* next = tensor->next_dead_;
    if (tensor->borrowed_ > 0) {
      tensor->dead_ = true;
    } else {
      if (tensor->frame_ == nullptr) StateOf(tensor->sharding_).live.Remove(tensor);
      delete tensor;
      metrics_.AddAlone(Counter::kTensorsReleased);
    }
    tensor = next;
  }
}

void Recorder::KeepBorrowed(std::span<Tensor* const> tensors) {
  Held();
  for (Tensor* tensor : tensors) {
    if (tensor != nullptr) ++tensor->borrowed_;
  }
}

void Recorder::LetGoOfBorrowed(std::span<Tensor* const> tensors) {
  Held();
  for (Tensor* tensor : tensors) {
    // The borrower goes on under the lock: buried when it is let go of.
    if (tensor != nullptr && --tensor->borrowed_ == 0 && std::exchange(tensor->dead_, false)) AddDead(tensor);
  }
}

// --- Devices and tensors -------------------------------------------------------------------------------------------------

MeshState& Recorder::AddMesh(std::vector<Device*> devices, ir::Mesh axes, compiler::ProgramCache* programs,
                             const Options& options) {
  MeshState& state = meshes_.emplace_back(std::move(devices), std::move(axes), programs, shared_metrics_);
  state.policy.Configure(options);
  state.replay = std::make_unique<Replay>(*this, state);
  // A step that is launched as before has no graph to write, and no operations to compute.
  const bool builds = options.graphs != nullptr || options.sync_op_by_op;
  if (options.replay && !builds && options.mode == Mode::kLazy) state.replay->Enable();
  return state;
}

MeshState* Recorder::FindMesh(std::span<Device* const> devices, const ir::Mesh& axes) {
  Held();
  const auto found = std::ranges::find_if(meshes_, [&](const MeshState& state) {
    return state.mesh.axes() == axes && std::ranges::equal(state.mesh.devices(), devices);
  });
  return found == meshes_.end() ? nullptr : &*found;
}

absl::Status Recorder::CheckOpen() const {
  if (closed()) return UserErrorOf(absl::StatusCode::kFailedPrecondition, "the context has been closed");
  return absl::OkStatus();
}

absl::StatusOr<MeshState*> Recorder::CheckPlace(const Placement& sharding) {
  WEFT_RETURN_IF_ERROR(CheckOpen());
  return &StateOf(sharding);
}

absl::StatusOr<Place> Recorder::CheckWhere(const Where& where) {
  WEFT_RETURN_IF_ERROR(CheckOpen());
  Frame* frame = where.frame;
  if (frame != nullptr && !frame->open()) return Ended(*frame);
  if (!where.names()) {
    MeshState* const usual = default_ != nullptr ? default_ : &meshes_.front();
    return Place{frame != nullptr ? &frame->place : usual, frame};
  }
  const auto found = std::ranges::find_if(meshes_, [&](const MeshState& state) {
    if (where.mesh != nullptr) return &state.mesh == where.mesh;
    return state.mesh.alone() && state.mesh.devices()[0] == where.device;
  });
  const std::string name = where.mesh != nullptr ? where.mesh->name() : where.device->name;
  if (found == meshes_.end()) return UserError(name, " does not belong to this context");
  if (frame != nullptr && &*found != &frame->place) {
    return UserError(NameOf(frame), " is for ", frame->place.mesh.name(), ", not for ", name);
  }
  return Place{&*found, frame};
}

absl::Status Recorder::CheckTensor(const Tensor* tensor, std::string_view what) const {
  if (tensor == nullptr) return UserError(what, " is null");
  if (&tensor->owner() != &owner_) return UserError(what, " belongs to another context");
  if (tensor->state.expired && tensor->state.donated) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, what,
                       " was donated to a function that ran; use what came out, or assign a value to it");
  }
  if (tensor->state.expired) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, what,
                       " is a scope's temporary that a barrier left behind; keep it before weft_sync");
  }
  if (tensor->frame_ != nullptr && !tensor->frame_->open()) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, what, " belongs to ", Ended(*tensor->frame_).message());
  }
  return absl::OkStatus();
}

absl::Status Recorder::CheckProgram(const Frame* frame, std::string_view what) {
  if (frame == nullptr) return absl::OkStatus();
  return UserErrorOf(
      absl::StatusCode::kFailedPrecondition, what, " in ", NameOf(frame),
      ": nothing has a value while a function is recorded; finish it, and ask for the results of a call");
}

absl::Status Recorder::CheckKnowable(const Tensor* tensor, std::string_view what) const {
  WEFT_RETURN_IF_ERROR(CheckTensor(tensor, what));
  return CheckProgram(tensor->frame_.get(), what);
}

void Tensor::Destroy(const Tensor* tensor) {
  const Ref<Owner> owner = tensor->owner_;
  owner->Released(tensor);
}

Tensor::Tensor(Ref<Owner> owner, Ref<Frame> frame, const Placement& sharding, const ir::Type& type)
    : owner_(std::move(owner)), frame_(std::move(frame)), sharding_(sharding), type_(type) {}

Tensor::~Tensor() { Show({}); }

ir::Value Recorder::NewLeaf(const ir::Type& type, Ref<Data> data, bool needs_gradient) {
  Ref<const ir::Node> node = ir::Node::Create(ops::kOp_parameter, {}, {}, {type});
  if (needs_gradient) node->set_needs_gradient();
  node->set_payload(std::move(data));
  return {std::move(node), 0};
}

Ref<Tensor> Recorder::NewTensor(const Place& place, ir::Value value, ir::Location location) {
  Held();
  Ref<Frame> frame = place.frame != nullptr ? Ref<Frame>::Share(place.frame) : nullptr;
  auto* tensor = new Tensor(Ref<Owner>::Share(&owner_), std::move(frame), place.state->whole(), value.type());
  metrics_.AddAlone(Counter::kTensorsMade);
  tensor->state.maker = &value.node->op();
  tensor->state.born = barriers_;
  Show(*tensor, std::move(value));
  tensor->state.location = location;
  if (place.frame == nullptr) place.state->live.Append(tensor);
  return Ref<Tensor>(tensor);
}

Ref<Tensor> Recorder::NewDeferred(const Place& place, const Replay::Result& result, ir::Location location) {
  Held();
  auto* tensor = new Tensor(Ref<Owner>::Share(&owner_), nullptr, place.state->whole(), result.type);
  metrics_.AddAlone(Counter::kTensorsMade);
  tensor->state.maker = result.maker;
  tensor->state.born = barriers_;
  Show(*tensor, {});
  place.state->replay->Number(*tensor, result.number);
  tensor->state.location = location;
  place.state->live.Append(tensor);
  return Ref<Tensor>(tensor);
}

// --- Functions -----------------------------------------------------------------------------------------------------------

absl::StatusOr<Ref<Frame>> Recorder::Begin(const Where& where, std::string name, std::span<const ir::Type> inputs,
                                           ir::Location location, Tensors* parameters) {
  WEFT_ASSIGN_OR_RETURN(const Place around, CheckWhere(where));
  Ref<Frame> parent = around.frame != nullptr ? Ref<Frame>::Share(around.frame) : nullptr;
  if (parent != nullptr && parent->depth >= ir::kMaxRegionDepth) {
    return UserError("the function @", name, ": bodies nest deeper than ", ir::kMaxRegionDepth);
  }
  Ref<Frame> frame = MakeRef<Frame>(std::move(parent), *around.state, std::move(name));
  for (const ir::Type& type : inputs) {
    frame->inputs.push_back({ir::Node::Create(ops::kOp_parameter, {}, {}, {type}, nullptr, location), 0});
    parameters->push_back(NewTensor({around.state, frame.get()}, frame->inputs.back(), location));
  }
  frame->Open();
  return frame;
}

absl::StatusOr<Recorder::Finished> Recorder::Finish(Frame& frame, std::span<Tensor* const> outputs) {
  if (!frame.open()) return Ended(frame);
  if (frame.open_inside() > 0) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, NameOf(&frame), ": ", frame.open_inside(),
                       " bodies inside it are neither finished nor abandoned");
  }
  std::vector<ir::Value> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string what = absl::StrCat("output ", i, " of @", frame.name);
    WEFT_RETURN_IF_ERROR(CheckTensor(outputs[i], what));
    if (Deeper(&frame, outputs[i]->frame_.get()) != &frame) {
      return UserError(what, " belongs to ", NameOf(outputs[i]->frame_.get()));
    }
    results.push_back(ValueIn(&frame, outputs[i]));
  }
  Finished finished;
  std::vector<ir::Value> parameters = frame.inputs;
  for (const Frame::Capture& capture : frame.captures()) {
    parameters.push_back(capture.parameter);
    finished.captures.push_back(capture.tensor);
  }
  finished.draws = !(frame.drawn == GeneratorState{});
  if (finished.draws) parameters.push_back(frame.Stream());
  // The function gets nodes of its own: a finished function goes through threads that hold no lock.
  const Ref<const ir::Function> body = ir::Function::Create(frame.name, parameters, std::move(results));
  finished.function = ir::Intern(ir::OwnNodes(*body));
  frame.End(Frame::State::kFinished);
  return finished;
}

void Recorder::Abandon(Frame& frame) {
  if (frame.open()) frame.End(Frame::State::kAbandoned);
}

ir::Value Recorder::ValueIn(Frame* frame, const Tensor* tensor) {
  if (tensor == nullptr) return {};
  ir::Value value = tensor->value();
  if (tensor->frame_.get() == frame) return value;
  // The frames from the outside in: each body captures what the one around it has.
  std::vector<Frame*> within;
  for (Frame* at = frame; at != tensor->frame_.get(); at = at->parent.get()) within.push_back(at);
  for (; !within.empty(); within.pop_back()) {
    Frame& inner = *within.back();
    ir::Value parameter = inner.Captured(value);
    if (!parameter) {
      Ref<Tensor> captured = NewTensor({&inner.place, inner.parent.get()}, value, tensor->state.location);
      captured->state.step = tensor->state.step;
      captured->state.number = tensor->state.number;
      parameter = inner.AddCapture(value, std::move(captured));
    }
    value = std::move(parameter);
  }
  return value;
}

// --- Nodes ---------------------------------------------------------------------------------------------------------------

absl::StatusOr<Place> Recorder::PlaceOf(const ir::OpDef& op, std::span<Tensor* const> operands, ir::Location location,
                                        const Where& where) {
  const Tensor* first = nullptr;
  Frame* frame = where.frame;
  const auto refuse = [&](const absl::Status& status) {
    const absl::Status named(status.code(), absl::StrCat(op.c_name, ": ", status.message()));
    return WithPosition(WithDetail(named, kPayloadOperation, op.c_name), location);
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor* operand = operands[i];
    if (operand == nullptr) continue;
    if (&operand->owner() != &owner_ || operand->state.expired || operand->frame_ != nullptr) {
      if (const absl::Status status = CheckTensor(operand, OperandName(op, i)); !status.ok()) return refuse(status);
    }
    if (operand->frame_.get() != frame) {
      const std::optional<Frame*> deeper = Deeper(frame, operand->frame_.get());
      if (!deeper.has_value()) return refuse(Apart(frame, operand->frame_.get()));
      frame = *deeper;
    }
    if (first == nullptr) first = operand;
    if (!(first->sharding_ == operand->sharding_)) {
      return refuse(UserError("operands are on ", first->sharding_.mesh().name(), " and ",
                              operand->sharding_.mesh().name(),
                              "; copy one of them to the other device (weft_tensor_copy_to)"));
    }
  }
  if (first == nullptr) return CheckWhere(where);
  if (closed()) return CheckOpen();
  MeshState& state = StateOf(first->sharding_);
  if (frame != nullptr) {
    if (!frame->open()) return refuse(Ended(*frame));
    if (&frame->place != &state) {
      return refuse(
          UserError("operands are on ", state.mesh.name(), ", ", NameOf(frame), " is for ", frame->place.mesh.name()));
    }
  }
  return Place{&state, frame};
}

ir::Values Recorder::Operation(ir::Builder& b, Frame* frame, const ir::OpDef& op, std::span<Tensor* const> operands,
                               ir::Attrs&& attrs, ir::RegionSpan regions, Draw* draw) {
  ir::Values values;
  for (const Tensor* operand : operands) {
    if (operand != nullptr && operand->frame_.get() == frame) {
      values.push_back(operand->value_);
    } else {
      values.push_back(ValueIn(frame, operand));
    }
  }
  if (!op.random && regions.empty()) return ops::CallAll(b, op, std::move(values), std::move(attrs), regions);
  return Drawing(b, frame, op, std::move(values), std::move(attrs), regions, draw);
}

ir::Values Recorder::Drawing(ir::Builder& b, Frame* frame, const ir::OpDef& op, ir::Values values, ir::Attrs&& attrs,
                             ir::RegionSpan regions, Draw* draw) {
  const GeneratorState before = DrawnIn(frame);
  GeneratorState after = before;
  int64_t largest = 0;
  if (op.random) {
    for (const ir::Value& value : values) {
      if (value) largest = std::max(largest, value.type().count());
    }
    const size_t at = std::min(StateOperand(op), values.size());
    values.insert(values.begin() + static_cast<ptrdiff_t>(at), StateAt(b, frame, after));
  }
  for (size_t i = 0; !regions.empty() && i < values.size(); ++i) {
    if (values[i]) continue;
    values[i] = StreamAt(b, frame, after);
    after.Advance(1);
  }
  ir::Values out = ops::CallAll(b, op, std::move(values), std::move(attrs), regions);
  if (!b.ok()) return out;
  if (op.random) after.Advance(ops::RandomBlocks(static_cast<uint64_t>(largest), out));
  *draw = {frame, before, after};
  DrawnIn(frame) = after;
  return out;
}

ir::Value Recorder::StateAt(ir::Builder& b, Frame* frame, const GeneratorState& at) {
  if (frame == nullptr) {
    const auto words = at.Words();
    // Others may have drawn since it was made.
    for (const ir::Value& next : next_states_) {
      if (DataOf(next)->words == words) return next;
    }
    return NewLeaf(ir::Type::Tensor(DType::kU64, {3}), MakeRef<Data>(std::span<const uint32_t>(words)));
  }
  // Nobody draws 2^64 blocks in one body.
  return at.counter_low == 0 ? frame->Stream() : ops::StateAt(b, frame->Stream(), ops::U64(b, at.counter_low));
}

namespace {

ir::Value StateLeaf(const GeneratorState& state) {
  const auto words = state.Words();
  return Recorder::NewLeaf(ir::Type::Tensor(DType::kU64, {3}), MakeRef<Data>(std::span<const uint32_t>(words)));
}

// Returns the stream that a call draws which is recorded at this state of the program's generator.
GeneratorState StreamHere(const GeneratorState& at) {
  const auto [words] = Philox(at.key, at.counter_low, at.counter_high);
  const auto join = [](uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; };
  return {.key = join(words[0], words[1]), .counter_high = join(words[2], words[3])};
}

}  // namespace

const ir::Value& Recorder::NextState::Make() {
  return recorder_.next_states_.emplace_back(StateLeaf(recorder_.generator));
}

const ir::Value& Recorder::NextState::MakeStream(uint64_t n) {
  GeneratorState at = recorder_.generator;
  at.Advance(n);
  return recorder_.next_states_.emplace_back(StateLeaf(StreamHere(at)));
}

ir::Value Recorder::StreamAt(ir::Builder& b, Frame* frame, const GeneratorState& at) {
  if (frame != nullptr) return ops::StreamOf(b, frame->Stream(), ops::U64(b, at.counter_low));
  return StateAt(b, frame, StreamHere(at));
}

void Recorder::Undraw(const Draw& draw) {
  GeneratorState& now = DrawnIn(draw.frame);
  if (now == draw.after) now = draw.before;
}

absl::StatusOr<Place> Recorder::PlaceOfGradient(const Tensor* loss, std::span<Tensor* const> wrt, const Tensor* seed) {
  WEFT_RETURN_IF_ERROR(CheckTensor(loss, "grad: y"));
  if (seed != nullptr) WEFT_RETURN_IF_ERROR(CheckTensor(seed, "grad: cotangent"));
  WEFT_ASSIGN_OR_RETURN(MeshState * state, CheckPlace(loss->sharding_));
  std::optional<Frame*> frame = Deeper(loss->frame_.get(), seed != nullptr ? seed->frame_.get() : nullptr);
  for (size_t i = 0; i < wrt.size() && frame.has_value(); ++i) {
    WEFT_RETURN_IF_ERROR(CheckTensor(wrt[i], absl::StrCat("grad: xs[", i, "]")));
    frame = Deeper(*frame, wrt[i]->frame_.get());
  }
  if (!frame.has_value()) {
    return UserError("grad: y is of ", NameOf(loss->frame_.get()),
                     ", another of the tensors of a body that is neither inside it nor around it");
  }
  return Place{state, *frame};
}

absl::StatusOr<std::vector<ir::Value>> Recorder::Gradient(ir::Builder& b, Frame* frame, Tensor& loss,
                                                          std::span<Tensor* const> wrt, Tensor* seed,
                                                          ir::Location location) {
  std::vector<ir::Value> values;
  for (size_t i = 0; i < wrt.size(); ++i) {
    const std::string what = absl::StrCat("grad: xs[", i, "]");
    if (!(wrt[i]->sharding_ == loss.sharding_)) {
      return WithPosition(
          UserError(what, " is on ", wrt[i]->sharding_.mesh().name(), ", y on ", loss.sharding_.mesh().name()),
          location);
    }
    // In a body any float will do: nothing there has a past that a barrier could take.
    if (frame == nullptr && ir::CarriesGradient(wrt[i]->dtype()) && !wrt[i]->value().node->needs_gradient()) {
      return WithPosition(UserErrorOf(absl::StatusCode::kFailedPrecondition, what,
                                      " does not require a gradient; call weft_tensor_require_grad on it before "
                                      "it is used"),
                          location);
    }
    values.push_back(ValueIn(frame, wrt[i]));
  }
  absl::StatusOr<std::vector<ir::Value>> found =
      autodiff::Gradient(b, ValueIn(frame, &loss), values, ValueIn(frame, seed));
  if (found.ok() && frame == nullptr && !loss.value().node->needs_gradient()) {
    // Zeros would be right and useless.
    found = UserErrorOf(
        absl::StatusCode::kFailedPrecondition,
        ForgotGradient(loss.value())
            ? "grad: y depends on values from before a barrier, which let go of what they were made of; take gradients "
              "before weft_sync"
            : "grad: y does not depend on any tensor that requires a gradient: it was recorded from others than xs, or "
              "before weft_tensor_require_grad was called on them, or what lies between stops gradients, as "
              "weft_tensor_assign does (weft_tensor_copy_from lets them through)");
  }
  if (!found.ok()) return WithPosition(found.status(), location);
  return found;
}

absl::StatusOr<Place> Recorder::PlaceOfOpGradient(const OpGradientCall& call) {
  const Tensor* first = nullptr;
  Frame* frame = nullptr;
  const auto add = [&](std::string_view list, std::span<Tensor* const> tensors) -> absl::Status {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor* tensor = tensors[i];
      if (tensor == nullptr) continue;
      const std::string what = absl::StrCat("the gradient of ", call.op.c_name, ": ", list, "[", i, "]");
      WEFT_RETURN_IF_ERROR(CheckTensor(tensor, what));
      const std::optional<Frame*> deeper = Deeper(frame, tensor->frame_.get());
      if (!deeper.has_value()) return Apart(frame, tensor->frame_.get());
      frame = *deeper;
      if (first == nullptr) first = tensor;
      if (first->sharding_ == tensor->sharding_) continue;
      return UserError(what, " is on ", tensor->sharding_.mesh().name(), ", others on ", first->sharding_.mesh().name(),
                       "; see weft_tensor_copy_to");
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(add("inputs", call.inputs));
  WEFT_RETURN_IF_ERROR(add("results", call.results));
  WEFT_RETURN_IF_ERROR(add("cotangents", call.cotangents));
  if (first == nullptr) return CheckWhere({});
  WEFT_ASSIGN_OR_RETURN(MeshState * state, CheckPlace(first->sharding_));
  return Place{state, frame};
}

absl::StatusOr<std::vector<ir::Value>> Recorder::OpGradient(ir::Builder& b, Frame* frame, const OpGradientCall& call,
                                                            ir::Attrs&& attrs) {
  const auto values = [&](std::span<Tensor* const> tensors) {
    std::vector<ir::Value> all;
    for (const Tensor* tensor : tensors) all.push_back(ValueIn(frame, tensor));
    return all;
  };
  const std::vector<ir::Value> inputs = values(call.inputs), results = values(call.results),
                               cotangents = values(call.cotangents);
  return autodiff::OpGradient(b, {call.op, inputs, std::move(attrs), results, cotangents, call.wanted});
}

void Recorder::Count(const Place& place, const ir::Builder& b, const void* what, std::span<const ir::Value> results,
                     bool pending) {
  Held();
  metrics_.AddAlone(Counter::kNodesRecorded, counted_ = b.emitted());
  if (!pending || place.frame != nullptr) return;
  int64_t bytes = 0;
  for (const ir::Value& value : results) {
    if (value.type().is_tensor()) bytes += value.type().bytes();
  }
  place.state->policy.Recorded(Signature(what, results), b.emitted(), bytes);
}

void Recorder::CountRecorded(MeshState& state, const ir::Builder& b, Replay::Kind kind, const ir::OpDef* op,
                             std::span<const ir::Value> results, int64_t nodes) {
  if (kind == Replay::Kind::kAssign || kind == Replay::Kind::kAlias || kind == Replay::Kind::kLiteral) return;
  if (kind == Replay::Kind::kOpGradient && results.empty()) return;
  const bool gradient = kind == Replay::Kind::kGradient || kind == Replay::Kind::kOpGradient;
  const void* tag = gradient ? &kGradientTag : &kUpdateTag;
  Count(Place{&state}, b, kind == Replay::Kind::kOperation ? op : tag, results, true);
  metrics_.AddAlone(Counter::kNodesRecorded, -nodes);
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

ir::Value Recorder::Assigned(ir::Builder& b, const ir::Value& value, bool requires_grad, Past past) {
  if (past == Past::kCut) return Detached(b, value, requires_grad);
  return requires_grad && !value.node->needs_gradient() ? Detached(b, value, true) : value;
}

absl::Status Recorder::SetRequiresGrad(Tensor& tensor, bool on) {
  if (tensor.frame_ != nullptr) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "require_grad in ", NameOf(tensor.frame_.get()),
                       ": weft_grad takes any float or complex tensor there");
  }
  if (on && !ir::CarriesGradient(tensor.dtype())) {
    return UserError("only float and complex tensors can require gradients, not ", ir::ShortType(tensor.type()));
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

absl::StatusOr<ir::Value> Recorder::Assignable(const Tensor& dst, const Tensor& src, Past past, ir::Location location) {
  if (!(dst.type() == src.type())) {
    return WithPosition(UserError(NameOf(past), ": target is ", ir::ShortType(dst.type()), ", value ",
                                  ir::ShortType(src.type()), "; dtype and shape must be the same"),
                        location);
  }
  if (!(dst.sharding_ == src.sharding_)) {
    return WithPosition(UserError(NameOf(past), ": target is on ", dst.sharding_.mesh().name(), ", value on ",
                                  src.sharding_.mesh().name()),
                        location);
  }
  if (Deeper(dst.frame_.get(), src.frame_.get()) != dst.frame_.get()) {
    return WithPosition(UserError(NameOf(past), ": the target belongs to ", NameOf(dst.frame_.get()), ", the value to ",
                                  NameOf(src.frame_.get()),
                                  "; a body changes nothing outside: give the value out as a result of the function"),
                        location);
  }
  if (dst.frame_ != nullptr && !dst.frame_->open()) {
    return WithPosition(CheckTensor(&dst, absl::StrCat(NameOf(past), ": the target")), location);
  }
  ir::Builder b(location);
  ir::Value value = ValueIn(dst.frame_.get(), &src);
  if (dst.frame_ == nullptr) {
    value = Assigned(b, value, dst.state.requires_grad, past);
  } else if (past == Past::kCut &&
             ir::CarriesGradient(value.dtype())) {  // nothing has a mark there: all may be asked for
    value = ops::Call(b, ops::kOp_stop_gradient, {value});
  }
  if (!b.ok()) return WithPosition(b.status(), location);
  return value;
}

void Recorder::Assign(Tensor& dst, ir::Value value) {
  if (dst.value()) {
    if (Data* data = DataOf(dst.value())) {
      dst.state.overwritten = Ref<Data>::Share(data);
    } else if (dst.frame_ == nullptr && !dst.state.assigned) {
      dst.state.unmade = dst.value();
    }
  }
  Show(dst, std::move(value));
  if (dst.state.assignments == 0) dst.state.assignments = ++StateOf(dst.sharding_).assignments;
  dst.state.again = dst.state.assigned;
  dst.state.assigned = true;
  dst.state.expired = dst.state.donated = dst.state.set_aside = false;
}

}  // namespace weft::lazy
