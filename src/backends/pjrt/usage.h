// Counts the bytes that a plugin's device holds for us, because not every plugin counts, and holds them to a limit.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "src/runtime/status.h"

namespace weft::pjrt {

// Thread rule: any thread.
class Usage {
 public:
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_; }  // 0: none
  void set_limit(int64_t bytes) { limit_ = bytes; }

  // Counts `more` bytes and no longer the `gone` ones, unless that and what is needed `besides` is more than the limit: RESOURCE_EXHAUSTED.
  absl::Status Exchange(int64_t more, int64_t gone = 0, int64_t besides = 0);
  void GiveBack(int64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> bytes_{0}, peak_{0};
  int64_t limit_ = 0;
};

// Bytes that count for a device as long as this lives.
class Share {
 public:
  Share() = default;
  // They have been counted.
  Share(Usage* usage, int64_t bytes) : usage_(usage), bytes_(bytes) {}
  Share(Share&& other) noexcept : usage_(std::exchange(other.usage_, nullptr)), bytes_(other.bytes_) {}
  Share& operator=(Share&&) = delete;
  ~Share() {
    if (usage_ != nullptr) usage_->GiveBack(bytes_);
  }
  // Somebody else has given them back.
  void Forget() { usage_ = nullptr; }

 private:
  Usage* usage_ = nullptr;
  int64_t bytes_ = 0;
};

// Counts a new tensor of so many bytes: RESOURCE_EXHAUSTED where the limit leaves none.
absl::StatusOr<Share> ShareOf(Usage& usage, int64_t bytes);

}  // namespace weft::pjrt
