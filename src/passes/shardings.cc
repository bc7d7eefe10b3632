// See shardings.h. Forward alone, from parameters and shards to results: what is between them is the partitioner's.
#include "src/passes/shardings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_split.h"
#include "src/ir/rewrite.h"
#include "src/ops/collective/processes.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/lies.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"
#include "src/runtime/hash_map.h"

namespace weft::passes {
namespace {

using ir::Function;
using ir::Mesh;
using ir::Node;
using ir::Sharding;
using Shardings = std::vector<Sharding>;

// Runs of a loop's body after which what it carries lies as it will for good; what is carried through few values settles at once.
constexpr int kRounds = 3;

class Walk {
 public:
  explicit Walk(const Mesh& mesh) : mesh_(mesh) {}

  absl::StatusOr<Shardings> Run(const Function& function, std::span<const Sharding> parameters) {
    Known known;
    for (size_t i = 0; i < function.parameters().size(); ++i)
      known[function.parameters()[i].node.get()] = {parameters[i]};
    Shardings operands;
    for (const Node* node : function.nodes()) {
      if (known.contains(node)) continue;
      operands.clear();
      for (const ir::Value& operand : node->operands()) {
        operands.push_back(operand ? known.at(operand.node.get())[operand.result] : Sharding());
      }
      Shardings& own = known[node];
      WEFT_ASSIGN_OR_RETURN(own, Results(*node, operands));
      LookForUnknown(*node, operands, own);
    }
    Shardings results;
    for (const ir::Value& result : function.results()) results.push_back(known.at(result.node.get())[result.result]);
    LookBack(function, known);
    return results;
  }

  // Maps a node that draws to the best sharding of its draws, for functions that have run.
  const HashMap<const Node*, Sharding>& drawn() const { return drawn_; }
  // Maps a node whose results are whole though its operands are cut to the first node on the way that no rule speaks
  // of.
  const HashMap<const Node*, const Node*>& unknown() const { return unknown_; }

 private:
  using Known = HashMap<const Node*, Shardings>;
  // Walks from a cut value back to the values that it is computed from element by element, until one is drawn: wherever
  // that is whole by itself.
  void LookBack(const Function& function, const Known& known) {
    HashMap<ir::Value, Sharding> wanted;
    const std::span<const Node* const> nodes = function.nodes();
    for (size_t n = nodes.size(); n-- > 0;) {
      const Node& node = *nodes[n];
      if (node.op().parameter || !node.regions().empty()) continue;
      if (&node.op() == &ops::kOp_rng_bit_generator) {
        const auto found = wanted.find({Ref<const Node>::Share(&node), 1});
        if (node.results().size() == 2 && found != wanted.end()) drawn_[&node] = found->second;
        continue;
      }
      if (node.results().size() != 1 || !node.type().is_tensor() || node.op().lies != nullptr) continue;
      const Sharding& own = known.at(&node)[0];
      const auto asked = wanted.find({Ref<const Node>::Share(&node), 0});
      const Sharding& lies = own.whole() && asked != wanted.end() ? asked->second : own;
      if (lies.whole()) continue;
      for (const ir::Value& operand : node.operands()) {
        if (!operand || !operand.type().is_tensor() || operand.dims() != node.type().dims) continue;
        if (known.at(operand.node.get())[operand.result].whole()) wanted.try_emplace(operand, lies);
      }
    }
  }

  void LookForUnknown(const Node& node, const Shardings& operands, const Shardings& results) {
    if (std::ranges::any_of(results, [](const Sharding& sharding) { return !sharding.whole(); })) return;
    if (node.results().size() != 1 || !node.type().is_tensor() || node.type().rank() == 0) return;
    const bool ruled = node.op().lies != nullptr || !node.regions().empty() || ops::SpeaksOfProcesses(node.op());
    for (size_t i = 0; i < operands.size(); ++i) {
      const ir::Value& operand = node.operands()[i];
      const auto found = operand ? unknown_.find(operand.node.get()) : unknown_.end();
      if (found != unknown_.end()) {
        const Node* const first = found->second;
        unknown_[&node] = first;
        return;
      }
      if (ruled || operands[i].whole()) continue;
      unknown_[&node] = &node;
      return;
    }
  }

