// The list of blocks that nobody uses, which blocks in use keep alive.
#include "src/data/blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/mutex.h"

namespace weft::data {
namespace {

constexpr int kMark = 0xA5;

}  // namespace

struct BlockPool::Free {
  explicit Free(size_t most) : most(most) {}
  ~Free() {
    for (const auto& [bytes, memory] : blocks) FreeLarge(memory, bytes);
  }
  // Null: there is none of this size.
  void* Find(size_t bytes) {
    MutexLock lock(mutex);
    const auto found = std::ranges::find(blocks, bytes, &std::pair<size_t, void*>::first);
    if (found == blocks.end()) return nullptr;
    void* const memory = found->second;
    blocks.erase(found);
    kept -= bytes;
    return memory;
  }
  void Give(void* memory, size_t bytes) {
    {
      MutexLock lock(mutex);
      if (!closed && bytes <= most && kept <= most - bytes && blocks.size() < blocks.capacity()) {
        blocks.emplace_back(bytes, memory);
        kept += bytes;
        return;
      }
    }
    FreeLarge(memory, bytes);
  }
  void Close() {
    std::vector<std::pair<size_t, void*>> gone;
    {
      MutexLock lock(mutex);
      closed = true;
      gone.swap(blocks);
    }
    for (const auto& [bytes, memory] : gone) FreeLarge(memory, bytes);
  }

  const size_t most;
  Mutex mutex;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  size_t kept ABSL_GUARDED_BY(mutex) = 0;
  std::vector<std::pair<size_t, void*>> blocks
      ABSL_GUARDED_BY(mutex);  // room for all is made first: giving back cannot fail
};

BlockPool::BlockPool(size_t most_kept) : free_(std::make_shared<Free>(most_kept)) {
  MutexLock lock(free_->mutex);
  free_->blocks.reserve(256);
}
BlockPool::~BlockPool() { free_->Close(); }

absl::StatusOr<Block> BlockPool::Take(size_t bytes) {
  const size_t whole = bytes + kGuardBytes;
  void* memory = free_->Find(whole);
  if (memory == nullptr) memory = AllocateLarge(whole, kAlign);
  if (memory == nullptr) return NoLargeMemory(absl::StrCat(bytes, " bytes of a batch"));
  std::memset(static_cast<std::byte*>(memory) + bytes, kMark, kGuardBytes);
  // The constructor gives the block back by this function where it finds no memory for itself.
  return Block(static_cast<std::byte*>(memory), [free = free_, whole](std::byte* block) { free->Give(block, whole); });
}

bool BlockPool::GuardIsWhole(const Block& block, size_t bytes) {
  const std::byte* const guard = block.get() + bytes;
  return std::all_of(guard, guard + kGuardBytes, [](std::byte byte) { return byte == std::byte{kMark}; });
}

}  // namespace weft::data
