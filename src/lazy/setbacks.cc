// Cuts that cannot be had as they are: what memory does not suffice for, and what no program can be made of. Nothing is
// lost here: a value that is not computed stays pending.
#include <unistd.h>

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "src/lazy/engine.h"

namespace weft::lazy {
namespace {

// Automatic cuts leave values pending that are so many times larger than all that they are made of: computing one again
// costs time, storing it costs memory that its maker did not ask for.
constexpr double kMuchLarger = 16;
// Programs compiled to find out who is at fault; two a level are enough for one among 2^32.
constexpr int kMostTrials = 64;

// Sums of sizes are floating: they may be larger than any memory, and than 63 bits.
double BytesOf(const ir::Value& value) { return static_cast<double>(value.type().bytes()); }
double TotalBytes(std::span<const ir::Value> values) {
  double bytes = 0;
  for (const ir::Value& value : values) bytes += BytesOf(value);
  return bytes;
}

// "f32[8] (add, train.c:42)"
std::string Describe(const ir::Value& value) {
  const std::string at = ir::ToString(value.node->location());
  return absl::StrCat(ir::ShortType(value.type()), " (", value.node->op().c_name, at.empty() ? "" : ", ", at, ")");
}

ir::Value Largest(std::span<const ir::Value> values) { return *std::ranges::max_element(values, {}, BytesOf); }

absl::Status NoMemoryFor(const ir::Value& value, std::string_view why) {
  absl::Status status =
      UserErrorOf(absl::StatusCode::kResourceExhausted, "no memory for ", Describe(value), " of ", value.type().bytes(),
                  " bytes: ", why, "; release the tensor, or let a smaller result be all that is asked for");
  if (const ir::Location at = value.node->location(); at.file != 0) {
    status.SetPayload(kPayloadPosition, absl::Cord(ir::ToString(at)));
  }
  return status;
}

std::string Shortage(double wanted, const Device& device, int64_t room) {
  return absl::StrCat(static_cast<int64_t>(std::min(wanted, 0x1p62)), " bytes are needed at once, ", room,
                      " are free on ", device.name);
}

}  // namespace

absl::Status Engine::OutOfMemory(const absl::Status& status) const {
  if (!absl::IsResourceExhausted(status) || outputs_.empty()) return status;
  return NoMemoryFor(Largest(outputs_), status.message());
}

int64_t Engine::RoomFor(double wanted, const DeviceState& state) const {
  const auto ask = [&] { return state.backend->bytes_available(state.device); };
  const int64_t room = ask();
  if (room < 0 || wanted <= static_cast<double>(room) || !state.last_event || state.last_event->done()) return room;
  // A host runs up to 32 launches ahead, and what they hold comes back when they have run.
  const uint32_t before = cancels();
  while (!state.last_event->done() && cancels() == before && process_.load(std::memory_order_relaxed) == getpid()) {
    (void)state.last_event->Wait(kLookNs);
  }
  return ask();
}

absl::Status Engine::CheckRoom(const DeviceState& state, int64_t temporary_bytes) const {
  double wanted = TotalBytes(outputs_) + static_cast<double>(temporary_bytes);
  if (wanted < static_cast<double>(options_.large_cut_bytes)) return absl::OkStatus();
  for (const compiler::Trace::Argument& argument : trace_.arguments) {
    if (argument.donated_to >= 0) wanted -= static_cast<double>(argument.type().bytes());
  }
  const int64_t room = RoomFor(wanted, state);
  if (room < 0 || wanted <= static_cast<double>(room)) return absl::OkStatus();
  return NoMemoryFor(Largest(outputs_), Shortage(wanted, *state.device, room));
}

absl::Status Engine::MakeRoom(DeviceState& state, size_t asked, bool automatic) {
  double total = TotalBytes(outputs_);
  if (total < static_cast<double>(options_.large_cut_bytes)) return absl::OkStatus();
  const int64_t room = RoomFor(total, state);
  if (room < 0 || total <= static_cast<double>(room)) return absl::OkStatus();
  absl::Status status = NoMemoryFor(Largest(outputs_), Shortage(total, *state.device, room));
  double spared = 0;  // what is not larger stays an output
  if (automatic) {
    WEFT_RETURN_IF_ERROR(BuildTrace(outputs_));
    for (const Data* data : arguments_) {
      if (data->word_count == 0) spared += kMuchLarger * static_cast<double>(data->shards[0]->bytes());
    }
  }
  // Numbers of the outputs stand in the walk; the operands that come in place of a value join at the end.
  const ir::Walk walk;
  for (size_t i = 0; i < outputs_.size(); ++i) walk.Mark(*outputs_[i].node, static_cast<uint32_t>(i));
  std::vector<std::pair<double, size_t>> heap;
  for (size_t i = asked; i < outputs_.size(); ++i) heap.emplace_back(BytesOf(outputs_[i]), i);
  std::ranges::make_heap(heap);
  std::vector<bool> left_out(outputs_.size());
  while (total > static_cast<double>(room) && !heap.empty() && heap.front().first > spared) {
    const auto [bytes, i] = heap.front();
    std::ranges::pop_heap(heap);
    heap.pop_back();
    left_out[i] = true;
    total -= bytes;
    const Ref<const ir::Node> node = outputs_[i].node;
    for (const ir::Value& operand : node->operands()) {
      if (!operand || DataOf(operand) != nullptr || !operand.type().is_tensor()) continue;
      if (FindOutput(walk, operand) != outputs_.size()) continue;
      heap.emplace_back(BytesOf(operand), outputs_.size());
      std::ranges::push_heap(heap);
      AddOutput(operand, nullptr);
      left_out.push_back(false);
      total += BytesOf(operand);
    }
  }
  size_t n = 0;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (left_out[i]) continue;
    outputs_[n] = std::move(outputs_[i]);
    owners_[n++] = owners_[i];
  }
  outputs_.resize(n);
  owners_.resize(n);
  return total <= static_cast<double>(room) && n > 0 ? absl::OkStatus() : status;
}

