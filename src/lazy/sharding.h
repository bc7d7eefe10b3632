// Where values live: on devices that run programs together, and which of them has which part. What a part is of the whole,
// only this file knows. How a program is cut is said without devices, by ir::Mesh and ir::Sharding (ir/mesh.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/runtime/buffer.h"
#include "src/runtime/metrics.h"

namespace weft::lazy {

// Devices that run one program together, each with an argument list and a result list of its own, in this order. Meshes are
// compared by address; those of an engine have one device each.
class DeviceMesh {
 public:
  // `metrics` count the values that get memory here; may be null.
  explicit DeviceMesh(std::vector<Device*> devices, std::shared_ptr<Metrics> metrics = nullptr)
      : devices_(std::move(devices)), metrics_(std::move(metrics)) {}
  DeviceMesh(const DeviceMesh&) = delete;
  DeviceMesh& operator=(const DeviceMesh&) = delete;

  const std::vector<Device*>& devices() const { return devices_; }
  size_t size() const { return devices_.size(); }
  const std::shared_ptr<Metrics>& metrics() const { return metrics_; }
  Backend* backend() const { return devices_[0]->backend; }
  // "cpu:0"; "tpu:0, tpu:1"
  std::string name() const {
    std::string text;
    for (const Device* device : devices_) text += (text.empty() ? "" : ", ") + device->name;
    return text;
  }

 private:
  const std::vector<Device*> devices_;
  const std::shared_ptr<Metrics> metrics_;
};

// Devices, and what each has of a value. Today's only one: the whole value, on each device of the mesh.
class Placement {
 public:
  static Placement Whole(const DeviceMesh& mesh) { return Placement(&mesh); }
  bool operator==(const Placement&) const = default;

  const DeviceMesh& mesh() const { return *mesh_; }
  // A device, by its place in the mesh, that has all of the value.
  size_t whole_at() const { return 0; }
  // Calls piece(i, from, at, n) until bytes [offset, offset + size) of the dense value are together: n bytes from byte
  // `from` of the i-th device's shard are those from `offset + at` on. Stops at the first error.
  template <typename Piece>
  absl::Status ForEachPiece(int64_t offset, int64_t size, Piece&& piece) const {
    return piece(whole_at(), offset, int64_t{0}, size);
  }

 private:
  explicit Placement(const DeviceMesh* mesh) : mesh_(mesh) {}
  const DeviceMesh* mesh_;
};

}  // namespace weft::lazy
