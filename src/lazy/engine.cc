// The door: takes the lock, asks the parts, and hands values in and out.
#include "src/lazy/engine.h"
#include "src/lazy/engine_leaves.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/backends/strided_uploads.h"
#include "src/lazy/engine_record.h"
#include "src/lazy/service/graph_file.h"
#include "src/lazy/value/live_report.h"
#include "src/ops/build.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/clock.h"
#include "src/runtime/float_environment.h"
#include "src/runtime/json_text.h"

namespace weft::lazy {
namespace {

// Scalars as the argument block holds them: 64-bit elements take two words, low half first, narrower ones one.
absl::InlinedVector<uint32_t, Data::kMaxWords> WordsOf(const HostTensor& value) {
  absl::InlinedVector<uint32_t, Data::kMaxWords> words;
  const size_t width = static_cast<size_t>(BytesOf(value.dtype()));
  for (size_t i = 0; i < value.bytes().size(); i += width) {
    uint64_t bits = 0;
    std::memcpy(&bits, value.bytes().data() + i, width);
    words.push_back(static_cast<uint32_t>(bits));
    if (width == 8) words.push_back(static_cast<uint32_t>(bits >> 32));
  }
  return words;
}

// A cut is large that wants so much of a device's limit.
constexpr int64_t kLargeShare = 16;

}  // namespace

// --- Life ----------------------------------------------------------------------------------------------------------------

Engine::Engine(Config config)
    : options_(config.options),
      backends_(std::move(config.backends)),
      store_(std::move(config.store)),
      metrics_(std::move(config.metrics)),
      explain_(std::move(config.explain)),
      explain_launches_(config.explain_launches),
      services_(
          std::move(config.log), metrics_.get(),
          [this] {
            return std::any_of(backends_.begin(), backends_.end(), [](const auto& backend) { return backend->Help(); });
          },
          std::move(config.queue)),
      recorder_(*this, services_, metrics_),
      evaluator_(recorder_, services_, *metrics_, options_) {
  PartScope::Begin(*metrics_);
  recorder_.generator.key = static_cast<uint64_t>(options_.seed);
  for (const auto& backend : backends_) {
    programs_.push_back(std::make_unique<compiler::ProgramCache>(CacheConfig(*backend, options_.program)));
    for (Device* device : backend->devices()) {
      device_list_.push_back(device);
      recorder_.AddMesh({device}, {}, programs_.back().get(), options_);
    }
  }
}

compiler::ProgramCache::Config Engine::CacheConfig(Backend& backend, ProgramOptions program) {
  compiler::ProgramCache::Config cache;
  cache.backend = &backend;
  cache.options = {std::move(program), nullptr};
  cache.held = options_.held;
  cache.hash_bits = options_.hash_bits;
  cache.max_programs = options_.max_programs;
  cache.max_bytes = options_.program_memory;
  cache.store = store_.get();
  cache.metrics = metrics_.get();
  cache.warn = [this](std::string text) { services_.Log(LogLevel::kWarning, std::move(text)); };
  cache.made = programs_made_;
  cache.explain = [this](absl::FunctionRef<std::string()> text) {
    if (explain_) explain_(text());
    services_.LogLazily(LogLevel::kInfo, text);
  };
  if (explain_ && explain_launches_) {
    cache.explain_launch = [this](absl::FunctionRef<std::string()> text) { explain_(text()); };
  }
  cache.dump = options_.dump;
  cache.draw = GraphDot;
  cache.note = [this](absl::FunctionRef<std::string()> text) { services_.LogLazily(LogLevel::kDebug, text); };
  return cache;
}

absl::StatusOr<Ref<Engine>> Engine::Create(Config config) {
  const Options& options = config.options;
  if (options.max_pending_nodes < 0 || options.max_pending_bytes < 0 || options.repetition_nodes < 0) {
    return UserError("context options: limits of automatic cuts must be 0 (never) or positive");
  }
  if (options.hash_bits < 1 || options.hash_bits > 128) {
    return UserError("context options: hash_bits is ", options.hash_bits, "; it must be 1 to 128");
  }
  // Where memory is limited, smaller cuts are worth asking whether they fit.
  for (const auto& backend : config.backends) {
    for (Device* device : backend->devices()) {
      const int64_t limit = backend->memory_stats(device).bytes_limit;
      if (limit > 0) config.options.large_cut_bytes = std::min(config.options.large_cut_bytes, limit / kLargeShare);
    }
  }
  Ref<Engine> engine(new Engine(std::move(config)));
  if (engine->device_list_.empty()) return UserError("a context needs a backend with at least one device");
  return engine;
}

Engine::~Engine() {
  // Launches hold what they need, but the backends must not go while they run.
  for (const MeshState& state : recorder_.meshes()) {
    if (const Ref<Event> last = state.last_event()) (void)last->Wait();
  }
}

absl::Status Engine::Close() {
  // One event after the other: a context must be able to end where no memory is left to wait for all of them at once.
  absl::Status status;
  const PartScope part(*metrics_, Part::kResults);
  while (true) {
    Ref<Event> running;
    {
      Lock lock(recorder_, Lock::To::kNote);
      for (const MeshState& state : recorder_.meshes()) {
        const Ref<Event> last = state.last_event();
        if (!last) continue;
        if (!last->done()) running = last;
        if (last->done()) status.Update(last->status());
      }
      if (!running) recorder_.Close();
    }
    if (!running) break;
    (void)running->Wait();
  }
  services_.RunReleases();
  evaluator_.Close();
  ExplainAll();
  for (const auto& backend : backends_) backend->Close();
  if (store_ != nullptr) store_->Drain();
  services_.FlushLog();
  return status;
}

// --- Leaves --------------------------------------------------------------------------------------------------------------

absl::StatusOr<Ref<Buffer>> Engine::WithRoom(Device* device, absl::FunctionRef<absl::StatusOr<Ref<Buffer>>()> make) {
  absl::StatusOr<Ref<Buffer>> buffer = make();
  if (!absl::IsResourceExhausted(buffer.status())) return buffer;
  Ref<Event> running;
  {
    Lock lock(recorder_, Lock::To::kNote);
    running = recorder_.StateOf(*device).last_event();
  }
  if (running && !running->done()) {
    WEFT_RETURN_IF_ERROR(services_.WaitUntilOver(*running, Part::kMemory));
    buffer = make();
    if (!absl::IsResourceExhausted(buffer.status())) return buffer;
  }
  Lock lock(recorder_, Lock::To::kNote);
  const std::string largest = LargestLive(recorder_.StateOf(*device).live);
  absl::Status status = UserErrorOf(absl::StatusCode::kResourceExhausted, buffer.status().message(), largest);
  const bool mendable = buffer.status().GetPayload(kPayloadRetry).has_value();
  return mendable ? RetryAfterRelease(std::move(status)) : status;
}

absl::StatusOr<Ref<Buffer>> Engine::ToDevice(Device* device, DType dtype, std::span<const int64_t> dims,
                                             std::span<const std::byte> bytes) {
  std::vector<std::byte, LargeStdAllocator<std::byte>> stored;
  if (const DType held = options_.held.Of(dtype); held != dtype) {
    stored.resize(static_cast<size_t>(CountOf(dims) * BytesOf(held)));
    ConvertHeld(dtype, bytes, held, stored);
    dtype = held;
    bytes = stored;
  }
  return WithRoom(device, [&] { return device->backend->ToDevice(device, dtype, dims, bytes); });
}

namespace {

// Copies a part to the device from among the elements around it; UNIMPLEMENTED where the device takes nothing but neighbours.
absl::StatusOr<Ref<Buffer>> UploadFromAmong(Device* device, DType dtype, const Dims& dims, const ir::Box& box,
                                            std::span<const std::byte> bytes) {
  auto* const backend = dynamic_cast<StridedUploads*>(device->backend);
  if (backend == nullptr) return absl::UnimplementedError("");
  Dims strides = StridesOf(dims);
  int64_t first = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    strides[d] *= BytesOf(dtype);
    first += box.starts[d] * strides[d];
  }
  return backend->ToDeviceStrided(device, dtype, box.sizes, strides, bytes.data() + first);
}

}  // namespace

