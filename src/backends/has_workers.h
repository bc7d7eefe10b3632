// A backend that has threads for work on the host's memory is this, too. Beside Backend, because plugins keep theirs to themselves.
#pragma once

#include "src/runtime/thread_pool.h"

namespace weft {

class HasWorkers {
 public:
  virtual ~HasWorkers() = default;
  // Calls fn for ranges of [0, count), as ThreadPool::ParallelRanges does, on the threads that kernels have.
  virtual void Split(int64_t count, ThreadPool::RangeFn fn) = 0;
};

}  // namespace weft
