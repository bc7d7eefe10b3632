// weft.conv_backward_input: the cotangent of a convolution's input, from that of its output and the kernel.
#include "src/ops/conv/conv_shape.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"output", kF | kC, "cotangent of the convolution's result"},
                                    {"kernel", kF | kC, "the convolution's kernel"}};
constexpr auto kAttrs = ConvBackwardAttrs();

absl::StatusOr<ConvShape> Read(const OpDef& op, const Attrs& attrs, const Dims& output, const Dims& kernel) {
  if (!attrs.has(kConvShape)) return UserError("shape is required");
  if (!CheckedCount(attrs.IntList(kConvShape))) {
    return UserError("shape ", DimsToString(attrs.IntList(kConvShape)), " has a negative or too large dimension");
  }
  WEFT_ASSIGN_OR_RETURN(ConvShape shape, ReadConv(op, attrs, ToDims(attrs.IntList(kConvShape)), kernel));
  if (shape.batch_groups != 1) return UserError("batch_group_count must be 1, not ", shape.batch_groups);
  if (shape.OutputDims() != output) {
    return UserError("the convolution of ", DimsToString(attrs.IntList(kConvShape)), " gives ",
                     DimsToString(shape.OutputDims()), ", not ", DimsToString(output));
  }
  return shape;
}

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(Read(call.op, call.attrs, call.operands[0]->dims, call.operands[1]->dims).status());
  WEFT_ASSIGN_OR_RETURN(const DType dtype, ConvResultType(call.attrs, call.operands[0]->dtype));
  results->push_back(Type::Tensor(dtype, ToDims(call.attrs.IntList(kConvShape))));
  return absl::OkStatus();
}

// Linear in both operands.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Attrs& attrs = call.node.attrs();
  Value c = Convert(call.b, call.cotangents[0], call.operands[0].dtype());
  if (call.wanted[0]) grads[0] = Convolution(call.b, c, call.operands[1], attrs);
  if (call.wanted[1]) {
    grads[1] = ConvBackwardKernel(call.b, c, call.operands[0], attrs, call.operands[1].dims());
  }
  return absl::OkStatus();
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  results[0] = ConvBatching(call, {2, 1}, 0);
  return absl::OkStatus();
}

// The output, spread by the strides, is convolved with the turned kernel whose feature roles are exchanged.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& g = call.operands[0];
  Value k = call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const ConvShape shape, Read(call.op, call.attrs, g.dims(), k.dims()));
  Ints strides, padding, input_dilation, kernel_dilation, reversal;
  for (size_t d = 0; d < shape.windows.size(); ++d) {
    const Window& w = shape.windows[d];
    const int64_t low = w.dilated_size() - 1 - w.low;
    strides.push_back(w.base_dilation);
    padding.push_back(low);
    padding.push_back(w.dilated_in() + w.dilated_size() - 1 - Window::Dilated(w.out(), w.stride) - low);
    input_dilation.push_back(w.stride);
    kernel_dilation.push_back(w.dilation);
    reversal.push_back(shape.reversal[d] == 0);
  }
  if (shape.feature_groups > 1) {
    // […, in, …, groups × out, …] to […, groups × in, …, out, …]: each group's features become their own
    // outputs.
    const int64_t groups = shape.feature_groups;
    const int64_t in = shape.kernel[0], out = shape.kernel[1];
    Dims split = k.dims();
    split[out] /= groups;
    split.insert(split.begin() + out, groups);
    const int64_t in_now = in < out ? in : in + 1;
    Ints order;
    for (int64_t d = 0; d < static_cast<int64_t>(split.size()); ++d) {
      if (d == out) continue;
      if (d == in_now) order.push_back(out);
      order.push_back(d);
    }
    Dims joined = k.dims();
    joined[in] *= groups;
    joined[out] /= groups;
    k = Reshape(b, Transpose(b, Reshape(b, k, split), order), joined);
  }
  const Ints& kernel_dims = call.attrs.IntList(kConvKernelDims);
  Ints swapped = kernel_dims;
  std::swap(swapped[0], swapped[1]);
  Attrs attrs = {strides,
                 padding,
                 input_dilation,
                 kernel_dilation,
                 call.attrs.at(kConvOutputDims),
                 swapped,
                 call.attrs.at(kConvInputDims),
                 shape.feature_groups,
                 int64_t{1},
                 reversal};
  for (size_t i : {kConvDType, kConvPrecision}) attrs.set(i, call.attrs.at(i));
  results[0] = Call(b, kOp_convolution, {g, k}, std::move(attrs));
  return absl::OkStatus();
}

#define WEFT_NHWC " input_dimensions=[0,3,1,2] kernel_dimensions=[2,3,0,1] output_dimensions=[0,3,1,2]"
constexpr Sample kSamples[] = {{"T[2,3,4,4] T[3,3,3,4] window_strides=[1,1] padding=[0,0,0,0] lhs_dilation=[1,1] "
                                "rhs_dilation=[1,1]" WEFT_NHWC " shape=[2,5,6,3]"},
                               {"T[1,4,2,6] T[3,3,2,6] window_strides=[2,2] padding=[1,1,0,0] lhs_dilation=[1,1] "
                                "rhs_dilation=[1,1]" WEFT_NHWC " feature_group_count=2 shape=[1,7,6,4]"},
                               {"T[2,5,6,10] T[3,2,1,10] window_strides=[1,1] padding=[1,1,1,0] lhs_dilation=[1,1] "
                                "rhs_dilation=[1,1]" WEFT_NHWC " feature_group_count=5 shape=[2,5,6,5]"}};
#undef WEFT_NHWC

}  // namespace

constinit const OpDef kOp_conv_backward_input = {
    .name = "weft.conv_backward_input",
    .c_name = "conv_backward_input",
    .kind = Kind::kComposite,
    .doc =
        "The cotangent of a convolution's input. The attributes are the convolution's own, shape is its input's. Made "
        "by gradients; a node of its own so that backends run their kernel for it.",
    .example = "dx = wf_grad(s, loss, x);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .batching = Batching,
    .lowering = Lowering::kKernel,  // the expansion reads the operands reversed and dilated
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-5},
    .absent = kCompositeAbsent,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
