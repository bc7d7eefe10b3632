// Evaluation: cuts the pending graph, launches it, and hangs what was computed on the nodes. Everything that can fail
// does so before the first kernel and before anything here has changed, so that a failed call may be repeated.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/lazy/engine.h"
#include "src/ops/registry.h"
#include "src/runtime/clock.h"

namespace weft::lazy {
namespace {

using compiler::Trace;

constexpr Counter kReasonCounters[] = {Counter::kCutHostRead, Counter::kCutBarrier,    Counter::kCutEval,
                                       Counter::kCutNodes,    Counter::kCutRepetition, Counter::kCutBytes,
                                       Counter::kCutEager};

bool IsKnown(const ir::Node& node) {
  for (uint32_t i = 0; i < node.results().size(); ++i) {
    if (DataOf(node, i) == nullptr) return false;
  }
  return true;
}

void Bind(const ir::Node& node, uint32_t result, Ref<Data> data) {
  if (node.results().size() == 1) return node.set_payload(std::move(data));
  if (!node.payload()) {
    Ref<DataList> list = MakeRef<DataList>();
    list->results.resize(node.results().size());
    node.set_payload(std::move(list));
  }
  static_cast<DataList*>(node.payload().get())->results[result] = std::move(data);
}

}  // namespace

absl::Status Engine::BuildTrace(std::span<const ir::Value> outputs) {
  trace_.Clear();
  arguments_.clear();
  stack_.clear();
  const uint64_t epoch = ++epoch_;
  const ir::Walk walk;
  auto push = [&](const ir::Value& value) {
    if (DataOf(value) == nullptr && walk.Mark(*value.node, 0)) stack_.emplace_back(value.node.get(), 0);
  };
  auto reference = [&](const ir::Value& value) -> Trace::Reference {
    if (!value) return Trace::kAbsent;
    Data* data = DataOf(value);
    if (data == nullptr) return Trace::OfValue(walk.At(*value.node) + value.result);
    if (data->argument_epoch != epoch) {
      data->argument_epoch = epoch;
      data->argument = static_cast<uint32_t>(arguments_.size());
      arguments_.push_back(data);
      trace_.arguments.push_back({value.node.get(), value.result, data->word_count, -1});
      trace_.words += data->word_count;
    }
    return Trace::OfArgument(data->argument);
  };
  for (const ir::Value& output : outputs) {
    push(output);
    while (!stack_.empty()) {
      const ir::Node* node = stack_.back().first;
      const std::span<const ir::Value> operands = node->operands();
      const uint32_t next = stack_.back().second++;
      if (next < operands.size()) {
        if (operands[next]) push(operands[next]);
        continue;
      }
      stack_.pop_back();
      for (const ir::Value& operand : operands) trace_.operands.push_back(reference(operand));
      walk.Set(*node, trace_.values);
      trace_.values += static_cast<uint32_t>(node->results().size());
      trace_.nodes.push_back(node);
    }
  }
  for (const ir::Value& output : outputs) trace_.outputs.push_back(reference(output));
  for (const Data* data : arguments_) {
    if (data->word_count == 0 && data->shards.empty()) {
      return InternalError("a value that a launch has taken over is still referred to");
    }
  }
  return absl::OkStatus();
}

size_t Engine::FindOutput(const ir::Walk& walk, const ir::Value& value) const {
  size_t at = outputs_.size();
  if (walk.Mark(*value.node, static_cast<uint32_t>(at))) return at;
  // The node's first output; another result of it comes later.
  at = walk.At(*value.node);
  while (at < outputs_.size() && !(outputs_[at] == value)) ++at;
  return at;
}

void Engine::AddOutput(const ir::Value& value, Tensor* owner) {
  outputs_.push_back(value);
  owners_.push_back(owner);
}

void Engine::CollectLive(DeviceState& state, bool temporaries_too) {
  outputs_.clear();
  owners_.clear();
  const ir::Walk walk;
  for (Tensor* tensor = state.first; tensor != nullptr; tensor = tensor->next_) {
    if (tensor->expired_ || tensor->set_aside_ || DataOf(tensor->value_) != nullptr) continue;
    if (tensor->scoped_ && !tensor->assigned_ && !temporaries_too) continue;
    // Two tensors may show one value.
    const size_t at = FindOutput(walk, tensor->value_);
    if (at == outputs_.size()) {
      AddOutput(tensor->value_, tensor);
    } else if (tensor->overwritten_ && !owners_[at]->overwritten_) {
      owners_[at] = tensor;
    }
  }
}

void Engine::CollectShared(DeviceState& state, std::span<const ir::Value> values) {
  outputs_.clear();
  owners_.clear();
  {
    const ir::Walk walk;
    for (const ir::Value& value : values) {
      if (DataOf(value) == nullptr && FindOutput(walk, value) == outputs_.size()) AddOutput(value, nullptr);
    }
  }
  const size_t asked = outputs_.size();
  // Nodes needed for the values, users after operands, with how often they are used among themselves. Whatever else
  // refers to a node (a tensor, a pending operation outside) will want it later and must not compute it again.
  const ir::Walk walk;
  std::vector<const ir::Node*> found;
  std::vector<uint32_t> uses;
  auto visit = [&](const ir::Value& v) {
    if (DataOf(v) != nullptr) return;
    if (walk.Mark(*v.node, static_cast<uint32_t>(found.size()))) {
      found.push_back(v.node.get());
      uses.push_back(0);
    }
  };
  for (const ir::Value& value : outputs_) visit(value);
  // How often a node is among the outputs: these refer to it as well.
  std::vector<uint32_t> wanted(found.size());
  for (const ir::Value& value : outputs_) ++wanted[walk.At(*value.node)];
  for (size_t i = 0; i < found.size(); ++i) {
    for (const ir::Value& operand : found[i]->operands()) {
      if (!operand || DataOf(operand) != nullptr) continue;
      visit(operand);
      ++uses[walk.At(*operand.node)];
    }
  }
  wanted.resize(found.size());
  // Newest first: users before operands.
  std::vector<uint32_t> order(found.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return found[a]->id() > found[b]->id(); });
  for (uint32_t i : order) {
    const ir::Node& node = *found[i];
    if (node.ref_count() <= uses[i] + wanted[i]) continue;
    if (node.op().cheap_again && wanted[i] == 0) {
      for (const ir::Value& operand : node.operands()) {
        if (operand && DataOf(operand) == nullptr) uses[walk.At(*operand.node)] = 0;
      }
      continue;
    }
    for (uint32_t result = 0; result < node.results().size(); ++result) {
      ir::Value output{Ref<const ir::Node>::Share(&node), result};
      if (DataOf(output) != nullptr || !output.type().is_tensor()) continue;
      // Asked for already? A node with one result is if it is wanted at all; of others there are few.
      const auto end = outputs_.begin() + static_cast<ptrdiff_t>(asked);
      if (wanted[i] > 0 && (node.results().size() == 1 || std::find(outputs_.begin(), end, output) != end)) continue;
      AddOutput(output, nullptr);
    }
  }
  // What nobody asked for is a matter of speed; if it cannot be stored either way, the launch says so.
  if (outputs_.size() > asked) (void)MakeRoom(state, asked, /*automatic=*/false);
}

