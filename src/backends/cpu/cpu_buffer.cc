// See cpu_buffer.h.
#include "src/backends/cpu/cpu_buffer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <typeinfo>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/clock.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {
constexpr int64_t kPadding = 64;
}

// Four sizes to a power of two: at most a quarter is wasted.
int64_t BlockPool::CapacityFor(int64_t bytes, int* bucket) {
  const uint64_t wanted = static_cast<uint64_t>(std::max<int64_t>(bytes, 1)) + kPadding;
  const int power = std::max(7, static_cast<int>(std::bit_width(wanted - 1)) - 1);  // 2^power < wanted <= 2^(power+1)
  const uint64_t step = uint64_t{1} << (power - 2);
  const uint64_t base = uint64_t{1} << power;
  const uint64_t steps = wanted <= base ? 0 : (wanted - base + step - 1) / step;
  *bucket = power * 4 + static_cast<int>(steps);
  return static_cast<int64_t>(base + steps * step);
}

BlockPool::~BlockPool() { Release(free_); }

absl::StatusOr<void*> BlockPool::Take(int64_t bytes) {
  if (bytes < 0 || bytes > (int64_t{1} << 46))
    return UserErrorOf(absl::StatusCode::kResourceExhausted, "no memory for a tensor of ", bytes, " bytes");
  int bucket = 0;
  const int64_t capacity = CapacityFor(bytes, &bucket);
  // steps = 4 is the next power's first size.
  {
    MutexLock lock(mutex_);
    if (Kept* const block = free_[bucket]) {
      free_[bucket] = block->next;
      kept_ -= capacity;
      Level& level = levels_[bucket];
      level.least = std::min(level.least, --level.now);
      Count(capacity);
      return block;
    }
  }
  const auto size = static_cast<size_t>(capacity);
  void* block = budget_->Allocate(size, 64);
  while (block == nullptr && Trim()) block = budget_->Allocate(size, 64);
  if (block == nullptr) return budget_->Shortage(absl::StrCat("a tensor of ", bytes, " bytes"), size);
  MutexLock lock(mutex_);
  Count(capacity);
  return block;
}

void BlockPool::Count(int64_t capacity) {
  in_use_ += capacity;
  peak_ = std::max(peak_, in_use_);
}

bool BlockPool::Trim() { return GiveBack() || (panels_ != nullptr && panels_->Trim()); }

bool BlockPool::GiveBack() {
  Buckets free{};
  {
    MutexLock lock(mutex_);
    free.swap(free_);
    levels_ = {};
    kept_ = 0;
  }
  return Release(free);
}

void BlockPool::Launches() {
  const int64_t now = MonotonicNow();
  Buckets unused{};
  {
    MutexLock lock(mutex_);
    if (looked_ns_ == 0) looked_ns_ = now;
    // A block that was given back after a look goes at the second one from then: half the time to each, and it is gone in time.
    if (++launches_ < kKeepLaunches && now - looked_ns_ < kKeepNs / 2) return;
    launches_ = 0;
    looked_ns_ = now;
    unused = TakeUnused();
  }
  Release(unused);
}

BlockPool::Buckets BlockPool::TakeUnused() {
  Buckets unused{};
  for (size_t b = 0; b < kSizes; ++b) {
    Level& level = levels_[b];
    Kept** end = &free_[b];
    for (int32_t used = level.now - level.least; used > 0; --used) end = &(*end)->next;
    unused[b] = std::exchange(*end, nullptr);
    kept_ -= level.least * CapacityOf(b);
    level.now -= level.least;
    level.least = level.now;
  }
  return unused;
}

int64_t BlockPool::CapacityOf(size_t bucket) {
  const int64_t base = int64_t{1} << (bucket / 4);
  return base + static_cast<int64_t>(bucket % 4) * (base / 4);
}

bool BlockPool::Release(const Buckets& free) {
  bool any = false;
  for (size_t b = 0; b < free.size(); ++b) {
    const auto size = static_cast<size_t>(CapacityOf(b));
    any = any || free[b] != nullptr;
    for (Kept* block = free[b]; block != nullptr;) {
      Kept* const next = block->next;
      budget_->Free(block, size);
      block = next;
    }
  }
  return any;
}

void BlockPool::Give(void* block, int64_t bytes) {
  int bucket = 0;
  const int64_t capacity = CapacityFor(bytes, &bucket);
  {
    MutexLock lock(mutex_);
    in_use_ -= capacity;
    if (kept_ + capacity <= kKeep) {
      free_[bucket] = new (block) Kept{free_[bucket]};
      kept_ += capacity;
      ++levels_[bucket].now;
      return;
    }
  }
  budget_->Free(block, static_cast<size_t>(capacity));
}

