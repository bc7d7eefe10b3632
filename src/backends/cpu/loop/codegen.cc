// See codegen.h. Three shapes of code: elementwise (vectors along the last parallel dimension), column reductions (the
// same, with loops over the reduced dimensions inside a panel of vectors) and row reductions (vectors along the last
// reduced dimension, several passes over a row that stays in cache).
#include "src/backends/cpu/loop/codegen.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "src/backends/cpu/loop/reduction_code.h"
#include "src/backends/cpu/loop/side_by_side.h"
#include "src/backends/cpu/loop/turned_code.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kGroup = 4096;  // elements of rows that are walked column by column: they stay in L1

// Tells whether rows share something along them, like the bias of a layer: an elementwise kernel of two dimensions.
bool SharesAlongRows(const LoopKernel& kernel) {
  if (kernel.dims.size() != 2 || kernel.reduces() || kernel.vector_dim != 1) return false;
  bool shares = false;
  for (const Access& a : kernel.loads) shares = shares || (a.strides[0] == 0 && a.strides[1] == 1);
  return shares;
}

// Elementwise kernels: every element by itself.
class ElementwiseCode {
 public:
  using Scope = ExpressionCode::Scope;
  using Lanes = ExpressionCode::Lanes;

  explicit ElementwiseCode(ExpressionCode& code) : code_(code), k_(code.kernel()), b_(code.builder()), vectors_(code) {}

  void Run(const Scope& outer, V start, V end) {
    const std::vector<bool> needed = code_.AllNeeded();
    vectors_.ForEachPanel(start, end, [&](const std::vector<Lanes>& panel) {
      std::vector<Scope> scopes(panel.size(), outer);
      // The next block's, while its product is made.
      if (k_.product >= 0) code_.Announce(outer, panel, 0, code_.Size(0), false);
      ComputeAndStore(needed, scopes, panel);
    });
  }

  // Tasks that are rows, a few of them at a time: each panel of columns goes down them with what they share in registers. Short
  // rows (a pixel's 16 to 200 channels) cost more to begin than to compute.
  void RowGroups(V begin, V end) {
    const std::vector<bool> needed = code_.AllNeeded();
    std::vector<bool> shared = needed;
    for (size_t i = 0; i < shared.size(); ++i) {
      const Expr& e = k_.exprs[i];
      const bool moves = e.kind == ExprKind::kIndex || (e.kind == ExprKind::kLoad && k_.loads[e.index].strides[0] != 0);
      shared[i] = shared[i] && !moves;
      for (uint32_t arg : e.args) shared[i] = shared[i] && (arg == kNoExpr || shared[arg]);
    }
    V size = code_.Size(1);
    V blocks = b_.CreateUDiv(b_.CreateAdd(size, b_.CreateSub(code_.Block(), code_.I64(1))), code_.Block());
    V fit = b_.CreateUDiv(code_.I64(kGroup), b_.CreateAdd(size, code_.I64(1)));
    V many = b_.CreateAnd(b_.CreateICmpEQ(blocks, code_.I64(1)), b_.CreateICmpUGT(fit, code_.I64(1)));
    V most = b_.CreateSelect(many, fit, code_.I64(1));  // a row of several blocks is that many tasks
    V groups = b_.CreateUDiv(b_.CreateAdd(b_.CreateSub(end, begin), b_.CreateSub(most, code_.I64(1))), most);
    code_.Loop(code_.I64(0), groups, 1, {}, [&](V group, Values) {
      V task = b_.CreateAdd(begin, b_.CreateMul(group, most));
      V count = code_.MinOf(most, b_.CreateSub(end, task));
      Scope first = code_.NewScope();
      for (size_t a = 0; a < code_.accesses(); ++a) first.positions[a] = code_.Offset(a);
      code_.Advance(first, 0, b_.CreateUDiv(task, blocks));
      V start = b_.CreateMul(b_.CreateURem(task, blocks), code_.Block());
      const auto go_down = [&](const std::vector<Lanes>& panel) {
        std::vector<Scope> top(panel.size(), first);
        code_.Compute(shared, top, panel, 0);
        code_.Loop(code_.I64(0), count, 1, {}, [&](V row, Values) {
          Scope there = first;
          code_.Advance(there, 0, row);
          std::vector<Scope> scopes = top;
          for (Scope& scope : scopes) scope.positions = there.positions;
          code_.Announce(there, panel, 0, count, false);
          ComputeAndStore(needed, scopes, panel);
          return Values{};
        });
      };
      vectors_.ForEachPanel(start, code_.MinOf(b_.CreateAdd(start, code_.Block()), size), go_down);
      return Values{};
    });
  }

