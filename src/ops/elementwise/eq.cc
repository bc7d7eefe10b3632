// eq: x == y.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kAnyType, "left side"}, {"y", kAnyType, "right side"}};
constexpr auto kSamples = BinarySamples();

}  // namespace

constinit const OpDef kOp_eq = {
    .name = "weft.eq",
    .c_name = "eq",
    .kind = Kind::kMacro,
    .doc = "Elementwise comparison x == y with NumPy broadcasting; gives bool, false where either is NaN.",
    .example = "mask = wf_eq(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferBool,
    .expand = ExpandCompare<Direction::kEq>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .commutative = true,
    .rounds_once = true,
};

}  // namespace weft::ops
