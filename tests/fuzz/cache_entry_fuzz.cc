// Any bytes as a compile-cache entry. The first byte says whether checksums count.
#include <cstdlib>
#include <cstring>
#include <string>

#include "serialization/cache_entry.h"

namespace {

std::string ValidEntry() {
  weft::CacheEntry entry;
  entry.key = {1, 2};
  entry.canonical = "module { func main }";
  entry.sections = {{"object", std::string(300, 'x')}, {"launch", "abc"}};
  entry.backend = "cpu";
  auto bytes = weft::EncodeCacheEntry(entry);
  if (!bytes.ok()) std::abort();
  return *bytes;
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  weft::IgnoreChecksumsForFuzzing((data[0] & 1) != 0);
  const auto entry = weft::DecodeCacheEntry(std::as_bytes(std::span(data + 1, size - 1)));
  if (entry.ok() && !weft::EncodeCacheEntry(*entry).ok()) std::abort();  // what was read can be written
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  static const std::string valid = ValidEntry();
  if (size < 32 && max_size > valid.size()) {
    data[0] = 1;
    std::memcpy(data + 1, valid.data(), valid.size());
    return valid.size() + 1;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