void Engine::ChooseDonations(DeviceState& state) {
  const uint64_t epoch = epoch_;
  const ir::Walk walk;
  for (Tensor* tensor = state.first; tensor != nullptr; tensor = tensor->next_) {
    if (tensor->expired_) continue;
    if (Data* data = DataOf(tensor->value_)) {
      data->live_epoch = epoch;
    } else if (tensor->set_aside_) {
      KeepLeavesOf(tensor->value_, walk);
    }
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (owners_[i] == nullptr || !owners_[i]->overwritten_) continue;
    const Data& data = *owners_[i]->overwritten_;
    if (data.argument_epoch != epoch || data.live_epoch == epoch || data.shards.size() != 1) continue;
    if (data.shards[0]->held() || !(trace_.arguments[data.argument].type() == outputs_[i].type())) continue;
    if (trace_.arguments[data.argument].donated_to < 0) {
      trace_.arguments[data.argument].donated_to = static_cast<int32_t>(i);
    }
  }
}

absl::Status Engine::Launch(DeviceState& state, CutReason reason) {
  WEFT_RETURN_IF_ERROR(BuildTrace(outputs_));
  if (reason == CutReason::kBarrier) ChooseDonations(state);
  const absl::StatusOr<const compiler::Program*> found = state.programs->Get(trace_);
  if (!found.ok()) {
    // A barrier or an automatic cut must go through without what is at fault; who asks for a value by name learns why.
    const bool asked = reason == CutReason::kHostRead || reason == CutReason::kEval || reason == CutReason::kEager;
    return asked || absl::IsResourceExhausted(found.status()) ? OutOfMemory(found.status())
                                                              : SetAside(state, found.status());
  }
  const compiler::Program* program = *found;
  WEFT_RETURN_IF_ERROR(CheckRoom(state, program->executable->stats().temporary_bytes));

  StartsWork();
  const int64_t start = MonotonicNow();
  words_.clear();
  buffers_.clear();
  donated_.clear();
  int64_t donations = 0;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Data& data = *arguments_[i];
    if (data.word_count > 0) {
      words_.insert(words_.end(), data.words.begin(), data.words.begin() + data.word_count);
      continue;
    }
    const bool donated = trace_.arguments[i].donated_to >= 0;
    donations += donated ? 1 : 0;
    buffers_.push_back(data.shards[0]);
    donated_.push_back(donated ? 1 : 0);
  }
  const DeviceArguments arguments{buffers_, words_, donated_};
  absl::StatusOr<std::vector<DeviceResults>> launched = program->executable->Execute({&arguments, 1});
  buffers_.clear();
  if (!launched.ok()) return OutOfMemory(launched.status());
  DeviceResults& results = launched->front();
  if (results.buffers.size() != outputs_.size()) {
    return InternalError("a launch gave ", results.buffers.size(), " results for ", outputs_.size(), " outputs");
  }
  // From here on nothing fails.
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const ir::Value& output = outputs_[i];
    Bind(*output.node, output.result, MakeRef<Data>(std::move(results.buffers[i])));
  }
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (trace_.arguments[i].donated_to >= 0) arguments_[i]->shards.clear();
  }
  state.last_event = std::move(results.done);

  metrics_.Add(Counter::kNanosecondsLaunching, MonotonicNow() - start);
  metrics_.Add(Counter::kCuts);
  metrics_.Add(kReasonCounters[static_cast<size_t>(reason)]);
  metrics_.Add(Counter::kCutOutputs, static_cast<int64_t>(outputs_.size()));
  metrics_.Add(Counter::kCutNodesComputed, static_cast<int64_t>(trace_.nodes.size()));
  metrics_.Add(Counter::kLaunches);
  metrics_.Add(Counter::kKernelLaunches, program->executable->stats().kernels);
  metrics_.Add(Counter::kBuffersDonated, donations);

  if (reason == CutReason::kHostRead || reason == CutReason::kEval) {
    state.policy.Computed(static_cast<int64_t>(trace_.nodes.size()));
  }

  // Pasts that no gradient can ask for may die now; the arguments' nodes with them.
  trace_.Clear();
  arguments_.clear();
  for (const ir::Value& output : outputs_) {
    const ir::Node& node = *output.node;
    if (node.needs_gradient() && &node.op() != &ops::kOp_stop_gradient) continue;
    if (IsKnown(node)) node.ForgetOperands();
  }
  outputs_.clear();
  owners_.clear();
  return absl::OkStatus();
}

