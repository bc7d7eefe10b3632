// See zero_pages.h.
#include "src/runtime/zero_pages.h"

#include <sys/mman.h>

namespace weft {

ZeroPages::~ZeroPages() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

bool ZeroPages::Get(size_t bytes, std::span<const std::byte>* zeros) {
  if (bytes > bytes_) {
    if (memory_ != nullptr) munmap(memory_, bytes_);
    memory_ = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) {
      memory_ = nullptr;
      bytes_ = 0;
      return false;
    }
    bytes_ = bytes;
    madvise(memory_, bytes, MADV_HUGEPAGE);  // one huge page of zeros, where the system has it: a fault for 2 MiB
  }
  *zeros = {static_cast<const std::byte*>(memory_), bytes};
  return true;
}

}  // namespace weft
