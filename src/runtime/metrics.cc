// The table of counters and samples, and the caller's own.
#include "src/runtime/metrics.h"

#include <algorithm>
#include <span>

#include "absl/strings/ascii.h"
#include "src/runtime/clock.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr Unit kTime = Unit::kNanoseconds, kBytes = Unit::kBytes, kNumber = Unit::kNumber;

constexpr MetricInfo kCounters[] = {
    {"operations_recorded", "operations that callers recorded"},
    {"nodes_recorded", "nodes of the graph that they became, gradients included"},
    {"gradients", "gradients recorded"},
    {"cuts", "graphs that were cut to run: the sum of those below"},
    {"cut_host_read", "because a value was read"},
    {"cut_barrier", "by a barrier", kNumber, "MarkStep"},
    {"cut_eval", "by weft_eval"},
    {"cut_nodes", "because the graph had grown long"},
    {"cut_repetition", "because a stretch of it came again"},
    {"cut_bytes", "because its results would have taken much memory"},
    {"cut_eager", "because the context is eager or looks for bad values"},
    {"cut_size", "because a size had to be known"},
    {"cut_custom", "before and after a custom operation that the host runs"},
    {"cut_outputs", "results of all launches"},
    {"cut_nodes_computed", "nodes of all launches"},
    {"steps_replayed", "cuts of steps that arrived as before and were not built again"},
    {"cuts_postponed", "automatic cuts that could not be had; their graphs grow on"},
    {"launches_failed", "launches that failed while they ran"},
    {"tensors_set_aside", "tensors for which no program can be made: barriers leave them out"},
    {"programs_queued", "programs that were not in memory: to be loaded or compiled", kNumber, "UncachedCompile"},
    {"programs_compiled", "programs that were compiled"},
    {"programs_loaded", "programs that came from the disk cache"},
    {"memory_cache_hits", "programs that were in memory", kNumber, "CachedCompile"},
    {"memory_cache_collisions", "equal keys of other programs; the stored form decided"},
    {"disk_cache_hits", "entries that the disk cache had", kNumber, "PersistentCacheHit"},
    {"disk_cache_misses", "entries that it did not have", kNumber, "PersistentCacheMiss"},
    {"disk_cache_errors", "entries that could not be read, written or used"},
    {"disk_cache_published", "entries that were written"},
    {"host_calls", "custom operations that were called between programs"},
    {"launches", "programs that were launched"},
    {"kernel_launches", "entries of their launch lists"},
    {"buffers_donated", "arguments whose memory a launch took over"},
    {"temporaries_expired", "intermediate values that were let go before anybody read them"},
    {"bytes_to_device", "bytes that were copied to devices", kBytes},
    {"bytes_from_device", "bytes that were copied from devices", kBytes},
    {"nanoseconds_compiling", "time in which programs were compiled or loaded", kTime},
    {"nanoseconds_waiting", "time in which callers waited for devices", kTime},
    {"nanoseconds_launching", "time in which cuts were handed to devices", kTime},
    {"warnings", "warnings that were logged"},
};
static_assert(std::size(kCounters) == static_cast<size_t>(Counter::kCount));

constexpr MetricInfo kSamples[] = {
    {"compile_nanoseconds", "making one program ready, compiled or from the disk cache", kTime, "CompileTime"},
    {"load_nanoseconds", "loading one program from the disk cache", kTime, "PersistentCacheLoad"},
    {"launch_nanoseconds", "handing one cut to its device", kTime},
    {"run_nanoseconds",
     "one launch, from its first kernel to its last on platforms cpu and reference, else from when its device was told",
     kTime, "ExecuteTime"},
    {"upload_nanoseconds", "one copy from the host", kTime, "TransferToDeviceTime"},
    {"read_nanoseconds", "one read, with the wait for what it reads", kTime, "TransferFromDeviceTime"},
    {"upload_bytes", "bytes of one copy from the host", kBytes, "OutboundData"},
    {"read_bytes", "bytes of one read", kBytes, "InboundData"},
    {"launch_nodes", "nodes that one launch computes", kNumber, "TensorsGraphSize"},
};
static_assert(std::size(kSamples) == static_cast<size_t>(Sample::kCount));

constexpr size_t kLongestName = 256;

