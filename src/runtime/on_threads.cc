// See on_threads.h.
#include "src/runtime/on_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <thread>
#include <vector>

#include "src/runtime/mutex.h"
#include "src/runtime/thread_pool.h"

namespace weft {

absl::Status OnThreads(size_t count, int threads, absl::FunctionRef<absl::Status(size_t)> part) {
  std::atomic<size_t> next{0};
  Mutex mutex;  // of `failure`
  absl::Status failure;
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      absl::Status status;
      try {
        status = part(i);
      } catch (const std::bad_alloc&) {
        status = absl::Status(absl::StatusCode::kResourceExhausted, "");  // a text would need memory
      }
      if (status.ok()) continue;
      next.store(count);
      MutexLock lock(mutex);
      if (failure.ok()) failure = std::move(status);
    }
  };
  std::vector<std::thread> others;
  try {
    const size_t most = std::min(count, static_cast<size_t>(std::max(threads, 1)));
    others.reserve(most);
    while (others.size() + 1 < most) {
      others.emplace_back([&] {
        MarkLibraryThread();
        work();
      });
    }
  } catch (const std::exception&) {
    // With fewer.
  }
  work();
  for (std::thread& other : others) other.join();
  return failure;
}

}  // namespace weft
