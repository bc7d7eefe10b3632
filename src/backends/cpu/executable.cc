// See executable.h.
#include "src/backends/cpu/executable.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "src/backends/cpu/describe.h"
#include "src/backends/cpu/kernels/scratch.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/float_environment.h"
#include "src/runtime/free_memory.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/narrow.h"
#include "src/runtime/parts.h"
#include "src/runtime/status.h"
#include "src/runtime/taken_over.h"
#include "src/runtime/thread_table.h"

namespace weft::cpu {
namespace {

constexpr SpanName kMemoryInUse{.text = "bytes in use", .kind = SpanKind::kCounter};
// The span on the thread that launches; its argument is that of the launch's own span (trace_render.h).
constexpr SpanName kHandOver{.text = "hand over", .kind = SpanKind::kLaunch};
std::atomic<int64_t> g_traced_launches{0};
constexpr int64_t kSplitCost = 6'000'000;  // picoseconds: below, one thread is quicker than waking a second
// Whole programs below run on the caller's thread: waking the queue's and then the caller again takes two or three times 30 us.
constexpr int64_t kInlineCost = 200'000'000;
// Below this they run on the thread that waits for them: some milliseconds, after which a wait looks whether it shall
// give up.
constexpr int64_t kHelpCost = 20'000'000'000;
// Programs below run to their end, some milliseconds; others look whether they shall, between tasks of loops after about so long.
constexpr int64_t kLookCost = 5'000'000'000;
constexpr int64_t kLookNs = 1'000'000;

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(std::shared_ptr<const LoadedProgram> loaded, Device* device, std::shared_ptr<BlockPool> blocks,
                std::shared_ptr<KeptPanels> panels, std::shared_ptr<LaunchQueue> queue)
      : loaded_(std::move(loaded)),
        device_(device),
        blocks_(std::move(blocks)),
        panels_(std::move(panels)),
        queue_(std::move(queue)),
        cost_(TotalCost(loaded_->program.lists[0])),
        first_uses_(FirstUses(loaded_->program)) {
    ForEachKernel(loaded_->program, [&](const Entry&) { ++stats_.kernels; });
    stats_.temporary_bytes = loaded_->program.arena_bytes;
    stats_.code_bytes = loaded_->code_bytes;
    stats_.kernels_compiled = loaded_->compiled;
    stats_.memory_bytes = loaded_->loops.bytes + BytesOfProgram(loaded_->program);
  }

  absl::StatusOr<std::vector<DeviceResults>> Execute(std::span<const DeviceArguments> devices) override {
    if (devices.size() != 1)
      return InternalError("the CPU runs a program once for all its devices, not ", devices.size(), " times");
    std::vector<DeviceResults> all;
    all.reserve(1);  // before the launch, which cannot be taken back
    WEFT_ASSIGN_OR_RETURN(DeviceResults results, Launch(devices[0]));
    all.push_back(std::move(results));
    return all;
  }

  absl::StatusOr<std::string> Serialize() const override {
    Program copy = loaded_->program;
    copy.micro_kernels = loaded_->code->kernels().ExportObjects();
    return EncodeProgram(copy);
  }

  LaunchDescription Describe() const override {
    const std::shared_ptr<ThreadPool> pool = queue_->pool();
    return cpu::Describe(*loaded_, pool == nullptr ? 1 : pool->threads());
  }
  // Asked at every launch.
  ExecutableStats stats() const override { return stats_; }

  int64_t written() const { return written_->load(std::memory_order_relaxed); }

 private:
  // A launch keeps these alive until it has run.
  struct Launching {
    std::shared_ptr<const LoadedProgram> loaded;
    std::shared_ptr<ThreadPool> pool;
    std::shared_ptr<void> arena;
    std::shared_ptr<ScratchSet> scratch;
    absl::InlinedVector<Ref<Buffer>, 8> arguments;
    absl::InlinedVector<Ref<Block>, 8> results;
    std::vector<uint32_t> words;
    std::vector<PlainUse> plain;  // of the arguments
    LaunchTables tables;
    Ref<Event> done;
    std::shared_ptr<std::atomic<int64_t>> written;
    const BackendServices* services = nullptr;  // the queue's, which outlives what it runs
    uint64_t program = 0;                       // as who launches it has it in the table of threads
    int64_t number = 0;                         // of traced launches; 0: nobody traces
  };

