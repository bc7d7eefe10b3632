// How much a test runs: which seeds of random programs, its own few or a range from the environment; how many of its cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace weft::test {

#ifdef WEFT_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Tests over every operation that take minutes under sanitizers run one case in so many there.
constexpr size_t kOneCaseIn = kSanitized ? 3 : 1;

// WEFT_EVERY_CASE=1 (the long tier): tests over every operation run all of their cases, each on every instruction set.
inline bool EveryCase() {
  const char* const every = std::getenv("WEFT_EVERY_CASE");
  return every != nullptr && *every == '1';
}

// Tests of which all cases take minutes run one case in `n`, fewer still under sanitizers.
inline size_t OneCaseIn(size_t n) { return EveryCase() ? 1 : n * kOneCaseIn; }

// WEFT_FUZZ_SEEDS=first:last, for long runs by hand; else 1 to `few`, fewer where sanitizers make everything slow.
inline std::pair<uint64_t, uint64_t> Seeds(uint64_t few) {
  if (kSanitized) few = (few + 9) / 10;
  unsigned long long first = 1, last = few;
  if (const char* range = std::getenv("WEFT_FUZZ_SEEDS")) {
    if (std::sscanf(range, "%llu:%llu", &first, &last) != 2) last = 0;  // runs nothing, which tests refuse
  }
  return {first, last};
}

}  // namespace weft::test
