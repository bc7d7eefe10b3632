// Trees are flat vectors with links: a million leaves are a few allocations, and no walk recurses.
#include "serialization/tree.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "serialization/checksum.h"
#include "serialization/limits.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

uint64_t HashKey(Tree::NodeId dict, std::string_view key) {
  return Checksum64(std::as_bytes(std::span(key))) ^ ((uint64_t{dict} + 1) * 0x9E3779B97F4A7C15u);
}

}  // namespace

bool IsCleanText(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
    const uint8_t lead = byte(i);
    if (lead == 0) return false;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) return false;
    uint32_t point = lead & (0xFF >> (length + 1));
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
      point = point << 6 | (byte(i + k) & 0x3F);
    }
    if ((length == 3 && point < 0x800) || (length == 4 && (point < 0x10000 || point > 0x10FFFF))) return false;
    if (point >= 0xD800 && point <= 0xDFFF) return false;
    i += length;
  }
  return true;
}

std::string_view Tree::NameOf(Kind kind) {
  constexpr std::string_view kNames[] = {"none",  "dict",    "list", "tuple", "tensor", "bool",
                                         "int64", "float64", "text", "bytes", "alias"};
  return kNames[static_cast<size_t>(kind)];
}

Tree::Tree(const Value& root) {
  nodes_.emplace_back();
  Fill(0, root);
}

void Tree::Fill(NodeId id, const Value& value) {
  Node& node = nodes_[id];
  node.kind = value.kind;
  node.boolean = value.boolean;
  node.int64 = value.int64;
  node.float64 = value.float64;
  node.text = value.text;
  node.alias = value.alias;
  if (value.kind == Kind::kTensor) {
    node.tensor = static_cast<uint32_t>(tensors_.size());
    tensors_.push_back({value.dtype, Dims(value.dims.begin(), value.dims.end()), id});
  }
}

absl::Status Tree::Check(NodeId container, std::string_view key, const Value& value) const {
  if (container >= nodes_.size()) return UserError("tree node ", container, " does not exist; the tree has ", size());
  const Node& parent = nodes_[container];
  if (!IsContainer(parent.kind)) {
    return UserError("cannot add to tree node '", PathOf(container), "': it is a ", NameOf(parent.kind),
                     ", not a dict, list or tuple");
  }
  if (nodes_.size() >= kMaxTreeNodes) return UserError("a tree holds at most ", kMaxTreeNodes, " nodes");
  if (parent.depth + 1 > kMaxTreeDepth) return UserError("a tree is at most ", kMaxTreeDepth, " levels deep");
  if (parent.kind == Kind::kDict) {
    if (key.size() > kMaxNameBytes) {
      return UserError("a key of ", key.size(), " bytes in tree node '", PathOf(container), "'; at most ",
                       kMaxNameBytes, " are allowed");
    }
    if (!IsCleanText(key))
      return UserError("a key in tree node '", PathOf(container), "' is not valid UTF-8 without NUL");
    if (Find(container, key) != kNoNode) {
      return UserErrorOf(absl::StatusCode::kAlreadyExists, "tree node '", PathOf(container), "' has the key '", key,
                         "' already");
    }
  } else if (!key.empty()) {
    return UserError("tree node '", PathOf(container), "' is a ", NameOf(parent.kind), " and takes no keys; got '", key,
                     "'");
  }
  switch (value.kind) {
    case Kind::kTensor:
      if (!IsKnown(static_cast<uint32_t>(value.dtype))) {
        return UserError("unknown dtype ", static_cast<uint32_t>(value.dtype), " of a tensor in a tree");
      }
      if (value.dims.size() > kMaxRank || !CheckedCount(value.dims).has_value()) {
        return UserError("shape ", DimsToString(value.dims), " of a tensor in a tree is not valid");
      }
      break;
    case Kind::kText:
      if (!IsCleanText(value.text)) return UserError("text '", key, "' in a tree is not valid UTF-8 without NUL");
      [[fallthrough]];
    case Kind::kBytes:
      if (value.text.size() > kMaxValueBytes) {
        return UserError(NameOf(value.kind), " '", key, "' in a tree has ", value.text.size(), " bytes; at most ",
                         kMaxValueBytes, " are allowed (use a tensor of u8 for more)");
      }
      break;
    case Kind::kAlias:
      if (value.alias != kNoNode) return CheckTarget(container, value.alias);
      break;
    default: break;
  }
  return absl::OkStatus();
}

absl::Status Tree::CheckTarget(NodeId container, NodeId target) const {
  if (target >= nodes_.size()) return UserError("an alias stands for tree node ", target, ", which does not exist");
  if (nodes_[target].kind == Kind::kAlias) return UserError("an alias in a tree cannot stand for another alias");
  // A container as alias of its own ancestor would be a cycle.
  for (NodeId at = container;; at = nodes_[at].parent) {
    if (at == target) return UserError("an alias in a tree cannot stand for a container that holds it");
    if (at == root()) return absl::OkStatus();
  }
}

