// Files and policy of the compile cache; the bytes of an entry are cache_entry.cc's business.
#include "serialization/compile_cache.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <system_error>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "serialization/atomic_file.h"
#include "serialization/limits.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr uint64_t kQueueBytes = 256 << 20;  // more waiting than this makes Publish wait
constexpr int64_t kHourNs = int64_t{3600} * 1'000'000'000;
constexpr size_t kQuarantined = 16;

enum Problem { kUnusable, kUnwritable, kUnreadable, kCorrupt, kUntrusted, kRejected, kProblems };

std::string KeyName(const Hash128& key) {
  return absl::StrCat(absl::Hex(key.high, absl::kZeroPad16), absl::Hex(key.low, absl::kZeroPad16));
}

// Empty if nobody but this user (or root) can put code there.
std::string WhyUntrusted(const FileInfo& info) {
  const uint32_t me = geteuid();
  if (info.owner != me && info.owner != 0) return absl::StrCat("it belongs to user ", info.owner, ", not to ", me);
  if ((info.mode & 022) != 0) return "others may write to it (chmod go-w makes it usable)";
  return "";
}

uint64_t SizeOf(const CacheEntry& entry) {
  uint64_t bytes = entry.canonical.size();
  for (const auto& [name, section] : entry.sections) bytes += section.size();
  return bytes;
}

}  // namespace

struct CompileCacheStore::Impl {
  explicit Impl(const CompileCacheOptions& o) : options(o), fs(o.fs != nullptr ? o.fs : PosixFileSystem()) {}

  void OpenDirectory();
  void Warn(Problem problem, const std::string& text) ABSL_LOCKS_EXCLUDED(mutex);
  void Disable(const std::string& why) ABSL_LOCKS_EXCLUDED(mutex);
  std::string PathOf(const Hash128& key) const {
    const std::string name = KeyName(key);
    return JoinPath(JoinPath(root, name.substr(0, 2)), name + ".tce");
  }
  absl::StatusOr<std::string> ReadEntry(const std::string& path, FileInfo* info);
  void Quarantine(const std::string& path);
  void Store(CacheEntry entry);
  absl::StatusOr<uint64_t> WriteEntry(const CacheEntry& entry, const std::string& path);
  void Work();
  struct Found {
    std::string path;
    int64_t modified_ns;
    uint64_t bytes;
  };
  std::vector<Found> Scan();
  void Evict(const std::string& keep) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_mutex);
  void AfterFork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const CompileCacheOptions options;
  FileSystem* const fs;
  std::string root;     // <directory>/v1
  bool usable = false;  // lookups may find something
  bool writable = false;
  absl::Mutex store_mutex;                                   // one writer at a time
  int64_t bytes_estimate ABSL_GUARDED_BY(store_mutex) = -1;  // -1: not scanned yet

  mutable absl::Mutex mutex;
  CompileCacheStats stats ABSL_GUARDED_BY(mutex);
  bool warned[kProblems] ABSL_GUARDED_BY(mutex) = {};
  std::deque<CacheEntry> queue ABSL_GUARDED_BY(mutex);
  uint64_t queued_bytes ABSL_GUARDED_BY(mutex) = 0;
  bool running ABSL_GUARDED_BY(mutex) = false;
  // Ends whenever the queue is empty, so that an idle process has no thread of ours; the next Publish starts another.
  std::thread worker ABSL_GUARDED_BY(mutex);
  pid_t worker_process ABSL_GUARDED_BY(mutex) = 0;
};

void CompileCacheStore::Impl::Warn(Problem problem, const std::string& text) {
  {
    absl::MutexLock lock(&mutex);
    if (warned[problem]) return;
    warned[problem] = true;
  }
  if (options.warn) options.warn(text);
}

void CompileCacheStore::Impl::Disable(const std::string& why) {
  {
    absl::MutexLock lock(&mutex);
    stats.disabled_reason = why;
  }
  Warn(kUnusable, absl::StrCat("compile cache '", options.directory, "' is not used: ", why));
}

