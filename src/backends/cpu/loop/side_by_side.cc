// See side_by_side.h.
#include "src/backends/cpu/loop/side_by_side.h"

#include <algorithm>

#include "src/backends/cpu/jit/isa.h"

namespace weft::cpu {
namespace {

constexpr int64_t kManyElements = 1 << 16;

bool IsFunction(const Expr& e) {
  return (e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary) && ir::FactsOf(e.op).function;
}

// Tells whether the code calls libm: functions of f64 to the last bit, lane by lane; functions of angles, if one is
// huge; remainders.
bool Calls(const Expr& e) {
  if (e.op == ir::ScalarOp::kRem) return e.kind == ExprKind::kBinary && IsFloat(e.dtype);
  if (!IsFunction(e)) return false;
  const bool angle = e.op == ir::ScalarOp::kSin || e.op == ir::ScalarOp::kCos || e.op == ir::ScalarOp::kTan;
  return angle || (e.dtype == DType::kF64 && e.storage == DType::kInvalid);
}

// About as many instructions.
int64_t Work(const Expr& e) {
  if (IsFunction(e)) return 30;
  return e.kind == ExprKind::kRound ? 5 : 1;
}

// The most values that wait at once for the expressions that use them.
size_t MostWaiting(const LoopKernel& kernel, const std::vector<bool>& chain) {
  std::vector<size_t> last(kernel.exprs.size(), 0);
  for (size_t i = 0; i < kernel.exprs.size(); ++i) {
    if (!chain[i]) continue;
    for (uint32_t arg : kernel.exprs[i].args) {
      if (arg != kNoExpr) last[arg] = i;
    }
  }
  std::vector<size_t> ends(kernel.exprs.size(), 0);
  size_t waiting = 0, most = 0;
  for (size_t i = 0; i < kernel.exprs.size(); ++i) {
    waiting -= ends[i];
    if (chain[i] && last[i] > i) {
      ++waiting;
      ++ends[last[i]];
    }
    most = std::max(most, waiting);
  }
  return most;
}

}  // namespace

int VectorsSideBySide(const LoopKernel& kernel, const std::vector<bool>& needed, const CpuTarget& target, int lanes) {
  const int64_t elements = kernel.ParallelCount() * kernel.ReducedCount();
  if (elements < kManyElements) return 1;
  const std::vector<Dependence> deps = Analyze(kernel);
  std::vector<bool> chain(needed);
  int64_t count = 0, work = 0, roundings = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    const Expr& e = kernel.exprs[i];
    chain[i] = chain[i] && deps[i].vector;
    if (!chain[i]) continue;
    if (Calls(e)) return 1;  // which save all registers
    ++count;
    work += Work(e);
    if (e.kind == ExprKind::kRound && e.storage == DType::kBF16) roundings += Work(e);
  }
  int most = elements < 4 * kManyElements ? 2 : 4;
  if (work <= 12) {
    most = 1;
  } else if (work <= 40) {
    most = 2;
  } else if (elements >= 16 * kManyElements && !kernel.reduces() && 3 * roundings > work) {
    most = 8;  // four instructions that wait for each other behind each operation
  } else if (work < 2 * count) {
    // Within functions and roundings few values wait.
    if (static_cast<int>(MostWaiting(kernel, chain)) * 4 > target.vector_registers) most = 2;
  }
  while (most > 1 && kernel.dims[kernel.vector_dim].size < int64_t{most} * lanes) most /= 2;
  return most;
}

int VectorsOfPanel(const LoopKernel& kernel, const CpuTarget& target, int lanes) {
  const int64_t size = kernel.dims[kernel.vector_dim].size;
  if (kernel.exprs.size() <= 24) return size >= 4 * lanes ? 4 : size >= 2 * lanes ? 2 : 1;
  int panel = VectorsSideBySide(kernel, std::vector<bool>(kernel.exprs.size(), true), target, lanes);
  // Wide panels must not make the tasks few, as then the sums would be others.
  const int64_t lines = kernel.ParallelCount() / std::max<int64_t>(size, 1);
  const auto tasks = [&] { return lines * ((size + panel * lanes - 1) / (panel * lanes)); };
  while (panel > 1 && tasks() < kFewTasks) panel /= 2;
  return panel;
}

}  // namespace weft::cpu
