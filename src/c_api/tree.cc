// weft_tree_*.
#include "src/c_api/tree_object.h"
#include "weft.h"

namespace weft::c_api {

absl::StatusOr<Tree::NodeId> TreeObject::AddTensor(Tree::NodeId parent, std::string_view key,
                                                   Ref<lazy::Tensor> tensor) {
  WEFT_ASSIGN_OR_RETURN(Tree::NodeId node, tree.Add(parent, key, Tree::Tensor(tensor->dtype(), tensor->dims())));
  tensor->engine().Keep(tensor.get());
  values.push_back(std::move(tensor));
  return node;
}

absl::StatusOr<const Tree::Node*> TreeObject::Node(Tree::NodeId id) const {
  if (id >= tree.size())
    return UserErrorOf(absl::StatusCode::kOutOfRange, "node ", id, " of a tree of ", tree.size(), " nodes");
  return &tree.node(tree.Resolve(id));
}

absl::StatusOr<lazy::Tensor*> TreeObject::Tensor(Tree::NodeId id) const {
  WEFT_ASSIGN_OR_RETURN(const Tree::Node* node, Node(id));
  if (node->kind != Tree::Kind::kTensor) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "node '", tree.PathOf(id), "' is ",
                       Tree::NameOf(node->kind), ", not a tensor");
  }
  return values[node->tensor].get();
}

absl::StatusOr<Tree::NodeId> TreeObject::AddTree(Tree::NodeId parent, std::string_view key, const TreeObject& other) {
  if (&other == this) return UserError("a tree cannot be added to itself");
  std::vector<Tree::NodeId> copies(other.tree.size());
  std::vector<Tree::NodeId> order;
  other.tree.ForEachPreorder([&](Tree::NodeId id) { order.push_back(id); });
  for (Tree::NodeId id : order) {
    const Tree::Node& node = other.tree.node(id);
    const bool root = id == Tree::root();
    const Tree::NodeId under = root ? parent : copies[node.parent];
    const std::string_view name = root ? key : std::string_view(node.key);
    if (node.kind == Tree::Kind::kTensor) {
      WEFT_ASSIGN_OR_RETURN(copies[id], AddTensor(under, name, other.values[node.tensor]));
      continue;
    }
    Tree::Value value{
        .kind = node.kind, .boolean = node.boolean, .int64 = node.int64, .float64 = node.float64, .text = node.text};
    if (node.kind == Tree::Kind::kAlias) value.alias = copies[node.alias];
    WEFT_ASSIGN_OR_RETURN(copies[id], tree.Add(under, name, value));
  }
  return copies[Tree::root()];
}

namespace {

// One add function, its name last: the key's text, the value, where the new node's number goes.
template <typename Add>
weft_error* AddNode(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, uint32_t* out_node, Add&& add,
                    const char* function = __builtin_FUNCTION()) noexcept {
  const auto body = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(TreeObject * object, Get(tree, "tree"));
    WEFT_RETURN_IF_ERROR(object->Node(parent).status());
    std::string_view name;
    if (key != nullptr) {
      WEFT_ASSIGN_OR_RETURN(name, Text(key, key_length, "key"));
    } else if (object->tree.node(parent).kind == Tree::Kind::kDict) {
      return UserError("key is NULL; a child of a dict needs one");
    }
    absl::StatusOr<Tree::NodeId> node = add(*object, name);
    if (!node.ok()) return node.status();
    if (out_node != nullptr) *out_node = *node;
    return absl::OkStatus();
  };
  return Guard(body, function);
}

weft_error* AddValue(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, uint32_t* out_node,
                     const Tree::Value& value, const char* function = __builtin_FUNCTION()) noexcept {
  return AddNode(
      tree, parent, key, key_length, out_node,
      [&](TreeObject& object, std::string_view name) { return object.tree.Add(parent, name, value); }, function);
}

