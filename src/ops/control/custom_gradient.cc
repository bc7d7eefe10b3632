// custom_gradient: a function whose gradient two others say (JAX's custom_vjp).
#include "src/ops/control/custom_gradient.h"

#include <algorithm>

#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/complex.h"
#include "src/ops/control/captures.h"
#include "src/ops/parameter.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {.name = "operands",
     .types = kEveryType,
     .doc = "the inputs, then what the function captures, what forward does, what backward does",
     .optional = true,
     .variadic = true,
     .group = 0}};
constexpr AttrDef kAttrs[] = {
    {"inputs", AttrType::kInt, "so many operands are inputs", true},
    {"settled", AttrType::kBool,
     "a gradient was taken by the rule, and these are the results that it reads: their derivatives are those of forward",
     false, "false"}};
constexpr RegionDef kRegions[] = {{"function", "the inputs in, the results out"},
                                  {"forward", "the inputs in, the results and residuals out"},
                                  {"backward",
                                   "the residuals and a cotangent for each float result in, one for each float input "
                                   "out"}};
constexpr std::string_view kResults[] = {"results"};

size_t CountFlowing(std::span<const Value> values) {
  return static_cast<size_t>(std::ranges::count_if(values, [](const Value& value) { return Flows(value); }));
}

// Parts of the operands: those of the region's own captures.
struct Operands {
  explicit Operands(const CustomParts& p, std::span<const Value> all) : inputs(all.first(p.inputs)) {
    size_t at = p.inputs;
    const auto next = [&](size_t count) { return all.subspan(std::exchange(at, at + count), count); };
    function = next(p.own(p.function));
    forward = next(p.own(p.forward));
    backward = next(p.backward.parameters().size() - p.backward_inputs());
  }
  std::span<const Value> inputs, function, forward, backward;
};

Values Joined(std::span<const Value> first, std::span<const Value> second) {
  Values all(first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

absl::StatusOr<CustomParts> PartsOf(const Node& node) {
  return CustomPartsOf(node.regions(), static_cast<size_t>(Attr<kAttrs, "inputs">(node.attrs())));
}

absl::Status Infer(const InferCall& call, Types* results) {
  const int64_t inputs = Attr<kAttrs, "inputs">(call.attrs);
  size_t given = call.operands.size();
  while (given > 0 && call.operands[given - 1] == nullptr) --given;
  if (inputs < 0 || inputs > static_cast<int64_t>(given)) {
    return UserError("inputs is ", inputs, "; there are ", given, " operands");
  }
  WEFT_ASSIGN_OR_RETURN(const CustomParts p, CustomPartsOf(call.regions, static_cast<size_t>(inputs)));
  const size_t behind = p.backward_inputs(),
               own[] = {p.own(p.function), p.own(p.forward), p.backward.parameters().size() - behind};
  const size_t wanted = p.inputs + own[0] + own[1] + own[2];
  if (given != wanted) {
    return UserError("the functions have ", wanted, " inputs and captures in all; there are ", given, " operands");
  }
  size_t at = p.inputs;
  WEFT_RETURN_IF_ERROR(CheckParameters(p.function, 0, call.operands.first(p.inputs + own[0])));
  WEFT_RETURN_IF_ERROR(CheckParameters(p.forward, p.inputs, call.operands.subspan(at += own[0], own[1])));
  WEFT_RETURN_IF_ERROR(CheckParameters(p.backward, behind, call.operands.subspan(at + own[1], own[2])));
  for (const Value& result : p.function.results()) results->push_back(result.type());
  return absl::OkStatus();
}

// The gradient of a call of forward, whose first results are these.
absl::Status GradientOfForward(const GradCall& call, std::span<Value> grads) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<size_t> places, ForwardPlaces(call.node));
  Values operands;
  absl::InlinedVector<bool, 8> wanted;
  for (const size_t place : places) {
    operands.push_back(call.operands[place]);
    wanted.push_back(call.wanted[place]);
  }
  const Values results = CallAll(call.b, kOp_call, operands, {}, call.node.regions().subspan(1, 1));
  WEFT_RETURN_IF_ERROR(call.b.status());
  Values cotangents(results.size()), found(operands.size());
  std::ranges::copy(call.cotangents, cotangents.begin());
  const GradCall of{call.b,
                    *results[0].node,
                    operands,
                    results,
                    cotangents,
                    std::span(wanted.data(), wanted.size()),
                    call.region_gradient,
                    call.region_split};
  WEFT_RETURN_IF_ERROR(kOp_call.gradient(of, found));
  for (size_t i = 0; i < places.size(); ++i) grads[places[i]] = std::move(found[i]);
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  if (IsSettled(call.node)) return GradientOfForward(call, grads);
  WEFT_ASSIGN_OR_RETURN(const CustomParts p, PartsOf(call.node));
  for (size_t i = p.inputs; i < call.wanted.size(); ++i) {
    if (!call.wanted[i]) continue;
    return UserError("a gradient is asked for with respect to what the function @", p.function.name(),
                     " or its rules captured (operand ", i, ", ", ShortType(call.operands[i].type()),
                     "), and backward gives those of inputs: make it an input, or end the gradient with stop_gradient");
  }
  const Operands operands(p, call.operands);
  const auto regions = call.node.regions();
  const Values forward =
      CallAll(call.b, kOp_call, Joined(operands.inputs, operands.forward), {}, regions.subspan(1, 1));
  WEFT_RETURN_IF_ERROR(call.b.status());
  Values given(forward.begin() + static_cast<ptrdiff_t>(p.function.results().size()), forward.end());
  for (size_t r = 0; r < call.results.size(); ++r) {
    if (!Flows(call.results[r])) continue;
    given.push_back(call.cotangents[r] ? Conj(call.b, call.cotangents[r]) : FullLike(call.b, call.results[r], 0));
  }
  const Values found = CallAll(call.b, kOp_call, Joined(given, operands.backward), {}, regions.subspan(2, 1));
  WEFT_RETURN_IF_ERROR(call.b.status());
  for (size_t i = 0, next = 0; i < p.inputs; ++i) {
    if (!Flows(call.operands[i])) continue;
    if (call.wanted[i]) grads[i] = Conj(call.b, found[next]);
    ++next;
  }
  return absl::OkStatus();
}

// Backward over all examples: cotangents of inputs that the examples share are sums over them.
absl::StatusOr<Ref<const Function>> Summed(const Function& backward, const CustomParts& p,
                                           std::span<const bool> batched) {
  std::vector<Value> parameters = ParametersLike(backward.parameters()), results;
  Builder b;
  const Values found = Inline(backward, parameters);
  size_t next = 0;
  for (size_t i = 0; i < p.inputs; ++i) {
    if (!Flows(p.function.parameters()[i])) continue;
    const Value& each = found[next++];
    results.push_back(batched[i] ? each : Reduce(b, each, Reducer::kSum, {0}));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return Intern(Function::Create(backward.name(), std::move(parameters), std::move(results)));
}

// The function, forward and backward of all examples. Results have examples whether they depend on them or not, so that each cotangent is one example's.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const CustomParts p, PartsOf(call.node));
  using Flags = absl::InlinedVector<bool, 16>;
  const auto span = [](const Flags& flags) { return std::span<const bool>(flags.data(), flags.size()); };
  const std::span<const bool> inputs = call.batched.first(p.inputs);
  size_t at = p.inputs;
  const auto with = [&](Flags first, size_t own) {
    const std::span<const bool> more = call.batched.subspan(std::exchange(at, at + own), own);
    first.insert(first.end(), more.begin(), more.end());
    return first;
  };
  Flags all(p.function.results().size(), true), forward_wants = all;
  forward_wants.resize(p.forward.results().size(), false);
  Ref<const Function> made[3];
  WEFT_ASSIGN_OR_RETURN(
      made[0], call.region_batch(p.function, span(with({inputs.begin(), inputs.end()}, p.own(p.function))), span(all)));
  WEFT_ASSIGN_OR_RETURN(
      made[1],
      call.region_batch(p.forward, span(with({inputs.begin(), inputs.end()}, p.own(p.forward))), span(forward_wants)));
  Flags given;
  for (size_t r = all.size(); r < p.forward.results().size(); ++r) {
    given.push_back(HasExamples(made[1]->results()[r].type(), p.forward.results()[r].type()));
  }
  given.resize(p.backward_inputs(), true);
  const size_t own = p.backward.parameters().size() - p.backward_inputs();
  const Flags wanted(p.backward.results().size(), true);
  WEFT_ASSIGN_OR_RETURN(made[2], call.region_batch(p.backward, span(with(std::move(given), own)), span(wanted)));
  WEFT_ASSIGN_OR_RETURN(made[2], Summed(*made[2], p, inputs));
  Values operands(call.operands.begin(), call.operands.begin() + static_cast<ptrdiff_t>(at));
  std::ranges::move(CallAll(call.b, call.node.op(), std::move(operands), call.node.attrs(), made), results.begin());
  return absl::OkStatus();
}

