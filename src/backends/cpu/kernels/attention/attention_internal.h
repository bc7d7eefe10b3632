// Attention and its gradient share this behind attention.h.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "src/backends/cpu/kernels/attention/attention.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"
#include "src/runtime/mutex.h"

namespace weft::cpu {

// Tasks that keep any number of threads busy.
inline constexpr int64_t kManyTasks = 16;
// Between rows of one matrix: a power of two would crowd them into few sets of the first cache.
inline constexpr int64_t kRowGap = 16;
// The alignment of parts of scratch, in bytes.
inline constexpr int64_t kAlign = 64;
inline int64_t RoundUp(int64_t n, int64_t unit) { return CeilDiv(n, unit) * unit; }

inline const char* At(const void* data, int64_t bytes) { return static_cast<const char*>(data) + bytes; }

// Keys that query 0 sees; fewer than 1 where it sees none.
inline int64_t SeenByFirst(const AttentionCall& call) { return call.causal ? call.lead + 1 : call.keys; }

inline int64_t Members(const AttentionCall& call) {
  int64_t members = 1;
  for (int d = 0; d < call.batch_rank; ++d) members *= call.batch_sizes[d];
  return members;
}
// The members of k and v.
inline int64_t KeyMembers(const AttentionCall& call) { return Members(call) / call.group; }

// Where a member begins; `written`: of the result, or of its cotangent.
struct AttentionOffsets {
  int64_t q = 0, k = 0, v = 0, mask = 0, written = 0;
};
inline AttentionOffsets OffsetsOf(const AttentionCall& call, const AttentionMatrix& written, int64_t member) {
  AttentionOffsets at;
  ForEachBatchIndex(call.batch_rank, call.batch_sizes, member, [&](size_t d, int64_t i) {
    const int64_t of_keys = static_cast<int>(d) + 1 == call.batch_rank ? i / call.group : i;
    at.q += i * call.q.batch_strides[d];
    at.k += of_keys * call.k.batch_strides[d];
    at.v += of_keys * call.v.batch_strides[d];
    at.mask += i * call.mask.batch_strides[d];
    at.written += i * written.batch_strides[d];
  });
  return at;
}

// The failure of one of many tasks. Any thread.
class TaskFailure {
 public:
  void Note(absl::Status status) {
    if (status.ok()) return;
    MutexLock lock(mutex_);
    failure_ = std::move(status);
  }
  absl::Status status() {
    MutexLock lock(mutex_);
    return failure_;
  }

 private:
  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

// Adds the workspace of a task that runs such products: each thread has all of it.
inline void AddEach(const ScratchNeeds& products, ScratchNeeds& needs) {
  for (size_t slot = 0; slot < products.once.size(); ++slot) {
    needs.Each(static_cast<ScratchSlot>(slot), products.Of(0, static_cast<ScratchSlot>(slot)));
  }
}

}  // namespace weft::cpu