  absl::StatusOr<DeviceResults> Launch(const DeviceArguments& arguments) {
    const Program& program = loaded_->program;
    if (arguments.buffers.size() != program.arguments.size() || arguments.words.size() < program.words) {
      return InternalError("a program of ", program.arguments.size(), " buffers and ", program.words,
                           " words was given ", arguments.buffers.size(), " and ", arguments.words.size());
    }
    auto launch = std::make_shared<Launching>();
    launch->loaded = loaded_;
    launch->program = ThisThreadsSlot().program.load(std::memory_order_relaxed);
    launch->pool = queue_->pool();
    if (launch->pool == nullptr) return absl::FailedPreconditionError("the context has been closed");
    bool ready = true;
    for (size_t i = 0; i < arguments.buffers.size(); ++i) {
      Buffer* buffer = arguments.buffers[i].get();
      const ValueSpec& spec = program.arguments[i];
      if (buffer == nullptr || StorageOf(buffer->dtype()) != spec.dtype || buffer->dims() != spec.dims ||
          (CpuBuffer::Of(buffer) == nullptr && buffer->host_data() == nullptr)) {
        return InternalError("argument ", i, " of a launch is not the ", NameOf(spec.dtype), DimsToString(spec.dims),
                             " it was compiled for");
      }
      const bool done = buffer->ready().done();
      if (done) WEFT_RETURN_IF_ERROR(buffer->ready().status());
      ready = ready && done;
    }
    blocks_->Launches();
    WEFT_RETURN_IF_ERROR(launch->pool->CheckProcess());
    WEFT_RETURN_IF_ERROR(queue_->CheckProcess());
    if (!loaded_->customs.empty()) WEFT_RETURN_IF_ERROR(queue_->NeedThread());
    WEFT_RETURN_IF_ERROR(FindArguments(arguments, *launch));
    launch->tables.results.reserve(program.results.size());
    for (size_t r = 0; r < program.results.size(); ++r) {
      const int32_t donor = program.donor[r];
      Ref<Block> block;
      if (donor >= 0 && static_cast<size_t>(donor) < arguments.donated.size() && arguments.donated[donor] != 0) {
        CpuBuffer* const buffer = CpuBuffer::Of(arguments.buffers[donor].get());
        if (buffer != nullptr && buffer->block()->own() && !buffer->held()) block = buffer->block();
      }
      if (block) launch->tables.taken_from = std::min(launch->tables.taken_from, first_uses_[r]);
      if (!block) {
        WEFT_ASSIGN_OR_RETURN(block,
                              NewBlock(blocks_, CountOf(program.results[r].dims) * BytesOf(program.results[r].dtype)));
      }
      launch->tables.results.push_back(block->data());
      launch->results.push_back(std::move(block));
    }
    absl::Status reserved = Reserve(*launch);
    while (absl::IsResourceExhausted(reserved) && blocks_->Trim()) reserved = Reserve(*launch);
    WEFT_RETURN_IF_ERROR(reserved);
    launch->tables.panels = panels_.get();
    launch->tables.arena = static_cast<char*>(launch->arena.get());
    launch->tables.scratch = launch->scratch.get();
    launch->arguments.assign(arguments.buffers.begin(), arguments.buffers.end());
    launch->words.assign(arguments.words.begin(), arguments.words.end());
    launch->tables.words = launch->words.data();
    launch->tables.cancel = arguments.cancel;
    launch->done = MakeRef<Event>();
    launch->written = written_;
    launch->services = &queue_->services();
    launch->tables.MakeRoom(*loaded_);
    DeviceResults results;
    Device* const device = arguments.device != nullptr ? arguments.device : device_;
    results.done = launch->done;
    results.buffers.reserve(program.results.size());
    for (size_t r = 0; r < program.results.size(); ++r) {
      const Ref<Event>& ready = launch->done;
      results.buffers.push_back(Ref<Buffer>(
          new CpuBuffer(device, program.results[r].dtype, program.results[r].dims, ready, launch->results[r])));
    }
    const Trace& trace = *launch->services->trace;
    if (trace.on()) launch->number = g_traced_launches.fetch_add(1, std::memory_order_relaxed) + 1;
    const SpanScope span(trace, kHandOver, launch->number);
    queue_->Submit([launch] { RunLaunch(*launch); }, ready ? DoneBy() : WorkQueue::By::kQueue);
    return results;
  }

