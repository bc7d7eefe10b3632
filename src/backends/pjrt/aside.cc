// See aside.h.
#include "src/backends/pjrt/aside.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "src/runtime/thread_pool.h"

namespace weft::pjrt {
namespace {

constexpr int64_t kMostMs = int64_t{1} << 40;  // 35 years; in nanoseconds it is still a number

}  // namespace

// Does one piece of work after the other, and ends.
struct Aside::Worker {
  Mutex mutex;
  CondVar changed;
  std::function<void()> work ABSL_GUARDED_BY(mutex);
  Ref<Event> returned ABSL_GUARDED_BY(mutex);
  bool ended ABSL_GUARDED_BY(mutex) = false;
  std::thread thread;  // has a share of this

  void Do(std::function<void()> next, Ref<Event> done) {
    MutexLock lock(mutex);
    work = std::move(next);
    returned = std::move(done);
    changed.NotifyAll();
  }
  void End() {
    MutexLock lock(mutex);
    ended = true;
    changed.NotifyAll();
  }
  void Loop();
};

void Aside::Worker::Loop() {
  MarkLibraryThread();
  MutexLock lock(mutex);
  while (true) {
    while (work == nullptr && !ended) changed.Wait(mutex);
    if (work == nullptr) return;
    std::function<void()> now = std::exchange(work, nullptr);
    const Ref<Event> done = std::exchange(returned, nullptr);
    lock.Unlock();
    now();
    now = nullptr;
    done->Complete(absl::OkStatus());
    lock.Lock();
  }
}

std::shared_ptr<Aside::Worker> Aside::Idle() {
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      std::shared_ptr<Worker> last = std::move(idle_.back());
      idle_.pop_back();
      return last;
    }
    idle_.reserve(++workers_);
  }
  auto fresh = std::make_shared<Worker>();
  fork_.Started();
  fresh->thread = std::thread([fresh] { fresh->Loop(); });
  return fresh;
}

bool Aside::Run(std::function<void()> work, absl::FunctionRef<bool(const Ref<Event>& returned)> wait) {
  const auto thrown = std::make_shared<std::exception_ptr>();
  std::function<void()> caught = [work = std::move(work), thrown] {
    try {
      work();
    } catch (...) {
      *thrown = std::current_exception();
    }
  };
  const Ref<Event> returned = MakeRef<Event>();
  const std::shared_ptr<Worker> worker = Idle();
  worker->Do(std::move(caught), returned);
  if (!wait(returned)) {
    worker->End();
    worker->thread.detach();
    return false;
  }
  {
    MutexLock lock(mutex_);
    idle_.push_back(worker);
  }
  if (*thrown != nullptr) std::rethrow_exception(*thrown);
  return true;
}

void Aside::Close() {
  std::vector<std::shared_ptr<Worker>> idle;
  {
    MutexLock lock(mutex_);
    idle.swap(idle_);
  }
  for (const std::shared_ptr<Worker>& worker : idle) {
    if (fork_.Forked()) {
      new std::thread(std::move(worker->thread));  // its thread is the parent's, and nobody can wait for it here
      continue;
    }
    worker->End();
    worker->thread.join();
  }
}

int64_t InNanoseconds(int64_t deadline_ms) { return std::min(deadline_ms, kMostMs) * 1'000'000; }

LastCall*& CallsNotedIn() {
  thread_local LastCall* noted = nullptr;
  return noted;
}

absl::Status StartInTime(int64_t deadline_ms, std::string_view what, std::function<void()> start) {
  if (deadline_ms == 0) {
    start();
    return absl::OkStatus();
  }
  const auto last = std::make_shared<LastCall>(nullptr);
  const auto noted = [last, start = std::move(start)] {
    LastCall* const before = std::exchange(CallsNotedIn(), last.get());
    start();
    CallsNotedIn() = before;
  };
  const bool returned =
      Aside().Run(noted, [&](const Ref<Event>& done) { return done->WaitDone(InNanoseconds(deadline_ms)); });
  return returned ? absl::OkStatus() : NotStarted(deadline_ms, what, last->load());
}

absl::Status NotStarted(int64_t deadline_ms, std::string_view what, const char* last_call) {
  return UserErrorOf(absl::StatusCode::kDeadlineExceeded, what, " had not started after ", deadline_ms,
                     " ms, the option start_deadline_ms", last_call == nullptr ? "" : "; it was in ",
                     last_call == nullptr ? "" : last_call);
}

}  // namespace weft::pjrt
