// Reading and checking convolutions.
#include "src/ops/conv/conv_shape.h"

#include <algorithm>

namespace weft::ops {
namespace {

// A permutation of all dimensions of an operand of `rank`.
absl::Status CheckPositions(const ir::AttrDef& def, const ir::Ints& positions, size_t rank) {
  ir::Ints sorted = positions;
  std::sort(sorted.begin(), sorted.end());
  if (sorted == Axes(rank)) return absl::OkStatus();
  return UserError(def.name, " ", DimsToString(positions), " must name each of ", rank, " dimensions once");
}

ir::Ints Tail(const ir::Ints& positions) { return ir::Ints(positions.begin() + 2, positions.end()); }

}  // namespace

Dims ConvShape::OutputDims() const {
  Dims dims(2 + windows.size());
  dims[output[0]] = batch / batch_groups;
  dims[output[1]] = out_features;
  for (size_t d = 0; d < windows.size(); ++d) dims[output_spatial[d]] = windows[d].out();
  return dims;
}

absl::StatusOr<ConvShape> ReadConv(const ir::OpDef& op, const ir::Attrs& attrs, const Dims& input, const Dims& kernel) {
  if (input.size() < 2 || input.size() != kernel.size()) {
    return UserError("input ", DimsToString(input), " and kernel ", DimsToString(kernel),
                     " must have the same rank, at least 2 (batch and features, then spatial dimensions)");
  }
  const size_t n = input.size() - 2;
  ConvShape shape;
  for (size_t i : {kConvInputDims, kConvKernelDims, kConvOutputDims}) {
    WEFT_RETURN_IF_ERROR(CheckPositions(op.attrs[i], attrs.IntList(i), n + 2));
  }
  WEFT_ASSIGN_OR_RETURN(const ir::Ints strides, PerDimension(op, attrs, kConvStrides, n, 1));
  WEFT_ASSIGN_OR_RETURN(const ir::Ints padding, PerDimension(op, attrs, kConvPadding, n, 0, 2));
  WEFT_ASSIGN_OR_RETURN(const ir::Ints input_dilation, PerDimension(op, attrs, kConvInputDilation, n, 1));
  WEFT_ASSIGN_OR_RETURN(const ir::Ints kernel_dilation, PerDimension(op, attrs, kConvKernelDilation, n, 1));
  WEFT_ASSIGN_OR_RETURN(shape.reversal, PerDimension(op, attrs, kConvReversal, n, 0));
  const auto &in = attrs.IntList(kConvInputDims), &k = attrs.IntList(kConvKernelDims),
             &out = attrs.IntList(kConvOutputDims);
  auto two = [](const ir::Ints& list) {
    return std::array<size_t, 2>{static_cast<size_t>(list[0]), static_cast<size_t>(list[1])};
  };
  shape.input = two(in);
  shape.kernel = two(k);
  shape.output = two(out);
  shape.input_spatial = Tail(in);
  shape.kernel_spatial = Tail(k);
  shape.output_spatial = Tail(out);
  shape.batch = input[in[0]];
  shape.features = input[in[1]];
  shape.out_features = kernel[k[1]];
  shape.feature_groups = attrs.Int(kConvFeatureGroups);
  shape.batch_groups = attrs.Int(kConvBatchGroups);
  for (size_t d = 0; d < n; ++d) {
    Window w{input[shape.input_spatial[d]],
             kernel[shape.kernel_spatial[d]],
             strides[d],
             padding[2 * d],
             padding[2 * d + 1],
             input_dilation[d],
             kernel_dilation[d]};
    WEFT_RETURN_IF_ERROR(CheckWindow(w, d));
    shape.windows.push_back(w);
  }
  const int64_t fg = shape.feature_groups, bg = shape.batch_groups;
  if (fg < 1) return UserError("feature_group_count is ", fg, "; it must be at least 1");
  if (bg < 1) return UserError("batch_group_count is ", bg, "; it must be at least 1");
  if (fg > 1 && bg > 1)
    return UserError("feature_group_count is ", fg, " and batch_group_count ", bg, "; one must be 1");
  if (shape.features % fg != 0 || shape.features / fg != kernel[k[0]]) {
    return UserError("the input has ", shape.features, " features in ", fg, " groups and the kernel takes ",
                     kernel[k[0]], "; features / groups must equal that");
  }
  if (shape.out_features % (fg * bg) != 0) {
    return UserError("the kernel has ", shape.out_features, " output features, which do not divide into ", fg * bg,
                     " groups");
  }
  if (shape.batch % bg != 0) return UserError("a batch of ", shape.batch, " does not divide into ", bg, " groups");
  return shape;
}

ir::Attrs ChannelsLast(ir::Ints strides, ir::Ints padding, ir::Ints input_dilation, ir::Ints kernel_dilation,
                       int64_t groups) {
  const auto n = static_cast<int64_t>(strides.size());
  ir::Ints data = {0, n + 1}, kernel = {n, n + 1};
  for (int64_t d = 0; d < n; ++d) {
    data.push_back(d + 1);
    kernel.push_back(d);
  }
  return {std::move(strides),
          std::move(padding),
          std::move(input_dilation),
          std::move(kernel_dilation),
          data,
          kernel,
          data,
          groups,
          int64_t{1}};
}

absl::StatusOr<DType> ConvResultType(const ir::Attrs& attrs, DType operand) {
  if (!attrs.has(kConvDType)) return operand;
  const DType dtype = attrs.Type(kConvDType);
  WEFT_RETURN_IF_ERROR(CheckResultDType(dtype, operand));
  return dtype;
}

namespace {

// Products of bf16 factors stay products of bf16 factors in the gradient.
ir::Value Emit(ir::Builder& b, const ir::OpDef& op, ir::Value x, ir::Value y, ir::Attrs attrs, const Dims* shape) {
  if (!x || !y) return {};
  attrs.set(kConvDType, {});
  if (shape != nullptr) attrs.set(kConvShape, ToInts(*shape));
  return Call(b, op, {std::move(x), std::move(y)}, std::move(attrs));
}

ir::Attrs ForwardAttrs(const ir::Attrs& attrs) {
  ir::Attrs forward;
  for (size_t i = 0; i < kConvAttrs.size(); ++i) forward.set(i, attrs.at(i));
  return forward;
}

}  // namespace

ir::Value Convolution(ir::Builder& b, ir::Value input, ir::Value kernel, ir::Attrs attrs) {
  return Emit(b, kOp_convolution, std::move(input), std::move(kernel), ForwardAttrs(attrs), nullptr);
}
ir::Value ConvBackwardInput(ir::Builder& b, ir::Value output, ir::Value kernel, ir::Attrs attrs, const Dims& shape) {
  return Emit(b, kOp_conv_backward_input, std::move(output), std::move(kernel), std::move(attrs), &shape);
}
ir::Value ConvBackwardKernel(ir::Builder& b, ir::Value input, ir::Value output, ir::Attrs attrs, const Dims& shape) {
  return Emit(b, kOp_conv_backward_kernel, std::move(input), std::move(output), std::move(attrs), &shape);
}

}  // namespace weft::ops