 private:
  void ComputeAndStore(const std::vector<bool>& needed, std::vector<Scope>& scopes, const std::vector<Lanes>& panel) {
    code_.Compute(needed, scopes, panel, 0);
    for (size_t s = 0; s < k_.stores.size(); ++s) {
      for (size_t u = 0; u < panel.size(); ++u) code_.StoreTo(s, scopes[u], panel[u], true);
    }
  }

  ExpressionCode& code_;
  const LoopKernel& k_;
  llvm::IRBuilder<>& b_;
  VectorWalk vectors_;
};

// Column reductions: a panel of vectors goes down the reduced dimensions.
class ColumnsCode {
 public:
  using Scope = ExpressionCode::Scope;
  using Lanes = ExpressionCode::Lanes;
  using Cascade = ExpressionCode::Cascade;

  ColumnsCode(ExpressionCode& code, ReductionCode& reduced)
      : code_(code), k_(code.kernel()), b_(code.builder()), vectors_(code), reduced_(reduced) {}

  void Run(const Scope& outer, V start, V end) {
    const int lanes = code_.layout().lanes;
    if (code_.masks()) {
      std::vector<Lanes> panel;
      for (int u = 0; u < code_.layout().panel; ++u) {
        V v = u == 0 ? start : b_.CreateAdd(start, code_.I64(u * lanes));
        panel.push_back(Lanes{lanes, v, code_.MaskOf(v, end, lanes)});
      }
      Panel(outer, panel);
      return;
    }
    V at = code_
               .Loop(
                   start, end, code_.layout().panel * lanes, {},
                   [&](V v, Values) {
                     Panel(outer, vectors_.SideBySide(v, code_.layout().panel));
                     return Values{};
                   },
                   code_.layout().panel * lanes - 1)
               .index;
    code_.Loop(at, end, 1, {}, [&](V v, Values) {
      Panel(outer, {Lanes{1, v, nullptr}});
      return Values{};
    });
  }

 private:
  // One step of the reduced dimensions. `tops`: what does not change along them.
  Values AddToPanel(const Scope& scope, const std::vector<Lanes>& panel, const std::vector<bool>& needed,
                    const std::vector<Scope>& tops, Values current) {
    const int64_t ahead = panel[0].count > 1 ? code_.layout().ahead : 0;
    Scope shared = scope;
    code_.Compute(needed, shared, Lanes{}, 0, [](const Dependence& d) { return !d.vector; });
    if (ahead > 0) code_.Announce(scope, panel, k_.dims.size() - 1, code_.I64(ahead), true);
    std::vector<Scope> inner(panel.size(), shared);
    for (size_t u = 0; u < panel.size(); ++u) {
      for (size_t i = 0; i < shared.values.size(); ++i) {
        if (shared.values[i] == nullptr) inner[u].values[i] = tops[u].values[i];
      }
      reduced_.SetReduced(inner[u], Accumulated(current, panel.size(), u, k_.reductions.size(), k_.carries.size()),
                          ExprKind::kCarried);
    }
    code_.Compute(needed, inner, panel, 0);
    for (size_t u = 0; u < panel.size(); ++u) {
      for (size_t r = 0; r < k_.reductions.size(); ++r) {
        V& a = current[r * panel.size() + u];
        a = code_.Combine(k_.reductions[r], a, code_.Vector(k_.reductions[r].expr, inner[u], panel[u].count));
      }
      for (size_t c = 0; c < k_.carries.size(); ++c) {
        current[(k_.reductions.size() + c) * panel.size() + u] =
            code_.Vector(k_.carries[c].next, inner[u], panel[u].count);
      }
      for (size_t s = 0; s < k_.stores.size(); ++s) {
        if (!k_.stores[s].row) code_.StoreTo(s, inner[u], panel[u], true);
      }
    }
    return current;
  }