bool Engine::Compiles(DeviceState& state, std::span<const ir::Value> values) {
  return BuildTrace(values).ok() && state.programs->Get(trace_).ok();
}

absl::Status Engine::SetAside(DeviceState& state, const absl::Status& status) {
  const std::vector<ir::Value> values = std::move(outputs_);
  outputs_.clear();
  owners_.clear();
  std::vector<std::span<const ir::Value>> refused = {values};
  std::vector<ir::Value> guilty;
  for (int trials = 0; !refused.empty();) {
    const std::span<const ir::Value> part = refused.back();
    refused.pop_back();
    if (part.size() == 1) {
      // Alone from the start: perhaps it was the moment's fault.
      if (values.size() > 1 || !Compiles(state, part)) guilty.push_back(part[0]);
      continue;
    }
    if ((trials += 2) > kMostTrials) return status;
    for (const auto half : {part.first(part.size() / 2), part.subspan(part.size() / 2)}) {
      if (!Compiles(state, half)) refused.push_back(half);
    }
  }
  if (guilty.empty()) return status;
  metrics_.Add(Counter::kTensorsSetAside, static_cast<int64_t>(guilty.size()));
  for (Tensor* tensor = state.first; tensor != nullptr; tensor = tensor->next_) {
    if (!tensor->expired_ && std::ranges::find(guilty, tensor->value_) != guilty.end()) tensor->set_aside_ = true;
  }
  absl::Status named(status.code(),
                     absl::StrCat(status.message(), "\nNo program can be made for ", Describe(guilty[0]),
                                  guilty.size() > 1 ? absl::StrCat(" and ", guilty.size() - 1, " more") : "",
                                  ": later barriers leave it out and compute the rest"));
  status.ForEachPayload([&](std::string_view key, const absl::Cord& value) { named.SetPayload(key, value); });
  return named;
}

void Engine::KeepLeavesOf(const ir::Value& value, const ir::Walk& walk) {
  std::vector<const ir::Node*> pending;
  const auto visit = [&](const ir::Value& v) {
    if (Data* data = DataOf(v)) {
      data->live_epoch = epoch_;
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

void Engine::PostponeCut(DeviceState& state, const absl::Status& status) {
  state.policy.Postpone();
  metrics_.Add(Counter::kCutsPostponed);
  if (std::exchange(state.postponed, true)) return;
  Log(LogLevel::kWarning, absl::StrCat("automatic cut of the pending graph on ", state.device->name,
                                       ": put off, tried again whenever the graph has doubled: ", status.message()));
}

}  // namespace weft::lazy
