// Greedy, from the results upwards: a node joins the kernel of its users. A producer whose users all sit in one kernel can
// never close a cycle; one with users elsewhere becomes a second result of the kernel if no path leads back into it.
#include "src/passes/fuse.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "src/ir/rewrite.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/parameter.h"

namespace weft::passes {
namespace {

using ir::Ints;
using ir::Node;
using ir::Value;

constexpr int kNone = -1;
constexpr int kSearchBudget = 4000;  // edges looked at by one search for a cycle

bool IsReduce(const Node& node) { return node.op().lowering == ir::Lowering::kReduction; }
bool IsBroadcast(const Node& node) { return &node.op() == &ops::kOp_broadcast_in_dim; }
bool IsUnitReshape(const Node& node) {
  return &node.op() == &ops::kOp_reshape && Squeezed(node.operands()[0].dims()) == Squeezed(node.type().dims);
}
bool IsExpensive(const Node& node) { return node.op().cost == ir::Cost::kFunction; }

// The index space of a reduction without its dimensions of size 1.
struct Space {
  Dims full, kept;
  std::vector<bool> reduced;  // per dimension of full
  bool operator==(const Space& other) const { return full == other.full && reduced == other.reduced; }

  bool suffix() const {
    bool seen = false;
    for (bool r : reduced) {
      if (seen && !r) return false;
      seen = seen || r;
    }
    return true;
  }
};

Space SpaceOf(const Node& reduce) {
  Space space;
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

// A group is computed at once: one kernel, or a node that is not fused.
struct Group {
  std::vector<int> nodes;
  int level = 0;  // higher than that of every group that uses one of the nodes
  Dims domain;    // squeezed; of the elements, or of the rows where row_only
  bool reduces = false;
  Space space;
  bool parts = false;  // a node joins parts of the domain
};

// Functions that nodes carry and what became of them.
using Fused = absl::flat_hash_map<const ir::Function*, Ref<const ir::Function>>;

class Fuser {
 public:
  Fuser(const ir::Function& function, const FuseOptions& options, const Fused& known)
      : function_(function), options_(options), known_(known) {}

  absl::StatusOr<Ref<const ir::Function>> Run() {
    Prepare();
    absl::flat_hash_map<int, std::vector<int>> late;
    for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
      if (const auto waiting = late.find(i); waiting != late.end()) {
        for (const int result : waiting->second) Place(result);
      }
      if (kind_[i] == Kind::kFused) {
        const int before = options_.joins_parts != nullptr && consumers_[i].empty() ? LastBefore(i) : kNone;
        if (before != kNone) {
          late[before].push_back(i);
        } else {
          Place(i);
        }
      }
      if (kind_[i] == Kind::kOther && i >= static_cast<int>(function_.parameters().size())) Open(i);
    }
    return Build();
  }

 private:
  enum class Kind { kOther, kInline, kFused };

  void Prepare() {
    nodes_.assign(function_.nodes().begin(), function_.nodes().end());
    kind_.assign(nodes_.size(), Kind::kOther);
    users_.resize(nodes_.size());
    consumers_.resize(nodes_.size());
    outside_.assign(nodes_.size(), false);
    group_of_.assign(nodes_.size(), kNone);
    costly_.assign(nodes_.size(), false);
    reduction_of_.assign(nodes_.size(), kNone);
    for (size_t i = 0; i < nodes_.size(); ++i) index_[nodes_[i]] = static_cast<int>(i);
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
    for (const Value& result : function_.results()) MarkOutside(result.node.get());
    // Users seen through inline nodes; an inline node that is itself wanted uses its operand from outside.
    for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
      for (const Value& operand : nodes_[i]->operands()) {
        if (!operand) continue;
        const int p = index_.at(operand.node.get());
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

  void MarkOutside(const Node* node) { outside_[index_.at(node)] = true; }

  void Place(int i) {
    std::vector<int>& users = users_[i];
    std::sort(users.begin(), users.end());
    users.erase(std::unique(users.begin(), users.end()), users.end());
    std::vector<int> candidates;
    absl::flat_hash_set<int> seen;
    for (int u : users) {
      if (seen.insert(group_of_[u]).second && !EndsOtherSums(i, u)) candidates.push_back(group_of_[u]);
    }
    const bool parts = JoinsParts(*nodes_[i]);
    for (int g : candidates) {
      const bool only = candidates.size() == 1 && !outside_[i];
      if (!parts && Joins(i, g, only)) return;
    }
    if (candidates.empty() && JoinsSiblings(i)) return;
    Group& group = Open(i);
    if (parts) {
      group.parts = true;
      group.domain = Squeezed(nodes_[i]->operands()[0].dims());
    } else if (IsReduce(*nodes_[i])) {
      group.reduces = true;
      group.space = SpaceOf(*nodes_[i]);
      group.domain = group.space.full;
    } else {
      group.domain = Squeezed(nodes_[i]->type().dims);
    }
  }

  // Tells whether node i follows one product alone, and its only user joins it with a value that follows a later
  // product. Then each product has an epilogue (ending) of its own. (A residual block whose shortcut is a convolution,
  // too.)
  bool EndsOtherSums(int i, int user) const {
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
  int ProductBefore(int n, int steps) const {
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

  // The last of what a node is made of: a node that nothing reads may be placed as late as before that one, beside whatever else is
  // made of it.
  int LastBefore(int i) const {
    int last = kNone;
    for (const Value& operand : nodes_[i]->operands()) {
      const int p = operand ? ProducerOf(operand) : kNone;
      if (p != kNone) last = std::max(last, p);
    }
    return last;
  }

  bool JoinsParts(const Node& node) const { return options_.joins_parts != nullptr && options_.joins_parts(node); }

  // A result beside the parts of another one, made of a value of their size that is computed for them, too (an LSTM's next gradient
  // of its cell beside those of its gates).
  bool JoinsSiblings(int i) {
    for (const Value& operand : nodes_[i]->operands()) {
      const int p = operand ? ProducerOf(operand) : kNone;
      if (p == kNone || kind_[p] != Kind::kFused || nodes_[p]->type().dims != nodes_[i]->type().dims) continue;
      for (int u : users_[p]) {
        const int g = group_of_[u];
        if (g != kNone && groups_[g].parts && Joins(i, g, false)) return true;
      }
    }
    return false;
  }

  // A group of the node alone.
  Group& Open(int i) {
    group_of_[i] = static_cast<int>(groups_.size());
    Group& group = groups_.emplace_back();
    group.nodes.push_back(i);
    for (int u : consumers_[i]) group.level = std::max(group.level, groups_[group_of_[u]].level + 1);
    return group;
  }

  bool Joins(int i, int g, bool only) {
    const Node& node = *nodes_[i];
    if (ChoosesSums(i)) return false;
    Group& group = groups_[g];
    const Dims shape = Squeezed(node.type().dims);
    const int64_t count = CountOf(shape);
    const bool saves_memory = only && (count == 1 || count * BytesOf(node.type().dtype) >= options_.much_memory);
    const int most = saves_memory ? options_.max_operations_in_place_of_memory : options_.max_operations;
    if (static_cast<int>(group.nodes.size()) >= most) return false;
    Group merged = group;
    merged.nodes.push_back(i);
    if (IsReduce(node)) {
      if (group.parts) return false;
      const Space space = SpaceOf(node);
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
      if (costly_[i] && !ComesFromRows(i, group.domain)) return false;
    }
    if (!only) {
      const bool fits = shape == merged.domain || (merged.reduces && shape == merged.space.kept);
      if (!fits) return false;
    }
    if (merged.reduces && !RowsWork(merged)) return false;
    if (!only && (!OutputsFit(merged) || !StaysAcyclic(i, g))) return false;
    merged.level = groups_[g].level;
    group_of_[i] = g;
    groups_[g] = std::move(merged);
    return true;
  }

  // Tells whether node i chooses between a reduction and something else, in rows that no kernel walks twice. It begins
  // a kernel, which the reduction joins: where the kernel sees that nothing chooses the reduction, it need not compute
  // it.
  bool ChoosesSums(int i) const {
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

  // Tells whether node i takes long, or a value of its size that is computed on the way to it does.
  bool IsCostly(int i) const {
    const Node& node = *nodes_[i];
    if (kind_[i] == Kind::kOther || IsReduce(node) || IsBroadcast(node)) return false;
    if (kind_[i] == Kind::kFused && IsExpensive(node)) return true;
    for (const Value& operand : node.operands()) {
      if (operand && costly_[index_.at(operand.node.get())]) return true;
    }
    return false;
  }

  // The reduction that node i is computed from, in its own size or a row at a time; none.
  int ReductionOf(int i) const {
    const Node& node = *nodes_[i];
    if (kind_[i] == Kind::kOther || IsBroadcast(node) || JoinsParts(node)) return kNone;
    if (IsReduce(node)) return i;
    for (const Value& operand : node.operands()) {
      const int from = operand ? reduction_of_[index_.at(operand.node.get())] : kNone;
      if (from != kNone) return from;
    }
    return kNone;
  }
  // Tells whether node i, which takes long, is one value per row of a reduction that may join a kernel over these
  // elements. It is then computed once per row there (the root of a layer norm's variance).
  bool ComesFromRows(int i, const Dims& domain) const {
    if (reduction_of_[i] == kNone) return false;
    const Space space = SpaceOf(*nodes_[reduction_of_[i]]);
    return space.full == domain && RowsFit(space);
  }

  // Tells whether node i may join group g although others use it: then nothing of theirs may lead back to g. Groups
  // have levels that fall along every edge from producer to user, so only groups above g need to be looked at. If i
  // joins, g must stand above i's users, and the producers of g above g: that is arranged here.
  bool StaysAcyclic(int i, int g) {
    const int level = groups_[g].level;
    int needed = level;
    int budget = kSearchBudget;
    std::vector<int> stack;
    absl::flat_hash_set<int> seen;
    const auto visit = [&](int h) {
      if (groups_[h].level > level && seen.insert(h).second) stack.push_back(h);
    };
    for (int u : consumers_[i]) {
      const int h = group_of_[u];
      if (h == g) continue;
      needed = std::max(needed, groups_[h].level + 1);
      visit(h);
    }
    while (!stack.empty()) {
      const int h = stack.back();
      stack.pop_back();
      for (int n : groups_[h].nodes) {
        for (int u : consumers_[n]) {
          if (group_of_[u] == g || --budget < 0) return false;
          visit(group_of_[u]);
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
        for (const Value& operand : nodes_[n]->operands()) {
          const int p = operand ? ProducerOf(operand) : kNone;
          const int from = p == kNone ? kNone : group_of_[p];
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

  // The node behind inline ones; kNone for a literal.
  int ProducerOf(const Value& value) const {
    const Node* node = value.node.get();
    int n = index_.at(node);
    while (kind_[n] == Kind::kInline) {
      if (node->operands().empty()) return kNone;
      node = node->operands()[0].node.get();
      n = index_.at(node);
    }
    return n;
  }

  bool IsOutput(int n, const Group& group) const {
    if (outside_[n]) return true;
    for (int u : users_[n]) {
      if (std::find(group.nodes.begin(), group.nodes.end(), u) == group.nodes.end()) return true;
    }
    return false;
  }

  bool OutputsFit(const Group& group) const {
    for (int n : group.nodes) {
      if (!IsOutput(n, group) || JoinsParts(*nodes_[n])) continue;
      const Dims shape = Squeezed(nodes_[n]->type().dims);
      if (shape == group.domain || (group.reduces && shape == group.space.kept)) continue;
      return false;
    }
    return true;
  }

  enum class Role { kFree, kRow, kFull, kWrong };

  // Tells whether everything that depends on the reductions is either one value per row or one per element, so that
  // loops over rows can compute it.
  bool RowsWork(const Group& group) {
    const Space& space = group.space;
    absl::flat_hash_map<int, Role> roles;
    std::vector<int> sorted = group.nodes;
    std::sort(sorted.begin(), sorted.end());
    bool full_consumers = false, staged = false;
    const auto inside = [&](int n) { return std::binary_search(sorted.begin(), sorted.end(), n); };
    const auto role_of = [&](auto&& self, const Value& value) -> Role {
      const int n = index_.at(value.node.get());
      if (kind_[n] == Kind::kInline) {
        if (nodes_[n]->operands().empty()) return Role::kFree;
        const Value& operand = nodes_[n]->operands()[0];
        const Role from = self(self, operand);
        if (from == Role::kFree || from == Role::kWrong) return from;
        const Dims shape = Squeezed(nodes_[n]->type().dims);
        if (!IsBroadcast(*nodes_[n])) return from;
        if (shape == Squeezed(operand.dims())) return from;
        if (from == Role::kFull || shape != space.full) return Role::kWrong;
        return SpreadsRows(*nodes_[n], space) ? Role::kFull : Role::kWrong;
      }
      if (!inside(n)) return Role::kFree;
      auto found = roles.find(n);
      return found == roles.end() ? Role::kFree : found->second;
    };
    for (int n : sorted) {
      const Node& node = *nodes_[n];
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
    return RowsFit(space);
  }

  // Tells whether several passes may walk its rows.
  bool RowsFit(const Space& space) const {
    const int64_t rows = CountOf(space.kept);
    const int64_t row = rows == 0 ? 0 : CountOf(space.full) / rows;
    return space.suffix() && row <= options_.max_row && (rows >= 8 || CountOf(space.full) <= options_.max_row);
  }

  // The broadcast puts the kept dimensions where the reduction took them from.
  static bool SpreadsRows(const Node& broadcast, const Space& space) {
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

  // --- the new function

  absl::StatusOr<Ref<const ir::Function>> Build() {
    for (const Value& p : function_.parameters()) map_.Bind(p, p);
    last_of_.assign(groups_.size(), 0);
    emitted_.assign(groups_.size(), false);
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::sort(groups_[g].nodes.begin(), groups_[g].nodes.end());
      last_of_[g] = groups_[g].nodes.back();
    }
    for (size_t i = function_.parameters().size(); i < nodes_.size(); ++i) {
      const int n = static_cast<int>(i);
      if (kind_[i] == Kind::kOther && !WaitsForUser(n)) WEFT_RETURN_IF_ERROR(EmitNode(n));
      if (kind_[i] == Kind::kFused && last_of_[group_of_[i]] == n) WEFT_RETURN_IF_ERROR(EmitGroup(group_of_[i]));
    }
    std::vector<Value> results;
    for (const Value& result : function_.results()) {
      WEFT_ASSIGN_OR_RETURN(Value value, Outer(result));
      results.push_back(std::move(value));
    }
    return ir::Function::Create(function_.name(), {function_.parameters().begin(), function_.parameters().end()},
                                std::move(results),
                                {function_.parameter_infos().begin(), function_.parameter_infos().end()});
  }

  // A product stands right before what follows it, wherever it stood: its blocks are still in a cache then. Unless operands
  // larger than its result would have to be kept meanwhile (a gradient of weights, which an update at the end reads).
  bool WaitsForUser(int n) const {
    const Node& node = *nodes_[n];
    if (options_.ends_sums == nullptr || !options_.ends_sums(node) || consumers_[n].size() != 1 || outside_[n] ||
        kind_[consumers_[n][0]] != Kind::kFused) {
      return false;
    }
    return std::ranges::all_of(node.operands(), [&](const Value& operand) {
      return !operand || operand.node->op().parameter || operand.type().bytes() <= node.type().bytes();
    });
  }

  // The value outside kernels; makes what it needs first.
  absl::StatusOr<Value> Outer(const Value& value) {
    if (const Value* known = map_.Find(value)) return *known;
    const int n = index_.at(value.node.get());
    if (kind_[n] == Kind::kFused) {
      WEFT_RETURN_IF_ERROR(EmitGroup(group_of_[n]));
    } else {
      WEFT_RETURN_IF_ERROR(EmitNode(n));
    }
    const Value* known = map_.Find(value);
    if (known == nullptr) return InternalError("fusion lost the value of ", value.node->op().name);
    return *known;
  }

  absl::Status EmitNode(int n) {
    const Node& node = *nodes_[n];
    if (map_.Find(Value{Ref<const Node>::Share(&node), 0}) != nullptr) return absl::OkStatus();
    // A literal stays one, a reshape is free; what else stands alone is a kernel of one operation.
    const bool alone = kind_[n] == Kind::kInline && &node.op() != &ops::kOp_constant && !node.op().alias;
    if (alone) return EmitRegion({n});
    ir::Values operands;
    for (const Value& operand : node.operands()) {
      if (!operand) {
        operands.push_back({});
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(Value value, Outer(operand));
      operands.push_back(std::move(value));
    }
    std::vector<Ref<const ir::Function>> regions(node.regions().begin(), node.regions().end());
    for (Ref<const ir::Function>& region : regions) region = known_.at(region.get());
    Ref<const Node> copy = ir::CopyNode(node, std::move(operands), regions);
    for (uint32_t r = 0; r < node.results().size(); ++r)
      map_.Bind(Value{Ref<const Node>::Share(&node), r}, Value{copy, r});
    return absl::OkStatus();
  }

  absl::Status EmitGroup(int g) {
    if (emitted_[g]) return absl::OkStatus();
    emitted_[g] = true;
    return EmitRegion(groups_[g].nodes);
  }

  absl::Status EmitRegion(const std::vector<int>& members) {
    ir::ValueMap inner;
    std::vector<Value> parameters;
    ir::Values operands;
    const auto is_member = [&](int n) { return std::binary_search(members.begin(), members.end(), n); };
    // Operands first, so that the new nodes stand in order.
    std::vector<Value> reads;
    const auto collect = [&](auto&& self, const Value& value) -> void {
      const int n = index_.at(value.node.get());
      if (is_member(n)) return;
      if (kind_[n] == Kind::kInline) {
        for (const Value& operand : nodes_[n]->operands()) self(self, operand);
        return;
      }
      if (std::find(reads.begin(), reads.end(), value) == reads.end()) reads.push_back(value);
    };
    for (int n : members) {
      for (const Value& operand : nodes_[n]->operands()) collect(collect, operand);
    }
    for (const Value& read : reads) {
      WEFT_ASSIGN_OR_RETURN(Value outer, Outer(read));
      Value parameter = ops::Parameter(read.type());
      inner.Bind(read, parameter);
      parameters.push_back(std::move(parameter));
      operands.push_back(std::move(outer));
    }
    const auto resolve = [&](auto&& self, const Value& value) -> Value {
      if (const Value* known = inner.Find(value)) return *known;
      const Node& node = *value.node;  // inline
      ir::Values copied;
      for (const Value& operand : node.operands()) copied.push_back(self(self, operand));
      Value made{ir::CopyNode(node, std::move(copied), {}), 0};
      inner.Bind(value, made);
      return made;
    };
    std::vector<Value> results, originals;
    for (int n : members) {
      const Node& node = *nodes_[n];
      ir::Values copied;
      for (const Value& operand : node.operands()) copied.push_back(resolve(resolve, operand));
      const Value original{Ref<const Node>::Share(&node), 0};
      const Value made{ir::CopyNode(node, std::move(copied), {}), 0};
      inner.Bind(original, made);
      bool wanted = outside_[n];
      for (int u : users_[n]) wanted = wanted || !is_member(u);
      if (wanted || members.size() == 1) {
        results.push_back(made);
        originals.push_back(original);
      }
    }
    ir::Types types;
    for (const Value& result : results) types.push_back(result.type());
    auto regions = std::make_unique<ir::Regions>();
    regions->functions.push_back(
        ir::Function::Create(absl::StrCat("fusion_", fusions_++), std::move(parameters), std::move(results)));
    Ref<const Node> fusion = Node::Create(ops::kOp_fusion, std::move(operands), {}, std::move(types),
                                          std::move(regions), nodes_[members.back()]->location());
    for (uint32_t r = 0; r < originals.size(); ++r) map_.Bind(originals[r], Value{fusion, r});
    return absl::OkStatus();
  }

  const ir::Function& function_;
  const FuseOptions& options_;
  const Fused& known_;
  std::vector<const Node*> nodes_;
  absl::flat_hash_map<const Node*, int> index_;
  std::vector<Kind> kind_;
  std::vector<std::vector<int>> users_;      // fused users, seen through inline nodes
  std::vector<std::vector<int>> consumers_;  // these, and users that are not fused
  std::vector<bool> outside_;                // also wanted by a result or a node that is not fused
  std::vector<int> group_of_;
  std::vector<bool> costly_;       // see IsCostly
  std::vector<int> reduction_of_;  // see ReductionOf
  std::vector<Group> groups_;
  std::vector<int> last_of_;
  std::vector<bool> emitted_;
  ir::ValueMap map_;
  int fusions_ = 0;
};

}  // namespace

absl::StatusOr<Ref<const ir::Function>> Fuse(const ir::Function& function, const FuseOptions& options) {
  Fused known;
  for (const ir::Function* each : ir::CalleesFirst(function)) {
    WEFT_ASSIGN_OR_RETURN(Ref<const ir::Function> fused, Fuser(*each, options, known).Run());
    known.emplace(each, std::move(fused));
  }
  return known.at(&function);
}

}  // namespace weft::passes
