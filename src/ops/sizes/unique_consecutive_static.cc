// unique_consecutive_static: the first element of each run of equal ones, in a result of a given size.
#include "src/ops/elementwise/special.h"
#include "src/ops/shape/number.h"
#include "src/ops/sizes/places.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kAnyType, "operand"}};
constexpr AttrDef kAttrs[] = {
    kSizeAttr,
    {"fill", AttrType::kDouble, "what stands behind the last value, a number of x's type", false, "0"},
    kSlicesAttr};
constexpr std::string_view kResults[] = {"values", "count", "inverse", "counts"};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckSize(call.attrs, AttrPosition<kAttrs, "size">()));
  WEFT_RETURN_IF_ERROR(CheckPlaces("x", x));
  WEFT_RETURN_IF_ERROR(CheckNumber("fill", Attr<kAttrs, "fill">(call.attrs), x.dtype));
  const Dims size = {Attr<kAttrs, "size">(call.attrs)};
  WEFT_ASSIGN_OR_RETURN(const Uniques of, UniquesOf(call.attrs, AttrPosition<kAttrs, "axis">(), x.dims));
  results->push_back(Type::Tensor(x.dtype, of.Values(size[0])));
  results->push_back(Type::Scalar(DType::kI32));
  results->push_back(Type::Tensor(DType::kI32, of.inverse));
  results->push_back(Type::Tensor(DType::kI32, size));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Dims dims = call.operands[0].dims();
  const int64_t size = Attr<kAttrs, "size">(call.attrs);
  const double fill = Attr<kAttrs, "fill">(call.attrs);
  WEFT_ASSIGN_OR_RETURN(const Uniques of, UniquesOf(call.attrs, AttrPosition<kAttrs, "axis">(), dims));
  const int64_t n = of.shape[of.axis];
  const Value x = Reshape(b, call.operands[0], of.shape);
  if (n == 0) {
    results[0] = of.Nothing(b, x, size, fill);
    results[1] = Scalar(b, DType::kI32, 0);
    results[2] = Full(b, DType::kI32, of.inverse, 0);
    results[3] = Full(b, DType::kI32, {size}, 0);
    return absl::OkStatus();
  }
  Value begins = Begins(b, of.slices ? SliceRows(b, x, of.axis) : x, false);
  // The first slice does, one without elements too.
  if (of.slices) begins = Pad(b, Slice(b, Reduce(b, begins, Reducer::kOr, {1}), {1}, {n}, {1}), 1, {1}, {0}, {0});
  const Value upto = Call(b, kOp_cumsum, {Convert(b, begins, DType::kI32)}, {int64_t{0}, int64_t{0}});
  const Value slots = Add(b, upto, -1);
  if (!slots) return b.status();
  results[1] = Reshape(b, Slice(b, upto, {n - 1}, {n}, {1}), {});
  results[2] = Reshape(b, slots, of.inverse);
  results[3] = PutAt(b, slots, FullLike(b, slots, 1), size, 0, /*add=*/true);
  const Value first = Select(b, begins, slots, FullLike(b, slots, static_cast<double>(size)));
  const Value at = PutAt(b, first, Iota(b, DType::kI32, {n}, 0), size, -1);
  const Value there = Compare(b, Direction::kGe, at, 0);
  results[0] = WhereThere(b, there, Call(b, kOp_take, {x, at}, {of.axis}), of.axis, fill);
  return b.status();
}

constexpr Sample kSamples[] = {
    {"f32[7] size=9"},        {"i8[4,6]<-1:2> size=30"}, {"bool[9] size=5"},           {"bf16[3,4] size=3 fill=1"},
    {"f32[0] size=2"},        {"i64[]<0:9> size=1"},     {"f32[2,5,2] size=6 axis=1"}, {"bool[9,2] size=5 axis=0"},
    {"i8[3,0] size=2 axis=1"}};

}  // namespace

constinit const OpDef kOp_unique_consecutive_static = Formula({
    .name = "weft.unique_consecutive_static",
    .c_name = "unique_consecutive_static",
    .doc =
        "The first element of each run of equal ones of x, read as a row, as one dimension of the given size; behind the last one "
        "stands fill. count says how many there are, those without room included; inverse, of x's shape, in which run each "
        "element is; counts how long each run is, and 0 behind the last. NaN equals nothing. Never waits; the gradient of a value "
        "goes to the first element of its run. With an axis, slices along it take the elements' place, and inverse is a row.",
    .example = "values = wf_unique_consecutive_static(s, labels, 10);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = kExact,
    .rounds_once = true,
});

}  // namespace weft::ops
