// The words that loop code is written in: run-time arguments, counted loops, masks, loads and stores of vectors, identities
// of reductions. codegen.cc puts the three shapes of kernels together from them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/backends/cpu/jit/jit_llvm.h"
#include "src/backends/cpu/loop/loop.h"
#include "src/backends/cpu/loop/scalar_code.h"

namespace weft::cpu {

using V = llvm::Value*;
using Values = std::vector<V>;

class LoopCode {
 public:
  LoopCode(const LoopKernel& kernel, const CpuTarget& target, JitModule& module, const std::string& symbol)
      : k_(kernel),
        b_(*module.context),
        entry_(*module.context),
        code_(b_, target),
        bf16_(BF16FactsOf(kernel)),
        masks_(target.isa == Isa::kAvx512) {
    llvm::Type* i64 = b_.getInt64Ty();
    llvm::Type* pointer = b_.getPtrTy();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, i64, i64, pointer}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, *module.module);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
  }

  struct Scope {
    Values values;       // per expression, null where not computed
    Values splats;       // the same as vectors
    Values positions;    // per access (loads, indices, stores): elements, without the vector dimension's part
    V linear = nullptr;  // position within a row, for cached values
  };
  // Where vectors are: v is the index along the vector dimension.
  struct Lanes {
    int count = 1;
    V v = nullptr;
    V mask = nullptr;
  };

  const LoopKernel& kernel() const { return k_; }
  llvm::IRBuilder<>& builder() { return b_; }
  bool masks() const { return masks_; }

  // The function's blocks for what is loaded once and for its code. Returns its first task and the one behind its last.
  std::pair<V, V> Begin() {
    llvm::LLVMContext& context = b_.getContext();
    auto* entry = llvm::BasicBlock::Create(context, "entry", function_);
    auto* start = llvm::BasicBlock::Create(context, "start", function_);
    entry_.SetInsertPoint(entry);
    entry_.SetInsertPoint(entry_.CreateBr(start));
    b_.SetInsertPoint(start);
    return {function_->getArg(2), function_->getArg(3)};
  }
  // Memory of the function's.
  V Local(llvm::Type* type) { return entry_.CreateAlloca(type); }

  size_t accesses() const { return k_.loads.size() + k_.indices.size() + k_.stores.size(); }

  // --- run-time arguments, loaded once in the entry block
  V Size(size_t d) { return Param(d); }
  V Block() { return Param(k_.dims.size()); }
  V Total(size_t d) { return Param(k_.dims.size() + 1 + d); }
  V Offset(size_t a) { return Param((2 + a) * k_.dims.size() + 1 + a); }

  V I64(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }
  V MinOf(V x, V y) { return b_.CreateSelect(b_.CreateICmpSLT(x, y), x, y); }

  // for (i = from; i + reach < to or i < to; i += step) carried = body(i, carried); returns the last i and carried.
  struct LoopEnd {
    V index;
    Values carried;
  };
  LoopEnd Loop(V from, V to, int64_t step, Values carried, const std::function<Values(V, Values)>& body,
               int64_t reach = 0) {
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

  V MaskOf(V v, V end, int lanes) {
    // Compare in 32 bits: the distance saturates at the lane count.
    V left = MinOf(b_.CreateSub(end, v), I64(lanes));
    std::vector<llvm::Constant*> values;
    for (int i = 0; i < lanes; ++i) values.push_back(b_.getInt32(i));
    V splat = b_.CreateVectorSplat(lanes, b_.CreateTrunc(left, b_.getInt32Ty()));
    return b_.CreateICmpSLT(llvm::ConstantVector::get(values), splat);
  }

  // --- memory
  void StoreTo(size_t s, const Scope& scope, const Lanes& at, bool vector) {
    const Store& store = k_.stores[s];
    const size_t a = k_.loads.size() + k_.indices.size() + s;
    const llvm::Align align(BytesOf(store.access.dtype));
    const int64_t stride = vector ? store.access.strides[k_.vector_dim] : 0;
    const BF16Rounding rounding = bf16_.rounding[store.expr];
    if (!vector || at.count == 1) {
      V part = !vector ? nullptr : stride == 1 ? at.v : b_.CreateMul(at.v, VectorStride(a));
      b_.CreateAlignedStore(code_.ToMemory(scope.values[store.expr], store.access.dtype, rounding),
                            Address(a, scope, part), align);
      return;
    }
    V value = code_.ToMemory(Vector(store.expr, scope, at.count), store.access.dtype, rounding);
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
    V mask = at.mask != nullptr ? at.mask
                                : llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), at.count));
    b_.CreateMaskedScatter(value, addresses, align, mask);
  }

  // Asks for what lies `rows` further along a dimension, a line of the cache once: rows are too far apart for the processor to
  // see a stream. Not what a product has just made.
  void Announce(const Scope& scope, const std::vector<Lanes>& panel, size_t along, V rows, bool stores) {
    for (size_t a = 0; a < accesses(); ++a) {
      const bool load = a < k_.loads.size(), store = a >= k_.loads.size() + k_.indices.size();
      if (!load && !(store && stores)) continue;
      const Access& x = access(a);
      if (x.strides[along] == 0 || x.strides[k_.vector_dim] != 1) continue;
      if (k_.product >= 0 && x.buffer == static_cast<uint32_t>(k_.product)) continue;
      llvm::Type* type = code_.MemoryLlvm(x.dtype);
      V distance = b_.CreateMul(rows, Stride(a, along));
      const size_t vectors = std::max<size_t>(1, 64 / (BytesOf(x.dtype) * panel[0].count));
      for (size_t u = 0; u < panel.size(); u += vectors) {
        V there = b_.CreateGEP(type, Address(a, scope, panel[u].v), distance);
        b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                           {there, b_.getInt32(store), b_.getInt32(3), b_.getInt32(1)});
      }
    }
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

  // --- reductions
  V Identity(const Reduction& r, int lanes) {
    llvm::Type* type = code_.ComputeLlvm(r.dtype);
    llvm::Constant* c = nullptr;
    const bool is_float = IsFloat(r.dtype);
    const unsigned bits = type->getScalarSizeInBits();
    const auto integer = [&](const llvm::APInt& value) { return llvm::ConstantInt::get(type, value); };
    switch (r.op) {
      case ops::Reducer::kSum:
      case ops::Reducer::kOr: c = llvm::Constant::getNullValue(type); break;
      case ops::Reducer::kProd:
        c = is_float ? llvm::ConstantFP::get(type, 1.0) : llvm::ConstantInt::get(type, 1);
        break;
      case ops::Reducer::kAnd: c = llvm::Constant::getAllOnesValue(type); break;
      case ops::Reducer::kMax:
        c = is_float ? llvm::ConstantFP::getInfinity(type, true)
                     : integer(IsSigned(r.dtype) ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getZero(bits));
        break;
      case ops::Reducer::kMin:
        c = is_float
                ? llvm::ConstantFP::getInfinity(type, false)
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

 protected:
  const Access& access(size_t i) const {
    if (i < k_.loads.size()) return k_.loads[i];
    i -= k_.loads.size();
    return i < k_.indices.size() ? k_.indices[i] : k_.stores[i - k_.indices.size()].access;
  }
  V Param(size_t i) {
    if (params_.size() <= i) params_.resize(i + 1, nullptr);
    if (params_[i] == nullptr) {
      V at = entry_.CreateConstInBoundsGEP1_64(entry_.getInt64Ty(), function_->getArg(1), i);
      params_[i] = entry_.CreateLoad(entry_.getInt64Ty(), at);
    }
    return params_[i];
  }
  V Stride(size_t a, size_t d) { return Param((2 + a) * k_.dims.size() + 2 + a + d); }
  V Buffer(uint32_t i) {
    if (buffers_.size() <= i) buffers_.resize(i + 1, nullptr);
    if (buffers_[i] == nullptr) {
      V at = entry_.CreateConstInBoundsGEP1_64(entry_.getPtrTy(), function_->getArg(0), i);
      buffers_[i] = entry_.CreateLoad(entry_.getPtrTy(), at);
    }
    return buffers_[i];
  }

  V Iota(int lanes) {
    std::vector<llvm::Constant*> values;
    for (int i = 0; i < lanes; ++i) values.push_back(b_.getInt64(i));
    return llvm::ConstantVector::get(values);
  }

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
      raw = b_.CreateAlignedLoad(type, Address(a, scope, stride == 1 ? at.v : b_.CreateMul(at.v, VectorStride(a))),
                                 align);
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
      V mask = at.mask != nullptr
                   ? at.mask
                   : llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), at.count));
      raw = b_.CreateMaskedGather(wide, addresses, align, mask, llvm::Constant::getNullValue(wide));
    }
    return code_.FromMemory(raw, x.dtype);
  }

  const LoopKernel& k_;
  llvm::IRBuilder<> b_;
  llvm::IRBuilder<> entry_;
  ScalarCode code_;
  const BF16Facts bf16_;
  const bool masks_;
  llvm::Function* function_ = nullptr;

 private:
  Values params_, buffers_;
};

}  // namespace weft::cpu
