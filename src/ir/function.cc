// Finding and ordering the nodes of a function.
#include "src/ir/function.h"

#include <algorithm>

#include "src/ir/code.h"
#include "src/ir/op_def.h"
#include "src/runtime/fork.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/lasting.h"

namespace weft::ir {
namespace {

// Where counting nodes stops.
constexpr uint64_t kMostNodes = uint64_t{1} << 40;

}  // namespace

std::vector<const Node*> Reachable(std::span<const Value> values, bool (*stop)(const Node&)) {
  const Walk walk;
  std::vector<const Node*> found;
  auto visit = [&](const Value& value) {
    if (value && walk.Mark(*value.node, 0)) found.push_back(value.node.get());
  };
  for (const Value& value : values) visit(value);
  for (size_t i = 0; i < found.size(); ++i) {
    const Node* node = found[i];
    if (stop != nullptr && stop(*node)) continue;
    for (const Value& operand : node->operands()) visit(operand);
  }
  std::sort(found.begin(), found.end(), [](const Node* a, const Node* b) { return a->id() < b->id(); });
  return found;
}

Ref<const Function> Function::Create(std::string name, std::vector<Value> parameters, std::vector<Value> results,
                                     std::vector<ParameterInfo> infos) {
  const Ref<Function> function(new Function());  // memory may run out on the way
  function->name_ = std::move(name);
  function->parameters_ = std::move(parameters);
  function->infos_ = std::move(infos);
  function->infos_.resize(function->parameters_.size());
  function->results_ = std::move(results);
  HashSet<const Node*> parameter_nodes;
  for (const Value& parameter : function->parameters_) {
    parameter_nodes.insert(parameter.node.get());
    function->nodes_.push_back(parameter.node.get());
  }
  HashSet<const Function*> carried;
  for (const Node* node : Reachable(function->results_)) {
    if (!parameter_nodes.contains(node)) function->nodes_.push_back(node);
    for (const Ref<const Function>& region : node->regions()) {
      if (region == nullptr) continue;
      function->depth_ = std::max(function->depth_, region->depth() + (node->op().calls ? 0 : 1));
      function->size_ = std::min(kMostNodes, function->size_ + region->size());
      if (carried.insert(region.get()).second) function->callees_.push_back(region.get());
    }
  }
  function->size_ = std::min(kMostNodes, function->size_ + function->nodes_.size());
  return Ref<const Function>(function);
}

// --- Equal functions -----------------------------------------------------------------------------------------------------

namespace {

struct Interned {
  Mutex deriving;  // one function at a time is given something to keep; taken before any other
  Mutex mutex;
  // All functions by their bytes; a function without references is on the way out.
  HashMap<std::string, const Function*> functions ABSL_GUARDED_BY(mutex);
  uint64_t process ABSL_GUARDED_BY(mutex) = ForkGeneration();

