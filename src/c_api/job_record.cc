// weft_job_record: one collective over the processes of a job, recorded as a call of a function (job_graph.h).
#include "src/c_api/job_graph.h"
#include "src/ops/parameter.h"
#include "src/ops/registry.h"
#include "weft.h"

namespace weft::c_api {
namespace {

using distributed::CollectiveKind;

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                                     CollectiveKind::kBroadcast};

absl::StatusOr<JobCollective> CollectiveOf(weft_job_collective collective, weft_job_reduction reduction, int32_t root) {
  if (static_cast<size_t>(collective) >= std::size(kKinds)) {
    return UserError("collective ", static_cast<int>(collective),
                     " is none; 0 to 4 are (WEFT_JOB_ALL_REDUCE to WEFT_JOB_BROADCAST)");
  }
  JobCollective made = {.kind = kKinds[collective], .root = root};
  if (made.kind != CollectiveKind::kAllReduce && made.kind != CollectiveKind::kReduceScatter) return made;
  if (reduction < WEFT_JOB_SUM || reduction > WEFT_JOB_MEAN) {
    return UserError("reduction ", static_cast<int>(reduction), " is none; 0 to 6 are (WEFT_JOB_SUM to WEFT_JOB_MEAN)");
  }
  made.mean = reduction == WEFT_JOB_MEAN;
  if (!made.mean) made.reduction = static_cast<distributed::Reduction>(reduction);
  return made;
}

absl::Status Record(weft_context* ctx, weft_job* job, const JobCollective& collective, weft_tensor* input,
                    weft_tensor** out) {
  WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(CheckJobRecords(*context));
  WEFT_ASSIGN_OR_RETURN(const Pin<JobObject> object, Get(job, "job"));
  WEFT_ASSIGN_OR_RETURN(const Pin<lazy::Tensor> tensor, GetTensor(input, "input"));
  lazy::Engine& engine = context->engine();
  if (&tensor->engine() != &engine) return UserError("input belongs to another context");
  WEFT_RETURN_IF_ERROR(CheckAlone(*tensor, "the input"));
  WEFT_RETURN_IF_ERROR(JobGraph::ResultOf(collective, tensor->type(), object->job->place().size).status());
  object->set_cancel(engine.services().StartToken(0));
  const ir::Location location = CurrentLocation(engine);
  ir::Builder b(location);
  std::vector<ir::Value> parameters = {ops::Parameter(tensor->type())};
  const ir::Value value = JobGraph(b, *engine.options().custom, *object).Collect(collective, parameters[0]);
  WEFT_RETURN_IF_ERROR(b.status());
  const Ref<const ir::Function> function =
      Intern(ir::Function::Create(std::string(distributed::NameOf(collective.kind)), std::move(parameters), {value}));
  lazy::Tensor* const operand = tensor.get();
  lazy::Tensors results;
  WEFT_RETURN_IF_ERROR(engine.Record(ops::kOp_call, {&operand, 1}, {}, location, &results, {}, {&function, 1}));
  return MakeTensor(std::move(results[0]), out);
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" weft_error* weft_job_record(weft_context* ctx, weft_job* job, weft_job_collective collective,
                                       weft_tensor* input, weft_job_reduction reduction, int32_t root,
                                       weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    const FloatScope floats;  // constants are computed here
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(const JobCollective made, CollectiveOf(collective, reduction, root));
    return Record(ctx, job, made, input, out);
  });
}
