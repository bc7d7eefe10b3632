// The types of a context's modes (runtime/held_types.h): what was recorded in f32, say, becomes a program in bf16, in the main
// function and in all that it carries. Everything before this pass knows the caller's types alone, everything after it the
// device's. Before expansions, which then compute with 16-bit floats as they would had the caller written those.
#include <algorithm>
#include <vector>

#include "src/ir/rewrite.h"
#include "src/ops/control/draws.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/parameter.h"
#include "src/passes/passes.h"
#include "src/runtime/hash_map.h"

namespace weft::passes {
namespace {

using ir::Attrs;
using ir::Builder;
using ir::Function;
using ir::Node;
using ir::Value;
using ir::Values;

// Tells whether the device holds any type of the node itself as another type.
bool Touches(const Node& node, const HeldTypes& held) {
  const auto other = [&](const ir::Type& type) { return type.is_tensor() && held.Of(type.dtype) != type.dtype; };
  if (std::ranges::any_of(node.results(), other)) return true;
  for (const Value& operand : node.operands()) {
    if (operand && other(operand.type())) return true;
  }
  for (size_t i = 0; i < node.attrs().size(); ++i) {
    const auto* dtype = std::get_if<DType>(&node.attrs().at(i));
    if (dtype != nullptr && held.Of(*dtype) != *dtype) return true;
  }
  return false;
}

HostTensor Held(const HostTensor& value, DType dtype) {
  HostTensor held(dtype, value.dims());
  ConvertHeld(value.dtype(), value.bytes(), dtype, held.mutable_bytes());
  return held;
}

class Holder {
 public:
  explicit Holder(const HeldTypes& held) : held_(held), drawing_(held) { drawing_.u64 = DType::kU64; }

  absl::StatusOr<Ref<const Function>> Main(const Function& function);

 private:
  // Values of one function: as they are held, and as they are seen where that is known without a conversion.
  struct Names {
    HashMap<Value, Value> held, seen;
  };
  using Functions = HashMap<const Function*, Ref<const Function>>;

  absl::StatusOr<Ref<const Function>> One(const Function& function, const HeldTypes& held, const Functions& carried,
                                          std::span<const ir::ParameterInfo> infos);
  // The results as they are held; those that are known as they are seen, too, are put into `names`.
  absl::StatusOr<Values> Rewritten(Builder& b, const Node& node, const HeldTypes& held, const Functions& carried,
                                   Names& names);
  // Makes the node on the types that the caller wrote.
  Values AsSeen(Builder& b, const Node& node, Names& names);
  Value Seen(Builder& b, const Value& value, Names& names);

