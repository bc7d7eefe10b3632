// weft.conv_backward_kernel: the cotangent of a convolution's kernel, from its input and the cotangent of its
// output.
#include "src/ops/conv/conv_shape.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"input", kF | kC, "the convolution's input"},
                                    {"output", kF | kC, "cotangent of the convolution's result"}};
constexpr auto kAttrs = ConvBackwardAttrs();

absl::StatusOr<ConvShape> Read(const OpDef& op, const Attrs& attrs, const Dims& input, const Dims& output) {
  if (!attrs.has(kConvShape)) return UserError("shape is required");
  if (!CheckedCount(attrs.IntList(kConvShape))) {
    return UserError("shape ", DimsToString(attrs.IntList(kConvShape)), " has a negative or too large dimension");
  }
  WEFT_ASSIGN_OR_RETURN(ConvShape shape, ReadConv(op, attrs, input, ToDims(attrs.IntList(kConvShape))));
  if (shape.batch_groups != 1) return UserError("batch_group_count must be 1, not ", shape.batch_groups);
  if (shape.OutputDims() != output) {
    return UserError("the convolution of ", DimsToString(input), " gives ", DimsToString(shape.OutputDims()), ", not ",
                     DimsToString(output));
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
  if (call.wanted[0]) grads[0] = ConvBackwardInput(call.b, call.operands[1], c, attrs, call.operands[0].dims());
  if (call.wanted[1]) grads[1] = Convolution(call.b, call.operands[0], c, attrs);
  return absl::OkStatus();
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  results[0] = ConvBatching(call, {0, 2}, 1);
  return absl::OkStatus();
}

// The output, spread by the strides, slides over the input; features act as batch and batch as features.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Value& g = call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const ConvShape shape, Read(call.op, call.attrs, x.dims(), g.dims()));
  if (g.type().count() == 0) {  // a window without elements is no convolution
    WEFT_ASSIGN_OR_RETURN(const DType dtype, ConvResultType(call.attrs, x.dtype()));
    results[0] = Full(b, dtype, ToDims(call.attrs.IntList(kConvShape)), 0);
    return absl::OkStatus();
  }
  Ints strides, padding, input_dilation, kernel_dilation, turned;
  for (size_t d = 0; d < shape.windows.size(); ++d) {
    const Window& w = shape.windows[d];
    strides.push_back(w.dilation);
    padding.push_back(w.low);
    padding.push_back(Window::Dilated(w.out(), w.stride) + w.dilated_size() - w.dilated_in() - 1 - w.low);
    input_dilation.push_back(w.base_dilation);
    kernel_dilation.push_back(w.stride);
    if (shape.reversal[d] != 0) turned.push_back(shape.kernel_spatial[d]);
  }
  Ints input = call.attrs.IntList(kConvInputDims);
  std::swap(input[0], input[1]);
  Attrs attrs = {strides,
                 padding,
                 input_dilation,
                 kernel_dilation,
                 input,
                 call.attrs.at(kConvOutputDims),  // the output's batch is summed over: it acts as input feature
                 call.attrs.at(kConvKernelDims),
                 int64_t{1},
                 shape.feature_groups};
  for (size_t i : {kConvDType, kConvPrecision}) attrs.set(i, call.attrs.at(i));
  results[0] = Reverse(b, Call(b, kOp_convolution, {x, g}, std::move(attrs)), turned);
  return absl::OkStatus();
}

#define WEFT_NHWC " input_dimensions=[0,3,1,2] kernel_dimensions=[2,3,0,1] output_dimensions=[0,3,1,2]"
constexpr Sample kSamples[] = {{"T[2,5,6,3] T[2,3,4,4] window_strides=[1,1] padding=[0,0,0,0] lhs_dilation=[1,1] "
                                "rhs_dilation=[1,1]" WEFT_NHWC " shape=[3,3,3,4]"},
                               {"T[1,7,6,4] T[1,4,2,6] window_strides=[2,2] padding=[1,1,0,0] lhs_dilation=[1,1] "
                                "rhs_dilation=[1,1]" WEFT_NHWC " feature_group_count=2 shape=[3,3,2,6]"},
                               {"T[2,5,6,5] T[2,5,6,10] window_strides=[1,1] padding=[1,1,1,0] lhs_dilation=[1,1] "
                                "rhs_dilation=[1,1]" WEFT_NHWC " feature_group_count=5 shape=[3,2,1,10]"}};
#undef WEFT_NHWC

}  // namespace

constinit const OpDef kOp_conv_backward_kernel = {
    .name = "weft.conv_backward_kernel",
    .c_name = "conv_backward_kernel",
    .kind = Kind::kComposite,
    .doc =
        "The cotangent of a convolution's kernel. The attributes are the convolution's own, shape is its kernel's. "
        "Made by gradients; a node of its own so that backends run their kernel for it.",
    .example = "dw = wf_grad(s, loss, w);",
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
