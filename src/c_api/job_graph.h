// Collectives over the processes of a job as values of a graph: calls (job_calls.h) with their gradients, of every dtype and shape.
#pragma once

#include "src/c_api/job_calls.h"
#include "src/ir/builder.h"

namespace weft::c_api {

// A collective as weft_job_record has it.
struct JobCollective {
  distributed::CollectiveKind kind;
  distributed::Reduction reduction = distributed::Reduction::kSum;
  bool mean = false;  // the sum, divided by the number of processes
  int root = 0;
};

// Thread rule: one thread.
class JobGraph {
 public:
  JobGraph(ir::Builder& b, ops::CustomFunctions& registered, const JobObject& job)
      : b_(b), registered_(registered), job_(job), size_(job.job->place().size) {}

  // The shape of a result; INVALID_ARGUMENT where the collective has none of this input, or no such reduction.
  static absl::StatusOr<ir::Type> ResultOf(const JobCollective& collective, const ir::Type& input, int64_t size);
  // Its value. The collective has been checked.
  ir::Value Collect(const JobCollective& collective, const ir::Value& x);
  // One call on rows. Where it is a sum, or moves floats, it has a gradient, whose calls have gradients, so many times.
  ir::Value Call(const JobCall& call, ir::Value rows, int derivatives);

 private:
  Ref<const ir::Function> GradientOf(const JobCall& call, const ir::Type& in, const ir::Type& out, int derivatives);
  // A call on rows of any dtype.
  ir::Value Moved(const JobCollective& collective, ir::Value rows);
  // Rows that other processes' are combined with here, by operations that have gradients: kAllReduce and kReduceScatter.
  ir::Value Combined(const JobCollective& collective, ir::Value rows);

  ir::Builder& b_;
  ops::CustomFunctions& registered_;
  const JobObject& job_;
  const int64_t size_;
};

}  // namespace weft::c_api
