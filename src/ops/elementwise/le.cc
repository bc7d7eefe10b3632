// le: x <= y.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kAnyType, "left side"}, {"y", kAnyType, "right side"}};
constexpr auto kSamples = BinarySamples();

}  // namespace

constinit const OpDef kOp_le = {
    .name = "weft.le",
    .c_name = "le",
    .kind = Kind::kMacro,
    .doc = "Elementwise comparison x <= y with NumPy broadcasting; gives bool, false where either is NaN.",
    .example = "mask = wf_le(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferBool,
    .expand = ExpandCompare<Direction::kLe>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .commutative = false,
    .rounds_once = true,
};

}  // namespace weft::ops
