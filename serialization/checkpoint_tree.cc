// Trees to messages and back: flat preorder on disk, linked nodes in memory.
#include <algorithm>

#include "serialization/checkpoint_schema.h"
#include "serialization/limits.h"
#include "serialization/message.h"
#include "serialization/schema/checkpoint.capnp.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr size_t kNodesPerFrame = 65536 / 2;
constexpr size_t kTreeFrameBytes = 2 << 20;

struct PlacedNode {
  Tree::NodeId id;
  uint32_t parent;  // in preorder
  uint32_t number;  // tensor id or alias in preorder
};

void PutNode(const Tree& tree, const PlacedNode& placed, schema::Node::Builder out) {
  const Tree::Node& node = tree.node(placed.id);
  out.setParent(placed.parent);
  if (placed.id != Tree::root() && tree.node(node.parent).kind == Tree::Kind::kDict) {
    out.setKeyKind(schema::KeyKind::TEXT);
    out.setKeyText(ToText(node.key));
  }
  switch (node.kind) {
    case Tree::Kind::kNone: out.setNone(); break;
    case Tree::Kind::kDict: out.setDict(node.children); break;
    case Tree::Kind::kList: out.setList(node.children); break;
    case Tree::Kind::kTuple: out.setTuple(node.children); break;
    case Tree::Kind::kTensor: out.setTensor(placed.number); break;
    case Tree::Kind::kAlias: out.setAlias(placed.number); break;
    case Tree::Kind::kBool: out.setBool(node.boolean); break;
    case Tree::Kind::kInt64: out.setInt64(node.int64); break;
    case Tree::Kind::kFloat64: out.setFloat64(node.float64); break;
    case Tree::Kind::kText: out.setText(ToText(node.text)); break;
    case Tree::Kind::kBytes: out.setBytes(ToData(node.text)); break;
  }
}

}  // namespace

absl::StatusOr<TreeEncoder> TreeEncoder::Of(const Tree& tree) {
  TreeEncoder encoder(&tree);
  encoder.order_.reserve(tree.size());
  std::vector<Tree::NodeId>& order = encoder.order_;
  uint32_t tensors = 0;
  absl::Status status;
  tree.ForEachPath([&](Tree::NodeId id, const std::string& path) {
    order.push_back(id);
    if (tree.node(id).kind != Tree::Kind::kTensor) return;
    ++tensors;
    if (path.size() > kMaxNameBytes && status.ok()) {
      status = UserError("the path of a tensor has ", path.size(), " bytes; at most ", kMaxNameBytes, " are allowed: '",
                         path.substr(0, 64), "…'");
    }
  });
  WEFT_RETURN_IF_ERROR(status);
  WEFT_RETURN_IF_ERROR(tree.CheckAliases());
  if (tensors > kMaxTensorsPerFile) return UserError("a checkpoint holds at most ", kMaxTensorsPerFile, " tensors");
  // Most trees were made in preorder: then a node's place is its number.
  bool in_order = true;
  for (uint32_t i = 0; i < order.size() && in_order; ++i) in_order = order[i] == i;
  if (!in_order) {
    encoder.place_.resize(order.size());
    for (uint32_t i = 0; i < order.size(); ++i) encoder.place_[order[i]] = i;
  }
  for (const Tree::NodeId id : order) {
    if (tree.node(id).kind == Tree::Kind::kTensor) encoder.leaves_.push_back(tree.node(id).tensor);
  }
  if (in_order) std::vector<Tree::NodeId>().swap(order);
  return encoder;
}

