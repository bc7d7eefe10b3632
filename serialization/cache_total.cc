// See cache_total.h.
#include "serialization/cache_total.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "serialization/cache_folder.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr size_t kTotalDigits = 20;  // of the bytes in use, and a line's end: what gc.lock holds

}  // namespace

CacheRemoved CacheTotal::Add(const std::string& root, uint64_t written, std::string_view keep, uint64_t limit) {
  unreported_ += written;
  absl::StatusOr<File> file = Lock(root);
  if (!file.ok()) return {};
  char text[kTotalDigits + 1];
  uint64_t total = 0;
  const absl::StatusOr<FileInfo> info = file->Info();
  const bool known = scanned_ && info.ok() && info->size == sizeof(text) &&
                     file->ReadAt(0, std::as_writable_bytes(std::span(text))).ok() &&
                     absl::SimpleAtoi(absl::string_view(text, kTotalDigits), &total);
  total += unreported_;
  if (!known) {
    total = 0;
    for (const CacheFile& found : ScanCacheFolder(fs_, root, /*tidy=*/true)) total += found.bytes;
    scanned_ = true;
  }
  CacheRemoved removed;
  if (total > limit) {
    removed = Remove(root, {.more_than = limit, .down_to = limit - limit / 10, .used_before = INT64_MIN, .keep = keep},
                     &total);
  }
  Write(*file, total);
  return removed;
}

absl::StatusOr<CacheRemoved> CacheTotal::Prune(const std::string& root, uint64_t limit, int64_t used_before) {
  WEFT_ASSIGN_OR_RETURN(File file, Lock(root));
  uint64_t left = 0;
  const CacheRemoved removed =
      Remove(root, {.more_than = limit, .down_to = limit, .used_before = used_before, .keep = {}}, &left);
  Write(file, left);
  return removed;
}

CacheRemoved CacheTotal::Remove(const std::string& root, const Removal& what, uint64_t* left) {
  std::vector<CacheFile> found = ScanCacheFolder(fs_, root, /*tidy=*/true);
  std::sort(found.begin(), found.end(), [](const CacheFile& a, const CacheFile& b) {
    return std::pair(a.modified_ns, std::string_view(a.path)) < std::pair(b.modified_ns, std::string_view(b.path));
  });
  uint64_t bytes = 0;
  for (const CacheFile& f : found) bytes += f.bytes;
  const bool too_many = bytes > what.more_than;
  CacheRemoved removed;
  for (const CacheFile& f : found) {
    const bool goes = f.modified_ns < what.used_before || (too_many && bytes > what.down_to);
    if (!goes || f.path == what.keep) continue;
    bytes -= f.bytes;
    if (fs_->Unlink(FileSystem::kHere, f.path.c_str()) < 0) continue;
    ++removed.entries;
    removed.bytes += f.bytes;
  }
  *left = bytes;
  return removed;
}

absl::StatusOr<File> CacheTotal::Lock(const std::string& root) {
  WEFT_ASSIGN_OR_RETURN(File file, File::Open(fs_, JoinPath(root, "gc.lock"),
                                              {.read = true, .write = true, .create = true, .no_follow = true}));
  int locked;
  // Others hold it for microseconds, or while they scan.
  for (int i = 0; (locked = fs_->Lock(file.fd())) == -EWOULDBLOCK && i < 500; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (locked < 0) return absl::UnavailableError("another process holds the cache");
  return file;
}

void CacheTotal::Write(File& file, uint64_t total) {
  const std::string number = absl::StrCat(absl::Dec(total, absl::kZeroPad20), "\n");
  if (file.WriteAt(0, std::as_bytes(std::span(number))).ok()) unreported_ = 0;
  fs_->Unlock(file.fd());
}

}  // namespace weft
