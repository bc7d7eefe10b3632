// One reverse sweep over the nodes between output and wrt, newest first.
#include "src/autodiff/gradient.h"

#include <algorithm>
#include <limits>

#include "src/autodiff/split.h"
#include "src/ir/differentiable.h"
#include "src/ir/rewrite.h"
#include "src/ops/complex.h"
#include "src/ops/control/custom_gradient.h"
#include "src/ops/parameter.h"
#include "src/runtime/hash_map.h"

namespace weft::autodiff {
namespace {

using ir::Builder;
using ir::Node;
using ir::Value;
using ops::Parameter;

// The nodes on paths from wrt to the outputs, with everything the sweep needs precomputed: rules may walk graphs of
// their own while it runs, which would overwrite the marks on the nodes.
struct Tape {
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  std::vector<const Node*> nodes;         // by id
  std::vector<uint32_t> first_operand;    // per node, into operand_at
  std::vector<uint32_t> operand_at;       // per operand: index of its node in `nodes`, kNone if no gradient flows there
  std::vector<uint32_t> first_cotangent;  // per node, into the cotangents
  uint32_t cotangents = 0;
  std::vector<uint32_t> output_at, wrt_at;
};

bool HasFlowingResult(const Node& node) {
  return std::ranges::any_of(node.results(), [](const ir::Type& type) { return ir::CarriesGradient(type); });
}

// Why an operation has no gradient of its own, kNone if it says nothing.
ir::Reason ReasonOf(const ir::OpDef& op) {
  for (const ir::Absent& absent : op.absent) {
    if (absent.part == ir::Part::kGradient) return absent.reason;
  }
  return ir::Reason::kNone;
}

// Nothing comes through it to its operands.
bool EndsHere(const ir::OpDef& op) {
  if (op.gradient != nullptr) return false;
  const ir::Reason reason = ReasonOf(op);
  return reason == ir::Reason::kNotDifferentiable || reason == ir::Reason::kStructural || reason == ir::Reason::kRandom;
}

// `operands`, if any: outputs are an expansion of a node on these operands, wrt among them, and what lies behind them is
// somebody else's business.
Tape MakeTape(std::span<const Value> outputs, std::span<const Value> wrt, std::span<const Value> operands) {
  const bool leaves_only = !operands.empty();
  Tape tape;
  uint64_t oldest = std::numeric_limits<uint64_t>::max();
  for (const Value& value : wrt) oldest = std::min(oldest, value.node->id());
  ir::Walk walk;
  std::vector<const Node*> found;
  auto visit = [&](const Value& value) {
    if (!value || value.node->id() < oldest) return;
    if (walk.Mark(*value.node, 0)) found.push_back(value.node.get());
  };
  // Marked before everything else, so that the expansion's own walk ends there.
  if (leaves_only) {
    for (const Value& value : wrt) visit(value);
    for (const Value& value : operands) {
      if (value) walk.Mark(*value.node, Tape::kNone);
    }
  }
  const size_t leaves = found.size();
  for (const Value& value : outputs) visit(value);
  for (size_t i = leaves; i < found.size(); ++i) {
    const Node& node = *found[i];
    if (EndsHere(node.op()) || !HasFlowingResult(node)) continue;
    for (const Value& operand : node.operands()) visit(operand);
  }
  std::sort(found.begin(), found.end(), [](const Node* a, const Node* b) { return a->id() < b->id(); });

  // Index kNone = not on a path. wrt themselves are.
  for (const Node* node : found) walk.Set(*node, Tape::kNone);
  for (const Value& value : wrt) {
    if (walk.Marked(*value.node)) walk.Set(*value.node, 0);
  }
  for (const Node* node : found) {
    bool on_path = walk.At(*node) != Tape::kNone;
    const bool is_leaf = leaves_only && on_path;
    if (!on_path && HasFlowingResult(*node)) {
      for (const Value& operand : node->operands()) {
        on_path = on_path || (operand && walk.Marked(*operand.node) && walk.At(*operand.node) != Tape::kNone);
      }
    }
    if (!on_path) continue;
    walk.Set(*node, static_cast<uint32_t>(tape.nodes.size()));
    tape.nodes.push_back(node);
    tape.first_cotangent.push_back(tape.cotangents);
    tape.cotangents += static_cast<uint32_t>(node->results().size());
    tape.first_operand.push_back(static_cast<uint32_t>(tape.operand_at.size()));
    for (const Value& operand : node->operands()) {
      const bool flows = !is_leaf && operand && ir::CarriesGradient(operand.dtype()) && walk.Marked(*operand.node);
      tape.operand_at.push_back(flows ? walk.At(*operand.node) : Tape::kNone);
    }
  }
  auto index = [&](const Value& value) { return walk.Marked(*value.node) ? walk.At(*value.node) : Tape::kNone; };
  for (const Value& value : outputs) tape.output_at.push_back(value ? index(value) : Tape::kNone);
  for (const Value& value : wrt) tape.wrt_at.push_back(index(value));
  return tape;
}

// Values as rules see them: the graph's own, but for what functions with rules of their own give and what is computed of that. Those
// are made anew, settled (see ops::Settler), where a gradient goes through them. Without such functions nothing is made.
class Settled {
 public:
  Settled(ir::Builder& b, const Tape& tape) {
    ops::Settler settler;
    for (size_t k = 0; k < tape.nodes.size() && b.ok(); ++k) {
      const Node& node = *tape.nodes[k];
      const uint32_t* const at = tape.operand_at.data() + tape.first_operand[k];
      const bool flows = std::any_of(at, at + node.operands().size(), [](uint32_t i) { return i != Tape::kNone; });
      if (!flows || !(settler.Needs(node) || (any_ && ReadsAny(node)))) continue;
      any_ = true;
      const Ref<const Node> made = settler.Settled(node, Of(node.operands()));
      for (uint32_t i = 0; i < node.results().size(); ++i) map_.Bind({Ref<const Node>::Share(&node), i}, {made, i});
    }
  }

