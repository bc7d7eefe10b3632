// Tensors whose bytes a reader of files writes: a device's part after the other, and none of them twice on the host where the device
// takes memory over.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "src/backends/host_writable.h"
#include "src/lazy/engine.h"
#include "src/lazy/engine_leaves.h"
#include "src/runtime/alloc_hook.h"

namespace weft::lazy {
namespace {

// Below this a copy costs less than memory of its own.
constexpr size_t kAdopted = size_t{1} << 20;

}  // namespace

// Fills the parts of one value. Thread rule: one call's.
class Engine::Filling {
 public:
  Filling(Engine& engine, std::span<Device* const> devices)
      : engine_(engine), devices_(devices), shards_(devices.size()) {}

  bool Has(size_t i) const { return shards_[i] != nullptr; }
  // Fills a part that some of the devices have in common.
  absl::Status Fill(std::span<const size_t> alike, const ir::Type& part, FillBytes fill);
  Shards& shards() { return shards_; }

 private:
  bool HeldAsItIs(const ir::Type& part) const { return engine_.options_.held.Of(part.dtype) == part.dtype; }
  // Null: the host cannot write to the device.
  absl::StatusOr<Ref<Buffer>> WrittenInPlace(Device* device, const ir::Type& part, FillBytes fill);

  Engine& engine_;
  const std::span<Device* const> devices_;
  Shards shards_;
};

absl::StatusOr<Ref<Buffer>> Engine::Filling::WrittenInPlace(Device* device, const ir::Type& part, FillBytes fill) {
  auto* const writable = dynamic_cast<HostWritable*>(device->backend);
  if (writable == nullptr || !HeldAsItIs(part)) return Ref<Buffer>();
  void* data = nullptr;
  WEFT_ASSIGN_OR_RETURN(Ref<Buffer> buffer, engine_.WithRoom(device, [&]() -> absl::StatusOr<Ref<Buffer>> {
    WEFT_ASSIGN_OR_RETURN(HostWritable::Writable made, writable->NewWritable(device, part.dtype, part.dims));
    data = made.data;
    return std::move(made.buffer);
  }));
  WEFT_RETURN_IF_ERROR(fill({static_cast<std::byte*>(data), static_cast<size_t>(part.bytes())}));
  return buffer;
}

absl::Status Engine::Filling::Fill(std::span<const size_t> alike, const ir::Type& part, FillBytes fill) {
  if (alike.size() == 1) {
    WEFT_ASSIGN_OR_RETURN(shards_[alike[0]], WrittenInPlace(devices_[alike[0]], part, fill));
    if (shards_[alike[0]] != nullptr) return absl::OkStatus();
  }
  const auto size = static_cast<size_t>(part.bytes()), taken = std::max<size_t>(size, 1);
  const std::shared_ptr<void> memory(AllocateLarge(taken), [taken](void* at) { FreeLarge(at, taken); });
  if (memory == nullptr) return NoLargeMemory(absl::StrCat("the bytes of ", ir::ShortType(part)));
  const std::span<std::byte> bytes(static_cast<std::byte*>(memory.get()), size);
  WEFT_RETURN_IF_ERROR(fill(bytes));
  for (const size_t i : alike.first(alike.size() - 1)) {
    WEFT_ASSIGN_OR_RETURN(shards_[i], engine_.ToDevice(devices_[i], part.dtype, part.dims, bytes));
  }
  // The last one gets the memory itself.
  Device* const last = devices_[alike.back()];
  Ref<Buffer>& its = shards_[alike.back()];
  if (size < kAdopted || !HeldAsItIs(part)) {
    WEFT_ASSIGN_OR_RETURN(its, engine_.ToDevice(last, part.dtype, part.dims, bytes));
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(its, engine_.WithRoom(last, [&] {
    return last->backend->Adopt(last, part.dtype, part.dims, memory.get(), [memory] {});
  }));
  // A device that copies it is done with it before the next part is read.
  return engine_.services_.WaitFor(its->ready(), Part::kCopying);
}

absl::StatusOr<Ref<Tensor>> Engine::FromBoxes(const Where& where, const ir::Type& type, std::string_view spec,
                                              FillBox fill) {
  WEFT_RETURN_IF_ERROR(CheckShape("tensor from host memory", type.dtype, type.dims));
  std::optional<Placement> placement;
  bool literal = false;
  {
    Lock lock(recorder_, Lock::To::kNote);
    WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.CheckWhere(where));
    literal = place.frame != nullptr;
    WEFT_ASSIGN_OR_RETURN(placement, PlacementOf(place.state->mesh, spec, type));
  }
  if (literal) {
    std::vector<std::byte, LargeStdAllocator<std::byte>> all(static_cast<size_t>(type.bytes()));
    WEFT_RETURN_IF_ERROR(fill({Dims(type.rank(), 0), type.dims}, all));
    return FromHost(where, type.dtype, type.dims, all);
  }
  const std::span<Device* const> holders = placement->mesh().holders();
  PartScope scope(*metrics_, Part::kCopying);
  Filling filling(*this, holders);
  const bool split = placement->split();
  for (size_t i = 0; i < holders.size(); ++i) {
    if (filling.Has(i)) continue;
    const ir::Box box = split ? placement->BoxOf(type.dims, i) : ir::Box{Dims(type.rank(), 0), type.dims};
    std::vector<size_t> alike = {i};
    for (size_t k = i + 1; k < holders.size(); ++k) {
      if (!split || placement->BoxOf(type.dims, k) == box) alike.push_back(k);
    }
    const auto its = [&](std::span<std::byte> bytes) { return fill(box, bytes); };
    WEFT_RETURN_IF_ERROR(filling.Fill(alike, ir::Type::Tensor(type.dtype, box.sizes), its));
  }
  CountUpload(*metrics_, filling.shards(), &scope);
  return NewBufferTensor(*placement, type, std::move(filling.shards()), {});
}

absl::StatusOr<Ref<Tensor>> Engine::FromFilled(const Where& where, const ir::Type& type, FillBytes fill) {
  return FromBoxes(where, type, {}, [&](const ir::Box&, std::span<std::byte> bytes) { return fill(bytes); });
}

}  // namespace weft::lazy
