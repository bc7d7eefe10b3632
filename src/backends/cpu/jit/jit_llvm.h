// The one header through which generators of code see LLVM. Only files that build IR include it.
#pragma once

#include <memory>
#include <string>

#include "llvm/IR/BasicBlock.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"
#include "src/backends/cpu/jit/jit.h"
#include "src/runtime/fork_waits.h"

namespace weft::cpu {

// A module owns its context, so that modules can be built and compiled on several threads. It is made and ended on one of them,
// because it holds up forks: a child must not find LLVM's locks taken.
struct JitModule {
  explicit JitModule(const std::string& name) : context(std::make_unique<llvm::LLVMContext>()) {
    module = std::make_unique<llvm::Module>(name, *context);
  }
  const ForkWaits fork_waits;
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
};

// LLVM's text of a module, for dumps and tests.
std::string TextOf(const JitModule& module);

}  // namespace weft::cpu
