// Locks of the compile cache that tell other processes which entries this one is about to make.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "serialization/cache_entry.h"
#include "src/runtime/io.h"
#include "src/runtime/mutex.h"

namespace weft {

// Any thread may call it.
class CacheClaims {
 public:
  explicit CacheClaims(FileSystem* fs) : fs_(fs) {}

  // Tells other processes that this one is about to make an entry of the folder `root`, after waiting until no other says so. False if
  // claims do not work here (some network file systems) or another's takes too long: then both make it, which is no more than waste.
  bool Take(const std::string& root, const Hash128& key);
  // The entry was made and waits to be written: End with `published` ends its claim.
  void Publishing(const Hash128& key);
  void End(const Hash128& key, bool published);

 private:
  struct Held {
    Hash128 key;
    File file;  // its own descriptor: closing one would not let go of others
    bool publishing = false;
  };

  FileSystem* const fs_;
  Mutex mutex_;
  std::vector<Held> held_ ABSL_GUARDED_BY(mutex_);
  pid_t process_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft
