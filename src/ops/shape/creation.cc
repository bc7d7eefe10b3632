// eye, logspace, tril_indices, triu_indices, window: tensors that a few numbers describe.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr int64_t kMost = int64_t{1} << 40;

absl::Status CheckSize(std::string_view name, int64_t value) {
  if (value >= 0 && value <= kMost) return absl::OkStatus();
  return UserError(name, " is ", value, "; it must be 0 to 2^40");
}
absl::Status CheckOffset(int64_t offset) {
  if (offset >= -kMost && offset <= kMost) return absl::OkStatus();
  return UserError("offset is ", offset, "; it must be within 2^40");
}

// --- eye

constexpr AttrDef kEyeAttrs[] = {
    {"rows", AttrType::kInt, "how many", true},
    {"columns", AttrType::kInt, "how many; absent: as many as rows"},
    {"offset", AttrType::kInt, "diagonal of the ones; those above the main one count up", false, "0"},
    {"dtype", AttrType::kDType, "element type", false, "f32"}};

absl::Status InferEye(const InferCall& call, Types* results) {
  const int64_t rows = Attr<kEyeAttrs, "rows">(call.attrs);
  const int64_t columns = HasAttr<kEyeAttrs, "columns">(call.attrs) ? Attr<kEyeAttrs, "columns">(call.attrs) : rows;
  WEFT_RETURN_IF_ERROR(CheckSize("rows", rows));
  WEFT_RETURN_IF_ERROR(CheckSize("columns", columns));
  WEFT_RETURN_IF_ERROR(CheckOffset(Attr<kEyeAttrs, "offset">(call.attrs)));
  const DType dtype = Attr<kEyeAttrs, "dtype">(call.attrs);
  if (!Contains(kEveryType, dtype))
    return UserError("dtype ", NameOf(dtype), " cannot be computed with in this version");
  results->push_back(Type::Tensor(dtype, {rows, columns}));
  return absl::OkStatus();
}
absl::Status ExpandEye(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const int64_t rows = Attr<kEyeAttrs, "rows">(call.attrs);
  const int64_t columns = HasAttr<kEyeAttrs, "columns">(call.attrs) ? Attr<kEyeAttrs, "columns">(call.attrs) : rows;
  const Dims dims = {rows, columns};
  const double offset = static_cast<double>(Attr<kEyeAttrs, "offset">(call.attrs));
  const Value row = Add(b, Iota(b, DType::kI64, dims, 0), offset);
  const Value one = Compare(b, Direction::kEq, row, Iota(b, DType::kI64, dims, 1));
  const DType dtype = Attr<kEyeAttrs, "dtype">(call.attrs);
  results[0] = IsComplex(dtype) ? Convert(b, Convert(b, one, PartOf(dtype)), dtype) : Convert(b, one, dtype);
  return b.status();
}

// --- logspace

constexpr AttrDef kSpaceAttrs[] = {{"start", AttrType::kDouble, "exponent of the first number", true},
                                   {"stop", AttrType::kDouble, "exponent of the last number", true},
                                   {"count", AttrType::kInt, "how many", true},
                                   {"base", AttrType::kDouble, "what is raised to the exponents", false, "10"},
                                   {"dtype", AttrType::kDType, "element type, a float", false, "f32"}};

absl::Status InferSpace(const InferCall& call, Types* results) {
  const DType dtype = Attr<kSpaceAttrs, "dtype">(call.attrs);
  const int64_t count = Attr<kSpaceAttrs, "count">(call.attrs);
  if (!Contains(kF, dtype)) return UserError("dtype ", NameOf(dtype), " is not a float; f16, bf16, f32 and f64 are");
  WEFT_RETURN_IF_ERROR(CheckSize("count", count));
  results->push_back(Type::Tensor(dtype, {count}));
  return absl::OkStatus();
}
absl::Status ExpandSpace(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value line = Call(b, kOp_linspace, {},
                          {Attr<kSpaceAttrs, "start">(call.attrs), Attr<kSpaceAttrs, "stop">(call.attrs),
                           Attr<kSpaceAttrs, "count">(call.attrs), int64_t{1}, DType::kF64});
  if (!line) return b.status();
  const Value power = Call(b, kOp_pow, {FullLike(b, line, Attr<kSpaceAttrs, "base">(call.attrs)), line});
  results[0] = Convert(b, power, Attr<kSpaceAttrs, "dtype">(call.attrs));
  return b.status();
}

