// What a context counted: compilations, launches, cuts and their reasons, bytes, time. Seen by every layer; read through
// the C API's metrics and by tests, which prove with it that something did not happen twice.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

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

std::string_view NameOf(Counter counter);  // "programs_compiled"

// Thread rule: any thread. Relaxed atomics: counts are exact, their relation at one instant is not.
class Metrics {
 public:
  void Add(Counter counter, int64_t amount = 1) {
    values_[static_cast<size_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
  }
  int64_t Get(Counter counter) const { return values_[static_cast<size_t>(counter)].load(std::memory_order_relaxed); }
  // -1 if there is no counter of the name.
  int64_t Get(std::string_view name) const;
  void Clear();

  // One line per counter that is not zero: "programs_compiled: 2", in the enumeration's order.
  std::string Report() const;
  // All counters as one JSON object.
  std::string Json() const;

 private:
  std::array<std::atomic<int64_t>, static_cast<size_t>(Counter::kCount)> values_{};
};

}  // namespace weft
