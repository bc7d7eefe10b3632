// Building, tidying and printing loop kernels.
#include "src/backends/cpu/loop/loop.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::cpu {
namespace {

using ir::ScalarOp;
using ir::ScalarValue;

bool UsesReduced(const LoopKernel& kernel, const Access& access) {
  for (size_t d = 0; d < kernel.dims.size(); ++d) {
    if (kernel.dims[d].reduce && access.strides[d] != 0) return true;
  }
  return false;
}

template <typename Fn>
void ForEachAccess(LoopKernel& kernel, Fn fn) {
  for (Access& a : kernel.loads) fn(a);
  for (Access& a : kernel.indices) fn(a);
  for (Store& s : kernel.stores) fn(s.access);
}

void EraseDim(LoopKernel& kernel, size_t d) {
  kernel.dims.erase(kernel.dims.begin() + d);
  ForEachAccess(kernel, [&](Access& a) { a.strides.erase(a.strides.begin() + d); });
  for (Dim& dim : kernel.dims) {
    if (dim.chunk_dim > static_cast<int32_t>(d)) --dim.chunk_dim;
  }
}

bool IsChunk(const LoopKernel& kernel, size_t d) {
  if (kernel.dims[d].chunk_dim >= 0) return true;
  for (const Dim& dim : kernel.dims) {
    if (dim.chunk_dim == static_cast<int32_t>(d)) return true;
  }
  return false;
}

bool CanMerge(LoopKernel& kernel, size_t d) {
  if (kernel.dims[d].reduce != kernel.dims[d + 1].reduce || IsChunk(kernel, d) || IsChunk(kernel, d + 1)) return false;
  if (kernel.dims[d + 1].apart) return false;
  bool same = true;
  ForEachAccess(kernel, [&](Access& a) { same = same && a.strides[d] == a.strides[d + 1] * kernel.dims[d + 1].size; });
  return same;
}

// Appends the operation that the expression applies to its arguments.
void AppendOperation(std::string& text, const Expr& e) {
  switch (e.kind) {
    case ExprKind::kUnary:
    case ExprKind::kBinary:
      absl::StrAppend(&text, ir::FactsOf(e.op).name, e.storage == DType::kInvalid ? "" : " for f32");
      break;
    case ExprKind::kSelect: absl::StrAppend(&text, "select"); break;
    case ExprKind::kFma: absl::StrAppend(&text, "fma"); break;
    case ExprKind::kConvert: absl::StrAppend(&text, "convert", e.storage == DType::kInvalid ? "" : " to odd"); break;
    case ExprKind::kBitcast:
      absl::StrAppend(&text, "bitcast", IsHalf(e.storage) ? absl::StrCat(" ", StableHloNameOf(e.storage)) : "");
      break;
    case ExprKind::kRound: absl::StrAppend(&text, "round ", StableHloNameOf(e.storage)); break;
    case ExprKind::kReduced: absl::StrAppend(&text, "reduced ", e.index); break;
    case ExprKind::kCarried: absl::StrAppend(&text, "carried ", e.index); break;
    case ExprKind::kFolded: absl::StrAppend(&text, "folded ", e.index); break;
    default: break;
  }
}

}  // namespace

bool NeedsF64For16Bits(const std::vector<Expr>& exprs) {
  int roundings = 0;
  for (const Expr& e : exprs) {
    if (e.kind == ExprKind::kConstant) {
      roundings += IsFloat(e.dtype) && e.number != std::trunc(e.number);  // 0.01 is no f32
    } else if (e.kind == ExprKind::kFma) {
      ++roundings;
    } else if (e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary) {
      roundings += ir::FactsOf(e.op).roundings;
    }
  }
  return roundings > 1;
}

size_t LoopKernel::parallel_dims() const {
  size_t n = 0;
  while (n < dims.size() && !dims[n].reduce) ++n;
  return n;
}

int64_t LoopKernel::ParallelCount() const {
  int64_t count = 1;
  for (const Dim& d : dims) count *= d.reduce ? 1 : d.size;
  return count;
}