absl::StatusOr<Shards> Engine::Upload(const Placement& placement, DType dtype, std::span<const int64_t> dims,
                                      std::span<const std::byte> bytes) {
  const Dims all(dims.begin(), dims.end());
  const std::span<Device* const> holders = placement.mesh().holders();
  bool among = options_.held.Of(dtype) == dtype;  // elements are copied as they are
  Shards shards;
  std::vector<std::byte, LargeStdAllocator<std::byte>> part;
  for (size_t i = 0; i < holders.size(); ++i) {
    std::span<const std::byte> its = bytes;
    if (placement.split()) {
      const ir::Box box = placement.BoxOf(all, i);
      const auto size = static_cast<size_t>(CountOf(box.sizes) * BytesOf(dtype));
      const int64_t at = OffsetOfPart(box, all, BytesOf(dtype));
      if (at < 0 && among && size > 0) {
        absl::StatusOr<Ref<Buffer>> made =
            WithRoom(holders[i], [&] { return UploadFromAmong(holders[i], dtype, all, box, bytes); });
        among = !absl::IsUnimplemented(made.status()) && !absl::IsInvalidArgument(made.status());
        if (among) {
          WEFT_ASSIGN_OR_RETURN(shards.emplace_back(), std::move(made));
          continue;
        }
      }
      if (at >= 0) {
        its = bytes.subspan(static_cast<size_t>(at), size);
      } else {
        part.resize(size);
        CopyPartIn(bytes, all, box, BytesOf(dtype), part);
        its = part;
      }
    }
    WEFT_ASSIGN_OR_RETURN(shards.emplace_back(), ToDevice(holders[i], dtype, placement.DimsOfPart(all), its));
  }
  return shards;
}

