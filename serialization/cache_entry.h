// One entry of the compile cache as bytes: a 128-byte header, a small message, one zstd frame with the canonical program and
// what was compiled from it. docs/formats.md describes it; compile_cache.h keeps such files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/checksum.h"

namespace weft {

enum class CacheEntryKind : uint8_t {
  kObject = 0,    // machine code and constants of our own backend; at most 256 MiB
  kPjrt = 1,      // an executable that a plugin serialised; at most 2 GiB
  kFunction = 2,  // no entry but a file of its own (function_file.h): the text is the canonical form; at most 2 GiB
};

struct CacheEntry {
  Hash128 key;
  CacheEntryKind kind = CacheEntryKind::kObject;
  // The program, options, compiler and target in canonical form. Compared byte for byte on a hit, so that two programs
  // whose keys collide never share code.
  std::string canonical;
  std::vector<std::pair<std::string, std::string>> sections;  // name and bytes, e.g. "object", "launch", "constants"
  // For people who ask why something was not found.
  std::string backend, compiler_version, target, options;
  uint64_t compile_micros = 0;
  int64_t created_unix_ns = 0;
  uint32_t graph_ops = 0;
  uint64_t shape = 0;  // not in the entry but in the index beside it (cache_shapes.h); 0: in none

  const std::string* Section(std::string_view name) const {
    for (const auto& [n, bytes] : sections) {
      if (n == name) return &bytes;
    }
    return nullptr;
  }
};

inline constexpr size_t kCacheHeaderBytes = 128;
inline constexpr uint16_t kCacheVersion = 1;

// INVALID_ARGUMENT if it is too large. With a key the entry has a MAC (mac.h).
absl::StatusOr<std::string> EncodeCacheEntry(const CacheEntry& entry, std::string_view mac_key = "");

// The facts of an entry, without its program.
struct CacheEntryAbout {
  Hash128 key;
  std::string backend, target, options;
  uint64_t compile_micros = 0, program_bytes = 0;  // of canonical program and sections, decompressed
  int64_t created_unix_ns = 0;
  uint32_t graph_ops = 0;
};
// `whole`: `bytes` is all of the entry and is checked as DecodeCacheEntry does; else its first bytes, of which the header is checked.
// DATA_LOSS, too, where these are too few.
absl::StatusOr<CacheEntryAbout> AboutEntry(std::span<const std::byte> bytes, bool whole, std::string_view mac_key = "");

// The 32 digits that name an entry's file.
std::string KeyName(const Hash128& key);

// DATA_LOSS for damage, UNIMPLEMENTED for another version of the format, with a key PERMISSION_DENIED for an entry without a MAC
// under it, which is looked at before anything is decompressed. `bytes` may be anything.
absl::StatusOr<CacheEntry> DecodeCacheEntry(std::span<const std::byte> bytes, std::string_view mac_key = "");

}  // namespace weft
