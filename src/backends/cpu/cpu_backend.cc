// See cpu_backend.h.
#include "src/backends/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/code_text.h"
#include "src/backends/cpu/describe.h"
#include "src/backends/cpu/executable.h"
#include "src/backends/cpu/lower/lower_region.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ir/op_def.h"
#include "src/ir/text.h"
#include "src/ops/collective/processes.h"
#include "src/passes/fuse.h"
#include "src/passes/move_channels.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

absl::StatusOr<ir::Module> FuseModule(const ir::Module& module) {
  ir::Module fused = module;
  passes::FuseOptions options;
  options.can_fuse = IsLoopNode;
  options.ends_sums = EndsSums;
  options.joins_parts = JoinsParts;
  WEFT_ASSIGN_OR_RETURN(const Ref<const ir::Function> moved, passes::MoveChannels(module.main()));
  WEFT_ASSIGN_OR_RETURN(fused.functions[0], passes::Fuse(*moved, options));
  return fused;
}

// More than any memory: such a program's launch says so, and the sizes of its scratch need not fit an integer.
constexpr int64_t kNoMemory = int64_t{1} << 46;

bool FitsMemory(const Program& program) {
  int64_t most = program.arena_bytes;
  for (const auto* specs : {&program.arguments, &program.results}) {
    for (const ValueSpec& spec : *specs) most = std::max(most, CountOf(spec.dims) * BytesOf(spec.dtype));
  }
  return most <= kNoMemory;
}

// Returns the position of the kept operand of which an entry reads little, by rows; the number of kept operands if there is none.
// A gather out of a panel takes a cache line an element.
size_t KeptForPieces(const LoadedProgram& loaded, const Entry& entry) {
  constexpr int64_t kLeastShare = 16;
  const HostKernel* const kernel = entry.type == Entry::Type::kHost ? loaded.host[entry.code] : nullptr;
  size_t k = 0;
  if (kernel == nullptr || !kernel->reads_pieces || entry.buffers.empty() ||
      entry.buffers[0].place != BufferRef::Place::kArgument) {
    return loaded.kept.size();
  }
  while (k < loaded.kept.size() && loaded.kept[k].argument != entry.buffers[0].index) ++k;
  if (k == loaded.kept.size()) return k;
  const KeptOperand& kept = loaded.kept[k];
  const bool quick = kept.returns && loaded.host[kept.entry->code]->unpacks_pieces;
  return quick && entry.writes * kLeastShare <= kept.bytes ? k : loaded.kept.size();
}

// Ordered by argument, each form of one once.
void FindKeptOperands(LoadedProgram& loaded) {
  struct Found {
    const Entry* entry;
    KeptOperand operand;
  };
  std::vector<Found> found;
  ForEachKernel(loaded.program, [&](const Entry& entry) {
    const HostKernel* const kernel = entry.type == Entry::Type::kHost ? loaded.host[entry.code] : nullptr;
    if (kernel == nullptr || kernel->packs == nullptr) return;
    PackedOperand operand = kernel->packs(entry.params, loaded.code->target());
    if (operand.buffer < 0 || static_cast<size_t>(operand.buffer) >= entry.buffers.size()) return;
    const BufferRef& buffer = entry.buffers[operand.buffer];
    if (buffer.place != BufferRef::Place::kArgument) return;
    const bool whole = operand.elements > 0 && operand.elements == CountOf(loaded.program.arguments[buffer.index].dims);
    found.push_back({&entry, {buffer.index, operand.bytes, {kernel, std::move(operand.form)}, &entry, whole}});
  });
  std::ranges::stable_sort(found, {}, [](const Found& one) { return one.operand.argument; });
  for (Found& one : found) {
    auto same = loaded.kept.rbegin();
    while (same != loaded.kept.rend() && same->argument == one.operand.argument && !(same->key == one.operand.key))
      ++same;
    if (same == loaded.kept.rend() || same->argument != one.operand.argument) {
      loaded.kept_of.emplace(one.entry, loaded.kept.size());
      loaded.kept.push_back(std::move(one.operand));
    } else {
      loaded.kept_of.emplace(one.entry, static_cast<size_t>(loaded.kept.rend() - same - 1));
    }
  }
  // An argument that anything else reads does not live packed.
  std::vector<int> plain(loaded.program.arguments.size());
  for (const EntryList& list : loaded.program.lists) {
    for (const Entry& entry : list) {
      for (const BufferRef& buffer : entry.buffers) {
        if (buffer.place == BufferRef::Place::kArgument) ++plain[buffer.index];
      }
      if (const size_t kept = KeptForPieces(loaded, entry); kept < loaded.kept.size()) {
        loaded.pieces_of.emplace(&entry, kept);
        --plain[loaded.kept[kept].argument];
      }
    }
  }
  for (const auto& [entry, kept] : loaded.kept_of) --plain[loaded.kept[kept].argument];
  for (size_t i = 0; i < loaded.kept.size(); ++i) {
    const uint32_t argument = loaded.kept[i].argument;
    const bool other = (i > 0 && loaded.kept[i - 1].argument == argument) ||
                       (i + 1 < loaded.kept.size() && loaded.kept[i + 1].argument == argument);
    loaded.kept[i].alone = loaded.kept[i].returns && !other && plain[argument] == 0;
  }
}

