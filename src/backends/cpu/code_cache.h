// Machine code of one instruction set in this process: loops by their form, compiled once whichever programs want them.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/backends/backend.h"
#include "src/backends/cpu/kernels/kernels.h"
#include "src/backends/cpu/launch/program.h"
#include "src/backends/cpu/loop/codegen.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/runtime/mutex.h"

namespace weft::cpu {

// The functions of a program's loops, in order, and what keeps them there.
struct LinkedLoops {
  std::vector<LoopFn*> functions;
  std::vector<std::shared_ptr<const void>> code;
  int64_t bytes = 0;  // about what the code takes that was not there before
};

// Code goes with the last program that has it. Thread-safe.
class CodeCache {
 public:
  explicit CodeCache(CpuTarget target, CodeWatch watch = {});

  const CpuTarget& target() const { return target_; }
  const std::string& fingerprint() const { return fingerprint_; }
  KernelSet& kernels() { return kernels_; }

  // The loops of a lowered module; fills program.objects. `compiled` counts what was not there, which
  // up to `threads` threads compile, and beside it the micro-kernels `micro`. `progress` may be null.
  absl::StatusOr<LinkedLoops> Compile(LoweredModule& lowered, std::span<const int> micro, int threads,
                                      CompileProgress* progress, int64_t* compiled);
  // The loops of a parsed program, from its own objects.
  absl::StatusOr<LinkedLoops> Link(const Program& program);

 private:
  struct Unit {
    std::shared_ptr<const CodeObject> object;
    std::unique_ptr<JitLibrary> library;
  };
  struct Code {
    LoopFn* function = nullptr;
    std::weak_ptr<const Unit> unit;
  };
  using Units = std::vector<std::shared_ptr<const Unit>>;
  absl::StatusOr<std::shared_ptr<const Unit>> Add(std::shared_ptr<const CodeObject> object);
  // The loops in these places as one object. `names`: of all loops.
  absl::StatusOr<std::shared_ptr<const Unit>> CompilePart(const LoweredModule& lowered, std::span<const size_t> loops,
                                                          std::span<const std::string> names);
  // Null if no program has it any more.
  std::shared_ptr<const Unit> UnitOf(const std::string& loop) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `made` is what was not there before.
  absl::StatusOr<LinkedLoops> Linked(const Program& program, const Units& made) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CpuTarget target_;
  std::string fingerprint_;
  Jit jit_;
  KernelSet kernels_;
  Mutex mutex_;
  std::map<std::string, Code, std::less<>> code_ ABSL_GUARDED_BY(mutex_);  // those without a unit are swept out
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 256;                          // so many
};

std::string FingerprintOf(const CpuTarget& target);

}  // namespace weft::cpu
