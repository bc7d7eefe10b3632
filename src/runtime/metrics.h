// Counters and samples of a context: compilations, launches, cuts and their reasons, bytes, time. Every layer sees them, backends
// too (backend_services.h); the C API's metrics read them, and tests prove with them that something did not happen twice.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "src/runtime/mutex.h"
#include "src/runtime/samples.h"
#include "src/runtime/snapshot.h"

namespace weft {

// The order is that of the report. Adding one: a line here and a line in metrics.cc, which says what it means.
enum class Counter : uint8_t {
  kOperationsRecorded,
  kNodesRecorded,
  kGradients,
  kTensorsMade,
  kTensorsReleased,
  kBarriers,
  // Ways to the host.
  kHostCustomCall,
  kHostExactSize,
  kHostRead,
  kHostReadOfOne,
  kCuts,
  // Why graphs were cut: their sum is kCuts.
  kCutHostRead,
  kCutBarrier,
  kCutEval,
  kCutNodes,
  kCutRepetition,
  kCutBytes,
  kCutEager,
  kCutSize,
  kCutCustom,
  kCutOutputs,
  kCutNodesComputed,
  kCutOutputsWhole,  // on a mesh: put together on each device because nothing says how they would lie
  kStepsReplayed,    // cuts of steps that arrived as before and were not built
  kCutsPostponed,    // automatic ones that could not be had: the graph grows on, no operation fails
  kLaunchesFailed,   // while they ran: what they were to make is made again or shows its value before
  kTensorsSetAside,  // no program can be made for these: barriers leave them out
  kProgramsQueued,   // not in memory: to be loaded or compiled
  // Why they were not, in the order of compiler::Reason; their sum is kProgramsQueued.
  kMissingFirst,
  kMissingArgument,
  kMissingConstant,
  kMissingAttribute,
  kMissingOperations,
  kMissingOutputs,
  kMissingTakenOver,
  kMissingPending,
  kMissingTarget,
  kMissingDropped,
  kProgramsCompiled,
  kProgramsLoaded,
  kMemoryCacheHits,
  kMemoryCacheCollisions,  // equal key, other program: the stored form decided
  kDiskCacheHits,
  kDiskCacheMisses,
  kDiskCacheErrors,  // unreadable, unwritable, rejected by the backend: never fails a computation
  kDiskCachePublished,
  kHostCalls,  // custom operations that the engine called between programs
  kLaunches,
  kKernelLaunches,
  kBuffersDonated,
  kTemporariesExpired,
  kDataHandlesMade,
  kDataHandlesReleased,
  kBytesToDevice,
  kBytesFromDevice,
  kBytesBetweenDevices,
  kNanosecondsCompiling,
  kNanosecondsWaiting,
  // The time of a caller's thread, in the order of Part; see parts.h.
  kNanosecondsRecording,
  kNanosecondsLookingUp,
  kNanosecondsWaitingCompiler,
  kNanosecondsWaitingRoom,
  kNanosecondsWaitingMemory,
  kNanosecondsWaitingResults,
  kNanosecondsLaunching,
  kNanosecondsRunningInline,
  kNanosecondsCopying,
  kLoaderBatches,  // of data loaders (src/data)
  kLoaderBytes,
  kNanosecondsLoaderWaits,  // callers waited for data
  kNanosecondsLoaderIdle,   // all that may be read ahead was there: loaders waited for callers
  kWarnings,
  kCount,
};

// Measured each time it happens. The order is that of the report.
enum class Sample : uint8_t {
  kCompile,  // a program from its recorded graph to a loaded executable, compiled or from the disk cache
  kLoad,     // a program from the disk cache
  kLaunch,   // from a finished cut until the backend has taken the launch
  kRun,      // a launch, from its first kernel to its last; on a plugin's device from when it was handed over
  kUpload,   // a copy from the host
  kRead,     // with the wait for what is read
  kUploadBytes,
  kReadBytes,
  kLaunchNodes,  // nodes that a launch computes
  kRecording,    // a stretch of a caller's thread between two calls that plan, wait or copy
  kRoom,         // a wait for the device to catch up
  kMayTakeOver,  // arguments that a program which was not in memory may take over
  kLoaderReady,  // batches of a loader that were ready when one was asked for
  kCount,
};

const MetricInfo& InfoOf(Counter counter);
const MetricInfo& InfoOf(Sample sample);

// Thread rule: any thread. Relaxed atomics: counts are exact, their relation at one instant is not.
class Metrics {
 public:
  void Add(Counter counter, int64_t amount = 1) {
    values_[static_cast<size_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
  }
  // Adds to counters that are changed under the recording lock alone: a load and a store, where an atomic addition
  // takes 9 ns.
  void AddAlone(Counter counter, int64_t amount = 1) {
    std::atomic<int64_t>& value = values_[static_cast<size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  int64_t Get(Counter counter) const { return values_[static_cast<size_t>(counter)].load(std::memory_order_relaxed); }
  // `now` is MonotonicNow() when the value was measured.
  void Add(Sample sample, int64_t value, int64_t now) { samples_[static_cast<size_t>(sample)].Add(value, now); }
  SampleSummary Summarize(Sample sample) const { return samples_[static_cast<size_t>(sample)].Summarize(); }

  // Metrics of the caller's own ("aten::nonzero"), made when they are first named. INVALID_ARGUMENT: the name is empty, longer
  // than 256 bytes, has whitespace or control characters, is one of Weft's or of its names in PyTorch/XLA's report, or was the
  // other kind or of another unit before; RESOURCE_EXHAUSTED: there are kMostNamed already.
  static constexpr size_t kMostNamed = 4096;
  absl::Status AddNamed(std::string_view name, int64_t amount);
  absl::Status Record(std::string_view name, Unit unit, int64_t value);

  // Counters by name, the caller's included; nothing if there is none.
  std::optional<int64_t> Get(std::string_view name) const;
  std::optional<SampleSummary> Summarize(std::string_view name) const;
  // All names; of samples too where `samples`.
  std::vector<std::string> Names(bool samples) const;
  // All are 0 again; the caller's own are forgotten. Under the recording lock, for AddAlone.
  void Clear();
  // Adds all counters and samples to the snapshot.
  void AddTo(Snapshot* snapshot) const;
  // No other metrics of this process have this number, those that are gone included.
  uint64_t id() const { return id_; }

 private:
  struct Named {
    bool sample = false;
    Unit unit = Unit::kNumber;
    int64_t value = 0;
    std::unique_ptr<Samples> samples;
  };
  absl::StatusOr<Named*> Own(std::string_view name, bool sample, Unit unit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static uint64_t NextId();

  const uint64_t id_ = NextId();
  std::array<Samples, static_cast<size_t>(Sample::kCount)> samples_{};
  std::array<std::atomic<int64_t>, static_cast<size_t>(Counter::kCount)> values_{};
  mutable Mutex mutex_;
  std::map<std::string, Named, std::less<>> named_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft
