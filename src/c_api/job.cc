// weft_job_*: jobs of several processes, and collectives of tensors' values.
#include "src/distributed/job.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "src/c_api/job_object.h"
#include "src/c_api/options.h"
#include "src/runtime/json_text.h"
#include "src/runtime/lasting.h"
#include "weft.h"

namespace weft::c_api {

absl::StatusOr<distributed::JobPlace> PlaceOf(const distributed::JobWish& wish) {
  return distributed::FindJobPlace(wish, [](const char* name) -> const char* { return std::getenv(name); });
}

namespace {

// The jobs of this process by number; the objects take themselves out.
struct Jobs {
  Mutex mutex;
  std::vector<JobObject*> by_number ABSL_GUARDED_BY(mutex);

  void HoldOverFork() { weft::HoldOverFork(mutex, ForkOrder::kThen); }
};
constinit Lasting<Jobs> g_jobs;

int64_t TakeNumber(JobObject* job) {
  Jobs& jobs = g_jobs.Get();
  MutexLock lock(jobs.mutex);
  const auto free = std::ranges::find(jobs.by_number, nullptr);
  const int64_t number = free - jobs.by_number.begin();
  if (free == jobs.by_number.end()) {
    jobs.by_number.push_back(job);
  } else {
    *free = job;
  }
  return number;
}

}  // namespace

JobObject::JobObject(std::unique_ptr<distributed::Job> job, int64_t timeout_ms, Ref<lazy::Engine> engine)
    : job(std::move(job)), timeout_ms(timeout_ms), engine(std::move(engine)), number_(TakeNumber(this)) {
  fork.Started();
}

JobObject::~JobObject() {
  Jobs& jobs = g_jobs.Get();
  MutexLock lock(jobs.mutex);
  jobs.by_number[static_cast<size_t>(number_)] = nullptr;
}

Ref<JobObject> JobObject::OfNumber(int64_t number) {
  Jobs& jobs = g_jobs.Get();
  MutexLock lock(jobs.mutex);
  if (number < 0 || static_cast<size_t>(number) >= jobs.by_number.size()) return nullptr;
  JobObject* const found = jobs.by_number[static_cast<size_t>(number)];
  return found != nullptr && found->TryAddRef() ? Ref<JobObject>(found) : nullptr;
}

absl::Status WaitUnder(lazy::Engine* engine, distributed::Patience patience,
                       absl::FunctionRef<absl::Status(const distributed::Patience&)> wait) {
  if (engine == nullptr) return wait(patience);
  lazy::Services& services = engine->services();
  const uint32_t before = services.cancels();
  const CancelToken cancel = services.StartToken(0);
  WEFT_RETURN_IF_ERROR(services.Interrupted(before));
  patience.cancel = &cancel;
  patience.began_ns = MonotonicNow();
  absl::Status outcome = wait(patience);
  if (absl::IsCancelled(outcome)) (void)services.CheckCancelled(before);  // whoever asked has the answer
  return outcome;
}

absl::StatusOr<HostTensor> ValuesOver(const JobObject& job, lazy::Tensor& input, Dims dims,
                                      distributed::Collective call) {
  lazy::Engine& engine = input.engine();
  HostTensor from(input.dtype(), input.dims()), to(input.dtype(), std::move(dims));
  WEFT_RETURN_IF_ERROR(engine.ToHost(&input, from.mutable_bytes()));
  call.dtype = input.dtype();
  call.input = from.bytes().data();
  call.output = to.mutable_bytes().data();
  WEFT_RETURN_IF_ERROR(WaitUnder(&engine, job.PatienceFrom(MonotonicNow()),
                                 [&](const distributed::Patience& patience) { return job.job->Run(call, patience); }));
  return to;
}

namespace {

constexpr int64_t kTimeoutMs = 300'000;
constexpr int64_t kMostTimeoutMs = int64_t{1} << 40;  // 34 years

absl::StatusOr<std::string> OptionText(const char* data, uint64_t length, std::string_view name) {
  if (data == nullptr) return std::string();
  WEFT_ASSIGN_OR_RETURN(const std::string_view text, Text(data, static_cast<size_t>(length), name));
  return std::string(text);
}

absl::StatusOr<weft_job_options> ReadJobOptions(const weft_job_options* options) {
  weft_job_options read = WEFT_JOB_OPTIONS_INIT;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof read, "weft_job_options", &read));
  if (read.timeout_ms < 0 || read.timeout_ms > kMostTimeoutMs) {
    return UserError("timeout_ms is ", read.timeout_ms, "; it is from 0 (300,000) to ", kMostTimeoutMs);
  }
  if (read.timeout_ms == 0) read.timeout_ms = kTimeoutMs;
  return read;
}

