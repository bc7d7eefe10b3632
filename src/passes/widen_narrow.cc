// The narrow types (f8, i4, u4, i2, u2) as bytes, so that no backend has any: f8[2, 3] becomes u8[2, 3], i4[2, 3] i8[2, 3], in the
// main function and in all that it carries. What only moves elements moves the bytes. Everything else computes in f32, i32 or u32
// and rounds or wraps its result once, by integer arithmetic that fusion puts into the loops around it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "src/ir/rewrite.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/scalar_function.h"
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

// --- Short spellings: numbers of the operand's type.

Value Number(Builder& b, const Value& like, uint32_t value) { return ops::FullLike(b, like, value); }
Value AndBits(Builder& b, const Value& x, uint32_t mask) { return ops::And(b, x, Number(b, x, mask)); }
Value OrBits(Builder& b, const Value& x, const Value& y) { return ops::Call(b, ops::kOp_bitwise_or, {x, y}); }
Value Left(Builder& b, const Value& x, int bits) {
  return ops::Call(b, ops::kOp_shift_left, {x, Number(b, x, static_cast<uint32_t>(bits))});
}
Value Right(Builder& b, const Value& x, int bits) {
  return ops::Call(b, ops::kOp_shift_right_logical, {x, Number(b, x, static_cast<uint32_t>(bits))});
}
Value Is(Builder& b, const Value& x, ops::Direction direction, uint32_t value) {
  return ops::Compare(b, direction, x, Number(b, x, value));
}
Value Pick(Builder& b, const Value& condition, uint32_t value, const Value& otherwise) {
  return ops::Select(b, condition, Number(b, otherwise, value), otherwise);
}
Value BitsAs(Builder& b, const Value& x, DType dtype) { return ops::Call(b, ops::kOp_bitcast_convert, {x}, {dtype}); }

constexpr uint32_t kInfinity = 0x7F800000, kNan = 0x7FC00000;

// --- f8: the same steps as FloatToF8 and F8ToFloat (runtime/narrow.h), which the reference computes with.

Value F8ToF32(Builder& b, DType dtype, const Value& stored) {
  using enum ops::Direction;
  const Value code = ops::Convert(b, stored, DType::kU32);
  if (dtype == DType::kF8E8M0FNU) {
    const Value bits = Pick(b, Is(b, code, kEq, 0), 0x400000, Left(b, code, 23));
    return BitsAs(b, Pick(b, Is(b, code, kEq, 0xFF), kNan, bits), DType::kF32);
  }
  const SmallFloat& f = SmallFloatOf(dtype);
  const Value magnitude = AndBits(b, code, 0x7F);
  const Value exponents = Number(b, code, static_cast<uint32_t>(127 - f.bias) << 23);
  const Value normal = ops::Add(b, Left(b, magnitude, 23 - f.fraction), exponents);
  const Value least = ops::Mul(b, ops::Convert(b, magnitude, DType::kF32), std::ldexp(1, 1 - f.bias - f.fraction));
  Value bits = ops::Select(b, Is(b, magnitude, kLt, 1u << f.fraction), BitsAs(b, least, DType::kU32), normal);
  if (!f.one_nan) {
    bits = Pick(b, Is(b, magnitude, kGt, f.most), kNan, bits);
    if (f.beyond != f.nan) bits = Pick(b, Is(b, magnitude, kEq, f.beyond), kInfinity, bits);
  }
  bits = OrBits(b, bits, Left(b, Right(b, code, 7), 31));
  if (f.one_nan) bits = Pick(b, Is(b, code, kEq, 0x80), kNan | 0x80000000, bits);
  return BitsAs(b, bits, DType::kF32);
}

