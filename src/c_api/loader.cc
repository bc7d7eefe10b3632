// weft_loader_*: batches as tensors, read ahead.
#include "src/data/loader.h"

#include <string>
#include <utility>
#include <vector>

#include "src/c_api/callbacks.h"
#include "src/c_api/data_objects.h"
#include "src/c_api/job_object.h"
#include "src/c_api/options.h"
#include "src/c_api/tree_object.h"
#include "weft.h"

namespace weft::c_api {
namespace {

// A batch on a device: a tensor a field, and the mask where tails are padded.
using Tensors = std::vector<Ref<lazy::Tensor>>;

// The place that batches go to.
struct Target {
  Ref<lazy::Engine> engine;
  lazy::Where where;
  std::string axis;  // of a mesh; empty: each device gets all
  ir::Location location;
  bool masked = false;
};

// "data,-,-": the first dimension is cut, the others are whole.
std::string SpecOf(const Target& target, size_t rank) {
  if (target.where.mesh == nullptr) return "";
  std::string spec = target.axis.empty() ? "-" : target.axis;
  for (size_t i = 1; i < rank; ++i) spec += ",-";
  return spec;
}

// On one device the memory that was read into is the tensor's, where the device reads host memory in place; when the
// tensor is gone, the next batch is read into it.
absl::StatusOr<Ref<lazy::Tensor>> ToDevice(const Target& target, DType dtype, const Dims& dims, data::Block block) {
  if (target.where.mesh == nullptr) {
    std::byte* const bytes = block.get();
    return target.engine->Adopt(
        target.where, dtype, dims, bytes, [block = std::move(block)]() mutable { block.reset(); }, target.location);
  }
  const std::span<const std::byte> bytes(block.get(), static_cast<size_t>(CountOf(dims) * BytesOf(dtype)));
  return target.engine->FromHost(target.where, dtype, dims, bytes, target.location, SpecOf(target, dims.size()));
}

absl::StatusOr<std::shared_ptr<void>> ToTensors(const Target& target, const std::vector<data::Field>& fields,
                                                data::HostBatch batch) {
  auto tensors = std::make_shared<Tensors>();
  const auto rows = static_cast<int64_t>(batch.batch.items.size());
  for (size_t f = 0; f < fields.size(); ++f) {
    Dims dims = {rows};
    dims.insert(dims.end(), fields[f].dims.begin(), fields[f].dims.end());
    WEFT_ASSIGN_OR_RETURN(tensors->emplace_back(), ToDevice(target, fields[f].dtype, dims, std::move(batch.blocks[f])));
  }
  if (target.masked) {
    std::vector<std::byte> mask(static_cast<size_t>(rows));
    std::fill_n(mask.begin(), batch.batch.kept, std::byte{1});
    WEFT_ASSIGN_OR_RETURN(tensors->emplace_back(), target.engine->FromHost(target.where, DType::kBool, {{rows}}, mask,
                                                                           target.location, SpecOf(target, 1)));
  }
  return tensors;
}

class LoaderObject final : public RefCounted {
 public:
  LoaderObject(weft_context* context, Target target, std::unique_ptr<data::Loader> loader,
               int64_t batches_per_execution, Ref<JobObject> job)
      : context(context),
        target(std::move(target)),
        loader(std::move(loader)),
        batches_per_execution(batches_per_execution),
        job(std::move(job)) {}
  // The threads are not here in the child of a fork, and may have left a lock behind.
  ~LoaderObject() override {
    if (target.engine->services().fork().Forked()) (void)loader.release();
  }

