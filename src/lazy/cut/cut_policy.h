// When a graph that nobody asks for is cut all the same: by nodes, by bytes, and between the repetitions of a loop.
// Depends on what was recorded alone, never on time or on where things lie in memory, so that runs repeat; only where
// memory does not suffice for a cut does the machine have a say (Postpone).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/lazy/service/options.h"

namespace weft::lazy {

// Why a graph was cut.
enum class CutReason : uint8_t { kHostRead, kBarrier, kEval, kNodes, kRepetition, kBytes, kEager, kSize, kCustom };
// Tells whether somebody asked for values by name and for nothing else.
inline bool AskedByName(CutReason reason) {
  return reason == CutReason::kHostRead || reason == CutReason::kEval || reason == CutReason::kSize ||
         reason == CutReason::kCustom;
}

// One per device. Thread rule: under the engine's lock.
class CutPolicy {
 public:
  void Configure(const Options& options);

  // An operation was recorded; equal signatures mean "the same again" as far as a glance can tell.
  void Recorded(uint32_t signature, int64_t nodes, int64_t bytes);
  // Asked before the next operation is recorded, when the caller has let go of what it no longer needs.
  std::optional<CutReason> Due();
  // Hears that so many of the pending nodes were computed because somebody asked for a value.
  void Computed(int64_t nodes);
  // The nodes and bytes recorded since the last cut, at one moment; others may record on while a cut is on its way.
  struct Mark {
    int64_t nodes = 0;
    int64_t bytes = 0;
    size_t operations = 0;
  };
  Mark mark() const { return {nodes_, bytes_, signatures_.size()}; }
  // Everything that was pending at the mark has been computed for this reason.
  void Cut(CutReason reason, const Mark& mark);
  // A cut that was due cannot be had: asked again at twice the nodes, so that asking in vain stays linear in all.
  void Postpone();

  int64_t pending_nodes() const { return nodes_; }

 private:
  // Finds out whether the latest operations repeat with some period, for at least three rounds and half of all that is
  // pending.
  void FindPeriod();

  int64_t max_nodes_ = 0;
  int64_t max_bytes_ = 0;
  int64_t repetition_nodes_ = 0;

  int64_t nodes_ = 0;
  int64_t bytes_ = 0;
  std::vector<uint32_t> signatures_;  // since the last cut
  int64_t next_search_ = 0;           // nodes at which to look for a period again
  int64_t postponed_to_ = 0;          // nodes below which nothing is due
  // One round of the loop, and where in signatures_ the next cut falls; empty and 0 while no loop is known.
  std::vector<uint32_t> round_;
  size_t round_start_ = 0;
  size_t cut_at_ = 0;
};

}  // namespace weft::lazy
