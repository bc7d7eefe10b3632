// Host memory of tensors: blocks from a free list of sizes, so that a steady loop allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "src/backends/cpu/kept_panels.h"
#include "src/runtime/buffer.h"
#include "src/runtime/memory_budget.h"
#include "src/runtime/mutex.h"

namespace weft::cpu {

// Thread-safe. Blocks are 64-byte aligned and have 64 readable bytes behind their end.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // Bytes kept for reuse at most.
  static constexpr int64_t kKeep = int64_t{512} << 20;

  // `panels`, which may be null, are given up before there is no memory.
  explicit BlockPool(std::shared_ptr<MemoryBudget> budget = std::make_shared<MemoryBudget>(0),
                     std::shared_ptr<KeptPanels> panels = nullptr)
      : budget_(std::move(budget)), panels_(std::move(panels)) {}
  ~BlockPool();
  // RESOURCE_EXHAUSTED, with the bytes, if there is no memory even without what is kept for reuse.
  absl::StatusOr<void*> Take(int64_t bytes);
  // Allocates nothing, because tensors die where nobody can be told that there is no memory.
  void Give(void* block, int64_t bytes);
  // Gives back to the system what is kept for reuse, or, where nothing is, the panels; whether there was any.
  bool Trim();

  int64_t in_use() const;
  int64_t peak() const;
  // Given back and ready to be taken again.
  int64_t kept() const;

 private:
  // Lies in a block that is kept.
  struct Kept {
    Kept* next;
  };
  using Buckets = std::array<Kept*, 192>;  // four sizes to a power of two, up to 2^47 bytes
  static int64_t CapacityFor(int64_t bytes, int* bucket);
  // Gives blocks back to the system; whether there were any.
  bool Release(const Buckets& free);
  void Count(int64_t capacity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<MemoryBudget> budget_;
  const std::shared_ptr<KeptPanels> panels_;
  mutable Mutex mutex_;
  Buckets free_ ABSL_GUARDED_BY(mutex_){};
  int64_t kept_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t peak_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Memory shared by a buffer and the one that takes it over by donation.
class Block : public RefCounted {
 public:
  // Of the pool's, and without memory so far.
  Block(std::shared_ptr<BlockPool> pool, int64_t bytes) : pool_(std::move(pool)), bytes_(bytes) {}
  Block(void* data, std::function<void()> release) : data_(data), release_(std::move(release)) {}
  void* data() const { return data_; }
  bool own() const { return pool_ != nullptr; }

 protected:
  ~Block() override {
    if (pool_ != nullptr && data_ != nullptr) pool_->Give(data_, bytes_);
    if (release_) release_();
  }

 private:
  friend absl::StatusOr<Ref<Block>> NewBlock(const std::shared_ptr<BlockPool>& pool, int64_t bytes);

  std::shared_ptr<BlockPool> pool_;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::function<void()> release_;
};

class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(Device* device, DType dtype, Dims dims, Ref<Event> ready, Ref<Block> block)
      : Buffer(device, dtype, std::move(dims), std::move(ready)), block_(std::move(block)) {}
  void* host_data() override { return block_->data(); }
  const Ref<Block>& block() const { return block_; }

  // Whether a launch packed it before; the next will hear that one did.
  bool PackedBefore() { return packed_.exchange(true, std::memory_order_relaxed); }
  // Its panel of that form among `panels`, of its device. Thread-safe.
  std::shared_ptr<Panel> PanelIn(const std::shared_ptr<KeptPanels>& panels, const KeptPanels::Key& key, int64_t bytes);

 private:
  ~CpuBuffer() override;
  static uint64_t NewId();

  Ref<Block> block_;
  const uint64_t id_ = NewId();  // never another buffer's, as an address may be
  std::atomic<bool> packed_{false};
  Mutex mutex_;
  std::shared_ptr<KeptPanels> panels_ ABSL_GUARDED_BY(mutex_);  // that have some of this buffer
};

absl::StatusOr<Ref<Block>> NewBlock(const std::shared_ptr<BlockPool>& pool, int64_t bytes);

}  // namespace weft::cpu
