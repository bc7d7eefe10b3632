// See scratch.h.
#include "src/backends/cpu/kernels/scratch.h"

#include "src/runtime/alloc_hook.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"
#include "src/runtime/thread_pool.h"

namespace weft::cpu {
namespace {

constexpr size_t kSlots = static_cast<size_t>(ScratchSlot::kCount);

int64_t Pages(int64_t bytes) { return (bytes + 4095) & ~int64_t{4095}; }

// The scratch of a thread that runs kernels outside any launch (tests, benchmarks).
struct OwnScratch {
  struct Slot {
    void* memory = nullptr;
    int64_t bytes = 0;
  };
  std::array<Slot, kSlots> slots;

  ~OwnScratch() {
    for (const Slot& slot : slots) FreeLarge(slot.memory, slot.bytes);
  }
  void* Get(ScratchSlot which, int64_t bytes) {
    Slot& slot = slots[static_cast<size_t>(which)];
    if (slot.bytes >= bytes) return slot.memory;
    const int64_t grown = Pages(bytes + bytes / 4);
    void* memory = AllocateLarge(grown, 64);
    if (memory == nullptr) return nullptr;
    FreeLarge(slot.memory, slot.bytes);
    slot = {memory, grown};
    return memory;
  }
};
thread_local OwnScratch tls_scratch;

}  // namespace

absl::StatusOr<std::shared_ptr<ScratchSet>> ScratchSet::Reserve(std::shared_ptr<ScratchSet> before, int shares,
                                                                const ScratchNeeds& needs,
                                                                std::shared_ptr<MemoryBudget> budget) {
  if (budget == nullptr) budget = std::make_shared<MemoryBudget>(0);
  std::shared_ptr<ScratchSet> grown;
  for (int share = 0; share < shares; ++share) {
    for (size_t s = 0; s < kSlots; ++s) {
      const int64_t bytes = needs.Of(share, static_cast<ScratchSlot>(s));
      if (before != nullptr && bytes <= before->shares_[static_cast<size_t>(share)].pieces[s].bytes) continue;
      if (grown == nullptr) {
        grown = std::make_shared<ScratchSet>();
        if (before != nullptr) grown->shares_ = before->shares_;
        grown->shares_.resize(static_cast<size_t>(shares));
      }
      if (bytes == 0) continue;
      const auto size = static_cast<size_t>(Pages(bytes));
      void* memory = budget->Allocate(size, 64);
      if (memory == nullptr) return budget->Shortage(absl::StrCat(bytes, " bytes of a program's working memory"), size);
      const auto free = [budget, size](void* p) { budget->Free(p, size); };
      grown->shares_[static_cast<size_t>(share)].pieces[s] = {std::shared_ptr<void>(memory, free), bytes};
    }
  }
  if (grown != nullptr) return grown;
  return before;
}

void* ScratchSet::Refuse(ScratchSlot slot, int64_t bytes, int64_t reserved) const {
  refused_slot_.store(static_cast<int>(slot), std::memory_order_relaxed);
  refused_reserved_.store(reserved, std::memory_order_relaxed);
  refused_.store(bytes, std::memory_order_relaxed);
  return nullptr;
}

absl::Status ScratchSet::Overrun() const {
  const int64_t bytes = refused_.load(std::memory_order_relaxed);
  if (bytes == 0) return absl::OkStatus();
  return InternalError("a kernel asked for ", bytes, " bytes of scratch in slot ",
                       refused_slot_.load(std::memory_order_relaxed), " where it had said ",
                       refused_reserved_.load(std::memory_order_relaxed));
}

void* ThreadScratch(ScratchSlot slot, int64_t bytes) {
  const auto* const launch = static_cast<const RunningLaunch*>(ThreadPool::owner());
  const auto* const set = launch != nullptr ? static_cast<const ScratchSet*>(launch->scratch) : nullptr;
  return set != nullptr ? set->Get(ThreadPool::share(), slot, bytes) : tls_scratch.Get(slot, bytes);
}

absl::Status OutOfScratch(const char* what, int64_t bytes) {
  return UserErrorOf(absl::StatusCode::kResourceExhausted, "out of memory for ", what, ": ", bytes, " bytes");
}

}  // namespace weft::cpu
