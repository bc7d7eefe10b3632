// See codegen.h. Three shapes of code: elementwise (vectors along the last parallel dimension), column reductions (the
// same, with loops over the reduced dimensions inside a panel of vectors) and row reductions (vectors along the last
// reduced dimension, several passes over a row that stays in cache).
#include "src/backends/cpu/codegen.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/jit_llvm.h"
#include "src/backends/cpu/scalar_code.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kCachedRow = 32768;  // longest row whose expensive values are kept between passes
constexpr int64_t kBlock = 2048;       // elements of an elementwise task

enum class Form { kElementwise, kColumns, kRows };

struct Layout {
  Form form = Form::kElementwise;
  int lanes = 4;
  int panel = 1;        // vectors of a column panel
  bool cache = false;   // row form: keep expensive values in scratch
};

Layout LayoutOf(const LoopKernel& kernel, const CpuTarget& target) {
  Layout layout;
  bool wide = false;
  for (const Expr& e : kernel.exprs) wide = wide || (BitsOf(e.dtype) == 64 && e.kind != ExprKind::kIndex);
  layout.lanes = target.vector_bytes / (wide ? 8 : 4);
  if (kernel.reductions.empty()) return layout;
  layout.form = kernel.vector_reduces ? Form::kRows : Form::kColumns;
  if (layout.form == Form::kColumns) {
    const int64_t vectors = kernel.dims[kernel.vector_dim].size / layout.lanes;
    layout.panel = kernel.exprs.size() > 24 ? 1 : vectors >= 4 ? 4 : vectors >= 2 ? 2 : 1;
  }
  layout.cache = layout.form == Form::kRows && kernel.ReducedCount() <= kCachedRow;
  return layout;
}

using V = llvm::Value*;
using Values = std::vector<V>;

