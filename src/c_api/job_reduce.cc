// weft_job_reduce. Tensors of one dtype are laid side by side (a bucket), the last first, summed by one call, and taken
// apart; scaling and taking apart fuse with what reads the results.
#include "src/c_api/job_reduce.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "src/c_api/callbacks.h"
#include "src/c_api/options.h"
#include "src/ops/custom/custom_call.h"
#include "src/ops/registry.h"
#include "weft.h"

namespace weft::c_api {
namespace {

using Tensors = std::vector<Ref<lazy::Tensor>>;

// --- The functions that programs call -------------------------------------------------------------------------------------

template <uint32_t kDtype>
weft_error* SumOver(const void* input, uint64_t count, void* output, int64_t job) noexcept {
  return Guard([&]() -> absl::Status {
    const Ref<JobObject> object = JobObject::OfNumber(job);
    if (object == nullptr) {
      return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                         "the job was released before a program that has its sums ran; read the results first");
    }
    distributed::Collective call = {.kind = distributed::CollectiveKind::kAllReduce};
    call.dtype = static_cast<DType>(kDtype);
    call.count = static_cast<int64_t>(count);
    call.input = input;
    call.output = output;
    const int64_t now = MonotonicNow();
    const CancelToken cancel = object->cancel();
    distributed::Patience patience = object->PatienceFrom(now);
    patience.cancel = &cancel;
    patience.began_ns = now;
    return object->job->Run(call, patience);
  });
}

// An element type that sums travel as: its name in C prototypes, and the function.
struct Carrier {
  DType dtype;
  std::string_view type;
  weft_error* (*function)(const void*, uint64_t, void*, int64_t);
};
template <DType kDtype>
constexpr Carrier CarrierOf(std::string_view type) {
  return {kDtype, type, SumOver<static_cast<uint32_t>(kDtype)>};
}
constexpr Carrier kCarriers[] = {
    CarrierOf<DType::kF32>("float"),    CarrierOf<DType::kF64>("double"),   CarrierOf<DType::kF16>("f16"),
    CarrierOf<DType::kBF16>("bf16"),    CarrierOf<DType::kI32>("int32_t"),  CarrierOf<DType::kI64>("int64_t"),
    CarrierOf<DType::kU32>("uint32_t"), CarrierOf<DType::kU64>("uint64_t"),
};

absl::StatusOr<const Carrier*> CarrierFor(DType dtype, const ReduceHow& how) {
  const auto* const found = std::ranges::find(kCarriers, dtype, &Carrier::dtype);
  if (found == std::end(kCarriers)) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "a tensor is of ", NameOf(dtype),
                       "; f32, f64, f16, bf16 and integers of 32 and 64 bits are added up over processes");
  }
  if (how.mean && !IsFloat(dtype)) {
    return UserError("a tensor is of ", NameOf(dtype), ", which has no mean; convert it, or take the sum");
  }
  return found;
}

// The registered function of a job and a dtype: made when it is first needed.
absl::StatusOr<Ref<const ops::CustomFunction>> FunctionOf(ops::CustomFunctions& registered, const JobObject& job,
                                                          const Carrier& carrier) {
  const std::string name = absl::StrCat("weft.job", job.number(), ".sum.", NameOf(carrier.dtype));
  if (Ref<const ops::CustomFunction> known = registered.Find(name)) return known;
  auto function = MakeRef<ops::CustomFunction>();
  function->name = name;
  WEFT_ASSIGN_OR_RETURN(function->signature, ops::CustomSignature::Parse(
                                                 ops::CustomKind::kBuffers,
                                                 absl::StrCat("weft_error*(const ", carrier.type, "*[n], size_t=n, ",
                                                              carrier.type, "*[n], ", "int64_t=", job.number(), ")")));
  function->address = reinterpret_cast<void*>(carrier.function);
  function->many_threads = true;  // jobs take turns themselves
  function->take_error = TakeError;
  const absl::Status added = registered.Add(function);
  if (absl::IsAlreadyExists(added)) return registered.Get(name);  // another thread was first
  WEFT_RETURN_IF_ERROR(added);
  return Ref<const ops::CustomFunction>(std::move(function));
}

