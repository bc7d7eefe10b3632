// See code_cache.h.
#include "src/backends/cpu/code_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/loop_names.h"
#include "src/runtime/memory_reserve.h"
#include "src/runtime/on_threads.h"
#include "src/runtime/status.h"
#include "src/runtime/thread_pool.h"
#include "src/runtime/trace.h"

namespace weft::cpu {
namespace {
// Raised whenever generated code or the meaning of a launch list changes: older cache entries are then not found.
constexpr int kCodeRevision = 9;

// Kernels of one LLVM module. With more, a caller that waits learns little of the progress; with fewer, the millisecond that a
// module costs beside its kernels counts.
constexpr size_t kKernelsPerModule = 16;

// Compiling a loop costs as much as so many operations before its first one.
constexpr size_t kLoopWork = 16;

// Loops into modules, of which every thread gets one at least: code generation is most of the cost and runs side by side. The
// largest loops come first and keep company with the fewest others.
std::vector<std::vector<size_t>> Deal(const LoweredModule& lowered, std::vector<size_t> loops, int threads) {
  if (loops.empty()) return {};
  const size_t most =
      std::max((loops.size() + kKernelsPerModule - 1) / kKernelsPerModule, static_cast<size_t>(std::max(threads, 1)));
  std::vector<std::vector<size_t>> modules(std::clamp<size_t>(loops.size() / 3, 1, most));
  const auto work = [&](size_t loop) { return kLoopWork + lowered.loops[loop]->exprs.size(); };
  std::ranges::stable_sort(loops, std::greater<>(), work);
  std::vector<size_t> dealt(modules.size());
  for (const size_t loop : loops) {
    const size_t m = static_cast<size_t>(std::ranges::min_element(dealt) - dealt.begin());
    modules[m].push_back(loop);
    dealt[m] += work(loop);
  }
  return modules;
}

}  // namespace

std::string FingerprintOf(const CpuTarget& target) {
  return absl::StrCat(target.Fingerprint(), "; ", JitVersion(), "; code ", kCodeRevision);
}

CodeCache::CodeCache(CpuTarget target, CodeWatch watch)
    : target_(std::move(target)),
      fingerprint_(FingerprintOf(target_)),
      jit_(target_, watch),
      kernels_(target_, std::move(watch)) {}

absl::StatusOr<std::shared_ptr<const CodeCache::Unit>> CodeCache::Add(std::shared_ptr<const CodeObject> object) {
  auto unit = std::make_shared<Unit>();
  unit->object = object;
  WEFT_ASSIGN_OR_RETURN(unit->library, jit_.Load(object->bytes));
  for (size_t i = 0; i < object->keys.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(LoopFn * function, unit->library->Function<LoopFn>(object->symbols[i]));
    MutexLock lock(mutex_);
    Code& code = code_[object->keys[i]];
    if (code.unit.expired()) code = {function, unit};
  }
  MutexLock lock(mutex_);
  if (code_.size() >= sweep_at_) {
    std::erase_if(code_, [](const auto& one) { return one.second.unit.expired(); });
    sweep_at_ = 2 * code_.size() + 256;
  }
  return unit;
}

std::shared_ptr<const CodeCache::Unit> CodeCache::UnitOf(const std::string& loop) const {
  const auto found = code_.find(loop);
  return found != code_.end() ? found->second.unit.lock() : nullptr;
}

absl::StatusOr<LinkedLoops> CodeCache::Linked(const Program& program, const Units& made) {
  // The linker's own records, and code in pages.
  constexpr int64_t kRecords = 12 << 10;
  LinkedLoops linked;
  for (const std::string& key : program.loops) {
    std::shared_ptr<const Unit> unit = UnitOf(key);
    if (unit == nullptr) return absl::DataLossError("compiled program is damaged: a loop without machine code");
    linked.functions.push_back(code_.find(key)->second.function);
    const bool known = std::ranges::any_of(linked.code, [&](const auto& one) { return one.get() == unit.get(); });
    if (!known) linked.code.push_back(std::move(unit));
  }
  for (const std::shared_ptr<const Unit>& unit : made)
    linked.bytes += 2 * static_cast<int64_t>(unit->object->bytes.size()) + kRecords;
  return linked;
}

absl::StatusOr<std::shared_ptr<const CodeCache::Unit>> CodeCache::CompilePart(const LoweredModule& lowered,
                                                                              std::span<const size_t> loops,
                                                                              std::span<const std::string> names) {
  auto object = std::make_shared<CodeObject>();
  std::vector<const LoopKernel*> kernels;
  for (const size_t i : loops) {
    object->keys.push_back(lowered.program.loops[i]);
    object->symbols.push_back(names[i]);
    kernels.push_back(lowered.loops[i].get());
  }
  WEFT_ASSIGN_OR_RETURN(object->bytes, CompileLoops(jit_, kernels, object->symbols));
  WEFT_RETURN_IF_ERROR(CheckReserve());
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const Unit> unit, Add(std::move(object)));
  WEFT_RETURN_IF_ERROR(CheckReserve());
  return unit;
}

