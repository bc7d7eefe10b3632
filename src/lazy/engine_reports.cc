// The engine's reports: texts of graphs, counters, memory, programs and why they were made.
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/compiler/lower.h"
#include "src/compiler/plan_text.h"
#include "src/ir/text.h"
#include "src/lazy/engine.h"
#include "src/lazy/service/graph_file.h"
#include "src/lazy/value/live_report.h"

namespace weft::lazy {

absl::StatusOr<std::string> Engine::GraphText(std::span<Tensor* const> tensors, TextFormat format) {
  Lock lock(recorder_, Lock::To::kChange, Replay::Miss::kText);
  Cut cut;
  if (tensors.empty()) {
    WEFT_RETURN_IF_ERROR(recorder_.CheckOpen());
    evaluator_.planner().Live(recorder_.meshes().front().live, recorder_.time(), CutPlanner::For::kBarrier, &cut);
  }
  for (Tensor* tensor : tensors) {
    WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(tensor, "the text of a graph: a tensor"));
    cut.Add(tensor->value());
  }
  WEFT_RETURN_IF_ERROR(evaluator_.planner().Trace(&cut));
  if (!tensors.empty()) CutPlanner::Lie(tensors[0]->sharding().mesh(), &cut);
  if (format == TextFormat::kDot) return GraphDot(cut.trace, "program");
  const MeshState& state = tensors.empty() ? recorder_.meshes().front() : recorder_.StateOf(tensors[0]->sharding());
  return ModuleText(compiler::BuildModule(cut.trace), *state.programs, format);
}

absl::StatusOr<std::string> Engine::ModuleText(ir::Module module, const compiler::ProgramCache& cache,
                                               TextFormat format) const {
  switch (format) {
    case TextFormat::kLoops: return cache.CodeText(std::move(module), CodeForm::kLoops);
    case TextFormat::kLlvm: return cache.CodeText(std::move(module), CodeForm::kLlvm);
    case TextFormat::kAssembly: return cache.CodeText(std::move(module), CodeForm::kAssembly);
    case TextFormat::kStableHlo:
      return compiler::StableHloText(module, absl::AsciiStrToUpper(options_.matmul_precision));
    case TextFormat::kOptimised: {
      WEFT_ASSIGN_OR_RETURN(module, cache.Optimised(std::move(module)));
      break;
    }
    case TextFormat::kDot:
    case TextFormat::kIr: break;
  }
  return ir::Print(module);
}

absl::StatusOr<std::string> Engine::PlanText(std::span<Tensor* const> tensors) {
  std::vector<std::pair<Ref<Evaluator::Job>, Evaluator::ProgramPointer>> programs;
  const auto take = [&](absl::StatusOr<Ref<Evaluator::Job>> job, Evaluator::ProgramPointer known) {
    if (job.ok() && (*job != nullptr || known != nullptr)) programs.emplace_back(*std::move(job), std::move(known));
    return job.status();
  };
  {
    Lock lock(recorder_, Lock::To::kChange, Replay::Miss::kText);
    WEFT_RETURN_IF_ERROR(recorder_.CheckOpen());
    Evaluator::ProgramPointer known;
    if (tensors.empty()) {
      absl::StatusOr<Ref<Evaluator::Job>> job = evaluator_.CompileBarrier(lock, recorder_.meshes().front(), &known);
      WEFT_RETURN_IF_ERROR(take(std::move(job), std::move(known)));
    } else {
      WEFT_ASSIGN_OR_RETURN(const std::vector<ValuesAt> all, ValuesOf(tensors, "the plan of a program: a tensor"));
      for (const auto& [state, values] : all) {
        absl::StatusOr<Ref<Evaluator::Job>> job = evaluator_.CompileThese(lock, *state, values, &known);
        WEFT_RETURN_IF_ERROR(take(std::move(job), std::move(known)));
      }
    }
  }
  std::string text;
  for (const auto& [job, known] : programs) {
    if (job != nullptr) WEFT_RETURN_IF_ERROR(evaluator_.WaitFor(*job));
    if (job != nullptr) WEFT_RETURN_IF_ERROR(job->result().status());
    WEFT_ASSIGN_OR_RETURN(const std::string one,
                          compiler::PlanText(known != nullptr ? *known : **job->result(), devices()[0]->name));
    text += one;
  }
  return text.empty() ? "nothing is to be computed\n" : text;
}

Snapshot Engine::TakeSnapshot() const {
  Snapshot snapshot;
  metrics_->AddTo(&snapshot);
  for (Device* device : device_list_) {
    const MemoryStats stats = device->backend->memory_stats(device);
    snapshot.memory.push_back({device->name, device->kind, stats.bytes_in_use, stats.peak_bytes, stats.bytes_limit,
                               device->backend->attributes(device)});
  }
  Lock lock(recorder_, Lock::To::kNote);
  recorder_.op_counts().AddTo(&snapshot);
  snapshot.last_replay_miss = recorder_.LastMiss();
  return snapshot;
}