absl::Status CheckName(std::string_view name) {
  if (name.empty()) return UserError("a metric's name is empty");
  if (name.size() > kLongestName) {
    return UserError("a metric's name has ", name.size(), " bytes; ", kLongestName, " are allowed");
  }
  const auto bad = [](char c) {
    return absl::ascii_isspace(static_cast<unsigned char>(c)) || absl::ascii_iscntrl(static_cast<unsigned char>(c));
  };
  if (std::ranges::any_of(name, bad)) {
    return UserError("a metric's name must have no whitespace and no control characters: '", name, "'");
  }
  const auto same = [&](const MetricInfo& info) {
    return info.name == name || (!info.torch_xla.empty() && info.torch_xla == name);
  };
  if (name.starts_with("weft::") || std::ranges::any_of(kCounters, same) || std::ranges::any_of(kSamples, same)) {
    return UserError("metric '", name, "' is counted by Weft itself");
  }
  return absl::OkStatus();
}

}  // namespace

const MetricInfo& InfoOf(Counter counter) { return kCounters[static_cast<size_t>(counter)]; }
const MetricInfo& InfoOf(Sample sample) { return kSamples[static_cast<size_t>(sample)]; }

absl::StatusOr<Metrics::Named*> Metrics::Own(std::string_view name, bool sample, Unit unit) {
  auto found = named_.find(name);
  if (found == named_.end()) {
    WEFT_RETURN_IF_ERROR(CheckName(name));
    if (named_.size() >= kMostNamed) {
      return UserErrorOf(absl::StatusCode::kResourceExhausted, "there are ", kMostNamed,
                         " metrics of the caller's own already; '", name, "' is one more");
    }
    Named made{.sample = sample, .unit = unit, .samples = sample ? std::make_unique<Samples>() : nullptr};
    found = named_.emplace(name, std::move(made)).first;
  }
  Named& named = found->second;
  if (named.sample == sample && named.unit == unit) return &named;
  return UserError("metric '", name, "' is ", named.sample ? "a sample" : "a counter", " already",
                   named.sample == sample ? ", of another unit" : "");
}

absl::Status Metrics::AddNamed(std::string_view name, int64_t amount) {
  MutexLock lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(Named* const named, Own(name, false, Unit::kNumber));
  named->value = static_cast<int64_t>(static_cast<uint64_t>(named->value) + static_cast<uint64_t>(amount));
  return absl::OkStatus();
}

absl::Status Metrics::Record(std::string_view name, Unit unit, int64_t value) {
  MutexLock lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(Named* const named, Own(name, true, unit));
  named->samples->Add(value, MonotonicNow());
  return absl::OkStatus();
}

std::optional<int64_t> Metrics::Get(std::string_view name) const {
  for (size_t i = 0; i < std::size(kCounters); ++i) {
    if (kCounters[i].name == name) return Get(static_cast<Counter>(i));
  }
  MutexLock lock(mutex_);
  const auto found = named_.find(name);
  if (found == named_.end() || found->second.sample) return std::nullopt;
  return found->second.value;
}

std::optional<SampleSummary> Metrics::Summarize(std::string_view name) const {
  for (size_t i = 0; i < std::size(kSamples); ++i) {
    if (kSamples[i].name == name) return Summarize(static_cast<Sample>(i));
  }
  MutexLock lock(mutex_);
  const auto found = named_.find(name);
  if (found == named_.end() || !found->second.sample) return std::nullopt;
  return found->second.samples->Summarize();
}

std::vector<std::string> Metrics::Names(bool samples) const {
  std::vector<std::string> names;
  for (const MetricInfo& info : samples ? std::span<const MetricInfo>(kSamples) : kCounters)
    names.emplace_back(info.name);
  MutexLock lock(mutex_);
  for (const auto& [name, named] : named_) {
    if (named.sample == samples) names.push_back(name);
  }
  return names;
}

void Metrics::Clear() {
  for (auto& value : values_) value.store(0, std::memory_order_relaxed);
  for (Samples& samples : samples_) samples.Clear();
  MutexLock lock(mutex_);
  named_.clear();
}

void Metrics::AddTo(Snapshot* snapshot) const {
  for (size_t i = 0; i < std::size(kCounters); ++i) snapshot->Add(kCounters[i], Get(static_cast<Counter>(i)));
  for (size_t i = 0; i < std::size(kSamples); ++i) snapshot->Add(kSamples[i], Summarize(static_cast<Sample>(i)));
  MutexLock lock(mutex_);
  for (const auto& [name, named] : named_) {
    const MetricInfo info{name, "", named.unit};
    if (named.sample) {
      snapshot->Add(info, named.samples->Summarize());
    } else {
      snapshot->Add(info, named.value);
    }
  }
}

}  // namespace weft
