// The most that this machine can do, as the library's own kernels reach it: measured once, kept beside the compile cache.
#pragma once

#include <cstdint>
#include <string>

#include "src/cli/report.h"

namespace weft::cli {

struct Ceilings {
  std::string cpu;                             // model, code path and threads
  int64_t memory = 0;                          // bytes a second, read and written
  int64_t f32 = 0, f64 = 0, bf16 = 0, i8 = 0;  // operations a second of large products

  explicit operator bool() const { return memory > 0; }
};

// Those that are kept of this machine; none where nobody has measured them. `file` gets where they are kept, or would be; empty
// without a cache.
Ceilings KeptCeilings(std::string* file);
// "at most 41.2 GB/s; GF/s: f32 98.1, f64 49.0, bf16 190.3, i8 301.0"
std::string CeilingsText(const Ceilings& ceilings);

}  // namespace weft::cli
