// Philox-4x32-10, the counter-based generator of random operations and of data orders: one block of four words for each
// pair of key and counter, so that any place of a stream is found at once. Source: Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <cstdint>

namespace weft {

struct PhiloxBlock {
  uint32_t words[4];
  uint64_t low() const { return (uint64_t{words[1]} << 32) | words[0]; }
};

// The ten rounds on one counter. Pure; about 20 ns.
inline PhiloxBlock Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock c = {{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                    static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c.words[0], p1 = uint64_t{0xCD9E8D57} * c.words[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.words[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.words[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

}  // namespace weft
