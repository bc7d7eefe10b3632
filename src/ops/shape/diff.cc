// diff: differences of neighbours.
#include <algorithm>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {
    {"n", AttrType::kInt, "how many times over", false, "1"},
    {"axis", AttrType::kInt, "axis of the neighbours; negative counts from the end", false, "-1"}};

absl::Status Infer(const InferCall& call, Types* results) {
  Type x = *call.operands[0];
  const int64_t n = Attr<kAttrs, "n">(call.attrs);
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), x.rank()));
  if (n < 0 || n > 64) return UserError("n is ", n, "; it must be 0 to 64");
  x.dims[axis] = std::max<int64_t>(x.dims[axis] - n, 0);
  results->push_back(std::move(x));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  Value x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), x.dims().size()));
  for (int64_t i = 0; i < Attr<kAttrs, "n">(call.attrs) && b.ok() && x.dims()[axis] > 0; ++i) {
    const Dims dims = x.dims();
    Ints begin(dims.size(), 0), second = begin, end = ToInts(dims), last = end;
    second[axis] = 1;
    last[axis] -= 1;
    const Ints ones(dims.size(), 1);
    const Value after = Slice(b, x, second, end, ones), before = Slice(b, x, begin, last, ones);
    x = IsBool(x.dtype()) ? Compare(b, Direction::kNe, after, before) : Sub(b, after, before);
  }
  results[0] = x;
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[7]"},     {"T[3,5] axis=0"}, {"T[2,6] n=3"},
                               {"T[3] n=0"}, {"T[2,2] n=4"},    {"T[0,3] axis=0"}};

}  // namespace

constinit const OpDef kOp_diff = {
    .name = "weft.diff",
    .c_name = "diff",
    .since = 1,
    .kind = Kind::kMacro,
    .doc = "Each element along an axis less the one before it, n times over; of bools, whether they differ.",
    .example = "steps = wf_diff(s, x);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-6, .f64 = 1e-14, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-6},
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
