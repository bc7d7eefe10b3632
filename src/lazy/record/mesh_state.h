// An engine keeps this state for each mesh of devices on which its programs run.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "src/backends/backend.h"
#include "src/compiler/program_cache.h"
#include "src/lazy/cut/cut.h"
#include "src/lazy/cut/cut_policy.h"
#include "src/lazy/value/launched.h"
#include "src/lazy/value/live_list.h"

namespace weft::lazy {

class Replay;

// Thread rule: under the engine's lock, but for the first three, which never change.
struct MeshState {
  MeshState(std::vector<Device*> devices, ir::Mesh axes, compiler::ProgramCache* programs,
            std::shared_ptr<Metrics> metrics = nullptr);
  ~MeshState();
  const DeviceMesh mesh;
  compiler::ProgramCache* const programs;
  std::unique_ptr<Replay> replay;  // of the steps that run here; an engine's meshes have one each
  Placement whole() const { return Placement::Whole(mesh); }

  LiveList live;
  CutPolicy policy;
  bool postponed = false;  // the last automatic cut could not be had, and a warning has said so
  // Cuts whose owner has opened the lock: what they are made of is still wanted.
  std::vector<const Cut*> open_cuts;
  // Launches that may be ahead of the devices: each keeps its arguments and results. Those whose results are so many bytes together
  // are two, of which one runs: more would hold memory that never ran computes for, and what is new is slow to touch.
  static constexpr size_t kAhead = 32, kAheadAtAnyRate = 2;
  static constexpr double kAheadBytes = 256 << 20;
  // The events of the latest launches and the bytes of their results, the oldest overwritten.
  std::array<Ref<Event>, kAhead> events;
  std::array<double, kAhead> result_bytes = {};
  uint64_t launches = 0;
  // How many launches a wait for room lets end. Of launches that come every few hundred microseconds it is several, so that the
  // caller is woken, and takes a processor from the kernels, once for all of them.
  static constexpr uint64_t kTogether = 8;
  static constexpr int64_t kShortNs = 1'000'000;
  struct Room {
    uint64_t wanted = 1;
    uint64_t launches = 0;  // and the time when the last such wait ended
    int64_t at = 0;
  };
  Room room;
  // A wait for room has ended now.
  void Waited(int64_t now) {
    if (launches == room.launches) return;
    const bool are_short = now - room.at < kShortNs * static_cast<int64_t>(launches - room.launches);
    room = {are_short ? kTogether : 1, launches, now};
  }
  // Launches of which nobody has seen how they went, oldest first, and of one that failed what nobody has been told yet.
  std::deque<Ref<Launched>> underway;
  absl::Status untold;
  absl::Status found_bad;    // the same of a launch with a bad number (first_bad)
  bool settling = false;     // somebody looks at them
  uint64_t assignments = 0;  // tensors that have been assigned to
  // Somebody knows of all that have failed so far.
  void Told() {
    untold = absl::OkStatus();
    for (const Ref<Launched>& launched : underway) {
      if (launched->done->done() && !launched->done->status().ok()) launched->told = true;
    }
  }
  // Lets go of what launches needed that have gone through.
  void Land() {
    while (!underway.empty() && underway.front()->done->done() && underway.front()->done->status().ok()) {
      underway.front()->Forget();
      underway.pop_front();
    }
  }

  Ref<Event> last_event() const { return launches == 0 ? nullptr : events[(launches - 1) % kAhead]; }
};

// A cut whose owner has the lock open: its outputs are shown, and no other launch takes over what they are made of.
class OpenCut {
 public:
  OpenCut(MeshState& state, const Cut& cut) : state_(state), cut_(cut) {
    state_.open_cuts.push_back(&cut_);
    for (const ir::Value& output : cut_.outputs) output.node->Show();
  }
  ~OpenCut() {
    for (const ir::Value& output : cut_.outputs) output.node->Hide();
    state_.open_cuts.erase(std::ranges::find(state_.open_cuts, &cut_));
  }
  OpenCut(const OpenCut&) = delete;
  OpenCut& operator=(const OpenCut&) = delete;

 private:
  MeshState& state_;
  const Cut& cut_;
};

// The values of tensors that live on one mesh, as they are now: others may assign to them while something is compiled.
struct ValuesAt {
  MeshState* state;
  std::vector<ir::Value> values;
};

}  // namespace weft::lazy
