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

// Thread-safe.
class CodeCache {
 public:
  explicit CodeCache(CpuTarget target);

  const CpuTarget& target() const { return target_; }
  const std::string& fingerprint() const { return fingerprint_; }
  KernelSet& kernels() { return kernels_; }

  // The functions of a lowered module's loops, in order; fills program.objects. `compiled` counts what was not there, which
  // up to `threads` threads compile, and beside it the micro-kernels `micro`. `progress` may be null.
  absl::StatusOr<std::vector<LoopFn*>> Compile(LoweredModule& lowered, std::span<const int> micro, int threads,
                                               CompileProgress* progress, int64_t* compiled);
  // The functions of a parsed program's loops, from its own objects.
  absl::StatusOr<std::vector<LoopFn*>> Link(const Program& program);

 private:
  struct Unit {
    std::shared_ptr<const CodeObject> object;
    std::unique_ptr<JitLibrary> library;
  };
  struct Code {
    LoopFn* function = nullptr;
    std::shared_ptr<const Unit> unit;
  };
  absl::Status Add(std::shared_ptr<const CodeObject> object);
  // The loops in these places as one object.
  absl::Status CompilePart(const LoweredModule& lowered, std::span<const size_t> loops);

  CpuTarget target_;
  std::string fingerprint_;
  Jit jit_;
  KernelSet kernels_;
  Mutex mutex_;
  std::map<std::string, Code, std::less<>> code_ ABSL_GUARDED_BY(mutex_);
};

std::string FingerprintOf(const CpuTarget& target);

}  // namespace weft::cpu
