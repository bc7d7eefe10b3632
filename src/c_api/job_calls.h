// A job's collectives as custom operations, which programs call.
#pragma once

#include "src/c_api/job_object.h"
#include "src/ops/custom/functions.h"

namespace weft::c_api {

// One collective of a job over values in rows: kAllReduce and kBroadcast give [n] of [n], kAllGather [P, n] of [n], kReduceScatter [n] of
// [P, n], kAllToAll [P, n] of [P, n].
struct JobCall {
  distributed::CollectiveKind kind;
  DType dtype;
  distributed::Reduction reduction = distributed::Reduction::kSum;
  int root = 0;            // of kBroadcast, and whose result counts:
  bool only_root = false;  // kAllReduce gives zeros to all others
};

// The registered function of a call. Made when it is first needed. Programs know the job by its number and say FAILED_PRECONDITION where it
// has been released.
absl::StatusOr<Ref<const ops::CustomFunction>> JobFunction(ops::CustomFunctions& registered, const JobObject& job,
                                                           const JobCall& call);

// UNIMPLEMENTED where values of this type do not travel in calls, INVALID_ARGUMENT where they have no mean and one is asked for.
absl::Status CheckCarried(DType dtype, bool mean);

// Checks of what records a collective: a context that records a program, not a body, and tensors that lie on one device.
absl::Status CheckJobRecords(const Context& context);
absl::Status CheckAlone(const lazy::Tensor& tensor, std::string_view what);

}  // namespace weft::c_api
