// weft_tree_*.
#include "src/c_api/tree_object.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "absl/cleanup/cleanup.h"
#include "src/c_api/guess.h"
#include "weft.h"

namespace weft::c_api {
namespace {

// All of a node but what another tree numbers otherwise.
Tree::Value ValueOf(const Tree::Node& node) {
  return {.kind = node.kind, .boolean = node.boolean, .int64 = node.int64, .float64 = node.float64, .text = node.text};
}

}  // namespace

absl::StatusOr<Tree::NodeId> TensorTree::AddTensor(Tree::NodeId parent, std::string_view key,
                                                   Ref<lazy::Tensor> tensor) {
  // First what the node then relies on: memory may run out at each step.
  values.push_back(std::move(tensor));
  absl::Cleanup undo = [this] { values.pop_back(); };
  WEFT_ASSIGN_OR_RETURN(Tree::NodeId node,
                        tree.Add(parent, key, Tree::Tensor(values.back()->dtype(), values.back()->dims())));
  std::move(undo).Cancel();
  return node;
}

absl::StatusOr<const Tree::Node*> TensorTree::Node(Tree::NodeId id) const {
  if (id >= tree.size())
    return UserErrorOf(absl::StatusCode::kOutOfRange, "node ", id, " of a tree of ", tree.size(), " nodes");
  return &tree.node(tree.Resolve(id));
}

absl::StatusOr<Ref<lazy::Tensor>> TensorTree::Tensor(Tree::NodeId id) const {
  WEFT_ASSIGN_OR_RETURN(const Tree::Node* node, Node(id));
  if (node->kind != Tree::Kind::kTensor) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "node '", tree.PathOf(id), "' is ",
                       Tree::NameOf(node->kind), ", not a tensor");
  }
  if (values[node->tensor] == nullptr) return NoValue(id);
  return values[node->tensor];
}

absl::Status TensorTree::NoValue(Tree::NodeId id) const {
  return UserErrorOf(
      absl::StatusCode::kFailedPrecondition, "tensor '", tree.PathOf(id),
      "' has no value: the tree is a checkpoint's structure (weft_checkpoint_reader_load reads a tensor, "
      "weft_checkpoint_reader_tree all)");
}

absl::Status TensorTree::HasValues() const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == nullptr) return NoValue(tree.tensors()[i].node);
  }
  return absl::OkStatus();
}

uint64_t TensorTree::Bytes() const {
  uint64_t bytes = 0;
  for (const Tree::TensorLeaf& leaf : tree.tensors()) {
    bytes += static_cast<uint64_t>(CountOf(leaf.dims)) * static_cast<uint64_t>(BytesOf(leaf.dtype));
  }
  return bytes;
}

