// map: a function of scalars at every element.
#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ir/stablehlo_read.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {.name = "inputs", .types = kAnyType, .doc = "tensors of one shape", .variadic = true, .group = 0}};
constexpr RegionDef kRegions[] = {{"computation", "a scalar of each input in, one scalar out"}};

bool IsScalar(const Type& type) { return type.is_tensor() && type.dims.empty(); }

// Where one element goes in and one comes out, a rearrangement of elements is nothing.
bool KeepsTheElement(const Node& node) {
  return node.op().lowering == Lowering::kIndexMap && node.operands().size() == 1 && node.type().is_tensor() &&
         node.type().count() == 1 && node.operands()[0].type().count() == 1;
}

// The node's expansion as a function of its operands.
absl::StatusOr<Ref<const Function>> ExpansionOf(const Node& node) {
  std::vector<Value> parameters;
  Values operands;
  for (const Value& operand : node.operands()) {
    operands.push_back(operand ? Value{Node::Create(kOp_parameter, {}, {}, {operand.type()}), 0} : Value());
    if (operand) parameters.push_back(operands.back());
  }
  Builder b(node.location());
  Values results(node.results().size());
  WEFT_RETURN_IF_ERROR(Expand(b, node.op(), std::move(operands), node.attrs(), node.results(),
                              std::span(results.data(), results.size()), node.regions()));
  WEFT_RETURN_IF_ERROR(b.status());
  return Function::Create(std::string(node.op().c_name), std::move(parameters), {results.begin(), results.end()});
}

// The function at every element of tensors of shape `dims`.
absl::StatusOr<Values> AtEveryElement(Builder& b, const Function& function, std::span<const Value> inputs,
                                      const Dims& dims) {
  ValueMap map;
  for (size_t i = 0; i < inputs.size(); ++i) map.Bind(function.parameters()[i], inputs[i]);
  for (const Node* node : function.nodes().subspan(inputs.size())) {
    const OpDef& op = node->op();
    Values operands;
    for (const Value& operand : node->operands()) operands.push_back(operand ? *map.Find(operand) : Value());
    Values results;
    if (&op == &kOp_constant && node->type().count() == 1) {
      Value one = Reshape(b, b.Emit(op, {}, node->attrs()), {});
      results.push_back(BroadcastTo(b, std::move(one), dims));
    } else if (KeepsTheElement(*node)) {
      results.push_back(operands[0]);
    } else if (op.lowering == Lowering::kScalar && IsScalar(node->type())) {
      results = b.EmitAll(op, std::move(operands), node->attrs());
    } else if (op.kind == Kind::kComposite && op.expand != nullptr) {
      WEFT_ASSIGN_OR_RETURN(const Ref<const Function> expansion, ExpansionOf(*node));
      Values present;
      for (const Value& operand : operands) {
        if (operand) present.push_back(operand);
      }
      WEFT_ASSIGN_OR_RETURN(results, AtEveryElement(b, *expansion, present, dims));
    } else {
      return UserError("the function @", function.name(), " contains ", op.c_name,
                       ", which does not work element by element");
    }
    WEFT_RETURN_IF_ERROR(b.status());
    for (uint32_t i = 0; i < results.size(); ++i) map.Bind({Ref<const Node>::Share(node), i}, std::move(results[i]));
  }
  Values results;
  for (const Value& result : function.results()) results.push_back(*map.Find(result));
  return results;
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Function& computation = *call.regions[0];
  const Dims& dims = call.operands[0]->dims;
  if (computation.parameters().size() != call.operands.size()) {
    return UserError("the function @", computation.name(), " takes ", computation.parameters().size(),
                     " scalars; there are ", call.operands.size(), " inputs");
  }
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const Type& input = *call.operands[i];
    if (input.dims != dims) {
      return UserError("inputs 0 and ", i, " have shapes ", DimsToString(dims), " and ", DimsToString(input.dims),
                       "; they must agree");
    }
    const Type& parameter = computation.parameters()[i].type();
    if (!(parameter == Type::Scalar(input.dtype))) {
      return UserError("parameter ", i, " of the function @", computation.name(), " is ", ShortType(parameter),
                       "; for an input ", ShortType(input), " it must be ", ShortType(Type::Scalar(input.dtype)));
    }
  }
  if (computation.results().size() != 1 || !IsScalar(computation.results()[0].type())) {
    return UserError("the function @", computation.name(), " gives ", computation.results().size(), " results",
                     computation.results().empty() ? "" : ", the first " + ShortType(computation.results()[0].type()),
                     "; one scalar is needed");
  }
  // Tried on one element, on nodes of its own.
  Builder b;
  Values trial;
  for (const Value& parameter : computation.parameters()) {
    trial.push_back({Node::Create(kOp_parameter, {}, {}, {parameter.type()}), 0});
  }
  WEFT_RETURN_IF_ERROR(AtEveryElement(b, computation, trial, {}).status());
  results->push_back(Type::Tensor(computation.results()[0].dtype(), dims));
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Values inputs(call.operands.begin(), call.operands.end());
  inputs.push_back(call.cotangents[0]);
  absl::InlinedVector<bool, 4> only(call.wanted.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!call.wanted[i]) continue;
    only[i] = true;
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> gradient,
                          call.region_gradient(*call.node.regions()[0], std::span(only.data(), only.size())));
    only[i] = false;
    grads[i] = Call(call.b, kOp_map, inputs, {}, {&gradient, 1});
  }
  return absl::OkStatus();
}

absl::Status Expansion(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(Values values,
                        AtEveryElement(call.b, *call.regions[0], call.operands, call.operands[0].dims()));
  results[0] = std::move(values[0]);
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  std::vector<HostTensor> arguments;
  for (const HostTensor* operand : call.operands) arguments.emplace_back(operand->dtype(), Dims{});
  for (int64_t i = 0; i < call.results[0].count(); ++i) {
    for (size_t k = 0; k < arguments.size(); ++k) CopyElement(*call.operands[k], i, arguments[k], 0);
    WEFT_ASSIGN_OR_RETURN(const std::vector<HostTensor> value, call.run(*call.regions[0], arguments));
    CopyElement(value[0], 0, call.results[0], i);
  }
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Ints dimensions = Axes(node.type().rank());
  writer.Emit("map", {{"dimensions", ShloArray(dimensions)}}, writer.Body(*node.regions()[0]));
}

constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions}, {Part::kExample, Reason::kCarriesFunctions}};

Values Read(StableHloOp& op) {
  op.Understand({"dimensions"});  // always all of them
  return CallAll(op.b, kOp_map, op.OperandsAndCaptures(), {}, op.Functions());
}

}  // namespace

constinit const OpDef kOp_map = {
    .name = "map",
    .c_name = "map",
    .kind = Kind::kComposite,
    .doc =
        "A function of scalars at every element of tensors of one shape. The function is made of elementwise operations; in "
        "a program it is fused like them. For recorded functions; not callable from C yet.",
    .operands = kOperands,
    .regions = kRegions,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expansion,
    .lowering = Lowering::kExpand,
    .reference = Reference,
    .stablehlo = StableHlo,
    .read = Read,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
