// map: a function of scalars at every element.
#include "src/ir/stablehlo_read.h"
#include "src/ops/batching.h"
#include "src/ops/scalar_function.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {.name = "inputs", .types = kEveryType, .doc = "tensors of one shape", .variadic = true, .group = 0}};
constexpr RegionDef kRegions[] = {{"computation", "a scalar of each input in, one scalar out"}};

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
  if (computation.results().size() != 1 || !computation.results()[0].type().is_tensor() ||
      !computation.results()[0].dims().empty()) {
    return UserError("the function @", computation.name(), " gives ", computation.results().size(), " results",
                     computation.results().empty() ? "" : ", the first " + ShortType(computation.results()[0].type()),
                     "; one scalar is needed");
  }
  WEFT_RETURN_IF_ERROR(CheckElementwise(computation));
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
    .batching = BatchLeading,
    .lowering = Lowering::kExpand,
    .reference = Reference,
    .stablehlo = StableHlo,
    .read = Read,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
