// most_frequent: the element that is there most often along an axis.
#include "src/ops/axes.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/sort/order.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kAnyType, "operand"}};
constexpr AttrDef kAttrs[] = {{"axis", AttrType::kInt, "axis; negative counts from the end", false, "-1"},
                              {"keepdims", AttrType::kBool, "keep the axis with size 1", false, "false"}};
constexpr std::string_view kFound[] = {"values", "indices"};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AlongAxis("axis", Attr<kAttrs, "axis">(call.attrs), x.rank()));
  Dims dims = x.dims;
  for (const int64_t axis : axes) {
    if (dims[axis] == 0) return UserError("axis ", axis, " has size 0: there is no element to find");
    if (dims[axis] > INT32_MAX) {
      return UserError("axis ", axis, " has ", dims[axis], " elements; their positions must fit i32");
    }
    dims[axis] = 1;
  }
  if (!Attr<kAttrs, "keepdims">(call.attrs)) dims = Without(x.dims, axes);
  results->push_back(Type::Tensor(x.dtype, dims));
  results->push_back(Type::Tensor(DType::kI32, dims));
  return absl::OkStatus();
}

// Sorted, equal elements stand together, and how many of them there are up to each one is largest at the end of the longest run.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value x = AsRow(b, call.operands[0]);
  if (!x) return b.status();
  const Dims& dims = x.dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        AxisOfRow("axis", Attr<kAttrs, "axis">(call.attrs), call.operands[0].dims().size()));
  const int64_t size = dims[axis];
  const Value at = Iota(b, DType::kI32, dims, axis);
  const Values sorted = SortByFirst(b, {Unary(b, kOp_stop_gradient, x), at}, axis, /*descending=*/false);
  if (!b.ok()) return b.status();
  Ints start(dims.size(), 0), limit = ToInts(dims), strides(dims.size(), 1), low = start, none = start;
  limit[axis] = size - 1;
  const Value before = Slice(b, sorted[0], start, limit, strides);
  start[axis] = 1;
  limit[axis] = size;
  const Value differs = Compare(b, Direction::kNe, Slice(b, sorted[0], start, limit, strides), before);
  low[axis] = 1;
  const Value begins = Pad(b, differs, 1, low, none, none);  // the first one does
  const Value first = Call(b, kOp_cummax, {Select(b, begins, at, FullLike(b, at, 0))}, {axis, int64_t{0}});
  const Value end = Call(b, kOp_argmax, {Sub(b, at, first)}, {axis, int64_t{1}});
  const Value index = Call(b, kOp_take_along_axis, {sorted[1], end}, {axis});
  const Value value = Call(b, kOp_take_along_axis, {x, index}, {axis});
  if (!index || !value) return b.status();
  const Dims& given = call.operands[0].dims();
  Dims out = given;
  if (!given.empty()) out[axis] = 1;
  if (!given.empty() && !Attr<kAttrs, "keepdims">(call.attrs)) out.erase(out.begin() + axis);
  results[0] = Reshape(b, value, out);
  results[1] = Reshape(b, index, out);
  return b.status();
}

constexpr Sample kSamples[] = {
    {"f32[7]"}, {"i32[3,9]<0:4>"}, {"i8[5,2]<0:3> axis=0 keepdims=true"}, {"bool[6]"}, {"bf16[]"}};

}  // namespace

constinit const OpDef kOp_most_frequent = Formula({
    .name = "weft.most_frequent",
    .c_name = "most_frequent",
    .doc =
        "The element that is there most often along one axis, of several the least, and the last of its positions as i32. Each "
        "NaN is one of its own. The gradient goes to the element at that position.",
    .example = "most = wf_most_frequent(s, labels);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kFound,
    .infer = Infer,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = kExact,
    .rounds_once = true,
});

}  // namespace weft::ops
