// Where values live: on the devices of a mesh, and which of them has which part. What a part is of the whole, only this file
// knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/runtime/buffer.h"

namespace weft::lazy {

// Devices that run one program together, each with an argument list and a result list of its own, in this order. Meshes are
// compared by address; those of an engine have one device each.
class Mesh {
 public:
  explicit Mesh(std::vector<Device*> devices) : devices_(std::move(devices)) {}
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const std::vector<Device*>& devices() const { return devices_; }
  size_t size() const { return devices_.size(); }
  Backend* backend() const { return devices_[0]->backend; }
  // "cpu:0"; "tpu:0, tpu:1"
  std::string name() const {
    std::string text;
    for (const Device* device : devices_) text += (text.empty() ? "" : ", ") + device->name;
    return text;
  }

 private:
  const std::vector<Device*> devices_;
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
