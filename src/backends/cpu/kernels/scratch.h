// Working memory of kernels: packed blocks, tables, partial sums. A call's need follows from its sizes (ScratchNeeds),
// so a program's launch reserves all of it (ScratchSet) and its kernels cannot run out of memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/memory_budget.h"

namespace weft::cpu {

// Slots are independent; a kernel has each of them for itself until it returns.
enum class ScratchSlot { kPackA, kPackB, kShared, kOutput, kTables, kWiden, kLoop, kSums, kCount };

// Bytes by slot: of the thread that runs the launch, and of every share of its regions.
struct ScratchNeeds {
  using Bytes = std::array<int64_t, static_cast<size_t>(ScratchSlot::kCount)>;
  Bytes once = {}, each = {};

  void Once(ScratchSlot slot, int64_t bytes) { Raise(once, slot, bytes); }
  void Each(ScratchSlot slot, int64_t bytes) { Raise(each, slot, bytes); }
  // Share 0 is the launching thread's.
  int64_t Of(int share, ScratchSlot slot) const {
    const auto s = static_cast<size_t>(slot);
    return share == 0 ? std::max(once[s], each[s]) : each[s];
  }

 private:
  // Kernels run one after another: the largest serves all.
  static void Raise(Bytes& bytes, ScratchSlot slot, int64_t wanted) {
    int64_t& most = bytes[static_cast<size_t>(slot)];
    most = std::max(most, wanted);
  }
};

// Scratch by share of a region, not by thread: whichever threads take part find what was reserved. Never changes: a launch
// keeps the set it was submitted with. Sets share memory, so one launch at a time. Found as the pool's owner.
class ScratchSet {
 public:
  // A set with at least what `needs` says for so many shares, and all that `before` (may be null) has; `before` itself if
  // that suffices. RESOURCE_EXHAUSTED if there is no memory, or none within the budget (null: unlimited).
  static absl::StatusOr<std::shared_ptr<ScratchSet>> Reserve(std::shared_ptr<ScratchSet> before, int shares,
                                                             const ScratchNeeds& needs,
                                                             std::shared_ptr<MemoryBudget> budget = nullptr);
  // Null if more is asked for than was reserved; Overrun() then says so.
  void* Get(int share, ScratchSlot slot, int64_t bytes) const {
    const Piece& piece = shares_[static_cast<size_t>(share)].pieces[static_cast<size_t>(slot)];
    if (bytes <= piece.bytes) return piece.memory.get();
    return Refuse(slot, bytes, piece.bytes);
  }
  // INTERNAL if a kernel asked for more than it had said.
  absl::Status Overrun() const;

 private:
  struct Piece {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };
  struct alignas(128) Share {
    std::array<Piece, static_cast<size_t>(ScratchSlot::kCount)> pieces;
  };
  void* Refuse(ScratchSlot slot, int64_t bytes, int64_t reserved) const;

  std::vector<Share> shares_;
  mutable std::atomic<int64_t> refused_{0}, refused_reserved_{0};
  mutable std::atomic<int> refused_slot_{0};
};

// Returns scratch for the calling thread's work, at least `bytes`, 64-byte aligned; nullptr without memory. It comes
// from the pool's owner if it has one (a launch), else it is the thread's own, which grows.
void* ThreadScratch(ScratchSlot slot, int64_t bytes);

// "out of memory for packing space of a matrix product: 1048576 bytes"
absl::Status OutOfScratch(const char* what, int64_t bytes);

}  // namespace weft::cpu
