// weft_event_* and weft_wait_any.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <optional>

#include "src/c_api/event_object.h"
#include "weft.h"

namespace weft::c_api {

// Closes when neither the handle nor the pending completion needs it.
struct EventObject::Descriptor {
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() { close(fd); }
  const int fd;
};

absl::StatusOr<int> EventObject::Fd() {
  std::lock_guard lock(mutex_);
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

namespace {

// What several events tell one waiter. Outlives the wait: an event that happens later still tells it.
struct AnyDone {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<size_t> index;
};

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_event_poll(weft_event* event, int32_t* out_done) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_done);
    WEFT_ASSIGN_OR_RETURN(EventObject * object, Get(event, "event"));
    *out_done = object->event().done() ? 1 : 0;
    return absl::OkStatus();
  });
}

weft_error* weft_event_wait(weft_event* event, int64_t timeout_ns) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(EventObject * object, Get(event, "event"));
    return object->engine().WaitFor(object->event(), timeout_ns);
  });
}

weft_error* weft_event_error(weft_event* event) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(EventObject * object, Get(event, "event"));
    return object->event().done() ? object->event().status() : absl::OkStatus();
  });
}

weft_error* weft_wait_any(weft_event* const* events, size_t count, int64_t timeout_ns, size_t* out_index) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_index);
    if (count == 0) return UserError("weft_wait_any needs at least one event");
    WEFT_NOT_NULL(events);
    WEFT_RETURN_IF_ERROR(CheckedLength("events", count, kMostEntries));
    std::vector<std::pair<EventObject*, uint32_t>> all;  // with the requests to cancel seen so far
    for (size_t i = 0; i < count; ++i) {
      WEFT_ASSIGN_OR_RETURN(EventObject * object, Get(events[i], absl::StrCat("events[", i, "]")));
      all.emplace_back(object, object->engine().cancels());
    }
    for (size_t i = 0; i < count; ++i) {
      if (all[i].first->event().done()) {
        *out_index = i;
        return absl::OkStatus();
      }
    }
    auto any = std::make_shared<AnyDone>();
    for (size_t i = 0; i < count; ++i) {
      all[i].first->event().OnDone([any, i](const absl::Status&) {
        std::lock_guard lock(any->mutex);
        if (!any->index) any->index = i;
        any->changed.notify_all();
      });
    }
    using Clock = std::chrono::steady_clock;
    const int64_t limit = Event::Sane(timeout_ns);
    const Clock::time_point start = Clock::now();
    std::unique_lock lock(any->mutex);
    while (!any->index) {
      for (const auto& [object, before] : all) WEFT_RETURN_IF_ERROR(object->engine().Interrupted(before));
      const int64_t left =
          limit < 0 ? lazy::Engine::kLookNs : limit - std::chrono::nanoseconds(Clock::now() - start).count();
      if (left <= 0)
        return absl::DeadlineExceededError(absl::StrCat("none of ", count, " events within ", timeout_ns, " ns"));
      any->changed.wait_for(lock, std::chrono::nanoseconds(std::min(left, lazy::Engine::kLookNs)));
    }
    *out_index = *any->index;
    return absl::OkStatus();
  });
}

weft_error* weft_event_fd(weft_event* event, int32_t* out_fd) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_fd);
    WEFT_ASSIGN_OR_RETURN(EventObject * object, Get(event, "event"));
    WEFT_ASSIGN_OR_RETURN(*out_fd, object->Fd());
    return absl::OkStatus();
  });
}

void weft_event_retain(weft_event* event) noexcept { RetainHandle(event, HandleType::kEvent); }
void weft_event_release(weft_event* event) noexcept { ReleaseHandle(event, HandleType::kEvent); }

}  // extern "C"
