// weight_norm: a weight as its direction times a length for each slice.
#include "src/ops/elementwise/special.h"
#include "src/ops/reduce/norms.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"v", kF, "directions"},
                                    {"g", kF, "lengths: of v's rank, with size 1 but along the axis"}};
constexpr AttrDef kAttrs[] = {
    {"axis", AttrType::kInt, "axis of the slices that have lengths; negative counts from the end", false, "0"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type &v = *call.operands[0], &g = *call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), v.rank()));
  Dims wanted(v.rank(), 1);
  wanted[axis] = v.dims[axis];
  if (g.dims != wanted) return UserError("g must have shape ", DimsToString(wanted), ", not ", DimsToString(g.dims));
  results->push_back(v);
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &v = call.operands[0], &g = call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), v.dims().size()));
  Ints others = Axes(v.dims().size());
  others.erase(others.begin() + axis);
  const Value norm = others.empty() ? Abs(b, v) : NormKeep(b, v, 2, others);
  results[0] = norm ? Mul(b, v, BroadcastTo(b, Div(b, g, norm), v.dims())) : norm;
  return b.status();
}

constexpr Sample kSamples[] = {{"T[3,4] T[3,1]", 0.5, 2}, {"T[2,3,4] T[1,1,4] axis=-1", 0.5, 2}};

}  // namespace

constinit const OpDef kOp_weight_norm = Formula({
    .name = "weft.weight_norm",
    .c_name = "weight_norm",
    .doc =
        "A weight of given lengths: v times g over the 2-norm of each slice along an axis. Source: Salimans and Kingma (2016).",
    .example = "w = wf_weight_norm(s, v, g);",
    .operands = kOperands,
    .attrs = kAttrs,
    .infer = Infer,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 3e-2, .f16 = 4e-3, .absolute = 1e-6},
});

}  // namespace weft::ops
