// cumsum, cumprod, cummax, cummin: what the elements up to each one along an axis combine to.
#include "src/ops/axes.h"
#include "src/ops/batching.h"
#include "src/ops/reduce/counting.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kNumbers[] = {{"x", kEveryType, "operand"}};
constexpr OperandDef kOrdered[] = {{"x", kAnyType, "operand"}};
constexpr AttrDef kAttrs[] = {{"axis", AttrType::kInt, "axis to go along; negative counts from the end", false, "-1"},
                              {"reverse", AttrType::kBool, "from the last element to the first", false, "false"}};
constexpr std::string_view kExtremes[] = {"values", "indices"};
constexpr Absent kDifferentiatedExpansion[] = {
    {Part::kGradient, Reason::kExpands}, {Part::kReference, Reason::kExpands}, {Part::kStableHlo, Reason::kExpands}};

absl::StatusOr<int64_t> AxisOf(const Attrs& attrs, size_t rank) {
  return AxisOfRow("axis", Attr<kAttrs, "axis">(attrs), rank);
}

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(AxisOf(call.attrs, call.operands[0]->rank()).status());
  results->push_back(Type::Tensor(call.operands[0]->dtype, RowDims(call.operands[0]->dims)));
  return absl::OkStatus();
}

absl::Status InferCounted(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(Infer(call, results));
  results->back().dtype = CountedType(results->back().dtype);
  return absl::OkStatus();
}

// A pass for each power of two below the length: afterwards every element holds what the last 2, 4, 8, … combine to. That is
// log2(n) passes over memory, all of them element by element, and errors of sums grow with the logarithm.
template <typename Step>
absl::Status Passes(const ExpandCall& call, Step step) {
  const Dims dims = RowDims(call.operands[0].dims());
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOf(call.attrs, dims.size()));
  const bool reverse = Attr<kAttrs, "reverse">(call.attrs);
  for (int64_t by = 1; by < dims[axis] && call.b.ok(); by *= 2) {
    Ints before(dims.size(), 0), behind = before;
    before[axis] = reverse ? -by : by;
    behind[axis] = -before[axis];
    // Each element's partner so far away, and at the end, where there is none, `none`.
    step([&](const Value& x, const Value& none) {
      return Call(call.b, kOp_pad, {x, none}, {before, behind, Ints(dims.size(), 0)});
    });
  }
  return call.b.status();
}

template <Value (*combine)(Builder&, Value, Value)>
absl::Status Combined(const ExpandCall& call, double identity, std::span<Value> results) {
  if (IsBool(call.operands[0].dtype())) {
    results[0] = Call(call.b, call.op, {Convert(call.b, call.operands[0], DType::kI64)}, call.attrs);
    return absl::OkStatus();
  }
  Value y = AsRow(call.b, call.operands[0]);
  const Value none = Scalar(call.b, y.dtype(), identity);
  WEFT_RETURN_IF_ERROR(Passes(call, [&](auto partner) { y = combine(call.b, y, partner(y, none)); }));
  results[0] = y;
  return absl::OkStatus();
}

// -0 is what a sum of floats begins with: 0 would take the sign of a first -0.
absl::Status ExpandSum(const ExpandCall& call, std::span<Value> results) {
  return Combined<Add>(call, IsFloat(call.operands[0].dtype()) ? -0.0 : 0.0, results);
}
absl::Status ExpandProd(const ExpandCall& call, std::span<Value> results) { return Combined<Mul>(call, 1, results); }

absl::Status GradientSum(const GradCall& call, std::span<Value> grads) {
  const Attrs& a = call.node.attrs();
  const Value slope =
      Call(call.b, kOp_cumsum, {call.cotangents[0]}, {Attr<kAttrs, "axis">(a), int64_t{!Attr<kAttrs, "reverse">(a)}});
  grads[0] = slope ? Reshape(call.b, slope, call.operands[0].dims()) : slope;
  return absl::OkStatus();
}

absl::Status InferExtreme(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(Infer(call, results));
  const Type x = (*results)[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOf(call.attrs, x.rank()));
  if (x.dims[axis] > INT32_MAX) {
    return UserError("axis ", axis, " has ", x.dims[axis], " elements; their positions must fit i32");
  }
  results->push_back(Type::Tensor(DType::kI32, x.dims));
  return absl::OkStatus();
}

