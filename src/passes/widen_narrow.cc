// The narrow types (f8, i4, u4, i2, u2) as bytes, so that no backend has any: f8[2, 3] becomes u8[2, 3], i4[2, 3] i8[2,
// 3], in the main function and in all that it carries. Operations that only move elements move the bytes. Everything
// else computes in f32, i32 or u32 and rounds or wraps its result once, by integer arithmetic that fusion puts into the
// loops around it.
#include <algorithm>
#include <vector>

#include "src/ir/rewrite.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/narrow_codes.h"
#include "src/ops/parameter.h"
#include "src/passes/passes.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/narrow.h"

namespace weft::passes {
namespace {

using ir::Attrs;
using ir::Builder;
using ir::Function;
using ir::Node;
using ir::Value;
using ir::Values;

bool IsNarrowType(const ir::Type& type) { return type.is_tensor() && IsNarrow(type.dtype); }

bool Touches(const Node& node) {
  for (const ir::Type& type : node.results()) {
    if (IsNarrowType(type)) return true;
  }
  for (const Value& operand : node.operands()) {
    if (operand && IsNarrowType(operand.type())) return true;
  }
  return false;
}

bool HasNarrow(const Function& function) {
  for (const Function* each : ir::CalleesFirst(function)) {
    for (const Node* node : each->nodes()) {
      if (Touches(*node)) return true;
    }
  }
  return false;
}

// --- The rewriting.

class Widener {
 public:
  absl::StatusOr<Ref<const Function>> Main(const Function& function) {
    for (const Function* each : ir::CalleesFirst(function)) {
      if (each == &function || carried_.contains(each)) continue;
      WEFT_ASSIGN_OR_RETURN(Ref<const Function> stored, One(*each, {}));
      carried_.emplace(each, std::move(stored));
    }
    return One(function, function.parameter_infos());
  }

 private:
  using Map = HashMap<Value, Value>;

  absl::StatusOr<Ref<const Function>> One(const Function& function, std::span<const ir::ParameterInfo> infos);
  Values Rewritten(Builder& b, const Node& node, Values operands, std::span<const Ref<const Function>> regions);

  HashMap<const Function*, Ref<const Function>> carried_;
};

// `operands` are stored as bytes where they were narrow.
Values Widener::Rewritten(Builder& b, const Node& node, Values operands, std::span<const Ref<const Function>> regions) {
  const ir::OpDef& op = node.op();
  if (op.on_bytes) return b.EmitAll(op, std::move(operands), node.attrs(), regions);
  if (&op == &ops::kOp_constant) {
    const HostTensor& value = ops::ConstantAttrs{node.attrs()}.value();
    return {ops::Constant(b, HostTensor(StorageOf(value.dtype()), value.dims(), value.bytes()))};
  }
  if (&op == &ops::kOp_bitcast_convert) {
    const DType to = StorageOf(node.type().dtype);
    return {operands[0].dtype() == to ? operands[0] : ops::BitsAs(b, operands[0], to)};
  }
  const bool converts = &op == &ops::kOp_convert;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Value& before = node.operands()[i];
    if (before && IsNarrowType(before.type())) operands[i] = ops::DecodeNarrow(b, before.dtype(), operands[i]);
  }
  Values results;
  if (converts) {
    results = {IsNarrow(node.type().dtype) ? operands[0] : ops::Convert(b, operands[0], node.type().dtype)};
  } else {
    Attrs attrs = node.attrs();
    for (size_t i = 0; i < attrs.size(); ++i) {
      if (const auto* dtype = std::get_if<DType>(&attrs.at(i))) attrs.set(i, ComputeType(*dtype));
    }
    results = b.EmitAll(op, std::move(operands), std::move(attrs), regions);
  }
  for (size_t i = 0; i < node.results().size() && b.ok(); ++i) {
    const DType dtype = node.type(i).dtype;
    if (IsNarrow(dtype)) {
      // The end of the wider type's range, for which the narrow one's stands.
      const bool bounded = IsInteger(dtype) && op.gives_ends != nullptr && op.gives_ends(node.attrs());
      if (bounded) results[i] = ops::BoundedNarrow(b, dtype, results[i]);
      results[i] = ops::EncodeNarrow(b, dtype, results[i]);
    } else if (results[i].dtype() != dtype) {  // 16-bit floats, which the attribute asked for
      results[i] = ops::Convert(b, results[i], dtype);
    }
  }
  return results;
}

absl::StatusOr<Ref<const Function>> Widener::One(const Function& function, std::span<const ir::ParameterInfo> infos) {
  Map map;
  Builder b;
  bool changed = false;
  std::vector<Value> parameters, results;
  for (const Value& p : function.parameters()) {
    Value stored = p;
    if (IsNarrowType(p.type())) {
      changed = true;
      stored = ops::Parameter(ir::Type::Tensor(StorageOf(p.dtype()), p.dims()));
    }
    parameters.push_back(stored);
    map[p] = stored;
  }
  for (const Node* node : function.nodes().subspan(function.parameters().size())) {
    std::vector<Ref<const Function>> regions;
    bool same = !Touches(*node);
    for (const Ref<const Function>& region : node->regions()) {
      regions.push_back(carried_.at(region.get()));
      same = same && regions.back() == region;
    }
    Values operands;
    for (const Value& operand : node->operands()) operands.push_back(operand ? map.at(operand) : Value());
    b.set_location(node->location());
    Values found;
    if (same) {
      const Ref<const Node> kept = ir::WithOperands(*node, operands, regions);
      for (uint32_t i = 0; i < node->results().size(); ++i) found.push_back(Value{kept, i});
    } else {
      changed = true;
      found = Rewritten(b, *node, std::move(operands), regions);
      WEFT_RETURN_IF_ERROR(b.status());
    }
    for (uint32_t i = 0; i < node->results().size(); ++i) map[Value{Ref<const Node>::Share(node), i}] = found[i];
  }
  if (!changed) return Ref<const Function>::Share(&function);
  for (const Value& result : function.results()) results.push_back(map.at(result));
  return Function::Create(function.name(), std::move(parameters), std::move(results), {infos.begin(), infos.end()});
}

}  // namespace

absl::StatusOr<ir::Module> WidenNarrow(const ir::Module& module, const PipelineOptions&) {
  bool any = false;
  for (const Ref<const Function>& function : module.functions) any = any || HasNarrow(*function);
  if (!any) return module;
  ir::Module result = module;
  Widener widener;
  for (Ref<const Function>& function : result.functions) {
    WEFT_ASSIGN_OR_RETURN(function, widener.Main(*function));
  }
  return result;
}

}  // namespace weft::passes
