// conv_transpose: the layer that conv's gradient is made of, on channels-last data: every input pixel spreads a window.
#include "src/ops/conv/channels.h"
#include "src/ops/conv/conv_shape.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"x", kNumber | kC, "[batch, spatial…, features], NHWC for images"},
    {"w", kNumber | kC, "[window…, features / groups, output features], HWIO for images"}};
constexpr AttrDef kAttrs[] = {
    {"strides", AttrType::kInts, "output pixels between the windows of neighbouring pixels; absent: 1"},
    {"pads", AttrType::kInts, "cut off before and after each spatial dimension: [low0, high0, low1, …]; absent: 0"},
    {"output_padding", AttrType::kInts,
     "pixels more at the end of each spatial dimension, of windows that would not fit a stride; absent: 0"},
    {"dilation", AttrType::kInts, "spacing of the window's elements; absent: 1"},
    {"groups", AttrType::kInt, "groups of features that see only each other", false, "1"},
    {"dtype", AttrType::kDType, kResultDTypeDoc},
    kPrecisionAttr,
    kKernelFirstAttr,
};

absl::Status CheckOperands(const Dims& x, const Dims& w, int64_t groups) {
  if (x.size() < 3 || x.size() != w.size()) {
    return UserError(
        "x must be [batch, spatial…, features] and w [window…, features / groups, output features] of the same rank, "
        "at least 3");
  }
  if (groups < 1) return UserError("groups is ", groups, "; it must be at least 1");
  const int64_t features = x.back(), taken = w[w.size() - 2];
  if (features % groups == 0 && features / groups == taken) return absl::OkStatus();
  return UserError("x ", DimsToString(x), " has ", features, " features, its last dimension, in ", groups,
                   groups == 1 ? " group" : " groups", ", and w ", DimsToString(w), " takes ", taken,
                   "; x is NHWC here and w HWIO, the kernel [in, out / groups, …] of other libraries transposed");
}

// The general convolution's attributes: over x with gaps of the strides in it, with the kernel turned around.
absl::StatusOr<Attrs> Plan(const OpDef& op, const Attrs& attrs, const Dims& x, const Dims& w) {
  WEFT_RETURN_IF_ERROR(CheckOperands(x, w, Attr<kAttrs, "groups">(attrs)));
  const size_t n = x.size() - 2;
  WEFT_ASSIGN_OR_RETURN(const Ints strides, PerDimension(op, attrs, AttrPosition<kAttrs, "strides">(), n, 1));
  WEFT_ASSIGN_OR_RETURN(const Ints dilation, PerDimension(op, attrs, AttrPosition<kAttrs, "dilation">(), n, 1));
  WEFT_ASSIGN_OR_RETURN(const Ints pads, PerDimension(op, attrs, AttrPosition<kAttrs, "pads">(), n, 0, 2));
  WEFT_ASSIGN_OR_RETURN(const Ints more, PerDimension(op, attrs, AttrPosition<kAttrs, "output_padding">(), n, 0));
  Ints padding;
  for (size_t d = 0; d < n; ++d) {
    Window window{.in = x[1 + d],
                  .size = w[d],
                  .stride = strides[d],
                  .low = pads[2 * d],
                  .high = pads[2 * d + 1],
                  .base_dilation = strides[d],
                  .dilation = dilation[d]};
    WEFT_RETURN_IF_ERROR(CheckWindow(window, d));
    if (more[d] < 0 || more[d] >= std::max(strides[d], dilation[d])) {
      return UserError("output_padding of spatial dimension ", d, " is ", more[d], "; with stride ", strides[d],
                       " and dilation ", dilation[d], " it must be 0 to ", std::max(strides[d], dilation[d]) - 1);
    }
    const int64_t reach = window.dilated_size() - 1;
    const int64_t whole = window.dilated_in() + reach + more[d];
    if (x[1 + d] > 0 && whole - window.low - window.high < 1) {
      return UserError("pads ", window.low, " and ", window.high, " cut off all ", whole,
                       " pixels of spatial dimension ", d, " of the result");
    }
    padding.push_back(reach - window.low);
    padding.push_back(reach - window.high + more[d]);
  }
  Attrs general = ChannelsLast(Ints(n, 1), padding, strides, dilation, Attr<kAttrs, "groups">(attrs));
  general.set(kConvReversal, Ints(n, 1));
  if (HasAttr<kAttrs, "dtype">(attrs)) general.set(kConvDType, Attr<kAttrs, "dtype">(attrs));
  general.set(kConvPrecision, attrs.at(AttrPosition<kAttrs, "precision">()));
  return general;
}

absl::Status InferLast(const InferCall& call, Types* results) {
  const Dims& x = call.operands[0]->dims;
  const Dims& w = call.operands[1]->dims;
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
  return InferFirst(call, results, AttrPosition<kAttrs, "channels_first">(), InferLast, Kernel::kTransposed,
                    AttrPosition<kAttrs, "groups">());
}
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  return ExpandFirst(call, results, AttrPosition<kAttrs, "channels_first">(), ExpandLast, Kernel::kTransposed,
                     AttrPosition<kAttrs, "groups">());
}

constexpr Sample kSamples[] = {{"T[1,3,4,3] T[3,2,2,3] strides=[2,2] channels_first=true"},
                               {"T[1,4,3,2] T[4,3,2,2] groups=2 channels_first=true"},
                               {"T[2,3,4,3] T[2,2,3,4] strides=[2,2]"},
                               {"T[1,4,3,2] T[3,3,2,3] strides=[2,1] pads=[1,1,0,1] output_padding=[1,0]"},
                               {"T[1,3,4,4] T[3,2,2,6] groups=2 strides=[3,2] dilation=[1,2] output_padding=[2,1]"},
                               {"T[2,5,3] T[4,3,5] strides=[3] pads=[2,0]"},
                               {"T[1,2,3,2,2] T[2,2,2,2,3] strides=[2,1,2]"},
                               {"T[0,3,3,1] T[2,2,1,2] strides=[2,2]"},
                               {"bf16[1,3,3,3] bf16[2,2,3,4] strides=[2,2] dtype=f32"},
                               {"f32[1,3,3,3] f32[2,2,3,4] strides=[2,2] dtype=f64"},
                               {"i8[1,3,3,3] i8[2,2,3,4] strides=[2,2] dtype=i32"}};

}  // namespace

constinit const OpDef kOp_conv_transpose = {
    .name = "weft.conv_transpose",
    .c_name = "conv_transpose",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "A transposed convolution layer on channels-last data: each pixel of x adds w times its features to a window of "
        "the result, windows a stride apart; the gradient of conv with respect to its input. A spatial dimension has "
        "(in - 1) * stride + dilation * (window - 1) + 1 + output_padding pixels, less pads. One or three spatial "
        "dimensions work the same way. bf16 and f16 are summed in f32.",
    .example = "up = wf_conv_transpose(s, x, w, .strides = WF_INTS(2, 2));",
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
