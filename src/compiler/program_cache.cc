// Lookup, loading and compiling of programs.
#include "src/compiler/program_cache.h"

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "serialization/checksum.h"
#include "src/backends/open_results.h"
#include "src/compiler/canonical.h"
#include "src/compiler/lower.h"
#include "src/compiler/plan_text.h"
#include "src/ir/text.h"
#include "src/passes/pipeline.h"
#include "src/passes/shardings.h"
#include "src/runtime/clock.h"
#include "src/runtime/memory_reserve.h"
#include "src/runtime/trace.h"

namespace weft::compiler {
namespace {

// Length first, so that neighbours never run into each other.
void AppendText(std::string_view text, std::string* out) { absl::StrAppend(out, text.size(), ":", text); }

// As the disk cache names its files, the first 16 digits.
std::string NameOf(const Key& key) { return absl::StrCat(absl::Hex(key.high, absl::kZeroPad16)); }

std::string Milliseconds(int64_t nanoseconds) { return absl::StrCat(nanoseconds / 1000 / 1000.0); }

}  // namespace

Key KeyOf(std::string_view canonical, int bits) {
  const Hash128 hash = Checksum128(std::as_bytes(std::span(canonical.data(), canonical.size())));
  Key key{hash.low, hash.high};
  if (bits <= 64) key.high = 0;
  if (bits < 64) key.low &= (uint64_t{1} << bits) - 1;
  if (bits > 64 && bits < 128) key.high &= (uint64_t{1} << (bits - 64)) - 1;
  return key;
}

ProgramCache::ProgramCache(Config config) : config_(std::move(config)) {
  const Target target = config_.backend->target(config_.options);
  AppendText("weft program 1", &prefix_);
  AppendText(config_.build, &prefix_);
  AppendText("weft source 1", &target_);
  for (std::string* const text : {&prefix_, &target_}) {
    AppendText(target.platform, text);
    AppendText(target.fingerprint, text);
    AppendText(KeyText(config_.options), text);
  }
  // Programs of several devices are for these devices in this order.
  for (std::string* const text : {&prefix_, &target_}) {
    if (config_.options.assignment.empty()) break;
    AppendText(absl::StrCat("devices ", absl::StrJoin(config_.options.assignment, ",")), text);
  }
  // A source has the types of the device; a trace has the caller's.
  const HeldTypes& held = config_.held;
  if (!held.any()) return;
  for (const DType dtype : {held.f32, held.f64, held.i64, held.u64}) AppendText(NameOf(dtype), &prefix_);
}

absl::StatusOr<Ref<const ir::Function>> ProgramCache::Source(const Program& program,
                                                             ir::Participants* participants) const {
  return ReadCanonical(std::string_view(program.canonical).substr(prefix_.size()), participants);
}

std::shared_ptr<Program> ProgramCache::Known(Key key, std::string_view canonical) {
  const auto found = programs_.find(key);
  if (found == programs_.end()) return nullptr;
  for (const auto& program : found->second) {
    if (program->canonical != canonical) continue;
    program->last_used = ++calls_;
    ++program->runs;
    return program;
  }
  return nullptr;
}

std::shared_ptr<const Program> ProgramCache::Find(const Trace& trace, Wanted* wanted) {
  canonical_.assign(prefix_);
  AppendCanonical(trace, &canonical_, &passed_nodes_);
  const Key key = KeyOf(canonical_, config_.hash_bits);
  {
    MutexLock lock(mutex_);
    if (std::shared_ptr<Program> program = Known(key, canonical_)) {
      config_.metrics->Add(Counter::kMemoryCacheHits);
      return program;
    }
    if (programs_.contains(key)) config_.metrics->Add(Counter::kMemoryCacheCollisions);
  }
  *wanted = {.key = key, .canonical = canonical_, .nodes = static_cast<int64_t>(trace.nodes.size())};
  FindReason(trace, wanted);  // first: a copy of the graph would drive the nodes out of the caches
  wanted->module = BuildModule(trace);
  if (config_.dump != nullptr && config_.draw != nullptr) wanted->drawing = config_.draw(trace, "program");
  return nullptr;
}

void ProgramCache::Used(const Program& program) {
  config_.metrics->Add(Counter::kMemoryCacheHits);
  MutexLock lock(mutex_);
  program.last_used = ++calls_;
  ++program.runs;
}

absl::StatusOr<std::shared_ptr<const Program>> ProgramCache::Make(Wanted wanted, CompileProgress* progress) {
  {
    MutexLock lock(mutex_);
    if (std::shared_ptr<Program> program = Known(wanted.key, wanted.canonical)) return program;
  }
  const TraceScope trace(config_.metrics->id());
  static constexpr SpanName kMake{.text = "make program", .kind = SpanKind::kCompile};
  const SpanScope span(kMake);
  const int64_t start = MonotonicNow();
  ir::Participants& who = wanted.module.participants;
  std::vector<passes::UnknownResult> unknown;
  if (!who.mesh.none()) {
    auto* const asks = dynamic_cast<OpenResults*>(config_.backend);
    WEFT_ASSIGN_OR_RETURN(
        who.results, passes::ResultShardings(wanted.module, &unknown, asks != nullptr && asks->TakesOpenResults()));
  }
  std::string source;
  const bool by_source = Stores() && config_.backend->HasSource();
  Place place{wanted.key, wanted.canonical};
  if (by_source) {
    WEFT_RETURN_IF_ERROR(Lower(wanted));
    WEFT_ASSIGN_OR_RETURN(place, PlaceOf(wanted, &source));
  }
  const absl::Cleanup abandon = [this, key = place.key] {
    if (config_.store != nullptr) config_.store->Abandon(key);
  };
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, Load(place));
  const bool loaded = executable != nullptr;
  if (!loaded) {
    // A store that goes by source has texts, which are compared with nothing.
    if (Stores() && !by_source) FindStoredReason(&wanted);
    if (!by_source) WEFT_RETURN_IF_ERROR(Lower(wanted));
    WEFT_ASSIGN_OR_RETURN(executable, Compile(wanted, place, progress, start));
  }
  if (const auto* const lies = dynamic_cast<const LyingResults*>(executable.get());
      lies != nullptr && !lies->result_shardings().empty()) {
    who.results = lies->result_shardings();
  }
  WEFT_RETURN_IF_ERROR(CheckReserve());  // what was taken from the reserve goes back
  const int64_t now = MonotonicNow(), took = now - start;
  config_.metrics->Add(Counter::kNanosecondsCompiling, took);
  config_.metrics->Add(Sample::kCompile, took, now);
  Made made = {NameOf(place.key), took, loaded, CountWhole(wanted.module, unknown)};
  Note([&] {
    const ExecutableStats stats = executable->stats();
    return absl::StrCat("program ", NameOf(place.key), loaded ? " loaded from the disk cache" : " compiled", " for ",
                        config_.backend->platform(), " in ", Milliseconds(took), " ms: ", wanted.nodes, " nodes, ",
                        stats.kernels, " kernels (", stats.kernels_compiled, " compiled), ", stats.code_bytes,
                        " bytes of code, ", stats.temporary_bytes, " bytes of temporaries",
                        stats.flops < 0 ? "" : absl::StrCat(", ", stats.flops, " flops"),
                        stats.bytes_accessed < 0 ? "" : absl::StrCat(", ", stats.bytes_accessed, " bytes accessed"),
                        stats.argument_bytes < 0 ? ""
                                                 : absl::StrCat(", ", stats.argument_bytes, " bytes of arguments, ",
                                                                stats.alias_bytes, " of them for results"),
                        loaded     ? ""
                        : Stores() ? "; not in the disk cache"
                                   : "; no disk cache");
  });
  std::shared_ptr<const Program> program = Keep(wanted, std::move(executable), std::move(made));
  if (config_.dump != nullptr && !loaded) Dump(*program, wanted.module, wanted.drawing);
  return program;
}

