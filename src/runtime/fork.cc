// See fork.h.
#include "src/runtime/fork.h"

#include <pthread.h>

#include <mutex>

#include "src/runtime/status.h"

namespace weft {
namespace {

constinit std::atomic<uint64_t> g_generation{0};
constinit std::atomic<bool> g_watching{false};

// A hook of libc cannot be taken back: the library that holds it must stay loaded, which the link says (nodelete).
void Watch() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { g_generation.fetch_add(1, std::memory_order_relaxed); });
    g_watching.store(true, std::memory_order_relaxed);
  });
}

}  // namespace

uint64_t ForkGeneration() {
  if (!g_watching.load(std::memory_order_relaxed)) Watch();
  return g_generation.load(std::memory_order_relaxed);
}

void ForkGuard::Started() {
  uint64_t none = 0;
  generation_.compare_exchange_strong(none, ForkGeneration() + 1, std::memory_order_relaxed);
}

absl::Status ForkGuard::Check() const {
  if (!Forked()) return absl::OkStatus();
  return UserErrorOf(
      absl::StatusCode::kFailedPrecondition,
      "the context was used before fork and its threads did not come along; make a new context in the child");
}

}  // namespace weft
