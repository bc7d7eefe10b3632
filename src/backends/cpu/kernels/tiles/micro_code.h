// The words that register tiles are written in: fields of the argument block, addresses, vectors with or without a mask. micro.cc
// and micro_ending.cc put tiles together from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/backends/cpu/jit/jit_llvm.h"
#include "src/backends/cpu/kernels/tiles/micro.h"

namespace weft::cpu {

// One tile's code while it is written.
struct TileCode {
  using Value = llvm::Value;

  TileCode(const CpuTarget& target, const MicroSpec& spec, JitModule& module)
      : target(target),
        spec(spec),
        pairs(TakesPairs(spec.type)),
        quads(TakesFours(spec.type)),
        lanes(MicroLanes(target, spec.type)),
        element_bytes(spec.type == MicroType::kF64 || spec.type == MicroType::kI64 ? 8 : 4),
        b(*module.context) {
    if (IsIntegers(spec.type)) {
      element = b.getIntNTy(static_cast<unsigned>(8 * element_bytes));
    } else {
      element = element_bytes == 8 ? b.getDoubleTy() : b.getFloatTy();
    }
    vector = llvm::FixedVectorType::get(element, lanes);
    pointer = llvm::PointerType::getUnqual(b.getContext());
    auto* type = llvm::FunctionType::get(b.getVoidTy(), {pointer}, false);
    function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, spec.Symbol(), *module.module);
  }

  llvm::BasicBlock* Block(const char* name) { return llvm::BasicBlock::Create(b.getContext(), name, function); }
  Value* Byte(Value* at, Value* offset) { return b.CreateGEP(b.getInt8Ty(), at, offset); }
  Value* Byte(Value* at, int64_t offset) { return Byte(at, b.getInt64(offset)); }
  // Fields of MicroArgs, by offset.
  Value* Field(int64_t offset) { return b.CreateLoad(b.getInt64Ty(), Byte(args(), offset)); }
  Value* PointerField(int64_t offset) { return b.CreateLoad(pointer, Byte(args(), offset)); }
  Value* args() const { return function->getArg(0); }

  // Lanes below `last` are there in the last vector of each row.
  void SetMask(Value* last) {
    std::vector<llvm::Constant*> index;
    for (int i = 0; i < lanes; ++i) index.push_back(b.getInt64(i));
    mask = b.CreateICmpULT(llvm::ConstantVector::get(index), b.CreateVectorSplat(lanes, last));
  }

  std::vector<llvm::PHINode*> Phis(const std::vector<Value*>& values, llvm::BasicBlock* from) {
    std::vector<llvm::PHINode*> phis;
    for (Value* value : values) {
      auto* phi = b.CreatePHI(vector, 2);
      phi->addIncoming(value, from);
      phis.push_back(phi);
    }
    return phis;
  }
  // Sums that have come by one of two ways.
  std::vector<Value*> Merged(const std::vector<Value*>& one, llvm::BasicBlock* from, const std::vector<Value*>& other,
                             llvm::BasicBlock* from_other) {
    std::vector<Value*> merged;
    for (size_t i = 0; i < one.size(); ++i) {
      auto* phi = b.CreatePHI(vector, 2);
      phi->addIncoming(one[i], from);
      phi->addIncoming(other[i], from_other);
      merged.push_back(phi);
    }
    return merged;
  }

  void Prefetch(Value* address) {
    constexpr int kRead = 0, kKeep = 3, kData = 1;
    b.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer},
                      {address, b.getInt32(kRead), b.getInt32(kKeep), b.getInt32(kData)});
  }

  Value* LoadVector(Value* address, llvm::Type* type, bool masked) {
    const llvm::Align align(type->getScalarSizeInBits() / 8);
    if (!masked) return b.CreateAlignedLoad(type, address, align);
    return b.CreateMaskedLoad(type, address, align, mask, llvm::Constant::getNullValue(type));
  }
  void StoreVector(Value* address, Value* value, bool adding, bool masked) {
    const llvm::Align align(value->getType()->getScalarSizeInBits() / 8);
    if (!masked) {
      if (adding) value = Sum(b.CreateAlignedLoad(vector, address, align), value);
      b.CreateAlignedStore(value, address, align);
      return;
    }
    if (adding) {
      Value* old = b.CreateMaskedLoad(vector, address, align, mask, llvm::ConstantAggregateZero::get(vector));
      value = Sum(old, value);
    }
    b.CreateMaskedStore(value, address, align, mask);
  }

  Value* Sum(Value* x, Value* y) { return IsIntegers(spec.type) ? b.CreateAdd(x, y) : b.CreateFAdd(x, y); }
  Value* Splat(Value* scalar) { return b.CreateVectorSplat(lanes, scalar); }
  llvm::Type* Halves(int vectors) { return llvm::FixedVectorType::get(b.getInt16Ty(), vectors * lanes); }
  Value* Words(int64_t value) {
    return llvm::ConstantInt::get(llvm::FixedVectorType::get(b.getInt32Ty(), lanes), static_cast<uint64_t>(value),
                                  true);
  }

  const CpuTarget& target;
  const MicroSpec& spec;
  const bool pairs, quads;
  const int lanes;
  const int element_bytes;  // also of a pair or four
  llvm::IRBuilder<> b;
  llvm::Type* element = nullptr;
  llvm::FixedVectorType* vector = nullptr;
  llvm::PointerType* pointer = nullptr;
  llvm::Function* function = nullptr;
  Value* mask = nullptr;
};

}  // namespace weft::cpu
