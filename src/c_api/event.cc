// weft_event_* and weft_wait_any.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "src/c_api/event_object.h"
#include "weft.h"

namespace weft::c_api {

// Closes when neither the handle nor the pending completion needs it.
struct EventObject::Descriptor {
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() { close(fd); }
  const int fd;
};

// Several events tell one waiter by this, which lives as long as the wait.
struct AnyDone {
  Mutex mutex;
  CondVar changed;
  std::optional<size_t> index ABSL_GUARDED_BY(mutex);
};

struct EventObject::Watchers {
  void Tell() {
    MutexLock lock(mutex);
    for (const auto& [any, index] : list) {
      MutexLock inner(any->mutex);
      if (!any->index) any->index = index;
      any->changed.NotifyAll();
    }
  }
  Mutex mutex;
  std::vector<std::pair<AnyDone*, size_t>> list ABSL_GUARDED_BY(mutex);
};

void EventObject::Watch(AnyDone* any, size_t index) {
  std::shared_ptr<Watchers> watchers;
  {
    MutexLock lock(mutex_);
    if (watchers_ == nullptr) {
      auto made = std::make_shared<Watchers>();
      event_->OnDone([made](const absl::Status&) { made->Tell(); });
      watchers_ = std::move(made);
    }
    watchers = watchers_;
  }
  {
    MutexLock lock(watchers->mutex);
    watchers->list.emplace_back(any, index);
  }
  if (event_->done()) watchers->Tell();  // the continuation may have run before
}

void EventObject::Unwatch(AnyDone* any) {
  MutexLock lock(mutex_);
  if (watchers_ == nullptr) return;
  MutexLock inner(watchers_->mutex);
  std::erase_if(watchers_->list, [any](const auto& entry) { return entry.first == any; });
}

absl::StatusOr<int> EventObject::Fd() {
  MutexLock lock(mutex_);
  if (descriptor_ == nullptr) {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno)));
    descriptor_ = std::make_shared<Descriptor>(fd);
    event_->OnDone([descriptor = descriptor_](const absl::Status&) {
      const uint64_t one = 1;
      (void)!write(descriptor->fd, &one, sizeof(one));
    });
  }
  return descriptor_->fd;
}

absl::Status MakeEvent(Context& context, Ref<Event> event, weft_event** out) {
  if (out == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(
      *out, Make<weft_event>(MakeRef<EventObject>(std::move(event), Ref<lazy::Engine>::Share(&context.engine()))));
  return absl::OkStatus();
}

}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_event_poll(weft_event* event, int32_t* out_done) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_done);
    WEFT_ASSIGN_OR_RETURN(Pin<EventObject> object, Get(event, "event"));
    *out_done = object->event().done() ? 1 : 0;
    return absl::OkStatus();
  });
}

weft_error* weft_event_wait(weft_event* event, int64_t timeout_ns) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<EventObject> object, Get(event, "event"));
    absl::Status status = object->engine().services().WaitFor(object->event(), Part::kResults, timeout_ns);
    if (!object->event().done()) return status;
    status.ok() ? object->engine().Locked([] {}) : object->engine().Told();  // which lets go of what has gone through
    return status;
  });
}

weft_error* weft_event_error(weft_event* event) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<EventObject> object, Get(event, "event"));
    if (!object->event().done()) return absl::OkStatus();
    if (!object->event().status().ok()) object->engine().Told();
    return object->event().status();
  });
}

weft_error* weft_wait_any(weft_event* const* events, size_t count, int64_t timeout_ns, size_t* out_index) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_index);
    if (count == 0) return UserError("weft_wait_any needs at least one event");
    WEFT_NOT_NULL(events);
    WEFT_RETURN_IF_ERROR(CheckedLength("events", count, kMostEntries));
    std::vector<std::pair<Ref<EventObject>, uint32_t>> all;  // with the requests to cancel seen so far
    for (size_t i = 0; i < count; ++i) {
      WEFT_ASSIGN_OR_RETURN(Pin<EventObject> object, Get(events[i], absl::StrCat("events[", i, "]")));
      all.emplace_back(object.Share(), object->engine().services().cancels());
    }
    for (size_t i = 0; i < count; ++i) {
      if (all[i].first->event().done()) {
        *out_index = i;
        return absl::OkStatus();
      }
    }
    AnyDone any;
    size_t watched = 0;
    absl::Cleanup unwatch = [&] {
      while (watched > 0) all[--watched].first->Unwatch(&any);
    };
    while (watched < count) {
      const size_t i = watched++;
      all[i].first->Watch(&any, i);
    }
    using Clock = std::chrono::steady_clock;
    const int64_t limit = Event::Sane(timeout_ns);
    const Clock::time_point start = Clock::now();
    MutexLock lock(any.mutex);  // let go of before the events let go of `any`
    while (!any.index) {
      for (const auto& [object, before] : all) WEFT_RETURN_IF_ERROR(object->engine().services().Interrupted(before));
      const int64_t left =
          limit < 0 ? lazy::Services::kLookNs : limit - std::chrono::nanoseconds(Clock::now() - start).count();
      if (left <= 0)
        return absl::DeadlineExceededError(absl::StrCat("none of ", count, " events within ", timeout_ns, " ns"));
      any.changed.WaitUntil(any.mutex,
                            Clock::now() + std::chrono::nanoseconds(std::min(left, lazy::Services::kLookNs)));
    }
    *out_index = *any.index;
    return absl::OkStatus();
  });
}

weft_error* weft_event_fd(weft_event* event, int32_t* out_fd) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_fd);
    WEFT_ASSIGN_OR_RETURN(Pin<EventObject> object, Get(event, "event"));
    WEFT_ASSIGN_OR_RETURN(*out_fd, object->Fd());
    return absl::OkStatus();
  });
}

void weft_event_retain(weft_event* event) noexcept { RetainHandle(event, HandleType::kEvent); }
void weft_event_release(weft_event* event) noexcept { ReleaseHandle(event, HandleType::kEvent); }

}  // extern "C"
