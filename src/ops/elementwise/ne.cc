// ne: x != y.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kAnyType, "left side"}, {"y", kAnyType, "right side"}};
constexpr auto kSamples = BinarySamples();

}  // namespace

constinit const OpDef kOp_ne = {
    .name = "weft.ne",
    .c_name = "ne",
    .kind = Kind::kMacro,
    .doc = "Elementwise comparison x != y with NumPy broadcasting; gives bool, true where either is NaN.",
    .example = "mask = wf_ne(s, x, y);",
    .operands = kOperands,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferBool,
    .expand = ExpandCompare<Direction::kNe>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .commutative = true,
    .rounds_once = true,
};

}  // namespace weft::ops
