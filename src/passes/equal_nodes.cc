// Hashes and comparisons of nodes by all but their results' names and places.
#include "src/passes/equal_nodes.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "src/ir/function.h"
#include "src/ir/op_def.h"

namespace weft::passes {
namespace {

using ir::Node;

// Hashing a large literal whole would cost more than the merge saves; its type and its first bytes tell most apart.
constexpr size_t kHashedBytes = 1024;

struct AttrHash {
  size_t operator()(const Ref<const Literal>& literal) const {
    if (literal == nullptr) return 0;
    const auto bytes = literal->value.bytes();
    return absl::HashOf(
        literal->value.dtype(), literal->value.dims(),
        std::string_view(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kHashedBytes)));
  }
  size_t operator()(double value) const { return absl::HashOf(__builtin_bit_cast(uint64_t, value)); }
  size_t operator()(const std::vector<double>& values) const { return absl::HashOf(values.size()); }
  size_t operator()(std::monostate) const { return 0; }
  template <typename T>
  size_t operator()(const T& value) const {
    return absl::HashOf(value);
  }
};

// A commutative operation's two operands in one order. Exact: IEEE addition and multiplication commute.
std::pair<const ir::Value*, const ir::Value*> Ordered(const Node& node) {
  const ir::Value* a = &node.operands()[0];
  const ir::Value* b = &node.operands()[1];
  if (std::pair(b->node->id(), b->result) < std::pair(a->node->id(), a->result)) std::swap(a, b);
  return {a, b};
}

bool Commutes(const Node& node) {
  return node.op().commutative && node.operands().size() == 2 && node.operands()[0] && node.operands()[1];
}

}  // namespace

size_t HashNode::operator()(const Node* node) const {
  size_t hash = absl::HashOf(&node->op());
  if (Commutes(*node)) {
    const auto [a, b] = Ordered(*node);
    hash = absl::HashOf(hash, *a, *b);
  } else {
    for (const ir::Value& operand : node->operands()) hash = absl::HashOf(hash, operand);
  }
  for (size_t i = 0; i < node->attrs().size(); ++i) {
    if (node->attrs().has(i)) hash = absl::HashOf(hash, i, std::visit(AttrHash(), node->attrs().at(i)));
  }
  return hash;
}

bool EqualNodes::operator()(const Node* a, const Node* b) const {
  if (&a->op() != &b->op() || !(a->attrs() == b->attrs())) return false;
  if (Commutes(*a) && Commutes(*b)) {
    const auto [a0, a1] = Ordered(*a);
    const auto [b0, b1] = Ordered(*b);
    if (!(*a0 == *b0) || !(*a1 == *b1)) return false;
  } else if (!std::ranges::equal(a->operands(), b->operands())) {
    return false;
  }
  if (!std::ranges::equal(a->results(), b->results()) || !std::ranges::equal(a->regions(), b->regions())) return false;
  if (a->extras() == nullptr || b->extras() == nullptr) return a->extras() == b->extras();
  return *a->extras() == *b->extras();
}

}  // namespace weft::passes