absl::StatusOr<Ref<Tensor>> Engine::NewBufferTensor(const Placement& placement, const ir::Type& type, Shards shards,
                                                    ir::Location location, std::span<const size_t> others) {
  Ref<Tensor> tensor;
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_ASSIGN_OR_RETURN(MeshState * state, recorder_.CheckPlace(placement));
  Ref<Data> data = MakeRef<Data>(placement, std::move(shards));
  for (const size_t i : others) data->HoldShard(i);
  tensor = recorder_.NewTensor({state, nullptr}, Recorder::NewLeaf(type, std::move(data)), location);
  return tensor;
}

absl::Status CheckShape(std::string_view what, DType dtype, std::span<const int64_t> dims) {
  if (!IsKnown(static_cast<uint32_t>(dtype))) return UserError(what, ": unknown dtype");
  if (dims.size() > kMaxRank) return UserError(what, ": rank ", dims.size(), "; at most ", kMaxRank, " is supported");
  const std::optional<int64_t> count = CheckedCount(dims);
  if (!count.has_value() || *count > (int64_t{1} << 59)) {
    return UserError(what, ": shape ", DimsToString(dims), " has a negative or too large dimension");
  }
  return absl::OkStatus();
}

void CountUpload(Metrics& metrics, const Shards& shards, PartScope* part) {
  const int64_t now = MonotonicNow();
  part->End(now);
  int64_t sent = 0;
  for (const Ref<Buffer>& shard : shards) sent += shard->bytes();
  metrics.Add(Counter::kBytesToDevice, sent);
  metrics.Add(Sample::kUpload, now - part->start(), now);
  metrics.Add(Sample::kUploadBytes, sent, now);
}