absl::Status Expansion(const ExpandCall& call, std::span<Value> results) {
  const size_t count = call.regions[0]->parameters().size();
  std::ranges::move(
      CallAll(call.b, kOp_call, {call.operands.begin(), call.operands.begin() + static_cast<ptrdiff_t>(count)}, {},
              call.regions.first(1)),
      results.begin());
  return absl::OkStatus();
}

// Text says what runs: the function.
void StableHlo(const Node& node, StableHloWriter& writer) {
  const Function& function = *node.regions()[0];
  std::vector<std::string> names;
  for (const Value& operand : node.operands().first(function.parameters().size()))
    names.push_back(writer.Name(operand));
  writer.EmitOn("func.call", names, {{"callee", writer.Symbol(function)}});
}

}  // namespace

size_t CustomParts::backward_inputs() const { return residuals + CountFlowing(function.results()); }

absl::StatusOr<CustomParts> CustomPartsOf(RegionSpan regions, size_t inputs, const TakenInputs* taken) {
  CustomParts p{*regions[0], *regions[1], *regions[2], inputs, 0};
  const Function &f = p.function, &forward = p.forward, &backward = p.backward;
  const size_t takes = taken != nullptr ? taken->forward : forward.parameters().size();
  if (taken != nullptr ? takes != inputs : takes < inputs || f.parameters().size() < inputs) {
    return UserError("the forward function @", forward.name(), " takes ", takes, " inputs; the function @", f.name(),
                     " takes ", inputs, ", and forward the same");
  }
  for (size_t i = 0; i < inputs; ++i) {
    const Type &one = f.parameters()[i].type(), &other = forward.parameters()[i].type();
    if (one == other) continue;
    return UserError("input ", i, " of the forward function @", forward.name(), " is ", ShortType(other),
                     "; it is that of @", f.name(), ", ", ShortType(one));
  }
  const size_t count = f.results().size();
  if (forward.results().size() < count) {
    return UserError("the forward function @", forward.name(), " has ", forward.results().size(), " results; the ",
                     count, " of @", f.name(), " come first, then what backward reads");
  }
  for (size_t r = 0; r < count; ++r) {
    const Type &one = f.results()[r].type(), &other = forward.results()[r].type();
    if (one == other) continue;
    return UserError("result ", r, " of the forward function @", forward.name(), " is ", ShortType(other),
                     "; it is that of @", f.name(), ", ", ShortType(one));
  }
  p.residuals = forward.results().size() - count;
  const size_t cotangents = CountFlowing(f.results()), reads = p.residuals + cotangents;
  const size_t given = taken != nullptr ? taken->backward : backward.parameters().size();
  if (taken != nullptr ? given != reads : given < reads) {
    return UserError("the backward function @", backward.name(), " takes ", given, " inputs; it takes ", reads, ": ",
                     p.residuals, " that @", forward.name(),
                     " gives behind the results, and a cotangent for each of the ", cotangents,
                     " float or complex results");
  }
  size_t at = p.residuals;
  for (size_t i = 0; i < p.residuals; ++i) {
    const Type &one = forward.results()[count + i].type(), &other = backward.parameters()[i].type();
    if (one == other) continue;
    return UserError("input ", i, " of the backward function @", backward.name(), " is ", ShortType(other),
                     "; it is result ", count + i, " of @", forward.name(), ", ", ShortType(one));
  }
  for (size_t r = 0; r < count; ++r) {
    if (!Flows(f.results()[r])) continue;
    const Type &one = f.results()[r].type(), &other = backward.parameters()[at++].type();
    if (one == other) continue;
    return UserError("input ", at - 1, " of the backward function @", backward.name(), " is ", ShortType(other),
                     "; it is the cotangent of result ", r, ", ", ShortType(one));
  }
  const size_t flowing = CountFlowing(f.parameters().first(inputs));
  if (backward.results().size() != flowing) {
    return UserError("the backward function @", backward.name(), " has ", backward.results().size(),
                     " results; it has one for each of the ", flowing, " float or complex inputs of @", f.name());
  }
  for (size_t i = 0, next = 0; i < inputs; ++i) {
    if (!Flows(f.parameters()[i])) continue;
    const Type &one = f.parameters()[i].type(), &other = backward.results()[next++].type();
    if (one == other) continue;
    return UserError("result ", next - 1, " of the backward function @", backward.name(), " is ", ShortType(other),
                     "; it is the cotangent of input ", i, ", ", ShortType(one));
  }
  return p;
}