absl::Status Engine::Compute(DeviceState& state, std::span<const ir::Value> values, CutReason reason) {
  outputs_.clear();
  owners_.clear();
  const ir::Walk walk;
  for (const ir::Value& value : values) {
    if (DataOf(value) == nullptr && FindOutput(walk, value) == outputs_.size()) AddOutput(value, nullptr);
  }
  return outputs_.empty() ? absl::OkStatus() : Launch(state, reason);
}

absl::Status Engine::SyncDevice(DeviceState& state) {
  CollectLive(state, false);
  if (!outputs_.empty()) WEFT_RETURN_IF_ERROR(Launch(state, CutReason::kBarrier));
  for (Tensor* tensor = state.first; tensor != nullptr; tensor = tensor->next_) {
    tensor->overwritten_ = nullptr;
    tensor->assigned_ = false;
    if (tensor->expired_) continue;
    ir::Value& value = tensor->value_;
    if (Data* data = DataOf(value)) {
      if (&value.node->op() != &ops::kOp_parameter || value.node->needs_gradient() != tensor->requires_grad_) {
        value = NewLeaf(tensor->type_, Ref<Data>::Share(data), tensor->requires_grad_);
      }
    } else if (!tensor->set_aside_) {
      tensor->expired_ = true;
      value = ir::Value();
      metrics_.Add(Counter::kTemporariesExpired);
    }
  }
  state.policy.Cut(CutReason::kBarrier);
  return absl::OkStatus();
}