  WorkQueue::By DoneBy() const {
    if (cost_ >= kHelpCost) return WorkQueue::By::kQueue;
    return cost_ < kInlineCost ? WorkQueue::By::kCaller : WorkQueue::By::kWaiter;
  }

  // Where the arguments lie, plain or packed.
  absl::Status FindArguments(const DeviceArguments& arguments, Launching& launch) const {
    const size_t count = arguments.buffers.size();
    FindPanels(arguments, launch.tables.kept);
    launch.tables.arguments.resize(count);
    launch.plain.reserve(count);  // they are pointed to
    size_t k = 0;
    for (size_t i = 0; i < count; ++i) {
      while (k < loaded_->kept.size() && loaded_->kept[k].argument < i) ++k;
      KeptUse* const kept =
          k < loaded_->kept.size() && loaded_->kept[k].argument == i ? &launch.tables.kept[k] : nullptr;
      if (kept != nullptr && kept->buffer != nullptr && kept->panel->filled.load(std::memory_order_acquire)) {
        kept->buffer->LivePacked(kept->panel);
        continue;
      }
      CpuBuffer* const buffer = CpuBuffer::Of(arguments.buffers[i].get());
      void* const data = buffer != nullptr ? buffer->Use() : arguments.buffers[i]->host_data();
      if (buffer != nullptr && data == nullptr)
        return NoLargeMemory(absl::StrCat("a tensor of ", buffer->bytes(), " bytes"));
      launch.tables.arguments[i] = data;
      if (buffer == nullptr) continue;
      launch.plain.emplace_back(buffer);
      if (kept != nullptr) kept->plain = &launch.plain.back();
    }
    return absl::OkStatus();
  }

  // A buffer that comes for the first time is packed as the kernels go, in pieces that stay in cache: a step's weights
  // never come again. Memory that others may write to, or that this launch takes over, has no panels.
  void FindPanels(const DeviceArguments& arguments, std::vector<KeptUse>& uses) const {
    const std::vector<KeptOperand>& kept = loaded_->kept;
    uses.resize(kept.size());
    CpuBuffer* again = nullptr;  // the argument's buffer, if it shall have panels
    for (size_t i = 0; i < kept.size(); ++i) {
      const uint32_t argument = kept[i].argument;
      if (i == 0 || kept[i - 1].argument != argument) {
        again = CpuBuffer::Of(arguments.buffers[argument].get());
        const bool donated = argument < arguments.donated.size() && arguments.donated[argument] != 0;
        if (again != nullptr && (donated || again->device()->backend != device_->backend || !again->block()->own() ||
                                 again->held() || !again->PackedBefore())) {
          again = nullptr;
        }
      }
      if (again == nullptr) continue;
      uses[i].panel = again->PanelIn(panels_, kept[i].key, kept[i].bytes, [&] { return NewPanel(kept[i]); });
      if (uses[i].panel != nullptr && kept[i].alone) uses[i].buffer = again;
    }
  }

  std::shared_ptr<Panel> NewPanel(const KeptOperand& kept) const {
    Panel::Unpack unpack;
    if (kept.returns) {
      unpack = [code = loaded_->code, kernel = loaded_->host[kept.entry->code], params = kept.entry->params](
                   const void* packed, int64_t first, std::span<std::byte> to) {
        kernel->unpack(params, code->target(), packed, first, to);
      };
    }
    return std::make_shared<Panel>(kept.bytes, std::move(unpack));
  }

