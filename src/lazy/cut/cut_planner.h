// The planner chooses the part of the pending graph that is computed next: it makes Cut values out of live tensors or
// of values that somebody asks for. Pure but for marks in nodes and data: it computes nothing, waits for nothing, and
// keeps nothing from call to call but its vectors' room.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/lazy/cut/cut.h"
#include "src/lazy/value/live_list.h"
#include "src/runtime/held_types.h"

namespace weft::lazy {

// Thread rule: under the engine's lock.
class CutPlanner {
 public:
  // `held` says how large results are.
  explicit CutPlanner(const HeldTypes& held = {}) : held_(held) {}

  // Live tensors that are pending and not set aside, distinct values in creation order. A barrier computes those of
  // scopes only if they were assigned to, an automatic cut takes all and must have none. Values that changed after
  // `time` are left to later cuts.
  enum class For : uint8_t { kBarrier, kAutomatic };
  void Live(LiveList& live, uint64_t time, For what, Cut* cut);
  // These, as far as they are pending.
  void These(std::span<const ir::Value> values, Cut* cut);
  // These, which are distinct, as far as they are pending; their launch may take over what is offered for each.
  void Over(std::span<const ir::Value> values, std::span<const Ref<Data>> offered, Cut* cut);
  // These, then what must be computed to know them and is wanted from outside that, so that nothing is computed twice.
  void Shared(std::span<const ir::Value> values, Cut* cut);

  // Begins an empty cut whose arguments the caller adds one by one, each a leaf that is known and has not been added.
  void Begin(Cut* cut) { cut->Clear(), ++epoch_; }
  void Take(const ir::Value& leaf, Cut* cut);
  // Flattens what the outputs need. A value that is known already becomes an argument.
  absl::Status Trace(Cut* cut);
  // Says which arguments of a traced cut may be taken over, by type alone; the launch finds out who needs them.
  void Offer(Cut* cut);

  // Says how the arguments of a traced cut, behind Offer, lie on the mesh, and its outputs as far as somebody has said
  // so: a value that is assigned lies as the one it is assigned over. A device alone needs none of this.
  static void Lie(const DeviceMesh& mesh, Cut* cut);

  // Takes the largest outputs out that nobody asked for and that are larger than `spared` bytes, until the rest is at most
  // `room`; what they are made of comes instead. Returns whether the rest fits. The trace is stale then.
  bool Shrink(double room, double spared, Cut* cut);
  // Bytes of the buffers among the arguments.
  static double LeafBytes(const Cut& cut);
  double OutputBytes(const Cut& cut) const;

 private:
  double BytesOf(const ir::Value& value) const;

  const HeldTypes held_;
  uint64_t epoch_ = 0;  // of argument numbers in Data
  std::vector<std::pair<const ir::Node*, uint32_t>> stack_;
};

// Marks with `epoch` the data that a pending value is made of: no launch may take it over. `walk` spans several calls.
void KeepLeavesOf(const ir::Value& value, const ir::Walk& walk, uint64_t epoch);

}  // namespace weft::lazy