absl::Status PrepareEntry(const HostKernel& kernel, const Entry& entry, KernelSet& kernels, int threads,
                          ScratchNeeds& needs) {
  if (kernel.prepare == nullptr) return absl::OkStatus();
  BlockLoop epilogue;
  epilogue.product = entry.epilogue_consumes;
  return kernel.prepare({entry.params, kernels, threads, needs, entry.epilogue >= 0 ? &epilogue : nullptr});
}

// Behind their preparation, which has made their tiles.
void PlanEntries(LoadedProgram& loaded, int threads) {
  loaded.plans.resize(loaded.program.lists.size());
  for (size_t list = 0; list < loaded.program.lists.size(); ++list) {
    const EntryList& entries = loaded.program.lists[list];
    loaded.plans[list].resize(entries.size());
    for (size_t e = 0; e < entries.size(); ++e) {
      const Entry& entry = entries[e];
      const HostKernel* const kernel = entry.type == Entry::Type::kHost ? loaded.host[entry.code] : nullptr;
      if (kernel == nullptr || kernel->plan == nullptr) continue;
      ScratchNeeds needs;  // are known
      BlockLoop epilogue;
      epilogue.product = entry.epilogue_consumes;
      loaded.plans[list][e] = kernel->plan(
          {entry.params, loaded.code->kernels(), threads, needs, entry.epilogue >= 0 ? &epilogue : nullptr});
    }
  }
}

// Finds the register tiles that PrepareEntries would generate one after the other, so that they are generated with the loops.
std::vector<int> MissingMicroKernels(const Program& program, int threads, KernelSet& kernels) {
  if (!FitsMemory(program)) return {};
  return kernels.MissingAfter([&] {
    ScratchNeeds needs;
    ForEachKernel(program, [&](const Entry& entry) {
      if (entry.type != Entry::Type::kHost) return;
      const HostKernel* const kernel = FindHostKernel(program.host_kernels[entry.code]);
      if (kernel != nullptr) PrepareEntry(*kernel, entry, kernels, threads, needs).IgnoreError();  // it comes again
    });
  });
}

