// Operands as kernels want them, kept with the buffers they were packed from: a weight that comes to launch after launch is
// packed once. A buffer's contents never change, so that what is assigned to is another buffer, and they are forgotten with it.
// A weight that only such kernels read lives packed and nowhere else (cpu_buffer.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "src/runtime/memory_budget.h"
#include "src/runtime/mutex.h"

namespace weft::cpu {

// One packed operand. The launches of a device run one after another: the first that comes to it gets its memory and fills
// it, and no lock is needed for what is in it. Afterwards it never changes.
struct Panel {
  // Gives the packed operand's bytes, from a byte on, as they were.
  using Unpack = std::function<void(const void* packed, int64_t first, std::span<std::byte> to)>;
  Panel(int64_t bytes, Unpack unpack) : bytes(bytes), unpack(std::move(unpack)) {}

  const int64_t bytes;
  const Unpack unpack;  // null where there is no way back
  std::atomic<bool> filled{false};
  std::atomic<bool> alone{false};  // the bytes are nowhere else
  std::shared_ptr<void> memory;
};

// The packed operands of one device. Thread-safe.
class KeptPanels {
 public:
  // Bytes at most of what is there twice. What does not fit is packed launch by launch, rather than at another's cost: in a
  // model that is larger, each weight would push out the one that comes next. All products of BERT base have 340 MB.
  static constexpr int64_t kMost = int64_t{512} << 20;

  explicit KeptPanels(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

  // Identifies the form in which a buffer is packed: the kernel and the integers that say how.
  struct Key {
    const void* kernel = nullptr;
    std::vector<int64_t> form;
    friend bool operator==(const Key&, const Key&) = default;
  };
  // The panel of that form of a buffer; if there is none, `make` makes one, without memory so far. Null where memory is short:
  // no launch fails for it.
  std::shared_ptr<Panel> FindOrMake(uint64_t buffer, const Key& key, int64_t bytes,
                                    const std::function<std::shared_ptr<Panel>()>& make);
  // Gets the panel's memory; whether there is enough.
  bool Reserve(Panel& panel);
  // Says whether a filled panel's operand is nowhere else from now on.
  void SetAlone(Panel& panel, bool alone);
  // The buffer is gone.
  void Forget(uint64_t buffer);
  // Memory is short: lets go of all panels whose operands are somewhere else, too, and keeps half as much from now on, so that
  // a device without room for them does not pack for nothing again and again. Whether there were any. Launches keep theirs
  // until they have run.
  bool Trim();

  int64_t bytes() const { return counts_->all.load(std::memory_order_relaxed); }
  // Bytes of panels whose operands are somewhere else, too.
  int64_t twice() const { return counts_->twice.load(std::memory_order_relaxed); }
  int64_t made() const { return made_.load(std::memory_order_relaxed); }  // since the beginning

 private:
  struct Kept {
    Key key;
    std::shared_ptr<Panel> panel;
  };

  const std::shared_ptr<MemoryBudget> budget_;
  // Bytes, also of panels that only launches still hold.
  struct Counts {
    std::atomic<int64_t> all{0}, twice{0};
  };
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  std::atomic<int64_t> made_{0};
  Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::vector<Kept>> of_buffer_ ABSL_GUARDED_BY(mutex_);
  int64_t most_ ABSL_GUARDED_BY(mutex_) = kMost;
};

}  // namespace weft::cpu