  void Panel(const Scope& outer, const std::vector<Lanes>& panel) {
    if (k_.turned) return TurnedCode(code_, reduced_, panel[0]).Run(outer);
    std::vector<uint32_t> roots;
    for (const Reduction& r : k_.reductions) roots.push_back(r.expr);
    for (const Carry& c : k_.carries) roots.insert(roots.end(), {c.start, c.next});
    for (const Store& s : k_.stores) {
      if (!s.row) roots.push_back(s.expr);
    }
    const std::vector<bool> needed = code_.Needed(roots, -1);
    // Values that do not change along the reduction are loaded once.
    std::vector<Scope> tops(panel.size(), outer);
    for (size_t u = 0; u < panel.size(); ++u) {
      code_.Compute(needed, tops[u], panel[u], 0, [](const Dependence& d) { return !d.reduced && d.stage == 0; });
    }
    Values accumulators;  // reductions, then carries; the panel's vectors of each
    for (const Reduction& r : k_.reductions) {
      for (const Lanes& at : panel) accumulators.push_back(code_.Identity(r, at.count));
    }
    for (const Carry& c : k_.carries) {
      for (size_t u = 0; u < panel.size(); ++u) accumulators.push_back(code_.Vector(c.start, tops[u], panel[u].count));
    }
    const Values done = code_.IfNeeded(0, tops, panel, accumulators,
                                       [&] { return SumsOfPanel(outer, panel, needed, tops, accumulators); });
    for (size_t u = 0; u < panel.size(); ++u) {
      Scope scope = tops[u];
      reduced_.SetReduced(scope, Accumulated(done, panel.size(), u, 0, k_.reductions.size()));
      reduced_.SetReduced(scope, Accumulated(done, panel.size(), u, k_.reductions.size(), k_.carries.size()),
                          ExprKind::kFolded);
      reduced_.StoreRows(scope, panel[u]);
    }
  }

  Values SumsOfPanel(const Scope& outer, const std::vector<Lanes>& panel, const std::vector<bool>& needed,
                     const std::vector<Scope>& tops, Values accumulators) {
    const size_t last = k_.dims.size() - 1;
    const std::vector<size_t> long_sums = SumsOf(reduced_.Cascading(reduced_.EveryReduction()), panel.size());
    const auto down = [&](const Scope& scope, V from, V to, Values now) {
      const auto step = [&](V index, Values current) {
        Scope deeper = scope;
        code_.Advance(deeper, last, index);
        return AddToPanel(deeper, panel, needed, tops, std::move(current));
      };
      return reduced_.LoopInRow(!long_sums.empty(), from, to, 1, std::move(now), step).carried;
    };
    const Cascade cascade = code_.NewCascade(Chosen(accumulators, long_sums));
    if (!long_sums.empty()) accumulators = code_.WithCounts(std::move(accumulators));
    Values done = reduced_.Nest(k_.parallel_dims(), last, outer, accumulators, [&](const Scope& scope, Values current) {
      const auto body = [&](V from, V to, Values now) { return down(scope, from, to, std::move(now)); };
      if (long_sums.empty()) return body(code_.I64(0), reduced_.ReducedEnd(last), std::move(current));
      const auto next = [&](V blocks, Values now) {
        code_.PutAway(cascade, blocks, Chosen(now, long_sums));
        for (size_t at : long_sums) now[at] = accumulators[at];
        return now;
      };
      const auto steps = [](V length) { return length; };
      return code_.InBlocks(last, reduced_.ReducedEnd(last), kSumSteps, std::move(current), body, steps, next);
    });
    if (!long_sums.empty()) {
      const Values totals = code_.TotalOf(cascade, done.back(), Chosen(done, long_sums));
      for (size_t i = 0; i < totals.size(); ++i) done[long_sums[i]] = totals[i];
      done.resize(done.size() - ExpressionCode::kCounts);
    }
    return done;
  }

