// The object behind weft_job.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"

#include "src/c_api/context.h"
#include "src/distributed/job.h"
#include "src/distributed/job_place.h"

namespace weft::c_api {

// The place of this process in its job, as the wish and the environment say.
absl::StatusOr<distributed::JobPlace> PlaceOf(const distributed::JobWish& wish);

class JobObject final : public RefCounted {
 public:
  // `engine`: that of the context whose weft_cancel ends waits without tensors; may be null.
  JobObject(std::unique_ptr<distributed::Job> job, int64_t timeout_ms, Ref<lazy::Engine> engine);
  // The job of that number, or null if it has been released.
  static Ref<JobObject> OfNumber(int64_t number);

  distributed::Patience PatienceFrom(int64_t now_ns) const { return {.deadline_ns = now_ns + timeout_ms * 1'000'000}; }
  // The token ends the waits of recorded calls: it is that of the context in which one was recorded last.
  void set_cancel(CancelToken token) const {
    MutexLock lock(mutex_);
    cancel_ = std::move(token);
  }
  CancelToken cancel() const {
    MutexLock lock(mutex_);
    return cancel_;
  }
  // The number by which programs know the job: the smallest that is free among the jobs of this process that are there
  // at once.
  int64_t number() const { return number_; }

  const std::unique_ptr<distributed::Job> job;
  const int64_t timeout_ms;
  const Ref<lazy::Engine> engine;
  // SIGTERM or the like has come (weft_job_preempt).
  std::atomic<bool> preempted{false};
  ForkGuard fork;

 private:
  ~JobObject() override;
  const int64_t number_;
  mutable Mutex mutex_;
  mutable CancelToken cancel_ ABSL_GUARDED_BY(mutex_);
};
template <>
struct HandleTraits<weft_job> {
  using Object = JobObject;
  static constexpr HandleType kType = HandleType::kJob;
  static const ForkGuard* ForkOf(const JobObject& object) { return &object.fork; }
};

// Waits as `wait` does, with this patience, and until weft_cancel of the engine's context; null: nobody cancels. A request that nobody has
// noticed yet ends the wait before it begins.
absl::Status WaitUnder(lazy::Engine* engine, distributed::Patience patience,
                       absl::FunctionRef<absl::Status(const distributed::Patience&)> wait);

// The values of `input` in one collective, which gives a value of these dimensions.
absl::StatusOr<HostTensor> ValuesOver(const JobObject& job, lazy::Tensor& input, Dims dims,
                                      distributed::Collective call);

}  // namespace weft::c_api
