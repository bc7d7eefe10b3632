// An object that a process makes when it is first asked for, and never tears down.
#pragma once

#include <atomic>
#include <memory>

namespace weft {

// T says by HoldOverFork() which locks the fork of a process must find free: called once, for the object that stays.
// Thread rule: any thread, and none waits: several may make one at once, of which the first to be done stays. (The
// guard of a function's static lets all but one wait, in calls that say they do not block.)
template <typename T>
class Lasting {
 public:
  constexpr Lasting() = default;
  Lasting(const Lasting&) = delete;
  Lasting& operator=(const Lasting&) = delete;

  // `make` gives a std::unique_ptr<T>.
  template <typename Make>
  T& Get(Make make) {
    T* there = object_.load(std::memory_order_acquire);
    if (there != nullptr) return *there;
    std::unique_ptr<T> made = make();
    if (!object_.compare_exchange_strong(there, made.get(), std::memory_order_acq_rel)) return *there;
    T& stays = *made.release();
    if constexpr (requires { stays.HoldOverFork(); }) stays.HoldOverFork();
    return stays;
  }
  T& Get() { return Get(std::make_unique<T>); }

 private:
  std::atomic<T*> object_{nullptr};
};

}  // namespace weft
