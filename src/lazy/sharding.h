// Where values live: on the devices of a mesh, and which of them has which part. What a part is of the whole, only this file
// knows.
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
class Mesh {
 public:
  // `metrics` count the values that get memory here; may be null.
  explicit Mesh(std::vector<Device*> devices, std::shared_ptr<Metrics> metrics = nullptr)
      : devices_(std::move(devices)), metrics_(std::move(metrics)) {}
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

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

// Today's only value: whole, on each device of the mesh.
class Sharding {
 public:
  static Sharding Whole(const Mesh& mesh) { return Sharding(&mesh); }
  bool operator==(const Sharding&) const = default;

  const Mesh& mesh() const { return *mesh_; }
  // A device, by its place in the mesh, that has all of the value.
  size_t whole_at() const { return 0; }
  // Calls piece(i, from, at, n) until bytes [offset, offset + size) of the dense value are together: n bytes from byte
  // `from` of the i-th device's shard are those from `offset + at` on. Stops at the first error.
  template <typename Piece>
  absl::Status ForEachPiece(int64_t offset, int64_t size, Piece&& piece) const {
    return piece(whole_at(), offset, int64_t{0}, size);
  }

 private:
  explicit Sharding(const Mesh* mesh) : mesh_(mesh) {}
  const Mesh* mesh_;
};

}  // namespace weft::lazy