  void HoldOverFork() {
    weft::HoldOverFork(deriving, ForkOrder::kFirst);
    weft::HoldOverFork(mutex, ForkOrder::kThen);
  }
};
// Never torn down: tensors may go after main has returned.
constinit Lasting<Interned> g_interned;
Interned& Table() { return g_interned.Get(); }

}  // namespace

Ref<const Function> Intern(Ref<const Function> function) {
  if (function->interned_) return function;
  std::string code;
  CodeWriter(&code, CodeWriter::Functions::kByAddress).Body(*function);
  Interned& table = Table();
  MutexLock lock(table.mutex);
  if (table.process != ForkGeneration()) {  // those of the parent's: their own locks may be held
    table.functions.clear();
    table.process = ForkGeneration();
  }
  auto [found, added] = table.functions.try_emplace(code, function.get());
  if (!added) {
    if (found->second->TryAddRef()) return Ref<const Function>(found->second);
    found->second = function.get();
  }
  function->code_ = std::move(code);
  function->interned_ = true;
  return function;
}

Function::~Function() {
  if (!interned_) return;
  Interned& table = Table();
  MutexLock lock(table.mutex);
  const auto found = table.functions.find(code_);
  if (found != table.functions.end() && found->second == this) table.functions.erase(found);
}

void Function::Destroy(const Function* function) {
  constinit static thread_local const Function* waiting = nullptr;
  constinit static thread_local bool busy = false;
  function->next_dead_ = std::exchange(waiting, function);
  if (busy) return;
  busy = true;
  while (waiting != nullptr) {
    const Function* next = std::exchange(waiting, waiting->next_dead_);
    delete next;
  }
  busy = false;
}

// --- What was made of functions ------------------------------------------------------------------------------------------

namespace {

template <typename T>
Ref<const T> Find(const std::vector<std::pair<std::string, Ref<const T>>>& all, std::string_view key) {
  for (const auto& [known, one] : all) {
    if (known == key) return one;
  }
  return nullptr;
}

template <typename T>
Ref<const T> Keep(std::vector<std::pair<std::string, Ref<const T>>>& all, std::string key, Ref<const T> made) {
  if (Ref<const T> known = Find(all, key)) return known;
  return all.emplace_back(std::move(key), std::move(made)).second;
}

}  // namespace

Ref<const Function> Function::Derived(std::string_view key) const {
  MutexLock lock(mutex_);
  return Find(derived_, key);
}

Ref<const SplitGradient> Function::Split(std::string_view key) const {
  MutexLock lock(mutex_);
  return Find(splits_, key);
}

// Two functions that keep each other would be kept for ever: the gradient of x -> 2 x is x -> 2 x.
bool Function::KeptBy(std::vector<const Function*> from) const {
  HashSet<const Function*> seen(from.begin(), from.end());
  const auto visit = [&](const Function* function) {
    if (function != nullptr && seen.insert(function).second) from.push_back(function);
  };
  while (!from.empty()) {
    const Function* const at = from.back();
    from.pop_back();
    if (at == this) return true;
    for (const Function* callee : at->callees_) visit(callee);
    MutexLock lock(at->mutex_);
    for (const auto& [key, function] : at->derived_) visit(function.get());
    for (const auto& [key, split] : at->splits_) {
      visit(split->forward.get());
      visit(split->backward.get());
    }
  }
  return false;
}

Ref<const Function> Function::Derive(std::string key, Ref<const Function> made) const {
  MutexLock deriving(Table().deriving);
  if (KeptBy({made.get()})) return made;
  MutexLock lock(mutex_);
  return Keep(derived_, std::move(key), std::move(made));
}

Ref<const SplitGradient> Function::KeepSplit(std::string key, Ref<const SplitGradient> made) const {
  std::vector<const Function*> parts = {made->backward.get()};
  if (made->forward != nullptr) parts.push_back(made->forward.get());
  MutexLock deriving(Table().deriving);
  if (KeptBy(std::move(parts))) return made;
  MutexLock lock(mutex_);
  return Keep(splits_, std::move(key), std::move(made));
}

// --- Functions within functions ------------------------------------------------------------------------------------------

std::vector<const Function*> CalleesFirst(const Function& function, absl::FunctionRef<bool(const Function&)> wanted) {
  std::vector<const Function*> ordered;
  HashSet<const Function*> seen;
  std::vector<std::pair<const Function*, size_t>> stack;  // with the next callee to look at
  const auto enter = [&](const Function& f) {
    if (wanted(f) && seen.insert(&f).second) stack.emplace_back(&f, 0);
  };
  enter(function);
  while (!stack.empty()) {
    auto& [at, next] = stack.back();
    if (next < at->callees().size()) {
      enter(*at->callees()[next++]);
      continue;
    }
    ordered.push_back(at);
    stack.pop_back();
  }
  return ordered;
}

std::vector<const Function*> CalleesFirst(const Function& function) {
  return CalleesFirst(function, [](const Function&) { return true; });
}

}  // namespace weft::ir
