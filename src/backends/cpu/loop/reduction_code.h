// The walks that all shapes of loop kernels share: vectors side by side along one dimension, and loops over the reduced ones.
// codegen.cc has the shapes.
#pragma once

#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "src/backends/cpu/loop/expression_code.h"

namespace weft::cpu {

// Vectors along the last parallel dimension, or along a row.
class VectorWalk {
 public:
  using Scope = ExpressionCode::Scope;
  using Lanes = ExpressionCode::Lanes;

  explicit VectorWalk(ExpressionCode& code) : code_(code), k_(code.kernel()), b_(code.builder()) {}

  // Vectors side by side while there are so many, then one after the other, the last of them masked or its elements alone.
  void ForEachPanel(V start, V end, const std::function<void(const std::vector<Lanes>&)>& body) {
    const int lanes = code_.layout().lanes;
    const auto whole = [&](V from, int side) {
      const int step = side * lanes;
      const auto at = [&](V v, Values) {
        body(SideBySide(v, side));
        return Values{};
      };
      return code_.Loop(from, end, step, {}, at, step - 1).index;
    };
    V at = start;
    if (code_.layout().side > 1) at = whole(at, code_.layout().side);
    if (!code_.masks() || (code_.layout().side == 1 && k_.exprs.size() <= 24)) at = whole(at, 1);
    code_.Loop(at, end, code_.masks() ? lanes : 1, {}, [&](V v, Values) {
      body({code_.masks() ? Lanes{lanes, v, code_.MaskOf(v, end, lanes)} : Lanes{1, v, nullptr}});
      return Values{};
    });
  }

  std::vector<Lanes> SideBySide(V v, int vectors) {
    std::vector<Lanes> panel;
    for (int u = 0; u < vectors; ++u) {
      panel.push_back(
          Lanes{code_.layout().lanes, u == 0 ? v : b_.CreateAdd(v, code_.I64(u * code_.layout().lanes)), nullptr});
    }
    return panel;
  }

 private:
  ExpressionCode& code_;
  const LoopKernel& k_;
  llvm::IRBuilder<>& b_;
};

// Loops over the reduced dimensions, and what follows them.
class ReductionCode {
 public:
  using Scope = ExpressionCode::Scope;
  using Lanes = ExpressionCode::Lanes;
  using LoopEnd = ExpressionCode::LoopEnd;
  using Body = ExpressionCode::Body;
  using Next = ExpressionCode::Next;

  // `indices`: of the task's parallel dimensions.
  ReductionCode(ExpressionCode& code, Values indices)
      : code_(code), k_(code.kernel()), b_(code.builder()), indices_(std::move(indices)) {}

  // Loops over reduced dimensions [d, last), then `inner`.
  Values Nest(size_t d, size_t last, const Scope& scope, Values carried,
              const std::function<Values(const Scope&, Values)>& inner) {
    if (d == last) return inner(scope, std::move(carried));
    return code_
        .LoopAlong(d, code_.I64(0), ReducedEnd(d), 1, std::move(carried),
                   [&](V index, Values current) {
                     Scope deeper = scope;
                     code_.Advance(deeper, d, index);
                     if (code_.caches()) {
                       V base = deeper.linear == nullptr ? index : b_.CreateAdd(deeper.linear, index);
                       deeper.linear = b_.CreateMul(base, code_.Size(d + 1));
                     }
                     return Nest(d + 1, last, deeper, std::move(current), inner);
                   })
        .carried;
  }

  V ReducedEnd(size_t d) {
    if (k_.dims[d].chunk_dim < 0) return code_.Size(d);
    V begin = b_.CreateMul(indices_[k_.dims[d].chunk_dim], code_.Size(d));
    return code_.MinOf(code_.Size(d), b_.CreateSub(code_.Total(d), begin));
  }

  void SetReduced(Scope& scope, const std::vector<std::pair<uint32_t, V>>& results,
                  ExprKind kind = ExprKind::kReduced) {
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      for (const auto& [k, value] : results) {
        if (k_.exprs[i].kind == kind && k_.exprs[i].index == k) scope.values[i] = value;
      }
    }
  }

  std::vector<uint32_t> EveryReduction() const {
    std::vector<uint32_t> all(k_.reductions.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  // Those of `reductions` whose sums are put away block by block; none where no sum is so long.
  std::vector<uint32_t> Cascading(std::vector<uint32_t> reductions) const {
    std::erase_if(reductions, [&](uint32_t r) { return !code_.layout().cascade || !Cascades(k_.reductions[r]); });
    return reductions;
  }
  // Additions to one part that `length` elements of a row are.
  V StepsOfRow(V length, int64_t turn) {
    const auto log = [](int64_t n) { return static_cast<uint64_t>(std::countr_zero(static_cast<uint64_t>(n))); };
    V rest = b_.CreateAnd(length, code_.I64(turn - 1));
    if (code_.masks())
      rest = b_.CreateLShr(b_.CreateAdd(rest, code_.I64(code_.layout().lanes - 1)), log(code_.layout().lanes));
    return b_.CreateAdd(b_.CreateLShr(length, log(turn)), rest);
  }

  // `body` along a row, in blocks where sums cascade.
  Values Row(int64_t turn, Values carried, const std::vector<uint32_t>& cascading, const Body& body, const Next& next) {
    const size_t along = k_.dims.size() - 1;
    if (cascading.empty()) return body(code_.I64(0), ReducedEnd(along), std::move(carried));
    const auto steps = [&](V length) { return StepsOfRow(length, turn); };
    return code_.InBlocks(along, ReducedEnd(along), kSumSteps * turn, std::move(carried), body, steps, next);
  }
  // A loop of such a body, along the last dimension. Blocks are short: looks are between them.
  LoopEnd LoopInRow(bool in_block, V from, V to, int64_t step, Values carried,
                    const std::function<Values(V, Values)>& body, int64_t reach = 0) {
    if (in_block) return code_.Loop(from, to, step, std::move(carried), body, reach);
    return code_.LoopAlong(k_.dims.size() - 1, from, to, step, std::move(carried), body, reach);
  }

  void StoreRows(Scope& scope, const Lanes& at) {
    std::vector<uint32_t> roots;
    for (const Store& s : k_.stores) {
      if (s.row) roots.push_back(s.expr);
    }
    code_.Compute(code_.Needed(roots, -1), scope, at, 0, [](const Dependence& d) { return !d.reduced; });
    for (size_t s = 0; s < k_.stores.size(); ++s) {
      if (k_.stores[s].row) code_.StoreTo(s, scope, at, true);
    }
  }

  // Few operations an element wait for each other's sums.
  static bool IsSmall(size_t work) { return work <= 8; }
  static int Unroll(size_t work, size_t reductions) {
    return IsSmall(work) && reductions > 0 && reductions <= 2 ? 4 : 1;
  }

 private:
  ExpressionCode& code_;
  const LoopKernel& k_;
  llvm::IRBuilder<>& b_;
  const Values indices_;
};

}  // namespace weft::cpu
