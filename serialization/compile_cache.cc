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

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "serialization/atomic_file.h"
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
// Another process that compiles the same program is waited for, but one that was stopped not for ever.
constexpr std::chrono::seconds kLongestWait{30};
constexpr size_t kTotalDigits = 20;  // of the bytes in use, and a line's end: what gc.lock holds

enum Problem { kUnusable, kUnwritable, kUnreadable, kCorrupt, kUntrusted, kRejected, kProblems };

uint64_t SizeOf(const CacheEntry& entry) {
  uint64_t bytes = entry.canonical.size();
  for (const auto& [name, section] : entry.sections) bytes += section.size();
  return bytes;
}

// The byte of the file "claims" that stands for a key; a lock's range ends at 2^63 - 1.
int64_t ByteOf(const Hash128& key) { return static_cast<int64_t>(key.low >> 2); }

}  // namespace

struct CompileCacheStore::Impl {
  explicit Impl(const CompileCacheOptions& o) : options(o), fs(o.fs != nullptr ? o.fs : PosixFileSystem()) {}

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
  bool Claim(const Hash128& key) ABSL_LOCKS_EXCLUDED(mutex);
  void EndClaim(const Hash128& key, bool published) ABSL_LOCKS_EXCLUDED(mutex);
  void Enqueue(CacheEntry entry) ABSL_LOCKS_EXCLUDED(mutex);
  void Store(CacheEntry entry);
  void StoreOrThrow(CacheEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_mutex);
  absl::StatusOr<uint64_t> WriteEntry(const CacheEntry& entry, const std::string& path);
  void Work();
  void Account(uint64_t written, const std::string& keep) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_mutex);
  uint64_t Evict(const std::string& keep);
  struct Removal {
    uint64_t more_than, down_to;  // bytes: where there are more than so many, the oldest go until so many are left
    int64_t used_before;          // and whatever was used last before
    std::string_view keep;
  };
  Pruned Remove(const Removal& what, uint64_t* left);
  absl::StatusOr<File> LockTotal();
  void WriteTotal(File& file, uint64_t total) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_mutex);
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
  Mutex store_mutex;                                     // one writer at a time
  bool scanned ABSL_GUARDED_BY(store_mutex) = false;     // by this process, once
  uint64_t unreported ABSL_GUARDED_BY(store_mutex) = 0;  // bytes written that gc.lock does not know of

  mutable Mutex mutex;
  CondVar changed;  // running or queued_bytes
  CompileCacheStats stats ABSL_GUARDED_BY(mutex);
  bool warned[kProblems] ABSL_GUARDED_BY(mutex) = {};
  struct HeldClaim {
    Hash128 key;
    File file;  // its own descriptor: closing one would not let go of others
    bool publishing = false;
  };
  std::vector<HeldClaim> claims ABSL_GUARDED_BY(mutex);
  pid_t claims_process ABSL_GUARDED_BY(mutex) = 0;
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
    WEFT_ASSIGN_OR_RETURN(CacheEntry entry, DecodeCacheEntry(std::as_bytes(std::span(bytes))));
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

// Tells other processes that this one is about to make an entry, after waiting until no other says so. False if claims do
// not work here (some network file systems) or another's takes too long: then both make it, which is no more than waste.
bool CompileCacheStore::Impl::Claim(const Hash128& key) {
  {
    MutexLock lock(mutex);
    if (claims_process != getpid()) claims.clear();  // the parent's; its locks are not ours to give back
    claims_process = getpid();
    for (const HeldClaim& held : claims) {
      if (held.key == key) return false;
    }
  }
  absl::StatusOr<File> file =
      File::Open(fs, JoinPath(root, "claims"), {.read = true, .write = true, .create = true, .no_follow = true});
  if (!file.ok()) return false;
  const auto start = std::chrono::steady_clock::now();
  for (std::chrono::milliseconds pause{1};; pause = std::min(pause * 2, std::chrono::milliseconds(20))) {
    const int result = fs->LockByte(file->fd(), ByteOf(key), true);
    if (result == 0) break;
    const bool held = result == -EAGAIN || result == -EACCES || result == -EINTR;
    if (!held || std::chrono::steady_clock::now() - start > kLongestWait) return false;
    std::this_thread::sleep_for(pause);
  }
  MutexLock lock(mutex);
  claims.push_back({.key = key, .file = *std::move(file)});
  return true;
}

void CompileCacheStore::Impl::EndClaim(const Hash128& key, bool published) {
  File file;
  {
    MutexLock lock(mutex);
    const auto held = std::find_if(claims.begin(), claims.end(),
                                   [&](const HeldClaim& c) { return c.key == key && c.publishing == published; });
    if (held == claims.end() || claims_process != getpid()) return;
    file = std::move(held->file);
    claims.erase(held);
  }
  fs->LockByte(file.fd(), ByteOf(key), false);  // a fork's child may have the descriptor, too
}

absl::StatusOr<uint64_t> CompileCacheStore::Impl::WriteEntry(const CacheEntry& entry, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, EncodeCacheEntry(entry));
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
  EndClaim(entry.key, /*published=*/true);
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
  Account(*written, path);
}

