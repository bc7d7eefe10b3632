// See fuse_graph.h.
#include "src/passes/fuse_graph.h"

#include <algorithm>

namespace weft::passes {
namespace {

using ir::Ints;
using ir::Node;
using ir::Value;

bool IsUnitReshape(const Node& node) {
  return &node.op() == &ops::kOp_reshape && Squeezed(node.operands()[0].dims()) == Squeezed(node.type().dims);
}
bool IsExpensive(const Node& node) { return node.op().cost == ir::Cost::kFunction; }

}  // namespace

RowSpace SpaceOf(const Node& reduce) {
  RowSpace space;
  const Dims& dims = reduce.operands()[0].dims();
  Ints dimensions = ops::ReduceAttrs{reduce.attrs()}.dimensions();
  for (int64_t& d : dimensions) d += d < 0 ? static_cast<int64_t>(dims.size()) : 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == 1) continue;
    const bool gone = std::find(dimensions.begin(), dimensions.end(), static_cast<int64_t>(d)) != dimensions.end();
    space.full.push_back(dims[d]);
    space.reduced.push_back(gone);
    if (!gone) space.kept.push_back(dims[d]);
  }
  return space;
}

FuseGraph::FuseGraph(const ir::Function& function, const FuseOptions& options)
    : function_(function),
      options_(options),
      nodes_(function.nodes().begin(), function.nodes().end()),
      kind_(nodes_.size(), Kind::kOther),
      users_(nodes_.size()),
      consumers_(nodes_.size()),
      outside_(nodes_.size(), false),
      costly_(nodes_.size(), false),
      reduction_of_(nodes_.size(), kNone) {
  for (size_t i = 0; i < nodes_.size(); ++i) index_[nodes_[i]] = static_cast<int>(i);
  Classify();
  FindUsers();
}

void FuseGraph::Classify() {
  for (size_t i = function_.parameters().size(); i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    const bool fusible = options_.can_fuse(node);
    const bool scalar = fusible && node.operands().empty();  // literal, iota
    // A widening convert inside every kernel that reads it, so that no f32 copy is stored.
    if (scalar || (fusible && (IsBroadcast(node) || ops::IsWidening(node))) || IsUnitReshape(node)) {
      kind_[i] = Kind::kInline;
    } else if (fusible || JoinsParts(node)) {
      kind_[i] = Kind::kFused;
    }
    costly_[i] = IsCostly(static_cast<int>(i));
    reduction_of_[i] = ReductionOf(static_cast<int>(i));
  }
}

void FuseGraph::FindUsers() {
  for (const Value& result : function_.results()) outside_[NumberOf(result)] = true;
  // Users seen through inline nodes; an inline node that is itself wanted uses its operand from outside.
  for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
    for (const Value& operand : nodes_[i]->operands()) {
      if (!operand) continue;
      const int p = NumberOf(operand);
      if (kind_[i] == Kind::kFused) {
        users_[p].push_back(i);
        consumers_[p].push_back(i);
      } else if (kind_[i] == Kind::kOther) {
        outside_[p] = true;
        consumers_[p].push_back(i);
      } else {
        users_[p].insert(users_[p].end(), users_[i].begin(), users_[i].end());
        consumers_[p].insert(consumers_[p].end(), consumers_[i].begin(), consumers_[i].end());
        if (outside_[i]) outside_[p] = true;
      }
    }
  }
}

const std::vector<int>& FuseGraph::SortUsers(int n) {
  std::vector<int>& users = users_[n];
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  return users;
}

int FuseGraph::ProducerOf(const Value& value) const {
  const Node* node = value.node.get();
  int n = index_.at(node);
  while (kind_[n] == Kind::kInline) {
    if (node->operands().empty()) return kNone;
    node = node->operands()[0].node.get();
    n = index_.at(node);
  }
  return n;
}

int FuseGraph::LastBefore(int i) const {
  int last = kNone;
  for (const Value& operand : nodes_[i]->operands()) {
    const int p = operand ? ProducerOf(operand) : kNone;
    if (p != kNone) last = std::max(last, p);
  }
  return last;
}

