// The context's random state: a key and a 128-bit counter, on the host. Counter based (Philox-4x32-10), so that where a
// graph is cut does not change a number.
#pragma once

#include <array>
#include <cstdint>

namespace weft::lazy {

struct GeneratorState {
  uint64_t key = 0;
  uint64_t counter_low = 0;
  uint64_t counter_high = 0;
  friend bool operator==(const GeneratorState&, const GeneratorState&) = default;

  // One block is 128 bits: four u32.
  void Advance(uint64_t blocks) {
    counter_low += blocks;
    if (counter_low < blocks) ++counter_high;
  }
  // The words as rng_bit_generator PHILOX lays them out, ui64[3], each low half first.
  std::array<uint32_t, 6> Words() const {
    auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
    auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
    return {low(key), high(key), low(counter_low), high(counter_low), low(counter_high), high(counter_high)};
  }
};

}  // namespace weft::lazy