// --- Recording ------------------------------------------------------------------------------------------------------------

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
  absl::StatusOr<Ref<lazy::Tensor>> Summed(const Ref<lazy::Tensor>& flat, const Carrier& carrier);
  absl::Status Bucket(std::span<const size_t> members, std::span<lazy::Tensor* const> tensors, const Carrier& carrier,
                      Tensors* results);
};

absl::StatusOr<Ref<lazy::Tensor>> Recording::Summed(const Ref<lazy::Tensor>& flat, const Carrier& carrier) {
  WEFT_ASSIGN_OR_RETURN(const Ref<const ops::CustomFunction> function,
                        FunctionOf(*engine.options().custom, job, carrier));
  const ir::Types types = {flat->type()};
  WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> sum,
                        Record(ops::kOp_custom_call, {flat.get()}, ops::CustomAttrs(*function, types)));
  if (!how.mean) return sum;
  HostTensor part(carrier.dtype, {});
  part.SetDouble(0, 1.0 / job.job->place().size);
  WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Tensor> factor, engine.ScalarLike(*sum, part, /*constant=*/true, location));
  return Record(ops::kOp_mul, {sum.get(), factor.get()}, {});
}

absl::Status Recording::Bucket(std::span<const size_t> members, std::span<lazy::Tensor* const> tensors,
                               const Carrier& carrier, Tensors* results) {
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
  WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Tensor> sum, Summed(flat, carrier));
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
  if (read.first_bucket_bytes != 0) how.first_bucket_bytes = read.first_bucket_bytes;
  if (read.bucket_bytes != 0) how.bucket_bytes = read.bucket_bytes;
  return how;
}

absl::Status Reduce(weft_context* ctx, weft_job* job, weft_tensor* const* tensors, size_t count,
                    weft_job_reduction reduction, const weft_job_reduce_options* options, weft_tensor** outputs) {
  WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(context->Usable());
  if (context->frame() != nullptr) {
    return UserErrorOf(absl::StatusCode::kUnimplemented,
                       "ctx records the body of a function; sums over processes are for the program");
  }
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
  struct Open {
    std::vector<size_t> members;
    int64_t bytes = 0;
    bool first = true;
  };
  std::map<const Carrier*, Open> buckets;  // in the order of the table: the same in all processes
  const auto close = [&](const Carrier* carrier, Open& bucket) -> absl::Status {
    if (!bucket.members.empty()) {
      WEFT_RETURN_IF_ERROR(recording.Bucket(bucket.members, tensors, *carrier, &results));
    }
    bucket = {.members = {}, .bytes = 0, .first = false};
    return absl::OkStatus();
  };
  for (size_t i = tensors.size(); i-- > 0;) {
    lazy::Tensor* const tensor = tensors[i];
    if (!tensor->sharding().mesh().alone()) {
      return UserErrorOf(absl::StatusCode::kUnimplemented, "tensor ", i, " is on ", tensor->sharding().mesh().name(),
                         "; tensors on a mesh are not added up over processes yet");
    }
    WEFT_ASSIGN_OR_RETURN(const Carrier* const carrier, CarrierFor(tensor->dtype(), how));
    const int64_t bytes = CountOf(tensor->dims()) * BytesOf(tensor->dtype());
    if (bytes == 0) {
      results[i] = Ref<lazy::Tensor>::Share(tensor);
      continue;
    }
    Open& bucket = buckets[carrier];
    if (bucket.bytes + bytes > (bucket.first ? how.first_bucket_bytes : how.bucket_bytes)) {
      WEFT_RETURN_IF_ERROR(close(carrier, bucket));
    }
    bucket.members.push_back(i);
    bucket.bytes += bytes;
  }
  for (auto& [carrier, bucket] : buckets) WEFT_RETURN_IF_ERROR(close(carrier, bucket));
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
