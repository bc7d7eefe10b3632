// stft and istft: spectra of windows one behind the other, and what they came from.
#include "src/ops/conv/window.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/linalg/triangles.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kPads[] = {"reflect", "constant", "replicate", "circular"};
enum : int64_t { kReflect, kConstant, kReplicate, kCircular };
constexpr AttrDef kSize = {"size", AttrType::kInt, "elements of a transform, at least 1", true};
constexpr AttrDef kHop = {"hop", AttrType::kInt, "from one window to the next, at least 1; absent: a quarter of size"};
constexpr AttrDef kCenter = {"center", AttrType::kBool, "windows are around their places; else they begin there", false,
                             "true"};
constexpr AttrDef kNormalized = {"normalized", AttrType::kBool, "spectra are divided by the root of size", false,
                                 "false"};
constexpr AttrDef kOneSided = {"onesided", AttrType::kBool, "the first half of what real numbers have", false, "true"};
constexpr AttrDef kStftAttrs[] = {
    kSize,       kHop,
    kCenter,     {"pad", AttrType::kEnum, "what is around x, where windows are centered", false, "reflect", kPads},
    kNormalized, kOneSided};
constexpr AttrDef kIstftAttrs[] = {
    kSize,
    kHop,
    kCenter,
    kNormalized,
    kOneSided,
    {"length", AttrType::kInt, "of the result, at least 0, filled up with zeros; absent: what the windows cover"}};
constexpr OperandDef kSignal[] = {{"x", kF | kC, "[..., samples]"},
                                  {"window", kF | kC, "[at most size], in x's type; absent: ones", true}};
constexpr OperandDef kSpectra[] = {{"x", kC, "[..., bins, frames], as stft gives it"},
                                   {"window", kF | kC, "stft's, in the result's type; absent: ones", true, false, 'W'}};

absl::StatusOr<int64_t> HopOf(const Attrs& attrs) {
  const int64_t size = Attr<kStftAttrs, "size">(attrs);
  if (size < 1 || size > (int64_t{1} << 24)) return UserError("size is ", size, "; it must be 1 to 2^24");
  const int64_t hop =
      HasAttr<kStftAttrs, "hop">(attrs) ? Attr<kStftAttrs, "hop">(attrs) : std::max<int64_t>(1, size / 4);
  if (hop < 1 || hop > INT32_MAX) return UserError("hop is ", hop, "; it must be 1 to 2^31 - 1");
  return hop;
}
absl::Status CheckTaper(const Type* window, int64_t size) {
  if (window == nullptr || (window->rank() == 1 && window->dims[0] >= 1 && window->dims[0] <= size)) {
    return absl::OkStatus();
  }
  return UserError("window is ", ShortType(*window), "; a row of 1 to ", size, " numbers is needed");
}
// The window in the middle of `size` elements, in a type.
Value Taper(Builder& b, const Value& window, int64_t size, DType dtype) {
  const int64_t rest = size - window.dims()[0];
  const Value wide = Pad(b, window, 0, {rest / 2}, {rest - rest / 2}, {0});
  return wide && wide.dtype() != dtype ? Convert(b, wide, dtype) : wide;
}

