// See codegen.h. Three shapes of code: elementwise (vectors along the last parallel dimension), column reductions (the
// same, with loops over the reduced dimensions inside a panel of vectors) and row reductions (vectors along the last
// reduced dimension, several passes over a row that stays in cache).
#include "src/backends/cpu/loop/codegen.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "src/backends/cpu/loop/expression_code.h"
#include "src/backends/cpu/loop/side_by_side.h"
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

class LoopEmitter : ExpressionCode {
 public:
  using ExpressionCode::ExpressionCode;
  using ExpressionCode::status;

  void Run() {
    llvm::LLVMContext& context = b_.getContext();
    auto* entry = llvm::BasicBlock::Create(context, "entry", function_);
    auto* start = llvm::BasicBlock::Create(context, "start", function_);
    entry_.SetInsertPoint(entry);
    entry_.SetInsertPoint(entry_.CreateBr(start));
    b_.SetInsertPoint(start);
    V begin = function_->getArg(2), end = function_->getArg(3);
    if (layout_.form == Form::kElementwise && SharesAlongRows(k_)) {
      RowGroups(begin, end);
    } else {
      Loop(begin, end, 1, {}, [&](V task, Values) {
        Task(task);
        return Values{};
      });
    }
    Return();
  }

 private:
  void Task(V task) {
    Scope scope = NewScope();
    for (size_t a = 0; a < accesses(); ++a) scope.positions[a] = Offset(a);
    const size_t parallel = k_.parallel_dims();
    V rest = task;
    V block = nullptr;
    indices_.assign(k_.dims.size(), nullptr);
    if (layout_.form != Form::kRows) {
      // The innermost part of a task number is the block of the vector dimension.
      V size = Size(parallel - 1);
      V blocks = b_.CreateUDiv(b_.CreateAdd(size, b_.CreateSub(Block(), I64(1))), Block());
      if (parallel == 1) {
        block = task;
      } else {
        block = b_.CreateURem(task, blocks);
        rest = b_.CreateUDiv(task, blocks);
      }
    }
    const size_t outer = layout_.form == Form::kRows ? parallel : parallel - 1;
    for (size_t d = outer; d-- > 0;) {
      V index = rest;
      if (d > 0) {
        index = b_.CreateURem(rest, Size(d));
        rest = b_.CreateUDiv(rest, Size(d));
      }
      indices_[d] = index;
      Advance(scope, d, index);
    }
    if (layout_.form == Form::kRows) {
      Rows(scope);
      return;
    }
    const auto uniform = [](const Dependence& d) { return !d.vector && !d.reduced && d.stage == 0; };
    Compute(AllNeeded(), scope, Lanes{}, 0, uniform);
    V start = b_.CreateMul(block, Block());
    V end = MinOf(b_.CreateAdd(start, Block()), Size(parallel - 1));
    if (layout_.form == Form::kElementwise) {
      Elementwise(scope, start, end);
    } else {
      Columns(scope, start, end);
    }
  }

  void Elementwise(const Scope& outer, V start, V end) {
    const std::vector<bool> needed = AllNeeded();
    ForEachPanel(start, end, [&](const std::vector<Lanes>& panel) {
      std::vector<Scope> scopes(panel.size(), outer);
      if (k_.product >= 0) Announce(outer, panel, 0, Size(0), false);  // the next block's, while its product is made
      ComputeAndStore(needed, scopes, panel);
    });
  }

  void ComputeAndStore(const std::vector<bool>& needed, std::vector<Scope>& scopes, const std::vector<Lanes>& panel) {
    Compute(needed, scopes, panel, 0);
    for (size_t s = 0; s < k_.stores.size(); ++s) {
      for (size_t u = 0; u < panel.size(); ++u) StoreTo(s, scopes[u], panel[u], true);
    }
  }