bool FuseGraph::EndsOtherSums(int i, int user) const {
  if (options_.ends_sums == nullptr || users_[i].size() != 1 || outside_[i]) return false;
  const int own = ProductBefore(i, 0);
  if (own == kNone) return false;
  for (const Value& operand : nodes_[user]->operands()) {
    const int p = operand ? ProducerOf(operand) : kNone;
    if (p != kNone && p != i && ProductBefore(p, 0) > own) return true;
  }
  return false;
}

// The one product that node n is made of, element by element, nobody else seeing what is between; none.
int FuseGraph::ProductBefore(int n, int steps) const {
  constexpr int kMostSteps = 16;
  if (kind_[n] == Kind::kOther) return options_.ends_sums(*nodes_[n]) && consumers_[n].size() == 1 ? n : kNone;
  if (IsReduce(*nodes_[n]) || consumers_[n].size() != 1 || outside_[n] || steps == kMostSteps) return kNone;
  int found = kNone;
  for (const Value& operand : nodes_[n]->operands()) {
    const int p = operand ? ProducerOf(operand) : kNone;
    if (p == kNone || nodes_[p]->type().dims != nodes_[n]->type().dims) continue;
    const int product = ProductBefore(p, steps + 1);
    if (product == kNone || found != kNone) return kNone;
    found = product;
  }
  return found;
}

bool FuseGraph::WaitsForUser(int n) const {
  const Node& node = *nodes_[n];
  if (options_.ends_sums == nullptr || !options_.ends_sums(node) || consumers_[n].size() != 1 || outside_[n] ||
      kind_[consumers_[n][0]] != Kind::kFused) {
    return false;
  }
  return std::ranges::all_of(node.operands(), [&](const Value& operand) {
    return !operand || operand.node->op().parameter || operand.type().bytes() <= node.type().bytes();
  });
}

bool FuseGraph::ChoosesSums(int i) const {
  const Node& node = *nodes_[i];
  if (&node.op() != &ops::kOp_where || reduction_of_[i] == kNone) return false;
  for (const Value& arm : node.operands().subspan(1)) {
    int n = arm ? ProducerOf(arm) : kNone;
    while (n != kNone && kind_[n] == Kind::kFused && consumers_[n].size() == 1 && !outside_[n]) {
      if (IsReduce(*nodes_[n])) return !RowsFit(SpaceOf(*nodes_[n]));
      n = nodes_[n]->operands().empty() ? kNone : ProducerOf(nodes_[n]->operands()[0]);
    }
  }
  return false;
}

bool FuseGraph::IsCostly(int i) const {
  const Node& node = *nodes_[i];
  if (kind_[i] == Kind::kOther || IsReduce(node) || IsBroadcast(node)) return false;
  if (kind_[i] == Kind::kFused && IsExpensive(node)) return true;
  for (const Value& operand : node.operands()) {
    if (operand && costly_[NumberOf(operand)]) return true;
  }
  return false;
}

int FuseGraph::ReductionOf(int i) const {
  const Node& node = *nodes_[i];
  if (kind_[i] == Kind::kOther || IsBroadcast(node) || JoinsParts(node)) return kNone;
  if (IsReduce(node)) return i;
  for (const Value& operand : node.operands()) {
    const int from = operand ? reduction_of_[NumberOf(operand)] : kNone;
    if (from != kNone) return from;
  }
  return kNone;
}

bool FuseGraph::ComesFromRows(int i, const Dims& domain) const {
  if (reduction_of_[i] == kNone) return false;
  const RowSpace space = SpaceOf(*nodes_[reduction_of_[i]]);
  return space.full == domain && RowsFit(space);
}

bool FuseGraph::RowsFit(const RowSpace& space) const {
  const int64_t rows = CountOf(space.kept);
  const int64_t row = rows == 0 ? 0 : CountOf(space.full) / rows;
  return space.suffix() && row <= options_.max_row && (rows >= 8 || CountOf(space.full) <= options_.max_row);
}

}  // namespace weft::passes
