// Reductions along the innermost dimension whose vectors are rows side by side.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "src/backends/cpu/loop/reduction_code.h"

namespace weft::cpu {

// The parts of the sums of rows that lie side by side, one row a lane, in memory.
class RowParts {
 public:
  // `turn`: parts of a row that elements go to in turn.
  RowParts(ExpressionCode& code, int64_t turn, int vector)
      : code_(code), k_(code.kernel()), b_(code.builder()), turn_(turn), vector_(vector) {
    std::vector<uint32_t> all;
    for (uint32_t r = 0; r < k_.reductions.size(); ++r) {
      all.push_back(r);
      types_.push_back(code_.Identity(k_.reductions[r], vector)->getType());
      memory_.push_back(code_.Local(llvm::ArrayType::get(types_.back(), static_cast<uint64_t>(turn) + 1)));
    }
    Empty(all);
  }

  int64_t turn() const { return turn_; }
  void Empty(const std::vector<uint32_t>& reductions) {
    code_.Loop(code_.I64(0), code_.I64(turn_ + 1), 1, {}, [&](V part, Values) {
      for (uint32_t r : reductions) b_.CreateStore(code_.Identity(k_.reductions[r], vector_), Slot(r, part));
      return Values{};
    });
  }
  void Add(size_t r, V part, V x) { b_.CreateStore(code_.Combine(k_.reductions[r], Load(r, part), x), Slot(r, part)); }

  // Vectors of a turn in pairs of neighbours, then the halves of one.
  V Sum(size_t k) {
    const Reduction& r = k_.reductions[k];
    const int lanes = code_.layout().lanes;
    Values sums;
    for (int64_t part = 0; part < turn_; ++part) sums.push_back(Load(k, code_.I64(part)));
    while (static_cast<int>(sums.size()) > lanes) {
      Values halves;
      for (size_t i = 0; i < sums.size() / 2; ++i) {
        const size_t first = i / lanes * 2 * lanes + i % lanes;
        halves.push_back(code_.Combine(r, sums[first], sums[first + lanes]));
      }
      sums = std::move(halves);
    }
    for (int n = lanes / 2; n >= 1; n /= 2) {
      for (int i = 0; i < n; ++i) sums[i] = code_.Combine(r, sums[i], sums[i + n]);
    }
    return code_.masks() ? sums[0] : code_.Combine(r, sums[0], Load(k, code_.I64(turn_)));
  }

 private:
  V Slot(size_t r, V part) { return b_.CreateInBoundsGEP(types_[r], memory_[r], part); }
  V Load(size_t r, V part) { return b_.CreateLoad(types_[r], Slot(r, part)); }

  ExpressionCode& code_;
  const LoopKernel& k_;
  llvm::IRBuilder<>& b_;
  const int64_t turn_;
  const int vector_;                // rows
  std::vector<llvm::Type*> types_;  // per reduction
  std::vector<V> memory_;
};

// Rows side by side, one a lane. Every row's parts are those that RowsCode has: element j goes to part j % turn, the last ones, which
// fill no turn, to part j % lanes or, without masks, to one more part; then the same tree.
class TurnedCode {
 public:
  using Scope = ExpressionCode::Scope;
  using Lanes = ExpressionCode::Lanes;
  using Cascade = ExpressionCode::Cascade;

  TurnedCode(ExpressionCode& code, ReductionCode& reduced, const Lanes& at)
      : code_(code),
        k_(code.kernel()),
        b_(code.builder()),
        reduced_(reduced),
        at_(at),
        needed_(code.Needed(code.Roots(0), -1)) {}

  void Run(const Scope& outer) {
    Scope top = outer;
    code_.Compute(needed_, top, at_, 0, [](const Dependence& d) { return !d.reduced && d.stage == 0; });
    Values without;
    for (const Reduction& r : k_.reductions) without.push_back(code_.Identity(r, at_.count));
    const Values done = code_.IfNeeded(0, {&top, 1}, {&at_, 1}, without, [&] { return Sums(outer, top); });
    std::vector<std::pair<uint32_t, V>> results;
    for (uint32_t k = 0; k < done.size(); ++k) results.push_back({k, done[k]});
    reduced_.SetReduced(top, results);
    reduced_.StoreRows(top, at_);
  }

