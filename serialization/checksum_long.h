// XXH3-64 compiled for a processor, for checksum.cc to choose from.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {
using LongChecksum = uint64_t (*)(const void* data, size_t size);
#if defined(__x86_64__)
extern const LongChecksum kChecksumAvx2;
#endif
}  // namespace weft
