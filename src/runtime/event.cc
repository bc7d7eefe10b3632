// Completion, waiting and continuation of events.
#include "src/runtime/event.h"

#include <algorithm>
#include <chrono>

namespace weft {

Ref<Event> Event::Done(absl::Status status) {
  Ref<Event> event = MakeRef<Event>();
  event->Complete(std::move(status));
  return event;
}

Ref<Event> Event::All(std::span<const Ref<Event>> events) {
  if (events.empty()) return Done();
  // A launch on a mesh has one event for all its devices. A thread that waited for it must find the joint event done as
  // well.
  const auto first_again = [&](const Ref<Event>& event) { return event.get() == events[0].get(); };
  if (std::ranges::all_of(events, first_again)) return events[0];
  struct Joint final : RefCounted {
    std::atomic<size_t> left{0};
    Mutex mutex;
    absl::Status status ABSL_GUARDED_BY(mutex);
    Ref<Event> done = MakeRef<Event>();
  };
  Ref<Joint> joint = MakeRef<Joint>();
  joint->left = events.size();
  for (const Ref<Event>& event : events) {
    event->OnDone([joint](const absl::Status& status) {
      absl::Status first;
      {
        MutexLock lock(joint->mutex);
        joint->status.Update(status);
        first = joint->status;
      }
      if (joint->left.fetch_sub(1) == 1) joint->done->Complete(std::move(first));
    });
  }
  return joint->done;
}

void Event::Complete(absl::Status status) {
  std::vector<std::function<void(const absl::Status&)>> then;
  {
    MutexLock lock(mutex_);
    status_ = std::move(status);
    then.swap(then_);
    done_.store(true, std::memory_order_release);
    // Notified under the lock: a waiter may drop the last reference as soon as it wakes.
    changed_.NotifyAll();
  }
  for (auto& call : then) call(status_);
}

absl::Status Event::status() const {
  if (!done()) return absl::OkStatus();
  return status_;  // never changes after done
}

absl::Status Event::Wait(int64_t timeout_ns) const {
  if (WaitDone(timeout_ns)) return status_;
  return UserErrorOf(absl::StatusCode::kDeadlineExceeded, "the event was not done after ", timeout_ns, " ns");
}

bool Event::WaitDone(int64_t timeout_ns) const {
  if (done()) return true;
  timeout_ns = Sane(timeout_ns);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  MutexLock lock(mutex_);
  while (!done_.load(std::memory_order_relaxed)) {
    if (timeout_ns < 0) {
      changed_.Wait(mutex_);
    } else if (!changed_.WaitUntil(mutex_, deadline) && !done_.load(std::memory_order_relaxed)) {
      return false;
    }
  }
  return true;
}

void Event::OnDone(std::function<void(const absl::Status&)> then) {
  {
    MutexLock lock(mutex_);
    if (!done()) {
      then_.push_back(std::move(then));
      return;
    }
  }
  then(status_);
}

}  // namespace weft
