// Cuts that cannot be had as they are: what memory does not suffice for, and what no program can be made of. Nothing is
// lost here: a value that is not computed stays pending.
#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "src/lazy/run/evaluator.h"
#include "src/lazy/value/live_report.h"
#include "src/runtime/status.h"

namespace weft::lazy {
namespace {

// Automatic cuts leave values pending that are so many times larger than all that they are made of: computing one again
// costs time, storing it costs memory that its maker did not ask for.
constexpr double kMuchLarger = 16;
// Programs compiled to find out who is at fault; two a level are enough for one among 2^32.
constexpr int kMostTrials = 64;

// Floating: sums of sizes may be larger than any memory, and than 63 bits.
double BytesOf(const ir::Value& value) { return static_cast<double>(value.type().bytes()); }

// "f32[8] (add, train.c:42)"
std::string Describe(const ir::Value& value) {
  const std::string at = ir::ToString(value.node->location());
  return absl::StrCat(ir::ShortType(value.type()), " (", value.node->op().c_name, at.empty() ? "" : ", ", at, ")");
}

ir::Value Largest(std::span<const ir::Value> values) { return *std::ranges::max_element(values, {}, BytesOf); }

absl::Status NoMemoryFor(const ir::Value& value, std::string_view why, const MeshState& state) {
  const absl::Status status = RetryAfterRelease(UserErrorOf(
      absl::StatusCode::kResourceExhausted, "no memory for ", Describe(value), " of ", value.type().bytes(), " bytes: ",
      why, "; release the tensor, or let a smaller result be all that is asked for", LargestLive(state.live)));
  const ir::Location at = value.node->location();
  return at.file != 0 ? WithDetail(status, kPayloadPosition, ir::ToString(at)) : status;
}

std::string Shortage(double wanted, const DeviceMesh& mesh, int64_t room) {
  return absl::StrCat(static_cast<int64_t>(std::min(wanted, 0x1p62)), " bytes are needed at once, ", room,
                      " are free on ", mesh.name());
}

}  // namespace

absl::Status Evaluator::OutOfMemory(const MeshState& state, const Cut& cut, const absl::Status& status) {
  if (!absl::IsResourceExhausted(status) || cut.empty()) return status;
  return NoMemoryFor(Largest(cut.outputs), status.message(), state);
}

absl::StatusOr<bool> Evaluator::WaitForMemory(Lock& lock, MeshState& state, const Cut& cut) {
  const Ref<Event> running = state.last_event();
  if (!running || running->done()) return false;
  WEFT_RETURN_IF_ERROR(Open(lock, state, cut, [&] { return services_.WaitUntilOver(*running, Part::kMemory); }));
  return true;
}

absl::StatusOr<int64_t> Evaluator::RoomFor(double wanted, Lock& lock, MeshState& state, const Cut& cut) {
  // The device with the least left: each has all of a whole value.
  const auto ask = [&] {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (Device* device : state.mesh.holders()) least = std::min(least, device->backend->bytes_available(device));
    return least;
  };
  const int64_t room = ask();
  if (room < 0 || wanted <= static_cast<double>(room)) return room;
  // A host runs many launches ahead, and what they hold comes back when they have run.
  WEFT_ASSIGN_OR_RETURN(const bool waited, WaitForMemory(lock, state, cut));
  return waited ? ask() : room;
}

absl::Status Evaluator::Fit(Lock& lock, MeshState& state, Cut* cut) {
  if (cut->asked == cut->outputs.size()) return absl::OkStatus();
  const double total = planner_.OutputBytes(*cut);
  if (total < static_cast<double>(options_.large_cut_bytes)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int64_t room, RoomFor(total, lock, state, *cut));
  if (room < 0 || total <= static_cast<double>(room)) return absl::OkStatus();
  absl::Status status = NoMemoryFor(Largest(cut->outputs), Shortage(total, state.mesh, room), state);
  double spared = 0;  // what is not larger stays an output
  if (cut->asked == 0) {
    WEFT_RETURN_IF_ERROR(planner_.Trace(cut));
    spared = kMuchLarger * CutPlanner::LeafBytes(*cut);
  }
  const bool fits = planner_.Shrink(static_cast<double>(room), spared, cut);
  services_.LogLazily(LogLevel::kInfo, [&] {
    return absl::StrCat(fits ? "what is large stays pending" : "nothing can be left out", ": ", status.message());
  });
  // Where somebody asked for values, the rest is a matter of speed; if those alone do not fit, CheckRoom says so.
  return fits || cut->asked > 0 ? absl::OkStatus() : status;
}

absl::Status Evaluator::CheckRoom(Lock& lock, MeshState& state, const Cut& cut, int64_t temporary_bytes) {
  double wanted = planner_.OutputBytes(cut) + static_cast<double>(temporary_bytes);
  if (wanted < static_cast<double>(options_.large_cut_bytes)) return absl::OkStatus();
  wanted -= static_cast<double>(launcher_.BytesTakenOver(state, cut));
  WEFT_ASSIGN_OR_RETURN(const int64_t room, RoomFor(wanted, lock, state, cut));
  if (room < 0 || wanted <= static_cast<double>(room)) return absl::OkStatus();
  return NoMemoryFor(Largest(cut.outputs), Shortage(wanted, state.mesh, room), state);
}

absl::StatusOr<bool> Evaluator::Compiles(Lock& lock, MeshState& state, std::span<const ir::Value> values) {
  Cut trial;
  planner_.These(values, &trial);
  if (trial.empty()) return true;
  WEFT_RETURN_IF_ERROR(planner_.Trace(&trial));
  CutPlanner::Lie(state.mesh, &trial);
  const absl::Status status = ProgramOf(lock, state, trial).status();
  if (GaveUp(status)) return status;
  return status.ok();
}

absl::Status Evaluator::SetAside(Lock& lock, MeshState& state, const Cut& cut, const absl::Status& status) {
  const OpenCut open(state, cut);
  const std::span<const ir::Value> values = cut.outputs;
  std::vector<std::span<const ir::Value>> refused = {values};
  std::vector<ir::Value> guilty;
  for (int trials = 0; !refused.empty();) {
    const std::span<const ir::Value> part = refused.back();
    refused.pop_back();
    if (part.size() == 1) {
      // Alone from the start: perhaps it was the moment's fault.
      bool fine = false;
      if (values.size() == 1) {
        WEFT_ASSIGN_OR_RETURN(fine, Compiles(lock, state, part));
      }
      if (!fine) guilty.push_back(part[0]);
      continue;
    }
    if ((trials += 2) > kMostTrials) return status;
    for (const auto half : {part.first(part.size() / 2), part.subspan(part.size() / 2)}) {
      WEFT_ASSIGN_OR_RETURN(const bool fine, Compiles(lock, state, half));
      if (!fine) refused.push_back(half);
    }
  }
  if (guilty.empty()) return status;
  metrics_.Add(Counter::kTensorsSetAside, static_cast<int64_t>(guilty.size()));
  for (Tensor& tensor : state.live) {
    if (!tensor.state.expired && std::ranges::find(guilty, tensor.value()) != guilty.end())
      tensor.state.set_aside = true;
  }
  services_.LogLazily(LogLevel::kInfo, [&] {
    return absl::StrCat(guilty.size(), " tensors are set aside, the first is ", Describe(guilty[0]), ": ",
                        status.message());
  });
  return WithText(status, absl::StrCat(status.message(), "\nNo program can be made for ", Describe(guilty[0]),
                                       guilty.size() > 1 ? absl::StrCat(" and ", guilty.size() - 1, " more") : "",
                                       ": later barriers leave it out and compute the rest"));
}

void Evaluator::PostponeCut(MeshState& state, const absl::Status& status) {
  state.policy.Postpone();
  metrics_.Add(Counter::kCutsPostponed);
  if (std::exchange(state.postponed, true)) return;
  services_.Log(LogLevel::kWarning,
                absl::StrCat("automatic cut of the pending graph on ", state.mesh.name(),
                             ": put off, tried again whenever the graph has doubled: ", status.message()));
}

}  // namespace weft::lazy
