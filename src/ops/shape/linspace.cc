// arange, linspace: numbers at equal distances.
#include <algorithm>
#include <cmath>

#include "src/ops/complex.h"
#include "src/ops/shape/number.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kRangeAttrs[] = {{"start", AttrType::kDouble, "the first number", true},
                                   {"stop", AttrType::kDouble, "where it ends, not itself a member", true},
                                   {"step", AttrType::kDouble, "from one number to the next, not 0", false, "1"},
                                   {"dtype", AttrType::kDType, "element type", false, "f32"}};
constexpr AttrDef kSpaceAttrs[] = {
    {"start", AttrType::kDouble, "the first number", true},
    {"stop", AttrType::kDouble, "the last number", true},
    {"count", AttrType::kInt, "how many", true},
    {"endpoint", AttrType::kBool, "stop is the last one; else what would come next", false, "true"},
    {"dtype", AttrType::kDType, "element type, a float or complex", false, "f32"},
    {"start_imaginary", AttrType::kDouble, "imaginary part of the first number", false, "0"},
    {"stop_imaginary", AttrType::kDouble, "imaginary part of the last number", false, "0"}};

absl::StatusOr<int64_t> LengthOf(const Attrs& a) {
  const double start = Attr<kRangeAttrs, "start">(a), stop = Attr<kRangeAttrs, "stop">(a),
               step = Attr<kRangeAttrs, "step">(a);
  const double length = std::ceil((stop - start) / step);
  if (step == 0 || !std::isfinite(start) || !std::isfinite(stop) || !std::isfinite(length) || length > 9e15)
    return UserError("from ", start, " to ", stop, " by ", step, " there is no finite number of steps");
  return length > 0 ? static_cast<int64_t>(length) : 0;
}

absl::Status InferRange(const InferCall& call, Types* results) {
  const DType dtype = Attr<kRangeAttrs, "dtype">(call.attrs);
  if (!Contains(kNumber, dtype)) return UserError("dtype ", NameOf(dtype), " is not a number's");
  WEFT_ASSIGN_OR_RETURN(const int64_t length, LengthOf(call.attrs));
  const double start = Attr<kRangeAttrs, "start">(call.attrs), step = Attr<kRangeAttrs, "step">(call.attrs);
  if (length > 0) {
    WEFT_RETURN_IF_ERROR(CheckNumber("start", start, dtype));
    WEFT_RETURN_IF_ERROR(CheckNumber("the last number", start + static_cast<double>(length - 1) * step, dtype));
  }
  results->push_back(Type::Tensor(dtype, {length}));
  return absl::OkStatus();
}

// In f64, rounded once.
Value Line(Builder& b, int64_t count, double start, double step) {
  return Add(b, Mul(b, Iota(b, DType::kF64, {count}, 0), step), start);
}

absl::Status ExpandRange(const ExpandCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const int64_t length, LengthOf(call.attrs));
  const double start = Attr<kRangeAttrs, "start">(call.attrs), step = Attr<kRangeAttrs, "step">(call.attrs);
  results[0] = Convert(call.b, Line(call.b, length, start, step), Attr<kRangeAttrs, "dtype">(call.attrs));
  return absl::OkStatus();
}

absl::Status InferSpace(const InferCall& call, Types* results) {
  const DType dtype = Attr<kSpaceAttrs, "dtype">(call.attrs);
  const int64_t count = Attr<kSpaceAttrs, "count">(call.attrs);
  if (!Contains(kF | kC, dtype)) {
    return UserError("dtype ", NameOf(dtype), " is not a float; f16, bf16, f32, f64, c64 and c128 are");
  }
  for (const size_t i :
       {AttrPosition<kSpaceAttrs, "start_imaginary">(), AttrPosition<kSpaceAttrs, "stop_imaginary">()}) {
    WEFT_RETURN_IF_ERROR(CheckImaginary(kSpaceAttrs[i].name, call.attrs.Double(i), dtype));
  }
  if (count < 0) return UserError("count is ", count, "; it must not be negative");
  results->push_back(Type::Tensor(dtype, {count}));
  return absl::OkStatus();
}

// The last one is `stop` itself where it is a member.
Value Space(Builder& b, const Attrs& attrs, double start, double stop) {
  const int64_t count = Attr<kSpaceAttrs, "count">(attrs);
  const bool ends = Attr<kSpaceAttrs, "endpoint">(attrs) != 0;
  const int64_t steps = std::max<int64_t>(ends ? count - 1 : count, 1);
  Value y = Line(b, count, start, (stop - start) / static_cast<double>(steps));
  if (ends && count > 1) {
    const Value last = Compare(b, Direction::kEq, Iota(b, DType::kI64, {count}, 0), static_cast<double>(count - 1));
    y = Select(b, last, FullLike(b, y, stop), y);
  }
  return y;
}

absl::Status ExpandSpace(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Attrs& attrs = call.attrs;
  const DType dtype = Attr<kSpaceAttrs, "dtype">(attrs);
  const double start = Attr<kSpaceAttrs, "start_imaginary">(attrs), stop = Attr<kSpaceAttrs, "stop_imaginary">(attrs);
  const Value y = Space(b, attrs, Attr<kSpaceAttrs, "start">(attrs), Attr<kSpaceAttrs, "stop">(attrs));
  if (start == 0 && stop == 0) {
    results[0] = Convert(b, y, dtype);
    return absl::OkStatus();
  }
  const Value imaginary = Space(b, attrs, start, stop);
  results[0] = ComplexFrom(b, {Convert(b, y, PartOf(dtype)), Convert(b, imaginary, PartOf(dtype))});
  return absl::OkStatus();
}

constexpr Sample kRangeSamples[] = {{"start=0 stop=5"},
                                    {"start=5 stop=-4.5 step=-2 dtype=f64"},
                                    {"start=1 stop=1"},
                                    {"start=-3 stop=9 step=4 dtype=i32"}};
constexpr Sample kSpaceSamples[] = {{"start=0 stop=1 count=5"},
                                    {"start=-1 stop=2 count=4 endpoint=false dtype=f64"},
                                    {"start=3 stop=9 count=1"},
                                    {"start=3 stop=9 count=0"},
                                    {"start=0 stop=1 count=3 dtype=c64 start_imaginary=-1"}};

}  // namespace

constinit const OpDef kOp_arange = {
    .name = "weft.arange",
    .c_name = "arange",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "The numbers start, start + step, … before stop. They are computed in f64 and rounded once, so integers are exact up to 2^53.",
    .example = "y = wf_arange(s, 0, 10, .step = 2, .dtype = WEFT_I32);",
    .attrs = kRangeAttrs,
    .results = kResult,
    .infer = InferRange,
    .expand = ExpandRange,
    .lowering = Lowering::kExpand,
    .samples = kRangeSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
};

constinit const OpDef kOp_linspace = {
    .name = "weft.linspace",
    .c_name = "linspace",
    .since = 1,
    .kind = Kind::kMacro,
    .doc = "So many numbers at equal distances from start to stop. They are computed in f64 and rounded once.",
    .example = "y = wf_linspace(s, 0, 1, 5);",
    .attrs = kSpaceAttrs,
    .results = kResult,
    .infer = InferSpace,
    .expand = ExpandSpace,
    .lowering = Lowering::kExpand,
    .samples = kSpaceSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