absl::StatusOr<bool> TreeEncoder::Next(Message* out) {
  const Tree& tree = *tree_;
  if (next_ == tree.size()) return false;
  const auto at = [&](uint32_t place) { return order_.empty() ? place : order_[place]; };
  const auto place_of = [&](Tree::NodeId id) { return place_.empty() ? id : place_[id]; };
  size_t bytes = 0;
  uint32_t count = 0;
  while (next_ + count < tree.size() && count < kNodesPerFrame && bytes < kTreeFrameBytes) {
    const Tree::Node& node = tree.node(at(next_ + count));
    bytes += 64 + node.key.size() + node.text.size();
    ++count;
  }
  const uint32_t tensors = tensors_;
  WEFT_RETURN_IF_ERROR(BuildMessage<schema::Tree>("a tree frame", bytes + 128, out, [&](schema::Tree::Builder root) {
    tensors_ = tensors;  // a second try, if the guess was too small
    root.setFirst(next_);
    auto nodes = root.initNodes(count);
    for (uint32_t i = 0; i < count; ++i) {
      const Tree::NodeId id = at(next_ + i);
      const Tree::Node& node = tree.node(id);
      PlacedNode placed = {id, place_of(node.parent), 0};
      if (node.kind == Tree::Kind::kTensor) placed.number = tensors_++;
      if (node.kind == Tree::Kind::kAlias) placed.number = place_of(node.alias);  // perhaps a later node
      PutNode(tree, placed, nodes[i]);
    }
  }));
  next_ += count;
  return true;
}

absl::Status TreeDecoder::Add(const Frame& frame, const std::string& file) {
  if (nodes_.empty()) offset_ = frame.offset;
  const auto bad = [&](const auto&... text) {
    return Damaged(file, frame.offset, "tree node ", nodes_.size(), " ", text...);
  };
  const auto decode = [&](schema::Node::Reader in, Flat* node) -> absl::Status {
    node->parent = in.getParent();
    if (in.getKeyKind() == schema::KeyKind::TEXT) {
      node->has_key = true;
      if (in.getKeyText().size() > kMaxNameBytes) return bad("has a key of ", in.getKeyText().size(), " bytes");
      node->key = FromText(in.getKeyText());
    } else if (in.getKeyKind() != schema::KeyKind::NONE) {
      return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file,
                         "': a dict in the tree has keys that are not text");
    }
    switch (in.which()) {
      case schema::Node::NONE: node->kind = Tree::Kind::kNone; break;
      case schema::Node::DICT:
        node->kind = Tree::Kind::kDict;
        node->number = in.getDict();
        break;
      case schema::Node::LIST:
        node->kind = Tree::Kind::kList;
        node->number = in.getList();
        break;
      case schema::Node::TUPLE:
        node->kind = Tree::Kind::kTuple;
        node->number = in.getTuple();
        break;
      case schema::Node::TENSOR:
        node->kind = Tree::Kind::kTensor;
        node->number = in.getTensor();
        if (node->number != tensors_) return bad("is tensor ", node->number, " where ", tensors_, " was expected");
        ++tensors_;
        break;
      case schema::Node::ALIAS:
        node->kind = Tree::Kind::kAlias;
        node->number = in.getAlias();
        break;
      case schema::Node::BOOL:
        node->kind = Tree::Kind::kBool;
        node->boolean = in.getBool();
        break;
      case schema::Node::INT64:
        node->kind = Tree::Kind::kInt64;
        node->int64 = in.getInt64();
        break;
      case schema::Node::FLOAT64:
        node->kind = Tree::Kind::kFloat64;
        node->float64 = in.getFloat64();
        break;
      case schema::Node::TEXT:
        node->kind = Tree::Kind::kText;
        node->text = FromText(in.getText());
        break;
      case schema::Node::BYTES:
        node->kind = Tree::Kind::kBytes;
        node->text = FromData(in.getBytes());
        break;
      default:
        return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file, "': the tree holds a node of unknown kind ",
                           static_cast<int>(in.which()));
    }
    return absl::OkStatus();
  };
  return ReadMessage<schema::Tree>(absl::StrCat("'", file, "': a tree frame"), frame.meta,
                                   [&](schema::Tree::Reader root) -> absl::Status {
                                     if (root.getFirst() != nodes_.size())
                                       return bad("was expected, the frame starts with node ", root.getFirst());
                                     if (nodes_.size() + root.getNodes().size() > kMaxTreeNodes)
                                       return bad("is one too many");
                                     for (const auto in : root.getNodes()) {
                                       Flat node;
                                       WEFT_RETURN_IF_ERROR(decode(in, &node));
                                       nodes_.push_back(std::move(node));
                                     }
                                     return absl::OkStatus();
                                   });
}

