// tril, triu: one triangle of the last two dimensions.
#include <algorithm>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "[..., rows, columns]"}};
constexpr AttrDef kAttrs[] = {
    {"diagonal", AttrType::kInt,
     "the last (tril) or first (triu) diagonal that is kept; those above the main one count up", false, "0"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() < 2) return UserError("x must have at least 2 dimensions, not ", DimsToString(x.dims));
  results->push_back(x);
  return absl::OkStatus();
}

template <Direction keeps>
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const int64_t rank = x.dims().size(), rows = x.dims()[rank - 2], columns = x.dims()[rank - 1];
  // Beyond the corners nothing changes any more.
  const int64_t diagonal = std::clamp(Attr<kAttrs, "diagonal">(call.attrs), -rows - 1, columns + 1);
  const DType count = std::max(rows, columns) > INT32_MAX / 2 ? DType::kI64 : DType::kI32;
  const Value above = Sub(b, Iota(b, count, x.dims(), rank - 1), Iota(b, count, x.dims(), rank - 2));
  results[0] = Select(b, Compare(b, keeps, above, static_cast<double>(diagonal)), x, FullLike(b, x, 0));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[3,5]"}, {"T[2,4,3] diagonal=-1"}, {"T[4,4] diagonal=2"}, {"T[0,3]"}, {"T[2,2] diagonal=-9"}};

}  // namespace

constinit const OpDef kOp_tril = {
    .name = "weft.tril",
    .c_name = "tril",
    .since = 1,
    .kind = Kind::kMacro,
    .doc = "The lower triangle of the last two dimensions, with the diagonal; zeros above.",
    .example = "l = wf_tril(s, x);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand<Direction::kLe>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

constinit const OpDef kOp_triu = {
    .name = "weft.triu",
    .c_name = "triu",
    .since = 1,
    .kind = Kind::kMacro,
    .doc = "The upper triangle of the last two dimensions, with the diagonal; zeros below.",
    .example = "u = wf_triu(s, x, .diagonal = 1);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand<Direction::kGe>,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
