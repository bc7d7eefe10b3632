// Guesses a file's kind by its first bytes: for errors of readers that were given something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

// The first bytes of Weft's own files. The first byte is no text, CR LF and ^Z show damage by text-mode transfers.
inline constexpr uint8_t kCheckpointMagic[8] = {0xD7, 'T', 'C', 'K', '\r', '\n', 0x1A, '\n'};
inline constexpr uint8_t kCacheMagic[8] = {0xD7, 'T', 'C', 'E', '\r', '\n', 0x1A, '\n'};
inline constexpr size_t kCacheEntryKindAt = 11;  // of the byte that says what such an entry holds,
inline constexpr uint8_t kFunctionKind = 2;      // and of a function

// The number of bytes that is enough to know.
inline constexpr size_t kSniffedBytes = 16;

// The kind of a file by its first bytes: a short name ("npy", "checkpoint"; empty if nobody knows), and the sentence of KindOfFile.
struct SniffedFile {
  std::string_view name, what;
};
SniffedFile SniffFile(std::span<const std::byte> first);
// The kind of what begins so and who reads it, "a Weft checkpoint, which weft_checkpoint_load reads"; empty if nobody knows.
std::string_view KindOfFile(std::span<const std::byte> first);
// "; it is a Weft checkpoint, …", or nothing: for the end of an error.
std::string ItIs(std::span<const std::byte> first);

}  // namespace weft