// The limit holds for all processes together: gc.lock holds the bytes in use, which every writer adds to under its lock. The
// number is only an estimate (entries are replaced, people delete files), corrected by each process's first entry and by
// each eviction.
void CompileCacheStore::Impl::Account(uint64_t written, const std::string& keep) {
  unreported += written;
  absl::StatusOr<File> file = LockTotal();
  if (!file.ok()) return;
  char text[kTotalDigits + 1];
  uint64_t total = 0;
  const absl::StatusOr<FileInfo> info = file->Info();
  const bool known = scanned && info.ok() && info->size == sizeof(text) &&
                     file->ReadAt(0, std::as_writable_bytes(std::span(text))).ok() &&
                     absl::SimpleAtoi(absl::string_view(text, kTotalDigits), &total);
  total += unreported;
  if (!known) {
    total = 0;
    for (const CacheFile& found : ScanCacheFolder(fs, root, /*tidy=*/true)) total += found.bytes;
    scanned = true;
  }
  if (total > options.max_bytes) total = Evict(keep);
  WriteTotal(*file, total);
}

absl::StatusOr<File> CompileCacheStore::Impl::LockTotal() {
  WEFT_ASSIGN_OR_RETURN(File file, File::Open(fs, JoinPath(root, "gc.lock"),
                                              {.read = true, .write = true, .create = true, .no_follow = true}));
  int locked;
  // Others hold it for microseconds, or while they scan.
  for (int i = 0; (locked = fs->Lock(file.fd())) == -EWOULDBLOCK && i < 500; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (locked < 0) return absl::UnavailableError("another process holds the cache");
  return file;
}

void CompileCacheStore::Impl::WriteTotal(File& file, uint64_t total) {
  const std::string number = absl::StrCat(absl::Dec(total, absl::kZeroPad20), "\n");
  if (file.WriteAt(0, std::as_bytes(std::span(number))).ok()) unreported = 0;
  fs->Unlock(file.fd());
}

// Returns the bytes that are left. One process at a time. Readers keep what they have open, so removing is safe; a name that
// is gone already is somebody else's success.
uint64_t CompileCacheStore::Impl::Evict(const std::string& keep) {
  uint64_t left = 0;
  const Pruned evicted = Remove({.more_than = options.max_bytes,
                                 .down_to = options.max_bytes - options.max_bytes / 10,
                                 .used_before = INT64_MIN,
                                 .keep = keep},
                                &left);
  MutexLock lock(mutex);
  stats.evictions += evicted.entries;
  return left;
}

// One process at a time, as Evict.
CompileCacheStore::Pruned CompileCacheStore::Impl::Remove(const Removal& what, uint64_t* left) {
  std::vector<CacheFile> found = ScanCacheFolder(fs, root, /*tidy=*/true);
  std::sort(found.begin(), found.end(), [](const CacheFile& a, const CacheFile& b) {
    return std::pair(a.modified_ns, std::string_view(a.path)) < std::pair(b.modified_ns, std::string_view(b.path));
  });
  uint64_t bytes = 0;
  for (const CacheFile& f : found) bytes += f.bytes;
  const bool too_many = bytes > what.more_than;
  Pruned removed;
  for (const CacheFile& f : found) {
    const bool goes = f.modified_ns < what.used_before || (too_many && bytes > what.down_to);
    if (!goes || f.path == what.keep) continue;
    bytes -= f.bytes;
    if (fs->Unlink(FileSystem::kHere, f.path.c_str()) < 0) continue;
    ++removed.entries;
    removed.bytes += f.bytes;
  }
  *left = bytes;
  return removed;
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

void CompileCacheStore::Abandon(const Hash128& key) { impl_->EndClaim(key, /*published=*/false); }

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
  if (!entry.ok() && claim && impl.writable && impl.Claim(key)) {
    entry = impl.Read(impl.root, key, &info);  // somebody may have made it until just now
    if (entry.ok()) impl.EndClaim(key, /*published=*/false);
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
  {
    MutexLock lock(impl.mutex);
    for (auto& claim : impl.claims) claim.publishing = claim.publishing || claim.key == key;
  }
  try {
    if (!impl.writable) return impl.Store(std::move(entry));  // counts and warns
    impl.Enqueue(std::move(entry));
  } catch (const std::bad_alloc&) {
    impl.EndClaim(key, /*published=*/true);
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
    if (use != CacheFolder::kNone) ListCacheFolder(impl.fs, root, listing.folders.size() - 1, verify, &listing.entries);
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

absl::StatusOr<CompileCacheStore::Pruned> CompileCacheStore::Prune(uint64_t max_bytes, int64_t unused_ns) {
  Impl& impl = *impl_;
  if (!impl.writable) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "no folder of the compile cache is written to",
                       impl.why.empty() ? "" : ": ", impl.why);
  }
  Drain();
  MutexLock store_lock(impl.store_mutex);
  WEFT_ASSIGN_OR_RETURN(File total, impl.LockTotal());
  uint64_t left = 0;
  const int64_t now = UnixNow();
  const int64_t before = unused_ns < 0 ? INT64_MIN : now - std::min(unused_ns, now);
  const Pruned removed =
      impl.Remove({.more_than = max_bytes, .down_to = max_bytes, .used_before = before, .keep = {}}, &left);
  impl.WriteTotal(total, left);
  return removed;
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