// Looks the library's kernels up and has everything ready that entries will ask for on so many threads.
absl::Status PrepareEntries(LoadedProgram& loaded, int threads, const std::shared_ptr<ops::CustomFunctions>& custom) {
  for (const std::string& name : loaded.program.host_kernels) {
    if (name.starts_with(custom::kCustomPrefix)) {
      loaded.customs.resize(loaded.program.host_kernels.size());
      WEFT_ASSIGN_OR_RETURN(loaded.customs[loaded.host.size()], custom::CustomCall::Find(name, custom));
      loaded.host.push_back(nullptr);
      continue;
    }
    const HostKernel* kernel = FindHostKernel(name);
    if (kernel == nullptr) return absl::DataLossError(absl::StrCat("compiled program wants the unknown kernel ", name));
    loaded.host.push_back(kernel);
  }
  NameEntries(loaded);
  for (const auto& object : loaded.program.objects) loaded.code_bytes += static_cast<int64_t>(object->bytes.size());
  if (!FitsMemory(loaded.program)) return absl::OkStatus();
  absl::Status status;
  ForEachKernel(loaded.program, [&](const Entry& entry) {
    loaded.most_buffers = std::max(loaded.most_buffers, entry.buffers.size());
    const HostKernel* const kernel = entry.type == Entry::Type::kHost ? loaded.host[entry.code] : nullptr;
    if (kernel != nullptr && kernel->find != nullptr &&
        (entry.buffers.size() < 2 || entry.buffers.back().place != BufferRef::Place::kCarried)) {
      status = absl::DataLossError("compiled program is damaged: a row in no place");
    }
    if (entry.type == Entry::Type::kLoop) {
      loaded.needs.Each(ScratchSlot::kLoop, entry.scratch_bytes);
    } else if (status.ok() && loaded.host[entry.code] == nullptr) {
      status = loaded.customs[entry.code]->Check(entry.buffers.size(), entry.params);
    } else if (status.ok()) {
      status = PrepareEntry(*loaded.host[entry.code], entry, loaded.code->kernels(), threads, loaded.needs);
    }
  });
  if (status.ok()) {
    FindKeptOperands(loaded);
    PlanEntries(loaded, threads);
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(const CpuOptions& options) {
  WEFT_ASSIGN_OR_RETURN(CpuTarget target, TargetFromName(options.isa.empty() ? "auto" : options.isa));
  return std::unique_ptr<CpuBackend>(new CpuBackend(options, std::move(target)));
}

CpuBackend::CpuBackend(const CpuOptions& options, CpuTarget target)
    : options_(options),
      target_(std::move(target)),
      devices_("cpu", absl::StrCat("x86-64 ", target_.name()), options.devices, this),
      budget_(options.services.budget),
      panels_(std::make_shared<KeptPanels>(budget_)),
      blocks_(std::make_shared<BlockPool>(budget_, panels_)),
      queue_(std::make_shared<LaunchQueue>(options.services, ThreadPool::Shared(options.threads), blocks_)),
      threads_(queue_->pool()->threads()),
      compile_threads_(options.compile_threads > 0 ? options.compile_threads : threads_) {
  const LogHook& log = options_.services.log;
  if (log.Wants(LogLevel::kDebug)) {
    log.write(LogLevel::kDebug, absl::StrCat("platform cpu: ", FingerprintOf(target_), ", ", threads_, " threads, ",
                                             compile_threads_, " that compile, memory limit ", budget_->limit()));
  }
}

CpuBackend::~CpuBackend() {
  if (queue_->CheckProcess().ok()) {
    queue_->Drain();
  } else {
    // Its thread stayed in the fork's parent: nobody to wait for, nobody to join.
    static_cast<void>(new std::shared_ptr<LaunchQueue>(queue_));
  }
}

bool CpuBackend::Help() { return queue_->Help(); }
std::string CpuBackend::attributes(Device*) const {
  return absl::StrCat("{\"tensors\": ", blocks_->in_use(), ", \"kept_for_reuse\": ", blocks_->kept(),
                      ", \"packed_weights\": ", panels_->bytes(), ", \"temporaries\": ", queue_->arena_bytes(), "}");
}
void CpuBackend::Trim(Device*) { queue_->GiveBack(); }
void CpuBackend::Close() { queue_->Close(); }

std::shared_ptr<ThreadPool> CpuBackend::pool() const { return queue_->pool(); }

Target CpuBackend::target(const CompileOptions& options) const {
  Target target;
  target.platform = "cpu";
  if (options.isa.empty()) {
    target.fingerprint = FingerprintOf(target_);
    return target;
  }
  // An instruction set that this machine lacks has a name all the same; compiling for it then says why not.
  absl::StatusOr<CpuTarget> forced = TargetFromName(options.isa);
  target.fingerprint = forced.ok() ? FingerprintOf(*forced) : absl::StrCat("unavailable ", options.isa);
  return target;
}

bool CpuBackend::Claims(const ir::Node& composite) const {
  const ir::OpDef& op = composite.op();
  return op.lowering == ir::Lowering::kScalar ||
         (op.lowering == ir::Lowering::kKernel && HasLowerRule(composite, target_));
}

absl::StatusOr<std::shared_ptr<CodeCache>> CpuBackend::CodeFor(std::string_view isa) {
  CpuTarget target = target_;
  if (!isa.empty()) {
    WEFT_ASSIGN_OR_RETURN(target, TargetFromName(isa));
  }
  MutexLock lock(mutex_);
  std::shared_ptr<CodeCache>& cache = code_[FingerprintOf(target)];
  if (cache == nullptr) {
    CodeWatch watch = options_.watch;
    watch.log = options_.services.log;
    cache = std::make_shared<CodeCache>(std::move(target), std::move(watch));
  }
  return cache;
}

absl::StatusOr<std::unique_ptr<Executable>> CpuBackend::Compile(const ir::Module& module,
                                                                const CompileOptions& options) {
  WEFT_RETURN_IF_ERROR(ops::RefuseOthers(module, "cpu"));
  const SpanScope span(*options_.services.trace, kCompileSpan);
  auto loaded = std::make_shared<LoadedProgram>();
  WEFT_ASSIGN_OR_RETURN(loaded->code, CodeFor(options.isa));
  WEFT_ASSIGN_OR_RETURN(const ir::Module fused, FuseModule(module));
  WEFT_ASSIGN_OR_RETURN(LoweredModule lowered, LowerModule(fused, loaded->code->target(), options));
  const int64_t micro_before = loaded->code->kernels().compiled();
  const std::vector<int> micro = MissingMicroKernels(lowered.program, threads_, loaded->code->kernels());
  WEFT_ASSIGN_OR_RETURN(loaded->loops,
                        loaded->code->Compile(lowered, micro, compile_threads_, options.progress, &loaded->compiled));
  loaded->program = std::move(lowered.program);
  loaded->program.fingerprint = loaded->code->fingerprint();
  loaded->program.isa = std::string(loaded->code->target().name());
  WEFT_RETURN_IF_ERROR(PrepareEntries(*loaded, threads_, options_.custom));
  loaded->compiled += loaded->code->kernels().compiled() - micro_before;
  return NewExecutable(std::move(loaded), devices_.first(), blocks_, panels_, queue_);
}

absl::StatusOr<std::unique_ptr<Executable>> CpuBackend::Load(std::string_view serialized) {
  auto loaded = std::make_shared<LoadedProgram>();
  WEFT_ASSIGN_OR_RETURN(loaded->program, ParseProgram(serialized));
  absl::StatusOr<std::shared_ptr<CodeCache>> code = CodeFor(loaded->program.isa);
  if (!code.ok())
    return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                       "compiled program is for another machine: ", code.status().message());
  loaded->code = *std::move(code);
  if (loaded->program.fingerprint != loaded->code->fingerprint()) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "compiled program is for ", loaded->program.fingerprint,
                       ", this is ", loaded->code->fingerprint());
  }
  const int64_t micro_before = loaded->code->kernels().compiled();
  if (!loaded->program.micro_kernels.empty()) {
    const std::string& bytes = loaded->program.micro_kernels;
    WEFT_RETURN_IF_ERROR(loaded->code->kernels().ImportObjects(std::as_bytes(std::span(bytes.data(), bytes.size()))));
  }
  WEFT_ASSIGN_OR_RETURN(loaded->loops, loaded->code->Link(loaded->program));
  WEFT_RETURN_IF_ERROR(PrepareEntries(*loaded, threads_, options_.custom));
  loaded->program.micro_kernels.clear();
  loaded->compiled = loaded->code->kernels().compiled() - micro_before;
  return NewExecutable(std::move(loaded), devices_.first(), blocks_, panels_, queue_);
}