absl::StatusOr<Ref<Tensor>> Engine::FromHost(const Where& where, DType dtype, std::span<const int64_t> dims,
                                             std::span<const std::byte> bytes, ir::Location location,
                                             std::string_view spec) {
  WEFT_RETURN_IF_ERROR(CheckShape("tensor from host memory", dtype, dims));
  const int64_t wanted = CountOf(dims) * BytesOf(dtype);
  if (static_cast<int64_t>(bytes.size()) != wanted) {
    return UserError("tensor from host memory: ", NameOf(dtype), DimsToString(dims), " has ", wanted, " bytes, ",
                     bytes.size(), " were given");
  }
  const ir::Type type = ir::Type::Tensor(dtype, Dims(dims.begin(), dims.end()));
  Ref<Tensor> literal;
  std::optional<Placement> placement;
  {
    Lock lock(recorder_, Lock::To::kNote);
    WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.CheckWhere(where));
    WEFT_ASSIGN_OR_RETURN(placement, PlacementOf(place.state->mesh, spec, type));
    if (place.frame != nullptr) {
      HostTensor value(dtype, Dims(dims.begin(), dims.end()));
      std::ranges::copy(bytes, value.mutable_bytes().begin());
      literal = NewLiteral(place, std::move(value), location);
    }
  }
  if (literal) return literal;
  PartScope part(*metrics_, Part::kCopying);
  WEFT_ASSIGN_OR_RETURN(Shards shards, Upload(*placement, dtype, dims, bytes));
  CountUpload(*metrics_, shards, &part);
  return NewBufferTensor(*placement, type, std::move(shards), location);
}

absl::StatusOr<Ref<Tensor>> Engine::Adopt(const Where& where, DType dtype, std::span<const int64_t> dims, void* data,
                                          std::function<void()> release, ir::Location location) {
  std::optional<Placement> placement;
  {
    absl::Status status = CheckShape("adopted tensor", dtype, dims);
    if (status.ok()) status = Recorder::CheckProgram(where.frame, "memory of somebody else's");
    if (status.ok()) {
      Lock lock(recorder_, Lock::To::kNote);
      const absl::StatusOr<Place> place = recorder_.CheckWhere(where);
      status = place.status();
      if (place.ok()) placement = place->state->whole();
    }
    if (!status.ok()) {
      if (release) release();
      return status;
    }
  }
  const std::span<Device* const> holders = placement->mesh().holders();
  if (options_.held.Of(dtype) != dtype || holders.size() > 1) {
    const std::span bytes(static_cast<const std::byte*>(data), static_cast<size_t>(CountOf(dims) * BytesOf(dtype)));
    absl::StatusOr<Ref<Tensor>> copy = FromHost(where, dtype, dims, bytes, location);
    if (release) release();
    return copy;
  }
  WEFT_ASSIGN_OR_RETURN(Ref<Buffer> buffer,
                        holders[0]->backend->Adopt(holders[0], dtype, dims, data, services_.Later(std::move(release))));
  // The memory is somebody else's: held for good, so that no launch writes into it.
  buffer->Hold();
  const ir::Type type = ir::Type::Tensor(dtype, Dims(dims.begin(), dims.end()));
  return NewBufferTensor(*placement, type, Shards{std::move(buffer)}, location);
}

// A number of the launch is what the device would hold, too.
HostTensor Engine::Rounded(const HostTensor& value) const {
  const DType dtype = value.dtype(), held = options_.held.Of(dtype);
  HostTensor stored(held, value.dims()), result = value;
  if (held == dtype) return result;
  ConvertHeld(dtype, value.bytes(), held, stored.mutable_bytes());
  ConvertHeld(held, stored.bytes(), dtype, result.mutable_bytes());
  return result;
}

Ref<Tensor> Engine::ScalarAt(const Place& place, const HostTensor& value, bool constant, ir::Location location) {
  // Argument words hold numbers of at most 64 bits.
  if (constant || place.frame != nullptr || IsComplex(value.dtype())) return NewLiteral(place, value, location);
  const auto words = options_.held.any() ? WordsOf(Rounded(value)) : WordsOf(value);
  return recorder_.NewTensor(
      place, Recorder::NewLeaf(ir::Type::Scalar(value.dtype()), MakeRef<Data>(std::span<const uint32_t>(words))),
      location);
}

absl::StatusOr<Ref<Tensor>> Engine::NewScalar(const Where& where, const HostTensor& value, ir::Location location) {
  Ref<Tensor> tensor;
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.CheckWhere(where));
  tensor = ScalarAt(place, value, false, location);
  return tensor;
}