absl::StatusOr<std::pair<Tree, std::vector<uint32_t>>> TensorTree::Tied() const {
  std::vector<uint32_t> leaves(values.size());
  std::iota(leaves.begin(), leaves.end(), 0);
  std::vector<const lazy::Tensor*> sorted;
  sorted.reserve(values.size());
  for (const Ref<lazy::Tensor>& value : values) sorted.push_back(value.get());
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()) return std::pair(tree, std::move(leaves));
  leaves.clear();
  Tree tied(Tree::Value{.kind = tree.node(Tree::root()).kind});  // a container, or there would be one tensor at most
  std::vector<Tree::NodeId> copies(tree.size(), Tree::kNoNode);
  // The standard library's, which survives an allocation that fails.
  std::unordered_map<const lazy::Tensor*, Tree::NodeId> first;
  std::vector<std::pair<Tree::NodeId, Tree::NodeId>> later;  // aliases that come before what they stand for
  absl::Status status;
  tree.ForEachPreorder([&](Tree::NodeId id) {
    if (!status.ok()) return;
    if (id == Tree::root()) {
      copies[id] = id;
      return;
    }
    const Tree::Node& node = tree.node(id);
    Tree::Value value = ValueOf(node);
    if (node.kind == Tree::Kind::kAlias) value.alias = copies[node.alias];
    const bool early = value.kind == Tree::Kind::kAlias && value.alias == Tree::kNoNode;
    if (node.kind == Tree::Kind::kTensor) {
      const auto [known, is_new] = first.try_emplace(values[node.tensor].get(), Tree::kNoNode);
      if (is_new) {
        value = Tree::Tensor(tree.tensors()[node.tensor].dtype, tree.tensors()[node.tensor].dims);
        leaves.push_back(node.tensor);
      } else {
        value = Tree::Alias(known->second);
      }
    }
    const absl::StatusOr<Tree::NodeId> added = tied.Add(copies[node.parent], node.key, value);
    if (!added.ok()) {
      status = added.status();
      return;
    }
    if (early) later.emplace_back(*added, node.alias);
    copies[id] = early ? *added : tied.Resolve(*added);  // what stands for an alias would be one of an alias
    if (node.kind == Tree::Kind::kTensor) first[values[node.tensor].get()] = copies[id];
  });
  WEFT_RETURN_IF_ERROR(status);
  for (const auto& [alias, target] : later) WEFT_RETURN_IF_ERROR(tied.PointAlias(alias, copies[target]));
  return std::pair(std::move(tied), std::move(leaves));
}

absl::StatusOr<Tree::NodeId> TensorTree::AddTree(Tree::NodeId parent, std::string_view key, const TensorTree& other) {
  std::vector<Tree::NodeId> copies(other.tree.size(), Tree::kNoNode);
  std::vector<std::pair<Tree::NodeId, Tree::NodeId>> later;  // aliases of what comes behind them
  absl::Cleanup undo = [this, nodes = static_cast<Tree::NodeId>(tree.size()), leaves = values.size()] {
    tree.TakeBack(nodes);
    values.erase(values.begin() + static_cast<ptrdiff_t>(leaves), values.end());
  };
  // In the order of creation: containers before their children.
  for (Tree::NodeId id = 0; id < other.tree.size(); ++id) {
    const Tree::Node& node = other.tree.node(id);
    const bool root = id == Tree::root();
    const Tree::NodeId under = root ? parent : copies[node.parent];
    const std::string_view name = root ? key : std::string_view(node.key);
    if (node.kind == Tree::Kind::kTensor && other.values[node.tensor] != nullptr) {
      WEFT_ASSIGN_OR_RETURN(copies[id], AddTensor(under, name, other.values[node.tensor]));
      continue;
    }
    Tree::Value value = ValueOf(node);
    if (node.kind == Tree::Kind::kTensor) {
      const Tree::TensorLeaf& leaf = other.tree.tensors()[node.tensor];
      value = Tree::Tensor(leaf.dtype, leaf.dims);
    }
    if (node.kind == Tree::Kind::kAlias) value.alias = copies[node.alias];
    const bool early = value.kind == Tree::Kind::kAlias && value.alias == Tree::kNoNode;
    WEFT_ASSIGN_OR_RETURN(copies[id], tree.Add(under, name, value));
    if (early) later.emplace_back(copies[id], node.alias);
    values.resize(tree.tensors().size());
  }
  for (const auto& [alias, target] : later) {
    WEFT_RETURN_IF_ERROR(tree.PointAlias(alias, tree.Resolve(copies[target])));
  }
  std::move(undo).Cancel();
  return copies[Tree::root()];
}