  bool any() const { return any_; }
  Value operator()(const Value& value) const {
    const Value* const found = any_ && value ? map_.Find(value) : nullptr;
    return found != nullptr ? *found : value;
  }
  ir::Values Of(std::span<const Value> values) const {
    ir::Values all;
    for (const Value& value : values) all.push_back((*this)(value));
    return all;
  }

 private:
  bool ReadsAny(const Node& node) const {
    return std::ranges::any_of(node.operands(), [&](const Value& v) { return v && map_.Find(v) != nullptr; });
  }

  bool any_ = false;
  ir::ValueMap map_;
};

// `seen`, if any: the outputs as rules see them.
absl::Status Sweep(ir::Builder& b, std::span<const Value> outputs, std::span<const Value> seeds,
                   std::span<const Value> wrt, std::span<const Value> operands, std::span<Value> gradients,
                   std::span<Value> seen = {});

// Tells whether the cotangent of a 16-bit operand stays f32: a broadcast's cotangent is summed next, and is rounded
// after that.
bool StaysWide(const Value& operand) {
  return operand && IsWidened(operand.dtype()) && &operand.node->op() == &ops::kOp_broadcast_in_dim;
}

// The operands' cotangents of one node, through its rule or its expansion.
absl::Status Reverse(ir::Builder& b, const Node& node, const Settled& settled, std::span<const Value> cotangents,
                     std::span<const bool> wanted, std::span<Value> grads) {
  const ir::OpDef& op = node.op();
  const ir::Values made = settled.any() ? settled.Of(node.operands()) : ir::Values();
  const std::span<const Value> operands = settled.any() ? std::span(made.data(), made.size()) : node.operands();
  absl::InlinedVector<Value, 2> results;
  for (uint32_t i = 0; i < node.results().size(); ++i) results.push_back(settled({Ref<const Node>::Share(&node), i}));
  if (op.gradient != nullptr) {
    bool wide = ops::ComputesWide(op, operands);
    // Functions take what they take.
    for (size_t i = 0; i < wanted.size() && node.regions().empty(); ++i) {
      wide = wide || (wanted[i] && StaysWide(node.operands()[i]));
    }
    if (wide) {
      const ir::Values x = ops::Widened(b, operands), g = ops::Widened(b, cotangents);
      // Rules that use results get them in f32 too: computed again where the value is read, or the forward's own, which
      // the merging of equal operations finds. Operations that only move or choose have exact ones.
      const bool again = op.lowering == ir::Lowering::kScalar || op.kind == ir::Kind::kComposite;
      const ir::Values y = again ? b.EmitAll(op, x, node.attrs(), node.regions()) : ops::Widened(b, results);
      WEFT_RETURN_IF_ERROR(b.status());
      WEFT_RETURN_IF_ERROR(op.gradient(ir::GradCall{b, node, x, y, g, wanted, &RegionGradient, &RegionSplit}, grads));
    } else {
      const ir::GradCall call{b, node, operands, results, cotangents, wanted, &RegionGradient, &RegionSplit};
      WEFT_RETURN_IF_ERROR(op.gradient(call, grads));
    }
    for (size_t i = 0; i < grads.size(); ++i) {
      const Value& operand = node.operands()[i];
      if (grads[i] && IsWidened(operand.dtype()) && !StaysWide(operand)) {
        grads[i] = ops::Convert(b, std::move(grads[i]), operand.dtype());
      }
    }
    return absl::OkStatus();
  }
  if (EndsHere(op)) return absl::OkStatus();
  if (op.expand == nullptr) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the operation ", op.c_name, " has no gradient");
  }
  // Depth of recursion: composites within composites, at most a handful.
  WEFT_RETURN_IF_ERROR(ops::Expand(b, op, {operands.begin(), operands.end()}, node.attrs(), node.results(),
                                   std::span(results.data(), results.size()), node.regions()));
  WEFT_RETURN_IF_ERROR(b.status());
  ir::Values leaves;
  absl::InlinedVector<size_t, 4> slots;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    leaves.push_back(operands[i]);
    slots.push_back(i);
  }
  ir::Values found(leaves.size());
  WEFT_RETURN_IF_ERROR(Sweep(b, results, cotangents, leaves, operands, std::span(found.data(), found.size())));
  for (size_t i = 0; i < slots.size(); ++i) {
    // The same value as two operands was differentiated as one leaf: the first slot carries all of it.
    bool repeated = false;
    for (size_t j = 0; j < i; ++j) repeated = repeated || leaves[j] == leaves[i];
    if (!repeated) grads[slots[i]] = std::move(found[i]);
  }
  return absl::OkStatus();
}