// One get function, its name last: the node, checked for its kind.
template <typename Take>
weft_error* GetNode(weft_tree* tree, uint32_t node, std::string_view wanted, Take&& take,
                    const char* function = __builtin_FUNCTION()) noexcept {
  const auto body = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(TreeObject * object, Get(tree, "tree"));
    WEFT_ASSIGN_OR_RETURN(const Tree::Node* found, object->Node(node));
    if (take(*found)) return absl::OkStatus();
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "node '", object->tree.PathOf(node), "' is ",
                       Tree::NameOf(found->kind), ", not ", wanted);
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
  return AddNode(tree, parent, key, key_length, out_node,
                 [&](TreeObject& object, std::string_view name) -> absl::StatusOr<Tree::NodeId> {
                   WEFT_ASSIGN_OR_RETURN(lazy::Tensor * t, GetTensor(value, "value"));
                   return object.AddTensor(parent, name, Ref<lazy::Tensor>::Share(t));
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
  return AddNode(tree, parent, key, key_length, out_node,
                 [&](TreeObject& object, std::string_view name) -> absl::StatusOr<Tree::NodeId> {
                   WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(value, length, "value"));
                   return object.tree.Add(parent, name, Tree::Text(text));
                 });
}
weft_error* weft_tree_add_bytes(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, const void* value,
                                size_t length, uint32_t* out_node) noexcept {
  return AddNode(tree, parent, key, key_length, out_node,
                 [&](TreeObject& object, std::string_view name) -> absl::StatusOr<Tree::NodeId> {
                   if (value == nullptr && length > 0) return NullArgument("value");
                   return object.tree.Add(parent, name, Tree::Bytes({static_cast<const char*>(value), length}));
                 });
}
weft_error* weft_tree_add_alias(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, uint32_t target,
                                uint32_t* out_node) noexcept {
  return AddNode(tree, parent, key, key_length, out_node,
                 [&](TreeObject& object, std::string_view name) -> absl::StatusOr<Tree::NodeId> {
                   WEFT_RETURN_IF_ERROR(object.Node(target).status());
                   return object.tree.Add(parent, name, Tree::Alias(target));
                 });
}
weft_error* weft_tree_add_tree(weft_tree* tree, uint32_t parent, const char* key, size_t key_length, weft_tree* other,
                               uint32_t* out_node) noexcept {
  return AddNode(tree, parent, key, key_length, out_node,
                 [&](TreeObject& object, std::string_view name) -> absl::StatusOr<Tree::NodeId> {
                   WEFT_ASSIGN_OR_RETURN(TreeObject * from, Get(other, "other"));
                   return object.AddTree(parent, name, *from);
                 });
}

weft_error* weft_tree_find(weft_tree* tree, uint32_t from, const char* path, size_t length,
                           uint32_t* out_node) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_node);
    WEFT_ASSIGN_OR_RETURN(TreeObject * object, Get(tree, "tree"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(path, length, "path"));
    WEFT_RETURN_IF_ERROR(object->Node(from).status());
    std::string full = from == Tree::root() ? std::string() : object->tree.PathOf(object->tree.Resolve(from));
    if (!full.empty() && !text.empty()) full += '.';
    full += text;
    const Tree::NodeId node = full.empty() ? Tree::root() : object->tree.FindPath(full);
    if (node == Tree::kNoNode) return UserErrorOf(absl::StatusCode::kNotFound, "the tree has no '", full, "'");
    *out_node = node;
    return absl::OkStatus();
  });
}

weft_error* weft_tree_kind(weft_tree* tree, uint32_t node, weft_node_kind* out_kind) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_kind);
    WEFT_ASSIGN_OR_RETURN(TreeObject * object, Get(tree, "tree"));
    WEFT_RETURN_IF_ERROR(object->Node(node).status());
    *out_kind = static_cast<weft_node_kind>(object->tree.node(node).kind);  // one order on both sides
    return absl::OkStatus();
  });
}

