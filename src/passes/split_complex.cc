// Complex values as two real ones, so that no backend has any: c64[2, 3] becomes its real and its imaginary f32[2, 3], in the main
// function and in all that it carries, where parameters, results and operands double in place. Only the module's own parameters and
// results stay complex: their memory is seen as f32[2, 3, 2]. What an operation's planes are says its definition (OpDef::planes).
#include <vector>

#include "src/ir/rewrite.h"
#include "src/ops/parameter.h"
#include "src/ops/planes.h"
#include "src/passes/passes.h"
#include "src/runtime/hash_map.h"

namespace weft::passes {
namespace {

using ir::Builder;
using ir::Function;
using ir::Ints;
using ir::Node;
using ir::Planes;
using ir::Split;
using ir::Splits;
using ir::Value;
using ir::Values;

bool IsComplexType(const ir::Type& type) { return type.is_tensor() && IsComplex(type.dtype); }

bool HasComplexItself(const Function& function) {
  for (const Node* node : function.nodes()) {
    if (node->op().lowering == ir::Lowering::kPlanes) return true;
    for (const ir::Type& type : node->results()) {
      if (IsComplexType(type)) return true;
    }
  }
  return false;
}

bool HasComplex(const Function& function) {
  for (const Function* each : ir::CalleesFirst(function)) {
    if (HasComplexItself(*each)) return true;
  }
  return false;
}

bool TouchesComplex(const Node& node) {
  if (node.op().lowering == ir::Lowering::kPlanes) return true;
  for (const ir::Type& type : node.results()) {
    if (IsComplexType(type)) return true;
  }
  for (const Value& operand : node.operands()) {
    if (operand && IsComplexType(operand.type())) return true;
  }
  return false;
}

// --- Edges: f32[…, 2], or [elements, 2] where one dimension more would be too many.

Ints ViewShape(const ir::Type& type) {
  Ints shape(type.dims.begin(), type.dims.end());
  if (shape.size() == kMaxRank) shape = {type.count()};
  shape.push_back(2);
  return shape;
}

Planes FromMemory(Builder& b, const Value& x) {
  const Ints shape = ViewShape(x.type());
  const Value view = b.Emit(ops::kOp_view_as_real, {x}, {shape});
  const auto plane = [&](int64_t part) {
    Ints start(shape.size(), 0), limit = shape;
    start.back() = part;
    limit.back() = part + 1;
    return ops::Reshape(b, ops::Slice(b, view, start, limit, Ints(shape.size(), 1)), x.dims());
  };
  return {plane(0), plane(1)};
}

Value ToMemory(Builder& b, const Planes& x, const ir::Type& type) {
  Ints shape = ViewShape(type);
  shape.back() = 1;
  const auto axis = static_cast<int64_t>(shape.size()) - 1;
  const Dims dims = ops::ToDims(shape);
  const Value both =
      ops::Call(b, ops::kOp_concatenate, {ops::Reshape(b, x.re, dims), ops::Reshape(b, x.im, dims)}, {axis});
  return b.Emit(ops::kOp_view_as_complex, {both}, {ops::ToInts(type.dims)});
}

class Splitter {
 public:
  absl::StatusOr<Ref<const Function>> Main(const Function& function) {
    for (const Function* each : ir::CalleesFirst(function)) {
      if (each == &function || carried_.contains(each)) continue;
      WEFT_ASSIGN_OR_RETURN(Ref<const Function> split, One(*each, false));
      carried_.emplace(each, std::move(split));
    }
    return One(function, true);
  }

 private:
  using Map = HashMap<Value, Split>;

  absl::StatusOr<Ref<const Function>> One(const Function& function, bool edge);
  absl::Status Add(const Function& function, const Node& node, Builder& b, Map& map, bool* changed);

  HashMap<const Function*, Ref<const Function>> carried_;
};

absl::Status Splitter::Add(const Function& function, const Node& node, Builder& b, Map& map, bool* changed) {
  std::vector<Ref<const Function>> regions;
  bool same = true;
  for (const Ref<const Function>& region : node.regions()) {
    regions.push_back(carried_.at(region.get()));
    same = same && regions.back() == region;
  }
  Splits operands;
  Values whole;
  for (const Value& operand : node.operands()) {
    operands.push_back(operand ? map.at(operand) : Split());
    whole.push_back(operands.back().whole);
  }
  b.set_location(node.location());
  Splits results;
  if (same && !TouchesComplex(node)) {
    const Ref<const Node> kept = ir::WithOperands(node, whole, regions);
    for (uint32_t i = 0; i < node.results().size(); ++i) results.push_back({Value{kept, i}, {}});
  } else {
    *changed = true;
    if (node.op().planes == nullptr) {
      return InternalError("no rule says what ", node.op().name, " of complex values is in @", function.name());
    }
    results = node.op().planes({b, node, operands, regions});
    WEFT_RETURN_IF_ERROR(b.status());
  }
  for (uint32_t i = 0; i < results.size(); ++i) map[Value{Ref<const Node>::Share(&node), i}] = std::move(results[i]);
  return absl::OkStatus();
}

absl::StatusOr<Ref<const Function>> Splitter::One(const Function& function, bool edge) {
  Map map;
  Builder b;
  bool changed = false;
  std::vector<Value> parameters, results;
  for (const Value& p : function.parameters()) {
    Split split{p, {}};
    if (IsComplexType(p.type())) {
      changed = true;
      split.whole = {};
      if (edge) {
        split.planes = FromMemory(b, p);
        parameters.push_back(p);
      } else {
        const ir::Type part = ir::Type::Tensor(PartOf(p.dtype()), p.dims());
        for (Value* plane : {&split.planes.re, &split.planes.im}) {
          *plane = ops::Parameter(part);
          parameters.push_back(*plane);
        }
      }
    } else {
      parameters.push_back(p);
    }
    map[p] = std::move(split);
  }
  for (const Node* node : function.nodes().subspan(function.parameters().size())) {
    WEFT_RETURN_IF_ERROR(Add(function, *node, b, map, &changed));
  }
  if (!changed) return Ref<const Function>::Share(&function);
  for (const Value& result : function.results()) {
    const Split& split = map.at(result);
    if (!split.complex()) {
      results.push_back(split.whole);
    } else if (edge) {
      results.push_back(ToMemory(b, split.planes, result.type()));
    } else {
      results.push_back(split.planes.re);
      results.push_back(split.planes.im);
    }
  }
  WEFT_RETURN_IF_ERROR(b.status());
  std::vector<ir::ParameterInfo> infos;
  if (edge) infos.assign(function.parameter_infos().begin(), function.parameter_infos().end());
  return Function::Create(function.name(), std::move(parameters), std::move(results), std::move(infos));
}

}  // namespace

absl::StatusOr<ir::Module> SplitComplex(const ir::Module& module, const PipelineOptions& options) {
  bool any = false;
  for (const Ref<const Function>& function : module.functions) any = any || HasComplex(*function);
  if (!any) return module;
  // A backend claims composites of real values alone.
  PipelineOptions expanded = options;
  expanded.claims = [](const Node& node) {
    if (node.op().planes != nullptr) return true;
    if (TouchesComplex(node)) return false;
    for (const Ref<const Function>& region : node.regions()) {
      if (HasComplex(*region)) return false;
    }
    return true;
  };
  WEFT_ASSIGN_OR_RETURN(ir::Module result, ExpandComposites(module, expanded));
  Splitter splitter;
  for (Ref<const Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, splitter.Main(*function));
  }
  return result;
}

}  // namespace weft::passes
