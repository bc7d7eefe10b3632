// One look at the function decides for whole groups of values that share an order of dimensions (what elementwise operations,
// pads, concatenations and pooling join; convolutions stand between groups). A second one rewrites.
#include "src/passes/move_channels.h"

#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/ops/conv/conv_shape.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/literals.h"
#include "src/passes/dimension_orders.h"

namespace weft::passes {
namespace {

using ir::Builder;
using ir::Ints;
using ir::Node;
using ir::Value;

constexpr int kNone = -1;

// The weight of an order of dimensions, in bytes that a copy would move.
double BytesOfValue(const Value& value) {
  return static_cast<double>(value.type().count()) * std::max(BytesOf(value.dtype()), 1);
}

// The values of a function that may have another order, in groups that have one together.
class Groups {
 public:
  explicit Groups(const ir::Function& function) : nodes_(function.nodes().begin(), function.nodes().end()) {
    for (const Node* node : nodes_) wanted_ = wanted_ || HasWish(*node);
    if (!wanted_) return;
    index_.reserve(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) index_.emplace(nodes_[i], static_cast<int>(i));
    parent_.resize(nodes_.size());
    std::iota(parent_.begin(), parent_.end(), 0);
    order_.resize(nodes_.size());
    gain_.resize(nodes_.size());
    Join();
    Wish();
    Weigh();
    for (const Value& result : function.results()) Leaves(result);
  }

  // The order in which the node shall give its result; null: as it is.
  const Ints* OrderOf(const Node& node) const {
    if (!wanted_) return nullptr;
    const int root = RootOf(node);
    return root != kNone && gain_[root] > 0 ? &order_[root] : nullptr;
  }

 private:
  static bool HasWish(const Node& node) {
    const std::optional<Wishes> wishes = WishesOf(node);
    if (!wishes) return false;
    const auto asks = [](const Ints& order) { return !order.empty() && order != ops::Axes(order.size()); };
    return asks(wishes->result) || std::ranges::any_of(wishes->operands, asks);
  }

  int Root(int i) const {
    while (parent_[i] != i) i = parent_[i];
    return i;
  }
  // kNone for what has no other order.
  int RootOf(const Node& node) const {
    if (!IsPermutable(node)) return kNone;
    return Root(index_.at(&node));
  }
  int RootOf(const Value& value) const { return value ? RootOf(*value.node) : kNone; }

  void Join() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = *nodes_[i];
      if (!IsPermutable(node) || IsConvolution(node)) continue;
      for (const Value& operand : node.operands()) {
        if (!SharesOrder(node, operand) || !IsPermutable(*operand.node)) continue;
        // The younger root joins the older; paths are halved on the way.
        int a = Root(static_cast<int>(i)), b = Root(index_.at(operand.node.get()));
        if (a > b) std::swap(a, b);
        parent_[b] = a;
        parent_[i] = a;
      }
    }
  }

  // The first convolution or pooling that asks decides for its group.
  void Wish() {
    const auto ask = [&](const Value& value, const Ints& order) {
      const int root = RootOf(value);
      if (root != kNone && order_[root].empty() && !order.empty() && order != ops::Axes(order.size())) {
        order_[root] = order;
      }
    };
    for (const Node* node : nodes_) {
      const std::optional<Wishes> wishes = WishesOf(*node);
      if (!wishes) continue;
      ask({Ref<const Node>::Share(node), 0}, wishes->result);
      for (size_t i = 0; i < wishes->operands.size(); ++i) ask(node->operands()[i], wishes->operands[i]);
    }
  }

  // Adds the bytes of copies that moving a value to its group's order saves, where its reader or writer wants `wish`.
  void Compare(const Value& value, const Ints& wish, double bytes) {
    const int root = RootOf(value);
    if (root == kNone || order_[root].empty() || wish.empty()) return;
    const bool before = wish == ops::Axes(wish.size()), after = wish == order_[root];
    gain_[root] += (static_cast<int>(after) - static_cast<int>(before)) * bytes;
  }
  void CompareAll(const Node& node, const Wishes& wishes) {
    const Value result{Ref<const Node>::Share(&node), 0};
    double bytes = BytesOfValue(result);
    if (IsConvolution(node)) {
      Compare(result, wishes.result, bytes);
      for (size_t i = 0; i < wishes.operands.size(); ++i)
        Compare(node.operands()[i], wishes.operands[i], BytesOfValue(node.operands()[i]));
      return;
    }
    for (const Value& operand : node.operands()) bytes += BytesOfValue(operand);
    Compare(result, wishes.result, wishes.weight * bytes);
  }

