// A parallel region whose threads help each other out.
#pragma once

#include <cstdint>

#include "src/runtime/thread_pool.h"

namespace weft {

// Splits [0, count) as ThreadPool::ParallelRanges does, but each range into up to `pieces` parts, which fn gets one or
// several at a time, and a thread that is done with its range takes from the ends of others': a core that is slower for
// a while, or comes late, does less. `worker` is the number of the range that the calling thread began with, so that
// scratch goes by it.
void ParallelPieces(ThreadPool& pool, int64_t count, int64_t pieces, ThreadPool::RangeFn fn);

}  // namespace weft
