// See job.h.
#include "src/distributed/job.h"

#include "src/distributed/in_process.h"
#include "src/distributed/shared_memory.h"

namespace weft::distributed {

absl::StatusOr<std::unique_ptr<Job>> Job::Join(JobPlace place, int64_t deadline_ns) {
  std::unique_ptr<Communicator> group;
  if (place.size == 1) {
    group = std::move(MakeInProcessGroup(1)[0]);
  } else if (place.local_size != place.size) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "a job of ", place.size, " processes of which ",
                       place.local_size, " are on this host (", place.source,
                       "): jobs over several hosts are not there yet");
  } else {
    SharedMemoryOptions options = {.name = absl::StrCat(place.id, "#", place.incarnation),
                                   .token = place.token,
                                   .rank = place.rank,
                                   .size = place.size,
                                   .label = "",
                                   .deadline_ns = deadline_ns};
    absl::StatusOr<std::unique_ptr<Communicator>> joined = JoinSharedMemoryGroup(options);
    if (!joined.ok()) {
      return WithText(joined.status(),
                      absl::StrCat(joined.status().message(), " (rank ", place.rank, " by ", place.source, ")"));
    }
    group = *std::move(joined);
  }
  return std::unique_ptr<Job>(new Job(std::move(place), std::move(group)));
}

absl::Status Job::Run(Collective call, const Patience& patience) {
  const MutexLock lock(mutex_);
  if (group_ == nullptr) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "this process has left the job; join it again");
  }
  call.tag = ++calls_;
  return group_->Run(call, patience);
}

absl::Status Job::Leave(const Patience& patience) {
  Collective barrier;
  barrier.where = "leave";
  const absl::Status outcome = Run(barrier, patience);
  const MutexLock lock(mutex_);
  group_.reset();
  return outcome;
}

}  // namespace weft::distributed