namespace {

// Done when all are; the first failure is the outcome.
Ref<Event> Join(std::vector<Ref<Event>> events) {
  if (events.empty()) return Event::Done();
  if (events.size() == 1) return std::move(events[0]);
  struct Joint final : RefCounted {
    std::atomic<size_t> left{0};
    std::mutex mutex;
    absl::Status status;
    Ref<Event> done = MakeRef<Event>();
  };
  Ref<Joint> joint = MakeRef<Joint>();
  joint->left = events.size();
  for (const Ref<Event>& event : events) {
    event->OnDone([joint](const absl::Status& status) {
      {
        std::lock_guard lock(joint->mutex);
        joint->status.Update(status);
      }
      if (joint->left.fetch_sub(1) == 1) joint->done->Complete(joint->status);
    });
  }
  return joint->done;
}

}  // namespace

absl::StatusOr<Ref<Event>> Engine::Sync(Device* device) {
  Lock lock(*this);
  WEFT_ASSIGN_OR_RETURN(DeviceState * only, CheckDevice(device));
  std::vector<Ref<Event>> events;
  for (DeviceState& state : devices_) {
    if (device != nullptr && &state != only) continue;
    WEFT_RETURN_IF_ERROR(SyncDevice(state));
    if (state.last_event) events.push_back(state.last_event);
  }
  return Join(std::move(events));
}

absl::StatusOr<Ref<Event>> Engine::Eval(std::span<Tensor* const> tensors) {
  Lock lock(*this);
  for (Tensor* tensor : tensors) WEFT_RETURN_IF_ERROR(CheckTensor(tensor, "eval: a tensor"));
  std::vector<Ref<Event>> events;
  for (DeviceState& state : devices_) {
    std::vector<ir::Value> values;
    for (Tensor* tensor : tensors) {
      if (tensor->device_ == state.device) values.push_back(tensor->value_);
    }
    if (values.empty()) continue;
    if (closed_) WEFT_RETURN_IF_ERROR(CheckDevice(state.device).status());
    CollectShared(state, values);
    if (!outputs_.empty()) WEFT_RETURN_IF_ERROR(Launch(state, CutReason::kEval));
    if (state.last_event) events.push_back(state.last_event);
  }
  return Join(std::move(events));
}

