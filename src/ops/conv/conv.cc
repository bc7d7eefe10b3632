// conv: a convolution layer on channels-last data.
#include "src/ops/conv/channels.h"
#include "src/ops/conv/conv_shape.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"x", kNumber | kC, "[batch, spatial…, features], NHWC for images"},
    {"w", kNumber | kC, "[window…, features / groups, output features], HWIO for images"}};
constexpr AttrDef kAttrs[] = {
    {"strides", AttrType::kInts, "step of the window in each spatial dimension; absent: 1"},
    {"padding", AttrType::kEnum, "valid: none; same: ceil(in / stride) outputs; explicit: see pads", false, "valid",
     kPaddingNames},
    {"pads", AttrType::kInts, "zeros before and after each spatial dimension: [low0, high0, low1, …]"},
    {"dilation", AttrType::kInts, "spacing of the window's elements; absent: 1"},
    {"groups", AttrType::kInt, "groups of features that see only each other", false, "1"},
    {"dtype", AttrType::kDType, kResultDTypeDoc},
    kPrecisionAttr,
    kKernelFirstAttr,
};

// Checks that the features agree. If they do not, the data is most likely channels-first.
absl::Status CheckFeatures(const Dims& x, const Dims& w, int64_t groups) {
  const size_t n = x.size() - 2;
  const int64_t features = x.back(), taken = w[n];
  if (features % groups == 0 && features / groups == taken) return absl::OkStatus();
  const bool x_first = x[1] % groups == 0 && (x[1] / groups == taken || x[1] / groups == w[1]);
  const bool w_first = w[1] != taken && (w[1] == features / groups || (x_first && w[1] == x[1] / groups));
  std::string text = absl::StrCat("x ", DimsToString(x), " has ", features, " features, its last dimension, in ",
                                  groups, groups == 1 ? " group" : " groups", ", and w ", DimsToString(w), " takes ",
                                  taken, "; data is channels-last here: x NHWC, w HWIO for images");
  if (x_first)
    absl::StrAppend(&text, ". x looks like NCHW: transpose it, ", n == 2 ? "perm 0, 2, 3, 1" : "features last");
  if (w_first)
    absl::StrAppend(&text, ". w looks like OIHW: transpose it, ", n == 2 ? "perm 2, 3, 1, 0" : "features last");
  return UserError(text);
}

// The general convolution's attributes.
absl::StatusOr<Attrs> Plan(const OpDef& op, const Attrs& attrs, const Dims& x, const Dims& w) {
  if (x.size() < 3 || x.size() != w.size()) {
    return UserError(
        "x must be [batch, spatial…, features] and w [window…, features, output features] of the same rank, "
        "at least 3");
  }
  WEFT_RETURN_IF_ERROR(CheckFeatures(x, w, Attr<kAttrs, "groups">(attrs)));
  const size_t n = x.size() - 2;
  WEFT_ASSIGN_OR_RETURN(const Ints strides, PerDimension(op, attrs, AttrPosition<kAttrs, "strides">(), n, 1));
  WEFT_ASSIGN_OR_RETURN(const Ints dilation, PerDimension(op, attrs, AttrPosition<kAttrs, "dilation">(), n, 1));
  std::vector<Window> windows;
  for (size_t d = 0; d < n; ++d) {
    windows.push_back({.in = x[1 + d], .size = w[d], .stride = strides[d], .dilation = dilation[d]});
    WEFT_RETURN_IF_ERROR(CheckWindow(windows.back(), d));
  }
  WEFT_ASSIGN_OR_RETURN(const Ints padding, ResolvePadding(op, attrs, AttrPosition<kAttrs, "padding">(),
                                                           AttrPosition<kAttrs, "pads">(), windows));
  Attrs general = ChannelsLast(strides, padding, Ints(n, 1), dilation, Attr<kAttrs, "groups">(attrs));
  if (HasAttr<kAttrs, "dtype">(attrs)) general.set(kConvDType, Attr<kAttrs, "dtype">(attrs));
  general.set(kConvPrecision, attrs.at(AttrPosition<kAttrs, "precision">()));
  return general;
}

absl::Status InferLast(const InferCall& call, Types* results) {
  const Dims& x = call.operands[0]->dims;
  const Dims& w = call.operands[1]->dims;
  if (Attr<kAttrs, "groups">(call.attrs) < 1)
    return UserError("groups is ", Attr<kAttrs, "groups">(call.attrs), "; it must be at least 1");
  WEFT_ASSIGN_OR_RETURN(const Attrs general, Plan(call.op, call.attrs, x, w));
  WEFT_ASSIGN_OR_RETURN(const ConvShape shape, ReadConv(kOp_convolution, general, x, w));
  WEFT_ASSIGN_OR_RETURN(const DType dtype, ConvResultType(general, call.operands[0]->dtype));
  results->push_back(Type::Tensor(dtype, shape.OutputDims()));
  return absl::OkStatus();
}

absl::Status ExpandLast(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  const Value& w = call.operands[1];
  WEFT_ASSIGN_OR_RETURN(Attrs general, Plan(call.op, call.attrs, x.dims(), w.dims()));
  results[0] = Call(call.b, kOp_convolution, {x, w}, std::move(general));
  return absl::OkStatus();
}

absl::Status Infer(const InferCall& call, Types* results) {
  return InferFirst(call, results, AttrPosition<kAttrs, "channels_first">(), InferLast, Kernel::kForward,
                    AttrPosition<kAttrs, "groups">());
}
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  return ExpandFirst(call, results, AttrPosition<kAttrs, "channels_first">(), ExpandLast, Kernel::kForward,
                     AttrPosition<kAttrs, "groups">());
}

constexpr Sample kSamples[] = {{"T[2,3,5,6] T[4,3,3,3] channels_first=true"},
                               {"T[1,4,7,6] T[4,1,3,3] groups=4 channels_first=true"},
                               {"T[2,5,6,3] T[3,3,3,4]"},
                               {"T[1,7,8,4] T[3,3,4,2] strides=[2,2] padding=same"},
                               {"T[1,7,6,4] T[3,3,1,4] groups=4 padding=explicit pads=[1,1,0,2] dilation=[2,1]"},
                               {"T[2,9,3] T[4,3,5] strides=[2]"},
                               {"T[1,3,4,5,2] T[2,2,2,2,3] padding=same"},
                               {"T[0,5,5,1] T[3,3,1,2]"},
                               {"bf16[1,5,5,3] bf16[3,3,3,4] dtype=f32"},
                               {"f32[1,5,5,3] f32[3,3,3,4] dtype=f64"},
                               {"i8[1,5,5,4] i8[3,3,2,4] groups=2 dtype=i32"},
                               {"T[1,4,4,2] T[2,2,2,3] precision=DEFAULT"}};

}  // namespace

constinit const OpDef kOp_conv = {
    .name = "weft.conv",
    .c_name = "conv",
    .kind = Kind::kMacro,
    .doc =
        "A convolution layer (cross-correlation) on channels-last data: images are NHWC, kernels HWIO; one or three "
        "spatial dimensions work the same way. bf16 and f16 are summed in f32.",
    .example = "h = wf_relu(s, wf_add(s, wf_conv(s, x, w), b));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-5},
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
