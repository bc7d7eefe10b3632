// weft_mesh_*, weft_shard, and how tensors lie on meshes.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "src/backends/backend.h"
#include "src/c_api/context.h"
#include "src/c_api/picture.h"
#include "src/ops/collective/processes.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/reducer.h"
#include "src/ops/registry.h"
#include "weft.h"

namespace weft::c_api {

absl::StatusOr<const lazy::DeviceMesh*> MeshOf(const Context& context, std::span<lazy::Tensor* const> operands,
                                               std::string_view function) {
  const lazy::DeviceMesh* mesh = nullptr;
  for (const lazy::Tensor* operand : operands) {
    if (operand != nullptr && mesh == nullptr) mesh = &operand->sharding().mesh();
  }
  if (mesh == nullptr && context.frame() != nullptr) mesh = &context.frame()->place.mesh;
  if (mesh == nullptr) mesh = context.engine().mesh();
  if (mesh == nullptr) mesh = &context.engine().whole_device();
  if (mesh->alone()) return UserError(function, " is for a mesh; this is recorded on ", mesh->name(), " alone");
  return mesh;
}

absl::StatusOr<std::string_view> OptionalText(const char* text, size_t length, std::string_view parameter) {
  return text == nullptr && length == 0 ? absl::StatusOr<std::string_view>("") : Text(text, length, parameter);
}

absl::StatusOr<Ref<lazy::Tensor>> CopyElements(lazy::Tensor& tensor, lazy::Engine& to, const lazy::Where& where,
                                               std::string_view spec) {
  const ir::Location at = CurrentLocation(to);
  WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> copy, to.CopyOver(&tensor, where, spec, at));
  if (copy) return copy;
  HostTensor bytes(tensor.dtype(), tensor.dims());
  WEFT_RETURN_IF_ERROR(tensor.engine().ToHost(&tensor, bytes.mutable_bytes()));
  return to.FromHost(where, tensor.dtype(), tensor.dims(), bytes.bytes(), at, spec);
}

