// Meshes: made, set as the place of what names none, and asked how values lie on them.
#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/lazy/engine.h"

namespace weft::lazy {

absl::StatusOr<ir::Sharding> ShardingOf(const DeviceMesh& mesh, std::string_view spec, const ir::Type& type) {
  if (mesh.alone()) {
    return UserError("the sharding '", spec, "' is for a mesh; the tensor ", ir::ShortType(type), " is on ",
                     mesh.name(), " alone (weft_context_set_mesh, weft_tensor_copy_to_mesh)");
  }
  WEFT_RETURN_IF_ERROR(ir::ShardingWords(spec, type.rank()).status());
  WEFT_ASSIGN_OR_RETURN(ir::Sharding sharding, ir::ParseSharding(spec, mesh.axes()));
  WEFT_RETURN_IF_ERROR(ir::Check(mesh.axes(), sharding, type, "a tensor"));
  return sharding;
}

absl::StatusOr<Placement> PlacementOf(const DeviceMesh& mesh, std::string_view spec, const ir::Type& type) {
  if (spec.empty()) return Placement::Whole(mesh);
  WEFT_ASSIGN_OR_RETURN(const ir::Sharding sharding, ShardingOf(mesh, spec, type));
  return Placement::Of(mesh, sharding);
}

absl::StatusOr<const DeviceMesh*> Engine::Mesh(std::span<Device* const> devices, ir::Mesh axes) {
  WEFT_RETURN_IF_ERROR(ir::Check(axes));
  if (axes.none()) return UserError("a mesh has at least one axis, name=size");
  if (static_cast<int64_t>(devices.size()) != axes.size()) {
    return UserError("the mesh ", ir::ToString(axes), " is of ", axes.size(), " devices; there are ", devices.size());
  }
  std::vector<uint32_t> places;
  for (Device* device : devices) {
    const auto found = std::ranges::find(device_list_, device);
    if (found == device_list_.end()) return UserError("the device ", device->name, " does not belong to this context");
    if (std::ranges::count(devices, device) > 1) return UserError("the device ", device->name, " is twice in the mesh");
    if (device->backend != devices[0]->backend) {
      return UserError("the devices ", devices[0]->name, " and ", device->name, " are of two platforms");
    }
    places.push_back(static_cast<uint32_t>(std::ranges::find(device->backend->devices(), device) -
                                           device->backend->devices().begin()));
  }
  Backend* const backend = devices[0]->backend;
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_RETURN_IF_ERROR(recorder_.CheckOpen());
  if (MeshState* const known = recorder_.FindMesh(devices, axes)) return &known->mesh;
  compiler::ProgramCache* programs = recorder_.StateOf(*devices[0]).programs;
  if (!backend->shares_memory()) {
    // Programs of a plugin are for their devices.
    compiler::ProgramCache::Config config = CacheConfig(*backend, options_.program);
    config.options.assignment = places;
    mesh_programs_.push_back(std::make_unique<compiler::ProgramCache>(std::move(config)));
    programs = mesh_programs_.back().get();
  }
  return &recorder_.AddMesh({devices.begin(), devices.end()}, std::move(axes), programs, options_).mesh;
}

absl::StatusOr<Ref<Tensor>> Engine::FromShards(const DeviceMesh& mesh, const ir::Type& type, std::string_view spec,
                                               std::span<Tensor* const> parts, ir::Location location) {
  std::optional<Placement> placement;
  {
    Lock lock(recorder_, Lock::To::kNote);
    WEFT_RETURN_IF_ERROR(recorder_.CheckOpen());
    WEFT_ASSIGN_OR_RETURN(const ir::Sharding sharding, ShardingOf(mesh, spec, type));
    placement = Placement::Of(mesh, sharding);
  }
  // The value is put together here where one holder has all of it; else each holder gets its part.
  const int64_t element = BytesOf(type.dtype);
  const ir::Sharding& lies = placement->sharding();
  const bool together = mesh.holders().size() == 1;
  HostTensor whole(type.dtype, together ? type.dims : Dims{0}), part;
  Shards shards;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ir::Box box = ir::BoxOf(mesh.axes(), lies, type.dims, static_cast<int64_t>(i));
    const bool first = ir::IsFirstCopy(mesh.axes(), lies, static_cast<int64_t>(i));
    size_t from = i;
    for (size_t j = 0; !first && from == i && j < i; ++j) {
      if (ir::BoxOf(mesh.axes(), lies, type.dims, static_cast<int64_t>(j)) == box) from = j;
    }
    if (together && !first) continue;
    part = HostTensor(type.dtype, box.sizes);
    WEFT_RETURN_IF_ERROR(parts[from]->engine().ToHost(parts[from], part.mutable_bytes()));
    if (together) {
      CopyPartOut(part.bytes(), {0, CountOf(box.sizes) * element}, box, type.dims, element, 0, whole.mutable_bytes());
    } else {
      WEFT_ASSIGN_OR_RETURN(shards.emplace_back(), ToDevice(mesh.holders()[i], type.dtype, box.sizes, part.bytes()));
      metrics_->Add(Counter::kBytesToDevice, shards.back()->bytes());
    }
  }
  if (together) return FromHost(Where(&mesh), type.dtype, type.dims, whole.bytes(), location, spec);
  return NewBufferTensor(*placement, type, std::move(shards), location);
}

void Engine::SetMesh(const DeviceMesh* mesh) {
  Lock lock(recorder_, Lock::To::kNote);
  recorder_.SetDefault(mesh == nullptr ? nullptr : &recorder_.StateOf(Placement::Whole(*mesh)));
}

const DeviceMesh* Engine::mesh() const {
  Lock lock(recorder_, Lock::To::kNote);
  const MeshState* const state = recorder_.usual();
  return state == nullptr ? nullptr : &state->mesh;
}

absl::StatusOr<Engine::Lying> Engine::LyingOf(Tensor* tensor) {
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(tensor, "the tensor"));
  recorder_.MustShow(*tensor, Replay::Miss::kRead);
  const ir::Value value = tensor->value();
  WEFT_ASSIGN_OR_RETURN(Data * data, Materialize(lock, *tensor, value));
  if (data->word_count > 0) return Lying{Placement::Whole(tensor->sharding().mesh()), {}};
  return Lying{data->sharding(), Shards(data->shards().begin(), data->shards().end())};
}

}  // namespace weft::lazy
