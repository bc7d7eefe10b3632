// unique_static: the different elements of a tensor in ascending order, in a result of a given size.
#include "src/ops/shape/number.h"
#include "src/ops/sizes/places.h"
#include "src/ops/sort/order.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kAnyType, "operand"}};
constexpr AttrDef kAttrs[] = {
    kSizeAttr,
    {"fill", AttrType::kDouble, "what stands behind the last value, a number of x's type", false, "0"},
    {"equal_nan", AttrType::kBool, "all NaN are one value, as in NumPy; else each is one of its own, as in PyTorch",
     false, "true"},
    kSlicesAttr};
constexpr std::string_view kResults[] = {"values", "count", "inverse", "counts", "indices"};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckSize(call.attrs, AttrPosition<kAttrs, "size">()));
  WEFT_RETURN_IF_ERROR(CheckPlaces("x", x));
  WEFT_RETURN_IF_ERROR(CheckNumber("fill", Attr<kAttrs, "fill">(call.attrs), x.dtype));
  const Type per_value = Type::Tensor(DType::kI32, {Attr<kAttrs, "size">(call.attrs)});
  WEFT_ASSIGN_OR_RETURN(const Uniques of, UniquesOf(call.attrs, AttrPosition<kAttrs, "axis">(), x.dims));
  results->push_back(Type::Tensor(x.dtype, of.Values(per_value.dims[0])));
  results->push_back(Type::Scalar(DType::kI32));
  results->push_back(Type::Tensor(DType::kI32, of.inverse));
  results->push_back(per_value);
  results->push_back(per_value);
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Dims dims = call.operands[0].dims();
  const int64_t size = Attr<kAttrs, "size">(call.attrs);
  const double fill = Attr<kAttrs, "fill">(call.attrs);
  const bool equal_nan = Attr<kAttrs, "equal_nan">(call.attrs);
  WEFT_ASSIGN_OR_RETURN(const Uniques of, UniquesOf(call.attrs, AttrPosition<kAttrs, "axis">(), dims));
  const int64_t n = of.shape[of.axis];
  const Value x = Reshape(b, call.operands[0], of.shape);
  if (n == 0) {
    results[0] = of.Nothing(b, x, size, fill);
    results[1] = Scalar(b, DType::kI32, 0);
    results[2] = Full(b, DType::kI32, of.inverse, 0);
    results[3] = Full(b, DType::kI32, {size}, 0);
    results[4] = Full(b, DType::kI32, {size}, -1);
    return absl::OkStatus();
  }
  const Value key = of.slices ? RowRanks(b, SliceRows(b, x, of.axis), equal_nan) : Call(b, kOp_stop_gradient, {x});
  // Stable: the first of equal elements is the one that stands first in x.
  const Values sorted = SortByFirst(b, {key, Iota(b, DType::kI32, {n}, 0)}, 0, false);
  if (!b.ok()) return b.status();
  const Value begins = Begins(b, sorted[0], equal_nan);
  const Value upto = Call(b, kOp_cumsum, {Convert(b, begins, DType::kI32)}, {int64_t{0}, int64_t{0}});
  const Value slots = Add(b, upto, -1);
  results[1] = Reshape(b, Slice(b, upto, {n - 1}, {n}, {1}), {});
  results[2] = Reshape(b, PutAt(b, sorted[1], slots, n, 0), of.inverse);
  results[3] = PutAt(b, slots, FullLike(b, slots, 1), size, 0, /*add=*/true);
  const Value first = Select(b, begins, slots, FullLike(b, slots, static_cast<double>(size)));
  results[4] = PutAt(b, first, sorted[1], size, -1);
  const Value there = Compare(b, Direction::kGe, results[4], 0);
  results[0] = WhereThere(b, there, Call(b, kOp_take, {x, results[4]}, {of.axis}), of.axis, fill);
  return b.status();
}

// Values far apart, so that no difference changes their order.
constexpr Sample kSamples[] = {{"T[7] size=9"},
                               {"T[3,5] size=4 fill=1"},
                               {"i8[4,6]<-3:4> size=7"},
                               {"bool[5] size=2"},
                               {"i32[300]<0:50> size=60"},
                               {"T[] size=1"},
                               {"T[0,3] size=2 fill=1"},
                               {"T[4] size=0"},
                               {"f32[9] size=9 equal_nan=false"},
                               {"T[2,5,3] size=6 axis=1"},
                               {"i8[40,3]<0:3> size=30 axis=0"},
                               {"bool[2,9] size=3 axis=-1"},
                               {"T[3,0] size=2 fill=1 axis=1"}};

}  // namespace

constinit const OpDef kOp_unique_static = {
    .name = "weft.unique_static",
    .c_name = "unique_static",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "The different elements of x in ascending order, as one dimension of the given size; behind the last one stands fill. "
        "count says how many there are, those without room included. inverse, of x's shape, is where in the values each element "
        "is; counts is how often each value is there, and 0 behind the last; indices is where in x, counted in row-major order, it "
        "stands first, and -1 behind the last. With an axis, slices along it take the elements' place: values has the size along the axis, "
        "in lexicographic order, inverse is a row. 0 and -0 are one value, NaN comes last. Never waits; the gradient of a value goes to "
        "the element that stands first. JAX's unique with a size. See weft_unique for as many values as there are.",
    .example = "values = wf_unique_static(s, labels, 10);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
