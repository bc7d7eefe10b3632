// The CPU that tests run on where they do not choose one: of the instruction set that the variable WEFT_ISA names, as it does for
// contexts, or the best one of this machine. Who compiles by hand for a backend takes both from here.
#pragma once

#include <cstdlib>
#include <string>

#include "src/backends/cpu/cpu_backend.h"

namespace weft::test {

// Empty: the best one.
inline std::string IsaUnderTest() {
  const char* const isa = std::getenv("WEFT_ISA");
  return isa == nullptr ? "" : isa;
}

inline cpu::CpuTarget TargetUnderTest() { return *cpu::TargetFromName(IsaUnderTest()); }

inline absl::StatusOr<std::unique_ptr<cpu::CpuBackend>> NewCpuBackend(cpu::CpuOptions options = {}) {
  if (const std::string isa = IsaUnderTest(); options.isa == "auto" && !isa.empty()) options.isa = isa;
  return cpu::CpuBackend::Create(options);
}

}  // namespace weft::test