absl::StatusOr<LinkedLoops> CodeCache::Compile(LoweredModule& lowered, std::span<const int> micro, int threads,
                                               CompileProgress* progress, int64_t* compiled) {
  Program& program = lowered.program;
  std::vector<size_t> missing;
  Units known;  // which others may let go of meanwhile
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < program.loops.size(); ++i) {
      known.push_back(UnitOf(program.loops[i]));
      if (known.back() == nullptr) missing.push_back(i);
    }
  }
  *compiled += static_cast<int64_t>(missing.size());
  if (progress != nullptr) progress->kernels.store(static_cast<int64_t>(missing.size() + micro.size()));
  const std::vector<std::vector<size_t>> modules = Deal(lowered, missing, threads);
  const std::vector<std::string> names = missing.empty() ? std::vector<std::string>() : LoopNames(lowered);
  ReserveScope::Starving* const starving = ReserveScope::starving();
  // The small ones last, so that threads end together.
  Units units(modules.size());
  const absl::Status made =
      OnThreads(modules.size() + micro.size(), threads, [&, trace = ThisThreadsTrace()](size_t part) {
        static constexpr SpanName kCode{.text = "generate code", .kind = SpanKind::kCompile};
        const SpanScope span(trace, kCode);
        const ReserveScope reserve(starving);  // of the other threads, too
        const bool loops = part < modules.size();
        absl::Status status;
        if (loops) {
          absl::StatusOr<std::shared_ptr<const Unit>> unit = CompilePart(lowered, modules[part], names);
          if (unit.ok()) units[part] = *std::move(unit);
          status = unit.status();
        } else {
          status = kernels_.Generate(micro[part - modules.size()]);
        }
        if (progress != nullptr) progress->done.fetch_add(loops ? static_cast<int64_t>(modules[part].size()) : 1);
        // Whatever was made of it: that memory ran out, only this thread's scope knows.
        const absl::Status memory = CheckReserve();
        return memory.ok() ? status : memory;
      });
  if (absl::IsResourceExhausted(made)) MemoryReserve::Note();
  WEFT_RETURN_IF_ERROR(made);
  MutexLock lock(mutex_);
  for (const std::string& key : program.loops) {
    const std::shared_ptr<const CodeObject>& object = UnitOf(key)->object;
    if (std::ranges::find(program.objects, object) == program.objects.end()) program.objects.push_back(object);
  }
  return Linked(program, units);
}

absl::StatusOr<LinkedLoops> CodeCache::Link(const Program& program) {
  Units held, made;
  for (const auto& object : program.objects) {
    bool known = !object->keys.empty();
    {
      MutexLock lock(mutex_);
      for (const std::string& key : object->keys) {
        held.push_back(UnitOf(key));
        known = known && held.back() != nullptr;
      }
    }
    if (known) continue;
    WEFT_ASSIGN_OR_RETURN(made.emplace_back(), Add(object));
  }
  MutexLock lock(mutex_);
  return Linked(program, made);
}

}  // namespace weft::cpu
