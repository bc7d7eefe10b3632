// Launches a cut with its program and hangs the results on the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "src/lazy/record/mesh_state.h"
#include "src/runtime/metrics.h"

namespace weft::lazy {

// Drops the past of a known node, unless a gradient can ask for it.
void ForgetPast(const ir::Node& node);

// Thread rule: under the engine's lock. Waits for nothing.
class Launcher {
 public:
  // `takes_over`: launches may take over the memory of arguments that nobody needs any more.
  explicit Launcher(Metrics& metrics, bool takes_over = true) : metrics_(metrics), may_take_over_(takes_over) {}

  // Names the counter of launches of this reason.
  static Counter CounterOf(CutReason reason);
  // Returns the event after which there may be room for another launch, of results of so many bytes; null if there is room.
  static Ref<Event> Backlog(const MeshState& state, double bytes);

  // Returns how many bytes of the arguments a launch now would take over: those of candidates that nobody holds or
  // shows any more.
  int64_t BytesTakenOver(MeshState& state, const Cut& cut);

  // The program is the traced cut's, whose outputs are pending. An error means that nothing has changed. Afterwards pasts
  // that no gradient can ask for are gone, and the cut is empty. The launch's loops look at `cancel`.
  absl::Status Launch(MeshState& state, const std::shared_ptr<const compiler::Program>& program, CutReason reason,
                      const CancelToken& cancel, Cut* cut);

 private:
  // Chooses, of the arguments whose types allow donation, those that nobody needs any more.
  void ChooseDonations(MeshState& state, const Cut& cut);
  // Remembers the launch's results and the memory that it takes over, as long as it may fail; null if it has gone
  // through, or there is no memory for that. `settled`: when it is done and, on a host, has released its arguments.
  Ref<Launched> Remember(MeshState& state, const std::shared_ptr<const compiler::Program>& program, const Cut& cut,
                         const Ref<Event>& done, Ref<Event>* settled);

  // Makes what will hold the results, so that nothing fails once the launch has run.
  void MakeRoomFor(const MeshState& state, const compiler::Program& program, const Cut& cut);

  // Counts a launch of so many nodes that takes over so many arguments.
  void Count(const compiler::Program& program, const Cut& cut, CutReason reason, int64_t nodes, int64_t donations);

  Metrics& metrics_;
  const bool may_take_over_;
  uint64_t epoch_ = 0;  // of the marks of what is live in Data
  // Lists of the launch in hand, members so that they keep their room.
  std::vector<uint32_t> words_;
  std::vector<std::vector<Ref<Buffer>>> buffers_;  // per device of the mesh
  std::vector<uint8_t> donated_;                   // per buffer of a device
  std::vector<Ref<Data>> made_;                    // results, before they are there
  std::vector<uint8_t> takes_over_;                // per argument
};

}  // namespace weft::lazy
