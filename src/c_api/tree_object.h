// The tree behind weft_tree: structure from serialization, values beside it.
#pragma once

#include <utility>
#include <vector>

#include "serialization/tree.h"
#include "src/c_api/context.h"

namespace weft::c_api {

// Thread rule: one thread at a time while it changes.
class TreeObject final : public RefCounted {
 public:
  Tree tree;
  std::vector<Ref<lazy::Tensor>> values;  // of leaf i of tree.tensors(); null in a checkpoint's structure

  // A tensor's value then survives barriers although a scope may own its handle.
  absl::StatusOr<Tree::NodeId> AddTensor(Tree::NodeId parent, std::string_view key, Ref<lazy::Tensor> tensor);
  // Whether every tensor has a value; FAILED_PRECONDITION names the first without.
  absl::Status HasValues() const;
  // The tree with a tensor's second and further places as aliases of the first, and the positions in `values` of its leaves.
  absl::StatusOr<std::pair<Tree, std::vector<uint32_t>>> Tied() const;
  // Everything below `from` of another tree, as one child.
  absl::StatusOr<Tree::NodeId> AddTree(Tree::NodeId parent, std::string_view key, const TreeObject& other);
  // The node, through an alias; OUT_OF_RANGE if there is none of that number.
  absl::StatusOr<const Tree::Node*> Node(Tree::NodeId id) const;
  // The tensor of a node.
  absl::StatusOr<lazy::Tensor*> Tensor(Tree::NodeId id) const;

 private:
  absl::Status NoValue(Tree::NodeId id) const;
};
template <>
struct HandleTraits<weft_tree> {
  using Object = TreeObject;
  static constexpr HandleType kType = HandleType::kTree;
};

}  // namespace weft::c_api