// --- tril_indices, triu_indices

constexpr AttrDef kTriangleAttrs[] = {
    {"rows", AttrType::kInt, "of the matrix", true},
    {"columns", AttrType::kInt, "of the matrix", true},
    {"offset", AttrType::kInt, "the last, or first, diagonal that belongs to it", false, "0"},
    {"dtype", AttrType::kDType, "i32 or i64", false, "i32"}};

// The columns of one row that belong to the triangle.
struct RowPart {
  int64_t first, count;
};
RowPart PartOfRow(const Attrs& attrs, bool upper, int64_t row) {
  const int64_t columns = Attr<kTriangleAttrs, "columns">(attrs);
  const int64_t at = std::clamp<int64_t>(row + Attr<kTriangleAttrs, "offset">(attrs) + (upper ? 0 : 1), 0, columns);
  return upper ? RowPart{at, columns - at} : RowPart{0, at};
}
int64_t CountOf(const Attrs& attrs, bool upper) {
  int64_t count = 0;
  for (int64_t row = 0; row < Attr<kTriangleAttrs, "rows">(attrs) && count <= INT32_MAX; ++row) {
    count += PartOfRow(attrs, upper, row).count;
  }
  return count;
}

template <bool upper>
absl::Status InferTriangle(const InferCall& call, Types* results) {
  const DType dtype = Attr<kTriangleAttrs, "dtype">(call.attrs);
  if (dtype != DType::kI32 && dtype != DType::kI64)
    return UserError("dtype is ", NameOf(dtype), "; it must be i32 or i64");
  for (const auto& [name, value] : {std::pair("rows", Attr<kTriangleAttrs, "rows">(call.attrs)),
                                    std::pair("columns", Attr<kTriangleAttrs, "columns">(call.attrs))}) {
    if (value < 0 || value > int64_t{1} << 24) return UserError(name, " is ", value, "; it must be 0 to 2^24");
  }
  WEFT_RETURN_IF_ERROR(CheckOffset(Attr<kTriangleAttrs, "offset">(call.attrs)));
  const int64_t count = CountOf(call.attrs, upper);
  if (count > INT32_MAX) return UserError("the triangle has more than 2^31 - 1 elements");
  results->push_back(Type::Tensor(dtype, {2, count}));
  return absl::OkStatus();
}

// By the number of each element: its row is the one whose part it falls into.
template <bool upper>
absl::Status ExpandTriangle(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const int64_t rows = Attr<kTriangleAttrs, "rows">(call.attrs), count = CountOf(call.attrs, upper);
  const DType dtype = Attr<kTriangleAttrs, "dtype">(call.attrs);
  if (count == 0) {
    results[0] = Full(b, dtype, {2, 0}, 0);
    return b.status();
  }
  HostTensor ends(DType::kI32, {rows}), starts(DType::kI32, {rows});
  int64_t end = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const RowPart part = PartOfRow(call.attrs, upper, row);
    starts.SetInt(row, end - part.first);  // from an element's number to its column
    end += part.count;
    ends.SetInt(row, end);
  }
  const Value number = Iota(b, DType::kI32, {count}, 0);
  const Value row = Call(b, kOp_searchsorted, {Constant(b, std::move(ends)), number}, {int64_t{1}});
  const Value column = Sub(b, number, Call(b, kOp_take, {Constant(b, std::move(starts)), row}, {int64_t{0}}));
  results[0] = Convert(b, Call(b, kOp_stack, {row, column}, {int64_t{0}}), dtype);
  return b.status();
}

// --- window

constexpr std::string_view kForms[] = {"hann",   "hamming",  "blackman",    "nuttall", "bartlett",
                                       "cosine", "gaussian", "exponential", "kaiser",  "general_cosine"};
enum class Form : int64_t {
  kHann,
  kHamming,
  kBlackman,
  kNuttall,
  kBartlett,
  kCosine,
  kGaussian,
  kExponential,
  kKaiser,
  kGeneralCosine
};
constexpr AttrDef kWindowAttrs[] = {
    {"count", AttrType::kInt, "how many numbers", true},
    {"form", AttrType::kEnum, "which window", false, "hann", kForms},
    {"periodic", AttrType::kBool, "without the last number of a symmetric window of one more; else symmetric", false,
     "true"},
    {"parameter", AttrType::kDouble,
     "of gaussian the deviation, of exponential the decay, both above 0 and in steps (absent: 1), of kaiser beta (absent: 12)"},
    {"coefficients", AttrType::kDoubles, "of general_cosine: of cos(0), -cos(x), cos(2 x), …"},
    {"dtype", AttrType::kDType, "element type, a float", false, "f32"}};

