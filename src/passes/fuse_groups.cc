// See fuse_groups.h.
#include "src/passes/fuse_groups.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace weft::passes {
namespace {

using ir::Ints;
using ir::Node;
using ir::Value;
using Kind = FuseGraph::Kind;

constexpr int kNone = FuseGraph::kNone;
constexpr int kSearchBudget = 4000;  // edges looked at by one search for a cycle

enum class Role { kFree, kRow, kFull, kWrong };

// The broadcast puts the kept dimensions where the reduction took them from.
bool SpreadsRows(const Node& broadcast, const RowSpace& space) {
  const Dims& from = broadcast.operands()[0].dims();
  const Dims& to = broadcast.type().dims;
  const Ints& at = ops::BroadcastInDimAttrs{broadcast.attrs()}.broadcast_dimensions();
  std::vector<bool> kept(to.size(), false);
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1) kept[at[i]] = true;
  }
  size_t k = 0;
  for (size_t d = 0; d < to.size(); ++d) {
    if (to[d] == 1) continue;
    if (kept[d] == space.reduced[k++]) return false;
  }
  return true;
}

}  // namespace

FuseGroups::FuseGroups(FuseGraph& graph) : graph_(graph), of_(static_cast<size_t>(graph.size()), kNone) {
  absl::flat_hash_map<int, std::vector<int>> late;
  for (int i = graph_.size() - 1; i >= 0; --i) {
    if (const auto waiting = late.find(i); waiting != late.end()) {
      for (const int result : waiting->second) Place(result);
    }
    if (graph_.kind(i) == Kind::kFused) {
      const int before =
          graph_.options().joins_parts != nullptr && graph_.consumers(i).empty() ? graph_.LastBefore(i) : kNone;
      if (before != kNone) {
        late[before].push_back(i);
      } else {
        Place(i);
      }
    }
    if (graph_.kind(i) == Kind::kOther && i >= graph_.first()) Open(i);
  }
  for (FuseGroup& group : groups_) std::sort(group.nodes.begin(), group.nodes.end());
}

void FuseGroups::Place(int i) {
  std::vector<int> candidates;
  absl::flat_hash_set<int> seen;
  for (int u : graph_.SortUsers(i)) {
    if (seen.insert(of_[u]).second && !graph_.EndsOtherSums(i, u)) candidates.push_back(of_[u]);
  }
  const bool parts = graph_.JoinsParts(graph_.node(i));
  for (int g : candidates) {
    const bool only = candidates.size() == 1 && !graph_.outside(i);
    if (!parts && Joins(i, g, only)) return;
  }
  if (candidates.empty() && JoinsSiblings(i)) return;
  FuseGroup& group = Open(i);
  if (parts) {
    group.parts = true;
    group.domain = Squeezed(graph_.node(i).operands()[0].dims());
  } else if (IsReduce(graph_.node(i))) {
    group.reduces = true;
    group.space = SpaceOf(graph_.node(i));
    group.domain = group.space.full;
  } else {
    group.domain = Squeezed(graph_.node(i).type().dims);
  }
}

// A result beside the parts of another one, made of a value of their size that is computed for them, too (an LSTM's next gradient
// of its cell beside those of its gates).
bool FuseGroups::JoinsSiblings(int i) {
  for (const Value& operand : graph_.node(i).operands()) {
    const int p = operand ? graph_.ProducerOf(operand) : kNone;
    if (p == kNone || graph_.kind(p) != Kind::kFused || graph_.node(p).type().dims != graph_.node(i).type().dims)
      continue;
    for (int u : graph_.users(p)) {
      const int g = of_[u];
      if (g != kNone && groups_[g].parts && Joins(i, g, false)) return true;
    }
  }
  return false;
}

// A group of the node alone.
FuseGroup& FuseGroups::Open(int i) {
  of_[i] = static_cast<int>(groups_.size());
  FuseGroup& group = groups_.emplace_back();
  group.nodes.push_back(i);
  for (int u : graph_.consumers(i)) group.level = std::max(group.level, groups_[of_[u]].level + 1);
  return group;
}

bool FuseGroups::Joins(int i, int g, bool only) {
  const Node& node = graph_.node(i);
  if (graph_.ChoosesSums(i)) return false;
  FuseGroup& group = groups_[g];
  const Dims shape = Squeezed(node.type().dims);
  const int64_t count = CountOf(shape);
  const bool saves_memory = only && (count == 1 || count * BytesOf(node.type().dtype) >= graph_.options().much_memory);
  const int most = saves_memory ? graph_.options().max_operations_in_place_of_memory : graph_.options().max_operations;
  if (static_cast<int>(group.nodes.size()) >= most) return false;
  FuseGroup merged = group;
  merged.nodes.push_back(i);
  if (IsReduce(node)) {
    if (group.parts) return false;
    const RowSpace space = SpaceOf(node);
    if (group.reduces) {
      if (!(group.space == space)) return false;
    } else {
      if (group.domain != space.full && group.domain != space.kept) return false;
      merged.reduces = true;
      merged.space = space;
      merged.domain = space.full;
    }
  } else if (count < CountOf(group.domain) && count > 1 && !(group.reduces && shape == group.space.kept)) {
    // Computed once for every element that reads it: only what is cheap, with all that it would take along. (The factor and
    // the summand of a normalisation by known variances hold a root and a division a feature.)
    if (graph_.costly(i) && !graph_.ComesFromRows(i, group.domain)) return false;
  }
  if (!only) {
    const bool fits = shape == merged.domain || (merged.reduces && shape == merged.space.kept);
    if (!fits) return false;
  }
  if (merged.reduces && !RowsWork(merged)) return false;
  if (!only && (!OutputsFit(merged) || !StaysAcyclic(i, g))) return false;
  merged.level = groups_[g].level;
  of_[i] = g;
  groups_[g] = std::move(merged);
  return true;
}

