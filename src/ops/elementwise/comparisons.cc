// eq, ne, ge, gt, le, lt: compare under the names of its directions.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kEqual[] = {{"x", kEveryType, "left side"}, {"y", kEveryType, "right side"}};
constexpr OperandDef kOrdered[] = {{"x", kAnyType, "left side"}, {"y", kAnyType, "right side"}};
constexpr auto kSamples = BinarySamples();

template <Direction direction>
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  results[0] = Compare(call.b, direction, call.operands[0], call.operands[1]);
  return absl::OkStatus();
}

// The six comparisons have this in common; each says its names.
template <Direction direction>
consteval OpDef Comparison(OpDef named) {
  named.kind = Kind::kMacro;
  named.results = kResult;
  named.rule = OperandRule::kBroadcast;
  named.infer = InferBool;
  named.expand = Expand<direction>;
  named.lowering = Lowering::kExpand;
  named.samples = kSamples;
  named.tolerance = kExact;
  named.absent = kMacroNoGradient;
  named.commutative = direction == Direction::kEq || direction == Direction::kNe;
  named.operands = named.commutative ? std::span<const OperandDef>(kEqual) : std::span<const OperandDef>(kOrdered);
  named.rounds_once = true;
  return named;
}

}  // namespace

constinit const OpDef kOp_eq = Comparison<Direction::kEq>({
    .name = "weft.eq",
    .c_name = "eq",
    .doc = "Elementwise comparison x == y with NumPy broadcasting; gives bool, false where either is NaN.",
    .example = "mask = wf_eq(s, x, y);",
});
constinit const OpDef kOp_ne = Comparison<Direction::kNe>({
    .name = "weft.ne",
    .c_name = "ne",
    .doc = "Elementwise comparison x != y with NumPy broadcasting; gives bool, true where either is NaN.",
    .example = "mask = wf_ne(s, x, y);",
});
constinit const OpDef kOp_ge = Comparison<Direction::kGe>({
    .name = "weft.ge",
    .c_name = "ge",
    .doc = "Elementwise comparison x >= y with NumPy broadcasting; gives bool, false where either is NaN.",
    .example = "mask = wf_ge(s, x, y);",
});
constinit const OpDef kOp_gt = Comparison<Direction::kGt>({
    .name = "weft.gt",
    .c_name = "gt",
    .doc = "Elementwise comparison x > y with NumPy broadcasting; gives bool, false where either is NaN.",
    .example = "mask = wf_gt(s, x, y);",
});
constinit const OpDef kOp_le = Comparison<Direction::kLe>({
    .name = "weft.le",
    .c_name = "le",
    .doc = "Elementwise comparison x <= y with NumPy broadcasting; gives bool, false where either is NaN.",
    .example = "mask = wf_le(s, x, y);",
});
constinit const OpDef kOp_lt = Comparison<Direction::kLt>({
    .name = "weft.lt",
    .c_name = "lt",
    .doc = "Elementwise comparison x < y with NumPy broadcasting; gives bool, false where either is NaN.",
    .example = "mask = wf_lt(s, x, y);",
});

}  // namespace weft::ops