absl::StatusOr<Data*> Engine::Materialize(Tensor& tensor, CutReason reason) {
  if (Data* data = DataOf(tensor.value_)) return data;
  WEFT_ASSIGN_OR_RETURN(DeviceState * state, CheckDevice(tensor.device_));
  CollectShared(*state, {&tensor.value_, 1});
  WEFT_RETURN_IF_ERROR(Launch(*state, reason));
  return DataOf(tensor.value_);
}

absl::Status Engine::Read(Tensor* tensor, int64_t offset, std::span<std::byte> destination, std::string_view what) {
  Ref<Buffer> buffer;
  Backend* backend = nullptr;
  {
    Lock lock(*this);
    WEFT_RETURN_IF_ERROR(CheckTensor(tensor, absl::StrCat(what, ": the tensor")));
    const int64_t bytes = tensor->type_.bytes();
    const auto size = static_cast<int64_t>(destination.size());
    if (offset < 0 || size > bytes || offset > bytes - size) {
      return UserError(what, ": bytes ", offset, " to ", offset + size, " of a tensor ", ir::ShortType(tensor->type_),
                       ", which has ", bytes);
    }
    WEFT_ASSIGN_OR_RETURN(Data * data, Materialize(*tensor, CutReason::kHostRead));
    if (data->word_count > 0) {
      // Little-endian words: 64-bit elements lie as they are, narrower ones have a word each.
      const int64_t width = BytesOf(tensor->dtype());
      const auto* words = reinterpret_cast<const std::byte*>(data->words.data());
      for (int64_t i = 0; i < size; ++i) {
        const int64_t at = offset + i;
        destination[static_cast<size_t>(i)] = words[width >= 4 ? at : at / width * 4 + at % width];
      }
      return absl::OkStatus();
    }
    buffer = data->shards[0];
    buffer->Hold();
    backend = StateOf(tensor->device_)->backend;
  }
  const int64_t start = MonotonicNow();
  absl::Status status = WaitFor(buffer->ready());
  if (status.ok() || buffer->ready().done()) status = backend->FromDevice(*buffer, offset, destination);
  buffer->Unhold();
  RunReleases();
  metrics_.Add(Counter::kNanosecondsWaiting, MonotonicNow() - start);
  metrics_.Add(Counter::kBytesFromDevice, static_cast<int64_t>(destination.size()));
  return status;
}

absl::Status Engine::ToHost(Tensor* tensor, std::span<std::byte> destination) {
  if (tensor != nullptr && static_cast<int64_t>(destination.size()) != tensor->type().bytes()) {
    return UserError("read: ", ir::ShortType(tensor->type()), " has ", tensor->type().bytes(),
                     " bytes, the destination ", destination.size());
  }
  return Read(tensor, 0, destination, "read");
}

absl::Status Engine::ReadBytes(Tensor* tensor, int64_t offset, std::span<std::byte> destination) {
  return Read(tensor, offset, destination, "read");
}

absl::StatusOr<Ref<Buffer>> Engine::ToBuffer(Tensor* tensor) {
  Lock lock(*this);
  WEFT_RETURN_IF_ERROR(CheckTensor(tensor, "export: the tensor"));
  WEFT_ASSIGN_OR_RETURN(Data * data, Materialize(*tensor, CutReason::kHostRead));
  Ref<Buffer> buffer;
  if (data->word_count > 0) {
    // The value stays a scalar argument; the buffer is a copy for whoever asked.
    std::byte bytes[sizeof(data->words)];
    const auto width = static_cast<size_t>(BytesOf(tensor->dtype()));
    const auto size = static_cast<size_t>(tensor->type_.bytes());
    for (size_t i = 0; i < size; i += width) {
      std::memcpy(bytes + i, &data->words[width == 8 ? i / 4 : i / width], width);
    }
    WEFT_ASSIGN_OR_RETURN(
        buffer,
        StateOf(tensor->device_)->backend->ToDevice(tensor->device_, tensor->dtype(), tensor->dims(), {bytes, size}));
  } else {
    buffer = data->shards[0];
  }
  buffer->Hold();
  return buffer;
}