  absl::StatusOr<Shardings> Results(const Node& node, const Shardings& operands) {
    const size_t count = node.results().size();
    const ir::OpDef& op = node.op();
    if (&op == &ops::kOp_shard) {
      const std::string& spec = ops::ShardAttrs{node.attrs()}.spec();
      WEFT_ASSIGN_OR_RETURN(Sharding said, ir::ParseSharding(spec, mesh_));
      WEFT_RETURN_IF_ERROR(ir::Check(mesh_, said, node.type(), "an operand of shard"));
      return Shardings{std::move(said)};
    }
    if (&op == &ops::kOp_per_device) return Said(ops::PerDeviceAttrs{node.attrs()}.out_specs());
    if (&op == &ops::kOp_while) return Loop(node, operands);
    if (&op == &ops::kOp_case) return Branches(node, operands);
    if (!node.regions().empty() || count != 1 || !node.type().is_tensor()) return Shardings(count);
    return Shardings{ops::Lies({node, mesh_, operands})};
  }

  absl::StatusOr<Shardings> Said(std::string_view specs) const {
    Shardings all;
    for (const std::string_view spec : absl::StrSplit(specs, ';')) {
      WEFT_ASSIGN_OR_RETURN(all.emplace_back(), ir::ParseSharding(spec, mesh_));
    }
    return all;
  }

  // Where one is whole, as the other lies.
  static void Join(const Sharding& other, Sharding* sharding) {
    if (sharding->whole()) *sharding = other;
  }

  absl::StatusOr<Shardings> Loop(const Node& node, const Shardings& operands) {
    const Function& body = *node.regions()[1];
    const size_t carried = body.results().size(), captures = body.parameters().size() - carried;
    Shardings now(operands.begin(), operands.begin() + static_cast<ptrdiff_t>(carried));
    for (int round = 0; round < kRounds; ++round) {
      Shardings parameters = now;
      parameters.insert(parameters.end(), operands.end() - static_cast<ptrdiff_t>(captures), operands.end());
      WEFT_ASSIGN_OR_RETURN(const Shardings next, Run(body, parameters));
      const Shardings before = now;
      for (size_t i = 0; i < carried; ++i) Join(next[i], &now[i]);
      if (now == before) break;
    }
    return now;
  }

  absl::StatusOr<Shardings> Branches(const Node& node, const Shardings& operands) {
    Shardings all(node.results().size());
    size_t at = 1;
    for (const Ref<const Function>& branch : node.regions()) {
      const size_t count = branch->parameters().size();
      WEFT_ASSIGN_OR_RETURN(const Shardings its, Run(*branch, std::span(operands).subspan(at, count)));
      for (size_t i = 0; i < all.size(); ++i) Join(its[i], &all[i]);
      at += count;
    }
    return all;
  }

  const Mesh& mesh_;
  HashMap<const Node*, Sharding> drawn_;
  HashMap<const Node*, const Node*> unknown_;
};

}  // namespace

bool IsOpen(const Sharding& sharding) { return std::ranges::any_of(sharding.dimensions, &Sharding::Dimension::open); }

absl::StatusOr<Shardings> ResultShardings(const ir::Module& module, std::vector<UnknownResult>* unknown,
                                          bool leave_open) {
  const ir::Participants& who = module.participants;
  // Nothing is left but what rules know, and what speaks of processes.
  const PipelineOptions options = {.claims = [](const Node& node) { return ops::SpeaksOfProcesses(node.op()); }};
  WEFT_ASSIGN_OR_RETURN(const ir::Module flat, ExpandComposites(module, options));
  const Function& main = flat.main();
  Shardings parameters = who.parameters, results = who.results;
  parameters.resize(main.parameters().size());
  results.resize(main.results().size());
  Walk walk(who.mesh);
  WEFT_ASSIGN_OR_RETURN(const Shardings found, walk.Run(main, parameters));
  for (size_t i = 0; i < results.size(); ++i) {
    if (!IsOpen(results[i])) continue;
    const auto at = walk.unknown().find(main.results()[i].node.get());
    const bool known = at == walk.unknown().end();
    if (known || !leave_open) results[i] = found[i];
    if (unknown != nullptr && !known) unknown->push_back({i, at->second->op().name, at->second->location()});
  }
  return results;
}

absl::StatusOr<ir::Module> PlaceDrawn(const ir::Module& module) {
  const ir::Participants& who = module.participants;
  Shardings parameters = who.parameters;
  parameters.resize(module.main().parameters().size());
  Walk walk(who.mesh);
  WEFT_RETURN_IF_ERROR(walk.Run(module.main(), parameters).status());
  if (walk.drawn().empty()) return module;
  return ir::Rewrite(module, [&](const ir::RewriteCall& call) -> ir::Values {
    const auto found = walk.drawn().find(&call.node);
    if (found == walk.drawn().end()) return {};
    ir::Values made = call.b.EmitAll(call.node.op(), call.operands, call.node.attrs());
    if (!call.b.ok()) return {};
    made[1] = call.b.Emit(ops::kOp_shard, {made[1]}, {ir::ToString(who.mesh, found->second, made[1].dims().size())});
    return made;
  });
}

}  // namespace weft::passes
