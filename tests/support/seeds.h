// Which seeds a test of random programs runs: its own few, or a range from the environment.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace weft::test {

// WEFT_FUZZ_SEEDS=first:last, for long runs by hand; else 1 to `few`, fewer where sanitizers make everything slow.
inline std::pair<uint64_t, uint64_t> Seeds(uint64_t few) {
#ifdef WEFT_SANITIZED
  few = (few + 9) / 10;
#endif
  unsigned long long first = 1, last = few;
  if (const char* range = std::getenv("WEFT_FUZZ_SEEDS")) {
    if (std::sscanf(range, "%llu:%llu", &first, &last) != 2) last = 0;  // runs nothing, which tests refuse
  }
  return {first, last};
}

}  // namespace weft::test
