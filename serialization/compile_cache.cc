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

#include "absl/strings/str_cat.h"
#include "serialization/atomic_file.h"
#include "serialization/cache_claims.h"
#include "serialization/cache_folder.h"
#include "serialization/cache_shapes.h"
#include "serialization/framing.h"
#include "serialization/limits.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr uint64_t kQueueBytes = 256 << 20;  // more waiting than this makes Publish wait
constexpr int64_t kHourNs = int64_t{3600} * 1'000'000'000;
constexpr size_t kQuarantined = 16;
enum Problem { kUnusable, kUnwritable, kUnreadable, kCorrupt, kUntrusted, kRejected, kProblems };

uint64_t SizeOf(const CacheEntry& entry) {
  uint64_t bytes = entry.canonical.size();
  for (const auto& [name, section] : entry.sections) bytes += section.size();
  return bytes;
}

}  // namespace

struct CompileCacheStore::Impl {
  explicit Impl(const CompileCacheOptions& o)
      : options(o), fs(o.fs != nullptr ? o.fs : PosixFileSystem()), total(fs), claims(fs) {}

  void OpenDirectory();
  void OpenLower();
  void Warn(Problem problem, const std::string& text) ABSL_LOCKS_EXCLUDED(mutex);
  void Disable(const std::string& text) ABSL_LOCKS_EXCLUDED(mutex);
  static std::string PathIn(const std::string& in, const Hash128& key) {
    const std::string name = KeyName(key);
    return JoinPath(JoinPath(in, name.substr(0, 2)), name + ".tce");
  }
  std::string PathOf(const Hash128& key) const { return PathIn(root, key); }
  // An entry of one of the folders; NOT_FOUND where the folder has none or is not used.
  absl::StatusOr<CacheEntry> Read(const std::string& in, const Hash128& key, FileInfo* info);
  std::optional<CacheEntry> ReadLower(const Hash128& key, std::string_view canonical, uint64_t* bytes);
  // Why nothing of this folder is used for the key: every level above the entry is looked at.
  std::string WhyRefused(const std::string& in, const Hash128& key) const;
  void Refuse(const std::string& why) ABSL_LOCKS_EXCLUDED(mutex);
  void Quarantine(const std::string& path);
  void Enqueue(CacheEntry entry) ABSL_LOCKS_EXCLUDED(mutex);
  void Store(CacheEntry entry);
  void StoreOrThrow(CacheEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_mutex);
  absl::StatusOr<uint64_t> WriteEntry(const CacheEntry& entry, const std::string& path);
  void Work();
  void AfterFork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const CompileCacheOptions options;
  FileSystem* const fs;
  std::string root;     // <directory>/v1
  bool usable = false;  // lookups may find something
  std::string why;      // the folder is not used, or not written to
  struct Lower {
    std::string directory, root;
    std::string why;  // it is not used
  };
  std::vector<Lower> lower;
  bool writable = false;
  Mutex store_mutex;  // one writer at a time
  CacheTotal total ABSL_GUARDED_BY(store_mutex);
  CacheClaims claims;

  mutable Mutex mutex;
  CondVar changed;  // running or queued_bytes
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
    MutexLock lock(mutex);
    if (warned[problem]) return;
    warned[problem] = true;
  }
  if (options.warn) options.warn(text);
}

void CompileCacheStore::Impl::Disable(const std::string& text) {
  {
    MutexLock lock(mutex);
    stats.disabled_reason = text;
  }
  why = text;
  Warn(kUnusable, absl::StrCat("compile cache '", options.directory, "' is not used: ", text));
}

// Folders that are only read are never touched; one that is not there yet may come.
void CompileCacheStore::Impl::OpenLower() {
  for (const std::string& directory : options.lower) {
    Lower& added = lower.emplace_back(Lower{directory, JoinPath(directory, "v1"), ""});
    for (const std::string& level : {directory, added.root}) {
      if (added.why.empty()) added.why = WhyFolderUntrusted(fs, level);
    }
    if (!added.why.empty()) {
      Warn(kUnusable, absl::StrCat("compile cache '", directory, "' is not used: ", added.why));
    }
  }
}

