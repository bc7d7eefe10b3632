// slice_in_dim: a range of indices along one dimension.
#include <algorithm>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {{"axis", AttrType::kInt, "axis to cut; negative counts from the end", true},
                              {"start", AttrType::kInt, "first index", false, "0"},
                              {"limit", AttrType::kInt, "index after the last; absent: the end"},
                              {"step", AttrType::kInt, "step, at least 1", false, "1"}};

struct Range {
  int64_t axis, start, limit, step;
};

absl::StatusOr<Range> Resolve(const Attrs& attrs, const Dims& dims) {
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(attrs), dims.size()));
  const int64_t size = dims[axis];
  auto hold = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t start = hold(Attr<kAttrs, "start">(attrs));
  const int64_t limit = HasAttr<kAttrs, "limit">(attrs) ? hold(Attr<kAttrs, "limit">(attrs)) : size;
  if (Attr<kAttrs, "step">(attrs) < 1)
    return UserError("step is ", Attr<kAttrs, "step">(attrs), "; it must be at least 1 (see reverse)");
  // A step past the end takes one element, however long it is.
  return Range{axis, start, std::max(start, limit), std::min(Attr<kAttrs, "step">(attrs), std::max<int64_t>(size, 1))};
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Range range, Resolve(call.attrs, x.dims));
  Type result = x;
  result.dims[range.axis] = (range.limit - range.start + range.step - 1) / range.step;
  results->push_back(std::move(result));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const Dims& dims = call.operands[0].dims();
  WEFT_ASSIGN_OR_RETURN(const Range range, Resolve(call.attrs, dims));
  Ints start(dims.size(), 0), limit = ToInts(dims), step(dims.size(), 1);
  start[range.axis] = range.start;
  limit[range.axis] = range.limit;
  step[range.axis] = range.step;
  results[0] = Slice(call.b, call.operands[0], start, limit, step);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[5,3] axis=0 start=1 limit=4"},
                               {"T[2,7] axis=-1 start=-3"},
                               {"T[9] axis=0 limit=-1 step=2"},
                               {"T[4] axis=0 start=3 limit=1"},
                               {"T[0] axis=0"}};

}  // namespace

constinit const OpDef kOp_slice_in_dim = {
    .name = "weft.slice_in_dim",
    .c_name = "slice_in_dim",
    .kind = Kind::kMacro,
    .doc =
        "The indices from start to limit (not included) along one axis, in steps. Negative indices count from the "
        "end, as in Python; both are held within the axis.",
    .example = "y = wf_slice_in_dim(s, x, 0, .start = 1, .limit = -1);",
    .operands = kOperands,
    .attrs = kAttrs,
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