void Engine::StartsWork() {
  if (process_.load(std::memory_order_relaxed) == 0) process_.store(getpid(), std::memory_order_relaxed);
}

absl::Status Engine::Interrupted(uint32_t before) {
  if (process_.load(std::memory_order_relaxed) != getpid()) {
    return UserErrorOf(
        absl::StatusCode::kFailedPrecondition,
        "the context was used before fork and its threads did not come along; make a new context in the child");
  }
  return CheckCancelled(before);
}

absl::Status Engine::CheckCancelled(uint32_t before) {
  const uint32_t now = cancels();
  if (now == before && now == cancels_noticed_.load(std::memory_order_relaxed)) return absl::OkStatus();
  cancels_noticed_.store(now, std::memory_order_relaxed);
  return absl::CancelledError("cancelled by weft_cancel");
}

absl::Status Engine::WaitFor(const Event& event, int64_t timeout_ns) {
  const uint32_t before = cancels();
  const int64_t limit = Event::Sane(timeout_ns), start = MonotonicNow();
  while (!event.done()) {
    WEFT_RETURN_IF_ERROR(Interrupted(before));
    const int64_t left = limit < 0 ? kLookNs : limit - (MonotonicNow() - start);
    if (left <= 0)
      return UserErrorOf(absl::StatusCode::kDeadlineExceeded, "the event was not done after ", timeout_ns, " ns");
    (void)event.Wait(std::min(left, kLookNs));
  }
  RunReleases();
  return event.status();
}

absl::Status Engine::Wait(Device* device, int64_t timeout_ns) {
  std::vector<Ref<Event>> events;
  {
    Lock lock(*this);
    for (DeviceState& state : devices_) {
      if ((device == nullptr || state.device == device) && state.last_event) events.push_back(state.last_event);
    }
  }
  const int64_t start = MonotonicNow();
  const absl::Status status = Join(std::move(events))->Wait(timeout_ns);
  RunReleases();
  metrics_.Add(Counter::kNanosecondsWaiting, MonotonicNow() - start);
  return status;
}

absl::Status Engine::CheckNumbers(const ir::OpDef& op, std::span<const ir::Value> operands,
                                  std::span<const ir::Value> results) {
  // Index of the first NaN, -1 if there is none. Everything is computed: eager modes know all operands.
  auto find = [](const ir::Value& value) -> absl::StatusOr<int64_t> {
    Data* data = value && IsFloat(value.dtype()) ? DataOf(value) : nullptr;
    if (data == nullptr || data->word_count > 0) return -1;
    HostTensor host(value.dtype(), value.dims());
    Buffer& buffer = *data->shards[0];
    WEFT_RETURN_IF_ERROR(buffer.device()->backend->FromDevice(buffer, 0, host.mutable_bytes()));
    for (int64_t i = 0; i < host.count(); ++i) {
      const double x = host.GetDouble(i);
      if (x != x) return i;
    }
    return -1;
  };
  for (const ir::Value& result : results) {
    WEFT_ASSIGN_OR_RETURN(int64_t at, find(result));
    if (at < 0) continue;
    for (const ir::Value& operand : operands) {
      WEFT_ASSIGN_OR_RETURN(int64_t before, find(operand));
      if (before >= 0) return absl::OkStatus();
    }
    std::string call;
    for (const ir::Value& operand : operands) {
      absl::StrAppend(&call, call.empty() ? "" : ", ", operand ? ir::ShortType(operand.type()) : "none");
    }
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, op.c_name, "(", call, "): element ", at,
                       " of the result is NaN, and no operand holds one (debug mode)");
  }
  return absl::OkStatus();
}

}  // namespace weft::lazy