namespace {

absl::StatusOr<std::vector<Device*>> DevicesOf(weft_device* const* devices, size_t count, lazy::Engine& engine) {
  std::vector<Device*> found;
  if (devices == nullptr) {
    return count == 0 ? absl::StatusOr<std::vector<Device*>>(found)
                      : UserError("devices is NULL and device_count ", count);
  }
  WEFT_RETURN_IF_ERROR(CheckedLength("devices", count, kMostEntries));
  for (size_t i = 0; i < count; ++i) {
    if (devices[i] == nullptr) return UserError("devices[", i, "] is NULL");
    WEFT_ASSIGN_OR_RETURN(found.emplace_back(), DeviceOr(devices[i], engine));
  }
  return found;
}

// The coordinates of a device among those of its machine, the slowest first; empty where its backend does not tell.
std::vector<int64_t> CoordinatesOf(Device& device) {
  constexpr std::string_view kName = "\"coords\": [";
  const std::string all = device.backend->attributes(&device);
  const size_t at = all.find(kName);
  std::vector<int64_t> coordinates;
  if (at == all.npos) return coordinates;
  const std::string_view list = std::string_view(all).substr(at + kName.size());
  for (const std::string_view number : absl::StrSplit(list.substr(0, list.find(']')), ',')) {
    if (!absl::SimpleAtoi(number, &coordinates.emplace_back())) return {};
  }
  std::ranges::reverse(coordinates);
  return coordinates;
}

// The context's first devices, as many as the mesh has, in the order of their coordinates.
absl::StatusOr<std::vector<Device*>> FirstOf(const ir::Mesh& mesh, const lazy::Engine& engine) {
  const std::span<Device* const> all = engine.devices();
  if (mesh.size() > static_cast<int64_t>(all.size())) {
    return UserErrorOf(absl::StatusCode::kNotFound, "the mesh is of ", mesh.size(), " devices; the context has ",
                       all.size(), " (option devices on the platforms cpu and reference)");
  }
  std::vector<std::pair<std::vector<int64_t>, Device*>> first;
  for (Device* device : all.first(static_cast<size_t>(mesh.size()))) first.emplace_back(CoordinatesOf(*device), device);
  std::ranges::stable_sort(first, {}, &std::pair<std::vector<int64_t>, Device*>::first);
  std::vector<Device*> devices;
  for (const auto& [coordinates, device] : first) devices.push_back(device);
  return devices;
}

absl::Status MakeMesh(const Ref<lazy::Engine>& engine, const lazy::DeviceMesh* mesh, weft_mesh** out) {
  WEFT_ASSIGN_OR_RETURN(*out, Make<weft_mesh>(MakeRef<MeshObject>(engine, mesh)));
  return absl::OkStatus();
}

absl::StatusOr<Ref<lazy::Tensor>> Shard(lazy::Tensor& tensor, std::string_view spec, lazy::Frame* frame) {
  WEFT_RETURN_IF_ERROR(ShardingOf(tensor.sharding().mesh(), spec, tensor.type()).status());
  lazy::Engine& engine = tensor.engine();
  ir::Attrs attrs;
  attrs.set(ops::ShardAttrs::kSpec, std::string(spec));
  lazy::Tensor* const operand = &tensor;
  lazy::Tensors results;
  WEFT_RETURN_IF_ERROR(engine.Record(ops::kOp_shard, {&operand, 1}, std::move(attrs), CurrentLocation(engine), &results,
                                     {nullptr, frame}));
  return std::move(results[0]);
}

// A word for each dimension, all whole.
std::string WholeWords(size_t rank) {
  std::string words;
  for (size_t d = 0; d < rank; ++d) words += d == 0 ? "-" : ",-";
  return words;
}

absl::StatusOr<std::string_view> SpecOf(const char* spec, size_t length) { return OptionalText(spec, length, "spec"); }

// The value that has such a part on each device.
absl::StatusOr<ir::Type> WholeOf(const lazy::DeviceMesh& mesh, std::string_view spec, const ir::Type& part) {
  WEFT_RETURN_IF_ERROR(ir::ShardingWords(spec, part.rank()).status());
  WEFT_ASSIGN_OR_RETURN(const ir::Sharding sharding, ir::ParseSharding(spec, mesh.axes()));
  ir::Type whole = part;
  for (size_t d = 0; d < sharding.dimensions.size(); ++d) {
    for (const uint32_t axis : sharding.dimensions[d].axes) whole.dims[d] *= mesh.axes().axes[axis].size;
  }
  if (!CheckedCount(whole.dims).has_value()) return UserError("the value has too many elements");
  return whole;
}

// Devices that have the i-th part: of holders that stand for others, all of those.
absl::StatusOr<ShardPart> PartOf(const lazy::Engine::Lying& lying, const Dims& dims, size_t i) {
  const lazy::DeviceMesh& mesh = lying.placement.mesh();
  if (i >= mesh.devices().size()) {
    return UserErrorOf(absl::StatusCode::kOutOfRange, "part ", i, " of a value that has ", mesh.devices().size());
  }
  return ShardPart{mesh.devices()[i], lying.placement.BoxOf(dims, i)};
}

// --- Collectives ----------------------------------------------------------------------------------------------------------

// A collective of a body: its operand, its mesh, and the axes along which devices work together.
struct CollectiveCall {
  Pin<Context> context;
  Pin<lazy::Tensor> x;
  const lazy::DeviceMesh* mesh = nullptr;
  std::vector<uint32_t> axes;
};

absl::StatusOr<std::vector<uint32_t>> AxesOf(const ir::Mesh& mesh, std::string_view text) {
  WEFT_RETURN_IF_ERROR(ir::ShardingWords(text, 1).status());
  WEFT_ASSIGN_OR_RETURN(const ir::Sharding named, ir::ParseSharding(text, mesh));
  WEFT_RETURN_IF_ERROR(ir::Check(mesh, named, ir::Type::Tensor(DType::kF32, {0}), "the axes"));
  if (named.dimensions.empty() || named.dimensions[0].axes.empty())
    return UserError("axes is '", text, "' and names none");
  return std::vector<uint32_t>(named.dimensions[0].axes.begin(), named.dimensions[0].axes.end());
}

absl::Status BeginCollective(weft_context* ctx, std::string_view function, std::string_view axes,
                             CollectiveCall* call) {
  WEFT_ASSIGN_OR_RETURN(call->context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(call->context->Usable());
  if (call->context->frame() == nullptr) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, function,
                       " is for the body of a function that weft_per_device runs; values of the program are whole");
  }
  lazy::Tensor* const operand = call->x ? call->x.get() : nullptr;
  WEFT_ASSIGN_OR_RETURN(call->mesh, MeshOf(*call->context, {&operand, 1}, function));
  WEFT_ASSIGN_OR_RETURN(call->axes, AxesOf(call->mesh->axes(), axes));
  return absl::OkStatus();
}