void CompileCacheStore::Impl::OpenDirectory() {
  {
    absl::MutexLock lock(&mutex);
    stats.read_only = options.read_only;
    if (options.directory.empty()) stats.disabled_reason = "no directory is set";
  }
  if (options.directory.empty()) return;
  root = JoinPath(options.directory, "v1");
  absl::Status made;
  if (!options.read_only) {
    made = MakeDirectories(fs, options.directory, 0700);
  }
  absl::StatusOr<File> directory = File::Open(fs, options.directory, {.read = true, .directory = true});
  if (!directory.ok()) return Disable(std::string((made.ok() ? directory.status() : made).message()));
  const absl::StatusOr<FileInfo> info = directory->Info();
  if (!info.ok()) return Disable(std::string(info.status().message()));
  if (const std::string why = WhyUntrusted(*info); !why.empty()) return Disable(why);
  usable = true;
  if (options.read_only) return;
  if (made.ok()) made = MakeDirectories(fs, root, 0700);
  writable = made.ok();
  if (!writable) {
    Warn(kUnwritable, absl::StrCat("compile cache '", options.directory, "' cannot be written: ", made.message()));
  }
}

absl::StatusOr<std::string> CompileCacheStore::Impl::ReadEntry(const std::string& path, FileInfo* info) {
  WEFT_ASSIGN_OR_RETURN(File file, File::Open(fs, path, {.read = true, .no_follow = true}));
  WEFT_ASSIGN_OR_RETURN(*info, file.Info());
  if (info->kind != FileKind::kRegular)
    return absl::PermissionDeniedError(absl::StrCat("'", path, "' is not a regular file"));
  if (const std::string why = WhyUntrusted(*info); !why.empty()) {
    return absl::PermissionDeniedError(absl::StrCat("'", path, "' is not trusted: ", why));
  }
  if (static_cast<uint64_t>(info->size) > kMaxCachePjrtBytes + kMaxCacheMetaBytes + kCacheHeaderBytes) {
    return absl::DataLossError(absl::StrCat("'", path, "' has ", info->size, " bytes, more than an entry can have"));
  }
  std::string bytes(static_cast<size_t>(info->size), '\0');
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

// Keeps a few damaged entries for those who want to know why.
void CompileCacheStore::Impl::Quarantine(const std::string& path) {
  if (!writable) return;
  const std::string bad = JoinPath(root, "bad");
  fs->MakeDirectory(FileSystem::kHere, bad.c_str(), 0700);
  std::vector<std::string> names;
  const std::string to = JoinPath(bad, BaseNameOf(path));
  const bool room = fs->List(FileSystem::kHere, bad.c_str(), &names) == 0 && names.size() < kQuarantined;
  if (!room || fs->Rename(FileSystem::kHere, path.c_str(), to.c_str()) < 0) fs->Unlink(FileSystem::kHere, path.c_str());
}

absl::StatusOr<uint64_t> CompileCacheStore::Impl::WriteEntry(const CacheEntry& entry, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, EncodeCacheEntry(entry));
  const std::string directory = DirectoryOf(path);
  const AtomicFile::Options how = {.durability = Durability::kProcess, .new_mode = 0600, .clean_stale = false};
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(fs, path, how);
  if (absl::IsNotFound(file.status())) {
    WEFT_RETURN_IF_ERROR(MakeDirectories(fs, directory, 0700));
    file = AtomicFile::Create(fs, path, how);
  }
  WEFT_RETURN_IF_ERROR(file.status());
  WEFT_RETURN_IF_ERROR(file->file().Write(std::as_bytes(std::span(bytes))));
  WEFT_RETURN_IF_ERROR(file->Commit());
  return bytes.size();
}

void CompileCacheStore::Impl::Store(CacheEntry entry) {
  absl::MutexLock store_lock(&store_mutex);
  const std::string path = PathOf(entry.key);
  if (entry.created_unix_ns == 0) entry.created_unix_ns = UnixNow();
  absl::StatusOr<uint64_t> written = absl::FailedPreconditionError("the directory cannot be used");
  if (writable) {
    written = [&]() -> absl::StatusOr<uint64_t> {
      try {
        return WriteEntry(entry, path);
      } catch (const std::bad_alloc&) {
        return absl::ResourceExhaustedError("out of memory");
      }
    }();
  }
  if (!written.ok()) {
    {
      absl::MutexLock lock(&mutex);
      ++stats.store_failures;
    }
    if (options.write_failed) options.write_failed();
    // Why nothing can be written at all was said when the directory was opened.
    if (writable)
      Warn(kUnwritable,
           absl::StrCat("compile cache '", options.directory, "' cannot be written: ", written.status().message()));
    return;
  }
  {
    absl::MutexLock lock(&mutex);
    ++stats.stores;
    stats.bytes_written += *written;
  }
  if (bytes_estimate < 0) {
    bytes_estimate = 0;
    for (const Found& found : Scan()) bytes_estimate += static_cast<int64_t>(found.bytes);
  } else {
    bytes_estimate += static_cast<int64_t>(*written);
  }
  if (static_cast<uint64_t>(bytes_estimate) > options.max_bytes) Evict(path);
}

