// See recompute.h.
#include "src/ops/control/recompute.h"

#include "absl/strings/str_cat.h"
#include "src/ir/differentiable.h"
#include "src/ir/rewrite.h"
#include "src/runtime/hash_map.h"

namespace weft::ops {
namespace {

using namespace ir;

bool IsProduct(const Node& node) { return &node.op() == &kOp_dot_general || &node.op() == &kOp_convolution; }

// A function's gradient (parameters, cotangents -> cotangents) cut in two: forward gives the function's results and, behind them,
// what is kept; backward takes parameters, what is kept, cotangents.
struct Cut {
  Ref<const Function> forward, backward;  // no forward: nothing is kept
  size_t kept = 0;
};

// Kept are the products that need no cotangent and that backward reads, where those in front of them are known.
std::vector<Value> KeptOf(const Function& gradient, size_t parameters) {
  HashSet<const Node*> late, needed;
  for (const Value& cotangent : gradient.parameters().subspan(parameters)) late.insert(cotangent.node.get());
  for (const Node* node : gradient.nodes()) {
    for (const Value& operand : node->operands()) {
      if (operand && late.contains(operand.node.get())) late.insert(node);
    }
  }
  for (const Value& result : gradient.results()) needed.insert(result.node.get());
  std::vector<Value> kept;
  const std::span<const Node* const> nodes = gradient.nodes();
  for (size_t k = nodes.size(); k-- > 0;) {
    const Node& node = *nodes[k];
    if (!needed.contains(&node)) continue;
    if (IsProduct(node) && !late.contains(&node)) {
      kept.push_back({Ref<const Node>::Share(&node), 0});
      continue;
    }
    for (const Value& operand : node.operands()) {
      if (operand) needed.insert(operand.node.get());
    }
  }
  return kept;
}

absl::StatusOr<Cut> CutAtProducts(const Function& callee, const Function& gradient) {
  const size_t count = callee.parameters().size();
  const std::vector<Value> kept = KeptOf(gradient, count);
  if (kept.empty()) return Cut{nullptr, Ref<const Function>::Share(&gradient)};
  const Ref<const Function> own = OwnNodes(gradient);
  ValueMap to_own, map;
  for (size_t i = 0; i < gradient.nodes().size(); ++i) {
    to_own.Bind({Ref<const Node>::Share(gradient.nodes()[i]), 0}, {Ref<const Node>::Share(own->nodes()[i]), 0});
  }
  const std::span<const Value> all = own->parameters();
  std::vector<Value> parameters(all.begin(), all.begin() + static_cast<ptrdiff_t>(count)), behind, results, found;
  for (const Value& result : Inline(callee, parameters)) results.push_back(result);
  for (const Value& value : kept) {
    results.push_back(*to_own.Find(value));
    behind.push_back({Node::Create(kOp_parameter, {}, {}, {value.type()}), 0});
    map.Bind(results.back(), behind.back());
  }
  Cut cut{nullptr, nullptr, kept.size()};
  cut.forward = Intern(Function::Create(absl::StrCat(callee.name(), ".forward"), parameters, std::move(results)));
  for (const Value& parameter : all) map.Bind(parameter, parameter);
  for (const Node* node : own->nodes()) {
    if (map.Find({Ref<const Node>::Share(node), 0}) != nullptr) continue;
    Values operands;
    for (const Value& operand : node->operands()) operands.push_back(operand ? *map.Find(operand) : Value());
    const Ref<const Node> copy = CopyNode(*node, std::move(operands), node->regions());
    for (uint32_t i = 0; i < node->results().size(); ++i) map.Bind({Ref<const Node>::Share(node), i}, {copy, i});
  }
  for (const Value& result : own->results()) found.push_back(*map.Find(result));
  parameters.insert(parameters.end(), behind.begin(), behind.end());
  parameters.insert(parameters.end(), all.begin() + static_cast<ptrdiff_t>(count), all.end());
  cut.backward = Intern(Function::Create(gradient.name(), std::move(parameters), std::move(found)));
  return cut;
}

std::vector<bool> ReadBy(const Function& function) {
  HashSet<const Node*> read;
  for (const Node* node : function.nodes()) {
    for (const Value& operand : node->operands()) {
      if (operand) read.insert(operand.node.get());
    }
  }
  for (const Value& result : function.results()) read.insert(result.node.get());
  std::vector<bool> reads;
  for (const Value& parameter : function.parameters()) reads.push_back(read.contains(parameter.node.get()));
  return reads;
}

}  // namespace

absl::Status RecomputeGradient(const GradCall& call, Keep keep, std::span<Value> grads) {
  const Function& callee = *call.node.regions()[0];
  const size_t count = callee.parameters().size();
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> gradient, call.region_gradient(callee, call.wanted.first(count)));
  Cut cut{nullptr, gradient};
  if (keep == Keep::kProducts) {
    WEFT_ASSIGN_OR_RETURN(cut, CutAtProducts(callee, *gradient));
  }
  Values known(call.operands.begin(), call.operands.begin() + static_cast<ptrdiff_t>(count));
  if (cut.forward != nullptr) {
    const Values forward = CallAll(call.b, kOp_call, known, call.node.attrs(), {&cut.forward, 1});
    WEFT_RETURN_IF_ERROR(call.b.status());
    known.insert(known.end(), forward.begin() + static_cast<ptrdiff_t>(callee.results().size()), forward.end());
  }
  std::vector<bool> passes = ReadBy(*cut.backward);
  for (size_t r = 0; r < callee.results().size(); ++r) {
    const Value& result = callee.results()[r];
    if (!CarriesGradient(result.type())) continue;
    // Zeros stay in sight: what they make is folded.
    if (!call.cotangents[r]) passes[known.size()] = false;
    known.push_back(call.cotangents[r] ? call.cotangents[r] : Full(call.b, result.dtype(), result.dims(), 0));
  }
  WEFT_RETURN_IF_ERROR(call.b.status());
  Values behind;
  for (size_t i = 0; i < known.size(); ++i) {
    if (passes[i]) behind.push_back(known[i]);
  }
  if (!behind.empty()) {
    const Values passed = CallAll(call.b, kOp_optimization_barrier, std::move(behind));
    WEFT_RETURN_IF_ERROR(call.b.status());
    for (size_t i = 0, next = 0; i < known.size(); ++i) {
      if (passes[i]) known[i] = passed[next++];
    }
  }
  const Values found = CallAll(call.b, kOp_call, std::move(known), call.node.attrs(), {&cut.backward, 1});
  WEFT_RETURN_IF_ERROR(call.b.status());
  for (size_t i = 0, next = 0; i < grads.size(); ++i) {
    if (call.wanted[i]) grads[i] = found[next++];
  }
  return absl::OkStatus();
}

}  // namespace weft::ops
