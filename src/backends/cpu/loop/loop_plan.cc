// See loop_plan.h.
#include "src/backends/cpu/loop/loop_plan.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/jit/isa.h"
#include "src/backends/cpu/loop/side_by_side.h"

namespace weft::cpu {
namespace {

constexpr int64_t kCachedRow = 32768;  // longest row whose expensive values are kept between passes
constexpr int64_t kBlock = 2048;       // elements of an elementwise task
constexpr int64_t kRowsAhead = 16, kLongRow = 4096, kFarElements = 1 << 16;

// Rows that are short enough, as few of 4 KB and more would find room in L1 side by side.
int64_t RowsAhead(const LoopKernel& kernel) {
  if (kernel.ParallelCount() * kernel.ReducedCount() < kFarElements) return 0;
  for (const Access& a : kernel.loads) {
    if (std::abs(a.strides.back()) * BytesOf(a.dtype) >= kLongRow) return 0;
  }
  return kRowsAhead;
}

// Rough picoseconds: about 60 an element and simple operation at 16 lanes, 600 an expensive one; and what a byte takes from another
// core's cache.
double CostOfElement(const LoopKernel& kernel, const Layout& layout) {
  constexpr double kByte = 30;
  double cost = 20;
  for (const Access& a : kernel.loads) cost += kByte * BytesOf(a.dtype) * layout.lanes / 16;
  for (const Store& s : kernel.stores) cost += s.row ? 0 : kByte * BytesOf(s.access.dtype) * layout.lanes / 16;
  for (const Expr& e : kernel.exprs) {
    if (e.kind == ExprKind::kConstant) continue;
    cost += (e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary) && ir::FactsOf(e.op).function ? 500 : 30;
  }
  return cost * 16 / std::max(1, layout.lanes);
}

// The cost of one step along a dimension, with all that lies inside.
double CostOfStep(const LoopKernel& kernel, const Layout& layout, size_t d) {
  double cost = CostOfElement(kernel, layout);
  if (layout.form == Form::kColumns) cost *= layout.panel * layout.lanes;
  while (++d < kernel.dims.size()) cost *= static_cast<double>(kernel.dims[d].size);
  return cost;
}

// A task of several times as long looks about so often. Others look between tasks, and have no code for it.
constexpr double kLookCost = 2e9;

int LookOf(const LoopKernel& kernel, const Layout& layout) {
  const size_t first = kernel.parallel_dims(), last = kernel.dims.size() - 1;
  if (first >= kernel.dims.size()) return -1;  // nothing is left of what it reduces
  if (CostOfStep(kernel, layout, first) * static_cast<double>(kernel.dims[first].size) < 4 * kLookCost) return -1;
  for (size_t d = first; d < last; ++d) {
    if (CostOfStep(kernel, layout, d) <= kLookCost) return static_cast<int>(d);
  }
  return static_cast<int>(last);
}

// Whole turns of whatever goes side by side.
int64_t StepsALook(const LoopKernel& kernel, const Layout& layout) {
  constexpr int64_t kTurn = 1024;
  const bool vectors = static_cast<size_t>(layout.look) + 1 == kernel.dims.size();
  const auto steps = static_cast<int64_t>(kLookCost / CostOfStep(kernel, layout, static_cast<size_t>(layout.look)));
  return vectors ? std::max<int64_t>(steps / kTurn, 1) * kTurn : std::max<int64_t>(steps, 1);
}

// The most additions that one sum takes: of a row a lane's, and those that fill no vector.
int64_t StepsOfSums(const LoopKernel& kernel, const CpuTarget& target, int lanes) {
  const int64_t all = kernel.ReducedCount();
  if (!kernel.vector_reduces && !kernel.turned) return all;
  const int64_t row = std::max<int64_t>(1, kernel.dims.back().size);
  return all / row * (row / lanes + (target.isa == Isa::kAvx512 ? 1 : 4 * lanes));
}

}  // namespace

Layout LayoutOf(const LoopKernel& kernel, const CpuTarget& target) {
  Layout layout;
  bool wide = false;
  for (const Expr& e : kernel.exprs) wide = wide || (BitsOf(e.dtype) == 64 && e.kind != ExprKind::kIndex);
  layout.lanes = target.vector_bytes / (wide ? 8 : 4);
  const std::vector<bool> all(kernel.exprs.size(), true);
  if (!kernel.reduces() || kernel.vector_reduces) {
    layout.side = VectorsSideBySide(kernel, all, target, layout.lanes);
  }
  if (!kernel.reduces()) return layout;
  layout.cascade =
      std::ranges::any_of(kernel.reductions, Cascades) && StepsOfSums(kernel, target, layout.lanes) > kSumSteps;
  layout.form = kernel.vector_reduces ? Form::kRows : Form::kColumns;
  if (layout.form == Form::kColumns && !kernel.turned) {
    layout.panel = VectorsOfPanel(kernel, target, layout.lanes);
    layout.ahead = RowsAhead(kernel);
  }
  layout.cache = layout.form == Form::kRows && kernel.ReducedCount() <= kCachedRow;
  layout.look = LookOf(kernel, layout);
  return layout;
}

int64_t ElementsOfTask(int64_t size) {
  // A multiple of every vector length.
  size = std::max<int64_t>(size, 1);
  const int64_t pieces = (size + kBlock - 1) / kBlock;
  return ((size + pieces - 1) / pieces + 63) / 64 * 64;
}

LoopPlan PlanLoop(const LoopKernel& kernel, const CpuTarget& target) {
  LoopPlan plan;
  const Layout layout = LayoutOf(kernel, target);
  plan.key =
      absl::StrCat(ToString(kernel, false), "lanes ", layout.lanes, " panel ", layout.panel, " side ", layout.side,
                   layout.cache ? " cache" : "", layout.cascade ? " cascade" : "", " ahead ", layout.ahead, " product ",
                   kernel.product, layout.look < 0 ? "" : absl::StrCat(" look ", layout.look));
  const size_t parallel = kernel.parallel_dims();
  int64_t block = 1;
  if (layout.form == Form::kElementwise) {
    block = ElementsOfTask(kernel.dims[parallel - 1].size);
  } else if (layout.form == Form::kColumns) {
    block = int64_t{layout.panel} * layout.lanes;
  }
  for (const Dim& d : kernel.dims) plan.params.push_back(d.size);
  plan.params.push_back(block);
  for (const Dim& d : kernel.dims) plan.params.push_back(d.total);
  const auto add = [&](const Access& a) {
    plan.params.push_back(a.offset);
    plan.params.insert(plan.params.end(), a.strides.begin(), a.strides.end());
  };
  for (const Access& a : kernel.loads) add(a);
  for (const Access& a : kernel.indices) add(a);
  for (const Store& s : kernel.stores) add(s.access);
  plan.tasks = 1;
  for (size_t d = 0; d < parallel; ++d) {
    const bool blocked = layout.form != Form::kRows && d + 1 == parallel;
    plan.tasks *= blocked ? (kernel.dims[d].size + block - 1) / block : kernel.dims[d].size;
  }
  if (layout.form == Form::kRows && layout.cache) {
    const int64_t row = (kernel.ReducedCount() + 64 + 63) / 64 * 64;
    plan.params.push_back(row);
    int64_t candidates = 0;
    for (const Expr& e : kernel.exprs)
      candidates += ir::FactsOf(e.op).function && (e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary);
    if (kernel.stages > 1) plan.scratch_bytes = row * 8 * candidates;
  } else {
    plan.params.push_back(0);
  }
  if (layout.look >= 0) plan.params.push_back(StepsALook(kernel, layout));
  // Passes with a guard hardly ever run.
  const int64_t passes = std::ranges::count(GuardsOf(kernel), kNoExpr, &Guard::condition);
  const int64_t steps = passes == 0 ? 1 : kernel.ReducedCount() * passes;
  plan.cost = 1.0 * kernel.ParallelCount() * steps * CostOfElement(kernel, layout);
  return plan;
}

}  // namespace weft::cpu