absl::StatusOr<std::string> CpuBackend::CodeText(const ir::Module& module, const CompileOptions& options,
                                                 CodeForm form) {
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<CodeCache> code, CodeFor(options.isa));
  WEFT_ASSIGN_OR_RETURN(const ir::Module fused, FuseModule(module));
  WEFT_ASSIGN_OR_RETURN(LoweredModule lowered, LowerModule(fused, code->target(), options));
  if (form == CodeForm::kLoops) {
    WEFT_ASSIGN_OR_RETURN(const std::string loops, CodeTextOf(lowered, {}, code->target(), form));
    return absl::StrCat(ir::Print(fused), loops);
  }
  KernelSet none(code->target());
  return CodeTextOf(lowered, MissingMicroKernels(lowered.program, threads_, none), code->target(), form);
}

absl::StatusOr<Ref<Buffer>> CpuBackend::ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                                 std::span<const std::byte> bytes) {
  if (device->backend != this) return UserError("the buffer's device is not one of this backend");
  WEFT_ASSIGN_OR_RETURN(Ref<Block> block, NewBlock(blocks_, static_cast<int64_t>(bytes.size())));
  if (!bytes.empty()) std::memcpy(block->data(), bytes.data(), bytes.size());
  return Ref<Buffer>(new CpuBuffer(device, dtype, Dims(dims.begin(), dims.end()), Event::Done(), std::move(block)));
}

