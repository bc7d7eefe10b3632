// conj: the complex conjugate.
#include "src/ops/complex.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber | kC, "operand"}};
constexpr Sample kSamples[] = {{"c64[2,3]"}, {"c128[5]"}, {"c64[]"}, {"c64[0,3]"}, {"T[2,3]"}};

}  // namespace

constinit const OpDef kOp_conj = {
    .name = "weft.conj",
    .c_name = "conj",
    .since = 1,
    .kind = Kind::kMacro,
    .doc = "Elementwise complex conjugate: the imaginary part with its sign changed. A real tensor is its own.",
    .example = "z = wf_conj(s, wf_complex(s, x, y));",
    .operands = kOperands,
    .results = kResult,
    .infer = InferSame,
    .expand = ExpandUnary<Conj>,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
