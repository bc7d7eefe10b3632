// Something that will have happened. Failure is sticky and reaches everything that depends on it.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <vector>

#include "src/runtime/mutex.h"
#include "src/runtime/ref.h"
#include "src/runtime/status.h"

namespace weft {

// Thread rule: any thread. Waiting or polling is always enough; nothing needs a callback.
class Event final : public RefCounted {
 public:
  Event() = default;
  static Ref<Event> Done(absl::Status status = absl::OkStatus());
  // Done when all are; the first failure is the outcome. For one event, however often it is given, it is that event.
  static Ref<Event> All(std::span<const Ref<Event>> events);

  // Exactly once.
  void Complete(absl::Status status);

  bool done() const { return done_.load(std::memory_order_acquire); }
  // OK until done, then the outcome.
  absl::Status status() const;
  // A timeout that a clock can be advanced by: 73 years and more are as good as for ever.
  static int64_t Sane(int64_t timeout_ns) { return timeout_ns < int64_t{1} << 61 ? timeout_ns : -1; }
  // Blocks; negative = for ever. DEADLINE_EXCEEDED if the time passes first, else the outcome.
  absl::Status Wait(int64_t timeout_ns = -1) const;
  // The same without an error: whether it is done. Allocates nothing.
  bool WaitDone(int64_t timeout_ns) const;
  // Runs `then` once, on the completing thread, or at once if already done. For the library's own use; no lock is held.
  void OnDone(std::function<void(const absl::Status&)> then);

 private:
  ~Event() override = default;

  std::atomic<bool> done_{false};
  mutable Mutex mutex_;
  mutable CondVar changed_;
  absl::Status status_;  // written once, under the lock and before done_; read by threads that have seen done_
  std::vector<std::function<void(const absl::Status&)>> then_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft
