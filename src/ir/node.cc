// Creation and iterative destruction of nodes.
#include "src/ir/node.h"

#include "src/ir/differentiable.h"
#include "src/ir/function.h"

namespace weft::ir {
namespace {

std::atomic<uint64_t> next_id{1};

}  // namespace

static_assert(sizeof(Node) <= 256, "recording is mostly the making of nodes: four cache lines");

Node::Node() = default;
Node::~Node() = default;

std::span<const Ref<const Function>> Node::regions() const {
  return regions_ == nullptr ? std::span<const Ref<const Function>>() : regions_->functions;
}

Ref<const Node> Node::Create(const OpDef& op, Values operands, Attrs attrs, Types results,
                             std::unique_ptr<const Regions> regions, Location location,
                             std::unique_ptr<const NodeExtras> extras) {
  Node* node = new Node();
  node->op_ = &op;
  node->id_ = next_id.fetch_add(1, std::memory_order_relaxed);
  for (const Value& operand : operands) {
    if (!operand) continue;
    ++operand.node->users_;
    if (operand.node->needs_gradient()) node->needs_gradient_ = true;
  }
  // Integers and truth values carry no gradient on.
  if (node->needs_gradient_ && !results.empty()) {
    bool flows = false;
    for (const Type& type : results) flows = flows || !type.is_tensor() || CarriesGradient(type.dtype);
    node->needs_gradient_ = flows;
  }
  node->operands_ = std::move(operands);
  node->attrs_ = std::move(attrs);
  node->results_ = std::move(results);
  node->regions_ = std::move(regions);
  node->location_ = location;
  node->extras_ = std::move(extras);
  return Ref<const Node>(node);
}

void Node::ForgetOperands() const {
  Values gone;
  gone.swap(operands_);
  for (const Value& operand : gone) {
    if (operand) --operand.node->users_;
  }
}

void Node::Destroy(const Node* node) {
  // The list is threaded through next_dead_, so that destruction needs neither stack nor heap.
  const Node* dead = node;
  dead->next_dead_ = nullptr;
  while (dead != nullptr) {
    Node* current = const_cast<Node*>(dead);
    dead = current->next_dead_;
    for (Value& operand : current->operands_) {
      const Node* child = operand.node.Release();
      if (child == nullptr) continue;
      --child->users_;
      if (child->DropRef()) {
        child->next_dead_ = dead;
        dead = child;
      }
    }
    delete current;
  }
}

}  // namespace weft::ir