// Pairs of a value and its position. The later one of equal values stays, and NaN stays whatever follows it.
template <Reducer reducer, Direction wins>
absl::Status ExpandExtreme(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  Value y = AsRow(b, call.operands[0]);
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOf(call.attrs, y.dims().size()));
  Value at = Iota(b, DType::kI32, y.dims(), axis);
  const Value none = Constant(b, Identity(reducer, y.dtype())), nowhere = Scalar(b, DType::kI32, 0);
  WEFT_RETURN_IF_ERROR(Passes(call, [&](auto partner) {
    const Value other = partner(y, none), other_at = partner(at, nowhere);
    Value stays = Compare(b, wins, y, other);  // never, where other is NaN
    if (IsFloat(call.operands[0].dtype())) {
      stays = Call(b, kOp_bitwise_or, {stays, Compare(b, Direction::kNe, y, y)});
    }
    y = Select(b, stays, y, other);
    at = Select(b, stays, at, other_at);
  }));
  results[0] = y;
  results[1] = at;
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[7]"},
                               {"T[3,5] axis=0"},
                               {"T[2,4,3] axis=1 reverse=true"},
                               {.call = "T[2,300]", .gradient = false},
                               {"T[0,3] axis=0"},
                               {"T[3,0]"},
                               {"T[1]"},
                               {"T[]"}};

}  // namespace

constinit const OpDef kOp_cumsum = {
    .name = "weft.cumsum",
    .c_name = "cumsum",
    .since = 1,
    .kind = Kind::kComposite,
    .doc =
        "The sums of the elements up to each one along an axis, that one included. f16 and bf16 add up in f32 and are rounded "
        "once; integers wrap in their own type, and bools count as i64.",
    .example = "y = wf_cumsum(s, x, .axis = 0);",
    .operands = kNumbers,
    .attrs = kAttrs,
    .results = kResult,
    .infer = InferCounted,
    .gradient = GradientSum,
    .expand = ExpandSum,
    .batching = BatchAlong<AttrPosition<kAttrs, "axis">()>,
    .lowering = Lowering::kKernel,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 4e-6},
    .absent = kCompositeAbsent,
};

constinit const OpDef kOp_cumprod = {
    .name = "weft.cumprod",
    .c_name = "cumprod",
    .since = 1,
    .kind = Kind::kComposite,
    .doc =
        "The products of the elements up to each one along an axis, that one included. f16 and bf16 multiply in f32 and are "
        "rounded once; integers wrap in their own type, and bools count as i64. The gradient holds at zeros, too.",
    .example = "y = wf_cumprod(s, x);",
    .operands = kNumbers,
    .attrs = kAttrs,
    .results = kResult,
    .infer = InferCounted,
    .expand = ExpandProd,
    .batching = BatchAlong<AttrPosition<kAttrs, "axis">()>,
    .lowering = Lowering::kKernel,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 4e-6},
    .absent = kDifferentiatedExpansion,
};

constinit const OpDef kOp_cummax = {
    .name = "weft.cummax",
    .c_name = "cummax",
    .since = 1,
    .kind = Kind::kComposite,
    .doc =
        "The largest of the elements up to each one along an axis, and its position as i32; of equal ones the one reached last. "
        "From a NaN on all are NaN, at the latest NaN's position. The gradient goes to the element that was chosen.",
    .example = "best = wf_cummax(s, x, .axis = 0);",
    .operands = kOrdered,
    .attrs = kAttrs,
    .results = kExtremes,
    .infer = InferExtreme,
    .expand = ExpandExtreme<Reducer::kMax, Direction::kGe>,
    .batching = BatchAlong<AttrPosition<kAttrs, "axis">()>,
    .lowering = Lowering::kKernel,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kDifferentiatedExpansion,
};

constinit const OpDef kOp_cummin = {
    .name = "weft.cummin",
    .c_name = "cummin",
    .since = 1,
    .kind = Kind::kComposite,
    .doc =
        "The smallest of the elements up to each one along an axis, and its position as i32; of equal ones the one reached last. "
        "From a NaN on all are NaN, at the latest NaN's position. The gradient goes to the element that was chosen.",
    .example = "best = wf_cummin(s, x, .axis = 0);",
    .operands = kOrdered,
    .attrs = kAttrs,
    .results = kExtremes,
    .infer = InferExtreme,
    .expand = ExpandExtreme<Reducer::kMin, Direction::kLe>,
    .batching = BatchAlong<AttrPosition<kAttrs, "axis">()>,
    .lowering = Lowering::kKernel,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kDifferentiatedExpansion,
};

}  // namespace weft::ops
