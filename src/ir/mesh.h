// These types say which processes run a program together, and which part of a value each of them has. Devices are named by slots, places in the list
// that a program is launched on, never by ids: a program is the same wherever it runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/ir/type.h"
#include "src/runtime/status.h"

namespace weft::ir {

// A box of slots with a named axis a dimension. Without axes there is none.
struct Mesh {
  struct Axis {
    std::string name;
    int64_t size = 1;
    friend bool operator==(const Axis&, const Axis&) = default;
  };
  std::vector<Axis> axes;
  // The slot at each position, in row-major order (the last axis fastest), each slot once. Empty: 0, 1, 2, … in this order.
  std::vector<uint32_t> slots;

  // Slots in order may be given or not.
  friend bool operator==(const Mesh& a, const Mesh& b) {
    return a.axes == b.axes && (a.slots == b.slots || (a.in_order() && b.in_order()));
  }
  bool in_order() const {
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] != i) return false;
    }
    return true;
  }
  bool none() const { return axes.empty(); }
  int64_t size() const {
    int64_t size = 1;
    for (const Axis& axis : axes) size *= axis.size;
    return size;
  }
};

// How a value lies on a mesh: for each dimension the axes along which it is cut, the major one first. Axes that no dimension
// names have a copy each. Dimensions behind the last that is given are whole: an empty list is a value that each device has
// whole.
struct Sharding {
  struct Dimension {
    absl::InlinedVector<uint32_t, 2> axes;  // places among the axes of the mesh
    bool open = false;                      // the partitioner may cut it further
    friend bool operator==(const Dimension&, const Dimension&) = default;
  };
  std::vector<Dimension> dimensions;

  // Compares what is meant: whole dimensions at the end may be given or not.
  friend bool operator==(const Sharding& a, const Sharding& b);
  bool whole() const { return given() == 0; }
  // Without whole dimensions at the end.
  size_t given() const;
};

// The processes of a module: `replicas` times `partitions`, the partitions of one replica beside each other. Partition p is
// slot p of the mesh.
struct Participants {
  uint32_t replicas = 1;
  uint32_t partitions = 1;
  Mesh mesh;                                  // of the partitions; none: nothing is said of how values lie
  std::vector<Sharding> parameters, results;  // of the entry function; empty: all are whole

  uint64_t count() const { return uint64_t{replicas} * partitions; }
  bool alone() const { return count() == 1; }
  // Returns true for most programs: one process, no mesh, no shardings.
  bool usual() const;
  // Compares what is meant: lists of whole values may be given or not.
  friend bool operator==(const Participants& a, const Participants& b);
};

// Returns true if every sharding is whole, so that the list may as well be empty.
bool AllWhole(const std::vector<Sharding>& shardings);

// These functions convert to and from the text that people write. A mesh: "data=2,model=4", and behind '@' slots that are not in order: "data=2,model=2@0,2,1,3". A
// sharding: a word a dimension, "data+model,-"; "-" is whole, and '?' behind a word means open. That of a scalar is "".
std::string ToString(const Mesh& mesh);
std::string ToString(const Mesh& mesh, const Sharding& sharding, size_t rank);
absl::StatusOr<Mesh> ParseMesh(std::string_view text);
absl::StatusOr<Sharding> ParseSharding(std::string_view text, const Mesh& mesh);

// Returns the words of a sharding's text, one a dimension; INVALID_ARGUMENT where it does not say one for each of `rank` dimensions,
// or a word names no axis. Which axes there are is the mesh's to say (ParseSharding).
absl::StatusOr<std::vector<std::string_view>> ShardingWords(std::string_view text, size_t rank);

// The part of a value that one slot has: where it begins and how long it is, a number a dimension.
struct Box {
  Dims starts, sizes;
  friend bool operator==(const Box&, const Box&) = default;
};
// Returns the part of a value of these dimensions that is at the place `at` of the mesh, counted in row-major order. The sharding
// passed Check.
Box BoxOf(const Mesh& mesh, const Sharding& sharding, std::span<const int64_t> dims, int64_t at);
// Returns true where no place before this one has the same part: of those with copies the first.
bool IsFirstCopy(const Mesh& mesh, const Sharding& sharding, int64_t at);

// INVALID_ARGUMENT for an axis without a name, two of one name, a size below 1, and slots that are not each of 0 to size - 1
// once.
absl::Status Check(const Mesh& mesh);
// INVALID_ARGUMENT for an axis that the mesh does not have, one that is used twice, a dimension that its axes do not divide,
// and more dimensions than the type has. `what` begins the message: "parameter 2".
absl::Status Check(const Mesh& mesh, const Sharding& sharding, const Type& type, std::string_view what);

}  // namespace weft::ir