class LoopEmitter {
 public:
  LoopEmitter(const LoopKernel& kernel, const CpuTarget& target, JitModule& module, const std::string& symbol)
      : k_(kernel), target_(target), layout_(LayoutOf(kernel, target)), deps_(Analyze(kernel)), b_(*module.context),
        entry_(*module.context), code_(b_, target) {
    masks_ = target.isa == Isa::kAvx512;
    llvm::Type* i64 = b_.getInt64Ty();
    llvm::Type* pointer = b_.getPtrTy();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, i64, i64, pointer}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, *module.module);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    FindCached();
  }

  void Run() {
    llvm::LLVMContext& context = b_.getContext();
    auto* entry = llvm::BasicBlock::Create(context, "entry", function_);
    auto* start = llvm::BasicBlock::Create(context, "start", function_);
    entry_.SetInsertPoint(entry);
    entry_.SetInsertPoint(entry_.CreateBr(start));
    b_.SetInsertPoint(start);
    Loop(function_->getArg(2), function_->getArg(3), 1, {}, [&](V task, Values) {
      Task(task);
      return Values{};
    });
    b_.CreateRetVoid();
  }

 private:
  struct Scope {
    Values values;     // per expression, null where not computed
    Values splats;     // the same as vectors
    Values positions;  // per access (loads, indices, stores): elements, without the vector dimension's part
    V linear = nullptr;  // position within a row, for cached values
  };
  // Where vectors are: v is the index along the vector dimension.
  struct Lanes {
    int count = 1;
    V v = nullptr;
    V mask = nullptr;
  };

  size_t accesses() const { return k_.loads.size() + k_.indices.size() + k_.stores.size(); }
  const Access& access(size_t i) const {
    if (i < k_.loads.size()) return k_.loads[i];
    i -= k_.loads.size();
    return i < k_.indices.size() ? k_.indices[i] : k_.stores[i - k_.indices.size()].access;
  }

  // --- run-time arguments, loaded once in the entry block
  V Param(size_t i) {
    if (params_.size() <= i) params_.resize(i + 1, nullptr);
    if (params_[i] == nullptr) {
      V at = entry_.CreateConstInBoundsGEP1_64(entry_.getInt64Ty(), function_->getArg(1), i);
      params_[i] = entry_.CreateLoad(entry_.getInt64Ty(), at);
    }
    return params_[i];
  }
  V Size(size_t d) { return Param(d); }
  V Block() { return Param(k_.dims.size()); }
  V Total(size_t d) { return Param(k_.dims.size() + 1 + d); }
  V Offset(size_t a) { return Param((2 + a) * k_.dims.size() + 1 + a); }
  V Stride(size_t a, size_t d) { return Param((2 + a) * k_.dims.size() + 2 + a + d); }
  V Buffer(uint32_t i) {
    if (buffers_.size() <= i) buffers_.resize(i + 1, nullptr);
    if (buffers_[i] == nullptr) {
      V at = entry_.CreateConstInBoundsGEP1_64(entry_.getPtrTy(), function_->getArg(0), i);
      buffers_[i] = entry_.CreateLoad(entry_.getPtrTy(), at);
    }
    return buffers_[i];
  }

  V I64(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }
  V MinOf(V x, V y) { return b_.CreateSelect(b_.CreateICmpSLT(x, y), x, y); }

  // for (i = from; i + reach < to or i < to; i += step) carried = body(i, carried); returns the last i and carried.
  struct LoopEnd {
    V index;
    Values carried;
  };
  LoopEnd Loop(V from, V to, int64_t step, Values carried, const std::function<Values(V, Values)>& body, int64_t reach = 0) {
    llvm::LLVMContext& context = b_.getContext();
    auto* before = b_.GetInsertBlock();
    auto* head = llvm::BasicBlock::Create(context, "", function_);
    auto* inside = llvm::BasicBlock::Create(context, "", function_);
    auto* after = llvm::BasicBlock::Create(context, "", function_);
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    std::vector<llvm::PHINode*> phis;
    Values current;
    for (V v : carried) {
      phis.push_back(b_.CreatePHI(v->getType(), 2));
      current.push_back(phis.back());
    }
    i->addIncoming(from, before);
    for (size_t k = 0; k < phis.size(); ++k) phis[k]->addIncoming(carried[k], before);
    V last = reach == 0 ? static_cast<V>(i) : b_.CreateAdd(i, I64(reach));
    b_.CreateCondBr(b_.CreateICmpSLT(last, to), inside, after);
    b_.SetInsertPoint(inside);
    Values next = body(i, current);
    V stepped = b_.CreateAdd(i, I64(step));
    auto* end = b_.GetInsertBlock();
    b_.CreateBr(head);
    i->addIncoming(stepped, end);
    for (size_t k = 0; k < phis.size(); ++k) phis[k]->addIncoming(next[k], end);
    b_.SetInsertPoint(after);
    return {i, current};
  }

  V Iota(int lanes) {
    std::vector<llvm::Constant*> values;
    for (int i = 0; i < lanes; ++i) values.push_back(b_.getInt64(i));
    return llvm::ConstantVector::get(values);
  }
  V MaskOf(V v, V end, int lanes) {
    // Compare in 32 bits: the distance saturates at the lane count.
    V left = MinOf(b_.CreateSub(end, v), I64(lanes));
    std::vector<llvm::Constant*> values;
    for (int i = 0; i < lanes; ++i) values.push_back(b_.getInt32(i));
    V splat = b_.CreateVectorSplat(lanes, b_.CreateTrunc(left, b_.getInt32Ty()));
    return b_.CreateICmpSLT(llvm::ConstantVector::get(values), splat);
  }

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
  bool FromCache(size_t i, int stage) const { return !cached_.empty() && cached_[i] >= 0 && stage > first_stage_[i]; }

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

  // Row form: full values with an expensive operation that more than one pass needs.
  void FindCached() {
    if (layout_.form != Form::kRows || !layout_.cache || k_.stages < 2) return;
    cached_.assign(k_.exprs.size(), -1);
    first_stage_.assign(k_.exprs.size(), -1);
    std::vector<int> uses(k_.exprs.size(), 0);
    for (int stage = 0; stage < k_.stages; ++stage) {
      const std::vector<bool> needed = Needed(Roots(stage), -1);
      for (size_t i = 0; i < needed.size(); ++i) {
        if (!needed[i]) continue;
        ++uses[i];
        if (first_stage_[i] < 0) first_stage_[i] = stage;
      }
    }
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      const Expr& e = k_.exprs[i];
      const bool expensive = (e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary) && IsExpensive(e.op);
      if (expensive && deps_[i].reduced && deps_[i].vector && uses[i] > 1 && !IsBool(e.dtype)) {
        cached_[i] = cached_count_++;
      }
    }
  }

 public:
  int cached_count() const { return cached_count_; }

 private:
  V CacheAddress(size_t i, const Scope& scope, const Lanes& at) {
    // Each cached value has a row of its own, 8 bytes an element, padded by a vector.
    V row = Param((2 + accesses()) * k_.dims.size() + 1 + accesses());
    V base = b_.CreateGEP(b_.getInt64Ty(), function_->getArg(4), b_.CreateMul(row, I64(cached_[i])));
    V position = scope.linear == nullptr ? at.v : b_.CreateAdd(scope.linear, at.v);
    return b_.CreateGEP(code_.ComputeLlvm(k_.exprs[i].dtype), base, position);
  }

  // --- memory
  V Address(size_t a, const Scope& scope, V vector_part) {
    const Access& x = access(a);
    V position = vector_part == nullptr ? scope.positions[a] : b_.CreateAdd(scope.positions[a], vector_part);
    return b_.CreateGEP(code_.MemoryLlvm(x.dtype), Buffer(x.buffer), position);
  }
  V VectorStride(size_t a) { return Stride(a, k_.vector_dim); }

  V Load(size_t a, const Scope& scope, const Lanes& at, bool vector) {
    const Access& x = access(a);
    llvm::Type* type = code_.MemoryLlvm(x.dtype);
    const llvm::Align align(BytesOf(x.dtype));
    const int64_t stride = vector ? x.strides[k_.vector_dim] : 0;
    V raw = nullptr;
    if (!vector) {
      raw = b_.CreateAlignedLoad(type, Address(a, scope, nullptr), align);
    } else if (at.count == 1) {
      raw = b_.CreateAlignedLoad(type, Address(a, scope, stride == 1 ? at.v : b_.CreateMul(at.v, VectorStride(a))), align);
    } else if (stride == 1) {
      auto* wide = llvm::FixedVectorType::get(type, at.count);
      V address = Address(a, scope, at.v);
      raw = at.mask == nullptr ? static_cast<V>(b_.CreateAlignedLoad(wide, address, align))
                               : b_.CreateMaskedLoad(wide, address, align, at.mask, llvm::Constant::getNullValue(wide));
    } else {
      auto* wide = llvm::FixedVectorType::get(type, at.count);
      V lanes = b_.CreateAdd(b_.CreateVectorSplat(at.count, at.v), Iota(at.count));
      V offsets = b_.CreateMul(lanes, b_.CreateVectorSplat(at.count, VectorStride(a)));
      offsets = b_.CreateAdd(offsets, b_.CreateVectorSplat(at.count, scope.positions[a]));
      V addresses = b_.CreateGEP(type, Buffer(x.buffer), offsets);
      V mask = at.mask != nullptr ? at.mask : llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), at.count));
      raw = b_.CreateMaskedGather(wide, addresses, align, mask, llvm::Constant::getNullValue(wide));
    }
    return code_.FromMemory(raw, x.dtype);
  }

  void StoreTo(size_t s, const Scope& scope, const Lanes& at, bool vector) {
    const Store& store = k_.stores[s];
    const size_t a = k_.loads.size() + k_.indices.size() + s;
    const llvm::Align align(BytesOf(store.access.dtype));
    const int64_t stride = vector ? store.access.strides[k_.vector_dim] : 0;
    const Expr& e = k_.exprs[store.expr];
    const bool rounded = e.kind == ExprKind::kRound && e.storage == store.access.dtype;
    if (!vector || at.count == 1) {
      V part = !vector ? nullptr : stride == 1 ? at.v : b_.CreateMul(at.v, VectorStride(a));
      b_.CreateAlignedStore(code_.ToMemory(scope.values[store.expr], store.access.dtype, rounded), Address(a, scope, part), align);
      return;
    }
    V value = code_.ToMemory(Vector(store.expr, scope, at.count), store.access.dtype, rounded);
    if (stride == 1) {
      V address = Address(a, scope, at.v);
      if (at.mask == nullptr) {
        b_.CreateAlignedStore(value, address, align);
      } else {
        b_.CreateMaskedStore(value, address, align, at.mask);
      }
      return;
    }
    V lanes = b_.CreateAdd(b_.CreateVectorSplat(at.count, at.v), Iota(at.count));
    V offsets = b_.CreateMul(lanes, b_.CreateVectorSplat(at.count, VectorStride(a)));
    offsets = b_.CreateAdd(offsets, b_.CreateVectorSplat(at.count, scope.positions[a]));
    V addresses = b_.CreateGEP(code_.MemoryLlvm(store.access.dtype), Buffer(store.access.buffer), offsets);
    V mask = at.mask != nullptr ? at.mask : llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), at.count));
    b_.CreateMaskedScatter(value, addresses, align, mask);
  }

  // --- expressions
  V Vector(uint32_t i, const Scope& scope, int lanes) {
    V value = scope.values[i];
    if (lanes == 1 || value->getType()->isVectorTy()) return value;
    if (auto* constant = llvm::dyn_cast<llvm::Constant>(value)) {
      return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(lanes), constant);
    }
    return b_.CreateVectorSplat(lanes, value);
  }

  // Computes what is needed, not yet there and accepted by `fits`.
  void Compute(const std::vector<bool>& needed, Scope& scope, const Lanes& at, int stage,
               const std::function<bool(const Dependence&)>& fits) {
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      if (!needed[i] || scope.values[i] != nullptr || !fits(deps_[i])) continue;
      const Expr& e = k_.exprs[i];
      if (e.kind == ExprKind::kReduced) continue;  // set when its loop ends
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
        continue;
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
        for (int k = 0; k < 3; ++k) {
          if (e.args[k] == kNoExpr) continue;
          args[k] = Vector(e.args[k], scope, lanes);
          if (k == 0) from = k_.exprs[e.args[0]].dtype;
        }
        scope.values[i] = code_.Emit(e, from, args);
        if (scope.values[i] == nullptr) {
          status_ = absl::UnimplementedError(absl::StrCat("the CPU compiler has no code for scalar operation ",
                                                          static_cast<int>(e.op), " on ", NameOf(from), " giving ", NameOf(e.dtype)));
          scope.values[i] = llvm::PoisonValue::get(code_.ComputeLlvm(e.dtype));
        }
      }
      if (!cached_.empty() && cached_[i] >= 0 && stage == first_stage_[i]) {
        // Lanes beyond the row's end land in the padding.
        b_.CreateAlignedStore(scope.values[i], CacheAddress(i, scope, at), llvm::Align(BytesOf(e.dtype)));
      }
    }
  }

  Scope NewScope() {
    Scope scope;
    scope.values.assign(k_.exprs.size(), nullptr);
    scope.positions.assign(accesses(), nullptr);
    return scope;
  }

  void Advance(Scope& scope, size_t d, V index) {
    for (size_t a = 0; a < accesses(); ++a) {
      if (access(a).strides[d] == 0) continue;
      scope.positions[a] = b_.CreateAdd(scope.positions[a], b_.CreateMul(index, Stride(a, d)));
    }
  }

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

  std::vector<bool> AllNeeded() const {
    std::vector<uint32_t> roots;
    for (const Reduction& r : k_.reductions) roots.push_back(r.expr);
    for (const Store& s : k_.stores) roots.push_back(s.expr);
    return Needed(roots, -1);
  }

  static bool Anything(const Dependence&) { return true; }

  void Elementwise(const Scope& outer, V start, V end) {
    const std::vector<bool> needed = AllNeeded();
    const auto body = [&](V v, const Lanes& at) {
      (void)v;
      Scope scope = outer;
      Compute(needed, scope, at, 0, Anything);
      for (size_t s = 0; s < k_.stores.size(); ++s) StoreTo(s, scope, at, true);
    };
    const int lanes = layout_.lanes;
    V at = start;
    const bool small = k_.exprs.size() <= 12;
    if (small || !masks_) {
      at = Loop(at, end, lanes, {}, [&](V v, Values) {
             body(v, Lanes{lanes, v, nullptr});
             return Values{};
           }, lanes - 1).index;
    }
    Loop(at, end, masks_ ? lanes : 1, {}, [&](V v, Values) {
      body(v, masks_ ? Lanes{lanes, v, MaskOf(v, end, lanes)} : Lanes{1, v, nullptr});
      return Values{};
    });
  }

  // --- reductions
  V Identity(const Reduction& r, int lanes) {
    llvm::Type* type = code_.ComputeLlvm(r.dtype);
    llvm::Constant* c = nullptr;
    const bool is_float = IsFloat(r.dtype);
    const unsigned bits = type->getScalarSizeInBits();
    const auto integer = [&](const llvm::APInt& value) { return llvm::ConstantInt::get(type, value); };
    switch (r.op) {
      case ops::Reducer::kSum: case ops::Reducer::kOr: c = llvm::Constant::getNullValue(type); break;
      case ops::Reducer::kProd: c = is_float ? llvm::ConstantFP::get(type, 1.0) : llvm::ConstantInt::get(type, 1); break;
      case ops::Reducer::kAnd: c = llvm::Constant::getAllOnesValue(type); break;
      case ops::Reducer::kMax:
        c = is_float ? llvm::ConstantFP::getInfinity(type, true)
                     : integer(IsSigned(r.dtype) ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getZero(bits));
        break;
      case ops::Reducer::kMin:
        c = is_float ? llvm::ConstantFP::getInfinity(type, false)
                     : integer(IsSigned(r.dtype) ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits));
        break;
    }
    if (lanes > 1) return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(lanes), c);
    return c;
  }

  V Combine(const Reduction& r, V x, V y) { return code_.Combine(r.op, r.dtype, x, y); }

  V Horizontal(const Reduction& r, V x) {
    auto* type = llvm::cast<llvm::FixedVectorType>(x->getType());
    for (int lanes = static_cast<int>(type->getNumElements()) / 2; lanes >= 1; lanes /= 2) {
      std::vector<int> low, high;
      for (int i = 0; i < lanes; ++i) {
        low.push_back(i);
        high.push_back(i + lanes);
      }
      x = Combine(r, b_.CreateShuffleVector(x, low), b_.CreateShuffleVector(x, high));
    }
    return b_.CreateExtractElement(x, uint64_t{0});
  }

  // Loops over reduced dimensions [d, last), then `inner`.
  Values Nest(size_t d, size_t last, const Scope& scope, Values carried,
              const std::function<Values(const Scope&, Values)>& inner) {
    if (d == last) return inner(scope, std::move(carried));
    return Loop(I64(0), ReducedEnd(d), 1, std::move(carried), [&](V index, Values current) {
             Scope deeper = scope;
             Advance(deeper, d, index);
             if (!cached_.empty()) {
               V base = deeper.linear == nullptr ? index : b_.CreateAdd(deeper.linear, index);
               deeper.linear = b_.CreateMul(base, Size(d + 1));
             }
             return Nest(d + 1, last, deeper, std::move(current), inner);
           }).carried;
  }

  V ReducedEnd(size_t d) {
    if (k_.dims[d].chunk_dim < 0) return Size(d);
    V begin = b_.CreateMul(indices_[k_.dims[d].chunk_dim], Size(d));
    return MinOf(Size(d), b_.CreateSub(Total(d), begin));
  }

  void SetReduced(Scope& scope, const std::vector<std::pair<uint32_t, V>>& results) {
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      for (const auto& [k, value] : results) {
        if (k_.exprs[i].kind == ExprKind::kReduced && k_.exprs[i].index == k) scope.values[i] = value;
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
    V at = Loop(start, end, layout_.panel * lanes, {}, [&](V v, Values) {
             std::vector<Lanes> panel;
             for (int u = 0; u < layout_.panel; ++u) panel.push_back(Lanes{lanes, u == 0 ? v : b_.CreateAdd(v, I64(u * lanes)), nullptr});
             Panel(outer, panel);
             return Values{};
           }, layout_.panel * lanes - 1).index;
    Loop(at, end, 1, {}, [&](V v, Values) {
      Panel(outer, {Lanes{1, v, nullptr}});
      return Values{};
    });
  }

  void Panel(const Scope& outer, const std::vector<Lanes>& panel) {
    std::vector<uint32_t> roots;
    for (const Reduction& r : k_.reductions) roots.push_back(r.expr);
    std::vector<uint32_t> full;
    for (uint32_t s = 0; s < k_.stores.size(); ++s) {
      if (k_.stores[s].row) continue;
      full.push_back(s);
      roots.push_back(k_.stores[s].expr);
    }
    const std::vector<bool> needed = Needed(roots, -1);
    Values accumulators;
    for (const Reduction& r : k_.reductions) {
      for (const Lanes& at : panel) accumulators.push_back(Identity(r, at.count));
    }
    // What does not change along the reduction is loaded once.
    std::vector<Scope> tops(panel.size(), outer);
    for (size_t u = 0; u < panel.size(); ++u) {
      Compute(needed, tops[u], panel[u], 0, [](const Dependence& d) { return !d.reduced && d.stage == 0; });
    }
    Values done = Nest(k_.parallel_dims(), k_.dims.size(), outer, accumulators, [&](const Scope& scope, Values current) {
      Scope shared = scope;
      Compute(needed, shared, Lanes{}, 0, [](const Dependence& d) { return !d.vector; });
      for (size_t u = 0; u < panel.size(); ++u) {
        Scope inner = shared;
        for (size_t i = 0; i < inner.values.size(); ++i) {
          if (inner.values[i] == nullptr) inner.values[i] = tops[u].values[i];
        }
        Compute(needed, inner, panel[u], 0, Anything);
        for (size_t r = 0; r < k_.reductions.size(); ++r) {
          V& a = current[r * panel.size() + u];
          a = Combine(k_.reductions[r], a, Vector(k_.reductions[r].expr, inner, panel[u].count));
        }
        for (uint32_t s : full) StoreTo(s, inner, panel[u], true);
      }
      return current;
    });
    std::vector<uint32_t> row_roots;
    for (const Store& s : k_.stores) {
      if (s.row) row_roots.push_back(s.expr);
    }
    const std::vector<bool> row_needed = Needed(row_roots, -1);
    for (size_t u = 0; u < panel.size(); ++u) {
      Scope scope = tops[u];
      std::vector<std::pair<uint32_t, V>> results;
      for (uint32_t r = 0; r < k_.reductions.size(); ++r) results.push_back({r, done[r * panel.size() + u]});
      SetReduced(scope, results);
      Compute(row_needed, scope, panel[u], 0, [](const Dependence& d) { return !d.reduced; });
      for (size_t s = 0; s < k_.stores.size(); ++s) {
        if (k_.stores[s].row) StoreTo(s, scope, panel[u], true);
      }
    }
  }

  void Rows(Scope scope) {
    const size_t vector = k_.dims.size() - 1;
    const std::vector<bool> all = AllNeeded();
    const auto row_level = [](const Dependence& d) { return !d.vector && !d.reduced; };
    for (int stage = 0; stage < k_.stages; ++stage) {
      Compute(all, scope, Lanes{}, stage, [&](const Dependence& d) { return row_level(d) && d.stage <= stage; });
      const std::vector<uint32_t> roots = Roots(stage);
      if (roots.empty()) continue;
      std::vector<bool> needed = Needed(roots, stage);
      size_t work = 0;
      for (size_t i = 0; i < needed.size(); ++i) work += needed[i] && scope.values[i] == nullptr;
      std::vector<uint32_t> reduced;
      for (uint32_t r = 0; r < k_.reductions.size(); ++r) {
        if (k_.reductions[r].stage == stage) reduced.push_back(r);
      }
      const bool small = work <= 8;
      const int unroll = small && !reduced.empty() && reduced.size() <= 2 ? 4 : 1;
      const int lanes = layout_.lanes;
      Values accumulators;  // per reduction: `unroll` vectors, then a scalar where there are no masks
      const size_t per = unroll + (masks_ ? 0 : 1);
      for (uint32_t r : reduced) {
        for (int u = 0; u < unroll; ++u) accumulators.push_back(Identity(k_.reductions[r], lanes));
        if (!masks_) accumulators.push_back(Identity(k_.reductions[r], 1));
      }
      Values done = Nest(k_.parallel_dims(), vector, scope, accumulators, [&](const Scope& outer, Values current) {
        V size = ReducedEnd(vector);
        Scope shared = outer;
        Compute(needed, shared, Lanes{}, stage, [](const Dependence& d) { return !d.vector; });
        const auto body = [&](const Lanes& at, int u, Values& carried) {
          Scope inner = shared;
          Compute(needed, inner, at, stage, Anything);
          for (size_t k = 0; k < reduced.size(); ++k) {
            const Reduction& r = k_.reductions[reduced[k]];
            V& a = carried[k * per + (at.count == 1 ? unroll : u)];
            V next = Combine(r, a, Vector(r.expr, inner, at.count));
            a = at.mask == nullptr ? next : b_.CreateSelect(at.mask, next, a);
          }
          for (size_t s = 0; s < k_.stores.size(); ++s) {
            if (!k_.stores[s].row && k_.stores[s].stage == stage) StoreTo(s, inner, at, true);
          }
        };
        LoopEnd at{I64(0), std::move(current)};
        if (small || !masks_) {
          at = Loop(at.index, size, int64_t{unroll} * lanes, std::move(at.carried), [&](V v, Values carried) {
            for (int u = 0; u < unroll; ++u) {
              body(Lanes{lanes, u == 0 ? v : b_.CreateAdd(v, I64(u * lanes)), nullptr}, u, carried);
            }
            return carried;
          }, int64_t{unroll} * lanes - 1);
        }
        if (masks_) {
          at = Loop(at.index, size, lanes, std::move(at.carried), [&](V v, Values carried) {
            body(Lanes{lanes, v, MaskOf(v, size, lanes)}, 0, carried);
            return carried;
          });
        } else {
          at = Loop(at.index, size, 1, std::move(at.carried), [&](V v, Values carried) {
            body(Lanes{1, v, nullptr}, 0, carried);
            return carried;
          });
        }
        return at.carried;
      });
      std::vector<std::pair<uint32_t, V>> results;
      for (size_t k = 0; k < reduced.size(); ++k) {
        const Reduction& r = k_.reductions[reduced[k]];
        Values parts(done.begin() + k * per, done.begin() + k * per + unroll);
        while (parts.size() > 1) {
          Values halves;
          for (size_t i = 0; i + 1 < parts.size(); i += 2) halves.push_back(Combine(r, parts[i], parts[i + 1]));
          parts = halves;
        }
        V result = Horizontal(r, parts[0]);
        if (!masks_) result = Combine(r, result, done[k * per + unroll]);
        results.push_back({reduced[k], result});
      }
      SetReduced(scope, results);
    }
    Compute(all, scope, Lanes{}, k_.stages, row_level);
    for (size_t s = 0; s < k_.stores.size(); ++s) {
      if (k_.stores[s].row) StoreTo(s, scope, Lanes{}, false);
    }
  }

 public:
  const absl::Status& status() const { return status_; }

 private:
  const LoopKernel& k_;
  const CpuTarget& target_;
  Layout layout_;
  std::vector<Dependence> deps_;
  llvm::IRBuilder<> b_;
  llvm::IRBuilder<> entry_;
  ScalarCode code_;
  bool masks_ = false;
  llvm::Function* function_ = nullptr;
  Values params_, buffers_, indices_;
  std::vector<int> cached_, first_stage_;
  int cached_count_ = 0;
  absl::Status status_;
};

}  // namespace