  // Tasks that are rows, a few of them at a time: each panel of columns goes down them with what they share in registers. Short
  // rows (a pixel's 16 to 200 channels) cost more to begin than to compute.
  void RowGroups(V begin, V end) {
    const std::vector<bool> needed = AllNeeded();
    std::vector<bool> shared = needed;
    for (size_t i = 0; i < shared.size(); ++i) {
      const Expr& e = k_.exprs[i];
      const bool moves = e.kind == ExprKind::kIndex || (e.kind == ExprKind::kLoad && k_.loads[e.index].strides[0] != 0);
      shared[i] = shared[i] && !moves;
      for (uint32_t arg : e.args) shared[i] = shared[i] && (arg == kNoExpr || shared[arg]);
    }
    V size = Size(1);
    V blocks = b_.CreateUDiv(b_.CreateAdd(size, b_.CreateSub(Block(), I64(1))), Block());
    V fit = b_.CreateUDiv(I64(kGroup), b_.CreateAdd(size, I64(1)));
    V many = b_.CreateAnd(b_.CreateICmpEQ(blocks, I64(1)), b_.CreateICmpUGT(fit, I64(1)));
    V most = b_.CreateSelect(many, fit, I64(1));  // a row of several blocks is that many tasks
    V groups = b_.CreateUDiv(b_.CreateAdd(b_.CreateSub(end, begin), b_.CreateSub(most, I64(1))), most);
    Loop(I64(0), groups, 1, {}, [&](V group, Values) {
      V task = b_.CreateAdd(begin, b_.CreateMul(group, most));
      V count = MinOf(most, b_.CreateSub(end, task));
      Scope first = NewScope();
      for (size_t a = 0; a < accesses(); ++a) first.positions[a] = Offset(a);
      Advance(first, 0, b_.CreateUDiv(task, blocks));
      V start = b_.CreateMul(b_.CreateURem(task, blocks), Block());
      ForEachPanel(start, MinOf(b_.CreateAdd(start, Block()), size), [&](const std::vector<Lanes>& panel) {
        std::vector<Scope> top(panel.size(), first);
        Compute(shared, top, panel, 0);
        Loop(I64(0), count, 1, {}, [&](V row, Values) {
          Scope there = first;
          Advance(there, 0, row);
          std::vector<Scope> scopes = top;
          for (size_t u = 0; u < panel.size(); ++u) {
            scopes[u].positions = there.positions;
          }
          Announce(there, panel, 0, count, false);
          ComputeAndStore(needed, scopes, panel);
          return Values{};
        });
      });
      return Values{};
    });
  }

  // Vectors side by side while there are so many, then one after the other, the last of them masked or its elements alone.
  void ForEachPanel(V start, V end, const std::function<void(const std::vector<Lanes>&)>& body) {
    const int lanes = layout_.lanes;
    const auto whole = [&](V from, int side) {
      const int step = side * lanes;
      const auto at = [&](V v, Values) {
        body(SideBySide(v, side));
        return Values{};
      };
      return Loop(from, end, step, {}, at, step - 1).index;
    };
    V at = start;
    if (layout_.side > 1) at = whole(at, layout_.side);
    if (!masks_ || (layout_.side == 1 && k_.exprs.size() <= 24)) at = whole(at, 1);
    Loop(at, end, masks_ ? lanes : 1, {}, [&](V v, Values) {
      body({masks_ ? Lanes{lanes, v, MaskOf(v, end, lanes)} : Lanes{1, v, nullptr}});
      return Values{};
    });
  }

  std::vector<Lanes> SideBySide(V v, int vectors) {
    std::vector<Lanes> panel;
    for (int u = 0; u < vectors; ++u) {
      panel.push_back(Lanes{layout_.lanes, u == 0 ? v : b_.CreateAdd(v, I64(u * layout_.lanes)), nullptr});
    }
    return panel;
  }

