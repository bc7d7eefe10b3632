// The table of counters and samples, and the caller's own.
#include "src/runtime/metrics.h"

#include <algorithm>
#include <span>

#include "absl/strings/ascii.h"
#include "src/runtime/clock.h"
#include "src/runtime/number_text.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr Unit kTime = Unit::kNanoseconds, kBytes = Unit::kBytes, kNumber = Unit::kNumber;

constexpr MetricInfo kCounters[] = {
    {"operations_recorded", "operations that callers recorded"},
    {"nodes_recorded", "nodes of the graph that they became, gradients included"},
    {"gradients", "gradients recorded"},
    {"tensors_made", "tensors that were made", kNumber, "CreateXlaTensor"},
    {"tensors_released", "tensors that nobody refers to any more", kNumber, "DestroyXlaTensor"},
    {"barriers", "barriers, those included that had nothing to compute", kNumber, "MarkStep"},
    {"host::custom_call", "custom operations that the host ran between two programs"},
    {"host::exact_size", "sizes of results that had to be computed and read"},
    {"host::read", "reads of values, those of sizes included"},
    {"host::read_of_one", "reads of values that have one element", kNumber, "aten::_local_scalar_dense"},
    {"cuts", "graphs that were cut to run: the sum of those below"},
    {"cut_host_read", "because a value was read"},
    {"cut_barrier", "by a barrier"},
    {"cut_eval", "by weft_eval"},
    {"cut_nodes", "because the graph had grown long"},
    {"cut_repetition", "because a stretch of it came again"},
    {"cut_bytes", "because its results would have taken much memory"},
    {"cut_eager", "because the context is eager or looks for bad values"},
    {"cut_size", "because a size had to be known"},
    {"cut_custom", "before and after a custom operation that the host runs"},
    {"cut_outputs", "results of all launches"},
    {"cut_nodes_computed", "nodes of all launches"},
    {"cut_outputs_whole", "results that are whole on each device of a mesh because nothing says how they would lie"},
    {"steps_replayed", "cuts of steps that arrived as before and were not built again"},
    {"cuts_postponed", "automatic cuts that could not be had; their graphs grow on"},
    {"launches_failed", "launches that failed while they ran"},
    {"tensors_set_aside", "tensors for which no program can be made: barriers leave them out"},
    {"programs_queued", "programs that were not in memory: to be loaded or compiled", kNumber, "UncachedCompile"},
    {"missing::first", "of those, the first of their kind"},
    {"missing::argument", "because an argument had another shape or type"},
    {"missing::constant", "because a constant had another value"},
    {"missing::attribute", "because an operation had another attribute"},
    {"missing::operations", "because there were more, fewer or other operations"},
    {"missing::outputs", "because more or fewer results were wanted"},
    {"missing::taken_over", "because another argument's memory could be taken over"},
    {"missing::pending", "because what was pending before was known"},
    {"missing::target", "because they were for another target"},
    {"missing::dropped", "because memory had let go of them"},
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
    {"data_handles_made", "values that got memory of a device", kNumber, "CreateDataHandles"},
    {"data_handles_released", "of those, the ones that nobody refers to any more", kNumber, "DestroyDataHandles"},
    {"bytes_to_device", "bytes that were copied to devices", kBytes},
    {"bytes_from_device", "bytes that were copied from devices", kBytes},
    {"bytes_between_devices", "bytes that devices copied to each other", kBytes},
    {"nanoseconds_compiling", "time in which programs were compiled or loaded", kTime},
    {"nanoseconds_waiting", "time in which callers waited for devices: for room, memory and results", kTime},
    {"nanoseconds_recording", "callers' time outside of the parts below: recording, and what they do themselves",
     kTime},
    {"nanoseconds_looking_up", "callers' time in which cuts were planned and their programs looked up", kTime},
    {"nanoseconds_waiting_compiler", "time in which callers waited for programs", kTime},
    {"nanoseconds_waiting_room", "time in which callers waited because devices were 32 launches behind", kTime},
    {"nanoseconds_waiting_memory", "time in which callers waited for memory that launches would give back", kTime},
    {"nanoseconds_waiting_results", "time in which callers waited for results", kTime},
    {"nanoseconds_launching", "callers' time in which cuts were handed to devices, without what ran meanwhile", kTime},
    {"nanoseconds_running_inline", "callers' time in which their threads ran launches themselves", kTime},
    {"nanoseconds_copying", "callers' time in which values were copied to devices and from them", kTime},
    {"loader_batches", "batches that loaders gave out"},
    {"loader_bytes", "bytes that loaders read", kBytes},
    {"nanoseconds_loader_waits", "time in which callers waited for a loader, first batches left out", kTime},
    {"nanoseconds_loader_idle", "time in which loaders had read all that they may and waited for callers", kTime},
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
    {"record_nanoseconds", "one stretch of a caller's time between two calls that plan, wait or copy", kTime,
     "LazyTracing"},
    {"room_nanoseconds", "one wait for a device that was 32 launches behind", kTime, "DeviceLockWait"},
    {"may_take_over", "arguments whose memory one program may take over, of programs that were not in memory", kNumber,
     "InputOutputAliasCount"},
    {"loader_ready", "batches of a loader that were ready when the next one was asked for"},
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
  if (name.starts_with("weft::") || name.starts_with("op::") || std::ranges::any_of(kCounters, same) ||
      std::ranges::any_of(kSamples, same)) {
    return UserError("metric '", name, "' is counted by Weft itself");
  }
  return absl::OkStatus();
}

// Which of the two waited longer for the other: the loaders, or who reads from them.
std::string InputInWords(const Metrics& metrics) {
  if (metrics.Get(Counter::kLoaderBatches) == 0) return "";
  const int64_t waits = metrics.Get(Counter::kNanosecondsLoaderWaits);
  const int64_t idle = metrics.Get(Counter::kNanosecondsLoaderIdle);
  const auto ms = [](int64_t nanoseconds) {
    return absl::StrCat(FixedText(static_cast<double>(nanoseconds) / 1e6, 1), " ms");
  };
  return absl::StrCat(waits > idle ? "data-bound" : "compute-bound", ": the program waited ", ms(waits),
                      " for loaders, loaders waited ", ms(idle), " for the program");
}

}  // namespace

const MetricInfo& InfoOf(Counter counter) { return kCounters[static_cast<size_t>(counter)]; }
const MetricInfo& InfoOf(Sample sample) { return kSamples[static_cast<size_t>(sample)]; }

uint64_t Metrics::NextId() {
  static constinit std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

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
  snapshot->input = InputInWords(*this);
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
