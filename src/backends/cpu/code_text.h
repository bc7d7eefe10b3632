// The code of a program as text, for people: loops, LLVM's text of them, assembly.
#pragma once

#include <span>
#include <string>

#include "src/backends/cpu/lower/lowering.h"
#include "src/backends/shows_code.h"

namespace weft::cpu {

// `micro`: the register tiles that it wants (MicroSpec::Index). Code is as it runs; what other programs have already is in it, too.
absl::StatusOr<std::string> CodeTextOf(const LoweredModule& lowered, std::span<const int> micro,
                                       const CpuTarget& target, CodeForm form);

}  // namespace weft::cpu
