// Trees are flat vectors with links: a million leaves are a few allocations, and no walk recurses.
#include "serialization/tree.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/hash/hash.h"
#include "serialization/limits.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

// Seeded by where the library lies, so that a file cannot be made whose keys all meet in one slot.
uint32_t HashKey(Tree::NodeId dict, std::string_view key) { return static_cast<uint32_t>(absl::HashOf(dict, key)); }

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

Tree::Tree(const Value& root) : rep_(MakeRef<Rep>()) {
  rep_->nodes.emplace_back();
  Fill(*rep_, 0, root);
}

Tree::Rep& Tree::Own() {
  if (rep_->shared()) rep_ = MakeRef<Rep>(*rep_);
  return *rep_;
}

size_t Tree::Rep::SlotOf(NodeId dict, std::string_view key) const {
  const uint32_t hash = HashKey(dict, key);
  size_t at = hash & (slots.size() - 1);
  for (; slots[at].id != kNoNode; at = (at + 1) & (slots.size() - 1)) {
    if (slots[at].hash != hash) continue;
    const Node& node = nodes[slots[at].id];
    if (node.parent == dict && node.key == key) break;
  }
  return at;
}

// Room for so many keys. Whoever was there before stands first, as if it had come to the new table first.
void Tree::Rep::Grow(size_t wanted) {
  size_t size = 16;
  while (size < 2 * wanted) size *= 2;
  if (size <= slots.size()) return;
  slots.assign(size, Slot());
  for (NodeId id = 1; id < nodes.size(); ++id) {
    const Node& node = nodes[id];
    if (nodes[node.parent].kind == Kind::kDict)
      slots[SlotOf(node.parent, node.key)] = {HashKey(node.parent, node.key), id};
  }
}

void Tree::Reserve(size_t count) {
  Rep& rep = Own();
  rep.nodes.reserve(count);
  rep.Grow(count);
}

void Tree::Fill(Rep& rep, NodeId id, const Value& value) {
  Node& node = rep.nodes[id];
  node.kind = value.kind;
  node.boolean = value.boolean;
  node.int64 = value.int64;
  node.float64 = value.float64;
  node.text = value.text;
  node.alias = value.alias;
  if (value.kind == Kind::kTensor) {
    node.tensor = static_cast<uint32_t>(rep.tensors.size());
    rep.tensors.push_back({value.dtype, Dims(value.dims.begin(), value.dims.end()), id});
  }
}

absl::Status Tree::Check(NodeId container, std::string_view key, const Value& value) const {
  if (container >= size()) return UserError("tree node ", container, " does not exist; the tree has ", size());
  const Node& parent = node(container);
  if (!IsContainer(parent.kind)) {
    return UserError("cannot add to tree node '", PathOf(container), "': it is a ", NameOf(parent.kind),
                     ", not a dict, list or tuple");
  }
  if (size() >= kMaxTreeNodes) return UserError("a tree holds at most ", kMaxTreeNodes, " nodes");
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
  if (target >= size()) return UserError("an alias stands for tree node ", target, ", which does not exist");
  if (this->node(target).kind == Kind::kAlias) return UserError("an alias in a tree cannot stand for another alias");
  // A container as alias of its own ancestor would be a cycle.
  for (NodeId at = container;; at = this->node(at).parent) {
    if (at == target) return UserError("an alias in a tree cannot stand for a container that holds it");
    if (at == root()) return absl::OkStatus();
  }
}

absl::Status Tree::PointAlias(NodeId alias, NodeId target) {
  if (alias == root() || alias >= size() || this->node(alias).kind != Kind::kAlias) {
    return UserError("tree node ", alias, " is no alias");
  }
  WEFT_RETURN_IF_ERROR(CheckTarget(this->node(alias).parent, target));
  Own().nodes[alias].alias = target;
  return absl::OkStatus();
}

absl::Status Tree::CheckAliases() const {
  bool to_container = false;
  for (NodeId id = 0; id < size(); ++id) {
    const Node& node = this->node(id);
    if (node.kind != Kind::kAlias) continue;
    if (node.alias == kNoNode) return UserError("alias '", PathOf(id), "' stands for nothing");
    to_container = to_container || IsContainer(this->node(node.alias).kind);
  }
  if (!to_container) return absl::OkStatus();
  // A walk down that follows aliases: a node that is met again while it is open is its own descendant.
  enum State : uint8_t { kNew, kOpen, kDone };
  std::vector<State> states(size(), kNew);
  struct Level {
    NodeId container, child;
  };
  std::vector<Level> open = {{root(), node(root()).first_child}};
  states[root()] = kOpen;
  while (!open.empty()) {
    if (open.back().child == kNoNode) {
      states[open.back().container] = kDone;
      open.pop_back();
      continue;
    }
    const NodeId child = std::exchange(open.back().child, node(open.back().child).next_sibling);
    const NodeId at = Resolve(child);
    if (!IsContainer(this->node(at).kind) || states[at] == kDone) continue;
    if (states[at] == kOpen) return UserError("alias '", PathOf(child), "' leads round in a circle to what holds it");
    states[at] = kOpen;
    open.push_back({at, this->node(at).first_child});
  }
  return absl::OkStatus();
}

