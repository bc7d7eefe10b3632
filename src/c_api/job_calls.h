// A job's collectives as custom operations, which programs call.
#pragma once

#include "src/c_api/job_object.h"
#include "src/ops/custom/functions.h"

namespace weft::c_api {

// The registered function of a job: kAllReduce gives the sum of [n], kReduceScatter the sum of this process's row of [P, n], kAllGather
// [P, n] of [n]. Made when it is first needed. Programs know the job by its number and say FAILED_PRECONDITION where it has been released.
absl::StatusOr<Ref<const ops::CustomFunction>> JobFunction(ops::CustomFunctions& registered, const JobObject& job,
                                                           distributed::CollectiveKind kind, DType dtype);

// UNIMPLEMENTED where values of this type do not travel, INVALID_ARGUMENT where they have no mean and one is asked for.
absl::Status CheckCarried(DType dtype, bool mean);

}  // namespace weft::c_api
