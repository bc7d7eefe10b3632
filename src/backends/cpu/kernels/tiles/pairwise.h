// Sums of many parts of a result, each a sum by itself, in a few buffers: neighbours are added, and neighbours' sums, as a binary
// counter carries. So n parts are log2(n) additions deep, whoever computes them.
#pragma once

#include <bit>
#include <cstdint>

namespace weft::cpu {

// The first of which may be the result.
inline int64_t PairwiseBuffers(int64_t parts) { return std::bit_width(static_cast<uint64_t>(parts)); }

// make(part, buffer) writes a part; add(to, from) adds a buffer to another. Buffer 0 ends with all.
template <typename Make, typename Add>
void SumPairwise(int64_t parts, Make make, Add add) {
  int64_t held = 0;
  for (int64_t part = 0; part < parts; ++part) {
    make(part, held++);
    for (int64_t carry = part; carry % 2 != 0; carry /= 2, --held) add(held - 2, held - 1);
  }
  for (; held > 1; --held) add(held - 2, held - 1);
}

}  // namespace weft::cpu
