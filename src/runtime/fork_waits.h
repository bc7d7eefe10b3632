// Work that a fork waits for before it copies the process. fork.h has the locks that it takes.
#pragma once

namespace weft {

// While one lives, a fork on another thread waits, and no thread begins another one until that fork is over. It stands around
// work in a library that has locks of its own (LLVM): a child that finds such a lock taken waits for ever. Its thread makes and
// ends it, may hold several, and may fork itself; it holds no lock of HoldOverFork when it makes the first.
class ForkWaits {
 public:
  ForkWaits();
  ~ForkWaits();
  ForkWaits(const ForkWaits&) = delete;
  ForkWaits& operator=(const ForkWaits&) = delete;
};

}  // namespace weft