void CompileCacheStore::Impl::OpenDirectory() {
  {
    MutexLock lock(mutex);
    stats.read_only = options.read_only;
    if (options.directory.empty()) stats.disabled_reason = "no directory is set";
  }
  OpenLower();
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
  if (const std::string untrusted = WhyUntrusted(*info); !untrusted.empty()) return Disable(untrusted);
  if (const std::string untrusted = WhyFolderUntrusted(fs, root); !untrusted.empty()) return Disable(untrusted);
  usable = true;
  if (options.read_only) return;
  if (made.ok()) made = MakeDirectories(fs, root, 0700);
  writable = made.ok();
  if (!writable) {
    why = made.message();
    Warn(kUnwritable, absl::StrCat("compile cache '", options.directory, "' cannot be written: ", made.message()));
  }
}

std::string CompileCacheStore::Impl::WhyRefused(const std::string& in, const Hash128& key) const {
  std::string untrusted = WhyFolderUntrusted(fs, in);
  return untrusted.empty() ? WhyFolderUntrusted(fs, DirectoryOf(PathIn(in, key))) : untrusted;
}

void CompileCacheStore::Impl::Refuse(const std::string& untrusted) {
  {
    MutexLock lock(mutex);
    ++stats.refused;
  }
  Warn(kUntrusted, absl::StrCat("compile cache: a folder is not used: ", untrusted));
}

// An entry of a folder that is only read is copied into the first one. Damage there is a miss: it is not ours to move away.
std::optional<CacheEntry> CompileCacheStore::Impl::ReadLower(const Hash128& key, std::string_view canonical,
                                                             uint64_t* bytes) {
  for (const Lower& layer : lower) {
    if (!layer.why.empty()) continue;
    FileInfo info;
    absl::StatusOr<CacheEntry> entry = Read(layer.root, key, &info);
    if (absl::IsNotFound(entry.status())) continue;
    if (const std::string untrusted = WhyRefused(layer.root, key); !untrusted.empty()) {
      Refuse(untrusted);
      continue;
    }
    if (!entry.ok()) {
      Warn(kUnreadable,
           absl::StrCat("compile cache: '", PathIn(layer.root, key), "' is not used: ", entry.status().message()));
      MutexLock lock(mutex);
      ++(absl::IsDataLoss(entry.status()) ? stats.corrupt : stats.read_failures);
      continue;
    }
    if (entry->canonical != canonical) continue;
    *bytes = static_cast<uint64_t>(info.size);
    return *std::move(entry);
  }
  return std::nullopt;
}

absl::StatusOr<CacheEntry> CompileCacheStore::Impl::Read(const std::string& in, const Hash128& key, FileInfo* info) {
  try {
    WEFT_ASSIGN_OR_RETURN(const std::string bytes, ReadCacheFile(fs, PathIn(in, key), info));
    WEFT_ASSIGN_OR_RETURN(CacheEntry entry, DecodeCacheEntry(std::as_bytes(std::span(bytes)), options.mac_key));
    if (!(entry.key == key)) return absl::DataLossError("it holds another key than its name says");
    return entry;
  } catch (const std::bad_alloc&) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");  // a text would need memory
  }
}

// Out of the way with what cannot be used: damaged entries, and whatever else stands in an entry's or a folder's place. A few
// are kept for those who want to know why.
void CompileCacheStore::Impl::Quarantine(const std::string& path) {
  if (!writable) return;
  const std::string bad = JoinPath(root, "bad");
  fs->MakeDirectory(FileSystem::kHere, bad.c_str(), 0700);
  std::vector<std::string> names;
  const std::string to = JoinPath(bad, BaseNameOf(path));
  const bool room = fs->List(FileSystem::kHere, bad.c_str(), &names) == 0 && names.size() < kQuarantined;
  if (room && fs->Rename(FileSystem::kHere, path.c_str(), to.c_str()) == 0) return;
  if (fs->Unlink(FileSystem::kHere, path.c_str()) == 0) return;
  // A folder, which is never deleted with what is in it. One that may not be written to cannot change its parent.
  const std::string unique = absl::StrCat(".", ToHex(NewUuid()));
  if (fs->Rename(FileSystem::kHere, path.c_str(), absl::StrCat(to, unique).c_str()) < 0) {
    fs->Rename(FileSystem::kHere, path.c_str(), absl::StrCat(path, ".bad", unique).c_str());
  }
}