// Tells whether node i may join group g although others use it: then nothing of theirs may lead back to g. Groups
// have levels that fall along every edge from producer to user, so only groups above g need to be looked at. If i
// joins, g must stand above i's users, and the producers of g above g: that is arranged here.
bool FuseGroups::StaysAcyclic(int i, int g) {
  const int level = groups_[g].level;
  int needed = level;
  int budget = kSearchBudget;
  std::vector<int> stack;
  absl::flat_hash_set<int> seen;
  const auto visit = [&](int h) {
    if (groups_[h].level > level && seen.insert(h).second) stack.push_back(h);
  };
  for (int u : graph_.consumers(i)) {
    const int h = of_[u];
    if (h == g) continue;
    needed = std::max(needed, groups_[h].level + 1);
    visit(h);
  }
  while (!stack.empty()) {
    const int h = stack.back();
    stack.pop_back();
    for (int n : groups_[h].nodes) {
      for (int u : graph_.consumers(n)) {
        if (of_[u] == g || --budget < 0) return false;
        visit(of_[u]);
      }
    }
  }
  std::vector<std::pair<int, int>> before;  // group, level
  const auto raise = [&](int h, int to) {
    before.emplace_back(h, groups_[h].level);
    groups_[h].level = to;
    stack.push_back(h);
  };
  if (needed > level) raise(g, needed);
  while (!stack.empty()) {
    const int h = stack.back();
    stack.pop_back();
    for (int n : groups_[h].nodes) {
      for (const Value& operand : graph_.node(n).operands()) {
        const int p = operand ? graph_.ProducerOf(operand) : kNone;
        const int from = p == kNone ? kNone : of_[p];
        if (from == kNone || from == h || groups_[from].level > groups_[h].level) continue;
        if (--budget < 0) {
          for (auto undo = before.rbegin(); undo != before.rend(); ++undo) groups_[undo->first].level = undo->second;
          return false;
        }
        raise(from, groups_[h].level + 1);
      }
    }
  }
  return true;
}

bool FuseGroups::IsOutput(int n, const FuseGroup& group) const {
  if (graph_.outside(n)) return true;
  for (int u : graph_.users(n)) {
    if (std::find(group.nodes.begin(), group.nodes.end(), u) == group.nodes.end()) return true;
  }
  return false;
}

bool FuseGroups::OutputsFit(const FuseGroup& group) const {
  for (int n : group.nodes) {
    if (!IsOutput(n, group) || graph_.JoinsParts(graph_.node(n))) continue;
    const Dims shape = Squeezed(graph_.node(n).type().dims);
    if (shape == group.domain || (group.reduces && shape == group.space.kept)) continue;
    return false;
  }
  return true;
}

// Tells whether everything that depends on the reductions is either one value per row or one per element, so that
// loops over rows can compute it.
bool FuseGroups::RowsWork(const FuseGroup& group) const {
  const RowSpace& space = group.space;
  absl::flat_hash_map<int, Role> roles;
  std::vector<int> sorted = group.nodes;
  std::sort(sorted.begin(), sorted.end());
  bool full_consumers = false, staged = false;
  const auto inside = [&](int n) { return std::binary_search(sorted.begin(), sorted.end(), n); };
  const auto role_of = [&](auto&& self, const Value& value) -> Role {
    const int n = graph_.NumberOf(value);
    if (graph_.kind(n) == Kind::kInline) {
      if (graph_.node(n).operands().empty()) return Role::kFree;
      const Value& operand = graph_.node(n).operands()[0];
      const Role from = self(self, operand);
      if (from == Role::kFree || from == Role::kWrong) return from;
      const Dims shape = Squeezed(graph_.node(n).type().dims);
      if (!IsBroadcast(graph_.node(n))) return from;
      if (shape == Squeezed(operand.dims())) return from;
      if (from == Role::kFull || shape != space.full) return Role::kWrong;
      return SpreadsRows(graph_.node(n), space) ? Role::kFull : Role::kWrong;
    }
    if (!inside(n)) return Role::kFree;
    auto found = roles.find(n);
    return found == roles.end() ? Role::kFree : found->second;
  };
  for (int n : sorted) {
    const Node& node = graph_.node(n);
    Role role = Role::kFree;
    for (const Value& operand : node.operands()) {
      const Role from = role_of(role_of, operand);
      if (from == Role::kWrong) return false;
      if (from != Role::kFree) role = from;
    }
    const Dims shape = Squeezed(node.type().dims);
    if (IsReduce(node)) {
      if (role == Role::kRow) return false;
      if (role == Role::kFull) staged = true;
      role = Role::kRow;
    } else if (role != Role::kFree) {
      if (node.op().lowering == ir::Lowering::kIndexMap) return false;
      if (role == Role::kRow && shape != space.kept) return false;
      if (role == Role::kFull) {
        if (shape != space.full) return false;
        full_consumers = true;
      }
    }
    roles[n] = role;
    if (role == Role::kRow && IsOutput(n, group) && shape != space.kept) return false;
  }
  if (!full_consumers && !staged) return true;
  return graph_.RowsFit(space);
}

}  // namespace weft::passes
