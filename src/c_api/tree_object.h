// The tree behind weft_tree: structure from serialization, values beside it.
#pragma once

#include <utility>
#include <vector>

#include "serialization/tree.h"
#include "src/c_api/context.h"
#include "src/runtime/mutex.h"

namespace weft::c_api {

// Thread rule: one thread at a time while it changes.
class TensorTree {
 public:
  Tree tree;
  std::vector<Ref<lazy::Tensor>> values;  // of leaf i of tree.tensors(); null in a checkpoint's structure

  absl::StatusOr<Tree::NodeId> AddTensor(Tree::NodeId parent, std::string_view key, Ref<lazy::Tensor> tensor);
  // Whether every tensor has a value; FAILED_PRECONDITION names the first without.
  absl::Status HasValues() const;
  // The tree with a tensor's second and further places as aliases of the first, and the positions in `values` of its leaves.
  absl::StatusOr<std::pair<Tree, std::vector<uint32_t>>> Tied() const;
  // Everything of another tree, as one child.
  absl::StatusOr<Tree::NodeId> AddTree(Tree::NodeId parent, std::string_view key, const TensorTree& other);
  // The node, through an alias; OUT_OF_RANGE if there is none of that number.
  absl::StatusOr<const Tree::Node*> Node(Tree::NodeId id) const;
  // The tensor of a node.
  absl::StatusOr<Ref<lazy::Tensor>> Tensor(Tree::NodeId id) const;

 private:
  absl::Status NoValue(Tree::NodeId id) const;
};

// Thread rule: any thread; one after the other.
class TreeObject final : public RefCounted {
 public:
  TreeObject() = default;
  explicit TreeObject(TensorTree tree) : tree_(std::move(tree)) {}

  // Runs `use` on the tree, alone. It may not call the engine, which may call back, nor use another tree.
  template <typename F>
  auto With(F&& use) {
    MutexLock lock(mutex_);
    return use(tree_);
  }
  TensorTree Copy() {
    return With([](const TensorTree& tree) { return tree; });
  }

 private:
  Mutex mutex_;
  TensorTree tree_ ABSL_GUARDED_BY(mutex_);
};
template <>
struct HandleTraits<weft_tree> {
  using Object = TreeObject;
  static constexpr HandleType kType = HandleType::kTree;
};

}  // namespace weft::c_api
