// The expressions of a loop kernel: which of them a pass needs, and their code, each once, from loads, from the row's cache or from
// their arguments. codegen.cc walks the elements.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/loop/cascade_code.h"
#include "src/runtime/status.h"

namespace weft::cpu {

class ExpressionCode : public CascadeCode {
 public:
  ExpressionCode(const LoopKernel& kernel, const CpuTarget& target, JitModule& module, const std::string& symbol)
      : CascadeCode(kernel, target, module, symbol),
        target_(target),
        deps_(Analyze(kernel)),
        guards_(GuardsOf(kernel)) {
    FindCached();
  }

  const absl::Status& status() const { return status_; }
  const CpuTarget& target() const { return target_; }
  // The dependences of each expression.
  const std::vector<Dependence>& dependences() const { return deps_; }
  // Some values stay for later passes over their row.
  bool caches() const { return !cached_.empty(); }

  // --- which expressions a set of roots needs
  std::vector<bool> Needed(const std::vector<uint32_t>& roots, int stage) const {
    std::vector<bool> needed(k_.exprs.size(), false);
    for (uint32_t r : roots) needed[r] = true;
    for (size_t i = k_.exprs.size(); i-- > 0;) {
      if (!needed[i] || FromCache(i, stage)) continue;
      for (uint32_t arg : k_.exprs[i].args) {
        if (arg != kNoExpr) needed[arg] = true;
      }
    }
    return needed;
  }

  std::vector<uint32_t> Roots(int stage) const {
    std::vector<uint32_t> roots;
    for (const Reduction& r : k_.reductions) {
      if (r.stage == stage) roots.push_back(r.expr);
    }
    for (const Store& s : k_.stores) {
      if (!s.row && s.stage == stage) roots.push_back(s.expr);
    }
    return roots;
  }