namespace {

// Reports a path that leads nowhere, with the nearest of those that lead somewhere.
absl::Status NoNode(const Tree& tree, std::string_view path) {
  std::vector<std::string> paths;
  if (tree.size() <= kMostGuessed) {
    tree.ForEachPath([&](Tree::NodeId, const std::string& known) { paths.push_back(known); });
  }
  return UserErrorOf(absl::StatusCode::kNotFound, "the tree has no '", path, "'",
                     AtTheEnd(DidYouMean(path, std::vector<std::string_view>(paths.begin(), paths.end()))));
}

template <typename Use>
absl::Status OnTree(weft_tree* tree, Use&& use) {
  WEFT_ASSIGN_OR_RETURN(Pin<TreeObject> object, Get(tree, "tree"));
  return object->With(use);
}

// One add function: the key's text, the value, where the new node's number goes.
template <typename Add>
absl::Status AddNode(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, uint32_t* out_node,
                     Add&& add) {
  return OnTree(tree, [&](TensorTree& to) -> absl::Status {
    WEFT_RETURN_IF_ERROR(to.Node(parent).status());
    std::string_view name;
    if (key != nullptr) {
      WEFT_ASSIGN_OR_RETURN(name, Text(key, key_length, "key"));
    } else if (to.tree.node(parent).kind == Tree::Kind::kDict) {
      return UserError("key is NULL; a child of a dict needs one");
    }
    WEFT_ASSIGN_OR_RETURN(Tree::NodeId node, add(to, name));
    if (out_node != nullptr) *out_node = node;
    return absl::OkStatus();
  });
}

weft_error* AddValue(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, uint32_t* out_node,
                     const Tree::Value& value, const char* function = __builtin_FUNCTION()) noexcept {
  const auto body = [&] {
    return AddNode(tree, parent, key, key_length, out_node,
                   [&](TensorTree& to, std::string_view name) { return to.tree.Add(parent, name, value); });
  };
  return Guard(body, function);
}

// One get function, its name last: the node, checked for its kind. `missing` names an out-parameter that is NULL.
template <typename Take>
weft_error* GetNode(weft_tree* tree, uint32_t node, std::string_view wanted, std::string_view missing, Take&& take,
                    const char* function = __builtin_FUNCTION()) noexcept {
  const auto body = [&]() -> absl::Status {
    if (!missing.empty()) return NullArgument(missing);
    return OnTree(tree, [&](const TensorTree& from) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const Tree::Node* found, from.Node(node));
      if (take(*found)) return absl::OkStatus();
      return UserErrorOf(absl::StatusCode::kFailedPrecondition, "node '", from.tree.PathOf(node), "' is ",
                         Tree::NameOf(found->kind), ", not ", wanted);
    });
  };
  return Guard(body, function);
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_tree_create(weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(MakeRef<TreeObject>()));
    return absl::OkStatus();
  });
}

