// Nested state in memory: dicts, lists and tuples of tensors, numbers, text, bytes and aliases. Checkpoints store it, optimizer
// state is kept in it, the C API hands it out as weft_tree. A tensor leaf is a number (its position in `tensors()`) with a
// type and a shape; whoever owns the values keeps them beside the tree under that number.
// A copy costs nothing until one of the two changes. Thread rule: like a vector; reading from several threads is safe while
// nobody writes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/dtype.h"
#include "src/runtime/ref.h"
#include "src/runtime/shape.h"

namespace weft {

class Tree {
 public:
  // The position of a node in the order of creation; the root is 0. A child is always created after its container.
  using NodeId = uint32_t;
  static constexpr NodeId kNoNode = ~NodeId{0};

  enum class Kind : uint8_t {
    kNone,
    kDict,
    kList,
    kTuple,
    kTensor,
    kBool,
    kInt64,
    kFloat64,
    kText,
    kBytes,
    kAlias,
  };
  static bool IsContainer(Kind kind) { return kind == Kind::kDict || kind == Kind::kList || kind == Kind::kTuple; }
  static std::string_view NameOf(Kind kind);

  struct TensorLeaf {
    DType dtype = DType::kInvalid;
    Dims dims;
    NodeId node = kNoNode;
    friend bool operator==(const TensorLeaf&, const TensorLeaf&) = default;
  };

  // One node. Which of the values is set follows from `kind`.
  struct Node {
    Kind kind = Kind::kNone;
    bool boolean = false;
    NodeId parent = 0;
    NodeId first_child = kNoNode;
    NodeId last_child = kNoNode;
    NodeId next_sibling = kNoNode;
    uint32_t children = 0;
    uint32_t depth = 0;
    uint32_t tensor = 0;     // kTensor
    NodeId alias = kNoNode;  // kAlias: what it stands for, never an alias itself; kNoNode until PointAlias has said it
    int64_t int64 = 0;
    double float64 = 0;
    std::string key;   // in a dict
    std::string text;  // kText and kBytes
  };

  // A value to be added; the helpers below make them.
  struct Value {
    Kind kind = Kind::kNone;
    bool boolean = false;
    int64_t int64 = 0;
    double float64 = 0;
    std::string_view text;
    DType dtype = DType::kInvalid;
    std::span<const int64_t> dims;
    NodeId alias = kNoNode;
  };
  static Value Dict() { return {.kind = Kind::kDict}; }
  static Value List() { return {.kind = Kind::kList}; }
  static Value Tuple() { return {.kind = Kind::kTuple}; }
  static Value None() { return {}; }
  static Value Bool(bool v) { return {.kind = Kind::kBool, .boolean = v}; }
  static Value Int64(int64_t v) { return {.kind = Kind::kInt64, .int64 = v}; }
  static Value Float64(double v) { return {.kind = Kind::kFloat64, .float64 = v}; }
  static Value Text(std::string_view v) { return {.kind = Kind::kText, .text = v}; }
  static Value Bytes(std::string_view v) { return {.kind = Kind::kBytes, .text = v}; }
  static Value Tensor(DType dtype, std::span<const int64_t> dims) {
    return {.kind = Kind::kTensor, .dtype = dtype, .dims = dims};
  }
  // The same thing under a second name: tied weights, a shared sub-dict. Never a copy on disk.
  static Value Alias(NodeId of) { return {.kind = Kind::kAlias, .alias = of}; }

  explicit Tree(const Value& root = Dict());

  // Appends a child. A dict needs a key that it does not have yet; a list or tuple takes none.
  absl::StatusOr<NodeId> Add(NodeId container, std::string_view key, const Value& value);
  // Says what an alias stands for that was added as Alias(kNoNode), because that node did not exist yet.
  absl::Status PointAlias(NodeId alias, NodeId target);
  // INVALID_ARGUMENT where an alias stands for nothing yet, or where aliases of containers lead round in a circle.
  absl::Status CheckAliases() const;
  // Gives a tensor leaf another type.
  void Retype(uint32_t leaf, DType dtype) { Own().tensors[leaf].dtype = dtype; }
  // Gives it other dimensions.
  void Resize(uint32_t leaf, Dims dims) { Own().tensors[leaf].dims = std::move(dims); }
  // Gives a node that is a whole number another one.
  void SetInt64(NodeId id, int64_t value) { Own().nodes[id].int64 = value; }
  // Room for so many nodes, if the caller knows.
  void Reserve(size_t nodes);
  // Removes the newest nodes, from `first` on.
  void TakeBack(NodeId first);
  absl::StatusOr<NodeId> Append(NodeId container, const Value& value) { return Add(container, {}, value); }

  static constexpr NodeId root() { return 0; }
  size_t size() const { return rep_->nodes.size(); }
  const Node& node(NodeId id) const { return rep_->nodes[id]; }
  const std::vector<TensorLeaf>& tensors() const { return rep_->tensors; }

  // The child under a key, kNoNode if there is none. Constant time.
  NodeId Find(NodeId dict, std::string_view key) const;
  // The i-th child, kNoNode past the end. Linear in i: walk first_child and next_sibling where that matters.
  NodeId Child(NodeId container, uint32_t index) const;
  // The node itself, or what an alias stands for.
  NodeId Resolve(NodeId id) const { return node(id).kind == Kind::kAlias ? node(id).alias : id; }

  // "layers.0.weight": keys and indices joined by "."; "." and "\" in a key are preceded by "\". Unique in a tree.
  std::string PathOf(NodeId id) const;
  // Appends a key as paths have it: a backslash before each "." and backslash.
  static void AppendKey(std::string_view key, std::string* path);
  // The node of a path as PathOf writes it, following aliases on the way; kNoNode if there is none.
  NodeId FindPath(std::string_view path) const;

  // Every node once, containers before their children, in order. Iterative: depth costs no stack.
  void ForEachPreorder(const std::function<void(NodeId)>& visit) const;
  // The same with each node's path (as PathOf), which a walk builds in constant time a node.
  void ForEachPath(const std::function<void(NodeId, const std::string& path)>& visit) const;

  // Same structure, keys, values and leaves, in the same order. Aliases must stand for corresponding nodes.
  friend bool operator==(const Tree& a, const Tree& b);

 private:
  // Children of dicts by their keys: open addressing, at most half full. A node that is taken back was the newest, so that its
  // slot is emptied without a trace.
  struct Slot {
    uint32_t hash = 0;
    NodeId id = kNoNode;
  };
  struct Rep final : RefCounted {
    Rep() = default;
    Rep(const Rep& other)
        : RefCounted(), nodes(other.nodes), tensors(other.tensors), slots(other.slots), keys(other.keys) {}
    size_t SlotOf(NodeId dict, std::string_view key) const;  // its own, or the empty one where it would stand
    void Grow(size_t keys);
    std::vector<Node> nodes;
    std::vector<TensorLeaf> tensors;
    std::vector<Slot> slots;  // a power of two, or none
    size_t keys = 0;
  };
  absl::Status Check(NodeId container, std::string_view key, const Value& value) const;
  absl::Status CheckTarget(NodeId container, NodeId target) const;
  static void Fill(Rep& rep, NodeId id, const Value& value);
  Rep& Own();

  Ref<Rep> rep_;
};

// Strict UTF-8 without NUL: what every language can hold as a string. Keys and texts are.
bool IsCleanText(std::string_view text);

}  // namespace weft
