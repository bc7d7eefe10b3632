// See device_number.h.
#include "src/passes/device_number.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/parameter.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

using ir::Function;
using ir::Node;
using ir::Value;
using ir::Values;
using Regions = std::vector<Ref<const Function>>;

bool Asks(const Function& function) {
  return std::ranges::any_of(ir::CalleesFirst(function), [](const Function* each) {
    return std::ranges::any_of(each->nodes(), [](const Node* node) { return &node->op() == &ops::kOp_partition_id; });
  });
}

// Functions that ask get one more parameter, the number, behind the others. Each is made once, however often it is carried.
class Numbered {
 public:
  absl::StatusOr<Ref<const Function>> Of(const Ref<const Function>& function) {
    if (!Asks(*function)) return function;
    if (const auto found = made_.find(function.get()); found != made_.end()) return found->second;
    const Value number = ops::Parameter(ir::Type::Tensor(DType::kU32, {}));
    HashMap<const Node*, Values> known;
    for (const Value& parameter : function->parameters()) known[parameter.node.get()] = {parameter};
    const auto now = [&](const Value& value) { return value ? known.at(value.node.get())[value.result] : Value(); };
    for (const Node* node : function->nodes()) {
      if (known.contains(node)) continue;
      Values operands;
      for (const Value& operand : node->operands()) operands.push_back(now(operand));
      if (&node->op() == &ops::kOp_partition_id) {
        known[node] = {number};
        continue;
      }
      Regions regions(node->regions().begin(), node->regions().end());
      WEFT_RETURN_IF_ERROR(PassOn(*node, number, &operands, &regions));
      const Ref<const Node> changed = ir::WithOperands(*node, operands, regions);
      Values& results = known[node];
      for (uint32_t r = 0; r < node->results().size(); ++r) results.push_back({changed, r});
    }
    std::vector<Value> parameters(function->parameters().begin(), function->parameters().end()), results;
    parameters.push_back(number);
    for (const Value& result : function->results()) results.push_back(now(result));
    return made_[function.get()] = Function::Create(function->name(), std::move(parameters), std::move(results));
  }

 private:
  // Regions that ask are exchanged, and the number becomes an operand wherever their captures end.
  absl::Status PassOn(const Node& node, const Value& number, Values* operands, Regions* regions) {
    if (std::ranges::none_of(*regions, [](const Ref<const Function>& region) { return Asks(*region); })) {
      return absl::OkStatus();
    }
    size_t end = 0;  // of the captures of a region
    if (&node.op() == &ops::kOp_case) {
      end = 1;
    } else if (&node.op() != &ops::kOp_while && &node.op() != &ops::kOp_call) {
      return UserErrorOf(absl::StatusCode::kUnimplemented, "weft_axis_index in a function that ", node.op().c_name,
                         " carries; loops, branches and calls may have it");
    }
    const size_t carried = &node.op() == &ops::kOp_while ? node.results().size() : 0;
    end += carried;
    for (Ref<const Function>& region : *regions) {
      end += region->parameters().size() - carried;
      if (!Asks(*region)) continue;
      WEFT_ASSIGN_OR_RETURN(region, Of(region));
      operands->insert(operands->begin() + static_cast<ptrdiff_t>(end++), number);
    }
    return absl::OkStatus();
  }

  HashMap<const Function*, Ref<const Function>> made_;
};

// Nothing but primitives and what speaks of processes, so that what carries functions is a loop or a branch.
absl::StatusOr<Ref<const Function>> Flat(const Function& body, int64_t processes) {
  ir::Module module;
  module.functions.push_back(ir::CopyFunction(body));
  module.participants.partitions = static_cast<uint32_t>(std::max<int64_t>(processes, 2));
  WEFT_ASSIGN_OR_RETURN(module, ExpandComposites(module, {}));
  return module.functions.front();
}

// A word for each operand and one for the number, which is cut along all axes.
std::string SpecsWithNumber(const ir::Mesh& mesh, std::string_view in_specs, const Values& operands) {
  std::vector<std::string> specs = absl::StrSplit(in_specs, ';');
  for (size_t i = specs.size(); i < operands.size(); ++i) {
    specs.push_back(absl::StrJoin(std::vector<std::string_view>(operands[i].dims().size(), "-"), ","));
  }
  if (operands.empty()) specs.clear();
  specs.push_back(
      absl::StrJoin(mesh.axes, "+", [](std::string* out, const ir::Mesh::Axis& axis) { *out += axis.name; }));
  return absl::StrJoin(specs, ";");
}

}  // namespace

absl::StatusOr<Ref<const Function>> NumberedBody(const Function& body, int64_t processes) {
  if (!Asks(body)) return Ref<const Function>();
  Ref<const Function> flat = Ref<const Function>::Share(&body);
  if (std::ranges::any_of(body.callees(), [](const Function* each) { return Asks(*each); })) {
    WEFT_ASSIGN_OR_RETURN(flat, Flat(body, processes));
  }
  return Numbered().Of(flat);
}

absl::StatusOr<Values> WithDeviceNumber(ir::Builder& b, const Node& node, const Values& operands,
                                        const Function& body) {
  const ops::PerDeviceAttrs attrs{node.attrs()};
  WEFT_ASSIGN_OR_RETURN(const ir::Mesh mesh, ir::ParseMesh(attrs.mesh()));
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> numbered, NumberedBody(body, mesh.size()));
  if (numbered == nullptr) return Values();
  // The element of the iota is a vector of one.
  std::vector<Value> parameters = ops::ParametersLike(body.parameters());
  parameters.push_back(ops::Parameter(ir::Type::Tensor(DType::kU32, {1})));
  ir::Builder inside(b.location());
  std::vector<Value> arguments = parameters;
  arguments.back() = ops::Reshape(inside, parameters.back(), {});
  WEFT_RETURN_IF_ERROR(inside.status());
  const Values made = ir::Inline(*numbered, arguments);
  const Ref<const Function> function =
      Function::Create(body.name(), std::move(parameters), std::vector<Value>(made.begin(), made.end()));
  Values all = operands;
  all.push_back(ops::Iota(b, DType::kU32, {mesh.size()}, 0));
  ir::Attrs numbered_attrs = {attrs.mesh(), SpecsWithNumber(mesh, attrs.in_specs(), operands), attrs.out_specs()};
  return b.EmitAll(node.op(), std::move(all), std::move(numbered_attrs), {&function, 1});
}

}  // namespace weft::passes
