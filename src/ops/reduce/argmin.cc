// argmin: where the smallest element along an axis is.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber, "operand"}};
constexpr AttrDef kAttrs[] = {
    {"axis", AttrType::kInt, "axis to search; negative counts from the end", false, "-1"},
    {"keepdims", AttrType::kBool, "keep the axis with size 1", false, "false"},
};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", call.attrs.Int(0), x.rank()));
  if (x.dims[axis] == 0) return UserError("axis ", axis, " has size 0: there is no smallest element");
  Dims dims = x.dims;
  dims[axis] = 1;
  results->push_back(Type::Tensor(DType::kI32, call.attrs.Bool(1) ? dims : Without(x.dims, Ints{axis})));
  return absl::OkStatus();
}

// The smallest index among the elements that equal the extreme; NaN counts as the extreme.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Dims& dims = x.dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", call.attrs.Int(0), dims.size()));
  Value best = Unreduce(b, Reduce(b, x, Reducer::kMin, {axis}), dims, Ints{axis});
  Value won = Compare(b, Direction::kEq, x, best);
  if (IsFloat(x.dtype())) won = Call(b, kOp_bitwise_or, {won, Compare(b, Direction::kNe, x, x)});
  Value index = Iota(b, DType::kI32, dims, axis);
  Value candidates = Select(b, won, index, FullLike(b, index, static_cast<double>(dims[axis])));
  results[0] = call.attrs.Bool(1) ? ReduceKeep(b, candidates, Reducer::kMin, {axis})
                                  : Reduce(b, candidates, Reducer::kMin, {axis});
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[4,7]"}, {"T[3,5,2] axis=1 keepdims=true"}, {"T[1]"}, {"T[0,3]"}, {"T[2,131]"}};

}  // namespace

constinit const OpDef kOp_argmin = {
    .name = "weft.argmin",
    .c_name = "argmin",
    .kind = Kind::kComposite,
    .doc =
        "Index of the smallest element along one axis, as i32; the first of equals. NaN counts as the "
        "smallest, as in NumPy.",
    .example = "label = wf_argmin(s, logits);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kCompositeNoGradient,
};

}  // namespace weft::ops
