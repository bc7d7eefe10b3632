// One process's membership in a job: who it is, and the group of all its processes.
#pragma once

#include <atomic>
#include <memory>

#include "src/distributed/communicator.h"
#include "src/distributed/job_place.h"
#include "src/runtime/mutex.h"

namespace weft::distributed {

// Thread rule: any; calls of several threads come one after the other, and the order must be the same in all processes.
class Job {
 public:
  // Waits until all processes of the job have come. Errors of FindJobPlace, and of JoinSharedMemoryGroup or, for a job over several
  // hosts, JoinTcpGroup.
  static absl::StatusOr<std::unique_ptr<Job>> Join(JobPlace place, const Patience& patience);

  const JobPlace& place() const { return place_; }
  // Runs a collective of all processes; numbers it.
  absl::Status Run(Collective call, const Patience& patience);
  // Communicator::Unheard; false when the job was left.
  bool Unheard();
  // The collectives that this process has begun.
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  // Waits until all have come here and goes, so that an early leaver is no failure of the others. Later calls answer
  // FAILED_PRECONDITION.
  absl::Status Leave(const Patience& patience);

 private:
  Job(JobPlace place, std::unique_ptr<Communicator> group) : place_(std::move(place)), group_(std::move(group)) {}

  const JobPlace place_;
  Mutex mutex_;
  std::unique_ptr<Communicator> group_ ABSL_GUARDED_BY(mutex_);  // null: left
  std::atomic<uint64_t> calls_ = 0;                              // changed under the lock
};

}  // namespace weft::distributed
