// Common subexpressions. Random operations are functions of their state, so equal states give equal numbers.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "src/ir/rewrite.h"
#include "src/passes/passes.h"

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

struct Hash {
  size_t operator()(const Node* node) const {
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
};

struct Equal {
  bool operator()(const Node* a, const Node* b) const {
    if (&a->op() != &b->op() || !(a->attrs() == b->attrs())) return false;
    if (Commutes(*a) && Commutes(*b)) {
      const auto [a0, a1] = Ordered(*a);
      const auto [b0, b1] = Ordered(*b);
      if (!(*a0 == *b0) || !(*a1 == *b1)) return false;
    } else if (!std::ranges::equal(a->operands(), b->operands())) {
      return false;
    }
    if (!std::ranges::equal(a->results(), b->results()) || !std::ranges::equal(a->regions(), b->regions()))
      return false;
    if (a->extras() == nullptr || b->extras() == nullptr) return a->extras() == b->extras();
    return *a->extras() == *b->extras();
  }
};

// Tokens order effects; operations that touch them are not functions of their operands.
bool HasToken(const Node& node) {
  auto is_token = [](const ir::Type& type) { return type.kind == ir::Type::Kind::kToken; };
  for (const ir::Value& operand : node.operands()) {
    if (operand && is_token(operand.type())) return true;
  }
  return std::ranges::any_of(node.results(), is_token);
}

absl::StatusOr<Ref<const ir::Function>> MergeIn(const ir::Function& function) {
  // Of each function its own: nothing in a region may be an operand outside it.
  absl::flat_hash_map<const ir::Function*, absl::flat_hash_set<const Node*, Hash, Equal>> seen;
  std::vector<Ref<const Node>> alive;  // the set's nodes, some of them new
  return ir::Rewrite(function, [&](const ir::RewriteCall& call) -> ir::Values {
    if (call.node.op().opaque || HasToken(call.node)) return {};
    Ref<const Node> node = ir::WithOperands(call.node, call.operands, call.regions);
    auto [first, added] = seen[&call.function].insert(node.get());
    if (added) alive.push_back(node);
    const Ref<const Node> kept = Ref<const Node>::Share(*first);
    ir::Values results;
    for (uint32_t i = 0; i < kept->results().size(); ++i) results.push_back(ir::Value{kept, i});
    return results;
  });
}

}  // namespace

absl::StatusOr<ir::Module> MergeEqual(const ir::Module& module, const PipelineOptions&) {
  ir::Module result = module;
  for (Ref<const ir::Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, MergeIn(*function));
  }
  return result;
}

}  // namespace weft::passes
