// Names of counters and samples.
#include "src/runtime/metrics.h"

namespace weft {
namespace {

constexpr std::string_view kNames[] = {
    "operations_recorded",
    "nodes_recorded",
    "gradients",
    "cuts",
    "cut_host_read",
    "cut_barrier",
    "cut_eval",
    "cut_nodes",
    "cut_repetition",
    "cut_bytes",
    "cut_eager",
    "cut_size",
    "cut_custom",
    "cut_outputs",
    "cut_nodes_computed",
    "steps_replayed",
    "cuts_postponed",
    "launches_failed",
    "tensors_set_aside",
    "programs_queued",
    "programs_compiled",
    "programs_loaded",
    "memory_cache_hits",
    "memory_cache_collisions",
    "disk_cache_hits",
    "disk_cache_misses",
    "disk_cache_errors",
    "disk_cache_published",
    "host_calls",
    "launches",
    "kernel_launches",
    "buffers_donated",
    "temporaries_expired",
    "bytes_to_device",
    "bytes_from_device",
    "nanoseconds_compiling",
    "nanoseconds_waiting",
    "nanoseconds_launching",
    "warnings",
};
static_assert(std::size(kNames) == static_cast<size_t>(Counter::kCount));

constexpr std::string_view kSampleNames[] = {"compile_nanoseconds", "run_nanoseconds"};
static_assert(std::size(kSampleNames) == static_cast<size_t>(Sample::kCount));

}  // namespace

std::string_view NameOf(Counter counter) { return kNames[static_cast<size_t>(counter)]; }
std::string_view NameOf(Sample sample) { return kSampleNames[static_cast<size_t>(sample)]; }

int64_t Metrics::Get(std::string_view name) const {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return Get(static_cast<Counter>(i));
  }
  return -1;
}

void Metrics::Clear() {
  for (auto& value : values_) value.store(0, std::memory_order_relaxed);
  for (Samples& samples : samples_) samples.Clear();
}

void Metrics::AddTo(Snapshot* snapshot) const {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    snapshot->counters.emplace_back(kNames[i], Get(static_cast<Counter>(i)));
  }
  for (size_t i = 0; i < std::size(kSampleNames); ++i) {
    snapshot->samples.emplace_back(kSampleNames[i], Summarize(static_cast<Sample>(i)));
  }
}

}  // namespace weft
