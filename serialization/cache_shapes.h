// An index beside the entries of one folder of the compile cache, by the shape of their programs: which entries a program may be
// compared with that is not there. The newest 2,048 are known, in 64 KiB. Nothing depends on it but what is said about a compilation:
// two processes that write at the same time lose a record, and a record without its entry is passed over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serialization/cache_entry.h"
#include "src/runtime/io.h"

namespace weft {

// Adds a record; what goes wrong is nobody's trouble. One thread of a process at a time.
void AddCacheShape(FileSystem* fs, const std::string& root, uint64_t shape, const Hash128& key);
// Keys of entries of this shape, the last written first, at most so many.
std::vector<Hash128> CacheKeysOfShape(FileSystem* fs, const std::string& root, uint64_t shape, size_t most);

}  // namespace weft
