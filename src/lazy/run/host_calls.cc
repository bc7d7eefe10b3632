// See host_calls.h.
#include "src/lazy/run/host_calls.h"

#include <algorithm>
#include <new>

#include "src/backends/custom_call/host_call.h"
#include "src/ir/rewrite.h"
#include "src/lazy/run/launcher.h"
#include "src/lazy/value/read_as.h"
#include "src/ops/call.h"
#include "src/ops/complex.h"
#include "src/ops/custom/custom_call.h"
#include "src/ops/registry.h"

namespace weft::lazy {
namespace {

// The limit of one call's operations written out, the same as for programs (passes::CheckCalls).
constexpr int64_t kMostWritten = int64_t{1} << 20;

// A buffer in the place of a value that could not be made.
class FailedBuffer final : public Buffer {
 public:
  FailedBuffer(Device* device, DType dtype, Dims dims, const absl::Status& outcome)
      : Buffer(device, dtype, std::move(dims), Event::Done(outcome), /*has_bytes=*/false) {}
  void* host_data() override { return nullptr; }
};

bool IsOurs(const ir::Node& node) {
  if (ops::NeedsHost(node)) return true;
  return node.op().calls && ops::NeedsHost(*node.regions()[0]);
}

// A wait for the latest event covers the launches before it, too.
void AddEvent(MeshState& state, const absl::Status& outcome) {
  std::vector<Ref<Event>> events;
  if (Ref<Event> last = state.last_event()) events.push_back(std::move(last));
  events.push_back(Event::Done(outcome));
  state.events[state.launches++ % MeshState::kAhead] = Event::All(events);
}

}  // namespace

// One call on its way; the queue and the waiting thread hold it.
struct HostCalls::Job {
  // An operand: a value that is there already, or buffers on devices, which are held.
  struct Operand {
    ir::Type type;
    HostTensor value;
    std::optional<Placement> placement;
    Shards shards;
  };

  ~Job() {
    for (const Operand& operand : operands) {
      for (const Ref<Buffer>& shard : operand.shards) shard->Unhold();
    }
  }

  // Reads, calls, uploads. `status` is of what surrounds the function.
  void Run() {
    try {
      outcome = CallFunction();
      if (outcome.ok()) status = Upload();
    } catch (const std::bad_alloc&) {
      status =
          absl::ResourceExhaustedError("no memory for the host's copies of what a custom operation reads and gives");
    }
  }

  absl::Status CallFunction() {
    std::vector<const HostTensor*> given;
    for (Operand& operand : operands) {
      if (operand.placement) WEFT_RETURN_IF_ERROR(Gather(&operand));
      given.push_back(&operand.value);
    }
    for (const ir::Type& type : types) results.emplace_back(type.dtype, type.dims);
    if (op == &ops::kOp_custom_call) return custom::CallOnHost(attrs, given, results, registered);
    return op->reference({*op, given, attrs, results});
  }

  // All of it, from the devices that have parts of it.
  static absl::Status Gather(Operand* operand) {
    const DType dtype = operand->type.dtype;
    operand->value = HostTensor(dtype, operand->type.dims);
    const std::span<std::byte> bytes = operand->value.mutable_bytes();
    const Placement& placement = *operand->placement;
    const auto read = [&](size_t i, int64_t from, std::span<std::byte> to) {
      return ReadAs(*operand->shards[i], dtype, from, to);
    };
    if (!placement.split()) return read(placement.whole_at(), 0, bytes);
    return ReadParts(placement, operand->type.dims, BytesOf(dtype), 0, bytes, read);
  }

  // Each device gets all of each result.
  absl::Status Upload() {
    for (const HostTensor& result : results) {
      const DType dtype = held.Of(result.dtype());
      HostTensor converted;
      if (dtype != result.dtype()) {
        converted = HostTensor(dtype, result.dims());
        ConvertHeld(result.dtype(), result.bytes(), dtype, converted.mutable_bytes());
      }
      const HostTensor& kept = dtype != result.dtype() ? converted : result;
      Shards& shards = uploaded.emplace_back();
      for (Device* device : devices) {
        WEFT_ASSIGN_OR_RETURN(shards.emplace_back(),
                              device->backend->ToDevice(device, dtype, kept.dims(), kept.bytes()));
      }
    }
    return absl::OkStatus();
  }