// Reads the operand and the axes, too.
absl::Status BeginCollective(weft_context* ctx, weft_tensor* x, const char* axes, size_t length,
                             std::string_view function, CollectiveCall* call) {
  WEFT_ASSIGN_OR_RETURN(call->x, GetTensor(x, "x"));
  WEFT_ASSIGN_OR_RETURN(const std::string_view text, Text(axes, length, "axes"));
  return BeginCollective(ctx, function, text, call);
}

absl::StatusOr<int64_t> DimensionOf(const lazy::Tensor& x, int64_t dimension, std::string_view parameter) {
  const auto rank = static_cast<int64_t>(x.dims().size());
  const int64_t d = dimension < 0 ? dimension + rank : dimension;
  if (d < 0 || d >= rank) return UserError(parameter, " is ", dimension, "; x is ", ir::ShortType(x.type()));
  return d;
}

absl::StatusOr<int64_t> ReducerOf(weft_collective_reducer reducer) {
  const auto number = static_cast<int64_t>(reducer);
  if (number < 0 || number >= static_cast<int64_t>(std::size(ops::kReducerNames)))
    return UserError("reducer is ", number);
  return number;
}

absl::StatusOr<Ref<lazy::Tensor>> RecordOne(const CollectiveCall& call, const ir::OpDef& op,
                                            std::vector<lazy::Tensor*> operands, ir::Attrs attrs) {
  lazy::Engine& engine = call.context->engine();
  lazy::Tensors results;
  WEFT_RETURN_IF_ERROR(
      engine.Record(op, operands, std::move(attrs), CurrentLocation(engine), &results, call.context->where()));
  return std::move(results[0]);
}

absl::Status GiveCollective(const CollectiveCall& call, const ir::OpDef& op, ir::Attrs attrs, weft_tensor** out) {
  WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> made, RecordOne(call, op, {call.x.get()}, std::move(attrs)));
  return MakeTensor(std::move(made), out);
}

int64_t PlacesAlong(const CollectiveCall& call) {
  int64_t places = 1;
  for (const uint32_t axis : call.axes) places *= call.mesh->axes().axes[axis].size;
  return places;
}

// Devices whose numbers differ by this much are neighbours along the axis.
int64_t StrideOf(const ir::Mesh& mesh, uint32_t axis) {
  int64_t stride = 1;
  for (size_t i = axis + 1; i < mesh.axes.size(); ++i) stride *= mesh.axes[i].size;
  return stride;
}

absl::Status OneAxis(const CollectiveCall& call) {
  if (call.axes.size() == 1) return absl::OkStatus();
  return UserError("axis names ", call.axes.size(), " axes; one is expected");
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_mesh_create(weft_context* ctx, weft_device* const* devices, size_t device_count, const char* axes,
                             size_t axes_length, weft_mesh** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    lazy::Engine& engine = context->engine();
    WEFT_ASSIGN_OR_RETURN(std::vector<Device*> found, DevicesOf(devices, device_count, engine));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(axes, axes_length, "axes"));
    WEFT_ASSIGN_OR_RETURN(ir::Mesh mesh, ir::ParseMesh(text));
    if (!mesh.slots.empty()) return UserError("axes is '", text, "'; the order of devices is that of the list devices");
    if (devices == nullptr) {
      WEFT_ASSIGN_OR_RETURN(found, FirstOf(mesh, engine));
    }
    WEFT_ASSIGN_OR_RETURN(const lazy::DeviceMesh* made, engine.Mesh(found, std::move(mesh)));
    return MakeMesh(Ref<lazy::Engine>::Share(&engine), made, out);
  });
}

weft_error* weft_mesh_axes(weft_mesh* mesh, const char** out_axes, size_t* out_length) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_axes);
    WEFT_ASSIGN_OR_RETURN(Pin<MeshObject> object, Get(mesh, "mesh"));
    *out_axes = object->axes.c_str();
    if (out_length != nullptr) *out_length = object->axes.size();
    return absl::OkStatus();
  });
}

weft_error* weft_mesh_size(weft_mesh* mesh, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(Pin<MeshObject> object, Get(mesh, "mesh"));
    *out_count = object->mesh->devices().size();
    return absl::OkStatus();
  });
}