weft_error* weft_tree_add_dict(weft_tree* tree, uint32_t parent, const char* key, size_t key_length,
                               uint32_t* out_node) noexcept {
  return AddValue(tree, parent, key, key_length, out_node, Tree::Dict());
}
weft_error* weft_tree_add_list(weft_tree* tree, uint32_t parent, const char* key, size_t key_length,
                               uint32_t* out_node) noexcept {
  return AddValue(tree, parent, key, key_length, out_node, Tree::List());
}
weft_error* weft_tree_add_none(weft_tree* tree, uint32_t parent, const char* key, size_t key_length,
                               uint32_t* out_node) noexcept {
  return AddValue(tree, parent, key, key_length, out_node, Tree::None());
}
weft_error* weft_tree_add_tensor(weft_tree* tree, uint32_t parent, const char* key, size_t key_length,
                                 weft_tensor* value, uint32_t* out_node) noexcept {
  return Guard([&]() -> absl::Status {
    // Pinned here, and kept from its scope, because the engine may call back, which nobody does with a tree locked.
    const absl::StatusOr<Pin<lazy::Tensor>> t = GetTensor(value, "value");
    WEFT_RETURN_IF_ERROR(AddNode(tree, parent, key, key_length, out_node,
                                 [&](TensorTree& to, std::string_view name) -> absl::StatusOr<Tree::NodeId> {
                                   if (!t.ok()) return t.status();
                                   return to.AddTensor(parent, name, t->Share());
                                 }));
    (*t)->engine().Keep(t->get());
    return absl::OkStatus();
  });
}
weft_error* weft_tree_add_bool(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, int32_t value,
                               uint32_t* out_node) noexcept {
  return AddValue(tree, parent, key, key_length, out_node, Tree::Bool(value != 0));
}
weft_error* weft_tree_add_i64(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, int64_t value,
                              uint32_t* out_node) noexcept {
  return AddValue(tree, parent, key, key_length, out_node, Tree::Int64(value));
}
weft_error* weft_tree_add_f64(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, double value,
                              uint32_t* out_node) noexcept {
  return AddValue(tree, parent, key, key_length, out_node, Tree::Float64(value));
}
weft_error* weft_tree_add_text(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, const char* value,
                               size_t length, uint32_t* out_node) noexcept {
  return Guard([&] {
    return AddNode(tree, parent, key, key_length, out_node,
                   [&](TensorTree& to, std::string_view name) -> absl::StatusOr<Tree::NodeId> {
                     WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(value, length, "value"));
                     return to.tree.Add(parent, name, Tree::Text(text));
                   });
  });
}
weft_error* weft_tree_add_bytes(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, const void* value,
                                size_t length, uint32_t* out_node) noexcept {
  return Guard([&] {
    return AddNode(tree, parent, key, key_length, out_node,
                   [&](TensorTree& to, std::string_view name) -> absl::StatusOr<Tree::NodeId> {
                     if (value == nullptr && length > 0) return NullArgument("value");
                     return to.tree.Add(parent, name, Tree::Bytes({static_cast<const char*>(value), length}));
                   });
  });
}
weft_error* weft_tree_add_alias(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, uint32_t target,
                                uint32_t* out_node) noexcept {
  return Guard([&] {
    return AddNode(tree, parent, key, key_length, out_node,
                   [&](TensorTree& to, std::string_view name) -> absl::StatusOr<Tree::NodeId> {
                     WEFT_RETURN_IF_ERROR(to.Node(target).status());
                     return to.tree.Add(parent, name, Tree::Alias(target));
                   });
  });
}
weft_error* weft_tree_add_tree(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, weft_tree* other,
                               uint32_t* out_node) noexcept {
  return Guard([&]() -> absl::Status {
    // A copy, so that never two trees are locked at once.
    absl::StatusOr<Pin<TreeObject>> source = Get(other, "other");
    TensorTree from;
    if (source.ok() && other != tree) {
      WEFT_ASSIGN_OR_RETURN(from, (*source)->Copy());
    }
    return AddNode(tree, parent, key, key_length, out_node,
                   [&](TensorTree& to, std::string_view name) -> absl::StatusOr<Tree::NodeId> {
                     if (!source.ok()) return source.status();
                     if (other == tree) return UserError("a tree cannot be added to itself");
                     return to.AddTree(parent, name, from);
                   });
  });
}

weft_error* weft_tree_find(weft_tree* tree, uint32_t from, const char* path, size_t length,
                           uint32_t* out_node) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_node);
    WEFT_ASSIGN_OR_RETURN(Pin<TreeObject> object, Get(tree, "tree"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(path, length, "path"));
    return object->With([&](const TensorTree& in) -> absl::Status {
      WEFT_RETURN_IF_ERROR(in.Node(from).status());
      std::string full = from == Tree::root() ? std::string() : in.tree.PathOf(in.tree.Resolve(from));
      if (!full.empty() && !text.empty()) full += '.';
      full += text;
      const Tree::NodeId node = full.empty() ? Tree::root() : in.tree.FindPath(full);
      if (node == Tree::kNoNode) return NoNode(in.tree, full);
      *out_node = node;
      return absl::OkStatus();
    });
  });
}

weft_error* weft_tree_kind(weft_tree* tree, uint32_t node, weft_node_kind* out_kind) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_kind);
    return OnTree(tree, [&](const TensorTree& in) -> absl::Status {
      WEFT_RETURN_IF_ERROR(in.Node(node).status());
      *out_kind = static_cast<weft_node_kind>(in.tree.node(node).kind);  // one order on both sides
      return absl::OkStatus();
    });
  });
}

