// Host memory of tensors: blocks from a free list of sizes, so that a steady loop allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "src/backends/cpu/kept_panels.h"
#include "src/runtime/buffer.h"
#include "src/runtime/memory_budget.h"
#include "src/runtime/mutex.h"

namespace weft::cpu {

// Thread-safe. Blocks are 64-byte aligned and have 64 readable bytes behind their end.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // Bytes kept for reuse at most; and for how long what nobody takes.
  static constexpr int64_t kKeep = int64_t{512} << 20;
  static constexpr int64_t kKeepLaunches = 64, kKeepNs = 10'000'000'000;

  // `panels`, which may be null, are given up before there is no memory.
  explicit BlockPool(std::shared_ptr<MemoryBudget> budget = std::make_shared<MemoryBudget>(0),
                     std::shared_ptr<KeptPanels> panels = nullptr)
      : budget_(std::move(budget)), panels_(std::move(panels)) {}
  ~BlockPool();
  // RESOURCE_EXHAUSTED, with the bytes, if there is no memory even without what is kept for reuse.
  absl::StatusOr<void*> Take(int64_t bytes);
  // Allocates nothing, because tensors die where nobody can be told that there is no memory.
  void Give(void* block, int64_t bytes);
  // Back to the system at once.
  void Return(void* block, int64_t bytes);
  // Gives back to the system what is kept for reuse, or, where nothing is, the panels; whether there was any.
  bool Trim();
  // The former alone.
  bool GiveBack();
  // Before each launch. Now and then gives back the blocks that nobody took since the last time.
  void Launches();

  int64_t in_use() const;
  int64_t peak() const;
  // Given back and ready to be taken again.
  int64_t kept() const;

 private:
  // Lies in a block that is kept.
  struct Kept {
    Kept* next;
  };
  static constexpr size_t kSizes = 192;  // four to a power of two, up to 2^47 bytes
  using Buckets = std::array<Kept*, kSizes>;
  // A free list counts its blocks, and the fewest since the last look: so many at its end have not been used meanwhile.
  struct Level {
    int32_t now = 0, least = 0;
  };
  static int64_t CapacityFor(int64_t bytes, int* bucket);
  static int64_t CapacityOf(size_t bucket);
  Buckets TakeUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives blocks back to the system; whether there were any.
  bool Release(const Buckets& free);
  void Count(int64_t capacity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<MemoryBudget> budget_;
  const std::shared_ptr<KeptPanels> panels_;
  mutable Mutex mutex_;
  Buckets free_ ABSL_GUARDED_BY(mutex_){};
  std::array<Level, kSizes> levels_ ABSL_GUARDED_BY(mutex_){};
  int64_t launches_ ABSL_GUARDED_BY(mutex_) = 0, looked_ns_
                                                 ABSL_GUARDED_BY(mutex_) = 0;  // since the last look, and when it was
  int64_t kept_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t peak_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Memory shared by a buffer and the one that takes it over by donation.
class Block : public RefCounted {
 public:
  // A block of the pool, without memory so far; or memory of somebody else's.
  Block(std::shared_ptr<BlockPool> pool, int64_t bytes) : pool_(std::move(pool)), bytes_(bytes) {}
  Block(void* data, std::function<void()> release) : data_(data), release_(std::move(release)) {}
  void* data() const { return data_; }
  bool own() const { return pool_ != nullptr; }
  // For a block of the pool: gives the memory back to the system, and takes some again.
  void Drop();
  absl::Status Take();

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

// A tensor's bytes, plain or packed (kept_panels.h). Who reads or writes the plain bytes says so with Use and EndUse. While
// nobody does, a buffer that has a panel with a way back may let go of them (LivePacked); the next Use unpacks them for good:
// who wanted them once will want them again. Thread-safe.
class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(Device* device, DType dtype, Dims dims, Ref<Event> ready, Ref<Block> block)
      : Buffer(device, dtype, std::move(dims), std::move(ready)), block_(std::move(block)) {}
  // Null for what is no buffer of this backend.
  static CpuBuffer* Of(Buffer* buffer);

  // In use for good. Null if there is no memory to unpack to.
  void* host_data() override;
  const Ref<Block>& block() const { return block_; }

  // The plain bytes, until EndUse. Null, and not in use, if there is no memory to unpack to.
  void* Use();
  void EndUse() { uses_.fetch_sub(1, std::memory_order_release); }
  // The bytes from `offset` on.
  absl::Status Read(int64_t offset, std::span<std::byte> to);

  // Tells whether a launch packed it before; the next call hears that one did.
  bool PackedBefore() { return packed_.exchange(true, std::memory_order_relaxed); }
  // Its panel of that form among `panels`, of its device.
  std::shared_ptr<Panel> PanelIn(const std::shared_ptr<KeptPanels>& panels, const KeptPanels::Key& key, int64_t bytes,
                                 const std::function<std::shared_ptr<Panel>()>& make);
  // Releases the plain bytes of a buffer whose panel is filled and can be unpacked, unless somebody uses or holds them.
  void LivePacked(const std::shared_ptr<Panel>& panel);

 private:
  ~CpuBuffer() override;
  static uint64_t NewId();
  bool Unpack() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr int32_t kPacked = INT32_MIN / 2;  // uses of plain bytes that are not there

  Ref<Block> block_;
  const uint64_t id_ = NewId();  // never another buffer's, as an address may be
  std::atomic<bool> packed_{false};
  std::atomic<int32_t> uses_{0};
  Mutex mutex_;
  std::shared_ptr<KeptPanels> panels_ ABSL_GUARDED_BY(mutex_);  // that have some of this buffer
  std::shared_ptr<Panel> only_ ABSL_GUARDED_BY(mutex_);         // has the bytes
  bool stays_plain_ ABSL_GUARDED_BY(mutex_) = false;
  bool shown_ ABSL_GUARDED_BY(mutex_) = false;  // by host_data
};

// One use of a buffer's plain bytes.
class PlainUse {
 public:
  explicit PlainUse(CpuBuffer* buffer) : buffer_(buffer) {}
  PlainUse(PlainUse&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  PlainUse& operator=(PlainUse&&) = delete;
  ~PlainUse() { End(); }
  bool ended() const { return buffer_ == nullptr; }
  void End() {
    if (buffer_ != nullptr) std::exchange(buffer_, nullptr)->EndUse();
  }

 private:
  CpuBuffer* buffer_;
};

absl::StatusOr<Ref<Block>> NewBlock(const std::shared_ptr<BlockPool>& pool, int64_t bytes);

}  // namespace weft::cpu
