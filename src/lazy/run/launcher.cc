// See launcher.h.
#include "src/lazy/run/launcher.h"

#include <algorithm>
#include <charconv>
#include <new>

#include "absl/strings/str_cat.h"
#include "src/lazy/cut/cut_planner.h"
#include "src/lazy/value/launched.h"
#include "src/ops/registry.h"
#include "src/runtime/parts.h"
#include "src/runtime/status.h"
#include "src/runtime/thread_table.h"

namespace weft::lazy {
namespace {

constexpr Counter kReasonCounters[] = {Counter::kCutHostRead, Counter::kCutBarrier,    Counter::kCutEval,
                                       Counter::kCutNodes,    Counter::kCutRepetition, Counter::kCutBytes,
                                       Counter::kCutEager,    Counter::kCutSize,       Counter::kCutCustom};

// Records how long a launch took to hand over, without what ran meanwhile on this thread (`ran` had before), and its nodes; call it
// once the device has accepted the launch.
void CountTimes(Metrics& metrics, PartScope& part, int64_t ran, int64_t nodes) {
  const int64_t now = MonotonicNow();
  part.End(now);
  metrics.Add(Sample::kLaunch, now - part.start() - (PartScope::Ran() - ran), now);
  metrics.Add(Sample::kLaunchNodes, nodes, now);
}

// A launch in a line, for the option explain.
std::string ExplanationOf(const compiler::Program& program, const Cut& cut, Counter counter, int64_t taken_over) {
  const std::string at = cut.outputs.empty() ? "" : ir::ToString(cut.outputs.back().node->location());
  return absl::StrCat("launched ", InfoOf(counter).meaning, at.empty() ? "" : " at ", at, ": program ", program.name,
                      ", ", cut.trace.nodes.size() + cut.replayed, " nodes, ", cut.arguments.size(), " arguments, ",
                      taken_over, " taken over, ", cut.outputs.size(), " results",
                      cut.replayed > 0 ? ", as before" : "");
}

}  // namespace

void ForgetPast(const ir::Node& node) {
  if (node.needs_gradient() && &node.op() != &ops::kOp_stop_gradient) return;
  if (AllKnown(node)) node.ForgetOperands();
}

Counter Launcher::CounterOf(CutReason reason) { return kReasonCounters[static_cast<size_t>(reason)]; }

Ref<Event> Launcher::Backlog(const MeshState& state, double bytes) {
  constexpr uint64_t kMost = MeshState::kAhead;
  for (uint64_t ahead = 0; ahead < std::min(state.launches, kMost); ++ahead) {
    const size_t at = (state.launches - 1 - ahead) % kMost;
    if (state.events[at]->done()) return nullptr;
    bytes += state.result_bytes[at];
    if (ahead + 1 >= MeshState::kAheadAtAnyRate && bytes > MeshState::kAheadBytes) return state.events[at];
  }
  if (state.launches < kMost) return nullptr;
  return state.events[(state.launches + state.room.wanted - 1) % kMost];
}

void Launcher::ChooseDonations(MeshState& state, const Cut& cut) {
  takes_over_.assign(cut.arguments.size(), 0);
  bool any = false;
  for (size_t i = 0; may_take_over_ && i < cut.arguments.size(); ++i) {
    if (cut.trace.arguments[i].donated_to < 0) continue;
    takes_over_[i] = 1;
    any = true;
  }
  if (!any) return;
  const uint64_t epoch = ++epoch_;
  const ir::Walk walk;
  for (const Tensor& tensor : state.live) {
    if (!tensor.value()) continue;  // expired, or an output of a replayed step
    if (Data* data = DataOf(tensor.value())) {
      data->live_epoch = epoch;
    } else if (tensor.state.set_aside || tensor.state.changed > cut.time) {
      KeepLeavesOf(tensor.value(), walk, epoch);
    }
  }
  for (const Cut* other : state.open_cuts) {
    for (const ir::Value& output : other->outputs) KeepLeavesOf(output, walk, epoch);
    // Values between the other cut's leaves and outputs may be known since it was planned, and hide its leaves.
    for (const Ref<Data>& data : other->arguments) data->live_epoch = epoch;
  }
  for (size_t i = 0; i < cut.arguments.size(); ++i) {
    const Data& data = *cut.arguments[i];
    if (takes_over_[i] == 0) continue;
    if (data.live_epoch == epoch || data.held()) takes_over_[i] = 0;
  }
}

int64_t Launcher::BytesTakenOver(MeshState& state, const Cut& cut) {
  ChooseDonations(state, cut);
  int64_t bytes = 0;
  for (size_t i = 0; i < cut.arguments.size(); ++i) {
    if (takes_over_[i] != 0) bytes += cut.arguments[i]->bytes();
  }
  return bytes;
}

Ref<Launched> Launcher::Remember(MeshState& state, const std::shared_ptr<const compiler::Program>& program,
                                 const Cut& cut, const Ref<Event>& done, Ref<Event>* settled) {
  *settled = done;
  if (done->done() && done->status().ok()) return nullptr;
  try {
    Ref<Launched> launched = MakeRef<Launched>(program, cut.arguments, takes_over_, cut.outputs.size());
    launched->done = done;
    // A plugin's thread must not release objects of the plugin: they go when somebody waits or the next step comes.
    if (state.mesh.devices()[0]->is_host()) {
      Ref<Event> released = MakeRef<Event>();
      done->OnDone([launched, released](const absl::Status& status) {
        if (status.ok()) launched->Release();
        released->Complete(status);
      });
      *settled = std::move(released);
    }
    state.underway.push_back(launched);
    return launched;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Launcher::MakeRoomFor(const MeshState& state, const compiler::Program& program, const Cut& cut) {
  made_.clear();
  compiler::Program::Lying& lying = program.lying;
  if (lying.mesh != &state.mesh) {
    lying.results.clear();
    for (const ir::Sharding& sharding : program.results) lying.results.push_back(state.mesh.Intern(sharding));
    lying.mesh = &state.mesh;
  }
  for (size_t i = 0; i < cut.outputs.size(); ++i) {
    Shards room;
    room.reserve(state.mesh.holders().size());
    const bool cuts = i < lying.results.size();
    made_.push_back(
        MakeRef<Data>(cuts ? Placement::OfInterned(state.mesh, lying.results[i]) : state.whole(), std::move(room)));
    MakeRoom(*cut.outputs[i].node);
  }
}

void Launcher::Count(const compiler::Program& program, const Cut& cut, CutReason reason, int64_t nodes,
                     int64_t donations) {
  metrics_.AddAlone(Counter::kCuts);
  metrics_.AddAlone(CounterOf(reason));
  metrics_.AddAlone(Counter::kCutOutputs, static_cast<int64_t>(cut.outputs.size()));
  metrics_.AddAlone(Counter::kCutNodesComputed, nodes);
  if (program.whole_results > 0) metrics_.AddAlone(Counter::kCutOutputsWhole, program.whole_results);
  metrics_.AddAlone(Counter::kLaunches);
  metrics_.AddAlone(Counter::kKernelLaunches, program.executable->stats().kernels);
  metrics_.AddAlone(Counter::kBuffersDonated, donations);
}

absl::Status Launcher::Launch(MeshState& state, const std::shared_ptr<const compiler::Program>& program,
                              CutReason reason, const CancelToken& cancel, Cut* cut) {
  PartScope part(metrics_, Part::kLaunching);
  const int64_t ran = PartScope::Ran();
  ChooseDonations(state, *cut);
  const std::span<Device* const> holders = state.mesh.holders();
  const size_t devices = holders.size();
  words_.clear();
  buffers_.resize(devices);
  for (std::vector<Ref<Buffer>>& buffers : buffers_) buffers.clear();  // of a launch that threw, too
  donated_.clear();
  int64_t donations = 0;
  for (size_t i = 0; i < cut->arguments.size(); ++i) {
    const Data& data = *cut->arguments[i];
    if (data.word_count > 0) {
      words_.insert(words_.end(), data.words.begin(), data.words.begin() + data.word_count);
      continue;
    }
    donations += takes_over_[i];
    for (size_t d = 0; d < devices; ++d) buffers_[d].push_back(data.shards()[d]);
    donated_.push_back(takes_over_[i]);
  }
  absl::InlinedVector<DeviceArguments, 1> arguments;
  for (size_t d = 0; d < devices; ++d) arguments.push_back({buffers_[d], words_, donated_, cancel, holders[d]});
  // A launch that ran and is known nowhere has destroyed what it took over: what holds its results is there before.
  MakeRoomFor(state, *program, *cut);
  uint64_t key = 0;
  std::from_chars(program->name.data(), program->name.data() + program->name.size(), key, 16);
  ThisThreadsSlot().program.store(key, std::memory_order_relaxed);  // of what is launched, and waited for
  absl::StatusOr<std::vector<DeviceResults>> launched = program->executable->Execute(arguments);
  for (std::vector<Ref<Buffer>>& buffers : buffers_) buffers.clear();
  WEFT_RETURN_IF_ERROR(launched.status());
  if (launched->size() != devices) {
    return InternalError("a launch on ", devices, " devices gave ", launched->size(), " lists of results");
  }
  for (const DeviceResults& results : *launched) {
    if (results.buffers.size() == cut->outputs.size()) continue;
    return InternalError("a launch gave ", results.buffers.size(), " results for ", cut->outputs.size(), " outputs");
  }
  // From here on nothing fails.
  absl::InlinedVector<Ref<Event>, 1> done;
  for (DeviceResults& results : *launched) done.push_back(std::move(results.done));
  const Ref<Event> all_done = Event::All(done);
  Ref<Event> settled;
  const Ref<Launched> underway = Remember(state, program, *cut, all_done, &settled);
  double bytes = 0;
  for (size_t i = 0; i < cut->outputs.size(); ++i) {
    const ir::Value& output = cut->outputs[i];
    for (DeviceResults& results : *launched) made_[i]->Add(std::move(results.buffers[i]));
    bytes += static_cast<double>(made_[i]->bytes());
    made_[i]->launched = underway;
    made_[i]->output = static_cast<uint32_t>(i);
    Bind(*output.node, output.result, std::move(made_[i]));
  }
  made_.clear();
  for (size_t i = 0; i < cut->arguments.size(); ++i) {
    if (takes_over_[i] != 0) cut->arguments[i]->TakeOver();
  }
  state.result_bytes[state.launches % MeshState::kAhead] = bytes;
  state.events[state.launches++ % MeshState::kAhead] = std::move(settled);

  const auto nodes = static_cast<int64_t>(cut->trace.nodes.size() + cut->replayed);
  CountTimes(metrics_, part, ran, nodes);
  Count(*program, *cut, reason, nodes, donations);
  if (AskedByName(reason)) state.policy.Computed(nodes);

  if (state.programs != nullptr)
    state.programs->ExplainLaunch([&] { return ExplanationOf(*program, *cut, CounterOf(reason), donations); });

  // Pasts that no gradient can ask for may die now; the arguments' nodes with them.
  cut->trace.Clear();
  cut->arguments.clear();
  for (const ir::Value& output : cut->outputs) ForgetPast(*output.node);
  cut->Clear();
  return absl::OkStatus();
}

}  // namespace weft::lazy
