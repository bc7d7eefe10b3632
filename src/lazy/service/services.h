// The engine's services beside recording and computing: messages, requests to give up, waiting, forks, and memory that
// others lent. Atomics and locks under which no other lock is taken.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "src/lazy/service/callback_queue.h"
#include "src/lazy/service/options.h"
#include "src/runtime/cancel.h"
#include "src/runtime/event.h"
#include "src/runtime/fork.h"
#include "src/runtime/metrics.h"
#include "src/runtime/mutex.h"
#include "src/runtime/parts.h"

namespace weft::lazy {

// Thread rule: any thread, with or without the engine's lock, but where it says otherwise.
class Services {
 public:
  // `help`: what Backend::Help does, of any backend.
  // `queue`: where callbacks wait; null: nowhere.
  Services(LogHook log, Metrics* metrics, std::function<bool()> help, std::shared_ptr<CallbackQueue> queue = nullptr)
      : log_(std::move(log)), metrics_(metrics), help_(std::move(help)), queue_(std::move(queue)) {}
  ~Services() { releases_->Close(); }

  // --- Messages ------------------------------------------------------------------------------------------------------
  // Kept until somebody leaves the engine; a hook may do whatever it likes.
  void Log(LogLevel level, std::string text);
  // Logs frequent messages: `text()` is asked only if somebody listens.
  template <typename Text>
  void LogLazily(LogLevel level, Text&& text) {
    if (Logs(level)) Log(level, std::forward<Text>(text)());
  }
  bool Logs(LogLevel level) const { return log_.Wants(level); }
  // Calls the hook. Not under the engine's lock.
  void FlushLog() {
    if (log_waiting_.load(std::memory_order_acquire)) DeliverLog();
  }
  // The newest 16, oldest first.
  std::vector<std::string> LastWarnings() const;

  // --- Giving up -----------------------------------------------------------------------------------------------------
  // Asks waits to give up, and launches that run. One atomic step: signal handlers may.
  void Cancel() { cancels_->fetch_add(1, std::memory_order_relaxed); }
  uint32_t cancels() const { return cancels_->load(std::memory_order_relaxed); }
  // Returns a token for a launch that begins: it tells whether a request has come since.
  CancelToken StartToken(int64_t deadline_ms) const { return CancelToken(cancels_, deadline_ms); }
  // CANCELLED if a request came since `before` (an earlier cancels()) or nobody has noticed it yet, which now has happened.
  absl::Status CheckCancelled(uint32_t before);
  // Tells once whether a call has noticed a request since the last time: launches that it ended may have left tensors
  // without a value. Never on a thread that such a launch may wait for.
  bool HasEnded() { return ended_.load(std::memory_order_relaxed) && TakesEnded(); }
  // Tells whether a call has told of every request that came.
  bool AllNoticed() const { return cancels() == cancels_noticed_.load(std::memory_order_relaxed); }
  // Work that somebody may wait for is about to start in this process.
  void StartsWork() { fork_.Started(); }
  const ForkGuard& fork() const { return fork_; }
  // FAILED_PRECONDITION in the child of a fork, where what was running is not, and in a custom operation's function that our
  // programs run (ops::CallingCustom).
  absl::Status CheckProcess() const;
  // Checks both for a waiting thread, every kLookNs.
  absl::Status Interrupted(uint32_t before);
  static constexpr int64_t kLookNs = 20'000'000;
  // Waits for an event of this engine's; DEADLINE_EXCEEDED, or why it was interrupted, if that comes first; RESOURCE_EXHAUSTED
  // without a text if at a look `hopeless`, if given, is true. A wait without a timeout may do what it waits for. Not under the
  // engine's lock.
  // The time is the caller's `part`.
  absl::Status WaitFor(const Event& event, Part part, int64_t timeout_ns = -1,
                       const std::atomic<bool>* hopeless = nullptr);
  absl::Status WaitFor(const Event& event, int64_t timeout_ns = -1) {
    return WaitFor(event, Part::kResults, timeout_ns);
  }
  // Waits until an event is done whose outcome is not the caller's. An error: the wait was given up, or a request came meanwhile.
  absl::Status WaitUntilOver(const Event& event, Part part);

  // --- Lent memory ---------------------------------------------------------------------------------------------------
  // Does what its owner wants done as soon as no lock of ours is held, on a thread of the caller's: the owner may wait for
  // locks of its own or call us again. The result may be called once, from anywhere, and may outlive these services. With a
  // queue it is done there.
  std::function<void()> Later(std::function<void()> release);
  // Call when leaving the engine: runs the releases that have become due.
  void RunReleases() {
    if (releases_->any()) RunReleasesIfAllowed();
  }

  // Tells whether this thread holds an engine's lock; set by Recorder::Lock.
  static bool& Locked() { return locked_; }

 private:
  class Releases {
   public:
    // Adds the one of `release`, which has its memory already: a release of lent memory, perhaps in a destructor,
    // cannot fail.
    void Add(std::list<std::function<void()>> release);
    bool any() const { return any_.load(std::memory_order_acquire); }
    void Run();
    // Runs releases at once from here on: there is no engine any more whose lock could matter.
    void Close();

   private:
    Mutex mutex_;
    std::list<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
    std::atomic<bool> any_{false};
    bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  };
  void Notice(uint32_t request) {
    cancels_noticed_.store(request, std::memory_order_relaxed);
    ended_.store(true, std::memory_order_relaxed);
  }
  absl::Status WaitUntilDone(const Event& event, int64_t timeout_ns, const std::atomic<bool>* hopeless);
  static bool MayRelease();
  bool TakesEnded();
  void DeliverLog();
  void RunReleasesIfAllowed();

  static constinit thread_local bool locked_;
  const LogHook log_;
  Metrics* const metrics_;
  const std::function<bool()> help_;
  const std::shared_ptr<CallbackQueue> queue_;
  mutable Mutex log_mutex_;
  std::deque<std::string> warnings_ ABSL_GUARDED_BY(log_mutex_);
  std::vector<std::pair<LogLevel, std::string>> log_queue_ ABSL_GUARDED_BY(log_mutex_);
  std::atomic<bool> log_waiting_{false};

  const std::shared_ptr<std::atomic<uint32_t>> cancels_ = std::make_shared<std::atomic<uint32_t>>(0);
  std::atomic<uint32_t> cancels_noticed_{0};
  std::atomic<bool> ended_{false};
  ForkGuard fork_;
  std::shared_ptr<Releases> releases_ = std::make_shared<Releases>();
};

}  // namespace weft::lazy