void BlockPool::Return(void* block, int64_t bytes) {
  int bucket = 0;
  const int64_t capacity = CapacityFor(bytes, &bucket);
  {
    MutexLock lock(mutex_);
    in_use_ -= capacity;
  }
  budget_->Free(block, static_cast<size_t>(capacity));
}

int64_t BlockPool::in_use() const {
  MutexLock lock(mutex_);
  return in_use_;
}
int64_t BlockPool::peak() const {
  MutexLock lock(mutex_);
  return peak_;
}
int64_t BlockPool::kept() const {
  MutexLock lock(mutex_);
  return kept_;
}

void Block::Drop() { pool_->Return(std::exchange(data_, nullptr), bytes_); }

absl::Status Block::Take() {
  WEFT_ASSIGN_OR_RETURN(data_, pool_->Take(bytes_));
  return absl::OkStatus();
}

CpuBuffer* CpuBuffer::Of(Buffer* buffer) {
  // dynamic_cast to a class that is final, without its walk.
  return buffer != nullptr && typeid(*buffer) == typeid(CpuBuffer) ? static_cast<CpuBuffer*>(buffer) : nullptr;
}

void* CpuBuffer::Use() {
  int32_t uses = uses_.load(std::memory_order_relaxed);
  while (uses >= 0) {
    if (uses_.compare_exchange_weak(uses, uses + 1, std::memory_order_acquire)) return block_->data();
  }
  MutexLock lock(mutex_);
  if (only_ != nullptr && !Unpack()) return nullptr;
  uses_.fetch_add(1, std::memory_order_acquire);  // never packed again
  return block_->data();
}

void* CpuBuffer::host_data() {
  {
    MutexLock lock(mutex_);
    if (shown_) return block_->data();
  }
  void* const data = Use();
  if (data == nullptr) return nullptr;
  MutexLock lock(mutex_);
  if (shown_) EndUse();
  shown_ = true;
  return data;
}

bool CpuBuffer::Unpack() {
  if (!block_->Take().ok()) return false;
  only_->unpack(only_->memory.get(), 0, {static_cast<std::byte*>(block_->data()), static_cast<size_t>(bytes())});
  panels_->SetAlone(*only_, false);
  only_ = nullptr;
  stays_plain_ = true;
  uses_.store(0, std::memory_order_release);
  return true;
}

absl::Status CpuBuffer::Read(int64_t offset, std::span<std::byte> to) {
  if (to.empty()) return absl::OkStatus();
  const int64_t element = BytesOf(dtype());
  if (offset % element == 0 && static_cast<int64_t>(to.size()) % element == 0) {
    MutexLock lock(mutex_);
    if (only_ != nullptr) {
      only_->unpack(only_->memory.get(), offset, to);
      return absl::OkStatus();
    }
  }
  const void* const data = Use();
  if (data == nullptr) return NoLargeMemory(absl::StrCat("a tensor of ", bytes(), " bytes"));
  std::memcpy(to.data(), static_cast<const std::byte*>(data) + offset, to.size());
  EndUse();
  return absl::OkStatus();
}

void CpuBuffer::LivePacked(const std::shared_ptr<Panel>& panel) {
  if (uses_.load(std::memory_order_relaxed) != 0 || held()) return;
  MutexLock lock(mutex_);
  int32_t none = 0;
  if (stays_plain_ || !uses_.compare_exchange_strong(none, kPacked, std::memory_order_acq_rel)) return;
  only_ = panel;
  panels_->SetAlone(*panel, true);
  block_->Drop();
}

uint64_t CpuBuffer::NewId() {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

CpuBuffer::~CpuBuffer() {
  if (panels_ != nullptr) panels_->Forget(id_);
}

std::shared_ptr<Panel> CpuBuffer::PanelIn(const std::shared_ptr<KeptPanels>& panels, const KeptPanels::Key& key,
                                          int64_t bytes, const std::function<std::shared_ptr<Panel>()>& make) {
  MutexLock lock(mutex_);
  panels_ = panels;
  return panels->FindOrMake(id_, key, bytes, make);
}

absl::StatusOr<Ref<Block>> NewBlock(const std::shared_ptr<BlockPool>& pool, int64_t bytes) {
  // The owner first: if there is no memory for it, none has been taken.
  Ref<Block> block(new Block(pool, bytes));
  WEFT_ASSIGN_OR_RETURN(block->data_, pool->Take(bytes));
  return block;
}

}  // namespace weft::cpu
