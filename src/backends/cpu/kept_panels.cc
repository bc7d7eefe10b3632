// See kept_panels.h.
#include "src/backends/cpu/kept_panels.h"

#include <utility>

#include "src/runtime/machine_memory.h"

namespace weft::cpu {
namespace {

// A panel saves time, a tensor that finds no memory ends a program: one that needs more than an eighth of what the machine
// has left is not made.
constexpr int64_t kShare = 8;

}  // namespace

std::shared_ptr<Panel> KeptPanels::FindOrMake(uint64_t buffer, const Key& key, int64_t bytes) {
  MutexLock lock(mutex_);
  if (const auto found = of_buffer_.find(buffer); found != of_buffer_.end()) {
    for (const Kept& kept : found->second) {
      if (kept.key == key) return kept.panel;
    }
  }
  if (this->bytes() + bytes > most_ || !MachineHas(bytes * kShare)) return nullptr;
  const auto size = static_cast<size_t>(bytes);
  void* const memory = budget_->Allocate(size, 64);
  if (memory == nullptr) return nullptr;
  bytes_->fetch_add(bytes, std::memory_order_relaxed);
  auto panel = std::make_shared<Panel>();
  panel->memory = std::shared_ptr<void>(memory, [budget = budget_, total = bytes_, size](void* p) {
    budget->Free(p, size);
    total->fetch_sub(static_cast<int64_t>(size), std::memory_order_relaxed);
  });
  made_.fetch_add(1, std::memory_order_relaxed);
  of_buffer_[buffer].push_back({key, panel});
  return panel;
}

void KeptPanels::Forget(uint64_t buffer) {
  std::vector<Kept> gone;  // freed without the lock
  MutexLock lock(mutex_);
  const auto found = of_buffer_.find(buffer);
  if (found == of_buffer_.end()) return;
  gone = std::move(found->second);
  of_buffer_.erase(found);
}

bool KeptPanels::Trim() {
  absl::flat_hash_map<uint64_t, std::vector<Kept>> gone;
  MutexLock lock(mutex_);
  if (of_buffer_.empty()) return false;
  most_ = bytes() / 2;
  gone.swap(of_buffer_);
  return true;
}

}  // namespace weft::cpu