absl::StatusOr<distributed::JobPlace> PlaceOf(const weft_job_options& options) {
  distributed::JobWish wish;
  if (options.size < 0)
    return UserError("size is ", options.size, "; it is the number of processes, or 0 where it is to be found");
  if (options.size != 0) {
    if (options.rank < 0) return UserError("rank is ", options.rank, "; ranks are from 0 on");
    wish.rank = options.rank;
    wish.size = options.size;
    if (options.local_size != 0) {
      wish.local_rank = options.local_rank;
      wish.local_size = options.local_size;
    }
  }
  WEFT_ASSIGN_OR_RETURN(wish.id, OptionText(options.id, options.id_length, "id"));
  WEFT_ASSIGN_OR_RETURN(wish.token, OptionText(options.token, options.token_length, "token"));
  WEFT_ASSIGN_OR_RETURN(wish.coordinator, OptionText(options.coordinator, options.coordinator_length, "coordinator"));
  return c_api::PlaceOf(wish);
}

std::string PlaceJson(const distributed::JobPlace& place) {
  std::string passed;
  for (const std::string& rule : place.passed) absl::StrAppend(&passed, passed.empty() ? "" : ", ", JsonText(rule));
  return absl::StrCat("{\"rank\": ", place.rank, ", \"size\": ", place.size, ", \"local_rank\": ", place.local_rank,
                      ", \"local_size\": ", place.local_size, ", \"incarnation\": ", place.incarnation,
                      ", \"source\": ", JsonText(place.source), ", \"passed\": [", passed, "]}");
}

// The values of `input` through one collective, as a tensor of this shape.
absl::Status RunOn(const JobObject& job, lazy::Tensor& input, Dims dims, const distributed::Collective& call,
                   weft_tensor** out) {
  lazy::Engine& engine = input.engine();
  WEFT_ASSIGN_OR_RETURN(const HostTensor to, ValuesOver(job, input, std::move(dims), call));
  WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> result, engine.FromHost(lazy::Where(input.device()), to.dtype(), to.dims(),
                                                                  to.bytes(), CurrentLocation(engine)));
  return MakeTensor(std::move(result), out);
}

absl::StatusOr<distributed::Reduction> ReductionOf(weft_job_reduction reduction) {
  if (reduction < WEFT_JOB_SUM || reduction > WEFT_JOB_OR) {
    return UserError("reduction ", static_cast<int>(reduction), " is none; 0 to 5 are (WEFT_JOB_SUM to WEFT_JOB_OR)");
  }
  return static_cast<distributed::Reduction>(reduction);
}

int64_t CountOf(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

// The shape whose first dimension is a part of the input's.
absl::StatusOr<Dims> PartOfDims(const JobObject& job, const lazy::Tensor& input) {
  const int64_t size = job.job->place().size;
  Dims dims = input.dims();
  if (dims.empty() || dims[0] % size != 0) {
    return UserError("the input is ", ir::ShortType(input.type()), "; its first dimension must be a multiple of the ",
                     size, " processes of the job");
  }
  dims[0] /= size;
  return dims;
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;
using distributed::CollectiveKind;

extern "C" {

weft_error* weft_job_join(const weft_job_options* options, weft_job** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(const weft_job_options read, ReadJobOptions(options));
    WEFT_ASSIGN_OR_RETURN(distributed::JobPlace place, PlaceOf(read));
    Pin<Context> context;
    if (read.context != nullptr) {
      WEFT_ASSIGN_OR_RETURN(context, Get(read.context, "weft_job_options.context"));
    }
    lazy::Engine* const engine = context ? &context->engine() : nullptr;
    std::unique_ptr<distributed::Job> job;
    WEFT_RETURN_IF_ERROR(WaitUnder(engine, {.deadline_ns = MonotonicNow() + read.timeout_ms * 1'000'000},
                                   [&](const distributed::Patience& patience) -> absl::Status {
                                     WEFT_ASSIGN_OR_RETURN(job, distributed::Job::Join(std::move(place), patience));
                                     return absl::OkStatus();
                                   }));
    Ref<lazy::Engine> kept = engine == nullptr ? nullptr : Ref<lazy::Engine>::Share(engine);
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_job>(MakeRef<JobObject>(std::move(job), read.timeout_ms, std::move(kept))));
    return absl::OkStatus();
  });
}

weft_error* weft_job_find(const weft_job_options* options, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(const weft_job_options read, ReadJobOptions(options));
    WEFT_ASSIGN_OR_RETURN(const distributed::JobPlace place, PlaceOf(read));
    return MakeBlob(PlaceJson(place), out);
  });
}

weft_error* weft_job_read_info(weft_job* job, weft_job_info* out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<JobObject> object, Get(job, "job"));
    const distributed::JobPlace& place = object->job->place();
    weft_job_info info = WEFT_JOB_INFO_INIT;
    info.rank = place.rank;
    info.size = place.size;
    info.local_rank = place.local_rank;
    info.local_size = place.local_size;
    info.incarnation = place.incarnation;
    info.collectives = static_cast<int64_t>(object->job->calls());
    info.source = place.source.c_str();
    info.source_length = place.source.size();
    return WriteStruct(&info, sizeof info, "weft_job_info", out);
  });
}