  // States of the generator are u64, and what computes them means 64 bits. Where they come from the launch they stay what they
  // are; functions that draw get streams from outside and carry numbers of runs, so u64 stays u64 inside them.
  const HeldTypes held_;
  HeldTypes drawing_;
  HashSet<const Function*> draws_;
  Functions carried_, carried_drawing_;  // rewritten by held_ and by drawing_
};

Value Holder::Seen(Builder& b, const Value& value, Names& names) {
  Value& seen = names.seen[value];
  if (!seen) seen = ops::Convert(b, names.held.at(value), value.dtype());
  return seen;
}

Values Holder::AsSeen(Builder& b, const Node& node, Names& names) {
  Values operands;
  for (const Value& operand : node.operands()) operands.push_back(operand ? Seen(b, operand, names) : Value());
  const Ref<const Node> copy = ir::CopyNode(node, std::move(operands), node.regions());
  Values results;
  for (uint32_t i = 0; i < node.results().size(); ++i) results.push_back({copy, i});
  return results;
}

absl::StatusOr<Values> Holder::Rewritten(Builder& b, const Node& node, const HeldTypes& held, const Functions& carried,
                                         Names& names) {
  const ir::OpDef& op = node.op();
  if (node.regions().empty() && !Touches(node, held)) {
    Values operands, results;
    for (const Value& operand : node.operands()) operands.push_back(operand ? names.held.at(operand) : Value());
    const Ref<const Node> kept = ir::WithOperands(node, operands, {});
    for (uint32_t i = 0; i < node.results().size(); ++i) results.push_back({kept, i});
    return results;
  }
  if (&op == &ops::kOp_constant) {
    const HostTensor& value = ops::ConstantAttrs{node.attrs()}.value();
    return Values{ops::Constant(b, Held(value, held.Of(value.dtype())))};
  }
  if (op.as_seen) return AsSeen(b, node, names);
  const bool draws = std::ranges::any_of(node.regions(), [&](const auto& r) { return draws_.contains(r.get()); });
  const HeldTypes& inner = draws ? drawing_ : held;
  std::vector<Ref<const Function>> regions;
  for (const Ref<const Function>& region : node.regions()) {
    regions.push_back((draws ? carried_drawing_ : carried).at(region.get()));
  }
  Values operands;
  for (size_t i = 0; i < node.operands().size(); ++i) {
    const Value& operand = node.operands()[i];
    if (!operand) {
      operands.push_back({});
      continue;
    }
    const Value& value = names.held.at(operand);
    const bool state = i < op.operands.size() && op.operands[i].supplied;
    const bool fits = !operand.type().is_tensor() || value.dtype() == inner.Of(operand.dtype());
    operands.push_back(fits && !state ? value : Seen(b, operand, names));
  }
  Attrs attrs = node.attrs();
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (const auto* dtype = std::get_if<DType>(&attrs.at(i))) attrs.set(i, inner.Of(*dtype));
  }
  Builder trial(node.location());
  Values results = trial.EmitAll(op, std::move(operands), std::move(attrs), regions);
  bool fits = trial.ok() && results.size() == node.results().size();
  for (size_t i = 0; fits && i < results.size(); ++i) fits = results[i].type().dims == node.type(i).dims;
  if (fits) return results;
  // The operation takes no such type: a transform of f32 into complex numbers, the random numbers of a range that bf16
  // has none in.
  if (regions.empty()) return AsSeen(b, node, names);
  return trial.ok() ? InternalError(op.name, " has other results on the types of the device") : trial.status();
}

absl::StatusOr<Ref<const Function>> Holder::One(const Function& function, const HeldTypes& held,
                                                const Functions& carried, std::span<const ir::ParameterInfo> infos) {
  Names names;
  Builder b;
  const auto type_of = [&](const ir::Type& type) {
    return type.is_tensor() ? ir::Type::Tensor(held.Of(type.dtype), type.dims) : type;
  };
  const auto name = [&](const Value& value, const Value& made) {
    const bool is_held = !value.type().is_tensor() || made.dtype() == held.Of(value.dtype());
    names.held[value] = is_held ? made : ops::Convert(b, made, held.Of(value.dtype()));
    if (made.type() == value.type()) names.seen[value] = made;
  };
  std::vector<Value> parameters, results;
  for (size_t i = 0; i < function.parameters().size(); ++i) {
    const Value& p = function.parameters()[i];
    // Numbers of a launch come as the caller gave them.
    const bool words = i < infos.size() && infos[i].role == ir::ParameterInfo::Role::kWords;
    Value made = p;
    if (!words && !(type_of(p.type()) == p.type())) {
      made = ops::Parameter(type_of(p.type()));
    }
    parameters.push_back(made);
    name(p, made);
  }
  for (const Node* node : function.nodes().subspan(function.parameters().size())) {
    b.set_location(node->location());
    WEFT_ASSIGN_OR_RETURN(const Values made, Rewritten(b, *node, held, carried, names));
    for (uint32_t i = 0; i < node->results().size(); ++i) name(Value{Ref<const Node>::Share(node), i}, made[i]);
    WEFT_RETURN_IF_ERROR(b.status());
  }
  for (const Value& result : function.results()) results.push_back(names.held.at(result));
  return Function::Create(function.name(), std::move(parameters), std::move(results), {infos.begin(), infos.end()});
}

absl::StatusOr<Ref<const Function>> Holder::Main(const Function& function) {
  const std::vector<const Function*> all = ir::CalleesFirst(function);
  const bool apart = drawing_ != held_;
  for (const Function* each : all) {
    if (!apart) break;
    const bool inside = std::ranges::any_of(each->callees(), [&](const Function* f) { return draws_.contains(f); });
    if (inside || std::ranges::any_of(each->nodes(), [](const Node* node) { return ops::Draws(*node); })) {
      draws_.insert(each);
    }
  }
  for (const Function* each : all) {
    if (each == &function || carried_.contains(each)) continue;
    // A function that draws is only ever carried beside functions of its kind.
    if (!draws_.contains(each)) {
      WEFT_ASSIGN_OR_RETURN(carried_[each], One(*each, held_, carried_, {}));
    }
    if (!draws_.empty()) {
      WEFT_ASSIGN_OR_RETURN(carried_drawing_[each], One(*each, drawing_, carried_drawing_, {}));
    }
  }
  return One(function, held_, carried_, function.parameter_infos());
}

}  // namespace

absl::StatusOr<ir::Module> HoldTypes(const ir::Module& module, const PipelineOptions& options) {
  if (!options.held.any()) return module;
  ir::Module result = module;
  Holder holder(options.held);
  for (Ref<const Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, holder.Main(*function));
  }
  return result;
}

}  // namespace weft::passes