  // Where the panel's sums of these reductions stand among the accumulators.
  static std::vector<size_t> SumsOf(const std::vector<uint32_t>& reductions, size_t panel) {
    std::vector<size_t> at;
    for (uint32_t r : reductions) {
      for (size_t u = 0; u < panel; ++u) at.push_back(r * panel + u);
    }
    return at;
  }
  static Values Chosen(const Values& all, const std::vector<size_t>& at) {
    Values chosen;
    for (size_t i : at) chosen.push_back(all[i]);
    return chosen;
  }

  // Number and value of `count` accumulators from `first` on, those of one vector of the panel.
  static std::vector<std::pair<uint32_t, V>> Accumulated(const Values& all, size_t panel, size_t u, size_t first,
                                                         size_t count) {
    std::vector<std::pair<uint32_t, V>> some;
    for (size_t k = 0; k < count; ++k) some.push_back({static_cast<uint32_t>(k), all[(first + k) * panel + u]});
    return some;
  }

  ExpressionCode& code_;
  const LoopKernel& k_;
  llvm::IRBuilder<>& b_;
  VectorWalk vectors_;
  ReductionCode& reduced_;
};

// Row reductions: vectors along the row, several passes over it.
class RowsCode {
 public:
  using Scope = ExpressionCode::Scope;
  using Lanes = ExpressionCode::Lanes;
  using LoopEnd = ExpressionCode::LoopEnd;
  using Cascade = ExpressionCode::Cascade;

  RowsCode(ExpressionCode& code, ReductionCode& reduced)
      : code_(code), k_(code.kernel()), b_(code.builder()), vectors_(code), reduced_(reduced) {}

  void Run(Scope scope) {
    const std::vector<bool> all = code_.AllNeeded();
    const auto row_level = [](const Dependence& d) { return !d.vector && !d.reduced; };
    for (int stage = 0; stage < k_.stages; ++stage) {
      code_.Compute(all, scope, Lanes{}, stage, [&](const Dependence& d) { return row_level(d) && d.stage <= stage; });
      if (code_.Roots(stage).empty()) continue;
      std::vector<uint32_t> reduced;
      Values without;
      for (uint32_t r = 0; r < k_.reductions.size(); ++r) {
        if (k_.reductions[r].stage != stage) continue;
        reduced.push_back(r);
        without.push_back(code_.Identity(k_.reductions[r], 1));
      }
      const Lanes row[] = {Lanes{}};
      const Values done =
          code_.IfNeeded(stage, {&scope, 1}, row, without, [&] { return PassOfRow(scope, stage, reduced); });
      std::vector<std::pair<uint32_t, V>> results;
      for (size_t k = 0; k < reduced.size(); ++k) results.push_back({reduced[k], done[k]});
      reduced_.SetReduced(scope, results);
    }
    code_.Compute(all, scope, Lanes{}, k_.stages, row_level);
    for (size_t s = 0; s < k_.stores.size(); ++s) {
      if (k_.stores[s].row) code_.StoreTo(s, scope, Lanes{}, false);
    }
  }