Value F32ToF8(Builder& b, DType dtype, const Value& x) {
  using enum ops::Direction;
  const Value bits = BitsAs(b, x, DType::kU32);
  if (dtype == DType::kF8E8M0FNU) {
    const Value least =
        Pick(b, Is(b, bits, kEq, 0x400000), 0, Right(b, ops::Add(b, bits, Number(b, bits, 0x400000)), 23));
    const Value none = OrBits(b, Is(b, bits, kEq, 0), Is(b, bits, kGe, kInfinity));
    return ops::Convert(b, Pick(b, none, 0xFF, least), DType::kU8);
  }
  const SmallFloat& f = SmallFloatOf(dtype);
  const int drop = 23 - f.fraction;
  const Value magnitude = AndBits(b, bits, 0x7FFFFFFF);
  const uint32_t holder = static_cast<uint32_t>(128 - f.bias + drop) << 23;
  const Value sum = ops::Add(b, BitsAs(b, magnitude, DType::kF32), BitsAs(b, Number(b, bits, holder), DType::kF32));
  const Value subnormal = ops::Sub(b, BitsAs(b, sum, DType::kU32), Number(b, bits, holder));
  const Value odd = AndBits(b, Right(b, magnitude, drop), 1);
  const Value rounded = ops::Add(b, ops::Add(b, magnitude, Number(b, bits, (1u << (drop - 1)) - 1)), odd);
  const Value normal =
      ops::Sub(b, Right(b, rounded, drop), Number(b, bits, static_cast<uint32_t>(127 - f.bias) << f.fraction));
  Value code = ops::Select(b, Is(b, magnitude, kLt, static_cast<uint32_t>(128 - f.bias) << 23), subnormal, normal);
  code = Pick(b, Is(b, code, kGt, f.most), f.beyond, code);
  if (f.beyond != f.nan) code = Pick(b, Is(b, magnitude, kGt, kInfinity), f.nan, code);
  const Value sign = Left(b, Right(b, bits, 31), 7);
  const Value with_sign = OrBits(b, code, sign);
  return ops::Convert(b, f.one_nan ? Pick(b, Is(b, code, kEq, 0), 0, with_sign) : with_sign, DType::kU8);
}

// The f32 from which a rounding to fewer bits is the rounding of the f64: towards zero, with the low bit set where that is not
// exact.
Value F64ToOdd(Builder& b, const Value& x) {
  using enum ops::Direction;
  const Value near = ops::Convert(b, x, DType::kF32), back = ops::Convert(b, near, DType::kF64);
  const Value bits = BitsAs(b, near, DType::kU32);
  const Value larger = ops::Compare(b, kGt, ops::Abs(b, back), ops::Abs(b, x));
  const Value down = ops::Select(b, larger, ops::Sub(b, bits, Number(b, bits, 1)), bits);
  const Value exact = OrBits(b, ops::Compare(b, kEq, back, x), ops::Compare(b, kNe, x, x));
  return BitsAs(b, ops::Select(b, exact, bits, OrBits(b, down, Number(b, down, 1))), DType::kF32);
}

// Integers above 2^53 as an f64 whose rounding to fewer bits is theirs.
Value IntegerToF64(Builder& b, const Value& x) {
  if (BitsOf(x.dtype()) < 64) return ops::Convert(b, x, DType::kF64);
  const bool has_sign = IsSigned(x.dtype());
  const Value negative = has_sign ? ops::Compare(b, ops::Direction::kLt, x, 0) : Value();
  Value u = has_sign ? BitsAs(b, ops::Select(b, negative, ops::Neg(b, x), x), DType::kU64) : x;
  const Value low = ops::And(b, u, Number(b, u, 0x7FF)), high = ops::Sub(b, u, low);
  const Value sticky =
      ops::Select(b, ops::Compare(b, ops::Direction::kNe, low, 0), Number(b, u, 0x800), Number(b, u, 0));
  const Value large = ops::Compare(b, ops::Direction::kNe, Right(b, u, 53), 0);
  u = ops::Select(b, large, OrBits(b, high, sticky), u);
  const Value magnitude = ops::Convert(b, u, DType::kF64);
  return has_sign ? ops::Select(b, negative, ops::Neg(b, magnitude), magnitude) : magnitude;
}

// --- Any type to and from the bytes.

Value Decode(Builder& b, DType dtype, const Value& stored) {
  return IsFloat(dtype) ? F8ToF32(b, dtype, stored) : ops::Convert(b, stored, ComputeType(dtype));
}