int64_t ProgramCache::CountWhole(const ir::Module& module, std::span<const passes::UnknownResult> unknown) const {
  int64_t count = 0;
  const ir::Participants& who = module.participants;
  for (const passes::UnknownResult& result : unknown) {
    if (!who.results[result.result].whole()) continue;  // somebody else knew
    ++count;
    Note([&] {
      const ir::Type& type = module.main().results()[result.result].type();
      const std::string at = ir::ToString(result.location);
      return absl::StrCat("result ", result.result, " of a program of ", who.mesh.size(), " devices, ",
                          ir::ShortType(type), ", is put together on each: no rule says how ", result.operation,
                          at.empty() ? "" : absl::StrCat(" at ", at), " lies");
    });
  }
  return count;
}

void ProgramCache::Dump(const Program& program, const ir::Module& module, std::string_view drawing) const {
  ProgramDump& dump = *config_.dump;
  if (const auto source = Source(program); source.ok()) dump.WriteFunction(program.name, *source);
  dump.Write(program.name, "opt.wir", ir::Print(module));
  dump.Write(program.name, "plan", PlanText(program, config_.backend->platform()));
  if (auto* const shows = dynamic_cast<ShowsCode*>(config_.backend)) {
    dump.Write(program.name, "ll", shows->CodeText(module, config_.options, CodeForm::kLlvm));
    dump.Write(program.name, "s", shows->CodeText(module, config_.options, CodeForm::kAssembly));
  }
  dump.Write(program.name, "dot", std::string(drawing));
  dump.Write(program.name, "why",
             program.why.empty() ? "nothing like it was known\n" : absl::StrCat(program.why, "\n"));
}