  // Computes what is needed, not yet there and accepted by `fits`.
  void Compute(const std::vector<bool>& needed, Scope& scope, const Lanes& at, int stage,
               const std::function<bool(const Dependence&)>& fits) {
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      if (needed[i] && fits(deps_[i])) ComputeOne(i, scope, at, stage);
    }
  }
  // The same for vectors side by side, each expression for all of them before the next one.
  void Compute(const std::vector<bool>& needed, std::vector<Scope>& scopes, const std::vector<Lanes>& panel,
               int stage) {
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      if (!needed[i]) continue;
      for (size_t u = 0; u < panel.size(); ++u) ComputeOne(i, scopes[u], panel[u], stage);
    }
  }

  // Results of a stage's reductions; `without` where nothing at these places needs them. The scopes: with what is known before.
  Values IfNeeded(int stage, std::span<Scope> scopes, std::span<const Lanes> places, const Values& without,
                  const std::function<Values()>& results) {
    const Guard& guard = guards_[stage];
    if (guard.condition == kNoExpr) return results();
    V any = nullptr;
    for (size_t u = 0; u < places.size(); ++u) {
      const auto known = [](const Dependence& d) { return !d.reduced; };
      Compute(Needed({guard.condition}, -1), scopes[u], places[u], stage, known);
      V needs = Vector(guard.condition, scopes[u], places[u].count);
      if (!guard.when) needs = b_.CreateNot(needs);
      if (places[u].mask != nullptr) needs = b_.CreateAnd(needs, places[u].mask);
      if (needs->getType()->isVectorTy()) needs = b_.CreateOrReduce(needs);
      any = any == nullptr ? needs : b_.CreateOr(any, needs);
    }
    return Loop(I64(0), b_.CreateZExt(any, b_.getInt64Ty()), 1, without, [&](V, Values) { return results(); }).carried;
  }

  std::vector<bool> AllNeeded() const {
    std::vector<uint32_t> roots;
    for (const Reduction& r : k_.reductions) roots.push_back(r.expr);
    for (const Carry& c : k_.carries) roots.insert(roots.end(), {c.start, c.next});
    for (const Store& s : k_.stores) roots.push_back(s.expr);
    return Needed(roots, -1);
  }

  static bool Anything(const Dependence&) { return true; }

 private:
  bool FromCache(size_t i, int stage) const { return !cached_.empty() && cached_[i] >= 0 && stage > first_stage_[i]; }

  // Row form: full values with an expensive operation that more than one pass needs.
  void FindCached() {
    if (layout_.form != Form::kRows || !layout_.cache || k_.stages < 2) return;
    cached_.assign(k_.exprs.size(), -1);
    first_stage_.assign(k_.exprs.size(), -1);
    std::vector<int> uses(k_.exprs.size(), 0);
    for (int stage = 0; stage < k_.stages; ++stage) {
      if (guards_[stage].condition != kNoExpr) continue;  // may be left out: it reads the cache alone
      const std::vector<bool> needed = Needed(Roots(stage), -1);
      for (size_t i = 0; i < needed.size(); ++i) {
        if (!needed[i]) continue;
        ++uses[i];
        if (first_stage_[i] < 0) first_stage_[i] = stage;
      }
    }
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      const Expr& e = k_.exprs[i];
      const bool expensive = (e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary) && ir::FactsOf(e.op).function;
      if (expensive && deps_[i].reduced && deps_[i].vector && uses[i] > 1 && !IsBool(e.dtype)) {
        cached_[i] = cached_count_++;
      }
    }
  }

  V CacheAddress(size_t i, const Scope& scope, const Lanes& at) {
    // Each cached value has a row of its own, 8 bytes an element, padded by a vector.
    V row = Param((2 + accesses()) * k_.dims.size() + 1 + accesses());
    V base = b_.CreateGEP(b_.getInt64Ty(), function_->getArg(4), b_.CreateMul(row, I64(cached_[i])));
    V position = scope.linear == nullptr ? at.v : b_.CreateAdd(scope.linear, at.v);
    return b_.CreateGEP(code_.ComputeLlvm(k_.exprs[i].dtype), base, position);
  }

  void ComputeOne(size_t i, Scope& scope, const Lanes& at, int stage) {
    if (scope.values[i] != nullptr) return;
    const Expr& e = k_.exprs[i];
    // Set by their loop, or when it ends.
    if (e.kind == ExprKind::kReduced || e.kind == ExprKind::kCarried || e.kind == ExprKind::kFolded) return;
    const int lanes = deps_[i].vector ? at.count : 1;
    if (FromCache(i, stage)) {
      llvm::Type* type = code_.ComputeLlvm(e.dtype);
      V address = CacheAddress(i, scope, at);
      const llvm::Align align(BytesOf(e.dtype));
      if (lanes == 1) {
        scope.values[i] = b_.CreateAlignedLoad(type, address, align);
      } else {
        // The cache is padded: whole vectors may always be read.
        scope.values[i] = b_.CreateAlignedLoad(llvm::FixedVectorType::get(type, lanes), address, align);
      }
      return;
    }
    if (e.kind == ExprKind::kLoad) {
      scope.values[i] = Load(e.index, scope, at, deps_[i].vector);
    } else if (e.kind == ExprKind::kIndex) {
      const size_t a = k_.loads.size() + e.index;
      V value = scope.positions[a];
      if (deps_[i].vector) {
        V lane = lanes == 1 ? at.v : b_.CreateAdd(b_.CreateVectorSplat(lanes, at.v), Iota(lanes));
        V stride = lanes == 1 ? VectorStride(a) : b_.CreateVectorSplat(lanes, VectorStride(a));
        V base = lanes == 1 ? value : b_.CreateVectorSplat(lanes, value);
        value = b_.CreateAdd(base, b_.CreateMul(lane, stride));
      }
      scope.values[i] = value;
    } else {
      V args[3] = {};
      DType from = e.dtype;
      BF16Rounding rounding = BF16Rounding::kAny;
      for (int k = 0; k < 3; ++k) {
        if (e.args[k] == kNoExpr) continue;
        args[k] = Vector(e.args[k], scope, lanes);
        if (k > 0) continue;
        from = k_.exprs[e.args[0]].dtype;
        rounding = bf16_.rounding[e.args[0]];
      }
      scope.values[i] = code_.Emit(e, from, rounding, bf16_.function[i], args);
      if (scope.values[i] == nullptr) {
        status_ = absl::UnimplementedError(absl::StrCat("the CPU compiler has no code for scalar operation ",
                                                        static_cast<int>(e.op), " on ", NameOf(from), " giving ",
                                                        NameOf(e.dtype)));
        scope.values[i] = llvm::PoisonValue::get(code_.ComputeLlvm(e.dtype));
      }
    }
    if (!cached_.empty() && cached_[i] >= 0 && stage == first_stage_[i]) {
      // Lanes beyond the row's end land in the padding.
      b_.CreateAlignedStore(scope.values[i], CacheAddress(i, scope, at), llvm::Align(BytesOf(e.dtype)));
    }
  }

  const CpuTarget& target_;
  std::vector<Dependence> deps_;
  const std::vector<Guard> guards_;
  std::vector<int> cached_, first_stage_;
  int cached_count_ = 0;
  absl::Status status_;
};

}  // namespace weft::cpu
