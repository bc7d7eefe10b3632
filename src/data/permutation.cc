// Feistel network with cycle walking over Philox.
#include "src/data/permutation.h"

#include <bit>

#include "src/runtime/philox.h"

namespace weft::data {
namespace {

// Streams of one seed that must differ: the high word of the counter says which.
enum Stream : uint64_t { kKeyOfPermutation = 1, kUniform = 2 };

uint64_t MaskOf(int bits) { return bits == 0 ? 0 : ~uint64_t{0} >> (64 - bits); }

}  // namespace

Permutation::Permutation(uint64_t count, uint64_t seed, uint64_t epoch)
    : count_(count), key_(Philox(seed, epoch, kKeyOfPermutation).low()) {
  const int bits = count <= 1 ? 0 : std::bit_width(count - 1);
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
}

// Each half takes up a function of the other in turn, so that the whole is one to one whatever the function is.
uint64_t Permutation::Round(uint64_t place) const {
  const uint64_t left_mask = MaskOf(left_bits_), right_mask = MaskOf(right_bits_);
  uint64_t left = place >> right_bits_, right = place & right_mask;
  for (int round = 0; round < kRounds; round += 2) {
    left ^= Philox(key_, right, static_cast<uint64_t>(round)).low() & left_mask;
    right ^= Philox(key_, left, static_cast<uint64_t>(round) + 1).low() & right_mask;
  }
  return left << right_bits_ | right;
}

uint64_t Permutation::At(uint64_t place) const {
  if (count_ <= 1) return place;
  do {
    place = Round(place);
  } while (place >= count_);
  return place;
}

double UniformAt(uint64_t place, uint64_t seed, uint64_t epoch) {
  const uint64_t key = Philox(seed, epoch, kUniform).low();
  return static_cast<double>(Philox(key, place, 0).low() >> 11) * 0x1p-53;
}

}  // namespace weft::data