std::shared_ptr<const Program> ProgramCache::Keep(Wanted& wanted, std::unique_ptr<Executable> executable, Made made) {
  auto program = std::make_shared<Program>();
  program->why = Why(wanted);
  Explain(wanted, program->why, made);
  config_.made->fetch_add(1, std::memory_order_relaxed);
  program->name = std::move(made.name);
  program->nodes = wanted.nodes;
  program->made_nanoseconds = made.nanoseconds;
  program->loaded = made.loaded;
  program->reason = wanted.difference.reason;
  program->at = wanted.difference.at;
  program->runs = 1;  // who wanted it launches it
  program->canonical = std::move(wanted.canonical);
  program->executable = std::move(executable);
  program->results = std::move(wanted.module.participants.results);
  program->whole_results = made.whole_results;
  program->bytes = static_cast<int64_t>(program->canonical.size()) + program->executable->stats().memory_bytes;
  std::vector<std::shared_ptr<Program>> dropped;
  MutexLock lock(mutex_);
  program->last_used = ++calls_;
  ++size_;
  bytes_ += program->bytes;
  while (size_ > 1 && (size_ > config_.max_programs || (config_.max_bytes > 0 && bytes_ > config_.max_bytes))) {
    dropped.push_back(TakeOldest());
    if (dropped.back() == nullptr) break;
  }
  programs_[wanted.key].push_back(program);
  KeepOutline(program, std::move(wanted.outline));
  return program;
}

std::shared_ptr<Program> ProgramCache::TakeOldest() {
  // A scan of some thousand entries, after a compilation of at least a millisecond.
  auto oldest = programs_.end();
  size_t at = 0;
  uint64_t used = calls_;
  for (auto entry = programs_.begin(); entry != programs_.end(); ++entry) {
    for (size_t i = 0; i < entry->second.size(); ++i) {
      if (entry->second[i]->last_used >= used) continue;
      used = entry->second[i]->last_used;
      oldest = entry;
      at = i;
    }
  }
  if (oldest == programs_.end()) return nullptr;
  --size_;
  std::shared_ptr<Program> taken = std::move(oldest->second[at]);
  bytes_ -= taken->bytes;
  if (taken->outline != nullptr) outline_bytes_ -= std::exchange(taken->outline, nullptr)->bytes();
  if (dropped_.size() >= kMostDropped) dropped_.clear();
  dropped_.insert(oldest->first);
  oldest->second.erase(oldest->second.begin() + static_cast<ptrdiff_t>(at));
  if (oldest->second.empty()) programs_.erase(oldest);
  return taken;
}

absl::StatusOr<ir::Module> ProgramCache::Optimised(ir::Module module) const {
  Wanted wanted;
  wanted.module = std::move(module);
  WEFT_RETURN_IF_ERROR(Lower(wanted));
  return std::move(wanted.module);
}

