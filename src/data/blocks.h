// Host memory of batches: aligned blocks that come back and are used again, with a mark behind them that shows who
// wrote too far.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"

namespace weft::data {

// A block of so many bytes, and kGuardBytes behind them that nobody may write. Its last owner gives it back.
using Block = std::shared_ptr<std::byte>;

// Thread rule: any thread. Blocks may outlive the pool.
class BlockPool {
 public:
  static constexpr size_t kAlign = 64, kGuardBytes = 64;

  // Keeps at most so many bytes that nobody uses.
  explicit BlockPool(size_t most_kept);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // RESOURCE_EXHAUSTED where there is no memory. The contents are undefined.
  absl::StatusOr<Block> Take(size_t bytes);
  // Tells whether the mark behind the block is as Take left it.
  static bool GuardIsWhole(const Block& block, size_t bytes);

 private:
  struct Free;
  std::shared_ptr<Free> free_;
};

}  // namespace weft::data
