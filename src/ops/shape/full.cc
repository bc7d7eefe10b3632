// full: one fixed number everywhere.
#include <cmath>

#include "src/ops/shape/number.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAttrs[] = {
    {"shape", AttrType::kInts, "result shape", true},
    {"value", AttrType::kDouble, "the number", true},
    {"dtype", AttrType::kDType, "element type", false, "f32"},
    {"integer", AttrType::kInt,
     "the number exactly, where a double cannot hold it; value is then 0. For u64 its 64 bits: -1 is the largest"},
    {"imaginary", AttrType::kDouble, "the imaginary part, of a complex dtype", false, "0"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const DType dtype = Attr<kAttrs, "dtype">(call.attrs);
  if (!Contains(kEveryType, dtype))
    return UserError("dtype ", NameOf(dtype), " cannot be computed with in this version");
  const double value = Attr<kAttrs, "value">(call.attrs);
  if (HasAttr<kAttrs, "integer">(call.attrs)) {
    const int64_t integer = Attr<kAttrs, "integer">(call.attrs);
    if (IsFloat(dtype) || IsComplex(dtype))
      return UserError("integer is given and dtype is ", NameOf(dtype), "; floats and complex numbers take value");
    if (value != 0)
      return UserError("both integer (", integer, ") and value (", value, ") are given; value must then be 0");
    HostTensor stored(dtype, {});
    stored.SetInt(0, integer);
    if (stored.GetInt(0) != integer) return UserError("integer ", integer, " does not fit ", NameOf(dtype));
  } else {
    WEFT_RETURN_IF_ERROR(CheckNumber("value", value, dtype));
  }
  WEFT_RETURN_IF_ERROR(CheckImaginary("imaginary", Attr<kAttrs, "imaginary">(call.attrs), dtype));
  results->push_back(Type::Tensor(dtype, ToDims(Attr<kAttrs, "shape">(call.attrs))));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  if (HasAttr<kAttrs, "integer">(call.attrs)) {
    HostTensor number(Attr<kAttrs, "dtype">(call.attrs), {});
    number.SetInt(0, Attr<kAttrs, "integer">(call.attrs));
    results[0] =
        BroadcastInDim(call.b, Constant(call.b, std::move(number)), ToDims(Attr<kAttrs, "shape">(call.attrs)), {});
    return absl::OkStatus();
  }
  if (const double imaginary = Attr<kAttrs, "imaginary">(call.attrs); imaginary != 0) {
    HostTensor number(Attr<kAttrs, "dtype">(call.attrs), {}), part(PartOf(number.dtype()), {});
    for (const int i : {0, 1}) {
      part.SetDouble(0, i == 0 ? Attr<kAttrs, "value">(call.attrs) : imaginary);
      number.SetPart(i, part);
    }
    results[0] =
        BroadcastInDim(call.b, Constant(call.b, std::move(number)), ToDims(Attr<kAttrs, "shape">(call.attrs)), {});
    return absl::OkStatus();
  }
  results[0] = Full(call.b, Attr<kAttrs, "dtype">(call.attrs), ToDims(Attr<kAttrs, "shape">(call.attrs)),
                    Attr<kAttrs, "value">(call.attrs));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"shape=[2,3] value=1.5"},
                               {"shape=[] value=-1 dtype=i32"},
                               {"shape=[0] value=1 dtype=bool"},
                               {"shape=[3] value=0 dtype=i64 integer=9007199254740993"},
                               {"shape=[3] value=0 dtype=u64 integer=-1"},
                               {"shape=[2] value=1 dtype=c64 imaginary=-2"}};

}  // namespace

absl::Status CheckNumber(std::string_view name, double value, DType dtype) {
  if (IsFloat(dtype) || IsComplex(dtype)) return absl::OkStatus();
  if (!std::isfinite(value) || value != std::trunc(value)) {
    return UserError(name, " ", value, " is not a whole number and dtype is ", NameOf(dtype));
  }
  // [-2^(b-1), 2^(b-1)) or [0, 2^b): the ends are exact as doubles, also for 64 bits.
  const int bits = IsBool(dtype) ? 1 : BitsOf(dtype);
  const bool has_sign = IsSigned(dtype) && !IsBool(dtype);
  const double low = has_sign ? -std::ldexp(1.0, bits - 1) : 0, end = std::ldexp(1.0, has_sign ? bits - 1 : bits);
  if (value < low || value >= end) return UserError(name, " ", value, " does not fit ", NameOf(dtype));
  return absl::OkStatus();
}

absl::Status CheckImaginary(std::string_view name, double imaginary, DType dtype) {
  if (imaginary == 0 || IsComplex(dtype)) return absl::OkStatus();
  return UserError(name, " is ", imaginary, " and dtype is ", NameOf(dtype), ", which has no imaginary part");
}

constinit const OpDef kOp_full = {
    .name = "weft.full",
    .c_name = "full",
    .kind = Kind::kMacro,
    .doc =
        "A tensor filled with one number that is part of the program (a change compiles anew). A number that changes "
        "from step to step belongs into a scalar tensor.",
    .example = "x = wf_full(s, WF_INTS(2, 3), 0.5);",
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