  weft_context* const context;  // a name, not a reference: the context may go first
  const Target target;
  std::unique_ptr<data::Loader> loader;
  const int64_t batches_per_execution;
  std::atomic<int64_t> since_execution{0};
  const Ref<JobObject> job;               // null: nobody else reads
  std::atomic<int64_t> agreed_epoch{-1};  // in which all processes of the job are known to read the same
};

}  // namespace

template <>
struct HandleTraits<weft_loader> {
  using Object = LoaderObject;
  static constexpr HandleType kType = HandleType::kLoader;
  static const ForkGuard* ForkOf(const LoaderObject& object) { return &object.target.engine->services().fork(); }
};

namespace {

constexpr int64_t kMostTimeoutMs = int64_t{1} << 40;  // 34 years

absl::StatusOr<weft_loader_options> ReadLoaderOptions(const weft_loader_options* options) {
  weft_loader_options read = WEFT_LOADER_OPTIONS_INIT;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof read, "weft_loader_options", &read));
  if (read.timeout_ms < 0 || read.timeout_ms > kMostTimeoutMs) {
    return UserError("timeout_ms is ", read.timeout_ms, "; it is from 0 (300,000) to ", kMostTimeoutMs);
  }
  if (read.batches_per_execution < 0) {
    return UserError("batches_per_execution is ", read.batches_per_execution, "; it is 0 (no barriers) or a count");
  }
  return read;
}

absl::StatusOr<Target> TargetOf(const Context& context, const weft_loader_options& options,
                                const data::Dataset& dataset, const data::Sampler& sampler) {
  lazy::Engine& engine = context.engine();
  Target target = {
      .engine = Ref<lazy::Engine>::Share(&engine), .where = {}, .axis = {}, .location = CurrentLocation(engine)};
  target.masked = sampler.spec().tail == data::Tail::kPad;
  WEFT_ASSIGN_OR_RETURN(const std::string_view axis,
                        OptionalText(options.axis, static_cast<size_t>(options.axis_length), "axis"));
  if (options.mesh == nullptr) {
    if (!axis.empty()) return UserError("axis is '", axis, "', and there is no mesh that has it");
    WEFT_ASSIGN_OR_RETURN(Device* const device, DeviceOr(options.device, engine));
    target.where = lazy::Where(device);
    return target;
  }
  if (options.device != nullptr) return UserError("device and mesh are both given; a batch goes to one of them");
  WEFT_ASSIGN_OR_RETURN(const Pin<MeshObject> mesh, Get(options.mesh, "mesh"));
  if (mesh->engine.get() != &engine) return UserError(mesh->mesh->name(), " belongs to another context");
  target.where = lazy::Where(mesh->mesh);
  target.axis = std::string(axis);
  for (const data::Field& field : dataset.fields()) {
    Dims dims = {sampler.spec().batch};
    dims.insert(dims.end(), field.dims.begin(), field.dims.end());
    const ir::Type type = ir::Type::Tensor(field.dtype, dims);
    WEFT_RETURN_IF_ERROR(lazy::ShardingOf(*mesh->mesh, SpecOf(target, dims.size()), type).status());
  }
  return target;
}

absl::Status Create(weft_context* ctx, weft_dataset* dataset, weft_sampler* sampler, const weft_loader_options* options,
                    weft_loader** out) {
  WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(context->Usable());
  if (context->frame() != nullptr) return UserError("ctx records the body of a function; loaders are for the program");
  WEFT_ASSIGN_OR_RETURN(const Pin<data::Dataset> from, Get(dataset, "dataset"));
  WEFT_ASSIGN_OR_RETURN(const Pin<data::Sampler> order, Get(sampler, "sampler"));
  WEFT_ASSIGN_OR_RETURN(const weft_loader_options read, ReadLoaderOptions(options));
  WEFT_ASSIGN_OR_RETURN(Target target, TargetOf(*context, read, *from, *order));
  Ref<JobObject> job;
  if (read.job != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const Pin<JobObject> found, Get(read.job, "job"));
    const distributed::JobPlace& own = found->job->place();
    if (order->spec().rank != own.rank || order->spec().ranks != own.size) {
      return UserError("the sampler is of rank ", order->spec().rank, " of ", order->spec().ranks,
                       ", the job's rank is ", own.rank, " of ", own.size);
    }
    job = found.Share();
  }
  data::LoaderOptions how;
  if (read.depth != 0) how.depth = read.depth;
  if (read.timeout_ms != 0) how.timeout_ms = read.timeout_ms;
  how.threads = read.threads;
  data::Finish finish = [target, fields = from->fields()](data::HostBatch batch) {
    return ToTensors(target, fields, std::move(batch));
  };
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<data::Loader> loader,
      data::Loader::Create(from.Share(), order.Share(), how, std::move(finish), &context->engine().metrics()));
  WEFT_ASSIGN_OR_RETURN(*out, Make<weft_loader>(MakeRef<LoaderObject>(ctx, std::move(target), std::move(loader),
                                                                      read.batches_per_execution, std::move(job))));
  return absl::OkStatus();
}

