// A loaded program and the queue that runs launches in order.
#pragma once

#include <limits>
#include <memory>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "src/backends/backend.h"
#include "src/backends/cpu/code_cache.h"
#include "src/backends/cpu/cpu_buffer.h"
#include "src/backends/cpu/kept_panels.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/custom_call/custom_call.h"
#include "src/runtime/backend_services.h"
#include "src/runtime/mutex.h"
#include "src/runtime/work_queue.h"

namespace weft::cpu {

// A buffer argument that entries pack: worth keeping packed if the buffer comes again.
struct KeptOperand {
  uint32_t argument = 0;
  int64_t bytes = 0;
  KeptPanels::Key key;
  const Entry* entry = nullptr;  // one of them
  bool returns = false;          // the kernel knows the way back
  bool alone = false;            // and nothing else reads it: it may live packed
};

// One launch's use of a kept operand.
struct KeptUse {
  std::shared_ptr<Panel> panel;  // null where the operand is packed for this launch alone
  CpuBuffer* buffer = nullptr;   // if it may live packed
  PlainUse* plain = nullptr;     // likewise, until the panel is filled
};

struct KernelNames;

// A program with its functions resolved. Immutable, but for the names that its kernels get when somebody traces them first.
struct LoadedProgram {
  Program program;
  std::shared_ptr<CodeCache> code;  // keeps the functions alive
  LinkedLoops loops;
  std::vector<const HostKernel*> host;                             // null for custom operations, which
  std::vector<std::shared_ptr<const custom::CustomCall>> customs;  // are here in their places; empty if there are none
  ScratchNeeds needs;                                              // of all entries
  std::vector<KeptOperand> kept;
  absl::flat_hash_map<const Entry*, size_t> kept_of;    // position in `kept`
  absl::flat_hash_map<const Entry*, size_t> pieces_of;  // likewise, of entries that may read pieces of it
  // Names of the entries, by list, for readers of the thread table; null for entries that have lists.
  std::vector<std::vector<const char*>> texts;
  // Plans of kernels (HostKernel::plan), by list; null where there is none.
  std::vector<std::vector<std::shared_ptr<const void>>> plans;
  size_t most_buffers = 0;  // of one entry
  int64_t compiled = 0;
  int64_t code_bytes = 0;
  struct Named {
    std::once_flag once;
    std::shared_ptr<const KernelNames> names;
  };
  const std::unique_ptr<Named> named = std::make_unique<Named>();
};
// Null where there is no memory for them. Thread rule: any thread.
const KernelNames* NamesOfKernels(const LoadedProgram& loaded, int threads);

// One device's launches, and the memory that they use one after the other. Thread-safe.
class LaunchQueue : public WorkQueue {
 public:
  explicit LaunchQueue(const BackendServices& services = {}, std::shared_ptr<ThreadPool> pool = nullptr,
                       std::shared_ptr<BlockPool> blocks = nullptr)
      : WorkQueue([this] { GiveBack(); }),
        services_(services),
        budget_(services.budget),
        blocks_(std::move(blocks)),
        pool_(std::move(pool)) {}
  ~LaunchQueue() { Close(); }

  // The workers that launches run on. Null once the queue is closed.
  std::shared_ptr<ThreadPool> pool() const;
  // Closes the queue, and lets go of the pool.
  void Close();

  // Temporaries of launches, kept between them: launches do not overlap, so one arena serves all programs. Grows;
  // launches hold the one they were submitted with.
  absl::StatusOr<std::shared_ptr<void>> Arena(int64_t bytes);
  // Scratch of kernels, likewise; `shares` is the pool's number of threads.
  absl::StatusOr<std::shared_ptr<ScratchSet>> Scratch(int shares, const ScratchNeeds& needs);
  int64_t arena_bytes() const;
  const BackendServices& services() const { return services_; }
  // Gives all of that, and blocks that are kept for reuse, back to the system; launches keep theirs until they have run.
  void GiveBack();

 private:
  const BackendServices services_;
  const std::shared_ptr<MemoryBudget> budget_;
  const std::shared_ptr<BlockPool> blocks_;  // may be null
  mutable Mutex mutex_;
  std::shared_ptr<ThreadPool> pool_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<void> arena_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ScratchSet> scratch_ ABSL_GUARDED_BY(mutex_);
  int64_t arena_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::unique_ptr<Executable> NewExecutable(std::shared_ptr<const LoadedProgram> program, Device* device,
                                          std::shared_ptr<BlockPool> blocks, std::shared_ptr<KeptPanels> panels,
                                          std::shared_ptr<LaunchQueue> queue);

// Bytes that the kernels of an executable of this backend have written in all its finished launches, as its program's entries
// say; of a scatter what is updated. -1 for what is none.
int64_t BytesWritten(const Executable& executable);

// Runs the launch lists once. `tables` are the base addresses by BufferRef::Place.
struct LaunchTables {
  std::vector<void*> arguments, results;
  const uint32_t* words = nullptr;
  char* arena = nullptr;
  const char* constants = nullptr;
  ScratchSet* scratch = nullptr;  // null: every thread's own
  int64_t* written = nullptr;     // if there: bytes that kernels wrote are added
  // By LoadedProgram::kept; empty: every operand is packed for this launch alone.
  std::vector<KeptUse> kept;
  KeptPanels* panels = nullptr;  // of the device
  CancelToken cancel;
  const KernelNames* names = nullptr;  // null: kernels are not traced
  uint64_t trace = 0;
  // The entry of the first list from which on it writes to memory that it took over, and whether it got there: from then on it is
  // not cancelled any more.
  size_t taken_from = std::numeric_limits<size_t>::max();
  bool wrote_to_taken = false;
  // Tables of the running launch: an entry's buffers, and where each carried value is now. MakeRoom comes before a
  // launch that cannot be taken back.
  std::vector<void*> pointers;
  std::vector<char*> carried;
  void MakeRoom(const LoadedProgram& loaded) {
    pointers.reserve(loaded.most_buffers);
    carried.reserve(loaded.program.carried.size());
  }
};
// RESOURCE_EXHAUSTED where memory runs out, even for small things: a launch thread has nobody to throw to.
absl::Status RunLaunchList(const LoadedProgram& loaded, LaunchTables& tables, ThreadPool& pool);

}  // namespace weft::cpu
