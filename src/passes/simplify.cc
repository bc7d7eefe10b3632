// Local algebra. One table of rules, one function a rule; each keeps every bit of the result.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/literals.h"
#include "src/passes/join_pads.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

using ir::Builder;
using ir::Ints;
using ir::Node;
using ir::Value;

// A node on its new operands, before it is made.
struct Call {
  Builder& b;
  const Node& node;
  std::span<const Value> operands;

  const Value& x() const { return operands[0]; }
  // The operation behind operand 0.
  const Node& from() const { return *operands[0].node; }
  bool from(const ir::OpDef& op) const { return &from().op() == &op; }
  // Its attributes, and those of the operation behind operand 0.
  template <typename A>
  A attrs() const {
    return A{node.attrs()};
  }
  template <typename A>
  A from_attrs() const {
    return A{from().attrs()};
  }
};
// The simpler value, or empty if the rule has nothing to say.
using Rule = Value (*)(const Call& call);

// Of what only moves elements: f16 and bf16 move as they are and widen behind it, where products and kernels read them.
Value MoveNarrow(const Call& call) {
  if (!call.from(ops::kOp_convert) || call.from().extras() != nullptr) return {};
  const Value& narrow = call.from().operands()[0];
  if (!IsHalf(narrow.dtype()) || call.node.type().dtype != DType::kF32) return {};
  return ops::Convert(call.b, call.b.Emit(call.node.op(), {narrow}, call.node.attrs()), DType::kF32);
}

Value Reshape(const Call& call) {
  const Dims& dims = call.node.type().dims;
  if (call.x().dims() == dims) return call.x();
  if (call.from(ops::kOp_reshape)) return ops::Reshape(call.b, call.from().operands()[0], dims);
  if (call.from(ops::kOp_broadcast_in_dim) && call.from().operands()[0].type().count() == 1 &&
      call.node.type().count() != 1) {
    return ops::BroadcastInDim(call.b, ops::Reshape(call.b, call.from().operands()[0], {}), dims, {});
  }
  return MoveNarrow(call);
}

Value Transpose(const Call& call) {
  const Ints& permutation = call.attrs<ops::TransposeAttrs>().permutation();
  if (permutation == ops::Axes(permutation.size())) return call.x();
  if (Value moved = MoveNarrow(call)) return moved;
  if (call.from(ops::kOp_transpose)) {
    Ints joined;
    const Ints& inner = call.from_attrs<ops::TransposeAttrs>().permutation();
    for (int64_t p : permutation) joined.push_back(inner[p]);
    return ops::Transpose(call.b, call.from().operands()[0], std::move(joined));
  }
  if (call.from(ops::kOp_broadcast_in_dim) && call.from().operands()[0].type().rank() == 0) {
    return ops::BroadcastInDim(call.b, call.from().operands()[0], call.node.type().dims, {});
  }
  // Dimensions of size 1 may move freely: nothing moves in memory, and a reshape costs nothing.
  int64_t last = -1;
  for (int64_t p : permutation) {
    if (call.x().dims()[p] == 1) continue;
    if (p < last) return {};
    last = p;
  }
  return ops::Reshape(call.b, call.x(), call.node.type().dims);
}

Value BroadcastInDim(const Call& call) {
  const Dims& dims = call.node.type().dims;
  const Ints& positions = call.attrs<ops::BroadcastInDimAttrs>().broadcast_dimensions();
  if (call.x().dims() == dims) return call.x();  // positions increase strictly, so they are all dimensions
  if (call.from(ops::kOp_broadcast_in_dim)) {
    Ints joined;
    for (int64_t p : call.from_attrs<ops::BroadcastInDimAttrs>().broadcast_dimensions()) joined.push_back(positions[p]);
    return ops::BroadcastInDim(call.b, call.from().operands()[0], dims, std::move(joined));
  }
  if (Squeezed(call.x().dims()) == Squeezed(dims) && call.x().type().count() != 0) {
    return ops::Reshape(call.b, call.x(), dims);
  }
  // A reshape that only put in dimensions of size 1 is said by the positions.
  if (call.from(ops::kOp_reshape)) {
    const Value& source = call.from().operands()[0];
    if (source.dims() == Squeezed(call.x().dims())) {
      Ints kept;
      for (size_t i = 0; i < positions.size(); ++i) {
        if (call.x().dims()[i] != 1) kept.push_back(positions[i]);
      }
      return ops::BroadcastInDim(call.b, source, dims, std::move(kept));
    }
  }
  return MoveNarrow(call);
}