int64_t BytesRead(const LoopKernel& kernel) {
  double bytes = 0;
  for (const Access& load : kernel.loads) {
    double elements = 1;
    for (size_t d = 0; d < kernel.dims.size(); ++d) {
      if (load.strides[d] != 0) elements *= static_cast<double>(kernel.dims[d].size);
    }
    bytes += elements * static_cast<double>(std::max(BytesOf(load.dtype), 1));
  }
  return bytes < 0x1p62 ? static_cast<int64_t>(bytes) : int64_t{1} << 62;
}

int64_t FlopsOf(const LoopKernel& kernel) {
  const double rows = static_cast<double>(kernel.ParallelCount());
  const double elements = rows * static_cast<double>(kernel.ReducedCount());
  const std::vector<Dependence> depends = Analyze(kernel);
  double flops = 0;
  for (size_t i = 0; i < kernel.exprs.size(); ++i) {
    const Expr& e = kernel.exprs[i];
    const bool computes = e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary || e.kind == ExprKind::kFma;
    if (!computes || !IsFloat(e.dtype)) continue;
    flops += (e.kind == ExprKind::kFma ? 2 : 1) * (depends[i].reduced ? elements : rows);
  }
  for (const Reduction& r : kernel.reductions) flops += IsFloat(r.dtype) ? elements : 0;
  return flops < 0x1p62 ? static_cast<int64_t>(flops) : int64_t{1} << 62;
}

int64_t LoopKernel::ReducedCount() const {
  int64_t count = 1;
  for (const Dim& d : dims) count *= d.reduce ? d.size : 1;
  return count;
}

std::vector<Dependence> Analyze(const LoopKernel& kernel) {
  std::vector<Dependence> result(kernel.exprs.size());
  for (size_t i = 0; i < kernel.exprs.size(); ++i) {
    const Expr& e = kernel.exprs[i];
    Dependence& d = result[i];
    if (e.kind == ExprKind::kLoad || e.kind == ExprKind::kIndex) {
      const Access& a = e.kind == ExprKind::kLoad ? kernel.loads[e.index] : kernel.indices[e.index];
      d.reduced = UsesReduced(kernel, a);
      d.vector = kernel.vector_dim >= 0 && a.strides[kernel.vector_dim] != 0;
    } else if (e.kind == ExprKind::kReduced) {
      const Reduction& r = kernel.reductions[e.index];
      d.stage = result[r.expr].stage + 1;
      // Kept along the vector dimension where that is not reduced: assume so, a splat costs nothing.
      d.vector = kernel.vector_dim >= 0 && !kernel.vector_reduces;
    } else if (e.kind == ExprKind::kCarried || e.kind == ExprKind::kFolded) {
      d.vector = kernel.vector_dim >= 0;
      d.reduced = e.kind == ExprKind::kCarried;
      d.stage = e.kind == ExprKind::kFolded ? 1 : 0;
    }
    for (uint32_t arg : e.args) {
      if (arg == kNoExpr) continue;
      d.vector = d.vector || result[arg].vector;
      d.reduced = d.reduced || result[arg].reduced;
      d.stage = std::max(d.stage, result[arg].stage);
    }
  }
  return result;
}

