// See views.h.
#include "src/backends/cpu/lower/views.h"

#include <algorithm>
#include <vector>

#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"

namespace weft::cpu {
namespace {

using ir::Ints;
using ir::Node;
using ir::Value;

bool IsStep(const Node& node) {
  const ir::OpDef& op = node.op();
  return &op == &ops::kOp_transpose || &op == &ops::kOp_slice || &op == &ops::kOp_reshape;
}

// Returns the steps by which a node only renumbers its operand's elements; empty: it does something else.
std::vector<const Node*> StepsOf(const Node& node) {
  if (IsStep(node)) return {&node};
  if (&node.op() != &ops::kOp_fusion || node.operands().size() != 1 || node.results().size() != 1) return {};
  std::vector<const Node*> steps;
  for (const Node* inner : node.regions()[0]->nodes()) {
    if (inner->op().parameter) continue;
    // A chain: the nodes are in order and each is used.
    if (!IsStep(*inner) || (!steps.empty() && inner->operands()[0].node.get() != steps.back())) return {};
    steps.push_back(inner);
  }
  return steps;
}

// Strides of the same elements in another shape; false if there are none.
bool Reshaped(const Dims& from, const Dims& to, Dims* strides) {
  Dims found(to.size(), 0);
  size_t f = from.size();
  int64_t left = 1, next = 0;  // elements of `from` that no dimension of `to` has yet, `next` apart
  for (size_t t = to.size(); t-- > 0;) {
    while (left % to[t] != 0 || (left == 1 && to[t] > 1)) {
      while (f > 0 && from[f - 1] == 1) --f;
      if (f == 0) return false;
      --f;
      if (left > 1 && (*strides)[f] != next * left) return false;
      if (left == 1) next = (*strides)[f];
      left *= from[f];
    }
    found[t] = next;
    next *= to[t];
    left /= to[t];
  }
  *strides = std::move(found);
  return true;
}

bool Apply(const Node& step, View* view) {
  if (&step.op() == &ops::kOp_reshape) return Reshaped(step.operands()[0].dims(), step.type().dims, &view->strides);
  Dims strides;
  if (&step.op() == &ops::kOp_transpose) {
    for (const int64_t d : ops::TransposeAttrs{step.attrs()}.permutation()) strides.push_back(view->strides[d]);
  } else {
    const ops::SliceAttrs slice{step.attrs()};
    for (size_t d = 0; d < view->strides.size(); ++d) {
      view->offset += slice.start_indices()[d] * view->strides[d];
      strides.push_back(slice.strides()[d] * view->strides[d]);
    }
  }
  view->strides = std::move(strides);
  return true;
}

// A value as elements of what so many nodes have moved; false if strides cannot say it.
bool Behind(const Value& value, size_t nodes, View* view) {
  std::vector<std::vector<const Node*>> steps;
  Value base = value;
  for (size_t i = 0; i < nodes; ++i) {
    steps.push_back(StepsOf(*base.node));
    base = base.node->operands()[0];
  }
  *view = {base, 0, StridesOf(base.dims())};
  for (size_t i = nodes; i-- > 0;) {
    for (const Node* step : steps[i]) {
      if (!Apply(*step, view)) return false;
    }
  }
  return true;
}

}  // namespace

View Views::Read(const Node& node, size_t operand, Reads reads) {
  const Value& value = node.operands()[operand];
  View best = {value, 0, StridesOf(value.dims())};
  Value base = value;
  for (size_t depth = 1; !StepsOf(*base.node).empty(); ++depth) {
    base = base.node->operands()[0];
    View view;
    if (Behind(value, depth, &view) && reads(node, operand, view)) best = std::move(view);
  }
  return best;
}

View Views::Written(const Node& node) const {
  const auto found = written_.find(&node);
  if (found != written_.end()) return found->second;
  const Value result{Ref<const Node>::Share(&node), 0};
  return {result, 0, StridesOf(result.dims())};
}

void Views::Find(const ir::Function& function, Reads (*reads)(const ir::OpDef& op)) {
  const auto nodes = function.nodes();
  if (std::ranges::none_of(nodes, [&](const Node* node) { return reads(node->op()) != nullptr; })) return;
  absl::flat_hash_set<const Node*> wanted;                           // somebody reads what they write
  absl::flat_hash_map<const Node*, std::vector<const Node*>> users;  // of operations that take strides
  for (const Value& result : function.results()) {
    wanted.insert(result.node.get());
    users[result.node.get()].push_back(nullptr);
  }
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = *nodes[i];
    const Reads takes = reads(node.op());
    if (takes == nullptr && !wanted.contains(&node) && !StepsOf(node).empty()) {
      left_out_.insert(&node);
      continue;
    }
    for (size_t k = 0; k < node.operands().size(); ++k) {
      const Value& operand = node.operands()[k];
      if (!operand) continue;
      const Node* const base = takes != nullptr ? Read(node, k, takes).base.node.get() : operand.node.get();
      wanted.insert(base);
      if (reads(base->op()) != nullptr) users[base].push_back(&node);
    }
  }
  for (const Node* node : nodes) {
    if (reads(node->op()) == nullptr || node->results().size() != 1 || users[node].size() != 1) continue;
    const Node* const user = users[node][0];
    if (user == nullptr || reads(user->op()) != nullptr) continue;
    const std::vector<const Node*> steps = StepsOf(*user);
    if (steps.empty() || std::ranges::any_of(steps, [](const Node* s) { return &s->op() != &ops::kOp_transpose; })) {
      continue;
    }
    // Where each dimension of the result ends up.
    const Value to{Ref<const Node>::Share(user), 0};
    Ints from = ops::TransposeAttrs{steps[0]->attrs()}.permutation();
    for (size_t s = 1; s < steps.size(); ++s) {
      Ints next;
      for (const int64_t d : ops::TransposeAttrs{steps[s]->attrs()}.permutation()) next.push_back(from[d]);
      from = next;
    }
    if (from.back() + 1 != static_cast<int64_t>(from.size())) continue;
    const Dims strides = StridesOf(to.dims());
    View view = {to, 0, Dims(from.size())};
    for (size_t d = 0; d < from.size(); ++d) view.strides[from[d]] = strides[d];
    written_[node] = std::move(view);
    left_out_.insert(user);
  }
}

}  // namespace weft::cpu