  // Loops over reduced dimensions [d, last), then `inner`.
  Values Nest(size_t d, size_t last, const Scope& scope, Values carried,
              const std::function<Values(const Scope&, Values)>& inner) {
    if (d == last) return inner(scope, std::move(carried));
    return LoopAlong(d, I64(0), ReducedEnd(d), 1, std::move(carried),
                     [&](V index, Values current) {
                       Scope deeper = scope;
                       Advance(deeper, d, index);
                       if (!cached_.empty()) {
                         V base = deeper.linear == nullptr ? index : b_.CreateAdd(deeper.linear, index);
                         deeper.linear = b_.CreateMul(base, Size(d + 1));
                       }
                       return Nest(d + 1, last, deeper, std::move(current), inner);
                     })
        .carried;
  }

  V ReducedEnd(size_t d) {
    if (k_.dims[d].chunk_dim < 0) return Size(d);
    V begin = b_.CreateMul(indices_[k_.dims[d].chunk_dim], Size(d));
    return MinOf(Size(d), b_.CreateSub(Total(d), begin));
  }

  void SetReduced(Scope& scope, const std::vector<std::pair<uint32_t, V>>& results,
                  ExprKind kind = ExprKind::kReduced) {
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      for (const auto& [k, value] : results) {
        if (k_.exprs[i].kind == kind && k_.exprs[i].index == k) scope.values[i] = value;
      }
    }
  }

  void Columns(const Scope& outer, V start, V end) {
    const int lanes = layout_.lanes;
    if (masks_) {
      std::vector<Lanes> panel;
      for (int u = 0; u < layout_.panel; ++u) {
        V v = u == 0 ? start : b_.CreateAdd(start, I64(u * lanes));
        panel.push_back(Lanes{lanes, v, MaskOf(v, end, lanes)});
      }
      Panel(outer, panel);
      return;
    }
    V at = Loop(
               start, end, layout_.panel * lanes, {},
               [&](V v, Values) {
                 Panel(outer, SideBySide(v, layout_.panel));
                 return Values{};
               },
               layout_.panel * lanes - 1)
               .index;
    Loop(at, end, 1, {}, [&](V v, Values) {
      Panel(outer, {Lanes{1, v, nullptr}});
      return Values{};
    });
  }

  // Rows side by side, one a lane. Every row's parts are those that Rows has: element j goes to part j % turn, the last ones, which
  // fill no turn, to part j % lanes or, without masks, to one more part; then the same tree.
  struct Parts {
    std::vector<llvm::Type*> types;  // per reduction
    std::vector<V> memory;
    int64_t turn = 0;  // lanes times the vectors that Rows sums side by side
    bool turns = false;
  };
  V Slot(const Parts& parts, size_t r, V part) { return b_.CreateInBoundsGEP(parts.types[r], parts.memory[r], part); }
  V LoadPart(const Parts& parts, size_t r, V part) { return b_.CreateLoad(parts.types[r], Slot(parts, r, part)); }

  Parts NewParts(const std::vector<bool>& needed, const Lanes& at) {
    size_t work = 0;
    for (size_t i = 0; i < needed.size(); ++i) work += needed[i] && deps_[i].reduced;
    Parts parts;
    parts.turn = int64_t{Unroll(work, k_.reductions.size())} * layout_.lanes;
    parts.turns = IsSmall(work) || !masks_;
    for (const Reduction& r : k_.reductions) {
      parts.types.push_back(Identity(r, at.count)->getType());
      auto* type = llvm::ArrayType::get(parts.types.back(), static_cast<uint64_t>(parts.turn) + 1);
      parts.memory.push_back(entry_.CreateAlloca(type));
    }
    Empty(parts, EveryReduction(), at);
    return parts;
  }
  void Empty(const Parts& parts, const std::vector<uint32_t>& reductions, const Lanes& at) {
    Loop(I64(0), I64(parts.turn + 1), 1, {}, [&](V part, Values) {
      for (uint32_t r : reductions) b_.CreateStore(Identity(k_.reductions[r], at.count), Slot(parts, r, part));
      return Values{};
    });
  }
  std::vector<uint32_t> EveryReduction() const {
    std::vector<uint32_t> all(k_.reductions.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  // Those of `reductions` whose sums are put away block by block; none where no sum is so long.
  std::vector<uint32_t> Cascading(std::vector<uint32_t> reductions) const {
    std::erase_if(reductions, [&](uint32_t r) { return !layout_.cascade || !Cascades(k_.reductions[r]); });
    return reductions;
  }
  // Additions to one part that `length` elements of a row are.
  V StepsOfRow(V length, int64_t turn) {
    const auto log = [](int64_t n) { return static_cast<uint64_t>(std::countr_zero(static_cast<uint64_t>(n))); };
    V rest = b_.CreateAnd(length, I64(turn - 1));
    if (masks_) rest = b_.CreateLShr(b_.CreateAdd(rest, I64(layout_.lanes - 1)), log(layout_.lanes));
    return b_.CreateAdd(b_.CreateLShr(length, log(turn)), rest);
  }

  void Turned(const Scope& outer, const Lanes& at) {
    const std::vector<bool> needed = Needed(Roots(0), -1);
    Scope top = outer;
    Compute(needed, top, at, 0, [](const Dependence& d) { return !d.reduced && d.stage == 0; });
    Values without;
    for (const Reduction& r : k_.reductions) without.push_back(Identity(r, at.count));
    const Values done = IfNeeded(0, {&top, 1}, {&at, 1}, without, [&] { return SumsOfTurned(outer, needed, top, at); });
    std::vector<std::pair<uint32_t, V>> results;
    for (uint32_t k = 0; k < done.size(); ++k) results.push_back({k, done[k]});
    SetReduced(top, results);
    StoreRows(top, at);
  }

  Values SumsOfTurned(const Scope& outer, const std::vector<bool>& needed, const Scope& top, const Lanes& at) {
    const Parts parts = NewParts(needed, at);
    const size_t along = k_.dims.size() - 1;
    const std::vector<uint32_t> cascading = Cascading(EveryReduction());
    const auto sums = [&] {
      Values all;
      for (uint32_t r : cascading) all.push_back(SumOfParts(parts, r));
      return all;
    };
    Values zeros;
    for (uint32_t r : cascading) zeros.push_back(Identity(k_.reductions[r], at.count));
    const Cascade cascade = NewCascade(zeros);
    const Values counts = Nest(k_.parallel_dims(), along, outer, cascading.empty() ? Values{} : WithCounts({}),
                               [&](const Scope& scope, Values now) {
                                 const auto body = [&](V from, V to, Values) {
                                   AddToParts(parts, needed, scope, top, at, !cascading.empty(), from, to);
                                   return Values{};
                                 };
                                 const auto next = [&](V blocks, Values) {
                                   PutAway(cascade, blocks, sums());
                                   Empty(parts, cascading, at);
                                   return Values{};
                                 };
                                 return Row(parts.turn, std::move(now), cascading, body, next);
                               });
    Values results(k_.reductions.size());
    for (uint32_t k = 0; k < results.size(); ++k) {
      if (std::ranges::count(cascading, k) == 0) results[k] = SumOfParts(parts, k);
    }
    if (cascading.empty()) return results;
    const Values totals = TotalOf(cascade, counts.back(), sums());
    for (size_t i = 0; i < totals.size(); ++i) results[cascading[i]] = totals[i];
    return results;
  }

  // `body` along a row, in blocks where sums cascade.
  Values Row(int64_t turn, Values carried, const std::vector<uint32_t>& cascading, const Body& body, const Next& next) {
    const size_t along = k_.dims.size() - 1;
    if (cascading.empty()) return body(I64(0), ReducedEnd(along), std::move(carried));
    const auto steps = [&](V length) { return StepsOfRow(length, turn); };
    return InBlocks(along, ReducedEnd(along), kSumSteps * turn, std::move(carried), body, steps, next);
  }
  // A loop of such a body, along the last dimension. Blocks are short: looks are between them.
  LoopEnd LoopInRow(bool in_block, V from, V to, int64_t step, Values carried,
                    const std::function<Values(V, Values)>& body, int64_t reach = 0) {
    if (in_block) return Loop(from, to, step, std::move(carried), body, reach);
    return LoopAlong(k_.dims.size() - 1, from, to, step, std::move(carried), body, reach);
  }

  // Elements [begin, size) of one line of the rows; `begin` is a multiple of the turn.
  void AddToParts(const Parts& parts, const std::vector<bool>& needed, const Scope& scope, const Scope& top,
                  const Lanes& at, bool in_block, V begin, V size) {
    const size_t along = k_.dims.size() - 1;
    const auto add = [&](V j, V part) {
      Scope inner = scope;
      Advance(inner, along, j);
      for (size_t i = 0; i < inner.values.size(); ++i) {
        if (inner.values[i] == nullptr) inner.values[i] = top.values[i];
      }
      Compute(needed, inner, at, 0, Anything);
      for (size_t r = 0; r < k_.reductions.size(); ++r) {
        V x = Vector(k_.reductions[r].expr, inner, at.count);
        b_.CreateStore(Combine(k_.reductions[r], LoadPart(parts, r, part), x), Slot(parts, r, part));
      }
    };
    // From j on, as many elements as parts.
    const auto add_turn = [&](V j, V count) {
      Loop(I64(0), count, 1, {}, [&](V part, Values) {
        add(b_.CreateAdd(j, part), part);
        return Values{};
      });
      return Values{};
    };
    if (parts.turns) {
      const auto whole = [&](V j, Values) { return add_turn(j, I64(parts.turn)); };
      begin = LoopInRow(in_block, begin, size, parts.turn, {}, whole, parts.turn - 1).index;
    }
    LoopInRow(in_block, begin, size, masks_ ? layout_.lanes : 1, {}, [&](V j, Values) {
      if (masks_) return add_turn(j, MinOf(I64(layout_.lanes), b_.CreateSub(size, j)));
      add(j, I64(parts.turn));
      return Values{};
    });
  }

  // Vectors of a turn in pairs of neighbours, then the halves of one.
  V SumOfParts(const Parts& parts, size_t k) {
    const Reduction& r = k_.reductions[k];
    const int lanes = layout_.lanes;
    Values sums;
    for (int64_t part = 0; part < parts.turn; ++part) sums.push_back(LoadPart(parts, k, I64(part)));
    while (static_cast<int>(sums.size()) > lanes) {
      Values halves;
      for (size_t i = 0; i < sums.size() / 2; ++i) {
        const size_t first = i / lanes * 2 * lanes + i % lanes;
        halves.push_back(Combine(r, sums[first], sums[first + lanes]));
      }
      sums = std::move(halves);
    }
    for (int n = lanes / 2; n >= 1; n /= 2) {
      for (int i = 0; i < n; ++i) sums[i] = Combine(r, sums[i], sums[i + n]);
    }
    return masks_ ? sums[0] : Combine(r, sums[0], LoadPart(parts, k, I64(parts.turn)));
  }

  void StoreRows(Scope& scope, const Lanes& at) {
    std::vector<uint32_t> roots;
    for (const Store& s : k_.stores) {
      if (s.row) roots.push_back(s.expr);
    }
    Compute(Needed(roots, -1), scope, at, 0, [](const Dependence& d) { return !d.reduced; });
    for (size_t s = 0; s < k_.stores.size(); ++s) {
      if (k_.stores[s].row) StoreTo(s, scope, at, true);
    }
  }

  // Few operations an element wait for each other's sums.
  static bool IsSmall(size_t work) { return work <= 8; }
  static int Unroll(size_t work, size_t reductions) {
    return IsSmall(work) && reductions > 0 && reductions <= 2 ? 4 : 1;
  }

  // One step of the reduced dimensions. `tops`: what does not change along them.
  Values AddToPanel(const Scope& scope, const std::vector<Lanes>& panel, const std::vector<bool>& needed,
                    const std::vector<Scope>& tops, Values current) {
    const int64_t ahead = panel[0].count > 1 ? layout_.ahead : 0;
    Scope shared = scope;
    Compute(needed, shared, Lanes{}, 0, [](const Dependence& d) { return !d.vector; });
    if (ahead > 0) Announce(scope, panel, k_.dims.size() - 1, I64(ahead), true);
    std::vector<Scope> inner(panel.size(), shared);
    for (size_t u = 0; u < panel.size(); ++u) {
      for (size_t i = 0; i < shared.values.size(); ++i) {
        if (shared.values[i] == nullptr) inner[u].values[i] = tops[u].values[i];
      }
      SetReduced(inner[u], Accumulated(current, panel.size(), u, k_.reductions.size(), k_.carries.size()),
                 ExprKind::kCarried);
    }
    Compute(needed, inner, panel, 0);
    for (size_t u = 0; u < panel.size(); ++u) {
      for (size_t r = 0; r < k_.reductions.size(); ++r) {
        V& a = current[r * panel.size() + u];
        a = Combine(k_.reductions[r], a, Vector(k_.reductions[r].expr, inner[u], panel[u].count));
      }
      for (size_t c = 0; c < k_.carries.size(); ++c) {
        current[(k_.reductions.size() + c) * panel.size() + u] = Vector(k_.carries[c].next, inner[u], panel[u].count);
      }
      for (size_t s = 0; s < k_.stores.size(); ++s) {
        if (!k_.stores[s].row) StoreTo(s, inner[u], panel[u], true);
      }
    }
    return current;
  }

  void Panel(const Scope& outer, const std::vector<Lanes>& panel) {
    if (k_.turned) return Turned(outer, panel[0]);
    std::vector<uint32_t> roots;
    for (const Reduction& r : k_.reductions) roots.push_back(r.expr);
    for (const Carry& c : k_.carries) roots.insert(roots.end(), {c.start, c.next});
    for (const Store& s : k_.stores) {
      if (!s.row) roots.push_back(s.expr);
    }
    const std::vector<bool> needed = Needed(roots, -1);
    // Values that do not change along the reduction are loaded once.
    std::vector<Scope> tops(panel.size(), outer);
    for (size_t u = 0; u < panel.size(); ++u) {
      Compute(needed, tops[u], panel[u], 0, [](const Dependence& d) { return !d.reduced && d.stage == 0; });
    }
    Values accumulators;  // reductions, then carries; the panel's vectors of each
    for (const Reduction& r : k_.reductions) {
      for (const Lanes& at : panel) accumulators.push_back(Identity(r, at.count));
    }
    for (const Carry& c : k_.carries) {
      for (size_t u = 0; u < panel.size(); ++u) accumulators.push_back(Vector(c.start, tops[u], panel[u].count));
    }
    const Values done =
        IfNeeded(0, tops, panel, accumulators, [&] { return SumsOfPanel(outer, panel, needed, tops, accumulators); });
    for (size_t u = 0; u < panel.size(); ++u) {
      Scope scope = tops[u];
      SetReduced(scope, Accumulated(done, panel.size(), u, 0, k_.reductions.size()));
      SetReduced(scope, Accumulated(done, panel.size(), u, k_.reductions.size(), k_.carries.size()), ExprKind::kFolded);
      StoreRows(scope, panel[u]);
    }
  }

  Values SumsOfPanel(const Scope& outer, const std::vector<Lanes>& panel, const std::vector<bool>& needed,
                     const std::vector<Scope>& tops, Values accumulators) {
    const size_t last = k_.dims.size() - 1;
    const std::vector<size_t> long_sums = SumsOf(Cascading(EveryReduction()), panel.size());
    const auto down = [&](const Scope& scope, V from, V to, Values now) {
      const auto step = [&](V index, Values current) {
        Scope deeper = scope;
        Advance(deeper, last, index);
        return AddToPanel(deeper, panel, needed, tops, std::move(current));
      };
      return LoopInRow(!long_sums.empty(), from, to, 1, std::move(now), step).carried;
    };
    const Cascade cascade = NewCascade(Chosen(accumulators, long_sums));
    if (!long_sums.empty()) accumulators = WithCounts(std::move(accumulators));
    Values done = Nest(k_.parallel_dims(), last, outer, accumulators, [&](const Scope& scope, Values current) {
      const auto body = [&](V from, V to, Values now) { return down(scope, from, to, std::move(now)); };
      if (long_sums.empty()) return body(I64(0), ReducedEnd(last), std::move(current));
      const auto next = [&](V blocks, Values now) {
        PutAway(cascade, blocks, Chosen(now, long_sums));
        for (size_t at : long_sums) now[at] = accumulators[at];
        return now;
      };
      const auto steps = [](V length) { return length; };
      return InBlocks(last, ReducedEnd(last), kSumSteps, std::move(current), body, steps, next);
    });
    if (!long_sums.empty()) {
      const Values totals = TotalOf(cascade, done.back(), Chosen(done, long_sums));
      for (size_t i = 0; i < totals.size(); ++i) done[long_sums[i]] = totals[i];
      done.resize(done.size() - kCounts);
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

  void Rows(Scope scope) {
    const std::vector<bool> all = AllNeeded();
    const auto row_level = [](const Dependence& d) { return !d.vector && !d.reduced; };
    for (int stage = 0; stage < k_.stages; ++stage) {
      Compute(all, scope, Lanes{}, stage, [&](const Dependence& d) { return row_level(d) && d.stage <= stage; });
      if (Roots(stage).empty()) continue;
      std::vector<uint32_t> reduced;
      Values without;
      for (uint32_t r = 0; r < k_.reductions.size(); ++r) {
        if (k_.reductions[r].stage != stage) continue;
        reduced.push_back(r);
        without.push_back(Identity(k_.reductions[r], 1));
      }
      const Lanes row[] = {Lanes{}};
      const Values done = IfNeeded(stage, {&scope, 1}, row, without, [&] { return PassOfRow(scope, stage, reduced); });
      std::vector<std::pair<uint32_t, V>> results;
      for (size_t k = 0; k < reduced.size(); ++k) results.push_back({reduced[k], done[k]});
      SetReduced(scope, results);
    }
    Compute(all, scope, Lanes{}, k_.stages, row_level);
    for (size_t s = 0; s < k_.stores.size(); ++s) {
      if (k_.stores[s].row) StoreTo(s, scope, Lanes{}, false);
    }
  }

  // Emits one pass over the row: its stores, and its reductions, which it returns.
  Values PassOfRow(const Scope& scope, int stage, const std::vector<uint32_t>& reduced) {
    const size_t vector = k_.dims.size() - 1;
    const std::vector<bool> needed = Needed(Roots(stage), stage);
    size_t work = 0;
    for (size_t i = 0; i < needed.size(); ++i) work += needed[i] && scope.values[i] == nullptr;
    const bool small = IsSmall(work);
    const int unroll = Unroll(work, reduced.size());
    const int lanes = layout_.lanes;
    const int side = unroll > 1 ? unroll : std::min(layout_.side, VectorsSideBySide(k_, needed, target_, lanes));
    Values accumulators;  // per reduction: `unroll` vectors, then a scalar where there are no masks
    const size_t per = unroll + (masks_ ? 0 : 1);
    for (uint32_t r : reduced) {
      for (int u = 0; u < unroll; ++u) accumulators.push_back(Identity(k_.reductions[r], lanes));
      if (!masks_) accumulators.push_back(Identity(k_.reductions[r], 1));
    }
    // The sum of all parts of reduction reduced[k].
    const auto sum_of = [&](const Values& all, size_t k) {
      const Reduction& r = k_.reductions[reduced[k]];
      Values parts(all.begin() + k * per, all.begin() + k * per + unroll);
      while (parts.size() > 1) {
        Values halves;
        for (size_t i = 0; i + 1 < parts.size(); i += 2) halves.push_back(Combine(r, parts[i], parts[i + 1]));
        parts = halves;
      }
      V result = Horizontal(r, parts[0]);
      return masks_ ? result : Combine(r, result, all[k * per + unroll]);
    };
    const std::vector<uint32_t> cascading = Cascading(reduced);
    const auto sums = [&](const Values& all) {
      Values some;
      for (size_t k = 0; k < reduced.size(); ++k) {
        if (std::ranges::count(cascading, reduced[k]) != 0) some.push_back(sum_of(all, k));
      }
      return some;
    };
    Values zeros;
    for (uint32_t r : cascading) zeros.push_back(Identity(k_.reductions[r], 1));
    const Cascade cascade = NewCascade(zeros);
    const auto next = [&](V blocks, Values now) {
      PutAway(cascade, blocks, sums(now));
      for (size_t k = 0; k < reduced.size(); ++k) {
        if (std::ranges::count(cascading, reduced[k]) == 0) continue;
        std::copy_n(accumulators.begin() + k * per, per, now.begin() + k * per);
      }
      return now;
    };
    const Values start = cascading.empty() ? accumulators : WithCounts(accumulators);
    Values done = Nest(k_.parallel_dims(), vector, scope, start, [&](const Scope& outer, Values current) {
      Scope shared = outer;
      Compute(needed, shared, Lanes{}, stage, [](const Dependence& d) { return !d.vector; });
      // Vectors have a sum each or one for all; `first_sum` is not 0 for scalars, whose sum stands behind them.
      const auto body = [&](const std::vector<Lanes>& panel, int first_sum, Values carried) {
        std::vector<Scope> inner(panel.size(), shared);
        Compute(needed, inner, panel, stage);
        for (size_t k = 0; k < reduced.size(); ++k) {
          const Reduction& r = k_.reductions[reduced[k]];
          for (size_t u = 0; u < panel.size(); ++u) {
            V& a = carried[k * per + first_sum + (unroll > 1 ? u : 0)];
            V next = Combine(r, a, Vector(r.expr, inner[u], panel[u].count));
            a = panel[u].mask == nullptr ? next : b_.CreateSelect(panel[u].mask, next, a);
          }
        }
        for (size_t s = 0; s < k_.stores.size(); ++s) {
          if (k_.stores[s].row || k_.stores[s].stage != stage) continue;
          for (size_t u = 0; u < panel.size(); ++u) StoreTo(s, inner[u], panel[u], true);
        }
        return carried;
      };
      const auto along = [&](V begin, V size, Values carried) {
        const auto whole = [&](LoopEnd from, int vectors) {
          const int step = vectors * lanes;
          return LoopInRow(
              !cascading.empty(), from.index, size, step, std::move(from.carried),
              [&](V v, Values now) { return body(SideBySide(v, vectors), 0, std::move(now)); }, step - 1);
        };
        LoopEnd at{begin, std::move(carried)};
        if (side > 1) at = whole(std::move(at), side);
        if (unroll == 1 && (!masks_ || (small && side == 1))) at = whole(std::move(at), 1);
        const auto rest = [&](V v, Values now) {
          if (masks_) return body({Lanes{lanes, v, MaskOf(v, size, lanes)}}, 0, std::move(now));
          return body({Lanes{1, v, nullptr}}, unroll, std::move(now));
        };
        return LoopInRow(!cascading.empty(), at.index, size, masks_ ? lanes : 1, std::move(at.carried), rest).carried;
      };
      return Row(int64_t{unroll} * lanes, std::move(current), cascading, along, next);
    });
    Values results;
    const Values totals = cascading.empty() ? Values{} : TotalOf(cascade, done.back(), sums(done));
    for (size_t k = 0, i = 0; k < reduced.size(); ++k) {
      const bool cascades = std::ranges::count(cascading, reduced[k]) != 0;
      results.push_back(cascades ? totals[i++] : sum_of(done, k));
    }
    return results;
  }

  Values indices_;
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
