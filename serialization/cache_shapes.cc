// See cache_shapes.h. The file is a name of eight bytes and records of 24: the shape and the key's two halves, little-endian.
#include "serialization/cache_shapes.h"

#include <cstring>
#include <span>
#include <string_view>

#include "serialization/atomic_file.h"
#include "serialization/cache_folder.h"

namespace weft {
namespace {

constexpr std::string_view kName = "weftshp1";
constexpr size_t kRecord = 24, kMost = 2048;

std::string PathOf(const std::string& root) { return JoinPath(root, "shapes"); }

// The records; empty where there are none, or bytes that nobody here wrote.
std::string Read(FileSystem* fs, const std::string& root) {
  FileInfo info;
  const std::string path = PathOf(root);
  const bool may = fs->Stat(FileSystem::kHere, path.c_str(), &info) == 0 && info.size <= int64_t{64} << 10;
  if (!may) return "";
  absl::StatusOr<std::string> bytes = ReadCacheFile(fs, path, &info);
  if (!bytes.ok() || !bytes->starts_with(kName)) return "";
  bytes->erase(0, kName.size());
  bytes->resize(bytes->size() / kRecord * kRecord);
  return *std::move(bytes);
}

std::string RecordOf(uint64_t shape, const Hash128& key) {
  const uint64_t words[] = {shape, key.low, key.high};
  static_assert(sizeof words == kRecord);
  return std::string(reinterpret_cast<const char*>(words), sizeof words);
}

}  // namespace

void AddCacheShape(FileSystem* fs, const std::string& root, uint64_t shape, const Hash128& key) {
  const std::string record = RecordOf(shape, key);
  std::string bytes = Read(fs, root);
  for (size_t at = 0; at < bytes.size(); at += kRecord) {
    if (std::string_view(bytes).substr(at, kRecord) == record) return;
  }
  bytes += record;
  if (bytes.size() > kMost * kRecord) bytes.erase(0, bytes.size() - kMost * kRecord);
  bytes.insert(0, kName);
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(
      fs, PathOf(root),
      {.durability = Durability::kProcess, .new_mode = 0600, .clean_stale = false, .replace_any = true});
  if (file.ok() && file->file().Write(std::as_bytes(std::span(bytes))).ok()) file->Commit().IgnoreError();
}

std::vector<Hash128> CacheKeysOfShape(FileSystem* fs, const std::string& root, uint64_t shape, size_t most) {
  const std::string bytes = Read(fs, root);
  std::vector<Hash128> keys;
  for (size_t at = bytes.size(); at > 0 && keys.size() < most; at -= kRecord) {
    uint64_t words[3];
    std::memcpy(words, bytes.data() + at - kRecord, kRecord);
    if (words[0] == shape) keys.push_back({words[1], words[2]});
  }
  return keys;
}

}  // namespace weft
