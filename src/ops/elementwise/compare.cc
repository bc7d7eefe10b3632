// compare: one of six comparisons, giving bool.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ir/stablehlo_read.h"
#include "src/ops/elementwise/total_order.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "left side"}, {"y", kEveryType, "right side"}};
constexpr std::string_view kDirections[] = {"eq", "ne", "ge", "gt", "le", "lt"};
constexpr std::string_view kStableHloDirections[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
constexpr AttrDef kAttrs[] = {{"direction", AttrType::kEnum, "eq, ne, ge, gt, le or lt", true, {}, kDirections}};

absl::Status Infer(const InferCall& call, Types* results) {
  const auto direction = static_cast<Direction>(Attr<kAttrs, "direction">(call.attrs));
  if (IsComplex(call.operands[0]->dtype) && direction != Direction::kEq && direction != Direction::kNe) {
    return UserError("direction is ", kDirections[static_cast<size_t>(direction)],
                     "; complex numbers are equal (eq) or not (ne), compare their abs, real or imag");
  }
  return InferBool(call, results);
}

template <typename T>
bool Holds(Direction direction, T x, T y) {
  switch (direction) {
    case Direction::kEq: return x == y;
    case Direction::kNe: return x != y;
    case Direction::kGe: return x >= y;
    case Direction::kGt: return x > y;
    case Direction::kLe: return x <= y;
    case Direction::kLt: return x < y;
  }
  return false;
}

absl::Status Reference(const ReferenceCall& call) {
  const auto direction = static_cast<Direction>(Attr<kAttrs, "direction">(call.attrs));
  const HostTensor& x = *call.operands[0];
  const HostTensor& y = *call.operands[1];
  for (int64_t k = 0; k < call.results[0].count(); ++k) {
    bool holds;
    if (IsFloat(x.dtype())) {
      holds = Holds(direction, x.GetDouble(k), y.GetDouble(k));
    } else if (IsUnsigned(x.dtype())) {
      holds = Holds(direction, static_cast<uint64_t>(x.GetInt(k)), static_cast<uint64_t>(y.GetInt(k)));
    } else {
      holds = Holds(direction, x.GetInt(k), y.GetInt(k));
    }
    call.results[0].SetInt(k, holds);
  }
  return absl::OkStatus();
}

ScalarValue LowerScalar(const ScalarCall& call) {
  constexpr ScalarOp kOps[] = {ScalarOp::kEq, ScalarOp::kNe, ScalarOp::kGe,
                               ScalarOp::kGt, ScalarOp::kLe, ScalarOp::kLt};
  return call.b.Binary(kOps[Attr<kAttrs, "direction">(call.attrs)], call.operands[0], call.operands[1]);
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  writer.Emit("compare",
              {{"comparison_direction",
                ShloEnum("comparison_direction", kStableHloDirections[Attr<kAttrs, "direction">(node.attrs())])}});
}

Values Read(StableHloOp& op) {
  const std::string direction = op.Word("comparison_direction"), type = op.Word("compare_type");
  const auto* found = std::ranges::find(kStableHloDirections, direction);
  if (found == std::end(kStableHloDirections)) {
    op.b.Fail(UserError("comparison_direction is ", direction, "; it must be EQ, NE, GE, GT, LE or LT"));
    return {};
  }
  Values operands = op.operands;
  if (type == "TOTALORDER") {
    for (Value& x : operands) {
      if (IsFloat(x.dtype())) x = InTotalOrder(op.b, x);
    }
  }
  return {Call(op.b, kOp_compare, std::move(operands), {static_cast<int64_t>(found - kStableHloDirections)})};
}

constexpr Sample kSamples[] = {{"T[2,3] T[2,3] direction=eq"}, {"T[4,1] T[3] direction=lt"},
                               {"T[] T[5] direction=ne"},      {"T[0,3] T[0,3] direction=ge"},
                               {"T[131] T[131] direction=gt"}, {"T[7] T[1] direction=le"}};

// Complex numbers are equal where both parts are; they have no order.
Splits OnPlanes(const PlanesCall& call) {
  const auto direction = static_cast<Direction>(Attr<kAttrs, "direction">(call.attrs()));
  const Value re = Compare(call.b, direction, call.planes(0).re, call.planes(1).re);
  const Value im = Compare(call.b, direction, call.planes(0).im, call.planes(1).im);
  return Real(Call(call.b, direction == Direction::kEq ? kOp_bitwise_and : kOp_bitwise_or, {re, im}));
}

}  // namespace

constinit const OpDef kOp_compare = {
    .name = "compare",
    .c_name = "compare",
    .doc =
        "Elementwise comparison with NumPy broadcasting; gives bool. With NaN only ne holds. The shorter eq, ne, ge, "
        "gt, le and lt are this operation.",
    .example = "mask = wf_compare(s, x, y, WEFT_COMPARE_DIRECTION_LT);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = Infer,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = Reference,
    .stablehlo = StableHlo,
    .read = Read,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .planes = OnPlanes,
};

}  // namespace weft::ops
