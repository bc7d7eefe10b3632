// Reads the sample calls of operation descriptions ("T[2,3] f32[] axis=1") for tests, documentation and
// benchmarks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/ir/op_def.h"
#include "src/runtime/status.h"

namespace weft::ops {

struct SampleOperand {
  bool absent = false;   // "none"
  bool generic = false;  // "T[...]"
  ir::Type type;         // of a generic operand: with the dtype asked for
  bool bounded = false;  // "i32[7]<0:5>": integers in [low, high)
  int64_t low = 0;
  int64_t high = 0;
  bool dominant = false;  // "T[3,3]<dominant>": a diagonal that outweighs its row
};

struct ParsedSample {
  std::vector<SampleOperand> operands;
  ir::Attrs attrs;
  bool generic = false;  // some operand is T
};

// Writes `dtype` for T. Literal attributes read "value=f32[2]{1,-2.5}".
absl::StatusOr<ParsedSample> ParseSample(const ir::OpDef& op, const ir::Sample& sample, DType dtype);

// The types T may stand for in the sample: those of its first T operand; {f32} where there is none.
std::vector<DType> SampleTypes(const ir::OpDef& op, const ir::Sample& sample);

// Where a sample's floats come from: its own range, or all magnitudes of the element type from its smallest normal
// number to its largest, with both signs where the sample's range has them.
enum class Spread : uint8_t { kSample, kWhole };

// The operand's tensor with values drawn from the sample's range, the same for the same seed on every
// machine. Bools are mixed; integers stay within their type.
HostTensor FillSample(const ir::Sample& sample, const SampleOperand& operand, uint64_t seed,
                      Spread spread = Spread::kSample);

// Raises the diagonals of the last two dimensions, so that the lower triangle is that of a positive definite matrix and
// solving is no loss, for floats of the sample's range.
void MakeDominant(const ir::Sample& sample, HostTensor& tensor);

}  // namespace weft::ops
