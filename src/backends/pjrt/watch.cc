// See watch.h.
#include "src/backends/pjrt/watch.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "src/backends/pjrt/aside.h"
#include "src/runtime/clock.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"
#include "src/runtime/thread_pool.h"

namespace weft::pjrt {
namespace {

struct Entry {
  std::string what;
  Ref<Event> to, when_late;
  bool over = false;  // done or given up
};

// The work of one device, in order; the first entry is not over.
struct Line {
  std::deque<std::shared_ptr<Entry>> entries;
  int64_t began_ns = 0;  // when the first one's turn came

  void GoOn(int64_t now) {
    while (!entries.empty() && entries.front()->over) {
      entries.pop_front();
      began_ns = now;
    }
  }
};

}  // namespace

struct Watch::State {
  State(int64_t deadline_ms, size_t devices) : deadline_ms(deadline_ms), lines(devices) {}
  const int64_t deadline_ms;
  mutable Mutex mutex;
  CondVar changed;
  std::vector<Line> lines ABSL_GUARDED_BY(mutex);
  int64_t given_up ABSL_GUARDED_BY(mutex) = 0;  // and still running
  bool ended ABSL_GUARDED_BY(mutex) = false;

  void Ended(int device, Entry& entry, const absl::Status& status);
  void Run();
};

void Watch::State::Ended(int device, Entry& entry, const absl::Status& status) {
  {
    MutexLock lock(mutex);
    if (std::exchange(entry.over, true)) {
      --given_up;
      return;
    }
    lines[static_cast<size_t>(device)].GoOn(MonotonicNow());
    changed.NotifyAll();
  }
  entry.to->Complete(status);
}

void Watch::State::Run() {
  MarkLibraryThread();
  MutexLock lock(mutex);
  while (!ended) {
    Line* next = nullptr;
    int64_t end = std::numeric_limits<int64_t>::max();
    for (Line& line : lines) {
      if (line.entries.empty()) continue;
      const int64_t its_end = line.began_ns + InNanoseconds(deadline_ms);
      if (its_end < end) {
        end = its_end;
        next = &line;
      }
    }
    const int64_t now = MonotonicNow();
    if (next == nullptr) {
      changed.Wait(mutex);
    } else if (now < end) {
      changed.WaitUntil(mutex, std::chrono::steady_clock::now() + std::chrono::nanoseconds(end - now));
    } else {
      const std::shared_ptr<Entry> late = next->entries.front();
      late->over = true;
      ++given_up;
      next->GoOn(now);
      lock.Unlock();
      late->to->Complete(UserErrorOf(absl::StatusCode::kDeadlineExceeded, late->what, " had not ended after ",
                                     deadline_ms, " ms, the option launch_deadline_ms"));
      if (late->when_late != nullptr) late->when_late->Complete(absl::OkStatus());
      lock.Lock();
    }
  }
}

Watch::Watch(int64_t deadline_ms, size_t devices)
    : state_(std::make_shared<State>(deadline_ms, devices)), thread_([state = state_] { state->Run(); }) {
  fork_.Started();
}

void Watch::Close() {
  if (fork_.Forked()) {
    new std::thread(std::move(thread_));  // its thread is the parent's, and nobody can wait for it here
    return;
  }
  {
    MutexLock lock(state_->mutex);
    state_->ended = true;
    state_->changed.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Watch::Over(int device, const Ref<Event>& event, std::string what, Ref<Event> to, Ref<Event> late) {
  auto entry = std::make_shared<Entry>();
  entry->what = std::move(what);
  entry->to = std::move(to);
  entry->when_late = std::move(late);
  {
    MutexLock lock(state_->mutex);
    Line& line = state_->lines[static_cast<size_t>(device)];
    if (line.entries.empty()) line.began_ns = MonotonicNow();
    line.entries.push_back(entry);
    state_->changed.NotifyAll();
  }
  event->OnDone([state = state_, entry, device](const absl::Status& status) { state->Ended(device, *entry, status); });
}

bool Watch::AnyRuns() const {
  MutexLock lock(state_->mutex);
  return state_->given_up > 0;
}

}  // namespace weft::pjrt