std::vector<Guard> GuardsOf(const LoopKernel& kernel) {
  struct Use {
    bool seen = false;
    Guard guard;
  };
  std::vector<Use> uses(kernel.exprs.size());
  const auto add = [&](uint32_t expr, Guard guard) {
    Use& use = uses[expr];
    use.guard = !use.seen || use.guard == guard ? guard : Guard{};
    use.seen = true;
  };
  for (const Reduction& r : kernel.reductions) add(r.expr, {});
  for (const Store& s : kernel.stores) add(s.expr, {});
  for (size_t i = kernel.exprs.size(); i-- > 0;) {
    const Expr& e = kernel.exprs[i];
    for (int k = 0; k < 3 && uses[i].seen; ++k) {
      if (e.args[k] == kNoExpr) continue;
      const bool arm = e.kind == ExprKind::kSelect && k > 0;
      add(e.args[k], arm ? Guard{e.args[0], k == 1} : uses[i].guard);
    }
  }
  const std::vector<Dependence> deps = Analyze(kernel);
  std::vector<Use> stages(kernel.stages);
  const auto meet = [&](int stage, Guard guard) {
    Use& use = stages[stage];
    const Dependence* const on = guard.condition == kNoExpr ? nullptr : &deps[guard.condition];
    const bool known = on != nullptr && !on->reduced && on->stage <= stage;
    use.guard = known && (!use.seen || use.guard == guard) ? guard : Guard{};
    use.seen = true;
  };
  for (size_t i = 0; i < kernel.exprs.size(); ++i) {
    const Expr& e = kernel.exprs[i];
    if (e.kind == ExprKind::kReduced) meet(kernel.reductions[e.index].stage, uses[i].guard);
  }
  for (const Store& s : kernel.stores) {
    if (!s.row) meet(s.stage, {});
  }
  if (!kernel.carries.empty()) stages[0].guard = {};
  std::vector<Guard> guards;
  for (const Use& use : stages) guards.push_back(use.guard);
  return guards;
}

bool IsGuarded(const LoopKernel& kernel) {
  return kernel.reduces() &&
         std::ranges::none_of(GuardsOf(kernel), [](const Guard& guard) { return guard.condition == kNoExpr; });
}

namespace {

// Tells whether rows lie side by side: everything that changes along them is read in runs along the last parallel
// dimension.
bool RowsLieAcross(const LoopKernel& kernel) {
  constexpr int64_t kFewRows = 4;
  const size_t across = kernel.parallel_dims() - 1, along = kernel.dims.size() - 1;
  if (kernel.stages != 1 || kernel.dims[across].size < kFewRows || IsChunk(kernel, across)) return false;
  const bool stores = std::ranges::any_of(kernel.stores, [](const Store& s) { return !s.row; });
  bool runs = !stores && kernel.indices.empty(), strided = false;
  for (const Access& a : kernel.loads) {
    if (a.strides[along] == 0) continue;
    runs = runs && a.strides[across] == 1;
    strided = strided || a.strides[along] != 1;
  }
  return runs && strided;
}

}  // namespace

void Finish(LoopKernel& kernel) {
  // Before sizes go: a row store ignores the reduced dimensions.
  const bool reduces = kernel.reduces();
  for (size_t d = kernel.dims.size(); d-- > 0;) {
    if (kernel.dims[d].size != 1 || IsChunk(kernel, d)) continue;
    EraseDim(kernel, d);
  }
  for (size_t d = 0; d + 1 < kernel.dims.size();) {
    if (!CanMerge(kernel, d)) {
      ++d;
      continue;
    }
    ForEachAccess(kernel, [&](Access& a) { a.strides[d] = a.strides[d + 1]; });
    kernel.dims[d].size *= kernel.dims[d + 1].size;
    EraseDim(kernel, d + 1);
  }
  // Every kernel has a parallel dimension, and a reducing one a reduced dimension.
  const auto insert = [&](size_t at, Dim dim) {
    kernel.dims.insert(kernel.dims.begin() + at, dim);
    ForEachAccess(kernel, [&](Access& a) { a.strides.insert(a.strides.begin() + at, 0); });
    for (Dim& other : kernel.dims) {
      if (other.chunk_dim >= static_cast<int32_t>(at)) ++other.chunk_dim;
    }
  };
  if (kernel.parallel_dims() == 0) insert(0, Dim{});
  if (reduces && kernel.parallel_dims() == kernel.dims.size()) insert(kernel.dims.size(), Dim{1, true});
  if (!reduces) kernel.vector_reduces = false;
  // Vectors never run along the counter of chunks.
  if (!kernel.vector_reduces && IsChunk(kernel, kernel.parallel_dims() - 1)) insert(kernel.parallel_dims(), Dim{});
  kernel.vector_dim = static_cast<int>(kernel.vector_reduces ? kernel.dims.size() : kernel.parallel_dims()) - 1;
  const std::vector<Dependence> deps = Analyze(kernel);
  kernel.stages = 1;
  for (Reduction& r : kernel.reductions) {
    r.stage = deps[r.expr].stage;
    kernel.stages = std::max(kernel.stages, r.stage + 1);
  }
  for (Store& s : kernel.stores) {
    s.stage = deps[s.expr].stage;
    if (!s.row) kernel.stages = std::max(kernel.stages, s.stage + 1);
  }
  if (kernel.vector_reduces && RowsLieAcross(kernel)) {
    kernel.vector_reduces = false;
    kernel.turned = true;
    kernel.vector_dim = static_cast<int>(kernel.parallel_dims()) - 1;
  }
}