absl::StatusOr<std::vector<size_t>> ForwardPlaces(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const CustomParts p, PartsOf(node));
  std::vector<size_t> places;
  for (size_t i = 0; i < p.inputs; ++i) places.push_back(i);
  for (size_t i = 0; i < p.own(p.forward); ++i) places.push_back(p.inputs + p.own(p.function) + i);
  return places;
}

bool HasRule(const Node& node) { return &node.op() == &kOp_custom_gradient; }
bool IsSettled(const Node& node) { return HasRule(node) && Attr<kAttrs, "settled">(node.attrs()); }

bool Settler::Carries(const Function& function) {
  const auto [found, first] = carries_.try_emplace(&function, false);
  if (!first) return found->second;
  const bool carries = std::ranges::any_of(function.nodes(), [&](const Node* node) { return Needs(*node); });
  return carries_[&function] = carries;
}

bool Settler::Needs(const Node& node) {
  if (HasRule(node)) return !IsSettled(node) || Carries(*node.regions()[1]);
  return std::ranges::any_of(node.regions(), [&](const Ref<const Function>& region) { return Carries(*region); });
}

Ref<const Node> Settler::Settled(const Node& node, Values operands) {
  std::vector<Ref<const Function>> regions(node.regions().begin(), node.regions().end());
  if (HasRule(node)) {
    if (IsSettled(node)) regions[1] = Settled(*regions[1]);
    Attrs attrs = node.attrs();
    attrs.set(AttrPosition<kAttrs, "settled">(), int64_t{1});
    std::unique_ptr<const Regions> owned(new Regions{std::move(regions)});
    return Node::Create(node.op(), std::move(operands), std::move(attrs),
                        {node.results().begin(), node.results().end()}, std::move(owned), node.location());
  }
  for (Ref<const Function>& region : regions) region = Settled(*region);
  return CopyNode(node, std::move(operands), regions);
}

Ref<const Function> Settler::Settled(const Function& function) {
  if (!Carries(function)) return Ref<const Function>::Share(&function);
  if (Ref<const Function> known = function.Derived("settled")) return known;
  ValueMap map;
  std::vector<Value> parameters = ParametersLike(function.parameters()), results;
  for (size_t i = 0; i < parameters.size(); ++i) map.Bind(function.parameters()[i], parameters[i]);
  for (const Node* node : function.nodes().subspan(parameters.size())) {
    Values operands;
    for (const Value& operand : node->operands()) operands.push_back(operand ? *map.Find(operand) : Value());
    const Ref<const Node> copy = Settled(*node, std::move(operands));
    for (uint32_t i = 0; i < node->results().size(); ++i) map.Bind({Ref<const Node>::Share(node), i}, {copy, i});
  }
  for (const Value& result : function.results()) results.push_back(*map.Find(result));
  return function.Derive("settled",
                         Intern(Function::Create(function.name(), std::move(parameters), std::move(results))));
}

constinit const OpDef kOp_custom_gradient = {
    .name = "weft.custom_gradient",
    .c_name = "custom_gradient",
    .kind = Kind::kComposite,
    .doc =
        "The results of a function whose gradient is what two others say. The C function is weft_function_custom_gradient.",
    .operands = kOperands,
    .attrs = kAttrs,
    .regions = kRegions,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expansion,
    .batching = Batching,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .absent = kExpandsToOthers,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
