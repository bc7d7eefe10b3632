// Counts how often each operation was recorded.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/ops/registry.h"
#include "src/runtime/snapshot.h"

namespace weft::lazy {

// Thread rule: one thread at a time. Counting takes some 2 ns: operations are told apart by where they lie.
class OpCounts {
 public:
  void Add(const ir::OpDef& op) { ++SlotOf(op).count; }
  // Nothing if there is no such operation.
  std::optional<int64_t> Get(std::string_view name) {
    const ir::OpDef* const op =
        name.starts_with(kOfOperation) ? ops::FindCalled(name.substr(kOfOperation.size())) : nullptr;
    if (op == nullptr || op->c_name != name.substr(kOfOperation.size())) return std::nullopt;
    return SlotOf(*op).count;
  }
  // Adds the counts that are not 0, by name.
  void AddTo(Snapshot* snapshot) const {
    std::vector<Slot> used;
    std::ranges::copy_if(slots_, std::back_inserter(used), [](const Slot& slot) { return slot.count > 0; });
    std::ranges::sort(used, {}, [](const Slot& slot) { return slot.op->c_name; });
    for (const Slot& slot : used) snapshot->AddOperation(slot.op->c_name, slot.count);
  }
  void Clear() { slots_ = {}; }

 private:
  struct Slot {
    const ir::OpDef* op = nullptr;
    int64_t count = 0;
  };
  static constexpr int kBits = 10;  // more than twice as many as there are operations

  Slot& SlotOf(const ir::OpDef& op) {
    uint64_t at = (reinterpret_cast<uintptr_t>(&op) * 0x9E3779B97F4A7C15u) >> (64 - kBits);
    while (slots_[at].op != &op) {
      if (slots_[at].op == nullptr)
        slots_[at].op = &op;
      else
        at = (at + 1) % slots_.size();
    }
    return slots_[at];
  }

  std::array<Slot, size_t{1} << kBits> slots_{};
};

}  // namespace weft::lazy