  absl::Status Reserve(Launching& launch) {
    WEFT_ASSIGN_OR_RETURN(launch.arena, queue_->Arena(loaded_->program.arena_bytes));
    WEFT_ASSIGN_OR_RETURN(launch.scratch, queue_->Scratch(launch.pool->threads(), loaded_->needs));
    return absl::OkStatus();
  }

  static void RunLaunch(Launching& launch) {
    absl::Status status;
    // Inputs of this device are done by order; others (copies, other devices) may still be on their way.
    for (const Ref<Buffer>& argument : launch.arguments) {
      if (status.ok()) status = argument->ready().done() ? argument->ready().status() : argument->ready().Wait();
    }
    if (status.ok()) {
      const int64_t start = MonotonicNow();
      const ThreadStateScope running(ThreadState::kRunning, start, launch.program);
      PartScope part = PartScope::Inside(*launch.services->metrics, Part::kRunning, start);
      const Trace& trace = *launch.services->trace;
      const bool traced = trace.on();
      launch.tables.names = traced ? NamesOfKernels(*launch.loaded, launch.pool->threads()) : nullptr;
      launch.tables.trace = trace.id();
      SpanScope span(trace, kRunSpan, launch.number);
      int64_t written = 0;
      launch.tables.constants = launch.loaded->program.constants.data();
      launch.tables.written = &written;
      status = RunLaunchList(*launch.loaded, launch.tables, *launch.pool);
      launch.written->fetch_add(written, std::memory_order_relaxed);
      span.End();
      if (traced) TraceValue(trace.id(), kMemoryInUse, static_cast<int64_t>(launch.services->budget->used()));
      const int64_t now = MonotonicNow();
      part.End(now);
      launch.services->metrics->Add(Sample::kRun, now - start, now);
    }
    Ref<Event> done = launch.done;
    launch.plain.clear();
    launch.arguments.clear();
    launch.results.clear();
    launch.tables.kept.clear();
    done->Complete(launch.tables.wrote_to_taken ? std::move(status) : Intact(std::move(status)));
  }

  std::shared_ptr<const LoadedProgram> loaded_;
  Device* device_;
  std::shared_ptr<BlockPool> blocks_;
  std::shared_ptr<KeptPanels> panels_;
  std::shared_ptr<LaunchQueue> queue_;
  const std::shared_ptr<std::atomic<int64_t>> written_ = std::make_shared<std::atomic<int64_t>>(0);
  const int64_t cost_;
  const std::vector<size_t> first_uses_;  // of results
  ExecutableStats stats_;
};

// One launch's way through the lists.
class ListRunner {
 public:
  // `look`: null if the launch runs to its end.
  ListRunner(const LoadedProgram& loaded, LaunchTables& tables, ThreadPool& pool, LaunchLook* look)
      : loaded_(loaded), program_(loaded.program), tables_(tables), pool_(pool), look_(look) {}

  absl::Status Run() {
    for (const int64_t offset : program_.carried) carried_.push_back(tables_.arena + offset);
    return Run(0);
  }
  int64_t written() const { return written_; }