absl::StatusOr<std::string> ProgramCache::CodeText(ir::Module module, CodeForm form) const {
  ShowsCode* const shows = dynamic_cast<ShowsCode*>(config_.backend);
  if (shows == nullptr) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the platform '", config_.backend->platform(),
                       "' does not show the code of programs; WEFT_TEXT_LOOPS, WEFT_TEXT_LLVM and WEFT_TEXT_ASSEMBLY "
                       "are of the platform cpu");
  }
  WEFT_ASSIGN_OR_RETURN(const ir::Module optimised, Optimised(std::move(module)));
  return shows->CodeText(optimised, config_.options, form);
}

absl::Status ProgramCache::Lower(Wanted& wanted) const {
  passes::PipelineOptions pipeline;
  pipeline.held = config_.held;
  pipeline.claims = [this](const ir::Node& node) { return config_.backend->Claims(node); };
  pipeline.verify_between = config_.options.verify_between_passes;
  WEFT_ASSIGN_OR_RETURN(wanted.module, passes::RunPipeline(std::move(wanted.module), pipeline));
  if (!wanted.module.participants.alone()) {
    WEFT_ASSIGN_OR_RETURN(wanted.module, passes::PlaceDrawn(wanted.module));
  }
  return CheckReserve();
}

absl::StatusOr<ProgramCache::Place> ProgramCache::PlaceOf(const Wanted& wanted, std::string* source) const {
  WEFT_ASSIGN_OR_RETURN(*source, config_.backend->Source(wanted.module));
  source->insert(0, target_);
  WEFT_RETURN_IF_ERROR(CheckReserve());
  return Place{KeyOf(*source, config_.hash_bits), *source};
}

absl::StatusOr<std::unique_ptr<Executable>> ProgramCache::Load(const Place& place) {
  if (!Stores()) return nullptr;
  std::optional<std::string> stored = config_.store->Lookup(place.key, place.canonical);
  if (!stored.has_value()) {
    config_.metrics->Add(Counter::kDiskCacheMisses);
    return nullptr;
  }
  const int64_t start = MonotonicNow();
  static constexpr SpanName kLoad{.text = "load program", .kind = SpanKind::kFile};
  const SpanScope span(kLoad);
  absl::StatusOr<std::unique_ptr<Executable>> executable = config_.backend->Load(*stored);
  // Not the entry's fault.
  if (absl::IsPermissionDenied(executable.status())) return executable.status();
  WEFT_RETURN_IF_ERROR(CheckReserve());
  if (!executable.ok()) {
    config_.metrics->Add(Counter::kDiskCacheErrors);
    config_.store->Reject(place.key, executable.status().message());
    config_.warn(
        absl::StrCat("a cached program could not be loaded and is compiled again: ", executable.status().message()));
    return nullptr;
  }
  config_.metrics->Add(Counter::kDiskCacheHits);
  config_.metrics->Add(Counter::kProgramsLoaded);
  const int64_t now = MonotonicNow();
  config_.metrics->Add(Sample::kLoad, now - start, now);
  return *std::move(executable);
}

absl::StatusOr<std::unique_ptr<Executable>> ProgramCache::Compile(const Wanted& wanted, const Place& place,
                                                                  CompileProgress* progress, int64_t start) {
  CompileOptions options = config_.options;
  options.progress = progress;
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, config_.backend->Compile(wanted.module, options));
  WEFT_RETURN_IF_ERROR(CheckReserve());
  config_.metrics->Add(Counter::kProgramsCompiled);
  if (!Stores()) return executable;
  absl::StatusOr<std::string> bytes = executable->Serialize();
  if (!bytes.ok()) {
    // A backend without serialisation is no reason to complain at each program.
    if (bytes.status().code() != absl::StatusCode::kUnimplemented) {
      config_.metrics->Add(Counter::kDiskCacheErrors);
      config_.warn(absl::StrCat("a program could not be serialised for the cache: ", bytes.status().message()));
    }
    return executable;
  }
  const Target target = config_.backend->target(config_.options);
  config_.store->Publish({.key = place.key,
                          .canonical = std::string(place.canonical),
                          .program = *std::move(bytes),
                          .backend = target.platform,
                          .target = target.fingerprint,
                          .options = KeyText(config_.options),
                          .compile_nanoseconds = MonotonicNow() - start,
                          .nodes = wanted.nodes,
                          .shape = wanted.shape});
  return executable;
}

}  // namespace weft::compiler