// Whether every value of `a` exists in `b`.
bool Holds(DType a, DType b) {
  if (a == b) return true;
  if (IsBool(b) || !IsComputable(a) || !IsComputable(b)) return false;
  if (IsBool(a)) return true;
  if (IsFloat(a)) {
    if (!IsFloat(b)) return false;
    if (BitsOf(b) == 64) return true;
    return BitsOf(b) == 32 && BitsOf(a) == 16;
  }
  if (IsFloat(b)) {
    const int mantissa = b == DType::kF64 ? 53 : b == DType::kF32 ? 24 : b == DType::kF16 ? 11 : 8;
    return BitsOf(a) - (IsSigned(a) ? 1 : 0) <= mantissa;
  }
  if (IsSigned(a)) return IsSigned(b) && BitsOf(b) > BitsOf(a);
  return BitsOf(b) > BitsOf(a);
}

Value Convert(const Call& call) {
  const DType to = call.node.type().dtype;
  if (call.x().dtype() == to) return call.x();
  if (!call.from(ops::kOp_convert)) return {};
  const Value& source = call.from().operands()[0];
  // Integers wrap when they narrow and floats saturate, so only a detour that keeps kind and value may go.
  const bool same_kind = IsFloat(source.dtype()) == IsFloat(call.x().dtype()) || IsFloat(to) || source.dtype() == to;
  if (!Holds(source.dtype(), call.x().dtype()) || !same_kind) return {};
  return ops::Convert(call.b, source, to);
}

Value Select(const Call& call) { return call.operands[1] == call.operands[2] ? call.operands[1] : Value(); }

// Where a box of these sizes begins whose starts are literals, moved inside; nothing where they are not.
std::optional<Ints> Begins(std::span<const Value> starts, const Dims& whole, const Dims& box) {
  Ints begins;
  for (size_t d = 0; d < whole.size(); ++d) {
    const Ref<const Literal> literal = ops::UniformLiteral(starts[d]);
    if (literal == nullptr) return std::nullopt;
    int64_t start = literal->value.GetInt(0);
    if (start < 0 && IsUnsigned(starts[d].dtype())) start = INT64_MAX;  // of u64
    begins.push_back(std::clamp<int64_t>(start, 0, whole[d] - box[d]));
  }
  return begins;
}

Ints EndsOf(const Ints& begins, const Dims& box) {
  Ints ends;
  for (size_t d = 0; d < begins.size(); ++d) ends.push_back(begins[d] + box[d]);
  return ends;
}

Value DynamicSlice(const Call& call) {
  const Dims& box = call.node.type().dims;
  const std::optional<Ints> begins = Begins(call.operands.subspan(1), call.x().dims(), box);
  return begins ? ops::Slice(call.b, call.x(), *begins, EndsOf(*begins, box), Ints(box.size(), 1)) : Value();
}

// Into one number everywhere: the update, padded with it.
Value DynamicUpdateSlice(const Call& call) {
  const Ref<const Literal> around = ops::UniformLiteral(call.x());
  if (around == nullptr) return {};
  const Value& update = call.operands[1];
  const Dims& whole = call.x().dims();
  const std::optional<Ints> begins = Begins(call.operands.subspan(2), whole, update.dims());
  if (!begins) return {};
  Ints behind;
  for (size_t d = 0; d < whole.size(); ++d) behind.push_back(whole[d] - (*begins)[d] - update.dims()[d]);
  return ops::Call(call.b, ops::kOp_pad, {update, ops::Constant(call.b, around->value)},
                   {*begins, std::move(behind), Ints(whole.size(), 0)});
}

// A slice beside a box that was set to zeros, as the gradients of updates of one tensor are. (Beside other updates it stays: they
// run in place, which they could not if somebody still reads what was there.)
Value BesideZeros(const Call& call) {
  const Value &x = call.from().operands()[0], &box = call.from().operands()[1];
  if (call.from().extras() != nullptr || !ops::IsUniform(box, 0.0)) return {};
  const std::optional<Ints> begins = Begins(call.from().operands().subspan(2), x.dims(), box.dims());
  if (!begins) return {};
  const auto a = call.attrs<ops::SliceAttrs>();
  for (size_t d = 0; d < begins->size(); ++d) {
    if (a.limit_indices()[d] <= (*begins)[d] || a.start_indices()[d] >= (*begins)[d] + box.dims()[d])
      return ops::Slice(call.b, x, a.start_indices(), a.limit_indices(), a.strides());
  }
  return {};
}

Value Slice(const Call& call) {
  if (call.node.type().dims == call.x().dims()) return call.x();  // same sizes: start 0, stride 1
  if (call.from(ops::kOp_dynamic_update_slice)) return BesideZeros(call);
  if (!call.from(ops::kOp_slice)) return MoveNarrow(call);
  const auto outer = call.attrs<ops::SliceAttrs>(), inner = call.from_attrs<ops::SliceAttrs>();
  Ints start, limit, strides;
  for (size_t i = 0; i < outer.start_indices().size(); ++i) {
    const int64_t size = call.node.type().dims[i], step = inner.strides()[i];
    // Where nothing is taken, start and stride are free, and what they were may lie outside of the source.
    start.push_back(size == 0 ? 0 : inner.start_indices()[i] + outer.start_indices()[i] * step);
    strides.push_back(size <= 1 ? 1 : step * outer.strides()[i]);
    limit.push_back(size == 0 ? 0 : start[i] + (size - 1) * strides[i] + 1);
  }
  return ops::Slice(call.b, call.from().operands()[0], std::move(start), std::move(limit), std::move(strides));
}

