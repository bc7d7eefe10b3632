// See cache_folder.h.
#include "serialization/cache_folder.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "serialization/limits.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr int64_t kHourNs = int64_t{3600} * 1'000'000'000;

}  // namespace

std::string WhyUntrusted(const FileInfo& info) {
  const uint32_t me = geteuid();
  if (info.owner != me && info.owner != 0) return absl::StrCat("it belongs to user ", info.owner, ", not to ", me);
  if ((info.mode & 022) != 0) return "others may write to it (chmod go-w makes it usable)";
  return "";
}

std::string WhyFolderUntrusted(FileSystem* fs, const std::string& path) {
  FileInfo info;
  if (fs->Stat(FileSystem::kHere, path.c_str(), &info) < 0 || info.kind != FileKind::kDirectory) return "";
  const std::string why = WhyUntrusted(info);
  return why.empty() ? "" : absl::StrCat("'", path, "': ", why);
}

absl::StatusOr<File> OpenTrusted(FileSystem* fs, const std::string& path, FileInfo* info) {
  WEFT_ASSIGN_OR_RETURN(File file, File::Open(fs, path, {.read = true, .no_follow = true}));
  WEFT_ASSIGN_OR_RETURN(*info, file.Info());
  if (info->kind != FileKind::kRegular)
    return absl::PermissionDeniedError(absl::StrCat("'", path, "' is not a regular file"));
  if (const std::string why = WhyUntrusted(*info); !why.empty()) {
    return absl::PermissionDeniedError(absl::StrCat("'", path, "' is not trusted: ", why));
  }
  return file;
}

std::vector<CacheFile> ScanCacheFolder(FileSystem* fs, const std::string& root, bool tidy) {
  std::vector<CacheFile> found;
  std::vector<std::string> folders, names;
  if (fs->List(FileSystem::kHere, root.c_str(), &folders) < 0) return found;
  for (const std::string& folder : folders) {
    if (folder.size() != 2) continue;
    const std::string path = JoinPath(root, folder);
    if (fs->List(FileSystem::kHere, path.c_str(), &names) < 0) continue;
    for (const std::string& name : names) {
      const std::string full = JoinPath(path, name);
      FileInfo info;
      if (fs->Stat(FileSystem::kHere, full.c_str(), &info) < 0 || info.kind != FileKind::kRegular) continue;
      if (name.ends_with(".tce") && name[0] != '.') {
        found.push_back({full, info.modified_ns, static_cast<uint64_t>(info.size)});
      } else if (tidy && name.ends_with(".tmp") && UnixNow() - info.modified_ns > kHourNs) {
        fs->Unlink(FileSystem::kHere, full.c_str());
      }
    }
  }
  return found;
}

absl::StatusOr<std::string> ReadCacheFile(FileSystem* fs, const std::string& path, FileInfo* info) {
  WEFT_ASSIGN_OR_RETURN(const File file, OpenTrusted(fs, path, info));
  if (static_cast<uint64_t>(info->size) > kMaxCachePjrtBytes + kMaxCacheMetaBytes + kCacheHeaderBytes) {
    return absl::DataLossError(absl::StrCat("'", path, "' has ", info->size, " bytes, more than an entry can have"));
  }
  std::string bytes(static_cast<size_t>(info->size), '\0');
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

absl::StatusOr<CacheEntryAbout> AboutCacheFile(FileSystem* fs, const std::string& path, bool whole,
                                               std::string_view mac_key) {
  FileInfo info;
  if (whole) {
    WEFT_ASSIGN_OR_RETURN(const std::string bytes, ReadCacheFile(fs, path, &info));
    return AboutEntry(std::as_bytes(std::span(bytes)), whole, mac_key);
  }
  WEFT_ASSIGN_OR_RETURN(const File file, OpenTrusted(fs, path, &info));
  std::vector<std::byte> start(std::min<uint64_t>(static_cast<uint64_t>(info.size), 4096));
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, start));
  absl::StatusOr<CacheEntryAbout> about = AboutEntry(start, whole);
  if (about.ok() || static_cast<uint64_t>(info.size) == start.size()) return about;
  start.resize(std::min<uint64_t>(static_cast<uint64_t>(info.size), kCacheHeaderBytes + kMaxCacheMetaBytes));
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, start));
  return AboutEntry(start, whole);
}

void ListCacheFolder(FileSystem* fs, const std::string& root, size_t folder, bool verify, std::string_view mac_key,
                     std::vector<CacheListed>* listed) {
  for (CacheFile& file : ScanCacheFolder(fs, root, /*tidy=*/false)) {
    const std::string_view name = BaseNameOf(file.path);
    CacheListed& one = listed->emplace_back(CacheListed{.name = std::string(name.substr(0, name.rfind('.'))),
                                                        .path = file.path,
                                                        .folder = folder,
                                                        .bytes = file.bytes,
                                                        .used_unix_ns = file.modified_ns,
                                                        .about = AboutCacheFile(fs, file.path, verify, mac_key)});
    if (const std::string untrusted = WhyFolderUntrusted(fs, DirectoryOf(file.path)); !untrusted.empty()) {
      one.about = absl::PermissionDeniedError(untrusted);
    } else if (one.about.ok() && KeyName(one.about->key) != one.name) {
      one.about = absl::DataLossError("it holds another key than its name says");
    }
  }
}

}  // namespace weft