weft_error* weft_mesh_device_at(weft_mesh* mesh, size_t index, weft_device** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<MeshObject> object, Get(mesh, "mesh"));
    const std::vector<Device*>& devices = object->mesh->devices();
    if (index >= devices.size()) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "device ", index, " of a mesh that has ", devices.size());
    }
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_device>(MakeRef<DeviceObject>(object->engine, devices[index])));
    return absl::OkStatus();
  });
}

weft_error* weft_context_set_mesh(weft_context* ctx, weft_mesh* mesh) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    const lazy::DeviceMesh* set = nullptr;
    if (mesh != nullptr) {
      WEFT_ASSIGN_OR_RETURN(Pin<MeshObject> object, Get(mesh, "mesh"));
      if (object->engine.get() != &context->engine()) {
        return UserError(object->mesh->name(), " belongs to another context");
      }
      set = object->mesh;
    }
    context->engine().SetMesh(set);
    return absl::OkStatus();
  });
}

void weft_mesh_retain(weft_mesh* mesh) noexcept { RetainHandle(mesh, HandleType::kMesh); }
void weft_mesh_release(weft_mesh* mesh) noexcept { ReleaseHandle(mesh, HandleType::kMesh); }

weft_error* weft_shard(weft_tensor* tensor, const char* spec, size_t spec_length, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, SpecOf(spec, spec_length));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> made, Shard(*t, text, t->frame()));
    return MakeTensor(std::move(made), out);
  });
}

weft_error* weft_tensor_mesh(weft_tensor* tensor, weft_mesh** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    const lazy::DeviceMesh& mesh = t->sharding().mesh();
    if (mesh.alone()) {
      return UserErrorOf(absl::StatusCode::kNotFound, "the tensor ", ir::ShortType(t->type()), " is on ", mesh.name(),
                         " alone, on no mesh");
    }
    return MakeMesh(Ref<lazy::Engine>::Share(&t->engine()), &mesh, out);
  });
}

weft_error* weft_tensor_sharding(weft_tensor* tensor, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    if (t->sharding().mesh().alone()) return MakeBlob(WholeWords(t->dims().size()), out);
    WEFT_ASSIGN_OR_RETURN(const lazy::Engine::Lying lying, t->engine().LyingOf(t.get()));
    return MakeBlob(ir::ToString(lying.placement.mesh().axes(), lying.placement.sharding(), t->dims().size()), out);
  });
}

weft_error* weft_tensor_shard_count(weft_tensor* tensor, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    *out_count = t->sharding().mesh().devices().size();
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_shard_at(weft_tensor* tensor, size_t index, int64_t* out_box, size_t capacity,
                                 weft_device** out_device) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_device);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    const size_t rank = t->dims().size();
    if (rank > 0) WEFT_NOT_NULL(out_box);
    if (capacity < 2 * rank) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "capacity is ", capacity, "; a part of a tensor of rank ", rank,
                         " takes ", 2 * rank, " numbers");
    }
    WEFT_ASSIGN_OR_RETURN(const lazy::Engine::Lying lying, t->engine().LyingOf(t.get()));
    WEFT_ASSIGN_OR_RETURN(const ShardPart part, PartOf(lying, t->dims(), index));
    WEFT_ASSIGN_OR_RETURN(
        *out_device, Make<weft_device>(MakeRef<DeviceObject>(Ref<lazy::Engine>::Share(&t->engine()), part.device)));
    std::ranges::copy(part.box.starts, out_box);
    std::ranges::copy(part.box.sizes, out_box + rank);
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_sharding_picture(weft_tensor* tensor, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    WEFT_ASSIGN_OR_RETURN(const lazy::Engine::Lying lying, t->engine().LyingOf(t.get()));
    std::vector<ShardPart> parts;
    for (size_t i = 0; i < lying.placement.mesh().devices().size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(parts.emplace_back(), PartOf(lying, t->dims(), i));
    }
    return MakeBlob(PictureOf(t->dims(), parts), out);
  });
}

weft_error* weft_tensor_copy_to_mesh(weft_tensor* tensor, weft_mesh* mesh, const char* spec, size_t spec_length,
                                     weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    WEFT_ASSIGN_OR_RETURN(Pin<MeshObject> to, Get(mesh, "mesh"));
    WEFT_ASSIGN_OR_RETURN(std::string_view given, SpecOf(spec, spec_length));
    const std::string words = given.empty() ? WholeWords(t->dims().size()) : std::string(given);
    if (&t->sharding().mesh() == to->mesh) {
      WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> made, Shard(*t, words, t->frame()));
      return MakeTensor(std::move(made), out);
    }
    WEFT_RETURN_IF_ERROR(ShardingOf(*to->mesh, words, t->type()).status());
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> made, CopyElements(*t, *to->engine, lazy::Where(to->mesh), words));
    return MakeTensor(std::move(made), out);
  });
}