  const ir::OpDef* op = nullptr;
  ir::Attrs attrs;
  std::vector<ir::Type> types;  // of results
  std::vector<Operand> operands;
  std::vector<Device*> devices;
  HeldTypes held;
  std::shared_ptr<ops::CustomFunctions> registered;

  int64_t fetched = 0;  // bytes

  std::vector<HostTensor> results;
  std::vector<Shards> uploaded;  // a buffer a device each
  absl::Status outcome, status;
  const Ref<Event> done = MakeRef<Event>();  // then the others may be read
};

HostCalls::~HostCalls() {
  // The queue's thread stayed in the fork's parent: nobody to join.
  if (!queue_->CheckProcess().ok()) static_cast<void>(queue_.release());
}

void HostCalls::Close() {
  if (queue_->CheckProcess().ok()) queue_->Close();
}

HostCalls::Nodes HostCalls::Ready(const MeshState& state, const Cut& cut) const {
  Nodes ready;
  if (state.mesh.devices()[0]->backend->custom_callers() != CustomCallers::kEngine) return ready;
  const compiler::Trace& trace = cut.trace;
  std::vector<bool> waits(trace.values);  // per value: the host makes it, or something that it needs
  size_t operand = 0;
  uint32_t value = 0;
  for (const ir::Node* node : trace.nodes) {
    bool above = false;
    for (const size_t end = operand + node->operands().size(); operand < end; ++operand) {
      const compiler::Trace::Reference reference = trace.operands[operand];
      if (reference == compiler::Trace::kAbsent || compiler::Trace::IsArgument(reference)) continue;
      above = above || waits[compiler::Trace::IndexOf(reference)];
    }
    const bool ours = IsOurs(*node);
    if (ours && !above) ready.push_back(Ref<const ir::Node>::Share(node));
    for (size_t r = 0; r < node->results().size(); ++r) waits[value++] = above || ours;
  }
  return ready;
}

absl::StatusOr<std::shared_ptr<HostCalls::Job>> HostCalls::JobOf(const MeshState& state, const ir::Node& node) {
  // Others' that nobody came back for.
  std::erase_if(running_, [&](const auto& one) { return one.first.get() != &node && one.second->done->done(); });
  const auto found = std::ranges::find_if(running_, [&](const auto& one) { return one.first.get() == &node; });
  if (found != running_.end()) return found->second;
  WEFT_RETURN_IF_ERROR(services_.CheckProcess());
  WEFT_RETURN_IF_ERROR(queue_->NeedThread());
  services_.StartsWork();
  const auto job = std::make_shared<Job>();
  job->op = &node.op();
  job->attrs = node.attrs();
  job->types.assign(node.results().begin(), node.results().end());
  job->devices.assign(state.mesh.holders().begin(), state.mesh.holders().end());
  job->held = options_.held;
  job->registered = options_.custom;
  for (const ir::Value& operand : node.operands()) {
    if (!operand) break;
    const Data* const data = DataOf(operand);
    if (data == nullptr || (data->word_count == 0 && data->shards().empty())) {
      return InternalError("an operand of ", node.op().name, ", which the host computes, is not known");
    }
    Job::Operand& its = job->operands.emplace_back();
    its.type = operand.type();
    if (data->word_count > 0) {
      its.value = HostTensor(operand.dtype(), operand.type().dims);
      ReadWordsAs(*data, operand.type(), operand.dtype(), 0, its.value.mutable_bytes());
      continue;
    }
    its.placement = data->sharding();
    for (size_t i = 0; i < data->shards().size(); ++i) {
      its.shards.push_back(data->shards()[i]);
      its.shards.back()->Hold();
      if (data->sharding().IsFirst(i)) job->fetched += its.shards.back()->bytes();
    }
  }
  queue_->Submit(
      [job] {
        job->Run();
        job->done->Complete(absl::OkStatus());
      },
      WorkQueue::By::kQueue);
  running_.emplace_back(Ref<const ir::Node>::Share(&node), job);
  return job;
}

absl::Status HostCalls::Call(Lock& lock, MeshState& state, const ir::Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, JobOf(state, node));
  const absl::Status waited = lock.Open([&] { return services_.WaitFor(*job->done, Part::kResults); });
  if (!job->done->done()) return waited;  // it goes on: a later request finds it
  std::erase_if(running_, [&](const auto& one) { return one.second == job; });
  WEFT_RETURN_IF_ERROR(job->status);
  WEFT_RETURN_IF_ERROR(recorder_.CheckOpen());
  if (AllKnown(node)) return absl::OkStatus();  // another thread waited for it, too
  metrics_.Add(Counter::kHostCalls);
  metrics_.Add(Counter::kHostCustomCall);
  metrics_.Add(Counter::kBytesFromDevice, job->fetched);
  int64_t sent = 0;
  for (uint32_t i = 0; i < node.results().size(); ++i) {
    if (!job->outcome.ok()) {
      Fail(state, job->outcome, {Ref<const ir::Node>::Share(&node), i});
      continue;
    }
    for (const Ref<Buffer>& shard : job->uploaded[i]) sent += shard->bytes();
    Bind(node, i, MakeRef<Data>(state.whole(), std::move(job->uploaded[i])));
  }
  metrics_.Add(Counter::kBytesToDevice, sent);
  if (!job->outcome.ok()) AddEvent(state, job->outcome);
  ForgetPast(node);
  return absl::OkStatus();
}