absl::StatusOr<Dims> StftDims(const InferCall& call) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t hop, HopOf(call.attrs));
  const int64_t size = Attr<kStftAttrs, "size">(call.attrs);
  const bool one = Attr<kStftAttrs, "onesided">(call.attrs), center = Attr<kStftAttrs, "center">(call.attrs);
  if (x.rank() == 0) return UserError("x must have shape [..., samples], not []");
  if (one && IsComplex(x.dtype)) return UserError("onesided goes with real numbers, not with ", NameOf(x.dtype));
  WEFT_RETURN_IF_ERROR(CheckTaper(call.operands[1], size));
  const int64_t samples = x.dims.back(), around = center ? size / 2 : 0, pad = Attr<kStftAttrs, "pad">(call.attrs);
  const int64_t most = pad == kReflect                   ? samples - 1
                       : pad == kCircular                ? samples
                       : pad == kConstant || samples > 0 ? around
                                                         : 0;
  if (around > most) {
    return UserError("x has ", samples, " samples; ", around, " on either side of them cannot be made by ", kPads[pad]);
  }
  const int64_t room = samples + 2 * around - size;
  if (room < 0)
    return UserError("x has ", samples, " samples; a transform needs ", size,
                     center ? ", less half of it on either side" : "");
  Dims dims(x.dims.begin(), x.dims.end() - 1), padded = dims, windows = dims;
  padded.push_back(samples + 2 * around);
  windows.insert(windows.end(), {room / hop + 1, size});
  dims.insert(dims.end(), {one ? size / 2 + 1 : size, room / hop + 1});
  for (const int64_t dim : padded) {
    if (dim > INT32_MAX) return UserError("a dimension of x would have ", dim, " elements; it has at most 2^31 - 1");
  }
  if (!CheckedCount(dims) || !CheckedCount(padded) || !CheckedCount(windows))
    return UserError("the spectra have too many elements");
  return dims;
}
absl::Status InferStft(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(Dims dims, StftDims(call));
  results->push_back(Type::Tensor(ComplexOf(PartOf(call.operands[0]->dtype)), std::move(dims)));
  return absl::OkStatus();
}
Value Around(Builder& b, const Value& x, int64_t count, int64_t pad) {
  Ints wide(x.dims().size(), 0);
  const Ints none = wide;
  wide.back() = count;
  if (pad == kConstant) return Pad(b, x, 0, wide, wide, none);
  return Call(b,
              pad == kReflect     ? kOp_pad_reflect
              : pad == kReplicate ? kOp_pad_replicate
                                  : kOp_pad_circular,
              {x}, {wide, wide});
}
absl::Status ExpandStft(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  Value x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t hop, HopOf(call.attrs));
  const int64_t size = Attr<kStftAttrs, "size">(call.attrs), last = static_cast<int64_t>(x.dims().size()) - 1;
  const bool one = Attr<kStftAttrs, "onesided">(call.attrs);
  if (Attr<kStftAttrs, "center">(call.attrs)) x = Around(b, x, size / 2, Attr<kStftAttrs, "pad">(call.attrs));
  Value y = Call(b, kOp_unfold, {x}, {size, hop, last});
  if (!y) return b.status();
  if (call.operands[1]) y = Mul(b, y, BroadcastTo(b, Taper(b, call.operands[1], size, y.dtype()), y.dims()));
  if (y && Attr<kStftAttrs, "normalized">(call.attrs)) y = Mul(b, y, 1 / std::sqrt(static_cast<double>(size)));
  if (!one && y && !IsComplex(y.dtype())) y = Convert(b, y, ComplexOf(y.dtype()));
  y = Call(b, kOp_fft, {y}, {int64_t{one ? 2 : 0}, Ints{size}});
  results[0] = y ? MatrixTranspose(b, y) : y;
  return b.status();
}