LoopPlan PlanLoop(const LoopKernel& kernel, const CpuTarget& target) {
  LoopPlan plan;
  const Layout layout = LayoutOf(kernel, target);
  plan.key = absl::StrCat(ToString(kernel, false), "lanes ", layout.lanes, " panel ", layout.panel, layout.cache ? " cache" : "");
  const size_t parallel = kernel.parallel_dims();
  int64_t block = 1;
  if (layout.form == Form::kElementwise) {
    // A multiple of every vector length.
    const int64_t size = std::max<int64_t>(kernel.dims[parallel - 1].size, 1);
    const int64_t pieces = (size + kBlock - 1) / kBlock;
    block = ((size + pieces - 1) / pieces + 63) / 64 * 64;
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
    for (const Expr& e : kernel.exprs) candidates += IsExpensive(e.op) && (e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary);
    if (kernel.stages > 1) plan.scratch_bytes = row * 8 * candidates;
  } else {
    plan.params.push_back(0);
  }
  plan.elements = kernel.ParallelCount() * kernel.ReducedCount() * kernel.stages;
  // About 60 ps an element and simple operation at 16 lanes, 600 an expensive one.
  int64_t per_element = 20;
  for (const Expr& e : kernel.exprs) {
    if (e.kind == ExprKind::kConstant) continue;
    per_element += (e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary) && IsExpensive(e.op) ? 500 : 30;
  }
  plan.cost = plan.elements * per_element * 16 / std::max(1, layout.lanes);
  return plan;
}

absl::StatusOr<std::string> CompileLoops(const Jit& jit, std::span<const LoopKernel* const> kernels,
                                         std::span<const std::string> symbols) {
  auto module = std::make_unique<JitModule>("weft_loops");
  for (size_t i = 0; i < kernels.size(); ++i) {
    LoopEmitter emitter(*kernels[i], jit.target(), *module, symbols[i]);
    emitter.Run();
    WEFT_RETURN_IF_ERROR(emitter.status());
  }
  return jit.Compile(std::move(module));
}

absl::StatusOr<std::string> LoopText(const LoopKernel& kernel, const CpuTarget& target) {
  JitModule module("weft_loops");
  LoopEmitter emitter(kernel, target, module, "loop");
  emitter.Run();
  WEFT_RETURN_IF_ERROR(emitter.status());
  return TextOf(module);
}

}  // namespace weft::cpu
