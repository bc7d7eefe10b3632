// See function_file.h.
#include "serialization/function_file.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_replace.h"
#include "serialization/atomic_file.h"
#include "serialization/cache_entry.h"
#include "serialization/limits.h"
#include "src/runtime/file_kind.h"
#include "src/runtime/status.h"

namespace weft {

absl::Status WriteFunctionFile(FileSystem* fs, const std::string& path, std::string text) {
  CacheEntry entry;
  entry.kind = CacheEntryKind::kFunction;
  entry.key = Checksum128(std::as_bytes(std::span(text)));
  entry.canonical = std::move(text);
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, EncodeCacheEntry(entry));
  WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(fs, path, {}));
  WEFT_RETURN_IF_ERROR(file.file().Write(std::as_bytes(std::span(bytes))));
  return file.Commit();
}

absl::StatusOr<FunctionFile> ReadFunctionFile(FileSystem* fs, const std::string& path) {
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(File file, File::OpenToRead(fs, path, &info));
  if (static_cast<uint64_t>(info.size) > kMaxFunctionBytes + kMaxCacheMetaBytes + kCacheHeaderBytes) {
    return UserErrorOf(absl::StatusCode::kDataLoss, "'", path, "' has ", info.size,
                       " bytes, more than the file of a function can have");
  }
  std::string bytes(static_cast<size_t>(info.size), '\0');
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(bytes))));
  const auto first = std::as_bytes(std::span(bytes)).first(std::min(bytes.size(), kSniffedBytes));
  if (!std::ranges::equal(first.first(std::min(first.size(), sizeof kCacheMagic)),
                          std::as_bytes(std::span(kCacheMagic)))) {
    if (const std::string_view kind = KindOfFile(first); !kind.empty()) {
      return UserError("'", path, "' is not the file of a function: it is ", kind);
    }
  }
  absl::StatusOr<CacheEntry> entry = DecodeCacheEntry(std::as_bytes(std::span(bytes)));
  if (!entry.ok()) {
    return UserErrorOf(entry.status().code(), "'", path,
                       "': ", absl::StrReplaceAll(entry.status().message(), {{"cache entry", "function file"}}));
  }
  if (entry->kind == CacheEntryKind::kFunction)
    return FunctionFile{.text = std::move(entry->canonical), .canonical = {}};
  return FunctionFile{.text = {}, .canonical = std::move(entry->canonical)};
}

}  // namespace weft
