// The forward step keeps expensive values for the backward step. Values that cheap elementwise operations, constants
// and moves make of a parameter, or of one other kept value, are computed again where they are read, and fuse there. So
// there are never more residuals than values that the backward step reads, and a chain of cheap operations costs one
// residual.
#include "src/autodiff/split.h"

#include "absl/strings/str_cat.h"
#include "src/ir/rewrite.h"
#include "src/ops/parameter.h"
#include "src/runtime/hash_map.h"

namespace weft::autodiff {
namespace {

using ir::Node;
using ir::Value;

// Costs no more than reading it again would.
bool CheapAgain(const Node& node) {
  const ir::OpDef& op = node.op();
  if (op.opaque || op.random || !node.regions().empty() || node.results().size() != 1) return false;
  return node.operands().empty() || op.cheap_again ||
         (op.lowering == ir::Lowering::kScalar && op.cost == ir::Cost::kCheap);
}

class Splitter {
 public:
  Splitter(const ir::Function& function, std::span<const Value> seeds, std::vector<Value> gradients, bool settled)
      : function_(function), seeds_(seeds), gradients_(std::move(gradients)), settled_(settled) {
    std::vector<Value> parameters(function.parameters().begin(), function.parameters().end());
    for (const Value& parameter : parameters) Number(parameter);
    // A result that is a parameter or another result is read as that.
    for (const Value& result : function.results()) Number(result);
    parameters.insert(parameters.end(), seeds.begin(), seeds.end());
    joint_ = ir::Function::Create("", std::move(parameters), gradients_);
    Classify();
  }

  Ref<const ir::SplitGradient> Run() {
    for (const Node* node : joint_->nodes()) {
      if (!late_.contains(node) || node->op().parameter) continue;
      for (const Value& operand : node->operands()) Need(operand);
    }
    for (const Value& gradient : gradients_) Need(gradient);
    auto made = MakeRef<ir::SplitGradient>();
    Backward(*made);
    if (!kept_.empty() || settled_) {
      std::vector<Value> results(function_.results().begin(), function_.results().end());
      results.insert(results.end(), kept_.begin(), kept_.end());
      made->forward = ir::Intern(ir::Function::Create(absl::StrCat(function_.name(), ".forward"),
                                                      {function_.parameters().begin(), function_.parameters().end()},
                                                      std::move(results)));
    }
    return made;
  }

 private:
  void Number(const Value& value) { numbers_.try_emplace(value, next_++); }

  // Which nodes need a cotangent, and which of the others are computed again, from what.
  void Classify() {
    for (const Value& seed : seeds_) late_.insert(seed.node.get());
    for (const Node* node : joint_->nodes()) {
      for (const Value& operand : node->operands()) {
        if (operand && late_.contains(operand.node.get())) late_.insert(node);
      }
      if (late_.contains(node) || node->op().parameter || !CheapAgain(*node)) continue;
      Value source;
      bool one = true;
      for (const Value& operand : node->operands()) {
        if (!operand || numbers_.contains(operand)) continue;
        const auto found = again_.find(operand.node.get());
        const Value& from = found == again_.end() ? operand : found->second;
        if (!from) continue;
        one = one && (!source || source == from);
        source = from;
      }
      one = one && (!source || source.type().bytes() <= node->type().bytes());
      if (one) again_.emplace(node, source);
    }
  }

  // Backward reads it: it is known already, computed again or kept.
  void Need(const Value& value) {
    std::vector<Value> open = {value};
    while (!open.empty()) {
      const Value at = std::move(open.back());
      open.pop_back();
      if (!at || late_.contains(at.node.get()) || numbers_.contains(at)) continue;
      if (!again_.contains(at.node.get())) {
        Number(at);
        kept_.push_back(at);
      } else if (needed_.insert(at.node.get()).second) {
        open.insert(open.end(), at.node->operands().begin(), at.node->operands().end());
      }
    }
  }

  // The late nodes and what is computed again, on parameters for whatever else they read.
  void Backward(ir::SplitGradient& made) {
    ir::ValueMap map;
    std::vector<Value> parameters;
    const auto read = [&](const Value& value, uint32_t number) {
      parameters.push_back(ops::Parameter(value.type()));
      made.reads.push_back(number);
      map.Bind(value, parameters.back());
    };
    // Cotangents are numbered behind everything that forward gives.
    for (const Value& seed : seeds_) numbers_.emplace(seed, next_++);
    const auto found = [&](const Value& value) {
      if (!value) return Value();
      if (map.Find(value) == nullptr) read(value, numbers_.at(value));
      return *map.Find(value);
    };
    for (const Node* node : joint_->nodes()) {
      if (node->op().parameter || (!late_.contains(node) && !needed_.contains(node))) continue;
      ir::Values operands;
      for (const Value& operand : node->operands()) operands.push_back(found(operand));
      const Ref<const Node> copy = ir::CopyNode(*node, std::move(operands), node->regions());
      for (uint32_t i = 0; i < node->results().size(); ++i) map.Bind({Ref<const Node>::Share(node), i}, {copy, i});
    }
    std::vector<Value> results;
    for (const Value& gradient : gradients_) results.push_back(found(gradient));
    made.backward = ir::Intern(
        ir::Function::Create(absl::StrCat(function_.name(), ".backward"), std::move(parameters), std::move(results)));
  }

  const ir::Function& function_;
  const std::span<const Value> seeds_;
  const std::vector<Value> gradients_;
  const bool settled_;
  Ref<const ir::Function> joint_;
  HashMap<Value, uint32_t> numbers_;  // of what is known where backward is called
  uint32_t next_ = 0;
  HashSet<const Node*> late_;
  HashMap<const Node*, Value> again_;  // computed again, from this and parameters; empty: from nothing else
  HashSet<const Node*> needed_;        // of those
  std::vector<Value> kept_;
};

}  // namespace

Ref<const ir::SplitGradient> Split(const ir::Function& function, std::span<const Value> seeds,
                                   std::vector<Value> gradients, bool settled) {
  return Splitter(function, seeds, std::move(gradients), settled).Run();
}

}  // namespace weft::autodiff
