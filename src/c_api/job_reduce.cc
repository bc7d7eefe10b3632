// weft_job_reduce. Tensors of one dtype are laid side by side (a bucket), the last first, summed by one call, and taken
// apart; scaling and taking apart fuse with what reads the results.
#include "src/c_api/job_reduce.h"

#include <utility>

#include "src/c_api/callbacks.h"
#include "src/c_api/job_calls.h"
#include "src/c_api/options.h"
#include "src/ops/custom/custom_call.h"
#include "src/ops/registry.h"
#include "weft.h"

namespace weft::c_api {
namespace {

using Tensors = std::vector<Ref<lazy::Tensor>>;

struct Recording {
  lazy::Engine& engine;
  const JobObject& job;
  const ReduceHow& how;
  ir::Location location;

  absl::StatusOr<Ref<lazy::Tensor>> Record(const ir::OpDef& op, std::vector<lazy::Tensor*> operands, ir::Attrs attrs) {
    lazy::Tensors results;
    WEFT_RETURN_IF_ERROR(engine.Record(op, operands, std::move(attrs), location, &results));
    return std::move(results[0]);
  }
  absl::StatusOr<Ref<lazy::Tensor>> Reshaped(lazy::Tensor* tensor, const Dims& dims) {
    return Record(ops::kOp_reshape, {tensor}, {ir::Ints(dims.begin(), dims.end())});
  }
  absl::StatusOr<Ref<lazy::Tensor>> Summed(const Ref<lazy::Tensor>& flat);
  absl::Status Bucket(std::span<const size_t> members, std::span<lazy::Tensor* const> tensors, Tensors* results);
};

absl::StatusOr<Ref<lazy::Tensor>> Recording::Summed(const Ref<lazy::Tensor>& flat) {
  WEFT_ASSIGN_OR_RETURN(const Ref<const ops::CustomFunction> function,
                        JobFunction(*engine.options().custom, job,
                                    {.kind = distributed::CollectiveKind::kAllReduce, .dtype = flat->dtype()}));
  const ir::Types types = {flat->type()};
  WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> sum,
                        Record(ops::kOp_custom_call, {flat.get()}, ops::CustomAttrs(*function, types)));
  if (!how.mean) return sum;
  HostTensor part(flat->dtype(), {});
  part.SetDouble(0, 1.0 / job.job->place().size);
  WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Tensor> factor, engine.ScalarLike(*sum, part, /*constant=*/true, location));
  return Record(ops::kOp_mul, {sum.get(), factor.get()}, {});
}

absl::Status Recording::Bucket(std::span<const size_t> members, std::span<lazy::Tensor* const> tensors,
                               Tensors* results) {
  Tensors parts;
  std::vector<lazy::Tensor*> operands;
  int64_t count = 0;
  for (const size_t i : members) {
    const int64_t elements = CountOf(tensors[i]->dims());
    WEFT_ASSIGN_OR_RETURN(parts.emplace_back(), Reshaped(tensors[i], {elements}));
    operands.push_back(parts.back().get());
    count += elements;
  }
  Ref<lazy::Tensor> flat = parts[0];
  if (members.size() > 1) {
    WEFT_ASSIGN_OR_RETURN(flat, Record(ops::kOp_concatenate, operands, {int64_t{0}}));
  }
  WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Tensor> sum, Summed(flat));
  int64_t at = 0;
  for (const size_t i : members) {
    const int64_t elements = CountOf(tensors[i]->dims());
    Ref<lazy::Tensor> part = sum;
    if (elements != count) {
      WEFT_ASSIGN_OR_RETURN(part,
                            Record(ops::kOp_slice, {sum.get()}, {ir::Ints{at}, ir::Ints{at + elements}, ir::Ints{1}}));
    }
    WEFT_ASSIGN_OR_RETURN((*results)[i], Reshaped(part.get(), tensors[i]->dims()));
    at += elements;
  }
  return absl::OkStatus();
}

absl::StatusOr<ReduceHow> HowOf(weft_job_reduction reduction, const weft_job_reduce_options* options) {
  weft_job_reduce_options read = WEFT_JOB_REDUCE_OPTIONS_INIT;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof read, "weft_job_reduce_options", &read));
  if (reduction != WEFT_JOB_SUM && reduction != WEFT_JOB_MEAN) {
    return UserError("reduction is ", static_cast<int>(reduction), "; it is WEFT_JOB_SUM or WEFT_JOB_MEAN");
  }
  if (read.first_bucket_bytes < 0 || read.bucket_bytes < 0) {
    return UserError("buckets are of ", read.first_bucket_bytes, " and ", read.bucket_bytes,
                     " bytes; they are 0 (1 and 25 MiB) or a count");
  }
  ReduceHow how = {.mean = reduction == WEFT_JOB_MEAN};
  if (read.first_bucket_bytes != 0) how.buckets.first = read.first_bucket_bytes;
  if (read.bucket_bytes != 0) how.buckets.rest = read.bucket_bytes;
  return how;
}

absl::Status Reduce(weft_context* ctx, weft_job* job, weft_tensor* const* tensors, size_t count,
                    weft_job_reduction reduction, const weft_job_reduce_options* options, weft_tensor** outputs) {
  WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(CheckJobRecords(*context));
  WEFT_ASSIGN_OR_RETURN(const Pin<JobObject> object, Get(job, "job"));
  WEFT_ASSIGN_OR_RETURN(const ReduceHow how, HowOf(reduction, options));
  TensorList list;
  WEFT_RETURN_IF_ERROR(GetTensors(tensors, count, "tensors", &list));
  if (count > 0) WEFT_NOT_NULL(outputs);
  for (size_t i = 0; i < count; ++i) {
    if (&list[i]->engine() != &context->engine()) return UserError("tensors[", i, "] belongs to another context");
  }
  WEFT_ASSIGN_OR_RETURN(const Tensors reduced, ReduceOver(*object, list, how, CurrentLocation(context->engine())));
  return GiveTensors(reduced, outputs);
}

}  // namespace

absl::StatusOr<std::vector<Ref<lazy::Tensor>>> ReduceOver(const JobObject& job, std::span<lazy::Tensor* const> tensors,
                                                          const ReduceHow& how, ir::Location location) {
  Tensors results(tensors.size());
  if (tensors.empty()) return results;
  Recording recording = {tensors[0]->engine(), job, how, location};
  job.set_cancel(recording.engine.services().StartToken(0));
  std::vector<const ir::Type*> types;
  for (size_t i = tensors.size(); i-- > 0;) {
    WEFT_RETURN_IF_ERROR(CheckAlone(*tensors[i], absl::StrCat("tensor ", i)));
    WEFT_RETURN_IF_ERROR(CheckCarried(tensors[i]->dtype(), how.mean));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    types.push_back(&tensors[i]->type());
    if (CountOf(tensors[i]->dims()) == 0) results[i] = Ref<lazy::Tensor>::Share(tensors[i]);
  }
  for (const std::vector<size_t>& bucket : lazy::Buckets(types, how.buckets)) {
    WEFT_RETURN_IF_ERROR(recording.Bucket(bucket, tensors, &results));
  }
  return results;
}

}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" weft_error* weft_job_reduce(weft_context* ctx, weft_job* job, weft_tensor* const* tensors, size_t count,
                                       weft_job_reduction reduction, const weft_job_reduce_options* options,
                                       weft_tensor** outputs) noexcept {
  return Guard([&] { return Reduce(ctx, job, tensors, count, reduction, options, outputs); });
}