SplitKernel SplitReduction(const LoopKernel& kernel, int64_t chunks) {
  SplitKernel split;
  LoopKernel& first = split.first;
  first = kernel;
  const size_t parallel = kernel.parallel_dims();
  const int64_t total = kernel.dims[parallel].size;
  const int64_t size = (total + chunks - 1) / chunks;
  chunks = (total + size - 1) / size;
  // The chunk counter becomes the outermost parallel dimension.
  const auto insert = [&](Access& a) { a.strides.insert(a.strides.begin(), a.strides[parallel] * size); };
  ForEachAccess(first, insert);
  first.dims.insert(first.dims.begin(), Dim{chunks, false});
  Dim& reduced = first.dims[parallel + 1];
  reduced.size = size;
  if (chunks * size != total) {
    reduced.chunk_dim = 0;
    reduced.total = total;
  }
  first.vector_dim = kernel.vector_dim + 1;
  std::erase_if(first.stores, [](const Store& s) { return s.row; });
  split.partial_count = chunks * kernel.ParallelCount();
  // Partials are dense: [chunks, parallel dimensions].
  std::vector<int64_t> strides(first.dims.size(), 0);
  int64_t stride = 1;
  for (size_t d = parallel + 1; d-- > 0;) {
    strides[d] = stride;
    stride *= first.dims[d].size;
  }
  for (uint32_t b = 0; b < kernel.buffers; ++b) split.first_buffers.push_back(b);
  LoopKernel& second = split.second;
  second.dims.assign(kernel.dims.begin(), kernel.dims.begin() + parallel);
  second.dims.push_back(Dim{chunks, true});
  LoopBuilder second_builder(second);
  std::vector<uint32_t> reduced_exprs;
  for (uint32_t k = 0; k < kernel.reductions.size(); ++k) {
    const Reduction& r = kernel.reductions[k];
    Expr done;
    done.kind = ExprKind::kReduced;
    done.dtype = r.dtype;
    done.index = k;
    uint32_t at = kNoExpr;
    for (uint32_t i = 0; i < first.exprs.size(); ++i) {
      if (first.exprs[i].kind == ExprKind::kReduced && first.exprs[i].index == k) at = i;
    }
    if (at == kNoExpr) {
      at = static_cast<uint32_t>(first.exprs.size());
      first.exprs.push_back(done);
    }
    first.stores.push_back(Store{Access{first.buffers++, r.dtype, 0, strides}, at, true, 0});
    split.first_buffers.push_back(~0u - k);
    split.partial_types.push_back(r.dtype);
    std::vector<int64_t> from(strides.begin() + 1, strides.begin() + 1 + parallel);
    from.push_back(strides[0]);
    const ScalarValue x = second_builder.Load(Access{second.buffers++, r.dtype, 0, from});
    split.second_buffers.push_back(~0u - k);
    reduced_exprs.push_back(second_builder.Reduce(r.op, x).id);
  }
  // The expressions behind the reductions move over as a whole.
  std::map<uint32_t, uint32_t> moved, moved_buffers;
  const auto buffer = [&](uint32_t original) {
    auto [it, fresh] = moved_buffers.try_emplace(original, second.buffers);
    if (fresh) {
      ++second.buffers;
      split.second_buffers.push_back(original);
    }
    return it->second;
  };
  const auto project = [&](const Access& a) {
    Access b = a;
    b.buffer = 0;
    b.strides.resize(parallel);
    b.strides.push_back(0);
    return b;
  };
  std::vector<bool> needed(kernel.exprs.size(), false);
  for (const Store& s : kernel.stores) {
    if (s.row) needed[s.expr] = true;
  }
  for (uint32_t i = static_cast<uint32_t>(kernel.exprs.size()); i-- > 0;) {
    if (!needed[i] || kernel.exprs[i].kind == ExprKind::kReduced) continue;
    for (uint32_t arg : kernel.exprs[i].args) {
      if (arg != kNoExpr) needed[arg] = true;
    }
  }
  for (uint32_t i = 0; i < kernel.exprs.size(); ++i) {
    if (!needed[i]) continue;
    Expr e = kernel.exprs[i];
    if (e.kind == ExprKind::kReduced) {
      moved[i] = reduced_exprs[e.index];
      continue;
    }
    if (e.kind == ExprKind::kLoad) {
      Access a = project(kernel.loads[e.index]);
      a.buffer = buffer(kernel.loads[e.index].buffer);
      moved[i] = second_builder.Load(a).id;
      continue;
    }
    if (e.kind == ExprKind::kIndex) {
      moved[i] = second_builder.Index(project(kernel.indices[e.index])).id;
      continue;
    }
    for (uint32_t& arg : e.args) {
      if (arg != kNoExpr) arg = moved[arg];
    }
    moved[i] = static_cast<uint32_t>(second.exprs.size());
    second.exprs.push_back(e);
  }
  for (const Store& s : kernel.stores) {
    if (!s.row) continue;
    Access a = project(s.access);
    a.buffer = buffer(s.access.buffer);
    second.stores.push_back(Store{a, moved[s.expr], true, 0});
  }
  second.vector_reduces = kernel.vector_reduces && kernel.ParallelCount() == 1;
  Finish(first);
  Finish(second);
  return split;
}

