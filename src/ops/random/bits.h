// Random bits and what is made of them. The state is u64[3]: key, counter low, counter high, as StableHLO's
// rng_bit_generator PHILOX lays it out; one counter value gives four u32.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

inline constexpr ir::OperandDef kState = {.name = "state",
                                          .types = ir::kUI,
                                          .doc = "generator: key, counter low, counter high",
                                          .group = 0,
                                          .supplied = true};

absl::Status CheckState(const ir::Type& state);
// A shape attribute and a floating dtype attribute, as the distributions have them.
absl::Status InferDistribution(const ir::InferCall& call, size_t shape, size_t dtype, ir::Types* results);

// Random u32 (or u64) of a shape.
ir::Value RandomBits(ir::Builder& b, const ir::Value& state, const Dims& dims, DType dtype);
// Uniform in [0, 1) with as many bits as the type's significand holds: 24, 53, 8, 11.
ir::Value RandomUnit(ir::Builder& b, const ir::Value& state, const Dims& dims, DType dtype);

// The ten rounds of Philox-4x32 on one counter, for references.
struct PhiloxBlock {
  uint32_t words[4];
};
PhiloxBlock Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high);

}  // namespace weft::ops