Value Pad(const Call& call) {
  const auto zero = [](const Ints& ints) { return std::ranges::all_of(ints, [](int64_t n) { return n == 0; }); };
  const auto a = call.attrs<ops::PadAttrs>();
  return zero(a.edge_padding_low()) && zero(a.edge_padding_high()) && zero(a.interior_padding()) ? call.x() : Value();
}

Value Concatenate(const Call& call) { return call.operands.size() == 1 ? call.x() : Value(); }
Value Reverse(const Call& call) {
  const auto axes =
      ops::NormalizeAxes("dimensions", call.attrs<ops::ReverseAttrs>().dimensions(), call.x().dims().size());
  if (!axes.ok()) return {};
  const bool nothing = std::ranges::all_of(*axes, [&](int64_t d) { return call.x().dims()[d] == 1; });
  return nothing ? call.x() : Value();
}

// x + -0.0 is x for every x; x + 0.0 is not for x = -0.0. Integers have one zero.
Value Add(const Call& call) {
  const double zero = IsFloat(call.node.type().dtype) ? -0.0 : 0.0;
  if (ops::IsUniform(call.operands[1], zero)) return call.operands[0];
  if (ops::IsUniform(call.operands[0], zero)) return call.operands[1];
  return JoinPads(call.b, call.operands[0], call.operands[1]);
}
Value Subtract(const Call& call) { return ops::IsUniform(call.operands[1], 0.0) ? call.operands[0] : Value(); }
Value Multiply(const Call& call) {
  if (ops::IsUniform(call.operands[1], 1.0)) return call.operands[0];
  if (ops::IsUniform(call.operands[0], 1.0)) return call.operands[1];
  return {};
}
Value Divide(const Call& call) { return ops::IsUniform(call.operands[1], 1.0) ? call.operands[0] : Value(); }
// Of max, min, and, or.
Value Idempotent(const Call& call) { return call.operands[0] == call.operands[1] ? call.operands[0] : Value(); }
// Of neg and not.
Value Involution(const Call& call) { return call.from(call.node.op()) ? call.from().operands()[0] : Value(); }

const absl::flat_hash_map<const ir::OpDef*, Rule>& Rules() {
  static const auto* const rules = new absl::flat_hash_map<const ir::OpDef*, Rule>{
      {&ops::kOp_reshape, Reshape},
      {&ops::kOp_transpose, Transpose},
      {&ops::kOp_broadcast_in_dim, BroadcastInDim},
      {&ops::kOp_convert, Convert},
      {&ops::kOp_where, Select},
      {&ops::kOp_slice, Slice},
      {&ops::kOp_dynamic_slice, DynamicSlice},
      {&ops::kOp_dynamic_update_slice, DynamicUpdateSlice},
      {&ops::kOp_pad, Pad},
      {&ops::kOp_concatenate, Concatenate},
      {&ops::kOp_reverse, Reverse},
      {&ops::kOp_add, Add},
      {&ops::kOp_sub, Subtract},
      {&ops::kOp_mul, Multiply},
      {&ops::kOp_div, Divide},
      {&ops::kOp_maximum, Idempotent},
      {&ops::kOp_minimum, Idempotent},
      {&ops::kOp_bitwise_and, Idempotent},
      {&ops::kOp_bitwise_or, Idempotent},
      {&ops::kOp_neg, Involution},
      {&ops::kOp_bitwise_not, Involution},
  };
  return *rules;
}

}  // namespace

absl::StatusOr<ir::Module> Simplify(const ir::Module& module, const PipelineOptions&) {
  const auto& rules = Rules();
  return ir::Rewrite(module, [&](const ir::RewriteCall& call) -> ir::Values {
    auto rule = rules.find(&call.node.op());
    if (rule == rules.end() || call.node.extras() != nullptr) return {};
    Value value = rule->second(Call{call.b, call.node, call.operands});
    if (!value) return {};
    // What a rule made may be simpler still (a merged reshape that changes nothing). Each step removes a node.
    while (call.b.ok() && value) {
      rule = rules.find(&value.node->op());
      if (rule == rules.end() || value.node->extras() != nullptr) break;
      Value next = rule->second(Call{call.b, *value.node, value.node->operands()});
      if (!next) break;
      value = std::move(next);
    }
    return {value};
  });
}

}  // namespace weft::passes
