// A node is one operation applied to values; a value is one result of a node. The same nodes serve recording (where
// they hang on tensors), autodiff and passes (where they hang on functions).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/ir/attr.h"
#include "src/ir/type.h"
#include "src/runtime/ref.h"

namespace weft::ir {

struct OpDef;
class Node;
class Function;

// The lazy engine hangs a payload on a node: where the value lives once it has been computed. Opaque here.
class Payload : public RefCounted {};

// The caller's position, interned once per file; 0 = unknown.
struct Location {
  uint32_t file = 0;
  uint32_t line = 0;
};
uint32_t InternFile(std::string_view file);
std::string ToString(Location location);  // "train.c:42", "" if unknown

// An owning reference to one result.
struct Value {
  Ref<const Node> node;
  uint32_t result = 0;

  explicit operator bool() const { return node != nullptr; }
  inline const Type& type() const;
  inline const Dims& dims() const;
  inline DType dtype() const;
  friend bool operator==(const Value& a, const Value& b) { return a.node == b.node && a.result == b.result; }
  template <typename H>
  friend H AbslHashValue(H h, const Value& v) {
    return H::combine(std::move(h), v.node.get(), v.result);
  }
};

using Values = absl::InlinedVector<Value, 3>;

// The functions a node carries (a fusion's body, a loop's condition); most carry none. Defined with Function.
struct Regions;

// A few nodes carry these: things that came in from elsewhere and must survive a round trip.
struct NodeExtras {
  std::vector<std::pair<std::string, std::string>> unknown_attributes;  // name, text
  std::string sharding;
  uint16_t device = 0;  // mesh slot, not a device id

  friend bool operator==(const NodeExtras&, const NodeExtras&) = default;
};

// Immutable after Create, but for the payload and what follows from it (the lazy engine's, under its lock). 256 bytes.
// Ids grow along creation and operands exist before their users, so sorting by id is a topological order.
class Node final : public RefCounted {
 public:
  // The caller has inferred the result types (see ops::Record and ir::Builder, the two ways in).
  static Ref<const Node> Create(const OpDef& op, Values operands, Attrs attrs, Types results,
                                std::unique_ptr<const Regions> regions = nullptr, Location location = {},
                                std::unique_ptr<const NodeExtras> extras = nullptr);

  const OpDef& op() const { return *op_; }
  uint64_t id() const { return id_; }
  std::span<const Value> operands() const { return operands_; }
  const Attrs& attrs() const { return attrs_; }
  std::span<const Type> results() const { return results_; }
  const Type& type(size_t result = 0) const { return results_[result]; }
  std::span<const Ref<const Function>> regions() const;
  Location location() const { return location_; }
  const NodeExtras* extras() const { return extras_.get(); }

  // A value that a wanted gradient depends on: set at creation from the operands, or on leaves by the lazy engine.
  bool needs_gradient() const { return needs_gradient_; }
  void set_needs_gradient(bool on = true) const { needs_gradient_ = on; }

  // How many operands of living nodes refer to it, and how often the lazy engine shows it (tensors, cuts on their way):
  // what is still wanted. Thread rule: under the lock of whoever owns the graph, in which its nodes also die.
  uint32_t users() const { return users_; }
  uint32_t shown() const { return shown_; }
  void Show() const { ++shown_; }
  void Hide() const { --shown_; }

  const Ref<Payload>& payload() const { return payload_; }
  void set_payload(Ref<Payload> payload) const { payload_ = std::move(payload); }
  // The lazy engine's: a node whose results are all known and whose past no gradient can ask for lets go of it.
  void ForgetOperands() const;

  // Where a walk keeps its own number (see Walk); meaningless to everybody else.
  uint64_t walk_epoch() const { return walk_epoch_; }
  uint32_t walk_index() const { return walk_index_; }
  void set_walk(uint64_t epoch, uint32_t index) const {
    walk_epoch_ = epoch;
    walk_index_ = index;
  }

  // Chains of a million nodes die on a 256 KiB stack: releases children from a list threaded through the dead.
  static void Destroy(const Node* node);

 private:
  Node();
  ~Node() override;

  // First, beside the count of references: who makes or destroys a user touches one cache line of each operand.
  mutable uint32_t users_ = 0;
  mutable uint32_t shown_ = 0;
  mutable bool needs_gradient_ = false;
  const OpDef* op_ = nullptr;
  uint64_t id_ = 0;
  mutable Values operands_;
  Attrs attrs_;
  Types results_;
  std::unique_ptr<const Regions> regions_;
  std::unique_ptr<const NodeExtras> extras_;
  Location location_;
  mutable uint32_t walk_index_ = 0;
  mutable uint64_t walk_epoch_ = 0;
  mutable Ref<Payload> payload_;
  mutable const Node* next_dead_ = nullptr;
};

// One walk over a graph: a number per visited node, kept in the node itself, because a hash map would cost more than
// the visit. A later walk over the same node overwrites it. Thread rule: nodes that several threads can reach are walked
// under the lock of whoever owns them.
class Walk {
 public:
  Walk() : epoch_(next_.fetch_add(1, std::memory_order_relaxed)) {}
  // Returns true at the first visit, and then sets the node's number.
  bool Mark(const Node& node, uint32_t index) const {
    if (node.walk_epoch() == epoch_) return false;
    node.set_walk(epoch_, index);
    return true;
  }
  bool Marked(const Node& node) const { return node.walk_epoch() == epoch_; }
  uint32_t At(const Node& node) const { return node.walk_index(); }
  void Set(const Node& node, uint32_t index) const { node.set_walk(epoch_, index); }

 private:
  inline static std::atomic<uint64_t> next_{1};
  uint64_t epoch_;
};

inline const Type& Value::type() const { return node->type(result); }
inline const Dims& Value::dims() const { return type().dims; }
inline DType Value::dtype() const { return type().dtype; }

}  // namespace weft::ir