absl::StatusOr<Ref<Tensor>> Engine::Scalar(const Where& where, DType dtype, double value, ir::Location location) {
  WEFT_RETURN_IF_ERROR(CheckShape("scalar", dtype, {}));
  const FloatScope floats;
  HostTensor host(dtype, {});
  host.SetDouble(0, value);
  return NewScalar(where, host, location);
}

absl::StatusOr<Ref<Tensor>> Engine::ScalarInt(const Where& where, DType dtype, int64_t value, ir::Location location) {
  WEFT_RETURN_IF_ERROR(CheckShape("scalar", dtype, {}));
  HostTensor host(dtype, {});
  host.SetInt(0, value);
  return NewScalar(where, host, location);
}

absl::StatusOr<Ref<Tensor>> Engine::ScalarLike(const Tensor& like, const HostTensor& value, bool constant,
                                               ir::Location location) {
  Ref<Tensor> tensor;
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_RETURN_IF_ERROR(recorder_.CheckTensor(&like, "like"));
  WEFT_ASSIGN_OR_RETURN(MeshState * state, recorder_.CheckPlace(like.sharding()));
  tensor = ScalarAt({state, like.frame()}, value, constant, location);
  return tensor;
}

bool Engine::AdoptByScope(absl::FunctionRef<Tensor*()> find) {
  Lock lock(recorder_, Lock::To::kNote);
  Tensor* tensor = find();
  if (tensor != nullptr) tensor->state.scoped = true;
  return tensor != nullptr;
}

void Engine::Locked(absl::FunctionRef<void()> use) {
  Lock lock(recorder_, Lock::To::kNote);
  for (MeshState& state : recorder_.meshes()) state.Land();
  use();
}

void Engine::Keep(Tensor* tensor) {
  Lock lock(recorder_, Lock::To::kNote);
  tensor->state.scoped = false;
}

void Engine::PutBackEnded() {
  try {
    evaluator_.PutBackEnded();
  } catch (const std::bad_alloc&) {
    // Then the next barrier puts back, and says so.
  }
}

// --- Recording -----------------------------------------------------------------------------------------------------------

absl::Status Engine::Finish(Lock& lock, const Place& place, const ir::Builder& b, const void* what,
                            std::span<const ir::Value> results) {
  recorder_.Count(place, b, what, results, lazy());
  if (lazy() || place.frame != nullptr) return absl::OkStatus();
  const bool many = what == &Recorder::kGradientTag || what == &Recorder::kUpdateTag;
  if (options_.mode != Mode::kDebug || !many) return evaluator_.Compute(lock, *place.state, results, CutReason::kEager);
  // Debug mode looks at each operation that a gradient or an update is made of. Their positions are those of the operations that
  // they are the gradients of.
  const auto known = [](const ir::Node& node) { return AllKnown(node); };
  for (const ir::Node* node : ir::Reachable(results, known)) {
    if (AllKnown(*node)) continue;  // others may have had the lock, too
    const ir::Values operands(node->operands().begin(), node->operands().end());
    ir::Values made;
    for (uint32_t i = 0; i < node->results().size(); ++i) made.push_back({Ref<const ir::Node>::Share(node), i});
    const std::span<const ir::Value> all(made.data(), made.size());
    WEFT_RETURN_IF_ERROR(evaluator_.Compute(lock, *place.state, all, CutReason::kEager));
    if (&node->op() == &ops::kOp_constant) continue;  // a NaN is meant
    const absl::Status status = evaluator_.inspector().CheckInside(lock, *place.state, *node, operands, all);
    if (status.ok()) continue;
    const std::string_view where = what == &Recorder::kGradientTag ? ", in a gradient" : ", in a step of an optimizer";
    return WithPosition(Within(status, where), node->location());
  }
  return absl::OkStatus();
}

absl::Status Engine::Record(const ir::OpDef& op, std::span<Tensor* const> operands, ir::Attrs attrs,
                            ir::Location location, Tensors* results, const Where& where, ir::RegionSpan regions) {
  const auto found = [] { return absl::OkStatus(); };
  return Record(op, operands, found, std::move(attrs), location, results, where, regions);
}

