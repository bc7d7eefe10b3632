// See job.h.
#include "src/distributed/job.h"

#include "absl/strings/numbers.h"

#include "src/distributed/in_process.h"
#include "src/distributed/shared_memory.h"
#include "src/distributed/tcp.h"

namespace weft::distributed {
namespace {

absl::Status WithSource(const absl::Status& status, const JobPlace& place) {
  return WithText(status, absl::StrCat(status.message(), " (rank ", place.rank, " by ", place.source, ")"));
}

absl::StatusOr<TcpOptions> TcpOptionsOf(const JobPlace& place, const Patience& patience) {
  if (place.coordinator.empty()) {
    return UserError("a job of ", place.size, " processes of which ", place.local_size, " are on this host (",
                     place.source, ") needs the address of rank 0: WEFT_COORDINATOR=host:port, the same for all");
  }
  TcpOptions options;
  const size_t colon = place.coordinator.rfind(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(place.coordinator.substr(colon + 1), &options.port)) {
    return UserError("the address of rank 0, '", place.coordinator, "', is not host:port");
  }
  options.host = place.coordinator.substr(0, colon);
  if (options.host.size() > 1 && options.host.front() == '[' && options.host.back() == ']') {
    options.host = options.host.substr(1, options.host.size() - 2);  // IPv6
  }
  // Those of another job, or of this one before it was started again, are sent away.
  options.token = absl::StrCat(place.incarnation, "#", place.token).substr(0, 256);
  options.rank = place.rank;
  options.size = place.size;
  options.patience = patience;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Job>> Job::Join(JobPlace place, const Patience& patience) {
  std::unique_ptr<Communicator> group;
  if (place.size == 1) {
    group = std::move(MakeInProcessGroup(1)[0]);
  } else if (place.local_size != place.size) {
    WEFT_ASSIGN_OR_RETURN(const TcpOptions options, TcpOptionsOf(place, patience));
    absl::StatusOr<std::unique_ptr<Communicator>> joined = JoinTcpGroup(options);
    if (!joined.ok()) return WithSource(joined.status(), place);
    group = *std::move(joined);
  } else {
    SharedMemoryOptions options = {.name = absl::StrCat(place.id, "#", place.incarnation),
                                   .token = place.token,
                                   .rank = place.rank,
                                   .size = place.size,
                                   .label = "",
                                   .patience = patience};
    absl::StatusOr<std::unique_ptr<Communicator>> joined = JoinSharedMemoryGroup(options);
    if (!joined.ok()) return WithSource(joined.status(), place);
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
  Patience own = patience;
  own.watch = &place_.watch;
  return group_->Run(call, own);
}

bool Job::Unheard() {
  const MutexLock lock(mutex_);
  return group_ != nullptr && group_->Unheard();
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
