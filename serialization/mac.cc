// See mac.h.
#include "serialization/mac.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/SHA256.h"
#include "serialization/cache_folder.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr size_t kBlock = 64;  // SHA-256's

llvm::ArrayRef<uint8_t> BytesOf(std::span<const std::byte> part) {
  return {reinterpret_cast<const uint8_t*>(part.data()), part.size()};
}

}  // namespace

Mac MacOf(std::string_view key, std::initializer_list<std::span<const std::byte>> parts) {
  std::array<uint8_t, kBlock> block = {};
  if (key.size() > kBlock) {
    std::ranges::copy(llvm::SHA256::hash(BytesOf(std::as_bytes(std::span(key)))), block.begin());
  } else {
    std::ranges::copy(key, block.begin());
  }
  const auto started = [&block](uint8_t pad) {
    std::array<uint8_t, kBlock> padded;
    std::ranges::transform(block, padded.begin(), [pad](uint8_t byte) { return static_cast<uint8_t>(byte ^ pad); });
    llvm::SHA256 hash;
    hash.update(padded);
    return hash;
  };
  llvm::SHA256 inner = started(0x36), outer = started(0x5c);
  for (const std::span<const std::byte> part : parts) inner.update(BytesOf(part));
  outer.update(inner.final());
  return outer.final();
}

bool MacsEqual(const Mac& a, const Mac& b) {
  unsigned differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned>(a[i] ^ b[i]);
  return differs == 0;
}

absl::StatusOr<std::string> ReadMacKey(FileSystem* fs, const std::string& path) {
  constexpr int64_t kLeast = 32, kMost = 4096;
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(const File file, OpenTrusted(fs, path, &info));
  if ((info.mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("'", path, "' is a key that others may read (chmod 600 makes it usable)"));
  }
  if (info.size < kLeast || info.size > kMost) {
    return UserError("'", path, "' has ", info.size, " bytes; a key has ", kLeast, " to ", kMost);
  }
  std::string key(static_cast<size_t>(info.size), '\0');
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(key))));
  return key;
}

}  // namespace weft
