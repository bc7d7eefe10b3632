// Which process of a job this one is: said by the caller, or found in the variables of the launcher.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/distributed/watch.h"
#include "src/runtime/status.h"

namespace weft::distributed {

struct JobPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the processes of this host
  int local_size = 1;
  int incarnation = 0;  // how often the job has been started again
  // This name is shared by all processes of the job, and by no other job of this host.
  std::string id;
  std::string token;
  // Where rank 0 of a job over several hosts listens, "host:port"; empty: nobody has said.
  std::string coordinator;
  Watch watch;  // a launcher's
  // Which rule found it, with the variables that it read: "weft launch: WEFT_RANK=2 WEFT_WORLD_SIZE=4". Never the token.
  std::string source;
  // The rules before it, and why they do not apply.
  std::vector<std::string> passed;
};

// These are the caller's settings; -1 and empty texts are to be found. A rank and a size go together.
struct JobWish {
  int rank = -1;
  int size = -1;
  int local_rank = -1;
  int local_size = -1;
  std::string id;
  std::string token;
  std::string coordinator;
};

// The first that applies: the wish, `weft launch`, torchrun, Open MPI, MPICH and Intel MPI, Slurm (a step of srun), Kubernetes'
// indexed jobs, TPU VMs, and else 1 of 1. INVALID_ARGUMENT for variables of which only some are there, that are no numbers, or
// that contradict each other; names them. `variable` is std::getenv.
absl::StatusOr<JobPlace> FindJobPlace(const JobWish& wish, absl::FunctionRef<const char*(const char*)> variable);

}  // namespace weft::distributed