// All entries. What killed processes left half written goes after an hour: no limit counts it.
std::vector<CompileCacheStore::Impl::Found> CompileCacheStore::Impl::Scan() {
  std::vector<Found> found;
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
      } else if (name.ends_with(".tmp") && UnixNow() - info.modified_ns > kHourNs) {
        fs->Unlink(FileSystem::kHere, full.c_str());
      }
    }
  }
  return found;
}

// One process at a time; the others go on and find the directory smaller at their next look. Readers keep what they have
// open, so removing is safe; a name that is gone already is somebody else's success.
void CompileCacheStore::Impl::Evict(const std::string& keep) {
  absl::StatusOr<File> lock_file =
      File::Open(fs, JoinPath(root, "gc.lock"), {.write = true, .create = true, .no_follow = true});
  if (!lock_file.ok() || fs->Lock(lock_file->fd()) < 0) {
    bytes_estimate = -1;
    return;
  }
  std::vector<Found> found = Scan();
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::pair(a.modified_ns, std::string_view(a.path)) < std::pair(b.modified_ns, std::string_view(b.path));
  });
  uint64_t bytes = 0, evicted = 0;
  for (const Found& f : found) bytes += f.bytes;
  if (bytes > options.max_bytes) {
    for (const Found& f : found) {
      if (bytes <= options.max_bytes - options.max_bytes / 10) break;
      if (f.path == keep) continue;
      if (fs->Unlink(FileSystem::kHere, f.path.c_str()) == 0) ++evicted;
      bytes -= f.bytes;
    }
  }
  bytes_estimate = static_cast<int64_t>(bytes);
  absl::MutexLock lock(&mutex);
  stats.evictions += evicted;
}

void CompileCacheStore::Impl::Work() {
  absl::MutexLock lock(&mutex);
  while (!queue.empty()) {
    CacheEntry entry = std::move(queue.front());
    queue.pop_front();
    const uint64_t bytes = SizeOf(entry);
    mutex.Unlock();
    Store(std::move(entry));
    mutex.Lock();
    queued_bytes -= bytes;
  }
  running = false;
}

// A fork copies neither the thread nor what it was doing.
void CompileCacheStore::Impl::AfterFork() {
  if (worker_process == getpid()) return;
  if (worker.joinable())
    new std::thread(std::move(worker));  // a handle to nothing; joining or detaching it is undefined
  worker = std::thread();
  if (worker_process != 0) {
    queue.clear();
    queued_bytes = 0;
  }
  running = false;
  worker_process = getpid();
}

CompileCacheStore::CompileCacheStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<CompileCacheStore> CompileCacheStore::Open(const CompileCacheOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  impl->OpenDirectory();
  return std::unique_ptr<CompileCacheStore>(new CompileCacheStore(std::move(impl)));
}

CompileCacheStore::~CompileCacheStore() { Drain(); }

const std::string& CompileCacheStore::directory() const { return impl_->options.directory; }