absl::StatusOr<HostWritable::Writable> CpuBackend::NewWritable(Device* device, DType dtype,
                                                               std::span<const int64_t> dims) {
  if (device->backend != this) return UserError("the buffer's device is not one of this backend");
  WEFT_ASSIGN_OR_RETURN(Ref<Block> block, NewBlock(blocks_, CountOf(dims) * BytesOf(dtype)));
  void* const data = block->data();
  return Writable{
      Ref<Buffer>(new CpuBuffer(device, dtype, Dims(dims.begin(), dims.end()), Event::Done(), std::move(block))), data};
}

absl::StatusOr<Ref<Buffer>> CpuBackend::Adopt(Device* device, DType dtype, std::span<const int64_t> dims, void* data,
                                              std::function<void()> release) {
  if (device->backend != this) {
    if (release) release();
    return UserError("the buffer's device is not one of this backend");
  }
  Ref<Block> block(new Block(data, std::move(release)));
  return Ref<Buffer>(new CpuBuffer(device, dtype, Dims(dims.begin(), dims.end()), Event::Done(), std::move(block)));
}

absl::Status CpuBackend::FromDevice(Buffer& buffer, int64_t offset, std::span<std::byte> destination) {
  WEFT_RETURN_IF_ERROR(buffer.ready().Wait());
  if (offset < 0 || offset > buffer.bytes() || static_cast<int64_t>(destination.size()) > buffer.bytes() - offset) {
    return UserError("bytes ", offset, " to ", offset + static_cast<int64_t>(destination.size()), " of a buffer of ",
                     buffer.bytes());
  }
  if (CpuBuffer* const own = CpuBuffer::Of(&buffer)) return own->Read(offset, destination);
  if (!destination.empty())
    std::memcpy(destination.data(), static_cast<const char*>(buffer.host_data()) + offset, destination.size());
  return absl::OkStatus();
}

MemoryStats CpuBackend::memory_stats(Device*) const {
  MemoryStats stats;
  stats.bytes_in_use = blocks_->in_use() + queue_->arena_bytes() + panels_->bytes();
  stats.peak_bytes = blocks_->peak() + queue_->arena_bytes() + panels_->bytes();
  stats.bytes_limit = budget_->limit();
  return stats;
}

int64_t CpuBackend::bytes_available(Device*) const {
  const MachineMemory machine = ReadMachineMemory();
  if (machine.available < 0 && budget_->limit() == 0) return -1;
  int64_t bytes = machine.available >= 0 ? machine.available : std::numeric_limits<int64_t>::max();
  // Memory that was granted and that nobody has written to is not taken from the machine yet.
  if (machine.total >= 0) bytes = std::min(bytes, machine.total - GetLargeMemoryStats().live_bytes);
  if (budget_->limit() > 0) bytes = std::min(bytes, budget_->limit() - budget_->used());
  return std::max<int64_t>(bytes, 0) + blocks_->kept() + queue_->arena_bytes() + panels_->twice();
}

}  // namespace weft::cpu