 private:
  // Operations of an element.
  size_t Work() const {
    size_t work = 0;
    for (size_t i = 0; i < needed_.size(); ++i) work += needed_[i] && code_.dependences()[i].reduced;
    return work;
  }

  Values Sums(const Scope& outer, const Scope& top) {
    RowParts parts(code_, int64_t{ReductionCode::Unroll(work_, k_.reductions.size())} * code_.layout().lanes,
                   at_.count);
    const size_t along = k_.dims.size() - 1;
    const std::vector<uint32_t> cascading = reduced_.Cascading(reduced_.EveryReduction());
    const auto sums = [&] {
      Values all;
      for (uint32_t r : cascading) all.push_back(parts.Sum(r));
      return all;
    };
    Values zeros;
    for (uint32_t r : cascading) zeros.push_back(code_.Identity(k_.reductions[r], at_.count));
    const Cascade cascade = code_.NewCascade(zeros);
    const Values counts =
        reduced_.Nest(k_.parallel_dims(), along, outer, cascading.empty() ? Values{} : code_.WithCounts({}),
                      [&](const Scope& scope, Values now) {
                        const auto body = [&](V from, V to, Values) {
                          AddToParts(parts, scope, top, !cascading.empty(), from, to);
                          return Values{};
                        };
                        const auto next = [&](V blocks, Values) {
                          code_.PutAway(cascade, blocks, sums());
                          parts.Empty(cascading);
                          return Values{};
                        };
                        return reduced_.Row(parts.turn(), std::move(now), cascading, body, next);
                      });
    Values results(k_.reductions.size());
    for (uint32_t k = 0; k < results.size(); ++k) {
      if (std::ranges::count(cascading, k) == 0) results[k] = parts.Sum(k);
    }
    if (cascading.empty()) return results;
    const Values totals = code_.TotalOf(cascade, counts.back(), sums());
    for (size_t i = 0; i < totals.size(); ++i) results[cascading[i]] = totals[i];
    return results;
  }

  // Elements [begin, size) of one line of the rows; `begin` is a multiple of the turn.
  void AddToParts(RowParts& parts, const Scope& scope, const Scope& top, bool in_block, V begin, V size) {
    const size_t along = k_.dims.size() - 1;
    const auto add = [&](V j, V part) {
      Scope inner = scope;
      code_.Advance(inner, along, j);
      for (size_t i = 0; i < inner.values.size(); ++i) {
        if (inner.values[i] == nullptr) inner.values[i] = top.values[i];
      }
      code_.Compute(needed_, inner, at_, 0, ExpressionCode::Anything);
      for (size_t r = 0; r < k_.reductions.size(); ++r) {
        V x = code_.Vector(k_.reductions[r].expr, inner, at_.count);
        parts.Add(r, part, x);
      }
    };
    // From j on, as many elements as parts.
    const auto add_turn = [&](V j, V count) {
      code_.Loop(code_.I64(0), count, 1, {}, [&](V part, Values) {
        add(b_.CreateAdd(j, part), part);
        return Values{};
      });
      return Values{};
    };
    if (ReductionCode::IsSmall(work_) || !code_.masks()) {
      const auto whole = [&](V j, Values) { return add_turn(j, code_.I64(parts.turn())); };
      begin = reduced_.LoopInRow(in_block, begin, size, parts.turn(), {}, whole, parts.turn() - 1).index;
    }
    reduced_.LoopInRow(in_block, begin, size, code_.masks() ? code_.layout().lanes : 1, {}, [&](V j, Values) {
      if (code_.masks()) return add_turn(j, code_.MinOf(code_.I64(code_.layout().lanes), b_.CreateSub(size, j)));
      add(j, code_.I64(parts.turn()));
      return Values{};
    });
  }

  ExpressionCode& code_;
  const LoopKernel& k_;
  llvm::IRBuilder<>& b_;
  ReductionCode& reduced_;
  const Lanes at_;
  const std::vector<bool> needed_;  // expressions
  const size_t work_ = Work();
};

}  // namespace weft::cpu