 private:
  absl::Status Run(uint32_t list) {
    const EntryList& entries = program_.lists[list];
    const char* const* const texts = list < loaded_.texts.size() ? loaded_.texts[list].data() : nullptr;
    const std::shared_ptr<const void>* const plans = list < loaded_.plans.size() ? loaded_.plans[list].data() : nullptr;
    for (size_t e = 0; e < entries.size(); ++e) {
      const Entry& entry = entries[e];
      slot_.entry.store(static_cast<int32_t>(e), std::memory_order_relaxed);
      slot_.text.store(texts != nullptr ? texts[e] : nullptr, std::memory_order_relaxed);
      WEFT_RETURN_IF_ERROR(Look());
      if (list == 0 && e == tables_.taken_from) RunToTheEnd();
      absl::Status status;
      if (IsControl(entry)) {
        status = RunControl(entry);
      } else {
        pointers_.clear();
        for (const BufferRef& ref : entry.buffers) pointers_.push_back(Locate(ref));
        written_ += entry.writes;
        const void* const plan = plans != nullptr ? plans[e].get() : nullptr;
        const auto run = [&] { return entry.type == Entry::Type::kHost ? RunHost(entry, plan) : RunLoop(entry); };
        if (tables_.names == nullptr) {
          status = run();
        } else {
          const KernelNames::Of& name = tables_.names->lists[list][e];
          const KernelScope span(tables_.trace, *name.kernel, *name.share);
          status = run();
        }
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Look() const { return look_ != nullptr && look_->Ended() ? look_->Outcome() : absl::OkStatus(); }
  void RunToTheEnd() {
    tables_.wrote_to_taken = true;
    if (look_ != nullptr) look_->Disarm();
  }

  char* Locate(const BufferRef& ref) const {
    switch (ref.place) {
      case BufferRef::Place::kArgument: return static_cast<char*>(tables_.arguments[ref.index]);
      case BufferRef::Place::kResult: return static_cast<char*>(tables_.results[ref.index]);
      case BufferRef::Place::kWords:
        return const_cast<char*>(reinterpret_cast<const char*>(tables_.words)) + ref.offset;
      case BufferRef::Place::kArena: return tables_.arena + ref.offset;
      case BufferRef::Place::kConstant: return const_cast<char*>(tables_.constants) + ref.offset;
      case BufferRef::Place::kCarried: return carried_[ref.index];
    }
    return nullptr;
  }

  absl::Status RunHost(const Entry& entry, const void* plan) {
    if (loaded_.host[entry.code] == nullptr) return loaded_.customs[entry.code]->Run(pointers_, entry.params, pool_);
    BlockLoop epilogue;
    if (entry.epilogue >= 0) {
      epilogue = {loaded_.loops.functions[entry.epilogue],
                  pointers_.data() + (pointers_.size() - entry.epilogue_buffers), entry.epilogue_params,
                  entry.epilogue_buffers, entry.epilogue_consumes};
    }
    const HostKernel& kernel = *loaded_.host[entry.code];
    HostCall call{pointers_, entry.params, loaded_.code->kernels(), pool_, entry.epilogue >= 0 ? &epilogue : nullptr};
    call.plan = plan;
    if (kernel.find != nullptr) {
      carried_[entry.buffers.back().index] = static_cast<char*>(pointers_[0]) + kernel.find(call);
      return absl::OkStatus();
    }
    if (kernel.packs != nullptr && !tables_.kept.empty()) {
      const auto kept = loaded_.kept_of.find(&entry);
      if (kept != loaded_.kept_of.end()) {
        WEFT_ASSIGN_OR_RETURN(call.packed, Packed(tables_.kept[kept->second], call, kernel));
      }
    }
    if (kernel.reads_pieces && !loaded_.pieces_of.empty() && !tables_.kept.empty()) {
      const auto pieces = loaded_.pieces_of.find(&entry);
      const KeptUse* const use = pieces != loaded_.pieces_of.end() ? &tables_.kept[pieces->second] : nullptr;
      // Its plain bytes are this launch's no more, or never were.
      if (use != nullptr && use->buffer != nullptr && (use->plain == nullptr || use->plain->ended())) {
        const std::function<void(int64_t, std::span<std::byte>)> piece = [panel = use->panel.get()](
                                                                             int64_t first, std::span<std::byte> to) {
          panel->unpack(panel->memory.get(), first, to);
        };
        call.piece = &piece;
        return kernel.run(call);
      }
    }
    return kernel.run(call);
  }

  // The operand as it stays packed; null where there is no memory for that.
  absl::StatusOr<const void*> Packed(const KeptUse& use, const HostCall& call, const HostKernel& kernel) {
    if (use.panel == nullptr) return nullptr;
    Panel& panel = *use.panel;
    if (!panel.filled.load(std::memory_order_relaxed)) {
      if (!tables_.panels->Reserve(panel)) return nullptr;
      WEFT_RETURN_IF_ERROR(kernel.pack(call, panel.memory.get()));
      panel.filled.store(true, std::memory_order_release);
    }
    if (use.buffer != nullptr && use.plain != nullptr) {
      use.plain->End();
      use.buffer->LivePacked(use.panel);
    }
    return panel.memory.get();
  }

  absl::Status RunLoop(const Entry& entry) {
    LoopFn* fn = loaded_.loops.functions[entry.code];
    std::atomic<bool> out_of_memory{false};
    const auto run = [&](int64_t begin, int64_t end, int) {
      void* scratch = entry.scratch_bytes > 0 ? ThreadScratch(ScratchSlot::kLoop, entry.scratch_bytes) : nullptr;
      if (scratch == nullptr && entry.scratch_bytes > 0) return out_of_memory.store(true, std::memory_order_relaxed);
      InPieces(entry, begin, end,
               [&](int64_t from, int64_t to) { fn(pointers_.data(), entry.params.data(), from, to, scratch); });
    };
    if (entry.cost < kSplitCost || entry.tasks < 2) {
      if (entry.tasks > 0) run(0, entry.tasks, 0);
    } else {
      pool_.ParallelRanges(entry.tasks, run);
    }
    return out_of_memory.load(std::memory_order_relaxed) ? OutOfScratch("a loop's rows", entry.scratch_bytes)
                                                         : absl::OkStatus();
  }

  // A loop's tasks, as many at a time as take about kLookNs.
  template <typename Run>
  void InPieces(const Entry& entry, int64_t begin, int64_t end, Run run) const {
    if (look_ == nullptr) return run(begin, end);
    // By the estimates, which are three times too high, so that memory that is touched for the first time is in time, too.
    const double tasks = 1e3 * kLookNs * static_cast<double>(entry.tasks) / static_cast<double>(entry.cost + 1);
    int64_t piece = entry.cost >= kMostCost ? 1 : static_cast<int64_t>(std::clamp(tasks, 1.0, 0x1p40));
    while (begin < end && !LaunchEnds()) {
      const int64_t next = std::min(end, begin + piece);
      const int64_t start = next < end ? MonotonicNow() : 0;
      run(begin, next);
      begin = next;
      if (begin >= end) return;
      const int64_t took = MonotonicNow() - start;
      if (took < kLookNs / 2) piece = std::min(2 * piece, int64_t{1} << 40);
      if (took > 2 * kLookNs) piece = std::max<int64_t>(piece * kLookNs / took, 1);
    }
  }

  absl::Status RunControl(const Entry& entry) {
    const Control& control = program_.controls[entry.code];
    if (entry.type == Entry::Type::kBranch) {
      int32_t index;
      std::memcpy(&index, Locate(entry.buffers[0]), sizeof(index));
      const auto last = static_cast<int32_t>(control.lists.size()) - 1;
      return Run(control.lists[index < 0 || index > last ? last : index]);
    }
    const bool counted = control.trips >= 0;
    for (int64_t trip = 0; !counted || trip < control.trips; ++trip) {
      WEFT_RETURN_IF_ERROR(Look());
      if (!counted) {
        WEFT_RETURN_IF_ERROR(Run(control.lists[0]));
        if (*Locate(entry.buffers[0]) == 0) break;
      }
      WEFT_RETURN_IF_ERROR(Run(control.lists.back()));
      for (size_t b = counted ? 0 : 1; b < entry.buffers.size(); b += 2) {
        std::swap(carried_[entry.buffers[b].index], carried_[entry.buffers[b + 1].index]);
      }
    }
    return absl::OkStatus();
  }

  const LoadedProgram& loaded_;
  const Program& program_;
  LaunchTables& tables_;
  ThreadPool& pool_;
  std::vector<void*>& pointers_ = tables_.pointers;
  std::vector<char*>& carried_ = tables_.carried;
  LaunchLook* const look_;
  ThreadTable::Slot& slot_ = ThisThreadsSlot();
  int64_t written_ = 0;
};

}  // namespace

const KernelNames* NamesOfKernels(const LoadedProgram& loaded, int threads) {
  try {
    std::call_once(loaded.named->once,
                   [&] { loaded.named->names = std::make_shared<const KernelNames>(NamesOf(loaded, threads)); });
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  return loaded.named->names.get();
}

int64_t BytesWritten(const Executable& executable) {
  const auto* const own = dynamic_cast<const CpuExecutable*>(&executable);
  return own == nullptr ? -1 : own->written();
}

absl::Status RunLaunchList(const LoadedProgram& loaded, LaunchTables& tables, ThreadPool& pool) {
  const int64_t cost = TotalCost(loaded.program.lists[0]);
  LaunchLook look(tables.cancel);
  LaunchLook* const looks = cost >= kLookCost ? &look : nullptr;
  RunningLaunch running{looks, tables.scratch};
  const ThreadPool::Scope scope(&running);
  const bool spreads = cost > kSplitCost;
  if (spreads) pool.BeginRun();
  ListRunner runner(loaded, tables, pool, looks);
  absl::Status status;
  try {
    status = runner.Run();
    if (status.ok()) status = look.Outcome();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("");  // a text would want memory
  }
  if (tables.written != nullptr) *tables.written += runner.written();
  if (spreads) pool.EndRun();
  if (!status.ok() && tables.scratch != nullptr) WEFT_RETURN_IF_ERROR(tables.scratch->Overrun());
  return status;
}

absl::StatusOr<std::shared_ptr<void>> LaunchQueue::Arena(int64_t bytes) {
  MutexLock lock(mutex_);
  if (bytes <= arena_bytes_) return arena_;
  const size_t size = static_cast<size_t>((bytes + 4095) / 4096 * 4096);
  void* memory = budget_->Allocate(size, 4096);
  if (memory == nullptr && arena_ != nullptr) {
    // The smaller one is of no more use; launches that have it keep it until they are done.
    arena_ = nullptr;
    arena_bytes_ = 0;
    memory = budget_->Allocate(size, 4096);
  }
  if (memory == nullptr) return budget_->Shortage(absl::StrCat(bytes, " bytes of temporaries"), size);
  arena_ = std::shared_ptr<void>(memory, [budget = budget_, size](void* p) { budget->Free(p, size); });
  arena_bytes_ = static_cast<int64_t>(size);
  return arena_;
}

absl::StatusOr<std::shared_ptr<ScratchSet>> LaunchQueue::Scratch(int shares, const ScratchNeeds& needs) {
  MutexLock lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(scratch_, ScratchSet::Reserve(scratch_, shares, needs, budget_));
  return scratch_;
}

std::shared_ptr<ThreadPool> LaunchQueue::pool() const {
  MutexLock lock(mutex_);
  return pool_;
}

void LaunchQueue::Close() {
  WorkQueue::Close();
  std::shared_ptr<ThreadPool> pool;  // the last to have it joins its threads, without the lock
  MutexLock lock(mutex_);
  pool.swap(pool_);
}

void LaunchQueue::GiveBack() {
  std::shared_ptr<void> arena;
  std::shared_ptr<ScratchSet> scratch;
  {
    MutexLock lock(mutex_);
    arena.swap(arena_);
    scratch.swap(scratch_);
    arena_bytes_ = 0;
  }
  arena = nullptr;
  scratch = nullptr;
  if (blocks_ != nullptr) blocks_->GiveBack();
  ReleaseFreeMemory();
}

int64_t LaunchQueue::arena_bytes() const {
  MutexLock lock(mutex_);
  return arena_bytes_;
}

std::unique_ptr<Executable> NewExecutable(std::shared_ptr<const LoadedProgram> program, Device* device,
                                          std::shared_ptr<BlockPool> blocks, std::shared_ptr<KeptPanels> panels,
                                          std::shared_ptr<LaunchQueue> queue) {
  return std::make_unique<CpuExecutable>(std::move(program), device, std::move(blocks), std::move(panels),
                                         std::move(queue));
}

}  // namespace weft::cpu