  void Weigh() {
    for (const Node* node : nodes_) {
      if (const std::optional<Wishes> wishes = WishesOf(*node)) CompareAll(*node, *wishes);
      if (IsConvolution(*node)) continue;
      const int root = RootOf(*node);
      for (const Value& operand : node->operands()) {
        if (!operand) continue;
        const int from = RootOf(operand);
        if (from == kNone) {
          if (root != kNone && SharesOrder(*node, operand)) Enters(operand, root);
        } else if (&node->op() == &ops::kOp_transpose) {
          Turns(operand, ops::TransposeAttrs{node->attrs()}.permutation());
        } else if (from != root && &node->op() != &ops::kOp_reduce) {
          Leaves(operand);
        }
      }
    }
  }

  // A value of an unknown order is an operand of the group: moving the group makes a transpose of it.
  void Enters(const Value& operand, int root) {
    if (order_[root].empty() || !entered_.insert({operand, root}).second) return;
    const Node& node = *operand.node;
    if (&node.op() == &ops::kOp_broadcast_in_dim || ops::UniformLiteral(operand) != nullptr) return;
    if (MovesNothing(operand.dims(), order_[root])) return;
    if (&node.op() == &ops::kOp_transpose && node.extras() == nullptr) {
      const Ints& permutation = ops::TransposeAttrs{node.attrs()}.permutation();
      if (Composed(permutation, order_[root]) == ops::Axes(permutation.size())) {
        gain_[root] += BytesOfValue(operand);  // the two cancel
      }
      return;
    }
    gain_[root] -= BytesOfValue(operand);
  }
  void Turns(const Value& operand, const Ints& permutation) {
    const int root = RootOf(operand);
    if (order_[root].empty()) return;
    if (permutation == order_[root]) gain_[root] += BytesOfValue(operand);
  }
  // Somebody wants the value as it was.
  void Leaves(const Value& value) {
    const int root = wanted_ ? RootOf(value) : kNone;
    if (root == kNone || order_[root].empty() || MovesNothing(value.dims(), order_[root])) return;
    if (left_.insert(value).second) gain_[root] -= BytesOfValue(value);
  }

  std::vector<const Node*> nodes_;
  bool wanted_ = false;
  absl::flat_hash_map<const Node*, int> index_;
  std::vector<int> parent_;
  std::vector<Ints> order_;   // by root; empty: nobody asks
  std::vector<double> gain_;  // by root
  absl::flat_hash_set<std::pair<Value, int>> entered_;
  absl::flat_hash_set<Value> left_;
};

// Makes the nodes. Thread rule: one thread, one function.
class Mover {
 public:
  explicit Mover(const ir::Function& function) : groups_(function) {}

  ir::Values Rewrite(const ir::RewriteCall& call) {
    const Node& node = call.node;
    const Ints* order = groups_.OrderOf(node);
    if (IsConvolution(node)) return Convolution(call, order);
    if (order != nullptr) return Moved(call, *order);
    if (&node.op() == &ops::kOp_transpose && node.extras() == nullptr && made_.contains(call.operands[0])) {
      return {Permuted(call.b, call.operands[0], ops::TransposeAttrs{node.attrs()}.permutation())};
    }
    return {};
  }