 private:
  // Emits one pass over the row: its stores, and its reductions, which it returns.
  Values PassOfRow(const Scope& scope, int stage, const std::vector<uint32_t>& reduced) {
    const size_t vector = k_.dims.size() - 1;
    const std::vector<bool> needed = code_.Needed(code_.Roots(stage), stage);
    size_t work = 0;
    for (size_t i = 0; i < needed.size(); ++i) work += needed[i] && scope.values[i] == nullptr;
    const bool small = ReductionCode::IsSmall(work);
    const int unroll = ReductionCode::Unroll(work, reduced.size());
    const int lanes = code_.layout().lanes;
    const int side =
        unroll > 1 ? unroll : std::min(code_.layout().side, VectorsSideBySide(k_, needed, code_.target(), lanes));
    Values accumulators;  // per reduction: `unroll` vectors, then a scalar where there are no masks
    const size_t per = unroll + (code_.masks() ? 0 : 1);
    for (uint32_t r : reduced) {
      for (int u = 0; u < unroll; ++u) accumulators.push_back(code_.Identity(k_.reductions[r], lanes));
      if (!code_.masks()) accumulators.push_back(code_.Identity(k_.reductions[r], 1));
    }
    // The sum of all parts of reduction reduced[k].
    const auto sum_of = [&](const Values& all, size_t k) {
      const Reduction& r = k_.reductions[reduced[k]];
      Values parts(all.begin() + k * per, all.begin() + k * per + unroll);
      while (parts.size() > 1) {
        Values halves;
        for (size_t i = 0; i + 1 < parts.size(); i += 2) halves.push_back(code_.Combine(r, parts[i], parts[i + 1]));
        parts = halves;
      }
      V result = code_.Horizontal(r, parts[0]);
      return code_.masks() ? result : code_.Combine(r, result, all[k * per + unroll]);
    };
    const std::vector<uint32_t> cascading = reduced_.Cascading(reduced);
    const auto sums = [&](const Values& all) {
      Values some;
      for (size_t k = 0; k < reduced.size(); ++k) {
        if (std::ranges::count(cascading, reduced[k]) != 0) some.push_back(sum_of(all, k));
      }
      return some;
    };
    Values zeros;
    for (uint32_t r : cascading) zeros.push_back(code_.Identity(k_.reductions[r], 1));
    const Cascade cascade = code_.NewCascade(zeros);
    const auto next = [&](V blocks, Values now) {
      code_.PutAway(cascade, blocks, sums(now));
      for (size_t k = 0; k < reduced.size(); ++k) {
        if (std::ranges::count(cascading, reduced[k]) == 0) continue;
        std::copy_n(accumulators.begin() + k * per, per, now.begin() + k * per);
      }
      return now;
    };
    const Values start = cascading.empty() ? accumulators : code_.WithCounts(accumulators);
    Values done = reduced_.Nest(k_.parallel_dims(), vector, scope, start, [&](const Scope& outer, Values current) {
      Scope shared = outer;
      code_.Compute(needed, shared, Lanes{}, stage, [](const Dependence& d) { return !d.vector; });
      // Vectors have a sum each or one for all; `first_sum` is not 0 for scalars, whose sum stands behind them.
      const auto body = [&](const std::vector<Lanes>& panel, int first_sum, Values carried) {
        std::vector<Scope> inner(panel.size(), shared);
        code_.Compute(needed, inner, panel, stage);
        for (size_t k = 0; k < reduced.size(); ++k) {
          const Reduction& r = k_.reductions[reduced[k]];
          for (size_t u = 0; u < panel.size(); ++u) {
            V& a = carried[k * per + first_sum + (unroll > 1 ? u : 0)];
            V next = code_.Combine(r, a, code_.Vector(r.expr, inner[u], panel[u].count));
            a = panel[u].mask == nullptr ? next : b_.CreateSelect(panel[u].mask, next, a);
          }
        }
        for (size_t s = 0; s < k_.stores.size(); ++s) {
          if (k_.stores[s].row || k_.stores[s].stage != stage) continue;
          for (size_t u = 0; u < panel.size(); ++u) code_.StoreTo(s, inner[u], panel[u], true);
        }
        return carried;
      };
      const auto along = [&](V begin, V size, Values carried) {
        const auto whole = [&](LoopEnd from, int vectors) {
          const int step = vectors * lanes;
          return reduced_.LoopInRow(
              !cascading.empty(), from.index, size, step, std::move(from.carried),
              [&](V v, Values now) { return body(vectors_.SideBySide(v, vectors), 0, std::move(now)); }, step - 1);
        };
        LoopEnd at{begin, std::move(carried)};
        if (side > 1) at = whole(std::move(at), side);
        if (unroll == 1 && (!code_.masks() || (small && side == 1))) at = whole(std::move(at), 1);
        const auto rest = [&](V v, Values now) {
          if (code_.masks()) return body({Lanes{lanes, v, code_.MaskOf(v, size, lanes)}}, 0, std::move(now));
          return body({Lanes{1, v, nullptr}}, unroll, std::move(now));
        };
        return reduced_
            .LoopInRow(!cascading.empty(), at.index, size, code_.masks() ? lanes : 1, std::move(at.carried), rest)
            .carried;
      };
      return reduced_.Row(int64_t{unroll} * lanes, std::move(current), cascading, along, next);
    });
    Values results;
    const Values totals = cascading.empty() ? Values{} : code_.TotalOf(cascade, done.back(), sums(done));
    for (size_t k = 0, i = 0; k < reduced.size(); ++k) {
      const bool cascades = std::ranges::count(cascading, reduced[k]) != 0;
      results.push_back(cascades ? totals[i++] : sum_of(done, k));
    }
    return results;
  }