weft_error* weft_tensor_from_host_sharded(weft_mesh* mesh, const char* spec, size_t spec_length, weft_dtype dtype,
                                          const int64_t* dims, size_t rank, const void* data, size_t size,
                                          weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<MeshObject> to, Get(mesh, "mesh"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, SpecOf(spec, spec_length));
    HostTensor elements;
    WEFT_ASSIGN_OR_RETURN(const HostElements given,
                          ElementsOf("weft_tensor_from_host_sharded", dtype, dims, rank, data, size, &elements));
    lazy::Engine& engine = *to->engine;
    lazy::Services& services = engine.services();
    WEFT_RETURN_IF_ERROR(services.CheckCancelled(services.cancels()));
    services.StartsWork();
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> made, engine.FromHost(lazy::Where(to->mesh), given.dtype, given.dims,
                                                                  given.bytes, CurrentLocation(engine), text));
    return MakeTensor(std::move(made), out);
  });
}

weft_error* weft_tensor_from_shards(weft_mesh* mesh, const char* spec, size_t spec_length, weft_tensor* const* parts,
                                    size_t part_count, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<MeshObject> to, Get(mesh, "mesh"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, SpecOf(spec, spec_length));
    const size_t devices = to->mesh->devices().size();
    if (part_count != devices)
      return UserError("part_count is ", part_count, "; ", to->mesh->name(), " has ", devices, " devices");
    WEFT_NOT_NULL(parts);
    TensorList given;
    WEFT_RETURN_IF_ERROR(GetTensors(parts, part_count, "parts", &given));
    const ir::Type& type = given[0]->type();
    std::vector<lazy::Tensor*> tensors;
    for (size_t i = 0; i < part_count; ++i) {
      tensors.push_back(given[i]);
      if (given[i]->type() == type) continue;
      return UserError("parts[", i, "] is ", ir::ShortType(given[i]->type()), ", parts[0] ", ir::ShortType(type),
                       "; all parts are alike");
    }
    WEFT_ASSIGN_OR_RETURN(const ir::Type whole, WholeOf(*to->mesh, text, type));
    lazy::Engine& engine = *to->engine;
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> made,
                          engine.FromShards(*to->mesh, whole, text, tensors, CurrentLocation(engine)));
    return MakeTensor(std::move(made), out);
  });
}

weft_error* weft_tensor_to_host_box(weft_tensor* tensor, const int64_t* starts, const int64_t* sizes, size_t rank,
                                    void* data, size_t size) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    if (rank != t->dims().size()) {
      return UserError("rank is ", rank, "; the tensor is ", ir::ShortType(t->type()));
    }
    if (rank > 0) WEFT_NOT_NULL(starts);
    if (rank > 0) WEFT_NOT_NULL(sizes);
    if (size > 0) WEFT_NOT_NULL(data);
    const ir::Box box = {Dims(starts, starts + rank), Dims(sizes, sizes + rank)};
    return t->engine().ReadBox(t.get(), box, {static_cast<std::byte*>(data), size});
  });
}

weft_error* weft_all_reduce(weft_context* ctx, weft_tensor* x, const char* axes, size_t axes_length,
                            weft_collective_reducer reducer, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    CollectiveCall call;
    WEFT_RETURN_IF_ERROR(BeginCollective(ctx, x, axes, axes_length, "weft_all_reduce", &call));
    WEFT_ASSIGN_OR_RETURN(const int64_t by, ReducerOf(reducer));
    return GiveCollective(call, ops::kOp_all_reduce, {ops::GroupsAlong(call.mesh->axes(), call.axes), by}, out);
  });
}

weft_error* weft_all_gather(weft_context* ctx, weft_tensor* x, const char* axes, size_t axes_length, int64_t dimension,
                            weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    CollectiveCall call;
    WEFT_RETURN_IF_ERROR(BeginCollective(ctx, x, axes, axes_length, "weft_all_gather", &call));
    WEFT_ASSIGN_OR_RETURN(const int64_t d, DimensionOf(*call.x, dimension, "dimension"));
    return GiveCollective(call, ops::kOp_all_gather, {d, ops::GroupsAlong(call.mesh->axes(), call.axes)}, out);
  });
}