absl::Status Tree::PointAlias(NodeId alias, NodeId target) {
  if (alias == root() || alias >= nodes_.size() || nodes_[alias].kind != Kind::kAlias) {
    return UserError("tree node ", alias, " is no alias");
  }
  WEFT_RETURN_IF_ERROR(CheckTarget(nodes_[alias].parent, target));
  nodes_[alias].alias = target;
  return absl::OkStatus();
}

absl::Status Tree::CheckAliases() const {
  bool to_container = false;
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    const Node& node = nodes_[id];
    if (node.kind != Kind::kAlias) continue;
    if (node.alias == kNoNode) return UserError("alias '", PathOf(id), "' stands for nothing");
    to_container = to_container || IsContainer(nodes_[node.alias].kind);
  }
  if (!to_container) return absl::OkStatus();
  // A walk down that follows aliases: a node that is met again while it is open is its own descendant.
  enum State : uint8_t { kNew, kOpen, kDone };
  std::vector<State> states(nodes_.size(), kNew);
  struct Level {
    NodeId container, child;
  };
  std::vector<Level> open = {{root(), nodes_[root()].first_child}};
  states[root()] = kOpen;
  while (!open.empty()) {
    if (open.back().child == kNoNode) {
      states[open.back().container] = kDone;
      open.pop_back();
      continue;
    }
    const NodeId child = std::exchange(open.back().child, nodes_[open.back().child].next_sibling);
    const NodeId at = Resolve(child);
    if (!IsContainer(nodes_[at].kind) || states[at] == kDone) continue;
    if (states[at] == kOpen) return UserError("alias '", PathOf(child), "' leads round in a circle to what holds it");
    states[at] = kOpen;
    open.push_back({at, nodes_[at].first_child});
  }
  return absl::OkStatus();
}

absl::StatusOr<Tree::NodeId> Tree::Add(NodeId container, std::string_view key, const Value& value) {
  WEFT_RETURN_IF_ERROR(Check(container, key, value));
  const NodeId id = static_cast<NodeId>(nodes_.size());
  const size_t leaves = tensors_.size();
  nodes_.emplace_back();
  absl::Cleanup undo = [&] {  // memory ran out
    nodes_.pop_back();
    tensors_.erase(tensors_.begin() + static_cast<ptrdiff_t>(leaves), tensors_.end());
  };
  Fill(id, value);
  Node& node = nodes_[id];
  Node& parent = nodes_[container];
  node.parent = container;
  node.depth = parent.depth + 1;
  node.key = key;
  if (parent.kind == Kind::kDict) by_key_.emplace(HashKey(container, key), id);
  std::move(undo).Cancel();
  if (parent.first_child == kNoNode) {
    parent.first_child = id;
  } else {
    nodes_[parent.last_child].next_sibling = id;
  }
  parent.last_child = id;
  ++parent.children;
  return id;
}

void Tree::TakeBack(NodeId first) {
  for (NodeId id = static_cast<NodeId>(nodes_.size()); id-- > first;) {
    const Node& node = nodes_[id];
    Node& parent = nodes_[node.parent];
    if (parent.kind == Kind::kDict) {
      const auto found = by_key_.find(HashKey(node.parent, node.key));
      if (found != by_key_.end() && found->second == id) by_key_.erase(found);
    }
    if (node.parent < first) {
      NodeId before = parent.first_child == id ? kNoNode : parent.first_child;
      while (before != kNoNode && nodes_[before].next_sibling != id) before = nodes_[before].next_sibling;
      (before == kNoNode ? parent.first_child : nodes_[before].next_sibling) = kNoNode;
      parent.last_child = before;
      --parent.children;
    }
    if (node.kind == Kind::kTensor) tensors_.pop_back();
    nodes_.pop_back();
  }
}

Tree::NodeId Tree::Find(NodeId dict, std::string_view key) const {
  if (dict >= nodes_.size() || nodes_[dict].kind != Kind::kDict) return kNoNode;
  const auto found = by_key_.find(HashKey(dict, key));
  if (found == by_key_.end()) return kNoNode;
  const Node& node = nodes_[found->second];
  if (node.parent == dict && node.key == key) return found->second;
  for (NodeId at = nodes_[dict].first_child; at != kNoNode; at = nodes_[at].next_sibling) {
    if (nodes_[at].key == key) return at;
  }
  return kNoNode;
}

Tree::NodeId Tree::Child(NodeId container, uint32_t index) const {
  if (container >= nodes_.size() || index >= nodes_[container].children) return kNoNode;
  NodeId at = nodes_[container].first_child;
  while (index-- > 0) at = nodes_[at].next_sibling;
  return at;
}

