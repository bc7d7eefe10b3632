// The compile cache on disk: <dir>/v1/<2 hex>/<32 hex>.tce, one checksummed file an entry, no index and no sidecars.
// Entries appear whole (temporary + rename, not synced: a checksum turns a casualty of a power loss into one
// compilation) and are written by a thread, so that publishing never delays a step. No problem here fails a
// computation: it becomes a miss, a counter and one warning a kind. Entries are native code: a process that can write
// to the directory runs code as its readers, unless entries have a MAC. It is made 0700 and refused if others may write to it or
// own it. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "serialization/cache_entry.h"
#include "serialization/cache_folder.h"
#include "serialization/cache_total.h"
#include "src/runtime/io.h"

namespace weft {

struct CompileCacheOptions {
  std::string directory;  // "" keeps nothing
  // Folders that are only read, in this order after the first; what is found there is copied into it.
  std::vector<std::string> lower;
  bool read_only = false;  // never touches the directory: no mkdir, no temporary, no access time, no quarantine
  std::string mac_key;  // entries are written with a MAC under it, and those without one are not used; "" asks for none
  uint64_t max_bytes = uint64_t{4} << 30;  // past it the least recently used entries go, down to nine tenths
  FileSystem* fs = nullptr;                // nullptr: PosixFileSystem()
  // Once for each kind of problem; from any thread, with no lock held.
  std::function<void(std::string_view warning)> warn;
  std::function<void()>
      write_failed;  // for each entry that could not be written; from the writing thread, with no lock held
  // Called for each entry that is on disk now, with its bytes there; as write_failed.
  std::function<void(const Hash128& key, uint64_t bytes)> published;
};

struct CompileCacheStats {
  uint64_t hits = 0;
  uint64_t misses = 0;  // includes all rejected below
  uint64_t stores = 0;
  uint64_t store_failures = 0;
  uint64_t corrupt = 0;          // damaged entries found
  uint64_t version_rejects = 0;  // entries of another format version
  uint64_t collisions = 0;       // right key, another program
  uint64_t read_failures = 0;    // entries that could not be read: permissions, I/O errors
  uint64_t evictions = 0;
  uint64_t refused = 0;  // lookups and stores in a folder, and entries, that others may write to
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t load_ns = 0;           // in hits
  uint64_t compile_us_saved = 0;  // by hits
  bool read_only = false;
  std::string disabled_reason;  // empty: in use
};

// A folder of the cache: how it is used, and why not more.
struct CacheFolder {
  enum Use { kNone, kRead, kWrite };
  std::string path;
  Use use = kNone;
  std::string why;
};
struct CacheListing {
  std::vector<CacheFolder> folders;
  std::vector<CacheListed> entries;  // the last used first
};

class CompileCacheStore {
 public:
  // Never fails: a directory that cannot be used gives a store that misses and says why in its stats.
  static std::unique_ptr<CompileCacheStore> Open(const CompileCacheOptions& options);
  ~CompileCacheStore();  // drains

  // The entry under `key` whose canonical form equals `canonical`. With `claim`, a miss says that the caller is going to make
  // it: other processes' claims of the same key wait until it is published or abandoned, and this call waits for theirs.
  std::optional<CacheEntry> Lookup(const Hash128& key, std::string_view canonical, bool claim = false);
  // The canonical forms of entries of this shape, the last written first, at most so many of each folder.
  std::vector<std::string> OfShape(uint64_t shape, size_t most);
  // Ends a claim under which nothing has been published. Else nothing.
  void Abandon(const Hash128& key);
  // Hands the entry to the writing thread, which this starts. Replaces what is under the key.
  void Publish(CacheEntry entry);
  // Returns when everything published so far is on disk (or has failed).
  void Drain();
  // Counts an entry that passed all checks here but that the caller could not use, and removes it.
  void Reject(const Hash128& key, std::string_view why);
  // Lists the entries that are there now. `verify` reads every entry whole, else its first bytes.
  CacheListing List(bool verify) const;
  // Removes entries of the folder that is written to, the least recently used first: those that nobody used for `unused_ns` (none
  // if negative), then more until at most `max_bytes` are left. FAILED_PRECONDITION where there is no such folder.
  absl::StatusOr<CacheRemoved> Prune(uint64_t max_bytes, int64_t unused_ns);
  CompileCacheStats stats() const;
  const std::string& directory() const;

 private:
  struct Impl;
  explicit CompileCacheStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// $XDG_CACHE_HOME/weft, else $HOME/.cache/weft, else "": reads the environment only if the process is not privileged (setuid).
std::string DefaultCompileCacheDirectory();

}  // namespace weft