absl::StatusOr<Tree::NodeId> Tree::Add(NodeId container, std::string_view key, const Value& value) {
  WEFT_RETURN_IF_ERROR(Check(container, key, value));
  Rep& rep = Own();
  const bool keyed = rep.nodes[container].kind == Kind::kDict;
  if (keyed) rep.Grow(rep.keys + 1);
  const NodeId id = static_cast<NodeId>(rep.nodes.size());
  const size_t leaves = rep.tensors.size();
  rep.nodes.emplace_back();
  absl::Cleanup undo = [&] {  // memory ran out
    rep.nodes.pop_back();
    rep.tensors.erase(rep.tensors.begin() + static_cast<ptrdiff_t>(leaves), rep.tensors.end());
  };
  Fill(rep, id, value);
  Node& node = rep.nodes[id];
  Node& parent = rep.nodes[container];
  node.parent = container;
  node.depth = parent.depth + 1;
  node.key = key;
  std::move(undo).Cancel();
  if (keyed) {
    rep.slots[rep.SlotOf(container, key)] = {HashKey(container, key), id};
    ++rep.keys;
  }
  if (parent.first_child == kNoNode) {
    parent.first_child = id;
  } else {
    rep.nodes[parent.last_child].next_sibling = id;
  }
  parent.last_child = id;
  ++parent.children;
  return id;
}

void Tree::TakeBack(NodeId first) {
  if (first >= size()) return;  // nothing was added: the nodes may be shared, and there may be no memory for own ones
  Rep& rep = Own();
  for (NodeId id = static_cast<NodeId>(rep.nodes.size()); id-- > first;) {
    const Node& node = rep.nodes[id];
    Node& parent = rep.nodes[node.parent];
    if (parent.kind == Kind::kDict) {
      rep.slots[rep.SlotOf(node.parent, node.key)] = Slot();
      --rep.keys;
    }
    if (node.parent < first) {
      NodeId before = parent.first_child == id ? kNoNode : parent.first_child;
      while (before != kNoNode && rep.nodes[before].next_sibling != id) before = rep.nodes[before].next_sibling;
      (before == kNoNode ? parent.first_child : rep.nodes[before].next_sibling) = kNoNode;
      parent.last_child = before;
      --parent.children;
    }
    if (node.kind == Kind::kTensor) rep.tensors.pop_back();
    rep.nodes.pop_back();
  }
}

Tree::NodeId Tree::Find(NodeId dict, std::string_view key) const {
  if (dict >= size() || this->node(dict).kind != Kind::kDict || rep_->keys == 0) return kNoNode;
  return rep_->slots[rep_->SlotOf(dict, key)].id;
}

Tree::NodeId Tree::Child(NodeId container, uint32_t index) const {
  if (container >= size() || index >= this->node(container).children) return kNoNode;
  NodeId at = this->node(container).first_child;
  while (index-- > 0) at = this->node(at).next_sibling;
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
  for (NodeId at = id; at != root(); at = this->node(at).parent) chain.push_back(at);
  std::reverse(chain.begin(), chain.end());
  std::string path;
  for (size_t i = 0; i < chain.size(); ++i) {
    if (i > 0) path += '.';
    const Node& node = this->node(chain[i]);
    if (this->node(node.parent).kind == Kind::kDict) {
      AppendKey(node.key, &path);
      continue;
    }
    uint32_t index = 0;
    for (NodeId at = this->node(node.parent).first_child; at != chain[i]; at = this->node(at).next_sibling) ++index;
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
    if (node(at).kind == Kind::kDict) {
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
    NodeId next = node(at).first_child;
    if (next != kNoNode) {
      levels.push_back({path.size(), 0});
    } else {
      while (at != root() && node(at).next_sibling == kNoNode) {
        at = node(at).parent;
        levels.pop_back();
      }
      if (at == root()) return;
      next = node(at).next_sibling;
      ++levels.back().index;
    }
    at = next;
    path.resize(levels.back().length);
    if (levels.size() > 1) path += '.';
    if (node(node(at).parent).kind == Kind::kDict) {
      AppendKey(node(at).key, &path);
    } else {
      absl::StrAppend(&path, levels.back().index);
    }
  }
}

void Tree::ForEachPreorder(const std::function<void(NodeId)>& visit) const {
  NodeId at = root();
  for (;;) {
    visit(at);
    if (node(at).first_child != kNoNode) {
      at = node(at).first_child;
      continue;
    }
    while (at != root() && node(at).next_sibling == kNoNode) at = node(at).parent;
    if (at == root()) return;
    at = node(at).next_sibling;
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