absl::StatusOr<uint64_t> CompileCacheStore::Impl::WriteEntry(const CacheEntry& entry, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, EncodeCacheEntry(entry, options.mac_key));
  const std::string directory = DirectoryOf(path);
  const AtomicFile::Options how = {
      .durability = Durability::kProcess, .new_mode = 0600, .clean_stale = false, .replace_any = true};
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(fs, path, how);
  if (!file.ok()) {
    FileInfo info;
    const auto is = [&](const std::string& what, FileKind kind) {
      return fs->Stat(FileSystem::kHere, what.c_str(), &info) == 0 && info.kind == kind;
    };
    if (absl::IsNotFound(file.status()) && fs->Stat(FileSystem::kHere, directory.c_str(), &info) == 0 &&
        info.kind != FileKind::kDirectory) {
      Quarantine(directory);
    } else if (absl::IsPermissionDenied(file.status()) && is(directory, FileKind::kDirectory) &&
               (info.mode & 0700) != 0700) {
      Quarantine(directory);
    } else if (is(path, FileKind::kDirectory)) {
      Quarantine(path);
    } else if (!absl::IsNotFound(file.status())) {
      return file.status();
    }
    WEFT_RETURN_IF_ERROR(MakeDirectories(fs, directory, 0700));
    file = AtomicFile::Create(fs, path, how);
  }
  WEFT_RETURN_IF_ERROR(file.status());
  WEFT_RETURN_IF_ERROR(file->file().Write(std::as_bytes(std::span(bytes))));
  WEFT_RETURN_IF_ERROR(file->Commit());
  return bytes.size();
}

// Runs on a thread of its own, out of which no exception may come.
void CompileCacheStore::Impl::Store(CacheEntry entry) {
  MutexLock store_lock(store_mutex);
  try {
    StoreOrThrow(entry);
  } catch (const std::bad_alloc&) {
    MutexLock lock(mutex);
    ++stats.store_failures;
  }
  claims.End(entry.key, /*published=*/true);
}