absl::StatusOr<std::string> Engine::MemoryReport(const Device& device, bool json) const {
  const MemoryStats stats = device.backend->memory_stats(const_cast<Device*>(&device));
  const std::string own = device.backend->attributes(const_cast<Device*>(&device));
  // Others record meanwhile: so many tensors at a time are looked at in well below a millisecond.
  constexpr size_t kAtATime = 1024;
  LiveReporter reporter;
  int64_t pending_nodes = 0;
  uint64_t barriers = 0;
  Tensor* next = nullptr;  // stays where it is
  do {
    Lock lock(recorder_, Lock::To::kNote);
    const MeshState& state = recorder_.StateOf(device);
    LiveList::Iterator at = next == nullptr ? state.live.begin() : LiveList::Iterator(next);
    if (next != nullptr) recorder_.LetGoOfBorrowed({&next, 1});
    reporter.Add(at, kAtATime);
    next = at == state.live.end() ? nullptr : &*at;
    if (next != nullptr) recorder_.KeepBorrowed({&next, 1});
    pending_nodes = state.policy.pending_nodes();
    barriers = recorder_.barriers();
  } while (next != nullptr);
  LiveReport live = reporter.Take();
  live.pending_nodes = pending_nodes;
  live.barriers = barriers;
  return json ? JsonOf(live, stats, own, device.name) : TextOf(live, stats, own, device.name);
}

std::vector<compiler::ProgramCache*> Engine::Caches() {
  std::vector<compiler::ProgramCache*> caches;
  for (const auto& cache : programs_) caches.push_back(cache.get());
  Lock lock(recorder_, Lock::To::kNote);
  for (const auto& cache : mesh_programs_) caches.push_back(cache.get());
  for (const auto& [target, cache] : other_targets_) caches.push_back(cache.get());
  return caches;
}

std::string Engine::ListPrograms() {
  std::vector<std::string> list;
  for (compiler::ProgramCache* cache : Caches()) {
    for (std::string& program : cache->List()) list.push_back(std::move(program));
  }
  return absl::StrCat("[", absl::StrJoin(list, ",\n "), "]");
}

std::vector<Engine::KnownProgram> Engine::Programs() {
  std::vector<KnownProgram> all;
  for (const compiler::ProgramCache* cache : Caches()) {
    for (auto& program : cache->Programs()) all.push_back({std::move(program), cache});
  }
  return all;
}

absl::StatusOr<std::string> Engine::KnownText(const KnownProgram& known, TextFormat format) const {
  ir::Participants who;
  WEFT_ASSIGN_OR_RETURN(const Ref<const ir::Function> function, known.cache->Source(*known.program, &who));
  compiler::Trace trace = compiler::TraceOf(*function);
  trace.participants = std::move(who);
  if (format == TextFormat::kDot) return GraphDot(trace, "program");
  return ModuleText(compiler::BuildModule(trace), *known.cache, format);
}

void Engine::ExplainAll() {
  if (!explain_) return;
  std::string text = absl::StrCat("programs made: ", programs_made_->load(std::memory_order_relaxed), "\n");
  for (const auto& cache : programs_) text += cache->Summary();
  {
    Lock lock(recorder_, Lock::To::kNote);
    for (const auto& cache : mesh_programs_) text += cache->Summary();
  }
  for (int i = 0; explain_launches_ && i <= static_cast<int>(CutReason::kCustom); ++i) {
    const Counter counter = Launcher::CounterOf(static_cast<CutReason>(i));
    if (const int64_t times = metrics_->Get(counter); times > 0)
      absl::StrAppend(&text, "  launched ", InfoOf(counter).meaning, ": ", times, "\n");
  }
  text.pop_back();
  explain_(text);
}

void Engine::SettleCompiles(bool settled) {
  Lock lock(recorder_, Lock::To::kNote);
  evaluator_.SettleCompiles(settled, programs_made_->load(std::memory_order_relaxed));
}

std::optional<int64_t> Engine::CounterOf(std::string_view name) const {
  if (const std::optional<int64_t> value = metrics_->Get(name)) return value;
  Lock lock(recorder_, Lock::To::kNote);
  return recorder_.op_counts().Get(name);
}

void Engine::ClearMetrics() {
  Lock lock(recorder_, Lock::To::kNote);
  recorder_.op_counts().Clear();
  metrics_->Clear();
  PartScope::Begin(*metrics_);
}

}  // namespace weft::lazy
