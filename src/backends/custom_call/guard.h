// Debug mode: memory of a custom function's with a pattern before and behind it, which tells of writes outside.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string_view>

#include "src/runtime/status.h"

namespace weft::custom {

inline constexpr unsigned char kGuard = 0xA5;

// Where a pattern around `bytes` bytes is not what it was, counted from their first; nothing if it is whole.
inline std::optional<int64_t> BrokenGuard(const unsigned char* memory, int64_t before, int64_t bytes, int64_t behind) {
  for (int64_t i = bytes; i < bytes + behind; ++i) {
    if (memory[i] != kGuard) return i;
  }
  for (int64_t i = -1; i >= -before; --i) {
    if (memory[i] != kGuard) return i;
  }
  return std::nullopt;
}

class GuardedMemory {
 public:
  static absl::StatusOr<GuardedMemory> Allocate(size_t bytes) {
    GuardedMemory memory;
    memory.bytes_ = bytes;
    memory.all_.reset(new (std::nothrow) Line[(bytes + sizeof(Line) - 1) / sizeof(Line) + 2 * kLines]);
    if (memory.all_ == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for a guarded copy of ", bytes, " bytes"));
    }
    std::memset(memory.all_.get(), kGuard, kLines * sizeof(Line));
    std::memset(memory.data() + bytes, kGuard, kLines * sizeof(Line));
    return memory;
  }
  unsigned char* data() { return reinterpret_cast<unsigned char*>(all_.get() + kLines); }
  std::optional<int64_t> Broken() {
    constexpr int64_t kBytes = kLines * sizeof(Line);
    return BrokenGuard(data(), kBytes, static_cast<int64_t>(bytes_), kBytes);
  }

 private:
  struct alignas(64) Line {
    unsigned char bytes[64];
  };
  static constexpr size_t kLines = 4;  // each side
  std::unique_ptr<Line[]> all_;
  size_t bytes_ = 0;
};

// Guards one element of at most 8 bytes.
class GuardedElement {
 public:
  GuardedElement() { memory_.fill(kGuard); }
  unsigned char* data() { return memory_.data() + 16; }
  std::optional<int64_t> Broken(int64_t bytes) { return BrokenGuard(data(), 16, bytes, 32 - bytes); }

 private:
  alignas(16) std::array<unsigned char, 48> memory_;
};

inline absl::Status OutsideOf(std::string_view what, size_t number, int64_t bytes, int64_t at) {
  return UserErrorOf(absl::StatusCode::kOutOfRange, "it wrote ", at < 0 ? "before" : "past the end of", " ", what, " ",
                     number, ", which has ", bytes, " bytes: byte ", at);
}

}  // namespace weft::custom
