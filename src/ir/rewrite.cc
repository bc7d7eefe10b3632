// The rebuilding loop.
#include "src/ir/rewrite.h"

#include <algorithm>

#include "src/ir/text.h"
#include "src/runtime/hash_map.h"

namespace weft::ir {
namespace {

// Maps a region to its rewritten form. Several nodes may carry one region.
using Rewritten = HashMap<const Function*, Ref<const Function>>;

// Requires that the functions that this one carries have been rewritten.
absl::StatusOr<Ref<const Function>> RewriteOne(const Function& function, RewriteRule rule, const Rewritten& known) {
  // Maps each node seen so far to its new results; the list is empty where they are what they were.
  HashMap<const Node*, Values> became;
  became.reserve(function.nodes().size());
  const Node* from = nullptr;  // the last that was looked up: neighbours are often of one node
  const Values* now = nullptr;
  const auto find = [&](const Value& value) -> const Value* {
    if (value.node.get() != from) {
      const auto found = became.find(value.node.get());
      if (found == became.end()) return nullptr;
      from = value.node.get();
      now = &found->second;
    }
    return now->empty() ? &value : &(*now)[value.result];
  };
  bool changed = false;
  for (const Value& parameter : function.parameters()) became.try_emplace(parameter.node.get());
  Builder b;
  Values operands;
  std::vector<Ref<const Function>> regions;
  for (const Node* node : function.nodes().subspan(function.parameters().size())) {
    operands.clear();
    for (const Value& operand : node->operands()) {
      const Value* found = operand ? find(operand) : nullptr;
      if (operand && found == nullptr) {
        return InternalError("rewriting @", function.name(), ": an operand is not computed before its use\n  ",
                             PrintNode(function, *node));
      }
      operands.push_back(operand ? *found : Value());
    }
    regions.clear();
    for (const Ref<const Function>& region : node->regions()) regions.push_back(known.at(region.get()));
    b.set_location(node->location());
    Values results = rule(RewriteCall{b, function, *node, operands, regions, known});
    WEFT_RETURN_IF_ERROR(b.status());
    if (results.empty()) {
      const Ref<const Node> kept = WithOperands(*node, operands, regions);
      for (uint32_t i = 0; kept.get() != node && i < node->results().size(); ++i) results.push_back(Value{kept, i});
      changed = changed || !results.empty();
      became.try_emplace(node, std::move(results));
      continue;
    }
    if (results.size() != node->results().size()) {
      return InternalError("a rewrite of ", node->op().name, " gives ", results.size(), " results instead of ",
                           node->results().size());
    }
    for (uint32_t i = 0; i < results.size(); ++i) {
      const Value old{Ref<const Node>::Share(node), i};
      if (!(results[i].type() == old.type())) {
        return InternalError("a rewrite changes the type ", ToString(old.type()), " to ", ToString(results[i].type()),
                             "\n  ", PrintNode(function, *node));
      }
      changed = changed || !(results[i] == old);
    }
    became.try_emplace(node, std::move(results));
  }
  if (!changed) return Ref<const Function>::Share(&function);
  std::vector<Value> results;
  for (const Value& result : function.results()) results.push_back(*find(result));
  return Function::Create(function.name(), {function.parameters().begin(), function.parameters().end()},
                          std::move(results), {function.parameter_infos().begin(), function.parameter_infos().end()});
}

}  // namespace

Ref<const Node> CopyNode(const Node& node, Values operands, std::span<const Ref<const Function>> regions) {
  std::unique_ptr<const Regions> owned;
  if (!regions.empty()) owned.reset(new Regions{{regions.begin(), regions.end()}});
  std::unique_ptr<const NodeExtras> extras;
  if (node.extras() != nullptr) extras = std::make_unique<const NodeExtras>(*node.extras());
  return Node::Create(node.op(), std::move(operands), node.attrs(), Types(node.results().begin(), node.results().end()),
                      std::move(owned), node.location(), std::move(extras));
}

Ref<const Node> WithOperands(const Node& node, const Values& operands, std::span<const Ref<const Function>> regions) {
  const auto old_operands = node.operands();
  const auto old_regions = node.regions();
  if (std::equal(operands.begin(), operands.end(), old_operands.begin(), old_operands.end()) &&
      std::equal(regions.begin(), regions.end(), old_regions.begin(), old_regions.end())) {
    return Ref<const Node>::Share(&node);
  }
  return CopyNode(node, operands, regions);
}

namespace {

// Copies what `map` does not bind yet. `copy` says what is carried instead of a function.
void CopyNodes(const Function& function, absl::FunctionRef<Ref<const Function>(const Ref<const Function>&)> copy,
               ValueMap& map) {
  std::vector<Ref<const Function>> regions;
  for (const Node* node : function.nodes()) {
    if (map.Find({Ref<const Node>::Share(node), 0}) != nullptr) continue;
    Values operands;
    for (const Value& operand : node->operands()) operands.push_back(operand ? *map.Find(operand) : Value());
    regions.clear();
    for (const Ref<const Function>& region : node->regions()) regions.push_back(copy(region));
    const Ref<const Node> made = CopyNode(*node, std::move(operands), regions);
    for (uint32_t i = 0; i < node->results().size(); ++i) map.Bind({Ref<const Node>::Share(node), i}, {made, i});
  }
}

std::vector<Value> Mapped(std::span<const Value> values, const ValueMap& map) {
  std::vector<Value> mapped;
  for (const Value& value : values) mapped.push_back(*map.Find(value));
  return mapped;
}

}  // namespace

Values Inline(const Function& function, std::span<const Value> arguments) {
  ValueMap map;
  map.reserve(function.nodes().size());
  for (size_t i = 0; i < arguments.size(); ++i) map.Bind(function.parameters()[i], arguments[i]);
  // Carried functions are immutable and stay what they are.
  CopyNodes(function, [](const Ref<const Function>& region) { return region; }, map);
  const std::vector<Value> results = Mapped(function.results(), map);
  return Values(results.begin(), results.end());
}

int64_t WrittenOut(const Function& function) {
  HashMap<const Function*, int64_t> sizes;
  for (const Function* each : CalleesFirst(function)) {
    auto size = static_cast<int64_t>(each->nodes().size());
    for (const Node* node : each->nodes()) {
      for (const Ref<const Function>& region : node->regions()) {
        if (__builtin_add_overflow(size, sizes.at(region.get()), &size)) return INT64_MAX;
      }
    }
    sizes.emplace(each, size);
  }
  return sizes.at(&function);
}

Ref<const Function> OwnNodes(const Function& function) {
  ValueMap map;
  map.reserve(function.nodes().size());
  CopyNodes(function, [](const Ref<const Function>& region) { return region; }, map);
  return Function::Create(function.name(), Mapped(function.parameters(), map), Mapped(function.results(), map),
                          {function.parameter_infos().begin(), function.parameter_infos().end()});
}

Ref<const Function> FunctionCopier::Copy(const Function& function,
                                         Ref<const Function> (*finish)(Ref<const Function> copy)) {
  const auto is_new = [&](const Function& each) { return !copies_.contains(&each); };
  for (const Function* each : CalleesFirst(function, is_new)) {
    ValueMap map;
    map.reserve(each->nodes().size());
    CopyNodes(*each, [&](const Ref<const Function>& region) { return copies_.at(region.get()); }, map);
    Ref<const Function> copy =
        Function::Create(each->name(), Mapped(each->parameters(), map), Mapped(each->results(), map),
                         {each->parameter_infos().begin(), each->parameter_infos().end()});
    copies_.emplace(each, finish != nullptr ? finish(std::move(copy)) : std::move(copy));
  }
  return copies_.at(&function);
}

Ref<const Function> CopyFunction(const Function& function) { return FunctionCopier().Copy(function); }
Ref<const Function> InternAll(const Function& function) { return FunctionCopier().Copy(function, Intern); }

absl::StatusOr<Ref<const Function>> Rewrite(const Function& function, RewriteRule rule) {
  Rewritten known;
  for (const Function* each : CalleesFirst(function)) {
    WEFT_ASSIGN_OR_RETURN(Ref<const Function> rewritten, RewriteOne(*each, rule, known));
    known.emplace(each, std::move(rewritten));
  }
  return known.at(&function);
}

absl::StatusOr<Module> Rewrite(const Module& module, RewriteRule rule) {
  Module result = module;
  for (Ref<const Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, Rewrite(*function, rule));
  }
  return result;
}

}  // namespace weft::ir
