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
  layout.form = kernel.vector_reduces ? Form::kRows : Form::kColumns;
  if (layout.form == Form::kColumns && !kernel.turned) {
    layout.panel = VectorsOfPanel(kernel, target, layout.lanes);
    layout.ahead = RowsAhead(kernel);
  }
  layout.cache = layout.form == Form::kRows && kernel.ReducedCount() <= kCachedRow;
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
                   layout.cache ? " cache" : "", " ahead ", layout.ahead, " product ", kernel.product);
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
  // About 60 ps an element and simple operation at 16 lanes, 600 an expensive one; and what a byte takes from another core's cache.
  constexpr double kByte = 30;
  double per_element = 20;
  for (const Access& a : kernel.loads) per_element += kByte * BytesOf(a.dtype) * layout.lanes / 16;
  for (const Store& s : kernel.stores) per_element += s.row ? 0 : kByte * BytesOf(s.access.dtype) * layout.lanes / 16;
  for (const Expr& e : kernel.exprs) {
    if (e.kind == ExprKind::kConstant) continue;
    per_element += (e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary) && ir::FactsOf(e.op).function ? 500 : 30;
  }
  plan.cost = 1.0 * kernel.ParallelCount() * kernel.ReducedCount() * kernel.stages * per_element * 16 /
              std::max(1, layout.lanes);
  return plan;
}

}  // namespace weft::cpu
