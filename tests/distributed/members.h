// Threads that act as the members of a group, each with its own calls.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "src/distributed/communicator.h"
#include "src/runtime/clock.h"

namespace weft::distributed::test {

using Members = std::vector<std::unique_ptr<Communicator>>;

// Runs `act` for each member on a thread of its own; what it returned, by rank.
inline std::vector<absl::Status> RunAll(Members& members, const std::function<absl::Status(Communicator&)>& act) {
  std::vector<absl::Status> outcomes(members.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = act(*members[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

inline Patience ForMs(int64_t ms) { return {.deadline_ns = MonotonicNow() + ms * 1'000'000}; }

inline void SleepMs(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace weft::distributed::test
