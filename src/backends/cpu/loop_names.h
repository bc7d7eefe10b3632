// Names of loops in traces, plans, profilers and debuggers: "weft.add_exp_mul.f32.3fa2".
#pragma once

#include <string>
#include <vector>

#include "src/backends/cpu/lower/lowering.h"

namespace weft::cpu {

// Each loop's name: the operations that its first entry came from, the type of the first result, and digits of its code's hash, which is
// equal in every process. No two are equal. The names are the symbols of the loops' machine code and are stored with it.
std::vector<std::string> LoopNames(const LoweredModule& lowered);

}  // namespace weft::cpu
