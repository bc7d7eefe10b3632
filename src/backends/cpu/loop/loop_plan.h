// How a loop kernel runs: the shape of its code, and its tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/backends/cpu/loop/loop.h"

namespace weft::cpu {

struct CpuTarget;

// The shapes of code that codegen.cc has.
enum class Form { kElementwise, kColumns, kRows };

// Additions of floats after which a sum is closed and a new one begun (pairwise summation).
inline constexpr int64_t kSumSteps = 32;
inline bool Cascades(const Reduction& r) { return r.op == ops::Reducer::kSum && IsFloat(r.dtype); }

struct Layout {
  Form form = Form::kElementwise;
  int lanes = 4;
  int panel = 1;         // vectors of a column panel
  int side = 1;          // vectors of a loop that are computed side by side, of rows at most
  bool cache = false;    // row form: keep expensive values in scratch
  bool cascade = false;  // some sum takes more additions than kSumSteps
  int64_t ahead = 0;     // down columns: how many rows further on memory is asked for
  int look = -1;  // the reduced dimension along which a task of tens of milliseconds looks whether the launch ends
};

Layout LayoutOf(const LoopKernel& kernel, const CpuTarget& target);

// How a kernel of given sizes runs.
struct LoopPlan {
  std::string key;  // kernels with equal keys share code; the code is EmitLoop of any of them
  std::vector<int64_t> params;
  int64_t tasks = 0;
  double cost = 0;  // rough picoseconds of one thread
  int64_t scratch_bytes = 0;
};
// Elements of an elementwise task along a vector dimension of this size.
int64_t ElementsOfTask(int64_t size);

LoopPlan PlanLoop(const LoopKernel& kernel, const CpuTarget& target);

}  // namespace weft::cpu
