// Counters and samples of a context: compilations, launches, cuts and their reasons, bytes, time. Every layer sees them, backends
// too (backend_services.h); the C API's metrics read them, and tests prove with them that something did not happen twice.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "src/runtime/samples.h"
#include "src/runtime/snapshot.h"

namespace weft {

// The order is that of the report. Adding one: a line here and a line in metrics.cc.
enum class Counter : uint8_t {
  kOperationsRecorded,
  kNodesRecorded,
  kGradients,
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
  kStepsReplayed,    // cuts of steps that arrived as before and were not built
  kCutsPostponed,    // automatic ones that could not be had: the graph grows on, no operation fails
  kLaunchesFailed,   // while they ran: what they were to make is made again or shows its value before
  kTensorsSetAside,  // no program can be made for these: barriers leave them out
  kProgramsQueued,   // not in memory: to be loaded or compiled
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
  kBytesToDevice,
  kBytesFromDevice,
  kNanosecondsCompiling,
  kNanosecondsWaiting,
  kNanosecondsLaunching,
  kWarnings,
  kCount,
};

// Measured each time it happens, in nanoseconds. The order is that of the report.
enum class Sample : uint8_t {
  kCompile,  // a program from its recorded graph to a loaded executable, compiled or from the disk cache
  kRun,      // a launch, from its first kernel to its last; on platform cpu
  kCount,
};

std::string_view NameOf(Counter counter);  // "programs_compiled"
std::string_view NameOf(Sample sample);    // "compile_nanoseconds"

// Thread rule: any thread. Relaxed atomics: counts are exact, their relation at one instant is not.
class Metrics {
 public:
  void Add(Counter counter, int64_t amount = 1) {
    values_[static_cast<size_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
  }
  int64_t Get(Counter counter) const { return values_[static_cast<size_t>(counter)].load(std::memory_order_relaxed); }
  // -1 if there is no counter of the name.
  int64_t Get(std::string_view name) const;
  void Add(Sample sample, int64_t value) { samples_[static_cast<size_t>(sample)].Add(value); }
  SampleSummary Summarize(Sample sample) const { return samples_[static_cast<size_t>(sample)].Summarize(); }
  void Clear();
  // Adds all counters and samples to the snapshot.
  void AddTo(Snapshot* snapshot) const;

 private:
  std::array<Samples, static_cast<size_t>(Sample::kCount)> samples_{};
  std::array<std::atomic<int64_t>, static_cast<size_t>(Counter::kCount)> values_{};
};

}  // namespace weft
