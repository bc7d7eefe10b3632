// boolean_mask_static, masked_select_static: what a mask chooses, in a result of a given size.
#include <algorithm>

#include "src/ops/shape/number.h"
#include "src/ops/sizes/places.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"},
                                    {"mask", kB, "which of its slices or elements", false, false, 'M'}};
constexpr AttrDef kFillAttr = {"fill", AttrType::kDouble, "what stands behind the last one, a number of x's type",
                               false, "0"};
constexpr AttrDef kAxisAttrs[] = {
    kSizeAttr,
    {"axis", AttrType::kInt, "axis of x that the mask's first one goes along; negative counts from the end", false,
     "0"},
    kFillAttr};
constexpr AttrDef kAttrs[] = {kSizeAttr, kFillAttr};
constexpr std::string_view kResults[] = {"result", "count"};

// The mask's dimensions stand in x's from `axis` on, and one of `size` takes their place. A mask of rank 0 stands between two
// dimensions of x, or before or behind all.
absl::StatusOr<int64_t> AxisOf(const Attrs& attrs, const Type& x, const Type& mask) {
  const int64_t axis = Attr<kAxisAttrs, "axis">(attrs), rank = mask.rank();
  WEFT_ASSIGN_OR_RETURN(const int64_t first, NormalizeAxis("axis", axis, x.rank() + (rank == 0 ? 1 : 0)));
  if (first + rank <= static_cast<int64_t>(x.rank()) &&
      std::equal(mask.dims.begin(), mask.dims.end(), x.dims.begin() + first))
    return first;
  return UserError("the mask must have the sizes of x from axis ", first, " on: ", DimsToString(mask.dims),
                   " are not there in ", DimsToString(x.dims));
}

Dims Chosen(const Dims& x, int64_t axis, int64_t rank, int64_t size) {
  Dims dims(x.begin(), x.begin() + axis);
  dims.push_back(size);
  dims.insert(dims.end(), x.begin() + axis + rank, x.end());
  return dims;
}

absl::Status InferAlong(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Type& mask = *call.operands[1];
  WEFT_RETURN_IF_ERROR(CheckSize(call.attrs, AttrPosition<kAxisAttrs, "size">()));
  WEFT_RETURN_IF_ERROR(CheckPlaces("mask", mask));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOf(call.attrs, x, mask));
  WEFT_RETURN_IF_ERROR(CheckNumber("fill", Attr<kAxisAttrs, "fill">(call.attrs), x.dtype));
  results->push_back(Type::Tensor(x.dtype, Chosen(x.dims, axis, mask.rank(), Attr<kAxisAttrs, "size">(call.attrs))));
  results->push_back(Type::Scalar(DType::kI32));
  return absl::OkStatus();
}

absl::Status ExpandAlong(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &mask = call.operands[1];
  const int64_t size = Attr<kAxisAttrs, "size">(call.attrs), n = mask.type().count();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOf(call.attrs, x.type(), mask.type()));
  const double fill = Attr<kAxisAttrs, "fill">(call.attrs);
  const int64_t rank = mask.type().rank();
  const Places places = FirstTrue(b, Reshape(b, mask, {n}), size);
  results[1] = places.count;
  if (n == 0) {
    // The result of no elements still depends on x, for the gradient.
    const Dims none = Chosen(x.dims(), axis, rank, 0);
    Ints low(none.size(), 0), high = low;
    high[axis] = size;
    results[0] = Pad(b, Reshape(b, x, none), fill, low, high, low);
  } else {
    const Value joined = Reshape(b, x, Chosen(x.dims(), axis, rank, n));
    results[0] = WhereThere(b, places.there, Call(b, kOp_take, {joined, places.at}, {axis}), axis, fill);
  }
  return absl::OkStatus();
}

absl::Status InferSelect(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckSize(call.attrs, AttrPosition<kAttrs, "size">()));
  WEFT_RETURN_IF_ERROR(CheckPlaces("x", x));
  WEFT_RETURN_IF_ERROR(CheckNumber("fill", Attr<kAttrs, "fill">(call.attrs), x.dtype));
  results->push_back(Type::Tensor(x.dtype, {Attr<kAttrs, "size">(call.attrs)}));
  results->push_back(Type::Scalar(DType::kI32));
  return absl::OkStatus();
}

// x and mask have been broadcast to one shape.
absl::Status ExpandSelect(const ExpandCall& call, std::span<Value> results) {
  const Dims flat = {call.operands[0].type().count()};
  const Values chosen = CallAll(call.b, kOp_boolean_mask_static,
                                {Reshape(call.b, call.operands[0], flat), Reshape(call.b, call.operands[1], flat)},
                                {Attr<kAttrs, "size">(call.attrs), int64_t{0}, Attr<kAttrs, "fill">(call.attrs)});
  std::ranges::copy(chosen, results.begin());
  return absl::OkStatus();
}

constexpr Sample kAlongSamples[] = {{"T[5,3] bool[5] size=4"},       {"T[2,5,3] bool[5] size=6 axis=1 fill=1"},
                                    {"T[2,3,4] bool[2,3] size=3"},   {"T[3,4] bool[4] size=4 axis=-1"},
                                    {"T[2,3] bool[] size=1 axis=2"}, {"T[0,3] bool[0] size=2 fill=1"},
                                    {"T[4,0] bool[4] size=3"},       {"T[4] bool[4] size=0"}};
constexpr Sample kSelectSamples[] = {{"T[7] bool[7] size=5"},
                                     {"T[2,3] bool[3] size=4 fill=1"},
                                     {"T[3] bool[2,1] size=6"},
                                     {"T[] bool[] size=2"},
                                     {"T[0,3] bool[0,3] size=2"},
                                     {"T[4] bool[4] size=0"},
                                     {.call = "T[300] bool[300] size=200", .gradient = false}};

}  // namespace

constinit const OpDef kOp_boolean_mask_static = {
    .name = "weft.boolean_mask_static",
    .c_name = "boolean_mask_static",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "The slices of x where the mask is true, in their order: the mask has the sizes of some neighbouring axes of x, from axis "
        "on, and one of the given size takes their place; NumPy's x[mask]. Behind the last one stands fill. count says how many "
        "there are, those without room included. Never waits; the gradient goes back to where the slices came from. See "
        "weft_boolean_mask for a result that has as many as there are.",
    .example = "kept = wf_boolean_mask_static(s, x, mask, 10, .axis = 1);",
    .operands = kOperands,
    .attrs = kAxisAttrs,
    .results = kResults,
    .infer = InferAlong,
    .expand = ExpandAlong,
    .lowering = Lowering::kExpand,
    .samples = kAlongSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

constinit const OpDef kOp_masked_select_static = {
    .name = "weft.masked_select_static",
    .c_name = "masked_select_static",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "The elements of x where the mask is true, in row-major order, as one dimension of the given size; x and mask broadcast "
        "together. Behind the last one stands fill. count says how many there are, those without room included. Never waits; the "
        "gradient goes back to where the elements came from. See weft_masked_select for a result that has as many as there are.",
    .example = "kept = wf_masked_select_static(s, x, mask, 10);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResults,
    .rule = OperandRule::kBroadcast,
    .infer = InferSelect,
    .expand = ExpandSelect,
    .lowering = Lowering::kExpand,
    .samples = kSelectSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