 private:
  ir::Values Moved(const ir::RewriteCall& call, const Ints& order) {
    ir::Values operands;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      const bool moves = SharesOrder(call.node, call.node.operands()[i]);
      operands.push_back(moves ? Permuted(call.b, call.operands[i], order) : call.operands[i]);
    }
    const Value made = call.b.Emit(call.node.op(), std::move(operands), PermutedAttrs(call.node, order));
    return {Back(call.b, made, order)};
  }

  // Operands are read through transposes where the kernels would copy them in any case, or need not then.
  ir::Values Convolution(const ir::RewriteCall& call, const Ints* order) {
    const std::optional<Wishes> wishes = WishesOf(call.node);
    if (!wishes) return {};
    ir::Attrs attrs = call.node.attrs();
    ir::Values operands = call.operands;
    bool changed = order != nullptr;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Node& from = *operands[i].node;
      if (&from.op() != &ops::kOp_transpose || from.extras() != nullptr) continue;
      if (wishes->operands[i] == ops::Axes(wishes->operands[i].size())) continue;  // reads it as it lies
      SetConvDims(call.node, i, ops::TransposeAttrs{from.attrs()}.permutation(), &attrs);
      operands[i] = Value(from.operands()[0]);
      changed = true;
    }
    if (!changed) return {};
    if (order != nullptr) SetConvResult(call.node, *order, &attrs);
    const Value made = call.b.Emit(call.node.op(), std::move(operands), std::move(attrs));
    return {order != nullptr ? Back(call.b, made, *order) : made};
  }

  // Transposes a value that was made in another order back to the old one.
  Value Back(Builder& b, const Value& made, const Ints& order) {
    if (!made) return {};
    const Value old = Transposed(b, made, Inverse(order));
    made_.emplace(old, std::pair(made, order));
    return old;
  }

  // x in this order, where that is there or takes no copy; else a transpose of it, one for all who ask.
  Value Permuted(Builder& b, const Value& x, const Ints& order) {
    const auto known = made_.find(x);
    if (known != made_.end() && known->second.second == order) return known->second.first;
    const auto copied = copies_.find({x, order});
    if (copied != copies_.end()) return copied->second;
    const Value made = known != made_.end()
                           ? Transposed(b, known->second.first, Composed(Inverse(known->second.second), order))
                           : Turned(b, x, order);
    copies_.emplace(std::pair(x, order), made);
    return made;
  }

  static Value Turned(Builder& b, const Value& x, const Ints& order) {
    const Node& node = *x.node;
    Dims dims;
    for (int64_t d : order) dims.push_back(x.dims()[d]);
    if (const Ref<const Literal> literal = ops::UniformLiteral(x); literal != nullptr) {
      return ops::BroadcastInDim(b, ops::Constant(b, literal->value), dims, {});
    }
    if (node.extras() == nullptr && &node.op() == &ops::kOp_broadcast_in_dim) {
      const Ints inverse = Inverse(order);
      Ints positions;
      for (int64_t p : ops::BroadcastInDimAttrs{node.attrs()}.broadcast_dimensions()) positions.push_back(inverse[p]);
      return ops::BroadcastInAnyOrder(b, node.operands()[0], dims, std::move(positions));
    }
    if (node.extras() == nullptr && &node.op() == &ops::kOp_transpose) {
      return Transposed(b, node.operands()[0], Composed(ops::TransposeAttrs{node.attrs()}.permutation(), order));
    }
    return Transposed(b, x, order);
  }

  static Value Transposed(Builder& b, const Value& x, Ints permutation) {
    if (permutation == ops::Axes(permutation.size())) return x;
    if (!MovesNothing(x.dims(), permutation)) return ops::Transpose(b, x, std::move(permutation));
    Dims dims;
    for (int64_t d : permutation) dims.push_back(x.dims()[d]);
    return ops::Reshape(b, x, dims);
  }

  Groups groups_;
  absl::flat_hash_map<Value, std::pair<Value, Ints>> made_;  // in the old order: as it was made, and in which
  absl::flat_hash_map<std::pair<Value, Ints>, Value> copies_;
};

}  // namespace

absl::StatusOr<Ref<const ir::Function>> MoveChannels(const ir::Function& function) {
  const ir::Function* current = nullptr;
  std::optional<Mover> mover;
  return ir::Rewrite(function, [&](const ir::RewriteCall& call) -> ir::Values {
    if (&call.function != current) {
      current = &call.function;
      mover.emplace(call.function);
    }
    return mover->Rewrite(call);
  });
}

}  // namespace weft::passes
