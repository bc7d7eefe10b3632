// Decides how a rounding to bf16 is computed, as far as a kernel's expressions show what is needed. Nearest even is
// four integer operations; NaN asks for three more, unless its low digits are zeros, which an addition of half a step
// leaves alone.
#pragma once

#include <vector>

#include "src/backends/cpu/loop/loop.h"

namespace weft::cpu {

enum class BF16Rounding : uint8_t {
  kAny,      // of any f32
  kHighNan,  // a NaN is quiet, and its digits are in the high half
  kNone,     // the value is one of bf16, a NaN quiet
};

// The facts of each expression.
struct BF16Facts {
  std::vector<BF16Rounding> rounding;  // of its value; for floats
  std::vector<bool> function;  // in f32 of one of bf16's values, and read by nothing that does not round it to bf16
};
BF16Facts BF16FactsOf(const LoopKernel& kernel);

}  // namespace weft::cpu