std::string ToString(const LoopKernel& kernel, bool sizes) {
  const auto access = [&](const Access& a) {
    std::string text = absl::StrCat("b", a.buffer, ":", StableHloNameOf(a.dtype), "[");
    for (size_t d = 0; d < a.strides.size(); ++d) {
      const int64_t s = a.strides[d];
      absl::StrAppend(&text, d == 0 ? "" : ", ");
      if (sizes) {
        absl::StrAppend(&text, s);
      } else {
        absl::StrAppend(&text, s == 0 ? "0" : s == 1 && static_cast<int>(d) == kernel.vector_dim ? "1" : "s");
      }
    }
    absl::StrAppend(&text, "]");
    if (sizes && a.offset != 0) absl::StrAppend(&text, "+", a.offset);
    return text;
  };
  std::string text = "for [";
  for (size_t d = 0; d < kernel.dims.size(); ++d) {
    const Dim& dim = kernel.dims[d];
    absl::StrAppend(&text, d == 0 ? "" : ", ", dim.reduce ? "reduce " : "",
                    static_cast<int>(d) == kernel.vector_dim ? "vector " : "");
    if (sizes) {
      absl::StrAppend(&text, dim.size);
      if (dim.chunk_dim >= 0) absl::StrAppend(&text, " of ", dim.total);
    } else {
      absl::StrAppend(&text, "n", dim.chunk_dim >= 0 ? absl::StrCat(" chunk of ", dim.chunk_dim) : "");
    }
  }
  absl::StrAppend(&text, kernel.turned ? "] turned\n" : "]\n");
  for (size_t i = 0; i < kernel.exprs.size(); ++i) {
    const Expr& e = kernel.exprs[i];
    absl::StrAppend(&text, "  %", i, ":", StableHloNameOf(e.dtype), " = ");
    switch (e.kind) {
      case ExprKind::kLoad: absl::StrAppend(&text, "load ", access(kernel.loads[e.index])); break;
      case ExprKind::kIndex: {
        Access a = kernel.indices[e.index];
        a.dtype = DType::kI64;
        absl::StrAppend(&text, "index ", access(a));
        break;
      }
      case ExprKind::kConstant:
        if (IsFloat(e.dtype)) {
          absl::StrAppend(&text, "constant ", e.number,
                          sizes ? "" : absl::StrCat(" ", absl::Hex(std::bit_cast<uint64_t>(e.number))));
        } else {
          absl::StrAppend(&text, "constant ", e.integer);
        }
        break;
      default: AppendOperation(text, e);
    }
    for (uint32_t arg : e.args) {
      if (arg != kNoExpr) absl::StrAppend(&text, " %", arg);
    }
    absl::StrAppend(&text, "\n");
  }
  const std::vector<Guard> guards = GuardsOf(kernel);
  for (size_t i = 0; i < kernel.reductions.size(); ++i) {
    const Reduction& r = kernel.reductions[i];
    const Guard& guard = guards[r.stage];
    absl::StrAppend(&text, "  reduction ", i, ": ", ops::kReducerNames[static_cast<size_t>(r.op)], " %", r.expr,
                    " stage ", r.stage);
    if (guard.condition != kNoExpr) absl::StrAppend(&text, guard.when ? " if %" : " if not %", guard.condition);
    absl::StrAppend(&text, "\n");
  }
  for (size_t i = 0; i < kernel.carries.size(); ++i) {
    absl::StrAppend(&text, "  carry ", i, ": %", kernel.carries[i].start, " then %", kernel.carries[i].next, "\n");
  }
  for (const Store& s : kernel.stores) {
    absl::StrAppend(&text, s.row ? "  row_store " : "  store ", access(s.access), " %", s.expr, " stage ", s.stage,
                    "\n");
  }
  return text;
}

