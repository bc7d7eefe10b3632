// See recompute.h.
#include "src/ops/control/recompute.h"

#include "absl/strings/str_cat.h"
#include "src/ir/rewrite.h"
#include "src/ops/parameter.h"
#include "src/runtime/hash_map.h"

namespace weft::ops {
namespace {

using namespace ir;

bool IsProduct(const Node& node) { return &node.op() == &kOp_dot_general || &node.op() == &kOp_convolution; }

// The backward step computes again what the forward step would have kept, from the function's parameters and, where
// they are kept, products.
Ref<const SplitGradient> KeepLess(const Function& callee, const SplitGradient& split, Keep keep) {
  const Ref<const Function> own = OwnNodes(split.forward != nullptr ? *split.forward : callee);
  const size_t count = own->parameters().size(), first_cotangent = count + own->results().size();
  const auto known = [&](uint32_t number) {
    return number < count ? own->parameters()[number] : own->results()[number - count];
  };
  HashSet<const Node*> needed;
  for (const uint32_t number : split.reads) {
    if (number < first_cotangent) needed.insert(known(number).node.get());
  }
  const std::span<const Value> results = own->results().first(callee.results().size());
  std::vector<Value> given(results.begin(), results.end());
  HashMap<const Node*, size_t> kept;  // which of what forward gives
  for (size_t k = own->nodes().size(); k-- > 0;) {
    const Node& node = *own->nodes()[k];
    if (!needed.contains(&node)) continue;
    if (keep == Keep::kProducts && IsProduct(node)) {
      kept.emplace(&node, given.size());
      given.push_back({Ref<const Node>::Share(&node), 0});
      continue;
    }
    for (const Value& operand : node.operands()) {
      if (operand) needed.insert(operand.node.get());
    }
  }
  auto made = MakeRef<SplitGradient>();
  std::vector<Value> parameters, arguments;
  const auto read = [&](const Type& type, size_t number) {
    made->reads.push_back(static_cast<uint32_t>(number));
    return parameters.emplace_back(Parameter(type));
  };
  ValueMap again;
  for (size_t i = 0; i < own->nodes().size(); ++i) {
    const Node& node = *own->nodes()[i];
    if (!needed.contains(&node)) continue;
    const auto found = kept.find(&node);
    if (i < count || found != kept.end()) {
      again.Bind({Ref<const Node>::Share(&node), 0}, read(node.type(), i < count ? i : count + found->second));
      continue;
    }
    Values operands;
    for (const Value& operand : node.operands()) operands.push_back(operand ? *again.Find(operand) : Value());
    const Ref<const Node> copy = CopyNode(node, std::move(operands), node.regions());
    for (uint32_t r = 0; r < node.results().size(); ++r) again.Bind({Ref<const Node>::Share(&node), r}, {copy, r});
  }
  const size_t shift = count + given.size();
  for (size_t i = 0; i < split.reads.size(); ++i) {
    const uint32_t number = split.reads[i];
    arguments.push_back(number < first_cotangent
                            ? *again.Find(known(number))
                            : read(split.backward->parameters()[i].type(), shift + number - first_cotangent));
  }
  const Values slopes = Inline(*split.backward, arguments);
  made->backward = Intern(Function::Create(split.backward->name(), std::move(parameters),
                                           std::vector<Value>(slopes.begin(), slopes.end())));
  if (!kept.empty()) {
    made->forward = Intern(Function::Create(absl::StrCat(callee.name(), ".forward"),
                                            {own->parameters().begin(), own->parameters().end()}, std::move(given)));
  }
  return made;
}

}  // namespace

absl::StatusOr<Ref<const SplitGradient>> RecomputeSplit(const GradCall& call, Keep keep, std::span<const bool> given) {
  const Function& callee = *call.node.regions()[0];
  std::string key = absl::StrCat("keep ", static_cast<int64_t>(keep), " ");
  for (const bool one : call.wanted) key += one ? '1' : '0';
  key += ' ';
  for (const bool one : given) key += one ? '1' : '0';
  if (Ref<const SplitGradient> known = callee.Split(key)) return known;
  WEFT_ASSIGN_OR_RETURN(const Ref<const SplitGradient> split, call.region_split(callee, call.wanted, given));
  return callee.KeepSplit(std::move(key), KeepLess(callee, *split, keep));
}

}  // namespace weft::ops
