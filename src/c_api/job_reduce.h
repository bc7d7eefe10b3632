// Sums and means over the processes of a job as recorded operations.
#pragma once

#include <span>
#include <vector>

#include "src/c_api/job_object.h"
#include "src/lazy/state_parts.h"

namespace weft::c_api {

struct ReduceHow {
  bool mean = false;
  lazy::BucketSizes buckets;
};

// Returns each tensor's sum or mean over all processes, recorded where the tensors are. Each bucket is one custom
// operation (job_calls.h).
absl::StatusOr<std::vector<Ref<lazy::Tensor>>> ReduceOver(const JobObject& job, std::span<lazy::Tensor* const> tensors,
                                                          const ReduceHow& how, ir::Location location);

}  // namespace weft::c_api
