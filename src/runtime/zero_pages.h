// Bytes that are all 0, to be read: of any number, the system has one page of them in memory.
#pragma once

#include <cstddef>
#include <span>

namespace weft {

class ZeroPages {
 public:
  ZeroPages() = default;
  ~ZeroPages();
  ZeroPages(const ZeroPages&) = delete;
  ZeroPages& operator=(const ZeroPages&) = delete;
  // The first so many. Earlier spans end. False, and no span, if there is no address space for them.
  bool Get(size_t bytes, std::span<const std::byte>* zeros);

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace weft