void Accumulate(ir::Builder& b, Value& sum, Value term) {
  if (sum && term && sum.dtype() != term.dtype()) {  // one of them stayed wide
    sum = ops::Widened(b, sum);
    term = ops::Widened(b, term);
  }
  sum = sum ? ops::Add(b, std::move(sum), std::move(term)) : std::move(term);
}

absl::Status Sweep(ir::Builder& b, std::span<const Value> outputs, std::span<const Value> seeds,
                   std::span<const Value> wrt, std::span<const Value> operands, std::span<Value> gradients,
                   std::span<Value> seen) {
  const Tape tape = MakeTape(outputs, wrt, operands);
  const Settled settled(b, tape);
  for (size_t i = 0; i < seen.size(); ++i) seen[i] = settled(outputs[i]);
  std::vector<Value> cotangents(tape.cotangents);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (tape.output_at[i] == Tape::kNone || !seeds[i]) continue;
    Accumulate(b, cotangents[tape.first_cotangent[tape.output_at[i]] + outputs[i].result], seeds[i]);
  }
  // Per node the first of its wrt, chained: a wrt inside the graph passes its cotangent on, so it is copied out before
  // the sweep drops it.
  std::vector<uint32_t> first_wrt(tape.nodes.size(), Tape::kNone);
  std::vector<uint32_t> next_wrt(wrt.size(), Tape::kNone);
  for (uint32_t i = 0; i < wrt.size(); ++i) {
    if (tape.wrt_at[i] == Tape::kNone) continue;
    next_wrt[i] = std::exchange(first_wrt[tape.wrt_at[i]], i);
  }
  absl::InlinedVector<bool, 8> wanted;
  ir::Values grads;
  const ir::Location location = b.location();
  for (size_t k = tape.nodes.size(); k-- > 0;) {
    const Node& node = *tape.nodes[k];
    const std::span<Value> mine(cotangents.data() + tape.first_cotangent[k], node.results().size());
    if (std::all_of(mine.begin(), mine.end(), [](const Value& value) { return !value; })) continue;
    for (uint32_t i = first_wrt[k]; i != Tape::kNone; i = next_wrt[i]) {
      const Value& cotangent = mine[wrt[i].result];
      gradients[i] = cotangent ? ops::Convert(b, cotangent, wrt[i].dtype()) : Value();
    }
    const size_t n = node.operands().size();
    const uint32_t* at = tape.operand_at.data() + tape.first_operand[k];
    wanted.assign(n, false);
    bool any = false;
    for (size_t i = 0; i < n; ++i) any = (wanted[i] = at[i] != Tape::kNone) || any;
    if (any) {
      grads.assign(n, Value());
      // Errors and positions of the reverse step are those of the forward operation.
      if (node.location().file != 0) b.set_location(node.location());
      absl::Status status = Reverse(b, node, settled, mine, std::span(wanted.data(), n), std::span(grads.data(), n));
      if (status.ok()) status = b.status();
      if (!status.ok()) {
        b.set_location(location);
        return absl::Status(status.code(),
                            absl::StrCat("in the gradient of ", node.op().c_name, ": ", status.message()));
      }
      for (size_t i = 0; i < n; ++i) {
        if (!wanted[i] || !grads[i]) continue;
        const Value& operand = node.operands()[i];
        if (grads[i].dims() != operand.dims() || (grads[i].dtype() != operand.dtype() && !StaysWide(operand))) {
          b.set_location(location);
          return InternalError("the gradient of ", node.op().c_name, " gives operand ", i, " of type ",
                               ir::ShortType(operand.type()), " a cotangent of type ", ir::ShortType(grads[i].type()));
        }
        Accumulate(b, cotangents[tape.first_cotangent[at[i]] + operand.result], std::move(grads[i]));
      }
    }
    for (Value& value : mine) value = Value();
  }
  b.set_location(location);
  return b.status();
}