void Tree::AppendKey(std::string_view key, std::string* path) {
  for (char c : key) {
    if (c == '.' || c == '\\') *path += '\\';
    *path += c;
  }
}

std::string Tree::PathOf(NodeId id) const {
  std::vector<NodeId> chain;
  for (NodeId at = id; at != root(); at = nodes_[at].parent) chain.push_back(at);
  std::reverse(chain.begin(), chain.end());
  std::string path;
  for (size_t i = 0; i < chain.size(); ++i) {
    if (i > 0) path += '.';
    const Node& node = nodes_[chain[i]];
    if (nodes_[node.parent].kind == Kind::kDict) {
      AppendKey(node.key, &path);
      continue;
    }
    uint32_t index = 0;
    for (NodeId at = nodes_[node.parent].first_child; at != chain[i]; at = nodes_[at].next_sibling) ++index;
    absl::StrAppend(&path, index);
  }
  return path;
}

Tree::NodeId Tree::FindPath(std::string_view path) const {
  NodeId at = root();
  if (path.empty() && Find(at, "") == kNoNode) return at;
  for (size_t i = 0; i <= path.size(); ++i) {
    std::string piece;
    for (; i < path.size() && path[i] != '.'; ++i) {
      if (path[i] == '\\' && i + 1 < path.size()) ++i;
      piece += path[i];
    }
    at = Resolve(at);
    if (nodes_[at].kind == Kind::kDict) {
      at = Find(at, piece);
    } else {
      uint64_t index = 0;
      const bool number = !piece.empty() && piece.size() < 10 &&
                          std::all_of(piece.begin(), piece.end(), [](char c) { return c >= '0' && c <= '9'; });
      for (char c : piece) index = index * 10 + static_cast<uint64_t>(c - '0');
      at = number ? Child(at, static_cast<uint32_t>(index)) : kNoNode;
    }
    if (at == kNoNode) return kNoNode;
  }
  return at;
}

void Tree::ForEachPath(const std::function<void(NodeId, const std::string&)>& visit) const {
  struct Level {
    size_t length;  // of the container's path
    uint32_t index;
  };
  std::vector<Level> levels;
  std::string path;
  NodeId at = root();
  for (;;) {
    visit(at, path);
    NodeId next = nodes_[at].first_child;
    if (next != kNoNode) {
      levels.push_back({path.size(), 0});
    } else {
      while (at != root() && nodes_[at].next_sibling == kNoNode) {
        at = nodes_[at].parent;
        levels.pop_back();
      }
      if (at == root()) return;
      next = nodes_[at].next_sibling;
      ++levels.back().index;
    }
    at = next;
    path.resize(levels.back().length);
    if (levels.size() > 1) path += '.';
    if (nodes_[nodes_[at].parent].kind == Kind::kDict) {
      AppendKey(nodes_[at].key, &path);
    } else {
      absl::StrAppend(&path, levels.back().index);
    }
  }
}

void Tree::ForEachPreorder(const std::function<void(NodeId)>& visit) const {
  NodeId at = root();
  for (;;) {
    visit(at);
    if (nodes_[at].first_child != kNoNode) {
      at = nodes_[at].first_child;
      continue;
    }
    while (at != root() && nodes_[at].next_sibling == kNoNode) at = nodes_[at].parent;
    if (at == root()) return;
    at = nodes_[at].next_sibling;
  }
}

bool operator==(const Tree& a, const Tree& b) {
  if (a.size() != b.size()) return false;
  std::vector<Tree::NodeId> order_a, order_b;
  std::vector<uint32_t> place_a(a.size()), place_b(b.size());
  a.ForEachPreorder([&](Tree::NodeId id) {
    place_a[id] = order_a.size();
    order_a.push_back(id);
  });
  b.ForEachPreorder([&](Tree::NodeId id) {
    place_b[id] = order_b.size();
    order_b.push_back(id);
  });
  for (size_t i = 0; i < order_a.size(); ++i) {
    const Tree::Node& x = a.node(order_a[i]);
    const Tree::Node& y = b.node(order_b[i]);
    if (x.kind != y.kind || x.key != y.key || x.children != y.children || x.depth != y.depth || x.text != y.text ||
        x.boolean != y.boolean || x.int64 != y.int64 ||
        std::bit_cast<uint64_t>(x.float64) != std::bit_cast<uint64_t>(y.float64)) {
      return false;
    }
    if (x.kind == Tree::Kind::kAlias && place_a[x.alias] != place_b[y.alias]) return false;
    if (x.kind == Tree::Kind::kTensor) {
      const Tree::TensorLeaf& s = a.tensors()[x.tensor];
      const Tree::TensorLeaf& t = b.tensors()[y.tensor];
      if (s.dtype != t.dtype || s.dims != t.dims) return false;
    }
  }
  return true;
}

}  // namespace weft
