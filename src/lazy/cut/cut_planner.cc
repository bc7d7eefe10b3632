// See cut_planner.h.
#include "src/lazy/cut/cut_planner.h"

#include <algorithm>

#include "src/ir/op_def.h"
#include "src/lazy/value/launched.h"
#include "src/ops/registry.h"
#include "src/runtime/status.h"

namespace weft::lazy {
namespace {

using compiler::Trace;

// Where the value is among the outputs, whose walk it is; outputs.size() if it is not yet.
size_t Find(const Cut& cut, const ir::Walk& walk, const ir::Value& value) {
  size_t at = cut.outputs.size();
  if (walk.Mark(*value.node, static_cast<uint32_t>(at))) return at;
  // The node's first output; another result of it comes later.
  at = walk.At(*value.node);
  while (at < cut.outputs.size() && !(cut.outputs[at] == value)) ++at;
  return at;
}

}  // namespace

void CutPlanner::Live(LiveList& live, uint64_t time, For what, Cut* cut) {
  cut->Clear();
  cut->time = time;
  const ir::Walk walk;
  if (what == For::kBarrier) live.Unsettle();
  for (LiveList::Iterator next = live.Unsettled(); next != live.end(); ++next) {
    const Tensor& tensor = *next;
    const Tensor::State& state = tensor.state;
    if (state.expired || state.set_aside || state.changed > time || DataOf(tensor.value()) != nullptr) continue;
    if (state.scoped && !state.assigned && what == For::kBarrier) continue;
    // Two tensors may show one value.
    const size_t at = Find(*cut, walk, tensor.value());
    if (at == cut->outputs.size()) {
      cut->Add(tensor.value(), state.overwritten);
    } else if (!cut->offered[at]) {
      cut->offered[at] = state.overwritten;
    }
  }
  cut->asked = what == For::kBarrier ? cut->outputs.size() : 0;
}

void CutPlanner::These(std::span<const ir::Value> values, Cut* cut) {
  cut->Clear();
  const ir::Walk walk;
  for (const ir::Value& value : values) {
    if (DataOf(value) == nullptr && Find(*cut, walk, value) == cut->outputs.size()) cut->Add(value);
  }
  cut->asked = cut->outputs.size();
  cut->time = 0;  // whatever else is pending is left to later cuts
}

void CutPlanner::Over(std::span<const ir::Value> values, std::span<const Ref<Data>> offered, Cut* cut) {
  cut->Clear();
  cut->time = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (DataOf(values[i]) == nullptr) cut->Add(values[i], offered[i]);
  }
  cut->asked = cut->outputs.size();
}

void CutPlanner::Shared(std::span<const ir::Value> values, Cut* cut) {
  These(values, cut);
  const size_t asked = cut->asked;
  // Nodes needed for the values, users after operands, with how often they are used among themselves. Whatever else
  // uses or shows a node will want it later and must not compute it again.
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
  for (const ir::Value& value : cut->outputs) {
    visit(value);
    ++uses[walk.At(*value.node)];  // the asker knows it then
  }
  // Nodes with an output among those asked for.
  const size_t wanted = found.size();
  for (size_t i = 0; i < found.size(); ++i) {
    for (const ir::Value& operand : found[i]->operands()) {
      if (!operand || DataOf(operand) != nullptr) continue;
      visit(operand);
      ++uses[walk.At(*operand.node)];
    }
  }
  // Newest first: users before operands.
  std::vector<uint32_t> order(found.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return found[a]->id() > found[b]->id(); });
  for (uint32_t i : order) {
    const ir::Node& node = *found[i];
    if (node.shown() + node.users() <= uses[i]) continue;
    if (node.op().cheap_again && i >= wanted) {
      for (const ir::Value& operand : node.operands()) {
        if (operand && DataOf(operand) == nullptr) uses[walk.At(*operand.node)] = 0;
      }
      continue;
    }
    for (uint32_t result = 0; result < node.results().size(); ++result) {
      ir::Value output{Ref<const ir::Node>::Share(&node), result};
      if (DataOf(output) != nullptr || !output.type().is_tensor()) continue;
      // Asked for already? A node with one result is if it is wanted at all; of others there are few.
      const auto end = cut->outputs.begin() + static_cast<ptrdiff_t>(asked);
      if (i < wanted && (node.results().size() == 1 || std::find(cut->outputs.begin(), end, output) != end)) continue;
      cut->Add(output);
    }
  }
}

absl::Status CutPlanner::Trace(Cut* cut) {
  compiler::Trace& trace = cut->trace;
  trace.Clear();
  cut->arguments.clear();
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
      data->argument = static_cast<uint32_t>(cut->arguments.size());
      cut->arguments.push_back(Ref<Data>::Share(data));
      trace.arguments.push_back({value.node.get(), value.result, data->word_count, -1});
      trace.words += data->word_count;
    }
    return Trace::OfArgument(data->argument);
  };
  for (const ir::Value& output : cut->outputs) {
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
      for (const ir::Value& operand : operands) trace.operands.push_back(reference(operand));
      walk.Set(*node, trace.values);
      trace.values += static_cast<uint32_t>(node->results().size());
      trace.nodes.push_back(node);
    }
  }
  for (const ir::Value& output : cut->outputs) trace.outputs.push_back(reference(output));
  for (const Ref<Data>& data : cut->arguments) {
    if (data->word_count == 0 && data->shards().empty() && !data->described) {
      return InternalError("a value that a launch has taken over is still referred to");
    }
  }
  return absl::OkStatus();
}

