// See launcher.h.
#include "src/lazy/launcher.h"

#include "src/lazy/cut_planner.h"
#include "src/ops/registry.h"
#include "src/runtime/clock.h"
#include "src/runtime/status.h"

namespace weft::lazy {
namespace {

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

Ref<Event> Launcher::Backlog(const DeviceState& state) {
  if (state.launches < DeviceState::kAhead) return nullptr;
  const Ref<Event>& oldest = state.events[state.launches % DeviceState::kAhead];
  return oldest->done() ? nullptr : oldest;
}

void Launcher::ChooseDonations(DeviceState& state, const Cut& cut) {
  takes_over_.assign(cut.arguments.size(), 0);
  bool any = false;
  for (size_t i = 0; i < cut.arguments.size(); ++i) {
    if (cut.trace.arguments[i].donated_to < 0) continue;
    takes_over_[i] = 1;
    any = true;
  }
  if (!any) return;
  const uint64_t epoch = ++epoch_;
  const ir::Walk walk;
  for (const Tensor& tensor : state.live) {
    if (tensor.state.expired) continue;
    if (Data* data = DataOf(tensor.value())) {
      data->live_epoch = epoch;
    } else if (tensor.state.set_aside || tensor.state.changed > cut.time) {
      KeepLeavesOf(tensor.value(), walk, epoch);
    }
  }
  for (const Cut* other : state.open_cuts) {
    for (const ir::Value& output : other->outputs) KeepLeavesOf(output, walk, epoch);
    // What was between its leaves and its outputs when it was planned may be known by now, and hide them.
    for (const Ref<Data>& data : other->arguments) data->live_epoch = epoch;
  }
  for (size_t i = 0; i < cut.arguments.size(); ++i) {
    const Data& data = *cut.arguments[i];
    if (takes_over_[i] == 0) continue;
    if (data.live_epoch == epoch || data.shards.size() != 1 || data.shards[0]->held()) takes_over_[i] = 0;
  }
}

absl::Status Launcher::Launch(DeviceState& state, const compiler::Program& program, CutReason reason, Cut* cut) {
  const int64_t start = MonotonicNow();
  ChooseDonations(state, *cut);
  words_.clear();
  buffers_.clear();
  donated_.clear();
  int64_t donations = 0;
  for (size_t i = 0; i < cut->arguments.size(); ++i) {
    const Data& data = *cut->arguments[i];
    if (data.word_count > 0) {
      words_.insert(words_.end(), data.words.begin(), data.words.begin() + data.word_count);
      continue;
    }
    donations += takes_over_[i];
    buffers_.push_back(data.shards[0]);
    donated_.push_back(takes_over_[i]);
  }
  const DeviceArguments arguments{buffers_, words_, donated_};
  absl::StatusOr<std::vector<DeviceResults>> launched = program.executable->Execute({&arguments, 1});
  buffers_.clear();
  WEFT_RETURN_IF_ERROR(launched.status());
  DeviceResults& results = launched->front();
  if (results.buffers.size() != cut->outputs.size()) {
    return InternalError("a launch gave ", results.buffers.size(), " results for ", cut->outputs.size(), " outputs");
  }
  // From here on nothing fails.
  for (size_t i = 0; i < cut->outputs.size(); ++i) {
    const ir::Value& output = cut->outputs[i];
    Bind(*output.node, output.result, MakeRef<Data>(std::move(results.buffers[i])));
  }
  for (size_t i = 0; i < cut->arguments.size(); ++i) {
    if (takes_over_[i] != 0) cut->arguments[i]->shards.clear();
  }
  state.events[state.launches++ % DeviceState::kAhead] = std::move(results.done);

  const auto nodes = static_cast<int64_t>(cut->trace.nodes.size());
  metrics_.Add(Counter::kNanosecondsLaunching, MonotonicNow() - start);
  metrics_.Add(Counter::kCuts);
  metrics_.Add(kReasonCounters[static_cast<size_t>(reason)]);
  metrics_.Add(Counter::kCutOutputs, static_cast<int64_t>(cut->outputs.size()));
  metrics_.Add(Counter::kCutNodesComputed, nodes);
  metrics_.Add(Counter::kLaunches);
  metrics_.Add(Counter::kKernelLaunches, program.executable->stats().kernels);
  metrics_.Add(Counter::kBuffersDonated, donations);
  if (reason == CutReason::kHostRead || reason == CutReason::kEval) state.policy.Computed(nodes);

  // Pasts that no gradient can ask for may die now; the arguments' nodes with them.
  cut->trace.Clear();
  cut->arguments.clear();
  for (const ir::Value& output : cut->outputs) {
    const ir::Node& node = *output.node;
    if (node.needs_gradient() && &node.op() != &ops::kOp_stop_gradient) continue;
    if (IsKnown(node)) node.ForgetOperands();
  }
  cut->Clear();
  return absl::OkStatus();
}

}  // namespace weft::lazy