absl::StatusOr<Ref<Frame>> Engine::BeginFunction(const Where& where, std::string name, std::span<const ir::Type> inputs,
                                                 Tensors* parameters, ir::Location location) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string what = absl::StrCat("input ", i, " of the function @", name);
    if (!inputs[i].is_tensor()) return UserError(what, " is ", ir::ShortType(inputs[i]), "; a tensor is needed");
    WEFT_RETURN_IF_ERROR(CheckShape(what, inputs[i].dtype, inputs[i].dims));
  }
  Tensors made;
  Ref<Frame> frame;
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_ASSIGN_OR_RETURN(frame, recorder_.Begin(where, std::move(name), inputs, location, &made));
  *parameters = std::move(made);
  return frame;
}

absl::StatusOr<Recorder::Finished> Engine::FinishFunction(Frame& frame, std::span<Tensor* const> outputs) {
  Lock lock(recorder_, Lock::To::kNote);
  recorder_.MustShowOutside(outputs);
  return recorder_.Finish(frame, outputs);
}

void Engine::AbandonFunction(Frame& frame) {
  Lock lock(recorder_, Lock::To::kNote);
  recorder_.Abandon(frame);
}

absl::Status Engine::SetRequiresGrad(Tensor* tensor, bool on) {
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_RETURN_IF_ERROR(recorder_.CheckTensor(tensor, "the tensor"));
  if (tensor->frame() == nullptr) recorder_.MustShow(*tensor, Replay::Miss::kGradientWanted);
  return recorder_.SetRequiresGrad(*tensor, on);
}

bool Engine::requires_grad(const Tensor* tensor) const {
  Lock lock(recorder_, Lock::To::kNote);
  return tensor->state.requires_grad;
}

// --- Evaluation ----------------------------------------------------------------------------------------------------------

absl::StatusOr<Ref<Event>> Engine::Sync(const Where& where, ir::Location at) {
  WEFT_RETURN_IF_ERROR(Recorder::CheckProgram(where.frame, "a barrier"));
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_ASSIGN_OR_RETURN(const Place only, recorder_.CheckWhere(where));
  recorder_.CountBarrier();
  std::vector<Ref<Event>> events;
  for (MeshState& state : recorder_.meshes()) {
    if (where.names() && &state != only.state) continue;
    WEFT_RETURN_IF_ERROR(evaluator_.Barrier(lock, state, at));
    if (state.last_event()) events.push_back(state.last_event());
  }
  return Event::All(events);
}

absl::StatusOr<std::vector<ValuesAt>> Engine::ValuesOf(std::span<Tensor* const> tensors, std::string_view what) {
  for (Tensor* tensor : tensors) WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(tensor, what));
  std::vector<ValuesAt> values;
  for (MeshState& state : recorder_.meshes()) {
    std::vector<ir::Value> here;
    for (Tensor* tensor : tensors) {
      if (&tensor->sharding().mesh() == &state.mesh) here.push_back(tensor->value());
    }
    if (!here.empty()) values.push_back({&state, std::move(here)});
  }
  return values;
}

absl::StatusOr<Ref<Event>> Engine::Eval(std::span<Tensor* const> tensors) {
  Lock lock(recorder_, Lock::To::kChange, Replay::Miss::kEvaluated);
  // Gone before the lock: somebody else's assignment may have left the last reference here, and nodes die under it.
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValuesAt> all, ValuesOf(tensors, "eval: a tensor"));
  std::vector<Ref<Event>> events;
  for (const auto& [state, values] : all) {
    WEFT_RETURN_IF_ERROR(recorder_.CheckOpen());
    const uint64_t launches = state->launches;
    WEFT_RETURN_IF_ERROR(evaluator_.Know(lock, *state, values, CutReason::kEval));
    if (state->launches != launches) {
      events.push_back(state->last_event());
      continue;
    }
    // Known before: the device's last launch may be another one's, and may have failed.
    for (const ir::Value& value : values) {
      const Data* const data = DataOf(value);
      if (data == nullptr || data->word_count > 0) continue;
      for (const Ref<Buffer>& shard : data->shards()) events.push_back(shard->ready_event());
    }
  }
  return Event::All(events);
}

