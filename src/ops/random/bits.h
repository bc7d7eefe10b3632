// Random bits and what is made of them. The state is u64[3]: key, counter low, counter high, as StableHLO's
// rng_bit_generator PHILOX lays it out; one counter value gives four u32.
#pragma once

#include <span>
#include <utility>

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

// Words of states: a u64 scalar, element i of a state, a 128-bit counter and a u64 more (low, high).
ir::Value U64(ir::Builder& b, uint64_t value);
ir::Value Element(ir::Builder& b, const ir::Value& state, int64_t i);
std::pair<ir::Value, ir::Value> Advance(ir::Builder& b, const ir::Value& low, const ir::Value& high,
                                        const ir::Value& by);

// The state so many blocks on: `blocks` is a u64 scalar.
ir::Value StateAt(ir::Builder& b, const ir::Value& state, const ir::Value& blocks);
// A stream of its own for every number, a u64 scalar: the block that the state gives so many blocks on is the new key (its first
// 64 bits) and the upper half of the new counter (its last), whose lower half begins at 0. A block is one of 2^128 and different
// for every number, so no two streams of a state are the same.
ir::Value StreamOf(ir::Builder& b, const ir::Value& state, const ir::Value& number);

// How many blocks an operation takes whose largest operand has so many elements. An upper bound, the same for every device: 64 random
// bits an element of the results, or of that operand (an operation may draw for each element and give one for each row).
uint64_t RandomBlocks(uint64_t largest, std::span<const ir::Value> results);

// The first tells whether a node is rng_bit_generator with PHILOX of fewer than 2^32 blocks. The second computes the
// same by blocks: each block once, put in order, and in 32 bits alone, as TPUs compute. Compilers do better with that
// than with each element computing its own block.
bool GoesByBlocks(const ir::Node& node);
ir::Values PhiloxByBlocks(ir::Builder& b, const ir::Value& state, const Dims& dims, DType dtype);

}  // namespace weft::ops