// How many elements the windows cover, which of them is the first of the result, and how many these are.
struct Covered {
  int64_t all, first, count;
};
absl::StatusOr<Covered> CoveredOf(const Attrs& attrs, const Dims& x) {
  WEFT_ASSIGN_OR_RETURN(const int64_t hop, HopOf(attrs));
  const int64_t size = Attr<kIstftAttrs, "size">(attrs), frames = x.back();
  const int64_t first = Attr<kIstftAttrs, "center">(attrs) ? size / 2 : 0;
  if (frames < 1 || frames > (INT32_MAX - size) / hop) {
    return UserError("x has ", frames, " frames; at least one is needed, and they cover at most 2^31 - 1 samples");
  }
  const int64_t all = size + hop * (frames - 1);
  if (!HasAttr<kIstftAttrs, "length">(attrs)) return Covered{all, first, std::max<int64_t>(0, all - 2 * first)};
  const int64_t length = Attr<kIstftAttrs, "length">(attrs);
  if (length < 0 || length > INT32_MAX) return UserError("length is ", length, "; it must be 0 to 2^31 - 1");
  return Covered{all, first, length};
}
absl::Status InferIstft(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() < 2) return UserError("x must have shape [..., bins, frames], not ", DimsToString(x.dims));
  WEFT_ASSIGN_OR_RETURN(const Covered covered, CoveredOf(call.attrs, x.dims));
  const int64_t size = Attr<kIstftAttrs, "size">(call.attrs), bins = x.dims[x.rank() - 2];
  const bool one = Attr<kIstftAttrs, "onesided">(call.attrs);
  if (bins != (one ? size / 2 + 1 : size)) {
    return UserError("x has ", bins, " bins; of size ", size, one ? " and one side" : " and both sides", " it has ",
                     one ? size / 2 + 1 : size);
  }
  WEFT_RETURN_IF_ERROR(CheckTaper(call.operands[1], size));
  const DType dtype = one ? PartOf(x.dtype) : x.dtype;
  if (call.operands[1] != nullptr && call.operands[1]->dtype != dtype) {
    return UserError("window is ", NameOf(call.operands[1]->dtype), "; the result is ", NameOf(dtype),
                     ", and the two must be equal");
  }
  Dims dims(x.dims.begin(), x.dims.end() - 2);
  dims.push_back(covered.count);
  if (!CheckedCount(dims)) return UserError("the result has too many elements");
  results->push_back(Type::Tensor(dtype, std::move(dims)));
  return absl::OkStatus();
}
// Windows are added up where they stand, and divided by the sum of the windows' squares there.
absl::Status ExpandIstft(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Covered covered, CoveredOf(call.attrs, x.dims()));
  WEFT_ASSIGN_OR_RETURN(const int64_t hop, HopOf(call.attrs));
  const int64_t size = Attr<kIstftAttrs, "size">(call.attrs), bins = x.dims()[x.dims().size() - 2],
                frames = x.dims().back();
  const Dims lead(x.dims().begin(), x.dims().end() - 2);
  const int64_t batches = CountOf(lead);
  const bool one = Attr<kIstftAttrs, "onesided">(call.attrs);
  const Value rows = MatrixTranspose(b, Reshape(b, x, {batches, bins, frames}));
  Value y = Call(b, kOp_fft, {rows}, {int64_t{one ? 3 : 1}, Ints{size}});
  if (!y) return b.status();
  if (Attr<kIstftAttrs, "normalized">(call.attrs)) y = Mul(b, y, std::sqrt(static_cast<double>(size)));
  const Value window = call.operands[1] ? Taper(b, call.operands[1], size, y.dtype()) : Full(b, y.dtype(), {size}, 1);
  const auto added = [&](const Value& v, int64_t count) {
    const Value sum = Call(b, kOp_col2im, {v}, {Ints{covered.all}, Ints{size}, Ints{hop}});
    return sum ? Reshape(b, sum, {count, covered.all}) : sum;
  };
  const int64_t last = std::min(covered.first + covered.count, covered.all),
                got = std::max<int64_t>(0, last - covered.first);
  const auto cut = [&](const Value& v, int64_t count) {
    return Slice(b, v, {0, covered.first}, {count, covered.first + got}, {1, 1});
  };
  y = cut(added(Mul(b, y, BroadcastTo(b, window, y.dims())), batches), batches);
  const Value squares = BroadcastTo(b, Mul(b, window, window), {1, frames, size});
  y = Div(b, y, BroadcastTo(b, cut(added(squares, 1), 1), {batches, got}));
  if (got < covered.count) y = Pad(b, y, 0, {0, 0}, {0, covered.count - got}, {0, 0});
  Dims dims = lead;
  dims.push_back(covered.count);
  results[0] = y ? Reshape(b, y, dims) : y;
  return b.status();
}

constexpr Sample kStfts[] = {{"f32[2,20] f32[6] size=8 hop=3"},
                             {"f64[17] none size=4 center=false normalized=true"},
                             {"f64[12] f64[5] size=5 hop=2 pad=constant"}};
constexpr Sample kIstfts[] = {{"c128[2,5,6] f64[8] size=8 hop=3 normalized=true", 0.5, 2},
                              {"c64[3,4] none size=4 hop=2 center=false length=9"}};
constexpr Tolerance kTolerance = {.f32 = 2e-5, .f64 = 1e-12, .bf16 = 4e-2, .f16 = 8e-3, .absolute = 2e-5};

}  // namespace

constinit const OpDef kOp_stft = Formula({
    .name = "weft.stft",
    .c_name = "stft",
    .doc =
        "The spectra of windows of a signal, one behind the other, [..., bins, frames]: each times a window that is narrower or as "
        "wide, in the middle. PyTorch's stft. f16 and bf16 are computed in f32.",
    .example = "y = wf_stft(s, x, window, 256);",
    .operands = kSignal,
    .attrs = kStftAttrs,
    .infer = InferStft,
    .expand = ExpandStft,
    .samples = kStfts,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_istft = Formula({
    .name = "weft.istft",
    .c_name = "istft",
    .doc =
        "The signal of which stft gave the spectra: their windows, times the window again, added up where they stand and divided by the "
        "sum of the window's squares there; infinite or NaN where no window was. Real of one side, else complex.",
    .example = "x = wf_istft(s, y, window, 256);",
    .operands = kSpectra,
    .attrs = kIstftAttrs,
    .infer = InferIstft,
    .expand = ExpandIstft,
    .samples = kIstfts,
    .tolerance = kTolerance,
});

}  // namespace weft::ops