absl::StatusOr<Ref<Event>> Engine::Compiled(std::span<const Ref<Evaluator::Job>> jobs, bool wait) {
  std::vector<Ref<Event>> outcomes;
  for (const Ref<Evaluator::Job>& job : jobs) {
    if (wait) {
      WEFT_RETURN_IF_ERROR(evaluator_.WaitFor(*job));
      WEFT_RETURN_IF_ERROR(job->result().status());
      continue;
    }
    Ref<Event> outcome = MakeRef<Event>();
    job->done()->OnDone([job, outcome](const absl::Status&) { outcome->Complete(job->result().status()); });
    outcomes.push_back(std::move(outcome));
  }
  return Event::All(outcomes);
}

absl::StatusOr<Ref<Event>> Engine::CompileSync(const Where& where, bool wait) {
  WEFT_RETURN_IF_ERROR(Recorder::CheckProgram(where.frame, "compiling"));
  std::vector<Ref<Evaluator::Job>> jobs;
  {
    Lock lock(recorder_, Lock::To::kChange, Replay::Miss::kCompiled);
    WEFT_ASSIGN_OR_RETURN(const Place only, recorder_.CheckWhere(where));
    for (MeshState& state : recorder_.meshes()) {
      if (where.names() && &state != only.state) continue;
      WEFT_ASSIGN_OR_RETURN(Ref<Evaluator::Job> job, evaluator_.CompileBarrier(lock, state));
      if (job) jobs.push_back(std::move(job));
    }
  }
  return Compiled(jobs, wait);
}

absl::StatusOr<Ref<Event>> Engine::CompileEval(std::span<Tensor* const> tensors, bool wait) {
  std::vector<Ref<Evaluator::Job>> jobs;
  {
    Lock lock(recorder_, Lock::To::kChange, Replay::Miss::kCompiled);
    WEFT_ASSIGN_OR_RETURN(const std::vector<ValuesAt> all, ValuesOf(tensors, "compile: a tensor"));
    for (const auto& [state, values] : all) {
      WEFT_RETURN_IF_ERROR(recorder_.CheckOpen());
      WEFT_ASSIGN_OR_RETURN(Ref<Evaluator::Job> job, evaluator_.CompileThese(lock, *state, values));
      if (job) jobs.push_back(std::move(job));
    }
  }
  return Compiled(jobs, wait);
}

absl::Status Engine::Wait(const Where& where, int64_t timeout_ns) {
  WEFT_RETURN_IF_ERROR(Recorder::CheckProgram(where.frame, "waiting"));
  std::vector<Ref<Event>> events;
  {
    Lock lock(recorder_, Lock::To::kNote);
    for (const MeshState& state : recorder_.meshes()) {
      const bool asked =
          !where.names() || &state.mesh == where.mesh || std::ranges::count(state.mesh.devices(), where.device) > 0;
      if (asked && state.last_event()) events.push_back(state.last_event());
    }
  }
  const PartScope part(*metrics_, Part::kResults);
  const absl::Status status = Event::All(events)->Wait(timeout_ns);
  status.ok() ? Locked([] {}) : Told();  // what launches needed that have gone through goes now
  services_.RunReleases();
  return status;
}

void Engine::Told() {
  Lock lock(recorder_, Lock::To::kNote);
  for (MeshState& state : recorder_.meshes()) state.Told();
}

// --- State, text, statistics ---------------------------------------------------------------------------------------------

GeneratorState Engine::generator() const {
  Lock lock(recorder_, Lock::To::kNote);
  return recorder_.generator;
}

void Engine::set_generator(const GeneratorState& state) {
  Lock lock(recorder_, Lock::To::kNote);  // states are arguments
  recorder_.generator = state;
}

}  // namespace weft::lazy
