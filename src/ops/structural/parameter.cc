// parameter: an argument of a function, or a recorded leaf whose value lives in a buffer.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr Absent kAbsent[] = {
    {Part::kGradient, Reason::kStructural}, {Part::kStableHlo, Reason::kStructural},
    {Part::kLowering, Reason::kStructural}, {Part::kReference, Reason::kStructural},
    {Part::kSamples, Reason::kStructural},  {Part::kExample, Reason::kStructural},
};

}  // namespace

constinit const OpDef kOp_parameter = {
    .name = "parameter",
    .c_name = "parameter",
    .doc = "An argument of a function. Made by the engine and by captured functions; never called.",
    .results = kResult,
    .lowering = Lowering::kStructural,
    .absent = kAbsent,
    .exported = false,
    .cheap_again = true,  // nothing computes it
    .parameter = true,
};

}  // namespace weft::ops