// The texts call things what weft_grad calls them.
absl::Status CheckFlows(std::string_view what, const Value& value) {
  if (!value) return UserError("grad: ", what, " is missing");
  if (ops::Flows(value)) return absl::OkStatus();
  return UserError("grad: ", what, " must be a float or complex tensor, not ", ir::ShortType(value.type()));
}

}  // namespace

absl::StatusOr<std::vector<Value>> Gradient(ir::Builder& b, const Value& output, std::span<const Value> wrt,
                                            Value seed) {
  WEFT_RETURN_IF_ERROR(b.status());
  WEFT_RETURN_IF_ERROR(CheckFlows("y", output));
  for (size_t i = 0; i < wrt.size(); ++i) WEFT_RETURN_IF_ERROR(CheckFlows(absl::StrCat("xs[", i, "]"), wrt[i]));
  if (!seed) {
    if (output.type().count() != 1) {
      return UserError("grad: y has shape ", DimsToString(output.dims()),
                       "; without a cotangent it must have one element (reduce it, or give a cotangent)");
    }
    if (IsComplex(output.dtype())) {
      return UserError("grad: y is ", ir::ShortType(output.type()),
                       "; without a cotangent it must be real (take its abs or its real part, or give a cotangent)");
    }
    seed = ops::FullLike(b, output, 1.0);
    WEFT_RETURN_IF_ERROR(b.status());
  } else if (!(seed.type() == output.type())) {
    return UserError("grad: cotangent is ", ir::ShortType(seed.type()), "; it must have y's type ",
                     ir::ShortType(output.type()));
  }
  std::vector<Value> gradients(wrt.size());
  if (wrt.empty()) return gradients;
  seed = ops::Conj(b, seed);
  WEFT_RETURN_IF_ERROR(Sweep(b, std::span(&output, 1), std::span(&seed, 1), wrt, {}, gradients));
  for (size_t i = 0; i < wrt.size(); ++i) {
    gradients[i] = gradients[i] ? ops::Conj(b, gradients[i]) : ops::FullLike(b, wrt[i], 0.0);
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return gradients;
}

absl::Status Gradients(ir::Builder& b, std::span<const Value> outputs, std::span<const Value> seeds,
                       std::span<const Value> wrt, std::span<Value> gradients, std::span<Value> seen) {
  return Sweep(b, outputs, seeds, wrt, {}, gradients, seen);
}

namespace {

// Values of a graph on stand-ins, made anew on what they stand for; what is bound already is not made.
std::vector<Value> Instantiate(Builder& b, std::span<const Value> values, ir::ValueMap& map) {
  HashSet<const Node*> needed;
  const auto need = [&](const Value& value) {
    if (value && map.Find(value) == nullptr) needed.insert(value.node.get());
  };
  const auto found = [&](const Value& value) { return value ? *map.Find(value) : Value(); };
  for (const Value& value : values) need(value);
  const std::vector<const Node*> nodes = ir::Reachable(values);
  for (size_t k = nodes.size(); k-- > 0;) {
    if (!needed.contains(nodes[k])) continue;
    for (const Value& operand : nodes[k]->operands()) need(operand);
  }
  for (const Node* node : nodes) {
    if (!needed.contains(node)) continue;
    ir::Values operands;
    for (const Value& operand : node->operands()) operands.push_back(found(operand));
    ir::Values results = b.EmitAll(node->op(), std::move(operands), node->attrs(), node->regions());
    if (!b.ok()) break;
    for (uint32_t i = 0; i < results.size(); ++i) {
      const Value old{Ref<const Node>::Share(node), i};
      if (map.Find(old) == nullptr) map.Bind(old, std::move(results[i]));
    }
  }
  std::vector<Value> made(values.size());
  for (size_t i = 0; i < values.size() && b.ok(); ++i) made[i] = found(values[i]);
  return made;
}

// Checks that a value that the caller gives for one result has the type of the operation's result.
absl::Status CheckGiven(const OpGradientCall& call, std::string_view what, size_t i, const Value& given,
                        const Value& result) {
  if (!given || given.type() == result.type()) return absl::OkStatus();
  return ir::NameCall(
      call.op, call.inputs,
      UserError(what, "[", i, "] is ", ir::ShortType(given.type()), "; the result is ", ir::ShortType(result.type())));
}

}  // namespace

absl::StatusOr<std::vector<Value>> OpGradient(Builder& b, OpGradientCall call) {
  WEFT_RETURN_IF_ERROR(b.status());
  if (call.op.random) {
    return ir::NameCall(call.op, call.inputs,
                        UserErrorOf(absl::StatusCode::kUnimplemented,
                                    "it draws random numbers, which its inputs and results do not say; use weft_grad"));
  }
  // Records on stand-ins: an input that is given twice is two, and no recorded node is walked.
  Builder scratch(b.location());
  ir::ValueMap map;
  ir::Values parameters;
  for (const Value& input : call.inputs) {
    parameters.push_back(input ? Parameter(input.type()) : Value());
    if (input) map.Bind(parameters.back(), input);
  }
  const ir::Values outputs = ops::CallAll(scratch, call.op, parameters, std::move(call.attrs));
  WEFT_RETURN_IF_ERROR(scratch.status());
  if (call.cotangents.size() != outputs.size() || (!call.results.empty() && call.results.size() != outputs.size())) {
    return ir::NameCall(call.op, call.inputs,
                        UserError("it has ", outputs.size(), " results; ", call.results.size(), " results and ",
                                  call.cotangents.size(), " cotangents are given"));
  }
  std::vector<Value> seeds, wrt;
  for (size_t i = 0; i < outputs.size(); ++i) {
    WEFT_RETURN_IF_ERROR(CheckGiven(call, "cotangents", i, call.cotangents[i], outputs[i]));
    if (call.cotangents[i] && !ir::CarriesGradient(outputs[i].dtype())) {
      return ir::NameCall(call.op, call.inputs,
                          UserError("result ", i, " is ", ir::ShortType(outputs[i].type()),
                                    ", which has no gradient; cotangents[", i, "] must be NULL"));
    }
    seeds.push_back(call.cotangents[i] ? Parameter(outputs[i].type()) : Value());
    if (seeds.back()) map.Bind(seeds.back(), ops::Conj(b, call.cotangents[i]));
    if (call.results.empty()) continue;
    WEFT_RETURN_IF_ERROR(CheckGiven(call, "results", i, call.results[i], outputs[i]));
    if (call.results[i] && map.Find(outputs[i]) == nullptr) map.Bind(outputs[i], call.results[i]);
  }
  std::vector<size_t> slots;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!call.wanted[i] || !parameters[i] || !ir::CarriesGradient(parameters[i].dtype())) continue;
    wrt.push_back(parameters[i]);
    slots.push_back(i);
  }
  std::vector<Value> gradients(wrt.size());
  if (!wrt.empty()) WEFT_RETURN_IF_ERROR(Sweep(scratch, outputs, seeds, wrt, {}, gradients));
  gradients = Instantiate(b, gradients, map);
  WEFT_RETURN_IF_ERROR(b.status());
  std::vector<Value> all(call.inputs.size());
  for (size_t i = 0; i < slots.size(); ++i) all[slots[i]] = ops::Conj(b, gradients[i]);
  WEFT_RETURN_IF_ERROR(b.status());
  return all;
}

