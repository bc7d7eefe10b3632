// The only file that sees xxHash, beside what is compiled for other processors. Inlined from its header: the dispatch library
// would be one more thing to link.
#include "serialization/checksum.h"

#include "serialization/checksum_long.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weft {
namespace {
bool g_ignore = false;

constexpr size_t kLong = 4096;  // bytes from which on wider vectors pay

uint64_t Plain(const void* data, size_t size) { return XXH3_64bits(data, size); }

LongChecksum ForThisProcessor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return kChecksumAvx2;
#endif
  return Plain;
}
}  // namespace

bool ChecksumsMatch(uint64_t stored, uint64_t computed) { return stored == computed || g_ignore; }
void IgnoreChecksumsForFuzzing(bool ignore) { g_ignore = ignore; }

struct RunningChecksum::State {
  XXH3_state_t xxh;  // 64-byte aligned by its own declaration
};

uint64_t Checksum64(std::span<const std::byte> data) {
  if (data.size() < kLong) return XXH3_64bits(data.data(), data.size());
  static const LongChecksum checksum = ForThisProcessor();
  return checksum(data.data(), data.size());
}

Hash128 Checksum128(std::span<const std::byte> data) {
  const XXH128_hash_t hash = XXH3_128bits(data.data(), data.size());
  return {hash.low64, hash.high64};
}

RunningChecksum::RunningChecksum() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh);
  XXH3_128bits_reset(&state_->xxh);
}
RunningChecksum::~RunningChecksum() = default;
RunningChecksum::RunningChecksum(RunningChecksum&&) noexcept = default;
RunningChecksum& RunningChecksum::operator=(RunningChecksum&&) noexcept = default;

void RunningChecksum::Add(std::span<const std::byte> data) {
  if (!data.empty()) XXH3_128bits_update(&state_->xxh, data.data(), data.size());
}

Hash128 RunningChecksum::Value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {hash.low64, hash.high64};
}

}  // namespace weft