weft_error* weft_job_barrier(weft_job* job) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<JobObject> object, Get(job, "job"));
    return WaitUnder(object->engine.get(), object->PatienceFrom(MonotonicNow()),
                     [&](const distributed::Patience& patience) { return object->job->Run({}, patience); });
  });
}

weft_error* weft_job_all_reduce(weft_job* job, weft_tensor* input, weft_job_reduction reduction,
                                weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<JobObject> object, Get(job, "job"));
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> tensor, GetTensor(input, "input"));
    distributed::Collective call = {.kind = CollectiveKind::kAllReduce, .count = CountOf(tensor->dims())};
    WEFT_ASSIGN_OR_RETURN(call.reduction, ReductionOf(reduction));
    return RunOn(*object, *tensor, tensor->dims(), call, out);
  });
}

weft_error* weft_job_all_gather(weft_job* job, weft_tensor* input, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<JobObject> object, Get(job, "job"));
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> tensor, GetTensor(input, "input"));
    Dims dims = tensor->dims();
    const int64_t size = object->job->place().size;
    if (dims.empty()) {
      dims = {size};
    } else if (__builtin_mul_overflow(dims[0], size, &dims[0])) {
      return UserError("the result would not be countable");
    }
    const distributed::Collective call = {.kind = CollectiveKind::kAllGather, .count = CountOf(tensor->dims())};
    return RunOn(*object, *tensor, std::move(dims), call, out);
  });
}

weft_error* weft_job_reduce_scatter(weft_job* job, weft_tensor* input, weft_job_reduction reduction,
                                    weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<JobObject> object, Get(job, "job"));
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> tensor, GetTensor(input, "input"));
    WEFT_ASSIGN_OR_RETURN(Dims dims, PartOfDims(*object, *tensor));
    distributed::Collective call = {.kind = CollectiveKind::kReduceScatter, .count = CountOf(dims)};
    WEFT_ASSIGN_OR_RETURN(call.reduction, ReductionOf(reduction));
    return RunOn(*object, *tensor, std::move(dims), call, out);
  });
}

weft_error* weft_job_all_to_all(weft_job* job, weft_tensor* input, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<JobObject> object, Get(job, "job"));
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> tensor, GetTensor(input, "input"));
    WEFT_ASSIGN_OR_RETURN(const Dims part, PartOfDims(*object, *tensor));
    return RunOn(*object, *tensor, tensor->dims(), {.kind = CollectiveKind::kAllToAll, .count = CountOf(part)}, out);
  });
}

weft_error* weft_job_broadcast(weft_job* job, weft_tensor* input, int32_t root, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<JobObject> object, Get(job, "job"));
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> tensor, GetTensor(input, "input"));
    const distributed::Collective call = {
        .kind = CollectiveKind::kBroadcast, .count = CountOf(tensor->dims()), .root = root};
    return RunOn(*object, *tensor, tensor->dims(), call, out);
  });
}

weft_error* weft_job_leave(weft_job* job) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<JobObject> object, Get(job, "job"));
    return WaitUnder(object->engine.get(), object->PatienceFrom(MonotonicNow()),
                     [&](const distributed::Patience& patience) { return object->job->Leave(patience); });
  });
}

void weft_job_preempt(weft_job* job) noexcept {
  Pin<JobObject> object = Find(job);
  if (!object) return;
  object->preempted.store(true, std::memory_order_relaxed);
  UnpinInSignal(object.Release());
}

weft_error* weft_job_preempted(weft_job* job, int32_t* out_preempted) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_preempted);
    WEFT_ASSIGN_OR_RETURN(Pin<JobObject> object, Get(job, "job"));
    // Recorded collectives come before this one in all processes.
    if (object->engine != nullptr) WEFT_RETURN_IF_ERROR(object->engine->Wait());
    const int32_t own = object->preempted.load(std::memory_order_relaxed) ? 1 : 0;
    int32_t any = 0;
    const distributed::Collective call = {.kind = CollectiveKind::kAllReduce,
                                          .reduction = distributed::Reduction::kMax,
                                          .dtype = DType::kI32,
                                          .count = 1,
                                          .input = &own,
                                          .output = &any,
                                          .where = "weft_job_preempted"};
    WEFT_RETURN_IF_ERROR(
        WaitUnder(object->engine.get(), object->PatienceFrom(MonotonicNow()),
                  [&](const distributed::Patience& patience) { return object->job->Run(call, patience); }));
    if (any != 0) object->preempted.store(true, std::memory_order_relaxed);
    *out_preempted = any;
    return absl::OkStatus();
  });
}

void weft_job_retain(weft_job* job) noexcept { RetainHandle(job, HandleType::kJob); }
void weft_job_release(weft_job* job) noexcept { ReleaseHandle(job, HandleType::kJob); }

}  // extern "C"