std::vector<std::string> TreeDecoder::Paths() const {
  std::vector<std::string> all(nodes_.size()), paths(tensors_);
  std::vector<uint32_t> children(nodes_.size(), 0);
  for (size_t i = 1; i < nodes_.size(); ++i) {
    const Flat& node = nodes_[i];
    if (node.parent >= i) continue;
    all[i] = node.parent == 0 ? "" : absl::StrCat(all[node.parent], ".");
    if (node.has_key) {
      Tree::AppendKey(node.key, &all[i]);
    } else {
      absl::StrAppend(&all[i], children[node.parent]);
    }
    ++children[node.parent];
    if (node.kind == Tree::Kind::kTensor) paths[node.number] = all[i];
  }
  return paths;
}

absl::StatusOr<Tree> TreeDecoder::Build(std::span<const IndexRecord> tensors, const std::string& file) const {
  const auto bad = [&](const auto&... text) { return Damaged(file, offset_, text...); };
  if (nodes_.empty()) return bad("the tree has no root");
  if (tensors.size() != tensors_) return bad("the tree has ", tensors_, " tensors, the index ", tensors.size());
  const auto value_of = [&](const Flat& flat) {
    Tree::Value value;
    value.kind = flat.kind;
    value.boolean = flat.boolean;
    value.int64 = flat.int64;
    value.float64 = flat.float64;
    value.text = flat.text;
    if (flat.kind == Tree::Kind::kTensor) {
      value.dtype = tensors[flat.number].tensor.logical;
      value.dims = tensors[flat.number].tensor.dims;
    }
    return value;
  };
  if (nodes_[0].kind == Tree::Kind::kAlias || nodes_[0].has_key || nodes_[0].parent != 0)
    return bad("the root of the tree is not valid");
  Tree tree(value_of(nodes_[0]));
  tree.Reserve(nodes_.size());
  for (uint32_t i = 1; i < nodes_.size(); ++i) {
    const Flat& flat = nodes_[i];
    // In preorder a node's container is the previous node or one of its ancestors.
    uint32_t at = i - 1;
    while (at != flat.parent && at != 0) at = tree.node(at).parent;
    if (at != flat.parent) return bad("tree node ", i, " follows no sibling or container of its own");
    if (flat.has_key != (nodes_[at].kind == Tree::Kind::kDict))
      return bad("tree node ", i, " has a key outside a dict, or none in one");
    const absl::StatusOr<Tree::NodeId> added = tree.Add(at, flat.key, value_of(flat));
    if (!added.ok()) return bad("tree node ", i, ": ", added.status().message());
  }
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (Tree::IsContainer(nodes_[i].kind) && tree.node(i).children != nodes_[i].number) {
      return bad("tree node ", i, " has ", tree.node(i).children, " children where ", nodes_[i].number,
                 " were announced");
    }
  }
  // Node ids of the new tree are preorder positions. An alias may come before what it stands for.
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].kind != Tree::Kind::kAlias) continue;
    const absl::Status pointed = tree.PointAlias(i, nodes_[i].number);
    if (!pointed.ok()) return bad("tree node ", i, ": ", pointed.message());
  }
  const absl::Status aliases = tree.CheckAliases();
  if (!aliases.ok()) return bad(aliases.message());
  absl::Status names;
  tree.ForEachPath([&](Tree::NodeId id, const std::string& path) {
    const Tree::Node& node = tree.node(id);
    if (node.kind == Tree::Kind::kTensor && tensors[node.tensor].tensor.name != path && names.ok()) {
      names = bad("tensor ", node.tensor, " is called '", tensors[node.tensor].tensor.name,
                  "', its place in the tree is '", path, "'");
    }
  });
  WEFT_RETURN_IF_ERROR(names);
  return tree;
}

}  // namespace weft
