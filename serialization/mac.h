// Message authentication codes of cache entries: HMAC-SHA-256 (RFC 2104, FIPS 180-4). Thread rule: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "src/runtime/io.h"

namespace weft {

using Mac = std::array<uint8_t, 32>;

// The code of the parts, one behind the other, under `key`, which may have any length.
Mac MacOf(std::string_view key, std::initializer_list<std::span<const std::byte>> parts);

// Compares in time that does not depend on where the first difference is.
bool MacsEqual(const Mac& a, const Mac& b);

// The key in a file: 32 to 4,096 bytes that nobody but this user (or root) may read or write. PERMISSION_DENIED where others may, INVALID_ARGUMENT for
// another size, and what opening and reading give.
absl::StatusOr<std::string> ReadMacKey(FileSystem* fs, const std::string& path);

}  // namespace weft