namespace {

// A composite by its expansion, or an operation on complex numbers by its planes.
absl::StatusOr<ir::Values> Expanded(const ir::Node& node) {
  ir::Builder b(node.location());
  ir::Values operands(node.operands().begin(), node.operands().end()), results(node.results().size());
  if (node.op().expand != nullptr) {
    WEFT_RETURN_IF_ERROR(ops::Expand(b, node.op(), std::move(operands), node.attrs(), node.results(),
                                     std::span(results.data(), results.size())));
  } else {
    ir::Splits splits;
    for (const ir::Value& x : operands) splits.push_back({{}, ops::PlanesOf(b, x)});
    const ir::Splits found = node.op().planes({b, node, splits, {}});
    for (size_t i = 0; i < found.size(); ++i) results[i] = ops::ComplexFrom(b, found[i].planes);
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return results;
}

}  // namespace

bool HostCalls::WritesOut(const ir::Node& node) {
  return node.op().calls || node.op().expand != nullptr || node.op().planes != nullptr;
}

absl::StatusOr<ir::Values> HostCalls::WrittenOut(const ir::Node& call) {
  if (!call.op().calls) return Expanded(call);
  const ir::Function& function = *call.regions()[0];
  if (ir::WrittenOut(function) > kMostWritten) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "@", function.name(),
                       ", which has custom operations, is more than ", kMostWritten,
                       " operations with every call written out");
  }
  const auto rule = [](const ir::RewriteCall& inner) -> ir::Values {
    if (!inner.node.op().calls || !ops::NeedsHost(*inner.regions[0])) return {};
    return ir::Inline(*inner.regions[0], inner.operands);
  };
  WEFT_ASSIGN_OR_RETURN(const Ref<const ir::Function> flat, ir::Rewrite(*ir::CopyFunction(function), rule));
  return ir::Inline(*flat, call.operands());
}

void HostCalls::Show(const ir::Node& node, std::span<const ir::Value> results) {
  for (uint32_t i = 0; i < results.size(); ++i) {
    if (DataOf(node, i) == nullptr) Bind(node, i, Ref<Data>::Share(DataOf(results[i])));
  }
  ForgetPast(node);
}

absl::Status HostCalls::Failed(const Cut& cut) {
  for (const Ref<Data>& data : cut.arguments) {
    if (data->failed) return data->whole()->ready().status();
  }
  return absl::OkStatus();
}

void HostCalls::Fail(MeshState& state, const absl::Status& outcome, const ir::Value& value) const {
  Shards shards;
  for (Device* device : state.mesh.holders()) {
    shards.push_back(
        Ref<Buffer>(new FailedBuffer(device, options_.held.Of(value.dtype()), value.type().dims, outcome)));
  }
  Ref<Data> data = MakeRef<Data>(state.whole(), std::move(shards));
  data->failed = true;
  Bind(*value.node, value.result, std::move(data));
}

void HostCalls::Fail(MeshState& state, const absl::Status& outcome, Cut* cut) const {
  for (const ir::Value& output : cut->outputs) Fail(state, outcome, output);
  AddEvent(state, outcome);
  cut->trace.Clear();
  cut->arguments.clear();
  for (const ir::Value& output : cut->outputs) ForgetPast(*output.node);
  cut->Clear();
}

}  // namespace weft::lazy