namespace {

// A function's own copy, because the sweep marks what it walks, and the gradient of its results that are `given` with respect to
// what is wanted: zeros where nothing depends on it.
struct Reversed {
  Ref<const ir::Function> copy;
  std::vector<Value> seeds, gradients;
  bool settled = false;  // the copy's results are
};
absl::StatusOr<Reversed> ReverseFunction(const ir::Function& function, std::span<const bool> wanted,
                                         std::span<const bool> given) {
  Reversed reversed{ir::OwnNodes(function), {}, {}};
  std::vector<Value> wrt, outputs;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) wrt.push_back(reversed.copy->parameters()[i]);
  }
  std::vector<Value> seeds, results(reversed.copy->results().begin(), reversed.copy->results().end());
  for (size_t i = 0; i < results.size(); ++i) {
    outputs.push_back(results[i]);
    seeds.push_back(given[i] ? Parameter(results[i].type()) : Value());
    if (given[i]) reversed.seeds.push_back(seeds.back());
  }
  ir::Builder b;
  reversed.gradients.resize(wrt.size());
  WEFT_RETURN_IF_ERROR(Sweep(b, outputs, seeds, wrt, {}, reversed.gradients, results));
  reversed.settled = !std::ranges::equal(results, reversed.copy->results());
  if (reversed.settled) {
    const std::span<const Value> parameters = reversed.copy->parameters();
    reversed.copy =
        ir::Function::Create(reversed.copy->name(), {parameters.begin(), parameters.end()}, std::move(results));
  }
  for (size_t i = 0; i < wrt.size(); ++i) {
    if (!reversed.gradients[i]) reversed.gradients[i] = ops::FullLike(b, wrt[i], 0.0);
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return reversed;
}