weft_error* weft_tree_size(weft_tree* tree, uint32_t node, uint32_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    return OnTree(tree, [&](const TensorTree& in) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const Tree::Node* found, in.Node(node));
      *out_count = found->children;
      return absl::OkStatus();
    });
  });
}

weft_error* weft_tree_child(weft_tree* tree, uint32_t node, uint32_t index, uint32_t* out_node) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_node);
    return OnTree(tree, [&](const TensorTree& in) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const Tree::Node* found, in.Node(node));
      const Tree::NodeId child = index < found->children ? in.tree.Child(in.tree.Resolve(node), index) : Tree::kNoNode;
      if (child == Tree::kNoNode) {
        return UserErrorOf(absl::StatusCode::kOutOfRange, "child ", index, " of '", in.tree.PathOf(node),
                           "', which has ", found->children);
      }
      *out_node = child;
      return absl::OkStatus();
    });
  });
}

weft_error* weft_tree_key(weft_tree* tree, uint32_t node, const char** out_key, size_t* out_length) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_key);
    return OnTree(tree, [&](const TensorTree& in) -> absl::Status {
      WEFT_RETURN_IF_ERROR(in.Node(node).status());
      const std::string& key = in.tree.node(node).key;
      *out_key = key.c_str();
      if (out_length != nullptr) *out_length = key.size();
      return absl::OkStatus();
    });
  });
}

weft_error* weft_tree_get_tensor(weft_tree* tree, uint32_t node, weft_tensor** out_value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_value);
    Ref<lazy::Tensor> tensor;
    WEFT_RETURN_IF_ERROR(OnTree(tree, [&](const TensorTree& in) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(tensor, in.Tensor(node));
      return absl::OkStatus();
    }));
    return MakeTensor(std::move(tensor), out_value);
  });
}
weft_error* weft_tree_get_bool(weft_tree* tree, uint32_t node, int32_t* out_value) noexcept {
  return GetNode(tree, node, "a bool", out_value == nullptr ? "out_value" : "", [&](const Tree::Node& n) {
    if (n.kind != Tree::Kind::kBool) return false;
    *out_value = n.boolean ? 1 : 0;
    return true;
  });
}
weft_error* weft_tree_get_i64(weft_tree* tree, uint32_t node, int64_t* out_value) noexcept {
  return GetNode(tree, node, "an integer", out_value == nullptr ? "out_value" : "", [&](const Tree::Node& n) {
    if (n.kind != Tree::Kind::kInt64) return false;
    *out_value = n.int64;
    return true;
  });
}
weft_error* weft_tree_get_f64(weft_tree* tree, uint32_t node, double* out_value) noexcept {
  return GetNode(tree, node, "a number", out_value == nullptr ? "out_value" : "", [&](const Tree::Node& n) {
    if (n.kind != Tree::Kind::kFloat64 && n.kind != Tree::Kind::kInt64) return false;
    *out_value = n.kind == Tree::Kind::kInt64 ? static_cast<double>(n.int64) : n.float64;
    return true;
  });
}
weft_error* weft_tree_get_data(weft_tree* tree, uint32_t node, const void** out_data, size_t* out_length) noexcept {
  const std::string_view missing = out_data == nullptr ? "out_data" : out_length == nullptr ? "out_length" : "";
  return GetNode(tree, node, "text or bytes", missing, [&](const Tree::Node& n) {
    if (n.kind != Tree::Kind::kText && n.kind != Tree::Kind::kBytes) return false;
    *out_data = n.text.c_str();
    *out_length = n.text.size();
    return true;
  });
}

void weft_tree_retain(weft_tree* tree) noexcept { RetainHandle(tree, HandleType::kTree); }
void weft_tree_release(weft_tree* tree) noexcept { ReleaseHandle(tree, HandleType::kTree); }

}  // extern "C"
