// Loops along reduced dimensions, of which tasks of tens of milliseconds consist: where the layout says so, they look whether the
// launch ends, and leave the function then.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "src/backends/cpu/loop/loop_code.h"
#include "src/backends/cpu/loop/loop_plan.h"

namespace weft::cpu {

class LookingCode : public LoopCode {
 public:
  LookingCode(const LoopKernel& kernel, const CpuTarget& target, JitModule& module, const std::string& symbol)
      : LoopCode(kernel, target, module, symbol), layout_(LayoutOf(kernel, target)) {}

  const Layout& layout() const { return layout_; }

  // Loop along a reduced dimension: where the layout says so, in stretches, before each of which the launch may end. The steps are
  // those of Loop, in their order.
  LoopEnd LoopAlong(size_t d, V from, V to, int64_t step, Values carried, const std::function<Values(V, Values)>& body,
                    int64_t reach = 0) {
    if (layout_.look != static_cast<int>(d)) return Loop(from, to, step, std::move(carried), body, reach);
    V length = Param((2 + accesses()) * k_.dims.size() + 2 + accesses());
    V stretches = b_.CreateSDiv(b_.CreateAdd(b_.CreateSub(to, from), b_.CreateSub(length, I64(1))), length);
    carried.push_back(from);
    Values done = Loop(I64(0), stretches, 1, std::move(carried), [&](V stretch, Values current) {
                    StopIfLaunchEnds();
                    V begin = current.back();
                    current.pop_back();
                    V end = MinOf(to, b_.CreateAdd(from, b_.CreateMul(b_.CreateAdd(stretch, I64(1)), length)));
                    LoopEnd inner = Loop(begin, end, step, std::move(current), body, reach);
                    inner.carried.push_back(inner.index);
                    return inner.carried;
                  }).carried;
    V index = done.back();
    done.pop_back();
    return {index, std::move(done)};
  }

  // The function's end.
  void Return() {
    b_.CreateRetVoid();
    if (stop_ == nullptr) return;
    b_.SetInsertPoint(stop_);
    b_.CreateRetVoid();
  }

 protected:
  const Layout layout_;

 private:
  void StopIfLaunchEnds() {
    llvm::LLVMContext& context = b_.getContext();
    if (stop_ == nullptr) stop_ = llvm::BasicBlock::Create(context, "stop", function_);
    const auto ends = function_->getParent()->getOrInsertFunction("weft_launch_ends",
                                                                  llvm::FunctionType::get(b_.getInt32Ty(), false));
    auto* on = llvm::BasicBlock::Create(context, "", function_);
    b_.CreateCondBr(b_.CreateICmpNE(b_.CreateCall(ends), b_.getInt32(0)), stop_, on);
    b_.SetInsertPoint(on);
  }

  llvm::BasicBlock* stop_ = nullptr;  // where a launch that ends leaves
};

}  // namespace weft::cpu