std::optional<CacheEntry> CompileCacheStore::Lookup(const Hash128& key, std::string_view canonical) {
  Impl& impl = *impl_;
  const auto miss = [&](uint64_t CompileCacheStats::* counter) -> std::optional<CacheEntry> {
    absl::MutexLock lock(&impl.mutex);
    ++impl.stats.misses;
    if (counter != nullptr) ++(impl.stats.*counter);
    return std::nullopt;
  };
  if (!impl.usable) return miss(nullptr);
  const auto start = std::chrono::steady_clock::now();
  const std::string path = impl.PathOf(key);
  FileInfo info;
  absl::StatusOr<CacheEntry> entry = [&]() -> absl::StatusOr<CacheEntry> {
    try {
      WEFT_ASSIGN_OR_RETURN(const std::string bytes, impl.ReadEntry(path, &info));
      return DecodeCacheEntry(std::as_bytes(std::span(bytes)));
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("out of memory");
    }
  }();
  if (entry.ok() && !(entry->key == key)) entry = absl::DataLossError("it holds another key than its name says");
  if (!entry.ok()) {
    const std::string text(entry.status().message());
    switch (entry.status().code()) {
      case absl::StatusCode::kNotFound: return miss(nullptr);
      case absl::StatusCode::kUnimplemented:
        return miss(&CompileCacheStats::version_rejects);  // the next Publish replaces it
      case absl::StatusCode::kDataLoss:
        // An I/O error is data loss too, but not the entry's fault; moving it away does no harm.
        impl.Quarantine(path);
        impl.Warn(kCorrupt, absl::StrCat("compile cache: '", path, "' is damaged and will be compiled again: ", text));
        return miss(&CompileCacheStats::corrupt);
      case absl::StatusCode::kPermissionDenied:
        impl.Warn(kUntrusted, absl::StrCat("compile cache: an entry is not used: ", text));
        return miss(&CompileCacheStats::read_failures);
      default:
        impl.Warn(kUnreadable, absl::StrCat("compile cache: an entry cannot be read: ", text));
        return miss(&CompileCacheStats::read_failures);
    }
  }
  if (entry->canonical != canonical) return miss(&CompileCacheStats::collisions);
  if (impl.writable && UnixNow() - info.modified_ns > kHourNs) impl.fs->Touch(FileSystem::kHere, path.c_str());
  const auto spent = std::chrono::steady_clock::now() - start;
  absl::MutexLock lock(&impl.mutex);
  ++impl.stats.hits;
  impl.stats.bytes_read += static_cast<uint64_t>(info.size);
  impl.stats.load_ns += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
  impl.stats.compile_us_saved += entry->compile_micros;
  return *std::move(entry);
}

void CompileCacheStore::Publish(CacheEntry entry) {
  Impl& impl = *impl_;
  if (impl.options.read_only || impl.options.directory.empty()) return;
  if (!impl.writable) return impl.Store(std::move(entry));  // counts and warns
  {
    absl::MutexLock lock(&impl.mutex);
    impl.AfterFork();
    impl.mutex.Await(
        absl::Condition(+[](Impl* i) ABSL_NO_THREAD_SAFETY_ANALYSIS { return i->queued_bytes < kQueueBytes; }, &impl));
    if (!impl.running) {
      if (impl.worker.joinable()) impl.worker.join();  // it has said that it ends, and takes no lock any more
      try {
        impl.worker = std::thread([&impl] { impl.Work(); });
        impl.running = true;
      } catch (const std::system_error&) {
      }
    }
    if (impl.running) {
      impl.queued_bytes += SizeOf(entry);
      impl.queue.push_back(std::move(entry));
      return;
    }
  }
  impl.Store(std::move(entry));  // no thread to be had
}

void CompileCacheStore::Drain() {
  Impl& impl = *impl_;
  absl::MutexLock lock(&impl.mutex);
  if (impl.worker_process == 0) return;
  impl.AfterFork();
  impl.mutex.Await(absl::Condition(+[](Impl* i) ABSL_NO_THREAD_SAFETY_ANALYSIS { return !i->running; }, &impl));
  if (impl.worker.joinable()) impl.worker.join();
}

void CompileCacheStore::Reject(const Hash128& key, std::string_view why) {
  Impl& impl = *impl_;
  {
    absl::MutexLock lock(&impl.mutex);
    ++impl.stats.corrupt;
  }
  const std::string path = impl.PathOf(key);
  impl.Quarantine(path);
  impl.Warn(kRejected, absl::StrCat("compile cache: '", path, "' cannot be used and will be compiled again: ", why));
}

CompileCacheStats CompileCacheStore::stats() const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->stats;
}

std::string DefaultCompileCacheDirectory() {
  if (const char* xdg = secure_getenv("XDG_CACHE_HOME"); xdg != nullptr && xdg[0] == '/') return JoinPath(xdg, "weft");
  if (const char* home = secure_getenv("HOME"); home != nullptr && home[0] == '/') return JoinPath(home, ".cache/weft");
  return "";
}

}  // namespace weft
