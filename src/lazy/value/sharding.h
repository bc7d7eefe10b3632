// Where values live: on devices that run programs together, and which of them has which part. Only this file knows
// which part of the whole a part is. How a program is cut is said without devices, by ir::Mesh and ir::Sharding
// (ir/mesh.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/ir/mesh.h"
#include "src/runtime/buffer.h"
#include "src/runtime/metrics.h"
#include "src/runtime/status.h"

namespace weft::lazy {

// Devices that run programs together, in the row-major order of their axes; a device that runs programs alone has no axes.
// Meshes are compared by address. Thread rule: Intern under the engine's lock, the rest never changes.
class DeviceMesh {
 public:
  // `metrics` count the values that get memory here; may be null.
  explicit DeviceMesh(std::vector<Device*> devices, ir::Mesh axes = {}, std::shared_ptr<Metrics> metrics = nullptr);
  DeviceMesh(const DeviceMesh&) = delete;
  DeviceMesh& operator=(const DeviceMesh&) = delete;

  const std::vector<Device*>& devices() const { return devices_; }
  const ir::Mesh& axes() const { return axes_; }
  // Returns true for a device by itself.
  bool alone() const { return axes_.none(); }
  // The devices that have buffers, each with an argument list and a result list of its own in a launch, in this order. Where
  // devices share a memory, the first stands for all, and has every value whole.
  std::span<Device* const> holders() const { return std::span(devices_).first(holders_); }
  const std::shared_ptr<Metrics>& metrics() const { return metrics_; }
  Backend* backend() const { return devices_[0]->backend; }
  // "cpu:0"; "the mesh data=2,model=2 of cpu:0, cpu:1, cpu:2, cpu:3"
  std::string name() const;
  // The one sharding of this mesh that is equal, which lives as long as the mesh.
  const ir::Sharding* Intern(const ir::Sharding& sharding) const;
  const ir::Sharding* whole() const { return &shardings_.front(); }

 private:
  const std::vector<Device*> devices_;
  const ir::Mesh axes_;
  const size_t holders_;
  const std::shared_ptr<Metrics> metrics_;
  mutable std::deque<ir::Sharding> shardings_;  // the first is whole
};

// Devices, and what each has of a value.
class Placement {
 public:
  static Placement Whole(const DeviceMesh& mesh) { return Placement(&mesh, mesh.whole()); }
  // Call under the engine's lock. The sharding suits the mesh and the value (ir::Check).
  static Placement Of(const DeviceMesh& mesh, const ir::Sharding& sharding) {
    return Placement(&mesh, mesh.Intern(sharding));
  }
  // The same by what the mesh's Intern gave.
  static Placement OfInterned(const DeviceMesh& mesh, const ir::Sharding* sharding) {
    return Placement(&mesh, sharding);
  }
  bool operator==(const Placement&) const = default;

  const DeviceMesh& mesh() const { return *mesh_; }
  const ir::Sharding& sharding() const { return *sharding_; }
  // A holder, by its place among them, that has all of the value where it is not split.
  size_t whole_at() const { return 0; }
  // Tells whether the value is split: no holder has all of it.
  bool split() const { return sharding_ != mesh_->whole() && mesh_->holders().size() > 1; }
  // The shape of each holder's part.
  Dims DimsOfPart(const Dims& dims) const;
  // The part of holder i.
  ir::Box BoxOf(const Dims& dims, size_t i) const {
    return ir::BoxOf(mesh_->axes(), *sharding_, dims, static_cast<int64_t>(i));
  }
  // Tells whether holder i has a part that no holder before it has.
  bool IsFirst(size_t i) const {
    return split() ? ir::IsFirstCopy(mesh_->axes(), *sharding_, static_cast<int64_t>(i)) : i == 0;
  }

 private:
  Placement(const DeviceMesh* mesh, const ir::Sharding* sharding) : mesh_(mesh), sharding_(sharding) {}
  const DeviceMesh* mesh_;
  const ir::Sharding* sharding_;
};

// How a value of this type lies that `spec` says, a word a dimension. INVALID_ARGUMENT for a device alone, an axis that the mesh does
// not have, one that is named twice or does not divide its dimension, and another number of words than dimensions.
absl::StatusOr<ir::Sharding> ShardingOf(const DeviceMesh& mesh, std::string_view spec, const ir::Type& type);
// The same as a placement; "" is whole, on a device alone, too. Call under the engine's lock.
absl::StatusOr<Placement> PlacementOf(const DeviceMesh& mesh, std::string_view spec, const ir::Type& type);

// The box that two boxes of a value have in common; it may be empty.
ir::Box Common(const ir::Box& a, const ir::Box& b);
// The inner box as it lies in the outer one.
ir::Box Within(const ir::Box& inner, const ir::Box& outer);

// The bytes of a dense part, elements of `element` bytes, that lie in the dense value's bytes [offset, offset + size). They are
// neighbours, because a part has its elements in the order of the value.
struct ByteRange {
  int64_t begin = 0, end = 0;
};
ByteRange RangeOfPart(const ir::Box& box, const Dims& dims, int64_t element, int64_t offset, int64_t size);
// Copies such bytes of a part to where they are in the value, whose bytes from `offset` on are in `window`.
void CopyPartOut(std::span<const std::byte> bytes, ByteRange range, const ir::Box& box, const Dims& dims,
                 int64_t element, int64_t offset, std::span<std::byte> window);
// Puts the window of a split value together, from byte `offset` on, on the host: one part after the other, of each but one copy. `read`
// copies the bytes of holder i's part that begin at byte `from` of it.
using ReadPart = absl::FunctionRef<absl::Status(size_t i, int64_t from, std::span<std::byte> to)>;
absl::Status ReadParts(const Placement& placement, const Dims& dims, int64_t element, int64_t offset,
                       std::span<std::byte> window, ReadPart read);
// The same of a box of the value, which lies in it; of holders that have nothing of it none is asked.
absl::Status ReadBoxOfParts(const Placement& placement, const Dims& dims, int64_t element, const ir::Box& box,
                            std::span<std::byte> destination, ReadPart read);
// The offset in the value's bytes of a part that lies in one piece; -1 where it does not.
int64_t OffsetOfPart(const ir::Box& box, const Dims& dims, int64_t element);
// Copies a part out of the whole value.
void CopyPartIn(std::span<const std::byte> value, const Dims& dims, const ir::Box& box, int64_t element,
                std::span<std::byte> part);

}  // namespace weft::lazy