// The numbers that processes which share data must have in common.
struct Stand {
  int64_t batches, batch, items, epoch, position, seed;

  std::string Text() const {
    return absl::StrCat(batches, " batches of ", batch, " of ", items, " items in epoch ", epoch, " from position ",
                        position, " (seed ", static_cast<uint64_t>(seed), ")");
  }
  friend bool operator==(const Stand&, const Stand&) = default;
};

// Compares where all processes of the loader's job stand, at the beginning of an epoch: differences would be a hang at its end. Recorded
// calls of the job run before this one, so that all processes have them in one order.
absl::Status Agree(LoaderObject& object, Context& context) {
  if (object.job == nullptr) return absl::OkStatus();
  const data::Place place = object.loader->place();
  if (object.agreed_epoch == place.epoch) return absl::OkStatus();
  lazy::Services& services = context.engine().services();
  WEFT_ASSIGN_OR_RETURN(const Ref<Event> event,
                        context.engine().Sync(object.target.where, CurrentLocation(context.engine())));
  WEFT_RETURN_IF_ERROR(services.WaitFor(*event));
  const data::Sampler& sampler = object.loader->sampler();
  const Stand own = {
      sampler.BatchesFrom(place.position), sampler.spec().batch, sampler.length(), place.epoch, place.position,
      static_cast<int64_t>(place.seed)};
  std::vector<Stand> all(static_cast<size_t>(object.job->job->place().size));
  distributed::Collective call = {.kind = distributed::CollectiveKind::kAllGather, .dtype = DType::kI64};
  call.count = sizeof own / sizeof(int64_t);
  call.input = &own;
  call.output = all.data();
  call.where = "the beginning of a loader's epoch";
  WEFT_RETURN_IF_ERROR(
      WaitUnder(&context.engine(), object.job->PatienceFrom(MonotonicNow()),
                [&](const distributed::Patience& patience) { return object.job->job->Run(call, patience); }));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "rank ", rank, " would read ", all[rank].Text(),
                       ", rank 0 ", all[0].Text());
  }
  object.agreed_epoch = place.epoch;
  return absl::OkStatus();
}

// The barrier before every so many batches.
absl::Status MayExecute(LoaderObject& object, Context& context) {
  if (object.batches_per_execution == 0) return absl::OkStatus();
  if (object.since_execution < object.batches_per_execution) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Ref<Event> event, context.WithPressure(0, [&] {
    return context.engine().Sync(object.target.where, CurrentLocation(context.engine()));
  }));
  object.since_execution = 0;
  return context.AfterBarrier(*event);
}

