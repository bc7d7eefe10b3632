// sort: the elements along one axis in order.
#include "src/ops/axes.h"
#include "src/ops/sort/order.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(AxisOfRow("axis", Attr<kSortAttrs, "axis">(call.attrs), x.rank()).status());
  results->push_back(x);
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  if (call.operands[0].dims().empty()) {
    results[0] = call.operands[0];
    return absl::OkStatus();
  }
  results[0] = SortByFirst(call.b, {call.operands[0]}, Attr<kSortAttrs, "axis">(call.attrs),
                           Attr<kSortAttrs, "descending">(call.attrs))[0];
  return absl::OkStatus();
}

// Differences of long rows would take minutes; their gradient is that of short ones.
constexpr Sample kSamples[] = {{"T[7]"},
                               {"T[3,5] axis=0"},
                               {"T[2,4,3] axis=1 descending=true"},
                               {.call = "T[131]", .gradient = false},
                               {.call = "T[2,300] descending=true", .gradient = false},
                               {"T[0,3]"},
                               {"T[3,0]"},
                               {"T[1]"},
                               {"T[] axis=0"}};

}  // namespace

constinit const OpDef kOp_sort = {
    .name = "weft.sort",
    .c_name = "sort",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "The elements along one axis in ascending or descending order; equal ones keep their order. NaN counts as larger than "
        "everything, so it comes last, or first of a descending order. A scalar stays as it is. The gradient follows the elements.",
    .example = "y = wf_sort(s, x);",
    .operands = kSortOperands,
    .attrs = kSortAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
