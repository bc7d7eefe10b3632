// clip: x held between two fixed numbers.
#include <cmath>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber, "operand"}};
constexpr AttrDef kAttrs[] = {{"low", AttrType::kDouble, "lower bound; absent: none"},
                              {"high", AttrType::kDouble, "upper bound; absent: none"}};

constexpr size_t kLow = AttrPosition<kAttrs, "low">(), kHigh = AttrPosition<kAttrs, "high">();

// A bound as a number of x's type: integers take the nearest one inside.
double Bound(DType dtype, const Attrs& attrs, size_t i) {
  const double bound = attrs.Double(i);
  return IsFloat(dtype) ? bound : i == kLow ? std::ceil(bound) : std::floor(bound);
}

absl::Status Infer(const InferCall& call, Types* results) {
  const DType dtype = call.operands[0]->dtype;
  if (!HasAttr<kAttrs, "low">(call.attrs) && !HasAttr<kAttrs, "high">(call.attrs))
    return UserError("neither low nor high is given; at least one is needed");
  if (HasAttr<kAttrs, "low">(call.attrs) && HasAttr<kAttrs, "high">(call.attrs)) {
    const double low = Attr<kAttrs, "low">(call.attrs), high = Attr<kAttrs, "high">(call.attrs);
    if (std::isnan(low) || std::isnan(high)) {
      return UserError("low is ", low, " and high is ", high, "; bounds are numbers");
    }
    if (low <= high && Bound(dtype, call.attrs, kLow) > Bound(dtype, call.attrs, kHigh)) {
      return UserError("there is no ", NameOf(dtype), " from low (", low, ") to high (", high, ")");
    }
  }
  return InferSame(call, results);
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  // Not maximum and minimum, which would share the gradient at the edge with a bound that nobody asks about.
  Value y = x;
  auto stop = [&](size_t attr, Direction beyond) {
    if (!call.attrs.has(attr)) return;
    Value bound = FullLike(b, x, Bound(x.dtype(), call.attrs, attr));
    y = Select(b, Compare(b, beyond, y, bound), bound, y);
  };
  stop(kLow, Direction::kLe);
  stop(kHigh, Direction::kGe);
  results[0] = y;
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[2,3] low=-1 high=1"}, {"T[131] low=0"}, {"T[] high=0.5"}, {"T[0] low=0 high=1"}, {"T[3] low=1 high=-1"}};

}  // namespace

constinit const OpDef kOp_clip = {
    .name = "weft.clip",
    .c_name = "clip",
    .kind = Kind::kMacro,
    .doc =
        "Elementwise min(max(x, low), high) with fixed bounds, either of which may be left out (high, where low is above it); integers stay between the "
        "nearest integers inside. For bounds that are tensors see clamp. The gradient at an edge is 0 and at NaN 1, as that of relu.",
    .example = "y = wf_clip(s, x, .low = -1, .high = 1);",
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