std::string KeyOf(std::string_view what, std::span<const bool> wanted) {
  std::string key = absl::StrCat(what, " ");
  for (const bool one : wanted) key += one ? '1' : '0';
  return key;
}

}  // namespace

absl::StatusOr<Ref<const ir::Function>> RegionGradient(const ir::Function& region, std::span<const bool> wanted) {
  std::string key = KeyOf("gradient", wanted);
  if (Ref<const ir::Function> known = region.Derived(key)) return known;
  absl::InlinedVector<bool, 8> given;
  for (const Value& result : region.results()) given.push_back(ops::Flows(result));
  WEFT_ASSIGN_OR_RETURN(Reversed reversed, ReverseFunction(region, wanted, std::span(given.data(), given.size())));
  std::vector<Value> parameters(reversed.copy->parameters().begin(), reversed.copy->parameters().end());
  std::ranges::move(reversed.seeds, std::back_inserter(parameters));
  Ref<const ir::Function> made = ir::Function::Create(absl::StrCat(region.name(), ".gradient"), std::move(parameters),
                                                      std::move(reversed.gradients));
  return region.Derive(std::move(key), ir::Intern(std::move(made)));
}

absl::StatusOr<Ref<const ir::SplitGradient>> RegionSplit(const ir::Function& region, std::span<const bool> wanted,
                                                         std::span<const bool> given) {
  std::string key = KeyOf(KeyOf("", wanted), given);
  if (Ref<const ir::SplitGradient> known = region.Split(key)) return known;
  WEFT_ASSIGN_OR_RETURN(Reversed reversed, ReverseFunction(region, wanted, given));
  return region.KeepSplit(std::move(key),
                          Split(*reversed.copy, reversed.seeds, std::move(reversed.gradients), reversed.settled));
}

}  // namespace weft::autodiff
