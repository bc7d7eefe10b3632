// Sums and means over the processes of a job as recorded operations.
#pragma once

#include <span>
#include <vector>

#include "src/c_api/job_object.h"

namespace weft::c_api {

struct ReduceHow {
  bool mean = false;
  int64_t first_bucket_bytes = int64_t{1} << 20, bucket_bytes = int64_t{25} << 20;
};

// Returns each tensor's sum or mean over all processes, recorded where the tensors are. Each bucket is one custom
// operation, whose function runs the collective; programs know it by the job's number and say FAILED_PRECONDITION where
// that job has been released.
absl::StatusOr<std::vector<Ref<lazy::Tensor>>> ReduceOver(const JobObject& job, std::span<lazy::Tensor* const> tensors,
                                                          const ReduceHow& how, ir::Location location);

}  // namespace weft::c_api