ScalarValue LoopBuilder::Add(const Expr& e) {
  std::string key = absl::StrCat(static_cast<int>(e.kind), ",", static_cast<int>(e.op), ",",
                                 static_cast<uint32_t>(e.dtype), ",", static_cast<uint32_t>(e.storage), ",", e.index);
  absl::StrAppend(&key, ",", e.args[0], ",", e.args[1], ",", e.args[2], ",", std::bit_cast<uint64_t>(e.number), ",",
                  e.integer);
  auto [it, fresh] = known_.try_emplace(key, static_cast<uint32_t>(kernel_.exprs.size()));
  if (fresh) kernel_.exprs.push_back(e);
  return ScalarValue{it->second, e.dtype};
}

ScalarValue LoopBuilder::Load(Access access) {
  uint32_t at = 0;
  while (at < kernel_.loads.size() && !(kernel_.loads[at] == access)) ++at;
  if (at == kernel_.loads.size()) kernel_.loads.push_back(access);
  Expr e;
  e.kind = ExprKind::kLoad;
  e.dtype = ComputeType(access.dtype);
  e.index = at;
  return Add(e);
}

ScalarValue LoopBuilder::Index(Access access) {
  uint32_t at = 0;
  while (at < kernel_.indices.size() && !(kernel_.indices[at] == access)) ++at;
  if (at == kernel_.indices.size()) kernel_.indices.push_back(access);
  Expr e;
  e.kind = ExprKind::kIndex;
  e.dtype = DType::kI64;
  e.index = at;
  return Add(e);
}

ScalarValue LoopBuilder::Reduce(ops::Reducer op, ScalarValue x) {
  uint32_t at = 0;
  while (at < kernel_.reductions.size() && !(kernel_.reductions[at].op == op && kernel_.reductions[at].expr == x.id))
    ++at;
  if (at == kernel_.reductions.size()) kernel_.reductions.push_back(Reduction{op, x.id, x.dtype});
  Expr e;
  e.kind = ExprKind::kReduced;
  e.dtype = x.dtype;
  e.index = at;
  return Add(e);
}

ScalarValue LoopBuilder::Carried(ScalarValue start) {
  Expr e;
  e.kind = ExprKind::kCarried;
  e.dtype = start.dtype;
  e.index = static_cast<uint32_t>(kernel_.carries.size());
  kernel_.carries.push_back(Carry{start.id, kNoExpr, start.dtype});
  return Add(e);
}

ScalarValue LoopBuilder::Folded(uint32_t carry) {
  Expr e;
  e.kind = ExprKind::kFolded;
  e.dtype = kernel_.carries[carry].dtype;
  e.index = carry;
  return Add(e);
}