Form FormOf(const Attrs& attrs) { return static_cast<Form>(Attr<kWindowAttrs, "form">(attrs)); }
double ParameterOf(const Attrs& attrs) {
  if (HasAttr<kWindowAttrs, "parameter">(attrs)) return Attr<kWindowAttrs, "parameter">(attrs);
  return FormOf(attrs) == Form::kKaiser ? 12 : 1;
}
std::vector<double> CosinesOf(const Attrs& attrs) {
  switch (FormOf(attrs)) {
    case Form::kHann: return {0.5, 0.5};
    case Form::kHamming: return {0.54, 0.46};
    case Form::kBlackman: return {0.42, 0.5, 0.08};
    case Form::kNuttall: return {0.3635819, 0.4891775, 0.1365995, 0.0106411};
    case Form::kGeneralCosine: return Attr<kWindowAttrs, "coefficients">(attrs);
    default: return {};
  }
}

absl::Status InferWindow(const InferCall& call, Types* results) {
  const DType dtype = Attr<kWindowAttrs, "dtype">(call.attrs);
  if (!Contains(kF, dtype)) return UserError("dtype ", NameOf(dtype), " is not a float; f16, bf16, f32 and f64 are");
  WEFT_RETURN_IF_ERROR(CheckSize("count", Attr<kWindowAttrs, "count">(call.attrs)));
  const Form form = FormOf(call.attrs);
  const bool cosines = form == Form::kGeneralCosine;
  if (cosines != HasAttr<kWindowAttrs, "coefficients">(call.attrs)) {
    return UserError("coefficients are those of form general_cosine, which needs them");
  }
  if (cosines && Attr<kWindowAttrs, "coefficients">(call.attrs).empty()) {
    return UserError("coefficients are empty; general_cosine needs at least one");
  }
  const double parameter = ParameterOf(call.attrs);
  const bool any = form == Form::kKaiser && std::isfinite(parameter);
  if (!any && !(parameter > 0 && std::isfinite(parameter))) {
    return UserError("parameter is ", parameter, "; it must be finite, and above 0 unless it is kaiser's beta");
  }
  results->push_back(Type::Tensor(dtype, {Attr<kWindowAttrs, "count">(call.attrs)}));
  return absl::OkStatus();
}

// The window at its steps 0, 1, …, of which `last` is the one that is as the first.
Value WindowAt(Builder& b, const Attrs& attrs, const Value& step, double last) {
  const double parameter = ParameterOf(attrs);
  const Value side = Add(b, Mul(b, step, 2 / last), -1);  // from -1 to 1
  switch (FormOf(attrs)) {
    case Form::kBartlett: return Sub(b, 1, Abs(b, side));
    case Form::kCosine: return Unary(b, kOp_sin, Mul(b, Add(b, step, 0.5), std::numbers::pi / (last + 1)));
    case Form::kGaussian: return Exp(b, Mul(b, Square(b, Mul(b, Add(b, step, -last / 2), 1 / parameter)), -0.5));
    case Form::kExponential: return Exp(b, Mul(b, Abs(b, Add(b, step, -last / 2)), -1 / parameter));
    case Form::kKaiser: {
      const Value height = Maximum(b, Sub(b, 1, Square(b, side)), FullLike(b, side, 0));
      const Value top = Unary(b, kOp_bessel_i0, Mul(b, Sqrt(b, height), parameter));
      return Div(b, top, Unary(b, kOp_bessel_i0, FullLike(b, side, parameter)));
    }
    default: break;
  }
  Value sum = FullLike(b, step, 0);
  double sign = 1;
  const std::vector<double> cosines = CosinesOf(attrs);
  for (size_t i = 0; i < cosines.size(); ++i, sign = -sign) {
    const double turn = 2 * std::numbers::pi * static_cast<double>(i) / last;
    sum = Add(b, sum, Mul(b, Unary(b, kOp_cos, Mul(b, step, turn)), sign * cosines[i]));
  }
  return sum;
}

