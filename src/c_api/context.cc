// Life of a context: options and hooks in, engine made, everything drained at the end.
#include "src/c_api/context.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "absl/strings/str_split.h"
#include "serialization/compile_cache.h"
#include "serialization/mac.h"
#include "src/c_api/backends.h"
#include "src/c_api/callers.h"
#include "src/c_api/ceilings.h"
#include "src/c_api/generated/option_copy.h"
#include "src/c_api/job_object.h"
#include "src/c_api/options.h"
#include "src/c_api/report.h"
#include "src/compiler/disk_store.h"
#include "src/lazy/service/graph_file.h"
#include "src/runtime/host_allocator.h"
#include "src/runtime/lasting.h"
#include "src/runtime/trace_render.h"

namespace weft::c_api {
namespace {

// The host's allocator, process-wide because buffers outlive contexts.
struct HostAllocator {
  weft_allocate_fn allocate;
  weft_free_fn free;
  void* user_data;
  friend bool operator==(const HostAllocator&, const HostAllocator&) = default;
};

// Each that was ever in use, once: a thread may still be on its way through it when another takes its place.
struct HostAllocators {
  Mutex mutex;
  std::vector<std::unique_ptr<const HostAllocator>> all ABSL_GUARDED_BY(mutex);

  void HoldOverFork() { weft::HoldOverFork(mutex, ForkOrder::kThen); }
};

absl::Status UseAllocator(const weft_context_options& options) {
  if ((options.allocate == nullptr) != (options.free == nullptr)) {
    return UserError("weft_context_options: allocate and free must both be set or both be NULL");
  }
  if (options.allocate == nullptr) return absl::OkStatus();
  static Lasting<HostAllocators> used;
  HostAllocators& known = used.Get();
  MutexLock lock(known.mutex);
  const HostAllocator wanted = {options.allocate, options.free, options.allocator_user_data};
  const auto found = std::ranges::find_if(known.all, [&](const auto& one) { return *one == wanted; });
  const bool is_new = found == known.all.end();
  const HostAllocator* const host =
      is_new ? known.all.emplace_back(std::make_unique<const HostAllocator>(wanted)).get() : found->get();
  const bool ours = SetLargeAllocatorIfIdle({
      .allocate = [](void* user, size_t bytes, size_t align) -> void* {
        const auto* h = static_cast<HostAllocator*>(user);
        const CallingOut out;
        return h->allocate(h->user_data, bytes, align);
      },
      .free =
          [](void* user, void* memory, size_t bytes) {
            const auto* h = static_cast<HostAllocator*>(user);
            const CallingOut out;
            h->free(h->user_data, memory, bytes);
          },
      .user = const_cast<HostAllocator*>(host),
  });
  if (!ours) {
    if (is_new) known.all.pop_back();
    return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                       "weft_context_options.allocate: set the allocator before the first tensor of the process; ",
                       GetLargeMemoryStats().live_bytes, " bytes are in use already");
  }
  return absl::OkStatus();
}

// WEFT_LOG: the only way anything of Weft reaches standard error, and only if asked. A record has the time (UTC), the thread by its name
// and number, and the position of the call that this thread is in, if there is one.
void WriteToStderr(void*, weft_log_level level, const char* text, size_t length) {
  static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  timespec now = {};
  tm date = {};
  char thread[16] = "";
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &date);
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  const std::string at = ir::ToString(CurrentLocation(lazy::Positions::kCall));
  std::fprintf(stderr, "weft %s: [%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %s/%ld%s%s] %.*s\n", kNames[level & 3],
               date.tm_year + 1900, date.tm_mon + 1, date.tm_mday, date.tm_hour, date.tm_min, date.tm_sec,
               static_cast<int>(now.tv_nsec / 1'000'000), thread, syscall(SYS_gettid), at.empty() ? "" : " ",
               at.c_str(), static_cast<int>(length), text);
}

int LevelOf(std::string_view name) {
  static constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};
  for (int i = 0; i < 4; ++i) {
    if (name == kNames[i]) return i;
  }
  return WEFT_LOG_OFF;
}

