// See services.h.
#include "src/lazy/service/services.h"

#include <algorithm>

#include "src/ops/custom/functions.h"
#include "src/runtime/clock.h"
#include "src/runtime/thread_pool.h"

namespace weft::lazy {
namespace {

constexpr size_t kWarningsKept = 16;

}  // namespace

thread_local constinit bool Services::locked_ = false;

void Services::Log(LogLevel level, std::string text) {
  {
    MutexLock lock(log_mutex_);
    if (level >= LogLevel::kWarning) {
      metrics_->Add(Counter::kWarnings);
      warnings_.push_back(text);
      if (warnings_.size() > kWarningsKept) warnings_.pop_front();
    }
    if (!Logs(level)) return;
    if (!log_.anywhere) {
      log_queue_.emplace_back(level, std::move(text));
      log_waiting_.store(true, std::memory_order_release);
      return;
    }
  }
  log_.write(level, text);
}

void Services::DeliverLog() {
  std::vector<std::pair<LogLevel, std::string>> messages;
  {
    MutexLock lock(log_mutex_);
    messages.swap(log_queue_);
    log_waiting_.store(false, std::memory_order_relaxed);
  }
  for (const auto& [level, text] : messages) log_.write(level, text);
}

std::vector<std::string> Services::LastWarnings() const {
  MutexLock lock(log_mutex_);
  return {warnings_.begin(), warnings_.end()};
}

absl::Status Services::CheckCancelled(uint32_t before) {
  const uint32_t now = cancels();
  if (now == before && now == cancels_noticed_.load(std::memory_order_relaxed)) return absl::OkStatus();
  Notice(now);
  return absl::CancelledError("cancelled by weft_cancel");
}

absl::Status Services::CheckProcess() const {
  WEFT_RETURN_IF_ERROR(ops::CallingCustom::Check(this));
  return fork_.Check();
}

absl::Status Services::Interrupted(uint32_t before) {
  WEFT_RETURN_IF_ERROR(CheckProcess());
  return CheckCancelled(before);
}

absl::Status Services::WaitFor(const Event& event, Part part, int64_t timeout_ns, const std::atomic<bool>* hopeless) {
  if (!event.done()) {
    const PartScope scope(*metrics_, part);
    WEFT_RETURN_IF_ERROR(WaitUntilDone(event, timeout_ns, hopeless));
  }
  RunReleases();
  const absl::Status status = event.status();
  // The waiter for a cancelled loop has noticed.
  if (absl::IsCancelled(status)) Notice(cancels());
  return status;
}

absl::Status Services::WaitUntilOver(const Event& event, Part part) {
  const uint32_t before = cancels();
  if (!event.done()) {
    const PartScope scope(*metrics_, part);
    WEFT_RETURN_IF_ERROR(WaitUntilDone(event, -1, nullptr));
  }
  RunReleases();
  return CheckCancelled(before);
}

bool Services::TakesEnded() {
  return !OnLibraryThread() && CheckProcess().ok() && ended_.exchange(false, std::memory_order_relaxed);
}

absl::Status Services::WaitUntilDone(const Event& event, int64_t timeout_ns, const std::atomic<bool>* hopeless) {
  const uint32_t before = cancels();
  const int64_t limit = Event::Sane(timeout_ns), start = MonotonicNow();
  while (!event.done()) {
    WEFT_RETURN_IF_ERROR(Interrupted(before));
    if (limit < 0 && help_()) continue;
    const int64_t left = limit < 0 ? kLookNs : limit - (MonotonicNow() - start);
    if (left <= 0) {
      return UserErrorOf(absl::StatusCode::kDeadlineExceeded, "the event was not done after ", timeout_ns, " ns");
    }
    if (!event.WaitDone(std::min(left, kLookNs)) && hopeless != nullptr && hopeless->load(std::memory_order_relaxed)) {
      return absl::Status(absl::StatusCode::kResourceExhausted, "");
    }
  }
  return absl::OkStatus();
}

bool Services::MayRelease() { return !Locked() && !OnLibraryThread(); }

void Services::RunReleasesIfAllowed() {
  if (MayRelease()) releases_->Run();
}

std::function<void()> Services::Later(std::function<void()> release) {
  std::list<std::function<void()>> one;
  if (release) one.push_back(std::move(release));
  return [releases = releases_, queue = queue_, one = std::move(one)]() mutable {
    if (one.empty()) return;
    if (queue != nullptr && !(CallbackQueue::Running() && MayRelease())) return queue->Add(std::move(one));
    releases->Add(std::move(one));
    if (MayRelease()) releases->Run();
  };
}

void Services::Releases::Add(std::list<std::function<void()>> release) {
  MutexLock lock(mutex_);
  if (!closed_) {
    waiting_.splice(waiting_.end(), release);
    any_.store(true, std::memory_order_release);
    return;
  }
  lock.Unlock();
  release.front()();
}

void Services::Releases::Run() {
  while (any()) {
    std::list<std::function<void()>> now;
    {
      MutexLock lock(mutex_);
      now.swap(waiting_);
      any_.store(false, std::memory_order_relaxed);
    }
    for (const auto& release : now) release();
  }
}

void Services::Releases::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  Run();
}

}  // namespace weft::lazy
