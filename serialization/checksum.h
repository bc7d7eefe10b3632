// XXH3 over bytes: 31 GB/s on one core, so that hashing every byte costs a save nothing that can be seen. It finds
// accidents, not attackers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace weft {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// Every comparison of a stored checksum goes through here, so that a fuzzer can look behind them.
bool ChecksumsMatch(uint64_t stored, uint64_t computed);
inline bool ChecksumsMatch(const Hash128& stored, const Hash128& computed) {
  return ChecksumsMatch(stored.low, computed.low) && ChecksumsMatch(stored.high, computed.high);
}
// For fuzzers only: from here on all checksums match. Not thread-safe, not undone by anything but a second call.
void IgnoreChecksumsForFuzzing(bool ignore);

uint64_t Checksum64(std::span<const std::byte> data);
Hash128 Checksum128(std::span<const std::byte> data);

// Checksum128 of data that comes in pieces.
class RunningChecksum {
 public:
  RunningChecksum();
  ~RunningChecksum();
  RunningChecksum(RunningChecksum&&) noexcept;
  RunningChecksum& operator=(RunningChecksum&&) noexcept;
  void Add(std::span<const std::byte> data);
  Hash128 Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