// Ends what the caller handed over if the context cannot be made; disarmed once somebody else holds it.
class ReleaseOnFailure {
 public:
  ReleaseOnFailure(weft_release_fn release, void* user_data) : release_(release), user_data_(user_data) {}
  ~ReleaseOnFailure() { RunRelease(release_, user_data_); }
  void Disarm() { release_ = nullptr; }

 private:
  weft_release_fn release_;
  void* user_data_;
};

// With a queue the record waits for who runs it, and so does the hook that it is for.
void WriteOrQueue(const std::shared_ptr<LogState>& state, lazy::CallbackQueue* queue, lazy::LogLevel level,
                  std::string_view text) {
  if (queue == nullptr) return state->Write(level, text);
  queue->AddRecord([state, level, text = std::string(text)] { state->Write(level, text); });
}

// The thread's marks: a scope's and weft_position_mark's.
constinit thread_local ir::Location t_location{}, t_mark{};

// The options of the folders for compiled programs. The cache's messages go through `engine` while there is one.
absl::StatusOr<CompileCacheOptions> CacheOptions(const Settings& settings, const LogHook& log,
                                                 const std::shared_ptr<std::atomic<lazy::Engine*>>& engine) {
  CompileCacheOptions cache;
  if (const std::string key_file(settings.text(Option::kCacheKeyFile)); !key_file.empty()) {
    absl::StatusOr<std::string> key = ReadMacKey(PosixFileSystem(), key_file);
    if (!key.ok()) return UserErrorOf(key.status().code(), "the option cache_key_file: ", key.status().message());
    cache.mac_key = *std::move(key);
  }
  for (const std::string_view directory : absl::StrSplit(settings.text(Option::kCacheDir), ':', absl::SkipEmpty())) {
    if (cache.directory.empty()) {
      cache.directory = directory;
    } else {
      cache.lower.emplace_back(directory);
    }
  }
  if (cache.directory.empty()) cache.directory = DefaultCompileCacheDirectory();
  cache.read_only = settings.text(Option::kCacheMode) == "read";
  cache.max_bytes = static_cast<uint64_t>(settings.integer(Option::kCacheMaxBytes));
  cache.warn = [write = log.write](std::string_view text) { write(LogLevel::kWarning, text); };
  cache.write_failed = [engine] {
    if (lazy::Engine* running = engine->load()) running->metrics().Add(Counter::kDiskCacheErrors);
  };
  cache.published = [engine, log](const Hash128& key, uint64_t bytes) {
    if (lazy::Engine* running = engine->load()) running->metrics().Add(Counter::kDiskCachePublished);
    if (!log.Wants(LogLevel::kDebug)) return;
    log.write(LogLevel::kDebug, absl::StrCat("program ", KeyName(key).substr(0, 16), " of ", bytes,
                                             " bytes is published to the disk cache"));
  };
  return cache;
}

}  // namespace

constinit thread_local CalledFrom t_called_from;

constinit thread_local int CallingOut::depth_ = 0;

ir::Location CurrentLocation(const lazy::Engine& engine) { return CurrentLocation(engine.options().positions); }
ir::Location CurrentLocation(lazy::Positions positions) {
  if (t_location.file != 0) return t_location;
  if (t_mark.file != 0) return t_mark;
  if (positions == lazy::Positions::kStack) return CallersLocation(t_called_from);
  return positions == lazy::Positions::kCall ? ir::LocationOf(t_called_from.address) : ir::Location();
}
void SetMarkedLocation(ir::Location location) { t_mark = location; }
void SetCurrentLocation(ir::Location location) { t_location = location; }

absl::Status Context::AfterBarrier(const Event& event) const {
  const Context& of = root();
  TraceValue(of.trace_->id(), kStepValue, engine_->metrics().Get(Counter::kBarriers));
  absl::Status outcome;
  if (of.sync_wait_) outcome = engine_->services().WaitFor(event);
  if (of.trace_file_ != nullptr && of.trace_file_->IsLastStep()) {
    event.Wait().IgnoreError();  // what the steps have launched is in the trace, too
    of.trace_file_->End();
  }
  if (of.metrics_file_ == nullptr) return outcome;
  WEFT_ASSIGN_OR_RETURN(const std::string report, RenderMetrics(*engine_, of.metrics_format_));
  const int64_t step = engine_->metrics().Get(Counter::kBarriers);
  of.metrics_file_->Write(absl::StrCat("[MetricsData; step=", step, "]\n", report, "\n"));
  return outcome;
}

