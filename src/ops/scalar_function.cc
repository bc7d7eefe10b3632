// See scalar_function.h.
#include "src/ops/scalar_function.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "src/ops/parameter.h"
#include "src/ops/reducer_read.h"

namespace weft::ops {
namespace {

using namespace ir;

// The limit of operations that a function at every element may have with its calls written out.
constexpr int64_t kMostWritten = int64_t{1} << 16;

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
    operands.push_back(operand ? Parameter(operand.type()) : Value());
    if (operand) parameters.push_back(operands.back());
  }
  Builder b(node.location());
  Values results(node.results().size());
  WEFT_RETURN_IF_ERROR(Expand(b, node.op(), std::move(operands), node.attrs(), node.results(),
                              std::span(results.data(), results.size()), node.regions()));
  WEFT_RETURN_IF_ERROR(b.status());
  return Function::Create(std::string(node.op().c_name), std::move(parameters), {results.begin(), results.end()});
}

std::string TypesOf(std::span<const Value> values) {
  return absl::StrJoin(values, ", ", [](std::string* out, const Value& v) { out->append(ShortType(v.type())); });
}
std::string ScalarsOf(std::span<const DType> types) {
  return absl::StrJoin(types, ", ", [](std::string* out, DType type) { out->append(ShortType(Type::Scalar(type))); });
}
bool AreScalarsOf(std::span<const Value> values, std::span<const DType> types) {
  return std::ranges::equal(values, types, [](const Value& v, DType type) { return v.type() == Type::Scalar(type); });
}

}  // namespace

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
    } else if ((op.lowering == Lowering::kScalar || op.lowering == Lowering::kPlanes) && IsScalar(node->type())) {
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

absl::Status CheckElementwise(const Function& function) {
  if (const int64_t written = WrittenOut(function); written > kMostWritten) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the function @", function.name(),
                       ", which runs at every element, has ",
                       written == INT64_MAX ? "more than 2^63" : absl::StrCat(written),
                       " operations with its calls written out; at most ", kMostWritten, " are supported");
  }
  // Tried on one element, on nodes of its own.
  Builder b;
  const std::vector<Value> trial = ParametersLike(function.parameters());
  return AtEveryElement(b, function, trial, {}).status();
}

absl::Status CheckScalarFunction(const Function& function, std::span<const DType> parameters,
                                 std::span<const DType> results) {
  if (!AreScalarsOf(function.parameters(), parameters)) {
    return UserError("the function @", function.name(), " takes (", TypesOf(function.parameters()), "); it must take (",
                     ScalarsOf(parameters), ")");
  }
  if (!AreScalarsOf(function.results(), results)) {
    return UserError("the function @", function.name(), " gives (", TypesOf(function.results()), "); it must give (",
                     ScalarsOf(results), ")");
  }
  return CheckElementwise(function);
}

std::optional<Reducer> PlainReducer(const Function& body) { return ReducerOf(body); }

bool IsNeutral(const Value& value, Reducer reducer) {
  if (&value.node->op() != &kOp_constant || value.type().count() != 1) return false;
  const HostTensor& literal = value.node->attrs().Tensor(0);
  return std::ranges::equal(literal.bytes(), Identity(reducer, value.dtype()).bytes());
}

absl::StatusOr<BodyOperands> CheckReducingBody(const InferCall& call) {
  const Function& body = *call.regions[0];
  BodyOperands is;
  is.inputs = body.results().size();
  if (is.inputs == 0) return UserError("the function @", body.name(), " has no results: nothing is reduced");
  if (call.operands.size() < 2 * is.inputs) {
    return UserError("the function @", body.name(), " gives ", is.inputs, " results, so there must be ", is.inputs,
                     " inputs and as many first values; there are ", call.operands.size(), " operands");
  }
  is.captures = call.operands.size() - 2 * is.inputs;
  std::vector<DType> types;
  for (size_t i = 0; i < is.inputs; ++i) {
    const Type &x = *call.operands[i], &first = *call.operands[is.inputs + i];
    if (x.dims != call.operands[0]->dims) {
      return UserError("inputs 0 and ", i, " have shapes ", DimsToString(call.operands[0]->dims), " and ",
                       DimsToString(x.dims), "; they must agree");
    }
    if (!(first == Type::Scalar(x.dtype))) {
      return UserError("first value ", i, " is ", ShortType(first), "; for an input ", ShortType(x), " it must be ",
                       ShortType(Type::Scalar(x.dtype)));
    }
    types.push_back(x.dtype);
  }
  const std::vector<DType> results = types;
  types.insert(types.end(), results.begin(), results.end());
  for (size_t c = 0; c < is.captures; ++c) {
    const Type& capture = *call.operands[2 * is.inputs + c];
    if (!IsScalar(capture)) return UserError("capture ", c, " is ", ShortType(capture), "; it must be a scalar");
    types.push_back(capture.dtype);
  }
  WEFT_RETURN_IF_ERROR(CheckScalarFunction(body, types, results));
  return is;
}

}  // namespace weft::ops