weft_error* weft_reduce_scatter(weft_context* ctx, weft_tensor* x, const char* axes, size_t axes_length,
                                int64_t dimension, weft_collective_reducer reducer, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    CollectiveCall call;
    WEFT_RETURN_IF_ERROR(BeginCollective(ctx, x, axes, axes_length, "weft_reduce_scatter", &call));
    WEFT_ASSIGN_OR_RETURN(const int64_t d, DimensionOf(*call.x, dimension, "dimension"));
    WEFT_ASSIGN_OR_RETURN(const int64_t by, ReducerOf(reducer));
    return GiveCollective(call, ops::kOp_reduce_scatter, {d, ops::GroupsAlong(call.mesh->axes(), call.axes), by}, out);
  });
}

weft_error* weft_all_to_all(weft_context* ctx, weft_tensor* x, const char* axes, size_t axes_length,
                            int64_t split_dimension, int64_t concat_dimension, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    CollectiveCall call;
    WEFT_RETURN_IF_ERROR(BeginCollective(ctx, x, axes, axes_length, "weft_all_to_all", &call));
    WEFT_ASSIGN_OR_RETURN(const int64_t from, DimensionOf(*call.x, split_dimension, "split_dimension"));
    WEFT_ASSIGN_OR_RETURN(const int64_t to, DimensionOf(*call.x, concat_dimension, "concat_dimension"));
    return GiveCollective(call, ops::kOp_all_to_all,
                          {from, to, PlacesAlong(call), ops::GroupsAlong(call.mesh->axes(), call.axes)}, out);
  });
}

weft_error* weft_collective_permute(weft_context* ctx, weft_tensor* x, const char* axis, size_t axis_length,
                                    const int64_t* pairs, size_t pair_numbers, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    if (pair_numbers > 0) WEFT_NOT_NULL(pairs);
    CollectiveCall call;
    WEFT_RETURN_IF_ERROR(BeginCollective(ctx, x, axis, axis_length, "weft_collective_permute", &call));
    WEFT_RETURN_IF_ERROR(OneAxis(call));
    const ir::Mesh& mesh = call.mesh->axes();
    const int64_t places = PlacesAlong(call), stride = StrideOf(mesh, call.axes[0]), size = mesh.size();
    if (pair_numbers % 2 != 0 || pair_numbers > 2 * static_cast<size_t>(places)) {
      return UserError("pair_numbers is ", pair_numbers,
                       "; it must be even, at most a source and a target for each of ", places, " places");
    }
    std::vector<int64_t> all;
    for (int64_t at = 0; at < size; ++at) {
      if (at / stride % places != 0) continue;
      for (size_t i = 0; i < pair_numbers; ++i) {
        if (pairs[i] < 0 || pairs[i] >= places) {
          return UserError("pairs[", i, "] is ", pairs[i], "; the axis has ", places, " places");
        }
        all.push_back(at + pairs[i] * stride);
      }
    }
    HostTensor literal(DType::kI64, {static_cast<int64_t>(all.size() / 2), 2});
    for (size_t i = 0; i < all.size(); ++i) literal.SetInt(static_cast<int64_t>(i), all[i]);
    return GiveCollective(call, ops::kOp_collective_permute, {Ref<const Literal>(MakeRef<Literal>(std::move(literal)))},
                          out);
  });
}

weft_error* weft_axis_index(weft_context* ctx, const char* axis, size_t axis_length, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(const std::string_view text, Text(axis, axis_length, "axis"));
    CollectiveCall call;
    WEFT_RETURN_IF_ERROR(BeginCollective(ctx, "weft_axis_index", text, &call));
    WEFT_RETURN_IF_ERROR(OneAxis(call));
    lazy::Engine& engine = call.context->engine();
    const lazy::Where where = call.context->where();
    const auto number = [&](int64_t value) { return engine.ScalarInt(where, DType::kU32, value); };
    WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Tensor> stride, number(StrideOf(call.mesh->axes(), call.axes[0])));
    WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Tensor> places, number(PlacesAlong(call)));
    WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Tensor> id, RecordOne(call, ops::kOp_partition_id, {}, {}));
    WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Tensor> row, RecordOne(call, ops::kOp_div, {id.get(), stride.get()}, {}));
    WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Tensor> place, RecordOne(call, ops::kOp_rem, {row.get(), places.get()}, {}));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> index, RecordOne(call, ops::kOp_convert, {place.get()}, {DType::kI32}));
    return MakeTensor(std::move(index), out);
  });
}

}  // extern "C"