namespace {

// Files that the processes of a job would share have each process's rank behind their names, as PyTorch/XLA's have.
std::string OfThisProcess(const std::string& path) {
  if (path == "STDERR" || path == "STDOUT") return path;
  const auto place = PlaceOf({});
  return place.ok() && place->size > 1 ? absl::StrCat(path, ".", place->rank) : path;
}

}  // namespace

void Context::Observe(const Settings& settings, const std::function<void(LogLevel, std::string_view)>& write,
                      lazy::Engine::Config* config) {
  const auto warn = [write](std::string text) { write(LogLevel::kWarning, text); };
  const std::string& positions = settings.text(Option::kPositions);
  config->options.positions = positions == "off"     ? lazy::Positions::kOff
                              : positions == "stack" ? lazy::Positions::kStack
                                                     : lazy::Positions::kCall;
  constexpr std::string_view kBad[] = {"off", "nan", "inf", "any"};
  config->options.first_bad =
      static_cast<lazy::Bad>(std::ranges::find(kBad, settings.text(Option::kFirstBad)) - std::begin(kBad));
  constexpr std::string_view kReads[] = {"allow", "warn", "forbid"};
  config->options.host_read =
      static_cast<lazy::HostReads>(std::ranges::find(kReads, settings.text(Option::kHostRead)) - std::begin(kReads));
  config->options.positions_root = settings.text(Option::kPositionsRoot);
  config->options.caller = [how = config->options.positions] { return CurrentLocation(how); };
  if (const std::string& folder = settings.text(Option::kDumpDir); !folder.empty()) {
    config->options.dump =
        std::make_shared<compiler::ProgramDump>(folder, settings.integer(Option::kDumpMaxBytes), warn);
  }
  const std::string& one_by_one = settings.text(Option::kOpByOp);
  config->options.read_op_by_op = one_by_one == "read" || one_by_one == "both";
  config->options.sync_op_by_op = one_by_one == "sync" || one_by_one == "both";
  if (const std::string& path = settings.text(Option::kSaveGraphs); !path.empty()) {
    constexpr std::string_view kFormats[] = {"text", "dot", "stablehlo", "hlo"};
    const auto* const format = std::ranges::find(kFormats, settings.text(Option::kSaveGraphsFormat));
    auto file = std::make_shared<LineFile>(OfThisProcess(path), warn, settings.integer(Option::kSaveGraphsMaxBytes));
    config->options.graphs = std::make_shared<lazy::GraphFile>(
        std::move(file), static_cast<lazy::GraphFile::Format>(format - kFormats), config->options.matmul_precision);
  }
  sync_wait_ = settings.truth(Option::kSyncWait);
  if (const std::string& path = settings.text(Option::kMetricsFile); !path.empty()) {
    constexpr std::string_view kFormats[] = {"text", "json", "xla", "xla_2019", "openmetrics"};
    const auto* const format = std::ranges::find(kFormats, settings.text(Option::kMetricsFormat));
    metrics_format_ = static_cast<weft_metrics_format>(format - kFormats);
    metrics_file_ = std::make_unique<LineFile>(OfThisProcess(path), warn);
  }
  if (settings.text(Option::kExplain) != "off") {
    auto file = std::make_shared<LineFile>(settings.text(Option::kExplainFile), warn);
    config->explain_launches = settings.text(Option::kExplain) == "launches";
    config->explain = [file](std::string_view line) { file->Write(absl::StrCat("weft explain: ", line, "\n")); };
  }
}

absl::Status Context::SetTrace(const Settings& settings, const std::function<void(LogLevel, std::string_view)>& write,
                               std::shared_ptr<Trace> trace) {
  trace_ = std::move(trace);
  WEFT_ASSIGN_OR_RETURN(const TraceSteps steps, TraceStepsOf(settings.text(Option::kTraceSteps)));
  const std::string& path = settings.text(Option::kTraceFile);
  if (path.empty()) return absl::OkStatus();
  const auto warn = [write](std::string text) { write(LogLevel::kWarning, text); };
  trace_file_ = std::make_unique<TraceFile>(path, steps, settings.integer(Option::kTraceBytes), trace_, warn);
  return absl::OkStatus();
}

