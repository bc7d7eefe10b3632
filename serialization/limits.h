// Limits on the work that a hostile or damaged file can cause a reader. Every number is checked before the memory is
// asked for, and nothing is allocated for bytes that the file does not have.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr uint64_t kMaxMetaBytes = 4 << 20;    // one metadata message
inline constexpr uint64_t kMaxFooterBytes = 4 << 20;  // 4 MiB of page references, about 40,000 pages
inline constexpr uint64_t kMaxNestingOfMessages = 8;  // trees are stored flat, so messages are shallow
inline constexpr uint64_t kMaxTensorsPerFile = 16 << 20;
inline constexpr uint64_t kMaxTreeNodes = 64 << 20;
inline constexpr uint32_t kMaxTreeDepth = 1024;               // all walks are iterative; this bounds path lengths
inline constexpr uint64_t kMaxNameBytes = 4096;               // a key, and a tensor's whole path
inline constexpr uint64_t kMaxValueBytes = 1 << 20;           // text and bytes in a tree; more belongs into a u8 tensor
inline constexpr uint64_t kMaxPageBytes = 256 << 10;          // one page of the index, its frame included
inline constexpr uint64_t kMaxPackBytes = 64 << 20;           // payloads of several tensors; our writer stays at 4 MiB
inline constexpr uint64_t kMaxDataBytes = uint64_t{1} << 40;  // one tensor
inline constexpr uint64_t kMaxInsideBytes = 256;              // tensors kept inside the index
inline constexpr uint64_t kMaxBases = 256;                    // files that one file takes parts from
inline constexpr uint64_t kMaxUserPairs = 4096;               // user metadata in the header
inline constexpr uint64_t kMaxCacheMetaBytes = 64 << 10;
inline constexpr uint64_t kMaxCacheObjectBytes = 256 << 20;
inline constexpr uint64_t kMaxCachePjrtBytes = uint64_t{2} << 30;
inline constexpr uint64_t kMaxFunctionBytes = uint64_t{2} << 30;

}  // namespace weft