weft_error* weft_tree_size(weft_tree* tree, uint32_t node, uint32_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(TreeObject * object, Get(tree, "tree"));
    WEFT_ASSIGN_OR_RETURN(const Tree::Node* found, object->Node(node));
    *out_count = found->children;
    return absl::OkStatus();
  });
}

weft_error* weft_tree_child(weft_tree* tree, uint32_t node, uint32_t index, uint32_t* out_node) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_node);
    WEFT_ASSIGN_OR_RETURN(TreeObject * object, Get(tree, "tree"));
    WEFT_ASSIGN_OR_RETURN(const Tree::Node* found, object->Node(node));
    const Tree::NodeId child =
        index < found->children ? object->tree.Child(object->tree.Resolve(node), index) : Tree::kNoNode;
    if (child == Tree::kNoNode) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "child ", index, " of '", object->tree.PathOf(node),
                         "', which has ", found->children);
    }
    *out_node = child;
    return absl::OkStatus();
  });
}

weft_error* weft_tree_key(weft_tree* tree, uint32_t node, const char** out_key, size_t* out_length) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_key);
    WEFT_ASSIGN_OR_RETURN(TreeObject * object, Get(tree, "tree"));
    WEFT_RETURN_IF_ERROR(object->Node(node).status());
    const std::string& key = object->tree.node(node).key;
    *out_key = key.c_str();
    if (out_length != nullptr) *out_length = key.size();
    return absl::OkStatus();
  });
}

weft_error* weft_tree_get_tensor(weft_tree* tree, uint32_t node, weft_tensor** out_value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_value);
    WEFT_ASSIGN_OR_RETURN(TreeObject * object, Get(tree, "tree"));
    WEFT_ASSIGN_OR_RETURN(lazy::Tensor * t, object->Tensor(node));
    return MakeTensor(Ref<lazy::Tensor>::Share(t), out_value);
  });
}
weft_error* weft_tree_get_bool(weft_tree* tree, uint32_t node, int32_t* out_value) noexcept {
  if (out_value == nullptr) return ToErrorOf(__func__, NullArgument("out_value"));
  return GetNode(tree, node, "a bool", [&](const Tree::Node& n) {
    if (n.kind != Tree::Kind::kBool) return false;
    *out_value = n.boolean ? 1 : 0;
    return true;
  });
}
weft_error* weft_tree_get_i64(weft_tree* tree, uint32_t node, int64_t* out_value) noexcept {
  if (out_value == nullptr) return ToErrorOf(__func__, NullArgument("out_value"));
  return GetNode(tree, node, "an integer", [&](const Tree::Node& n) {
    if (n.kind != Tree::Kind::kInt64) return false;
    *out_value = n.int64;
    return true;
  });
}
weft_error* weft_tree_get_f64(weft_tree* tree, uint32_t node, double* out_value) noexcept {
  if (out_value == nullptr) return ToErrorOf(__func__, NullArgument("out_value"));
  return GetNode(tree, node, "a number", [&](const Tree::Node& n) {
    if (n.kind != Tree::Kind::kFloat64 && n.kind != Tree::Kind::kInt64) return false;
    *out_value = n.kind == Tree::Kind::kInt64 ? static_cast<double>(n.int64) : n.float64;
    return true;
  });
}
weft_error* weft_tree_get_data(weft_tree* tree, uint32_t node, const void** out_data, size_t* out_length) noexcept {
  if (out_data == nullptr || out_length == nullptr)
    return ToErrorOf(__func__, NullArgument(out_data == nullptr ? "out_data" : "out_length"));
  return GetNode(tree, node, "text or bytes", [&](const Tree::Node& n) {
    if (n.kind != Tree::Kind::kText && n.kind != Tree::Kind::kBytes) return false;
    *out_data = n.text.c_str();
    *out_length = n.text.size();
    return true;
  });
}

void weft_tree_retain(weft_tree* tree) noexcept { RetainHandle(tree, HandleType::kTree); }
void weft_tree_release(weft_tree* tree) noexcept { ReleaseHandle(tree, HandleType::kTree); }

}  // extern "C"
