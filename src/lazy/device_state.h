// What an engine keeps for each of its devices.
#pragma once

#include <vector>

#include "src/backends/backend.h"
#include "src/compiler/program_cache.h"
#include "src/lazy/cut.h"
#include "src/lazy/cut_policy.h"
#include "src/lazy/live_list.h"

namespace weft::lazy {

// Thread rule: under the engine's lock, but for the first three, which never change.
struct DeviceState {
  Device* device = nullptr;
  Backend* backend = nullptr;
  compiler::ProgramCache* programs = nullptr;

  LiveList live;
  CutPolicy policy;
  bool postponed = false;  // the last automatic cut could not be had, and a warning has said so
  // Cuts whose owner has opened the lock: what they are made of is still wanted.
  std::vector<const Cut*> open_cuts;
  // Of the latest launches, oldest overwritten; the newest is at (launches - 1) % size.
  std::vector<Ref<Event>> events;
  uint64_t launches = 0;

  Ref<Event> last_event() const { return launches == 0 ? nullptr : events[(launches - 1) % events.size()]; }
};

}  // namespace weft::lazy
