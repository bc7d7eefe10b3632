// weft_mesh_*, weft_shard, and how tensors lie on meshes.
#include <algorithm>
#include <string>
#include <vector>

#include "src/c_api/context.h"
#include "src/c_api/picture.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "weft.h"

namespace weft::c_api {
namespace {

absl::StatusOr<std::vector<Device*>> DevicesOf(weft_device* const* devices, size_t count, size_t wanted,
                                               lazy::Engine& engine) {
  const std::span<Device* const> all = engine.devices();
  if (devices == nullptr) {
    if (count != 0) return UserError("devices is NULL and device_count ", count);
    if (wanted > all.size()) {
      return UserErrorOf(absl::StatusCode::kNotFound, "the mesh is of ", wanted, " devices; the context has ", all.size(),
                         " (option devices on the platforms cpu and reference)");
    }
    return std::vector<Device*>(all.begin(), all.begin() + static_cast<ptrdiff_t>(wanted));
  }
  std::vector<Device*> found;
  for (size_t i = 0; i < count; ++i) {
    if (devices[i] == nullptr) return UserError("devices[", i, "] is NULL");
    WEFT_ASSIGN_OR_RETURN(found.emplace_back(), DeviceOr(devices[i], engine));
  }
  return found;
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

absl::StatusOr<std::string_view> SpecOf(const char* spec, size_t length) {
  return spec == nullptr && length == 0 ? absl::StatusOr<std::string_view>("") : Text(spec, length, "spec");
}

// Devices that have the i-th part: of holders that stand for others, all of those.
absl::StatusOr<ShardPart> PartOf(const lazy::Engine::Lying& lying, const Dims& dims, size_t i) {
  const lazy::DeviceMesh& mesh = lying.placement.mesh();
  if (i >= mesh.devices().size()) {
    return UserErrorOf(absl::StatusCode::kOutOfRange, "part ", i, " of a value that has ", mesh.devices().size());
  }
  return ShardPart{mesh.devices()[i], lying.placement.BoxOf(dims, i)};
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
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(axes, axes_length, "axes"));
    WEFT_ASSIGN_OR_RETURN(ir::Mesh mesh, ir::ParseMesh(text));
    if (!mesh.slots.empty()) return UserError("axes is '", text, "'; the order of devices is that of the list devices");
    lazy::Engine& engine = context->engine();
    WEFT_ASSIGN_OR_RETURN(const std::vector<Device*> found,
                          DevicesOf(devices, device_count, static_cast<size_t>(mesh.size()), engine));
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
    *out = nullptr;
    const lazy::DeviceMesh& mesh = t->sharding().mesh();
    return mesh.alone() ? absl::OkStatus() : MakeMesh(Ref<lazy::Engine>::Share(&t->engine()), &mesh, out);
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
    HostTensor bytes(t->dtype(), t->dims());
    WEFT_RETURN_IF_ERROR(t->engine().ToHost(t.get(), bytes.mutable_bytes()));
    lazy::Engine& engine = *to->engine;
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> made, engine.FromHost(lazy::Where(to->mesh), t->dtype(), t->dims(), bytes.bytes(),
                                                                  CurrentLocation(engine), words));
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
    WEFT_ASSIGN_OR_RETURN(const HostElements given, ElementsOf("weft_tensor_from_host_sharded", dtype, dims, rank, data, size, &elements));
    lazy::Engine& engine = *to->engine;
    lazy::Services& services = engine.services();
    WEFT_RETURN_IF_ERROR(services.CheckCancelled(services.cancels()));
    services.StartsWork();
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> made, engine.FromHost(lazy::Where(to->mesh), given.dtype, given.dims, given.bytes,
                                                                  CurrentLocation(engine), text));
    return MakeTensor(std::move(made), out);
  });
}

}  // extern "C"