absl::StatusOr<Ref<Context>> Context::Create(const weft_context_options& options) {
  ReleaseOnFailure allocator(options.allocator_release, options.allocator_user_data);
  ReleaseOnFailure pressure(options.pressure_release, options.pressure_user_data);
  auto sink = MakeLogSink(options.log, options.log_user_data, options.log_release, options.min_log_level);

  WEFT_ASSIGN_OR_RETURN(Settings settings, Settings::Read(options.settings, options.setting_count));
  switch (options.mode) {
    case WEFT_MODE_DEFAULT: break;
    case WEFT_MODE_LAZY: settings.set(Option::kMode, "lazy"); break;
    case WEFT_MODE_EAGER: settings.set(Option::kMode, "eager"); break;
    case WEFT_MODE_DEBUG: settings.set(Option::kMode, "debug"); break;
    default: return UserError("weft_context_options.mode is ", static_cast<int>(options.mode), "; there are 0 to 3");
  }
  if (options.log == nullptr && settings.text(Option::kLog) != "off") {
    sink = std::make_shared<LogSink>(WriteToStderr, nullptr, nullptr, LevelOf(settings.text(Option::kLog)));
  }
  WEFT_RETURN_IF_ERROR(UseAllocator(options));
  if (options.allocate != nullptr) allocator.Disarm();  // held for the rest of the process

  auto context = Ref<Context>(new Context);
  context->log_->Set(std::move(sink));
  if (settings.text(Option::kCallbacks) == "queued") {
    WEFT_ASSIGN_OR_RETURN(context->queue_, lazy::CallbackQueue::Create());
  }
  const auto write = [state = context->log_, queue = context->queue_](lazy::LogLevel level, std::string_view text) {
    WriteOrQueue(state, queue.get(), level, text);
  };
  if (!settings.ignored().empty()) write(LogLevel::kInfo, settings.ignored());
  lazy::Engine::Config config;
  const std::string& mode = settings.text(Option::kMode);
  config.options.mode = mode == "eager" ? lazy::Mode::kEager : mode == "debug" ? lazy::Mode::kDebug : lazy::Mode::kLazy;
  CopyOptions(settings, &config.options);
  config.options.held = settings.held();
  config.options.custom = context->custom_;
  config.log = {write, std::shared_ptr<const std::atomic<int>>(context->log_, &context->log_->least())};
  config.log.anywhere = context->queue_ != nullptr;
  config.queue = context->queue_;
  auto early_warnings = std::make_shared<std::atomic<int>>(0);  // before there is an engine to count them
  // The layers below the engine may write while the engine's lock is held; the engine delivers when it is not.
  const auto write_below = [write, engine = context->cache_engine_, early_warnings](LogLevel level,
                                                                                    std::string_view text) {
    if (lazy::Engine* running = engine->load()) return running->services().Log(level, std::string(text));
    if (level >= LogLevel::kWarning) early_warnings->fetch_add(1, std::memory_order_relaxed);
    write(level, text);
  };
  const BackendServices services = {.metrics = config.metrics,
                                    .log = {write_below, config.log.least},
                                    .budget = std::make_shared<MemoryBudget>(settings.integer(Option::kMemoryLimit))};
  context->Observe(settings, write_below, &config);
  WEFT_RETURN_IF_ERROR(context->SetTrace(settings, write_below, services.trace));
  WEFT_ASSIGN_OR_RETURN(config.backends, MakeBackends(settings, context->custom_, services));
  context->custom_->guarded = config.options.mode == lazy::Mode::kDebug;
  if (settings.text(Option::kCacheMode) != "off") {
    WEFT_ASSIGN_OR_RETURN(const CompileCacheOptions cache,
                          CacheOptions(settings, services.log, context->cache_engine_));
    context->cache_ = CompileCacheStore::Open(cache);
    config.store = compiler::MakeDiskStore(context->cache_);
  }
  context->settings_ = std::move(settings);
  WEFT_ASSIGN_OR_RETURN(context->engine_, lazy::Engine::Create(std::move(config)));
  context->custom_->owner = &context->engine_->services();
  context->engine_->metrics().Add(Counter::kWarnings, early_warnings->load());
  // The cache's thread may use it until Close has drained the cache, before which the context does not let go.
  context->cache_engine_->store(context->engine_.get());
  context->pressure_ = options.pressure;
  context->pressure_data_ = options.pressure_user_data;
  context->pressure_release_ = options.pressure_release;
  pressure.Disarm();
  if (context->trace_file_ != nullptr && context->trace_file_->IsReport()) {
    context->trace_file_->SetMachine(MachineOf(*context));
  }
  return context;
}

