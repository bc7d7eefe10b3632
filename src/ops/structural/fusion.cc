// fusion: a piece of graph that a backend runs as one kernel; its region's parameters are the operands.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{.name = "inputs",
                                     .types = kAnyType,
                                     .doc = "what the region reads",
                                     .optional = true,
                                     .variadic = true,
                                     .group = 0}};
constexpr RegionDef kRegions[] = {{"body", "the operands in, the results out"}};
constexpr Absent kAbsent[] = {
    {Part::kGradient, Reason::kStructural}, {Part::kStableHlo, Reason::kStructural},
    {Part::kLowering, Reason::kStructural}, {Part::kReference, Reason::kStructural},
    {Part::kSamples, Reason::kStructural},  {Part::kExample, Reason::kStructural},
};

}  // namespace

constinit const OpDef kOp_fusion = {
    .name = "fusion",
    .c_name = "fusion",
    .doc =
        "Elementwise operations, shape operations and reductions that one kernel computes. Made by the fusion pass; never called.",
    .operands = kOperands,
    .regions = kRegions,
    .results = kResult,
    .lowering = Lowering::kStructural,
    .absent = kAbsent,
    .exported = false,
};

}  // namespace weft::ops