void CutPlanner::Take(const ir::Value& leaf, Cut* cut) {
  Data* data = DataOf(leaf);
  data->argument_epoch = epoch_;
  data->argument = static_cast<uint32_t>(cut->arguments.size());
  cut->arguments.push_back(Ref<Data>::Share(data));
  cut->trace.arguments.push_back({leaf.node.get(), leaf.result, data->word_count, -1});
  cut->trace.words += data->word_count;
}

void CutPlanner::Offer(Cut* cut) {
  for (size_t i = 0; i < cut->outputs.size(); ++i) {
    const Data* data = cut->offered[i].get();
    if (data == nullptr || data->word_count > 0 || data->argument_epoch != epoch_) continue;
    compiler::Trace::Argument& argument = cut->trace.arguments[data->argument];
    if (argument.donated_to < 0 && argument.type() == cut->outputs[i].type()) {
      argument.donated_to = static_cast<int32_t>(i);
    }
  }
}

void CutPlanner::Lie(const DeviceMesh& mesh, Cut* cut) {
  if (mesh.alone()) return;
  ir::Participants& who = cut->trace.participants;
  who.partitions = static_cast<uint32_t>(mesh.holders().size());
  who.mesh = mesh.axes();
  for (const Ref<Data>& data : cut->arguments) {
    who.parameters.push_back(data->word_count > 0 ? ir::Sharding() : data->sharding().sharding());
  }
  for (size_t i = 0; i < cut->outputs.size(); ++i) {
    ir::Sharding& result = who.results.emplace_back();
    const ir::Type& type = cut->outputs[i].type();
    const Data* const over = cut->offered[i].get();
    if (over != nullptr && over->word_count == 0 && &over->sharding().mesh() == &mesh) {
      result = over->sharding().sharding();
    } else if (type.is_tensor()) {
      result.dimensions.assign(type.rank(), {.axes = {}, .open = true});
    }
  }
}

bool CutPlanner::Shrink(double room, double spared, Cut* cut) {
  double total = OutputBytes(*cut);
  // Numbers of the outputs stand in the walk; the operands that come in place of a value join at the end.
  const ir::Walk walk;
  for (size_t i = 0; i < cut->outputs.size(); ++i) walk.Mark(*cut->outputs[i].node, static_cast<uint32_t>(i));
  std::vector<std::pair<double, size_t>> heap;
  for (size_t i = cut->asked; i < cut->outputs.size(); ++i) heap.emplace_back(BytesOf(cut->outputs[i]), i);
  std::ranges::make_heap(heap);
  std::vector<bool> left_out(cut->outputs.size());
  while (total > room && !heap.empty() && heap.front().first > spared) {
    const auto [bytes, i] = heap.front();
    std::ranges::pop_heap(heap);
    heap.pop_back();
    left_out[i] = true;
    total -= bytes;
    const Ref<const ir::Node> node = cut->outputs[i].node;
    for (const ir::Value& operand : node->operands()) {
      if (!operand || DataOf(operand) != nullptr || !operand.type().is_tensor()) continue;
      if (Find(*cut, walk, operand) != cut->outputs.size()) continue;
      heap.emplace_back(BytesOf(operand), cut->outputs.size());
      std::ranges::push_heap(heap);
      cut->Add(operand);
      left_out.push_back(false);
      total += BytesOf(operand);
    }
  }
  size_t n = 0;
  for (size_t i = 0; i < cut->outputs.size(); ++i) {
    if (left_out[i]) continue;
    cut->outputs[n] = std::move(cut->outputs[i]);
    cut->offered[n++] = std::move(cut->offered[i]);
  }
  cut->outputs.resize(n);
  cut->offered.resize(n);
  return total <= room && n > 0;
}

double CutPlanner::LeafBytes(const Cut& cut) {
  double bytes = 0;
  for (const Ref<Data>& data : cut.arguments) {
    if (data->word_count == 0) bytes += static_cast<double>(data->bytes());
  }
  return bytes;
}

double CutPlanner::BytesOf(const ir::Value& value) const {
  return static_cast<double>(value.type().count()) * weft::BytesOf(held_.Of(value.dtype()));
}

double CutPlanner::OutputBytes(const Cut& cut) const {
  double bytes = 0;
  for (const ir::Value& output : cut.outputs) bytes += BytesOf(output);
  return bytes;
}

void KeepLeavesOf(const ir::Value& value, const ir::Walk& walk, uint64_t epoch) {
  std::vector<const ir::Node*> pending;
  const auto visit = [&](const ir::Value& v) {
    if (Data* data = DataOf(v)) {
      data->live_epoch = epoch;
    } else if (walk.Mark(*v.node, 0)) {
      pending.push_back(v.node.get());
    }
  };
  visit(value);
  while (!pending.empty()) {
    const ir::Node* node = pending.back();
    pending.pop_back();
    for (const ir::Value& operand : node->operands()) {
      if (operand) visit(operand);
    }
  }
}

}  // namespace weft::lazy