absl::Status ExpandWindow(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const int64_t count = Attr<kWindowAttrs, "count">(call.attrs);
  const DType dtype = Attr<kWindowAttrs, "dtype">(call.attrs);
  if (count < 2) {
    results[0] = Full(b, dtype, {count}, 1);
    return b.status();
  }
  const bool periodic = Attr<kWindowAttrs, "periodic">(call.attrs);
  const Value step = Iota(b, DType::kF64, {count}, 0);
  results[0] = Convert(b, WindowAt(b, call.attrs, step, static_cast<double>(periodic ? count : count - 1)), dtype);
  return b.status();
}

constexpr Sample kEyes[] = {{"rows=3"},
                            {"rows=2 columns=4 offset=1 dtype=i32"},
                            {"rows=4 columns=2 offset=-1 dtype=c64"},
                            {"rows=0 dtype=bool"}};
constexpr Sample kSpaces[] = {
    {"start=0 stop=2 count=5"}, {"start=-3 stop=3 count=4 base=2 dtype=f64"}, {"start=1 stop=2 count=0"}};
constexpr Sample kTriangles[] = {{"rows=3 columns=4"},
                                 {"rows=4 columns=3 offset=-1 dtype=i64"},
                                 {"rows=5 columns=2 offset=2"},
                                 {"rows=0 columns=4"}};
constexpr Sample kWindows[] = {{"count=9"},
                               {"count=8 form=kaiser periodic=false dtype=f64"},
                               {"count=7 form=gaussian parameter=2"},
                               {"count=6 form=nuttall"},
                               {"count=7 form=general_cosine coefficients=[0.5,0.25,0.25]"},
                               {"count=1 form=bartlett"},
                               {"count=0 form=cosine"}};
constexpr Tolerance kTolerance = {.f32 = 4e-7, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-7};

consteval OpDef Created(OpDef named) {
  named.since = 2;
  named.kind = Kind::kMacro;
  named.results = kResult;
  named.lowering = Lowering::kExpand;
  named.absent = kMacroNoGradient;
  named.rounds_once = true;
  return named;
}

}  // namespace

constinit const OpDef kOp_eye = Created({
    .name = "weft.eye",
    .c_name = "eye",
    .doc = "A matrix with ones on one diagonal and zeros elsewhere.",
    .example = "x = wf_eye(s, 3);",
    .attrs = kEyeAttrs,
    .infer = InferEye,
    .expand = ExpandEye,
    .samples = kEyes,
    .tolerance = kExact,
});
constinit const OpDef kOp_logspace = Created({
    .name = "weft.logspace",
    .c_name = "logspace",
    .doc =
        "So many powers of a base whose exponents lie at equal distances. They are computed in f64 and rounded once.",
    .example = "x = wf_logspace(s, -3, 0, 4);",
    .attrs = kSpaceAttrs,
    .infer = InferSpace,
    .expand = ExpandSpace,
    .samples = kSpaces,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_tril_indices = Created({
    .name = "weft.tril_indices",
    .c_name = "tril_indices",
    .doc = "The places of a matrix on and below a diagonal, row by row: [2, n], rows and then columns.",
    .example = "at = wf_tril_indices(s, 3, 3);",
    .attrs = kTriangleAttrs,
    .infer = InferTriangle<false>,
    .expand = ExpandTriangle<false>,
    .samples = kTriangles,
    .tolerance = kExact,
});
constinit const OpDef kOp_triu_indices = Created({
    .name = "weft.triu_indices",
    .c_name = "triu_indices",
    .doc = "The places of a matrix on and above a diagonal, row by row: [2, n], rows and then columns.",
    .example = "at = wf_triu_indices(s, 3, 3);",
    .attrs = kTriangleAttrs,
    .infer = InferTriangle<true>,
    .expand = ExpandTriangle<true>,
    .samples = kTriangles,
    .tolerance = kExact,
});
constinit const OpDef kOp_window = Created({
    .name = "weft.window",
    .c_name = "window",
    .doc =
        "A window for spectra: hann, hamming, blackman, nuttall and general_cosine are sums of cosines, bartlett a "
        "triangle, cosine half a wave, gaussian, exponential and kaiser have a parameter. Of one number it is 1. They are "
        "computed in f64 and rounded once.",
    .example = "w = wf_window(s, 400, .form = WEFT_WINDOW_FORM_HANN);",
    .attrs = kWindowAttrs,
    .infer = InferWindow,
    .expand = ExpandWindow,
    .samples = kWindows,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