// The low bits, with their sign.
Value Wrap(Builder& b, DType dtype, const Value& x) {
  const Value byte = ops::Convert(b, x, StorageOf(dtype));
  if (IsUnsigned(dtype)) return AndBits(b, byte, (1u << BitsOf(dtype)) - 1);
  const int up = 8 - BitsOf(dtype);
  return ops::Call(b, ops::kOp_shift_right_arithmetic, {Left(b, byte, up), Number(b, byte, static_cast<uint32_t>(up))});
}

Value Bounded(Builder& b, DType dtype, const Value& x) {
  return ops::Minimum(b, ops::Maximum(b, x, ops::FullLike(b, x, LeastOf(dtype))),
                      ops::FullLike(b, x, LargestOf(dtype)));
}

Value Encode(Builder& b, DType dtype, const Value& x) {
  const DType from = x.dtype();
  if (!IsFloat(dtype)) {
    if (IsBool(from)) return ops::Convert(b, x, StorageOf(dtype));
    if (!IsFloat(from)) return Wrap(b, dtype, x);
    return ops::Convert(b, Bounded(b, dtype, ops::Convert(b, x, DType::kI32)), StorageOf(dtype));  // NaN is 0
  }
  if (from == DType::kF64) return F32ToF8(b, dtype, F64ToOdd(b, x));
  const bool exact = IsFloat(from) || BitsOf(from) <= 16;  // f16 and bf16, short integers, bool
  if (exact) return F32ToF8(b, dtype, ops::Convert(b, x, DType::kF32));
  return F32ToF8(b, dtype, F64ToOdd(b, IntegerToF64(b, x)));
}

// --- The rewriting.

// Operations that only move elements, or carry functions that take what they take: on the bytes as on the elements.
constexpr const ir::OpDef* kOnBytes[] = {
    &ops::kOp_broadcast_in_dim,
    &ops::kOp_reshape,
    &ops::kOp_transpose,
    &ops::kOp_slice,
    &ops::kOp_concatenate,
    &ops::kOp_reverse,
    &ops::kOp_pad,
    &ops::kOp_gather,
    &ops::kOp_dynamic_slice,
    &ops::kOp_where,
    &ops::kOp_sort_by,
    &ops::kOp_dynamic_update_slice,
    &ops::kOp_reduce_by,
    &ops::kOp_scatter_by,
    &ops::kOp_select_and_scatter_by,
    &ops::kOp_while,
    &ops::kOp_case,
    &ops::kOp_reduce_window_by,
    &ops::kOp_call,
    &ops::kOp_stop_gradient,
    &ops::kOp_optimization_barrier,
};

// Whether results may be the end of the wider type's range, for which the narrow one's stands: of windows and rows without elements.
bool PicksExtremes(const Node& node) {
  const auto picks = [](int64_t reducer) {
    return static_cast<ops::Reducer>(reducer) == ops::Reducer::kMax ||
           static_cast<ops::Reducer>(reducer) == ops::Reducer::kMin;
  };
  if (&node.op() == &ops::kOp_reduce) return picks(ops::ReduceAttrs{node.attrs()}.reducer());
  return &node.op() == &ops::kOp_reduce_window && picks(ops::ReduceWindowAttrs{node.attrs()}.reducer());
}

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
  if (std::ranges::find(kOnBytes, &op) != std::end(kOnBytes)) {
    return b.EmitAll(op, std::move(operands), node.attrs(), regions);
  }
  if (&op == &ops::kOp_constant) {
    const HostTensor& value = ops::ConstantAttrs{node.attrs()}.value();
    return {ops::Constant(b, HostTensor(StorageOf(value.dtype()), value.dims(), value.bytes()))};
  }
  if (&op == &ops::kOp_bitcast_convert) {
    const DType to = StorageOf(node.type().dtype);
    return {operands[0].dtype() == to ? operands[0] : BitsAs(b, operands[0], to)};
  }
  const bool converts = &op == &ops::kOp_convert;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Value& before = node.operands()[i];
    if (before && IsNarrowType(before.type())) operands[i] = Decode(b, before.dtype(), operands[i]);
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
      if (IsInteger(dtype) && PicksExtremes(node)) results[i] = Bounded(b, dtype, results[i]);
      results[i] = Encode(b, dtype, results[i]);
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
      stored = {Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(StorageOf(p.dtype()), p.dims())}), 0};
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
