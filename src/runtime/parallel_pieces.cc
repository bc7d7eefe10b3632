// See parallel_pieces.h.
#include "src/runtime/parallel_pieces.h"

#include <algorithm>
#include <atomic>

namespace weft {
namespace {

constexpr int kMostThreads = 64;  // whose ranges lie on the stack; more get whole ones
constexpr uint64_t kEnd = uint64_t{1} << 32;

// The parts of a range that nobody has taken: the first in the low half, the end in the high. Half of them are taken at a
// time, so that calls are few and the last ones short.
struct alignas(128) Left {
  std::atomic<uint64_t> parts{0};

  bool Take(bool last, int64_t* begin, int64_t* end) {
    uint64_t now = parts.load(std::memory_order_relaxed), next = 0;
    do {
      const uint64_t first = now % kEnd, behind = now / kEnd;
      if (first >= behind) return false;
      const uint64_t count = (behind - first + 1) / 2;
      *begin = static_cast<int64_t>(last ? behind - count : first);
      *end = static_cast<int64_t>(last ? behind : first + count);
      next = last ? now - count * kEnd : now + count;
    } while (!parts.compare_exchange_weak(now, next, std::memory_order_relaxed));
    return true;
  }
};

}  // namespace

void ParallelPieces(ThreadPool& pool, int64_t count, int64_t pieces, ThreadPool::RangeFn fn) {
  const int threads = pool.threads();
  const int64_t parts = std::min(count, pieces * threads);
  if (threads == 1 || threads > kMostThreads || parts < 2 * threads) return pool.ParallelRanges(count, fn);
  Left left[kMostThreads];
  for (int range = 0; range < threads; ++range) {
    const int64_t first = parts * range / threads, end = parts * (range + 1) / threads;
    left[range].parts.store(static_cast<uint64_t>(first) + static_cast<uint64_t>(end) * kEnd,
                            std::memory_order_relaxed);
  }
  pool.ParallelRanges(threads, [&](int64_t own, int64_t, int worker) {
    for (int64_t next = 0; next < threads; ++next) {
      int64_t begin = 0, end = 0;
      while (left[(own + next) % threads].Take(next != 0, &begin, &end)) {
        fn(count * begin / parts, count * end / parts, worker);
      }
    }
  });
}

}  // namespace weft
