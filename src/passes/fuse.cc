// A function made of fusions. Which nodes one of them computes is fuse_groups.h.
#include "src/passes/fuse.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "src/ir/rewrite.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/parameter.h"
#include "src/passes/fuse_groups.h"

namespace weft::passes {
namespace {

using ir::Node;
using ir::Value;
using Kind = FuseGraph::Kind;

// Functions that nodes carry and what became of them.
using Fused = absl::flat_hash_map<const ir::Function*, Ref<const ir::Function>>;

// Writes the groups of a function as fusions, and what is not fused between them.
class FusionWriter {
 public:
  FusionWriter(const FuseGraph& graph, const FuseGroups& groups, const Fused& known)
      : graph_(graph), groups_(groups), known_(known), emitted_(static_cast<size_t>(groups.size()), false) {}

  absl::StatusOr<Ref<const ir::Function>> Write() {
    const ir::Function& function = graph_.function();
    for (const Value& p : function.parameters()) map_.Bind(p, p);
    for (int n = graph_.first(); n < graph_.size(); ++n) {
      if (graph_.kind(n) == Kind::kOther && !graph_.WaitsForUser(n)) WEFT_RETURN_IF_ERROR(EmitNode(n));
      if (graph_.kind(n) == Kind::kFused && groups_.nodes(groups_.of(n)).back() == n) {
        WEFT_RETURN_IF_ERROR(EmitGroup(groups_.of(n)));
      }
    }
    std::vector<Value> results;
    for (const Value& result : function.results()) {
      WEFT_ASSIGN_OR_RETURN(Value value, Outer(result));
      results.push_back(std::move(value));
    }
    return ir::Function::Create(function.name(), {function.parameters().begin(), function.parameters().end()},
                                std::move(results),
                                {function.parameter_infos().begin(), function.parameter_infos().end()});
  }

 private:
  // The value outside kernels; makes what it needs first.
  absl::StatusOr<Value> Outer(const Value& value) {
    if (const Value* known = map_.Find(value)) return *known;
    const int n = graph_.NumberOf(value);
    if (graph_.kind(n) == Kind::kFused) {
      WEFT_RETURN_IF_ERROR(EmitGroup(groups_.of(n)));
    } else {
      WEFT_RETURN_IF_ERROR(EmitNode(n));
    }
    const Value* known = map_.Find(value);
    if (known == nullptr) return InternalError("fusion lost the value of ", value.node->op().name);
    return *known;
  }

  absl::Status EmitNode(int n) {
    const Node& node = graph_.node(n);
    if (map_.Find(Value{Ref<const Node>::Share(&node), 0}) != nullptr) return absl::OkStatus();
    // A literal stays one, a reshape is free; what else stands alone is a kernel of one operation.
    const bool alone = graph_.kind(n) == Kind::kInline && &node.op() != &ops::kOp_constant && !node.op().alias;
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
    return EmitRegion(groups_.nodes(g));
  }

  absl::Status EmitRegion(const std::vector<int>& members) {
    ir::ValueMap inner;
    std::vector<Value> parameters;
    ir::Values operands;
    const auto is_member = [&](int n) { return std::binary_search(members.begin(), members.end(), n); };
    // Operands first, so that the new nodes stand in order.
    std::vector<Value> reads;
    const auto collect = [&](auto&& self, const Value& value) -> void {
      const int n = graph_.NumberOf(value);
      if (is_member(n)) return;
      if (graph_.kind(n) == Kind::kInline) {
        for (const Value& operand : graph_.node(n).operands()) self(self, operand);
        return;
      }
      if (std::find(reads.begin(), reads.end(), value) == reads.end()) reads.push_back(value);
    };
    for (int n : members) {
      for (const Value& operand : graph_.node(n).operands()) collect(collect, operand);
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
      const Node& node = graph_.node(n);
      ir::Values copied;
      for (const Value& operand : node.operands()) copied.push_back(resolve(resolve, operand));
      const Value original{Ref<const Node>::Share(&node), 0};
      const Value made{ir::CopyNode(node, std::move(copied), {}), 0};
      inner.Bind(original, made);
      bool wanted = graph_.outside(n);
      for (int u : graph_.users(n)) wanted = wanted || !is_member(u);
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
                                          std::move(regions), graph_.node(members.back()).location());
    for (uint32_t r = 0; r < originals.size(); ++r) map_.Bind(originals[r], Value{fusion, r});
    return absl::OkStatus();
  }

  const FuseGraph& graph_;
  const FuseGroups& groups_;
  const Fused& known_;
  std::vector<bool> emitted_;  // groups
  ir::ValueMap map_;
  int fusions_ = 0;
};

}  // namespace

absl::StatusOr<Ref<const ir::Function>> Fuse(const ir::Function& function, const FuseOptions& options) {
  Fused known;
  for (const ir::Function* each : ir::CalleesFirst(function)) {
    FuseGraph graph(*each, options);
    const FuseGroups groups(graph);
    WEFT_ASSIGN_OR_RETURN(Ref<const ir::Function> fused, FusionWriter(graph, groups, known).Write());
    known.emplace(each, std::move(fused));
  }
  return known.at(&function);
}

}  // namespace weft::passes