absl::Status Next(weft_loader* loader, weft_tensor** outputs, size_t capacity, size_t* out_count) {
  WEFT_ASSIGN_OR_RETURN(const Pin<LoaderObject> object, Get(loader, "loader"));
  WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, Get(object->context, "the loader's context"));
  WEFT_RETURN_IF_ERROR(context->BeforeWork());
  const size_t wanted = object->loader->dataset().fields().size() + (object->target.masked ? 1 : 0);
  if (capacity < wanted) {
    return UserErrorOf(absl::StatusCode::kOutOfRange, "a batch has ", wanted, " tensors; capacity is ", capacity);
  }
  WEFT_NOT_NULL(outputs);
  WEFT_RETURN_IF_ERROR(Agree(*object, *context));
  WEFT_RETURN_IF_ERROR(MayExecute(*object, *context));
  lazy::Services& services = context->engine().services();
  const uint32_t before = services.cancels();
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<void> made,
                        object->loader->Next([&] { return services.Interrupted(before); }));
  if (made == nullptr) {
    *out_count = 0;
    return absl::OkStatus();
  }
  ++object->since_execution;
  const auto& tensors = *static_cast<const Tensors*>(made.get());
  WEFT_RETURN_IF_ERROR(GiveTensors(tensors, outputs));
  *out_count = tensors.size();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> NumberAt(const TensorTree& tree, Tree::NodeId node, std::string_view key) {
  const Tree::NodeId found = tree.tree.Find(tree.tree.Resolve(node), key);
  if (found == Tree::kNoNode) return UserErrorOf(absl::StatusCode::kNotFound, "loader state has no '", key, "'");
  const Tree::Node& value = tree.tree.node(tree.tree.Resolve(found));
  if (value.kind != Tree::Kind::kInt64) {
    return UserError("the state's '", key, "' is ", Tree::NameOf(value.kind), "; it must be an integer");
  }
  return value.int64;
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_loader_create(weft_context* ctx, weft_dataset* dataset, weft_sampler* sampler,
                               const weft_loader_options* options, weft_loader** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    return Create(ctx, dataset, sampler, options, out);
  });
}

weft_error* weft_loader_next(weft_loader* loader, weft_tensor** outputs, size_t capacity, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    return Next(loader, outputs, capacity, out_count);
  });
}

weft_error* weft_loader_state(weft_loader* loader, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(const Pin<LoaderObject> object, Get(loader, "loader"));
    const data::Place place = object->loader->place();
    TensorTree tree;
    const auto add = [&](std::string_view key, int64_t value) {
      return tree.tree.Add(Tree::root(), key, Tree::Int64(value)).status();
    };
    WEFT_RETURN_IF_ERROR(add("seed", static_cast<int64_t>(place.seed)));
    WEFT_RETURN_IF_ERROR(add("epoch", place.epoch));
    WEFT_RETURN_IF_ERROR(add("position", place.position));
    WEFT_RETURN_IF_ERROR(add("items", object->loader->sampler().length()));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(MakeRef<TreeObject>(std::move(tree))));
    return absl::OkStatus();
  });
}

weft_error* weft_loader_load(weft_loader* loader, weft_tree* tree, uint32_t node) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Pin<LoaderObject> object, Get(loader, "loader"));
    WEFT_ASSIGN_OR_RETURN(const Pin<TreeObject> state, Get(tree, "tree"));
    WEFT_ASSIGN_OR_RETURN(const TensorTree from, state->Copy());
    WEFT_RETURN_IF_ERROR(from.Node(node).status());
    data::Place place;
    WEFT_ASSIGN_OR_RETURN(const int64_t seed, NumberAt(from, node, "seed"));
    WEFT_ASSIGN_OR_RETURN(place.epoch, NumberAt(from, node, "epoch"));
    WEFT_ASSIGN_OR_RETURN(place.position, NumberAt(from, node, "position"));
    WEFT_ASSIGN_OR_RETURN(const int64_t items, NumberAt(from, node, "items"));
    place.seed = static_cast<uint64_t>(seed);
    const int64_t length = object->loader->sampler().length();
    if (items != length) return UserError("the state is of epochs of ", items, " items; this loader's have ", length);
    object->agreed_epoch = -1;
    return object->loader->MoveTo(place);
  });
}

void weft_loader_retain(weft_loader* loader) noexcept { RetainHandle(loader, HandleType::kLoader); }
void weft_loader_release(weft_loader* loader) noexcept { ReleaseHandle(loader, HandleType::kLoader); }

}  // extern "C"
