// See kept_panels.h.
#include "src/backends/cpu/kept_panels.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/runtime/machine_memory.h"

namespace weft::cpu {
namespace {

// A panel saves time, a tensor that finds no memory ends a program: one that needs more than an eighth of what the machine
// has left is not made.
constexpr int64_t kShare = 8;

}  // namespace

std::shared_ptr<Panel> KeptPanels::FindOrMake(uint64_t buffer, const Key& key, int64_t bytes,
                                              const std::function<std::shared_ptr<Panel>()>& make) {
  MutexLock lock(mutex_);
  if (const auto found = of_buffer_.find(buffer); found != of_buffer_.end()) {
    for (const Kept& kept : found->second) {
      if (kept.key == key) return kept.panel;
    }
  }
  if (twice() + bytes > most_) return nullptr;
  made_.fetch_add(1, std::memory_order_relaxed);
  std::vector<Kept>& all = of_buffer_[buffer];
  all.push_back({key, make()});
  return all.back().panel;
}

bool KeptPanels::Reserve(Panel& panel) {
  {
    MutexLock lock(mutex_);
    if (twice() + panel.bytes > most_) return false;
  }
  const auto size = static_cast<size_t>(panel.bytes);
  if (!MachineHas(panel.bytes * kShare)) return false;
  void* const memory = budget_->Allocate(size, 64);
  if (memory == nullptr) return false;
  counts_->all.fetch_add(panel.bytes, std::memory_order_relaxed);
  counts_->twice.fetch_add(panel.bytes, std::memory_order_relaxed);
  panel.memory = std::shared_ptr<void>(memory, [budget = budget_, counts = counts_, &panel, size](void* p) {
    budget->Free(p, size);
    counts->all.fetch_sub(static_cast<int64_t>(size), std::memory_order_relaxed);
    if (!panel.alone) counts->twice.fetch_sub(static_cast<int64_t>(size), std::memory_order_relaxed);
  });
  return true;
}

void KeptPanels::SetAlone(Panel& panel, bool alone) {
  if (panel.alone.exchange(alone) == alone) return;
  counts_->twice.fetch_add(alone ? -panel.bytes : panel.bytes, std::memory_order_relaxed);
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
  std::vector<Kept> gone;
  MutexLock lock(mutex_);
  for (auto& [buffer, all] : of_buffer_) {
    const auto first =
        std::partition(all.begin(), all.end(), [](const Kept& kept) { return kept.panel->alone.load(); });
    gone.insert(gone.end(), std::make_move_iterator(first), std::make_move_iterator(all.end()));
    all.erase(first, all.end());
  }
  if (gone.empty()) return false;
  most_ = twice() / 2;
  return true;
}

}  // namespace weft::cpu