void CompileCacheStore::Impl::StoreOrThrow(CacheEntry& entry) {
  const std::string path = PathOf(entry.key);
  if (entry.created_unix_ns == 0) entry.created_unix_ns = UnixNow();
  absl::StatusOr<uint64_t> written = absl::FailedPreconditionError("the directory cannot be used");
  if (writable) {
    if (const std::string untrusted = WhyRefused(root, entry.key); !untrusted.empty()) return Refuse(untrusted);
    written = WriteEntry(entry, path);
  }
  if (!written.ok()) {
    {
      MutexLock lock(mutex);
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
    MutexLock lock(mutex);
    ++stats.stores;
    stats.bytes_written += *written;
  }
  if (options.published) options.published(entry.key, *written);
  if (entry.shape != 0) AddCacheShape(fs, root, entry.shape, entry.key);
  const CacheRemoved evicted = total.Add(root, *written, path, options.max_bytes);
  MutexLock lock(mutex);
  stats.evictions += evicted.entries;
}

void CompileCacheStore::Impl::Work() {
  MutexLock lock(mutex);
  while (!queue.empty()) {
    CacheEntry entry = std::move(queue.front());
    queue.pop_front();
    const uint64_t bytes = SizeOf(entry);
    lock.Unlock();
    Store(std::move(entry));
    lock.Lock();
    queued_bytes -= bytes;
    changed.NotifyAll();
  }
  running = false;
  changed.NotifyAll();
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
  CompileCacheOptions absolute = options;  // the current directory may change
  if (!options.directory.empty()) absolute.directory = AbsolutePath(options.directory);
  for (std::string& directory : absolute.lower) directory = AbsolutePath(directory);
  auto impl = std::make_unique<Impl>(absolute);
  impl->OpenDirectory();
  return std::unique_ptr<CompileCacheStore>(new CompileCacheStore(std::move(impl)));
}

CompileCacheStore::~CompileCacheStore() { Drain(); }

void CompileCacheStore::Abandon(const Hash128& key) { impl_->claims.End(key, /*published=*/false); }

const std::string& CompileCacheStore::directory() const { return impl_->options.directory; }

std::optional<CacheEntry> CompileCacheStore::Lookup(const Hash128& key, std::string_view canonical, bool claim) {
  Impl& impl = *impl_;
  const auto miss = [&](uint64_t CompileCacheStats::* counter) -> std::optional<CacheEntry> {
    MutexLock lock(impl.mutex);
    ++impl.stats.misses;
    if (counter != nullptr) ++(impl.stats.*counter);
    return std::nullopt;
  };
  const auto start = std::chrono::steady_clock::now();
  const auto hit = [&](uint64_t bytes, uint64_t saved) {
    const auto spent = std::chrono::steady_clock::now() - start;
    MutexLock lock(impl.mutex);
    ++impl.stats.hits;
    impl.stats.bytes_read += bytes;
    impl.stats.load_ns += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
    impl.stats.compile_us_saved += saved;
  };
  const auto lower = [&]() -> std::optional<CacheEntry> {
    uint64_t bytes = 0;
    std::optional<CacheEntry> entry = impl.ReadLower(key, canonical, &bytes);
    if (!entry.has_value()) return std::nullopt;
    hit(bytes, entry->compile_micros);
    if (impl.writable) Publish(*entry);
    return entry;
  };
  if (!impl.usable) {
    std::optional<CacheEntry> entry = lower();
    return entry.has_value() ? std::move(entry) : miss(nullptr);
  }
  if (const std::string untrusted = impl.WhyRefused(impl.root, key); !untrusted.empty()) {
    impl.Refuse(untrusted);
    std::optional<CacheEntry> entry = lower();
    return entry.has_value() ? std::move(entry) : miss(nullptr);
  }
  const std::string path = impl.PathOf(key);
  FileInfo info;
  absl::StatusOr<CacheEntry> entry = impl.Read(impl.root, key, &info);
  if (absl::IsNotFound(entry.status())) {
    if (std::optional<CacheEntry> found = lower()) return found;
  }
  if (!entry.ok() && claim && impl.writable && impl.claims.Take(impl.root, key)) {
    entry = impl.Read(impl.root, key, &info);  // somebody may have made it until just now
    if (entry.ok()) impl.claims.End(key, /*published=*/false);
  }
  if (!entry.ok()) {
    const std::string text(entry.status().message());
    const auto unusable = [&] {
      impl.Quarantine(path);
      impl.Warn(kUntrusted, absl::StrCat("compile cache: an entry is not used",
                                         impl.writable ? " and is moved away: " : ": ", text));
      return miss(&CompileCacheStats::read_failures);
    };
    switch (entry.status().code()) {
      case absl::StatusCode::kNotFound: return miss(nullptr);
      case absl::StatusCode::kUnimplemented:
        return miss(&CompileCacheStats::version_rejects);  // the next Publish replaces it
      case absl::StatusCode::kDataLoss:
        // An I/O error is data loss too, but not the entry's fault; moving it away does no harm.
        impl.Quarantine(path);
        impl.Warn(kCorrupt, absl::StrCat("compile cache: '", path, "' is damaged and will be compiled again: ", text));
        return miss(&CompileCacheStats::corrupt);
      case absl::StatusCode::kPermissionDenied: {
        {
          MutexLock lock(impl.mutex);
          ++impl.stats.refused;
        }
        return unusable();
      }
      default:
        if (impl.fs->Stat(FileSystem::kHere, path.c_str(), &info) == 0 && info.kind != FileKind::kRegular)
          return unusable();
        impl.Warn(kUnreadable, absl::StrCat("compile cache: an entry cannot be read: ", text));
        return miss(&CompileCacheStats::read_failures);
    }
  }
  if (entry->canonical != canonical) return miss(&CompileCacheStats::collisions);
  if (impl.writable && UnixNow() - info.modified_ns > kHourNs) impl.fs->Touch(FileSystem::kHere, path.c_str());
  hit(static_cast<uint64_t>(info.size), entry->compile_micros);
  return *std::move(entry);
}

void CompileCacheStore::Publish(CacheEntry entry) {
  Impl& impl = *impl_;
  if (impl.options.read_only || impl.options.directory.empty()) return;
  const Hash128 key = entry.key;
  impl.claims.Publishing(key);
  try {
    if (!impl.writable) return impl.Store(std::move(entry));  // counts and warns
    impl.Enqueue(std::move(entry));
  } catch (const std::bad_alloc&) {
    impl.claims.End(key, /*published=*/true);
    MutexLock lock(impl.mutex);
    ++impl.stats.store_failures;
  }
}

void CompileCacheStore::Impl::Enqueue(CacheEntry entry) {
  {
    MutexLock lock(mutex);
    AfterFork();
    while (queued_bytes >= kQueueBytes) changed.Wait(mutex);
    if (!running) {
      if (worker.joinable()) worker.join();  // it has said that it ends, and takes no lock any more
      try {
        worker = std::thread([this] { Work(); });  // waits for the lock
        running = true;
      } catch (const std::exception&) {
        // No thread to be had, or no memory for one.
      }
    }
    if (running) {
      const uint64_t bytes = SizeOf(entry);
      queue.push_back(std::move(entry));
      queued_bytes += bytes;
      return;
    }
  }
  Store(std::move(entry));
}

void CompileCacheStore::Drain() {
  Impl& impl = *impl_;
  MutexLock lock(impl.mutex);
  if (impl.worker_process == 0) return;
  impl.AfterFork();
  while (impl.running) impl.changed.Wait(impl.mutex);
  if (impl.worker.joinable()) impl.worker.join();
}

void CompileCacheStore::Reject(const Hash128& key, std::string_view why) {
  Impl& impl = *impl_;
  {
    MutexLock lock(impl.mutex);
    ++impl.stats.corrupt;
  }
  const std::string path = impl.PathOf(key);
  impl.Quarantine(path);
  impl.Warn(kRejected, absl::StrCat("compile cache: '", path, "' cannot be used and will be compiled again: ", why));
}

std::vector<std::string> CompileCacheStore::OfShape(uint64_t shape, size_t most) {
  Impl& impl = *impl_;
  std::vector<std::string> found;
  const auto look = [&](const std::string& root) {
    for (const Hash128& key : CacheKeysOfShape(impl.fs, root, shape, most)) {
      FileInfo info;
      if (!impl.WhyRefused(root, key).empty()) continue;
      if (absl::StatusOr<CacheEntry> entry = impl.Read(root, key, &info); entry.ok())
        found.push_back(std::move(entry->canonical));
    }
  };
  if (impl.usable) look(impl.root);
  for (const Impl::Lower& lower : impl.lower) {
    if (lower.why.empty()) look(lower.root);
  }
  return found;
}

CacheListing CompileCacheStore::List(bool verify) const {
  const Impl& impl = *impl_;
  CacheListing listing;
  const auto add = [&](const std::string& directory, const std::string& root, CacheFolder::Use use,
                       const std::string& why) {
    listing.folders.push_back({directory, use, why});
    if (use == CacheFolder::kNone) return;
    ListCacheFolder(impl.fs, root, listing.folders.size() - 1, verify, impl.options.mac_key, &listing.entries);
  };
  if (!impl.options.directory.empty()) {
    add(impl.options.directory, impl.root,
        impl.writable ? CacheFolder::kWrite
        : impl.usable ? CacheFolder::kRead
                      : CacheFolder::kNone,
        impl.why);
  }
  for (const Impl::Lower& lower : impl.lower) {
    add(lower.directory, lower.root, lower.why.empty() ? CacheFolder::kRead : CacheFolder::kNone, lower.why);
  }
  std::ranges::stable_sort(listing.entries, std::greater<>(), &CacheListed::used_unix_ns);
  return listing;
}

absl::StatusOr<CacheRemoved> CompileCacheStore::Prune(uint64_t max_bytes, int64_t unused_ns) {
  Impl& impl = *impl_;
  if (!impl.writable) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "no folder of the compile cache is written to",
                       impl.why.empty() ? "" : ": ", impl.why);
  }
  Drain();
  MutexLock store_lock(impl.store_mutex);
  const int64_t now = UnixNow();
  return impl.total.Prune(impl.root, max_bytes, unused_ns < 0 ? INT64_MIN : now - std::min(unused_ns, now));
}

CompileCacheStats CompileCacheStore::stats() const {
  MutexLock lock(impl_->mutex);
  return impl_->stats;
}

std::string DefaultCompileCacheDirectory() {
  if (const char* xdg = secure_getenv("XDG_CACHE_HOME"); xdg != nullptr && xdg[0] == '/') return JoinPath(xdg, "weft");
  if (const char* home = secure_getenv("HOME"); home != nullptr && home[0] == '/') return JoinPath(home, ".cache/weft");
  return "";
}

}  // namespace weft