Ref<Context> Context::OfBody(Context& around, Ref<lazy::Frame> frame) {
  auto body = Ref<Context>(new Context);
  body->engine_ = around.engine_;
  body->root_ = Ref<Context>::Share(&around.root());
  body->frame_ = std::move(frame);
  return body;
}

absl::Status Context::Usable() const { return engine_->services().CheckProcess(); }

absl::Status Context::BeforeWork() {
  WEFT_RETURN_IF_ERROR(Usable());
  lazy::Services& services = engine_->services();
  WEFT_RETURN_IF_ERROR(services.CheckCancelled(services.cancels()));
  services.StartsWork();
  return absl::OkStatus();
}

size_t Context::RunQueue() {
  return queue()->Run([this](size_t left_out) {
    log().Write(lazy::LogLevel::kWarning,
                absl::StrCat(left_out, " log records were left out: nobody called weft_context_run_queue in time"));
  });
}

absl::Status Context::InBackground(std::function<void()> work) {
  if (root_ != nullptr) return root_->InBackground(std::move(work));
  engine_->services().StartsWork();
  MutexLock lock(mutex_);
  std::erase_if(background_, [](Background& old) {
    if (!old.done->load(std::memory_order_acquire)) return false;
    old.thread.join();
    return true;
  });
  auto done = std::make_shared<std::atomic<bool>>(false);
  Background& added = background_.emplace_back(std::thread(), done);  // before there is a thread that would have to end
  try {
    added.thread = std::thread([work = std::move(work), done] {
      SetDefaultFloats();
      NameThread("weft-io");
      work();
      done->store(true, std::memory_order_release);
    });
  } catch (const std::system_error& e) {
    background_.pop_back();
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a thread: ", e.what()));
  } catch (...) {
    background_.pop_back();
    throw;
  }
  return absl::OkStatus();
}

std::optional<Context::Background> Context::NextInBackground() {
  MutexLock lock(mutex_);
  if (background_.empty()) return std::nullopt;
  Background next = std::move(background_.back());
  background_.pop_back();
  return next;
}

Context::~Context() {
  if (engine_ == nullptr) return;
  const bool left_behind = engine_->services().fork().Forked();
  if (frame_ != nullptr) {
    if (!left_behind) engine_->AbandonFunction(*frame_);
    return;
  }
  if (left_behind) {
    // The parent's threads and locks stay as they are: a thread that is not here may hold them.
    for (Background& old : background_) old.thread.detach();
    (void)engine_.Release();
    RunRelease(pressure_release_, pressure_data_);
    return;
  }
  if (!Usable().ok()) {
    for (Background& old : background_) old.thread.detach();
    (void)engine_.Release();  // its threads are not here to be joined: it stays
  } else {
    while (std::optional<Background> old = NextInBackground()) {  // a save may start the sync that it waits for
      // A hook that a save called may have been the last to need the context.
      old->thread.get_id() == std::this_thread::get_id() ? old->thread.detach() : old->thread.join();
    }
    if (absl::Status status = engine_->Close(); !status.ok()) {
      try {
        WriteOrQueue(log_, queue_.get(), lazy::LogLevel::kError,
                     absl::StrCat("while closing a context: ", status.message()));
      } catch (const std::bad_alloc&) {
        // Nobody is told.
      }
    }
  }
  cache_engine_->store(nullptr);  // from here on warnings go to the log at once
  if (trace_file_ != nullptr) trace_file_->End();
  if (queue_ != nullptr) queue_->Close();
  log_->Set(nullptr);
  RunRelease(pressure_release_, pressure_data_);
}

}  // namespace weft::c_api
