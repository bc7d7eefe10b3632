// See code_cache.h.
#include "src/backends/cpu/code_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/runtime/memory_reserve.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {
// Raised whenever generated code or the meaning of a launch list changes: older cache entries are then not found.
constexpr int kCodeRevision = 2;
}  // namespace

std::string FingerprintOf(const CpuTarget& target) {
  return absl::StrCat(target.Fingerprint(), "; ", JitVersion(), "; code ", kCodeRevision);
}

CodeCache::CodeCache(CpuTarget target)
    : target_(std::move(target)), fingerprint_(FingerprintOf(target_)), jit_(target_), kernels_(target_) {}

absl::Status CodeCache::Add(std::shared_ptr<const CodeObject> object) {
  auto unit = std::make_shared<Unit>();
  unit->object = object;
  WEFT_ASSIGN_OR_RETURN(unit->library, jit_.Load(object->bytes));
  for (size_t i = 0; i < object->keys.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(LoopFn * function, unit->library->Function<LoopFn>(object->symbols[i]));
    MutexLock lock(mutex_);
    code_.try_emplace(object->keys[i], Code{function, unit});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LoopFn*>> CodeCache::Compile(LoweredModule& lowered, ThreadPool& pool, int64_t* compiled) {
  Program& program = lowered.program;
  std::vector<size_t> missing;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < program.loops.size(); ++i) {
      if (!code_.contains(program.loops[i])) missing.push_back(i);
    }
  }
  *compiled += static_cast<int64_t>(missing.size());
  if (!missing.empty()) {
    // A module a thread: code generation is most of the cost and runs side by side.
    const size_t modules = std::clamp<size_t>(missing.size() / 3, 1, static_cast<size_t>(pool.threads()));
    std::vector<absl::Status> failures(modules);
    ReserveScope::Starving* const starving = ReserveScope::starving();
    pool.ParallelFor(static_cast<int64_t>(modules), [&](int64_t m) {
      const ReserveScope reserve(starving);  // of the workers, too
      failures[m] = [&]() -> absl::Status {
        auto object = std::make_shared<CodeObject>();
        std::vector<const LoopKernel*> kernels;
        for (size_t k = static_cast<size_t>(m); k < missing.size(); k += modules) {
          const size_t i = missing[k];
          object->keys.push_back(program.loops[i]);
          object->symbols.push_back(absl::StrCat("loop_", i));
          kernels.push_back(&lowered.loops[i]);
        }
        WEFT_ASSIGN_OR_RETURN(object->bytes, CompileLoops(jit_, kernels, object->symbols));
        WEFT_RETURN_IF_ERROR(CheckReserve());
        WEFT_RETURN_IF_ERROR(Add(std::move(object)));
        return CheckReserve();
      }();
    });
    for (const absl::Status& failure : failures) WEFT_RETURN_IF_ERROR(failure);
  }
  std::vector<LoopFn*> functions;
  MutexLock lock(mutex_);
  for (const std::string& key : program.loops) {
    const Code& code = code_.at(key);
    functions.push_back(code.function);
    if (std::find(program.objects.begin(), program.objects.end(), code.unit->object) == program.objects.end()) {
      program.objects.push_back(code.unit->object);
    }
  }
  return functions;
}

absl::StatusOr<std::vector<LoopFn*>> CodeCache::Link(const Program& program) {
  for (const auto& object : program.objects) {
    bool known = !object->keys.empty();
    {
      MutexLock lock(mutex_);
      for (const std::string& key : object->keys) known = known && code_.contains(key);
    }
    if (!known) WEFT_RETURN_IF_ERROR(Add(object));
  }
  std::vector<LoopFn*> functions;
  MutexLock lock(mutex_);
  for (const std::string& key : program.loops) {
    auto found = code_.find(key);
    if (found == code_.end()) return absl::DataLossError("compiled program is damaged: a loop without machine code");
    functions.push_back(found->second.function);
  }
  return functions;
}

}  // namespace weft::cpu
