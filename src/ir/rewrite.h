// Rebuilds graphs node by node: the one loop under all passes, and how the engine clones recorded nodes into a function.
#pragma once

#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "absl/hash/hash.h"
#include "src/ir/builder.h"
#include "src/ir/function.h"
#include "src/runtime/hash_map.h"

namespace weft::ir {

// Old values to new ones. Thread rule: one thread.
class ValueMap {
 public:
  void Bind(const Value& from, Value to) { map_.insert_or_assign(Key{from.node.get(), from.result}, std::move(to)); }
  // The new value, or null if nothing is bound.
  const Value* Find(const Value& from) const {
    auto found = map_.find(Key{from.node.get(), from.result});
    return found == map_.end() ? nullptr : &found->second;
  }
  void reserve(size_t n) { map_.reserve(n); }

 private:
  using Key = std::pair<const Node*, uint32_t>;
  HashMap<Key, Value> map_;
};

// A rewriting rule sees this much of one node: its operands and regions are already new.
struct RewriteCall {
  Builder& b;                // locations are set to the node's
  const Function& function;  // that the node is in: nodes of one are no operands of another's
  const Node& node;
  const Values& operands;
  std::span<const Ref<const Function>> regions;
  const HashMap<const Function*, Ref<const Function>>& rewritten;  // what became of all that `function` carries
};
// Returns the new results, one for each of the node's, or nothing to keep the node on its new operands. May make nodes
// through the builder; an error of the builder becomes the rewrite's.
using RewriteRule = absl::FunctionRef<Values(const RewriteCall& call)>;

// The node on other operands and regions, everything else kept; the node itself if nothing differs.
Ref<const Node> WithOperands(const Node& node, const Values& operands, std::span<const Ref<const Function>> regions);
// A fresh copy on other operands, without payload.
Ref<const Node> CopyNode(const Node& node, Values operands, std::span<const Ref<const Function>> regions);

// The function's results at these arguments, on nodes of their own.
Values Inline(const Function& function, std::span<const Value> arguments);

// Returns the number of nodes of the function with the functions that it carries written out at each place; INT64_MAX:
// at least so many. Twenty functions that each call the next one twice are a million.
int64_t WrittenOut(const Function& function);

// The function on nodes of its own. Functions that the nodes carry stay as they are.
Ref<const Function> OwnNodes(const Function& function);

// Functions on nodes of their own, parameters and regions too: what another thread may mark, use and drop at will. One copy of
// each, however often it is carried. Thread rule: one thread; nothing of the originals is marked.
class FunctionCopier {
 public:
  // `finish`: what takes the place of a copy.
  Ref<const Function> Copy(const Function& function, Ref<const Function> (*finish)(Ref<const Function> copy) = nullptr);

 private:
  HashMap<const Function*, Ref<const Function>> copies_;
};
Ref<const Function> CopyFunction(const Function& function);
// The one object of all functions like it (see Intern), whatever it carries: what that is becomes such objects, too.
Ref<const Function> InternAll(const Function& function);

// Applies the rule to every node, regions first, each region once. Parameters stay the same nodes; nodes that become unused
// vanish.
absl::StatusOr<Ref<const Function>> Rewrite(const Function& function, RewriteRule rule);
absl::StatusOr<Module> Rewrite(const Module& module, RewriteRule rule);

}  // namespace weft::ir