ScalarValue LoopBuilder::BitsOfHalf(ScalarValue x, DType half, DType to) {
  Expr e;
  e.kind = ExprKind::kBitcast;
  e.dtype = to;
  e.storage = half;
  e.args[0] = x.id;
  return Add(e);
}

ScalarValue LoopBuilder::Round(ScalarValue x, DType storage) {
  if (storage != DType::kBF16 && storage != DType::kF16) return x;
  const Expr& from = kernel_.exprs[x.id];
  if (from.kind == ExprKind::kRound && from.storage == storage) return x;
  if (from.kind == ExprKind::kLoad && kernel_.loads[from.index].dtype == storage) return x;
  Expr e;
  e.kind = ExprKind::kRound;
  e.dtype = DType::kF32;
  e.storage = storage;
  e.args[0] = x.id;
  return Add(e);
}

ScalarValue LoopBuilder::Unary(ScalarOp op, ScalarValue x) {
  Expr e;
  e.kind = ExprKind::kUnary;
  e.op = op;
  if (for_16_bits_ && x.dtype == DType::kF64 && ir::FactsOf(op).function) e.storage = DType::kF32;
  e.dtype = op == ScalarOp::kIsFinite || op == ScalarOp::kIsNan ? DType::kBool : x.dtype;
  e.args[0] = x.id;
  return Add(e);
}

ScalarValue LoopBuilder::Binary(ScalarOp op, ScalarValue x, ScalarValue y) {
  Expr e;
  e.kind = ExprKind::kBinary;
  e.op = op;
  if (for_16_bits_ && x.dtype == DType::kF64 && ir::FactsOf(op).function) e.storage = DType::kF32;
  e.dtype = op >= ScalarOp::kEq && op <= ScalarOp::kGe ? DType::kBool : x.dtype;
  e.args[0] = x.id;
  e.args[1] = y.id;
  return Add(e);
}

ScalarValue LoopBuilder::Select(ScalarValue condition, ScalarValue x, ScalarValue y) {
  Expr e;
  e.kind = ExprKind::kSelect;
  e.dtype = x.dtype;
  e.args[0] = condition.id;
  e.args[1] = x.id;
  e.args[2] = y.id;
  return Add(e);
}

ScalarValue LoopBuilder::Fma(ScalarValue x, ScalarValue y, ScalarValue z) {
  Expr e;
  e.kind = ExprKind::kFma;
  e.dtype = x.dtype;
  e.args[0] = x.id;
  e.args[1] = y.id;
  e.args[2] = z.id;
  return Add(e);
}

ScalarValue LoopBuilder::Constant(DType dtype, double value) {
  dtype = ComputeType(dtype);
  if (!IsFloat(dtype)) return IntConstant(dtype, static_cast<int64_t>(value));
  Expr e;
  e.dtype = dtype;
  e.number = dtype == DType::kF32 ? static_cast<float>(value) : value;
  return Add(e);
}

ScalarValue LoopBuilder::IntConstant(DType dtype, int64_t value) {
  dtype = ComputeType(dtype);
  if (IsFloat(dtype)) return Constant(dtype, static_cast<double>(value));
  Expr e;
  e.dtype = dtype;
  e.integer = IsBool(dtype) ? value != 0 : value;
  return Add(e);
}

ScalarValue LoopBuilder::Convert(ScalarValue x, DType to) {
  ScalarValue result = x;
  if (x.dtype != ComputeType(to)) {
    Expr e;
    e.kind = ExprKind::kConvert;
    e.dtype = ComputeType(to);
    if (IsHalf(to) && BitsOf(x.dtype) > 16) e.storage = to;
    e.args[0] = x.id;
    result = Add(e);
  }
  return Round(result, to);
}

ScalarValue LoopBuilder::Bitcast(ScalarValue x, DType to) {
  if (x.dtype == to) return x;
  Expr e;
  e.kind = ExprKind::kBitcast;
  e.dtype = ComputeType(to);
  // 16-bit floats are bit patterns in memory only: `storage` says which of the two widths is meant.
  e.storage = to;
  e.args[0] = x.id;
  return Add(e);
}

}  // namespace weft::cpu