  ExpressionCode& code_;
  const LoopKernel& k_;
  llvm::IRBuilder<>& b_;
  VectorWalk vectors_;
  ReductionCode& reduced_;
};

class LoopEmitter {
 public:
  using Scope = ExpressionCode::Scope;
  using Lanes = ExpressionCode::Lanes;

  LoopEmitter(const LoopKernel& kernel, const CpuTarget& target, JitModule& module, const std::string& symbol)
      : code_(kernel, target, module, symbol), k_(kernel), b_(code_.builder()) {}

  const absl::Status& status() const { return code_.status(); }

  void Run() {
    const auto [begin, end] = code_.Begin();
    if (code_.layout().form == Form::kElementwise && SharesAlongRows(k_)) {
      ElementwiseCode(code_).RowGroups(begin, end);
    } else {
      code_.Loop(begin, end, 1, {}, [&](V task, Values) {
        Task(task);
        return Values{};
      });
    }
    code_.Return();
  }

 private:
  void Task(V task) {
    Scope scope = code_.NewScope();
    for (size_t a = 0; a < code_.accesses(); ++a) scope.positions[a] = code_.Offset(a);
    const size_t parallel = k_.parallel_dims();
    V rest = task;
    V block = nullptr;
    Values indices(k_.dims.size(), nullptr);
    if (code_.layout().form != Form::kRows) {
      // The innermost part of a task number is the block of the vector dimension.
      V size = code_.Size(parallel - 1);
      V blocks = b_.CreateUDiv(b_.CreateAdd(size, b_.CreateSub(code_.Block(), code_.I64(1))), code_.Block());
      if (parallel == 1) {
        block = task;
      } else {
        block = b_.CreateURem(task, blocks);
        rest = b_.CreateUDiv(task, blocks);
      }
    }
    const size_t outer = code_.layout().form == Form::kRows ? parallel : parallel - 1;
    for (size_t d = outer; d-- > 0;) {
      V index = rest;
      if (d > 0) {
        index = b_.CreateURem(rest, code_.Size(d));
        rest = b_.CreateUDiv(rest, code_.Size(d));
      }
      indices[d] = index;
      code_.Advance(scope, d, index);
    }
    if (code_.layout().form == Form::kRows) {
      ReductionCode reduced(code_, std::move(indices));
      return RowsCode(code_, reduced).Run(scope);
    }
    const auto uniform = [](const Dependence& d) { return !d.vector && !d.reduced && d.stage == 0; };
    code_.Compute(code_.AllNeeded(), scope, Lanes{}, 0, uniform);
    V start = b_.CreateMul(block, code_.Block());
    V end = code_.MinOf(b_.CreateAdd(start, code_.Block()), code_.Size(parallel - 1));
    if (code_.layout().form == Form::kElementwise) {
      ElementwiseCode(code_).Run(scope, start, end);
    } else {
      ReductionCode reduced(code_, std::move(indices));
      ColumnsCode(code_, reduced).Run(scope, start, end);
    }
  }

  ExpressionCode code_;
  const LoopKernel& k_;
  llvm::IRBuilder<>& b_;
};

}  // namespace

absl::StatusOr<std::string> CompileLoops(const Jit& jit, std::span<const LoopKernel* const> kernels,
                                         std::span<const std::string> symbols, Jit::Form form) {
  auto module = std::make_unique<JitModule>("weft_loops");
  for (size_t i = 0; i < kernels.size(); ++i) {
    LoopEmitter emitter(*kernels[i], jit.target(), *module, symbols[i]);
    emitter.Run();
    WEFT_RETURN_IF_ERROR(emitter.status());
  }
  return jit.Compile(std::move(module), form);
}

absl::StatusOr<std::string> LoopText(const LoopKernel& kernel, const CpuTarget& target) {
  JitModule module("weft_loops");
  LoopEmitter emitter(kernel, target, module, "loop");
  emitter.Run();
  WEFT_RETURN_IF_ERROR(emitter.status());
  return TextOf(module);
}

}  // namespace weft::cpu
