// The attributes and shapes of convolution and its two transposes, which are three views of one trilinear
// form: any two of (input, kernel, output) give the third.
#pragma once

#include <array>

#include "src/ops/conv/window.h"
#include "src/ops/linalg/precision.h"
#include "src/ops/result_dtype.h"

namespace weft::ops {

// Positions in the attribute schemas of convolution, weft.conv_backward_input and weft.conv_backward_kernel.
enum ConvAttr : size_t {
  kConvStrides,
  kConvPadding,
  kConvInputDilation,
  kConvKernelDilation,
  kConvInputDims,
  kConvKernelDims,
  kConvOutputDims,
  kConvFeatureGroups,
  kConvBatchGroups,
  kConvReversal,
  kConvDType,
  kConvPrecision,
  kConvShape,  // of the two transposes: the shape of their result
};

inline constexpr std::array<ir::AttrDef, 12> kConvAttrs = {{
    {"window_strides", ir::AttrType::kInts, "step of the window in each spatial dimension", true},
    {"padding", ir::AttrType::kInts, "low and high of each spatial dimension: [low0, high0, low1, …]", true},
    {"lhs_dilation", ir::AttrType::kInts, "spacing of input elements", true},
    {"rhs_dilation", ir::AttrType::kInts, "spacing of kernel elements", true},
    {"input_dimensions", ir::AttrType::kInts, "the input's dimensions: [batch, feature, spatial…]", true},
    {"kernel_dimensions", ir::AttrType::kInts, "the kernel's: [input feature, output feature, spatial…]", true},
    {"output_dimensions", ir::AttrType::kInts, "the output's: [batch, feature, spatial…]", true},
    {"feature_group_count", ir::AttrType::kInt, "groups of features that see only each other", false, "1"},
    {"batch_group_count", ir::AttrType::kInt, "groups of the batch that make groups of output features", false, "1"},
    {"window_reversal", ir::AttrType::kInts, "1 where the kernel is turned around, else 0; absent: nowhere"},
    {"dtype", ir::AttrType::kDType, kResultDTypeDoc},
    kPrecisionAttr,
}};
// The attributes of the transposes.
constexpr std::array<ir::AttrDef, 13> ConvBackwardAttrs() {
  std::array<ir::AttrDef, 13> attrs = {};
  for (size_t i = 0; i < kConvAttrs.size(); ++i) attrs[i] = kConvAttrs[i];
  attrs[kConvShape] = {"shape", ir::AttrType::kInts, "result shape; always given"};
  return attrs;
}

struct ConvShape {
  int64_t batch = 0, features = 0;  // of the input
  int64_t out_features = 0;
  int64_t feature_groups = 1, batch_groups = 1;
  std::array<size_t, 2> input, kernel, output;  // positions of (batch, feature), (in, out), (batch, feature)
  ir::Ints input_spatial, kernel_spatial, output_spatial;
  ir::Ints reversal;
  absl::InlinedVector<Window, 3> windows;

  Dims OutputDims() const;
};

// Checks everything that input, kernel and attributes must satisfy.
absl::StatusOr<ConvShape> ReadConv(const ir::OpDef& op, const ir::Attrs& attrs, const Dims& input, const Dims& kernel);

// The general convolution's attributes for channels-last operands in `groups`: [batch, spatial…, features] and [window…,
// features / groups, output features].
ir::Attrs ChannelsLast(ir::Ints strides, ir::Ints padding, ir::Ints input_dilation, ir::Ints kernel_dilation,
                       int64_t groups);

// The three forms, with the attributes of the forward one.
ir::Value Convolution(ir::Builder& b, ir::Value input, ir::Value kernel, ir::Attrs attrs);
ir::Value ConvBackwardInput(ir::Builder& b, ir::Value output, ir::Value kernel, ir::Attrs attrs, const Dims& shape);
ir::Value ConvBackwardKernel(ir::Builder& b, ir::Value input, ir::Value output, ir::Attrs attrs, const Dims& shape);

// Their rule for many examples. Roles of operands and result: 0 the input, 1 the kernel, 2 the output.
ir::Value ConvBatching(const ir::BatchCall& call, std::array<size_t, 2> operands, size_t result);

// The result type's dtype: the attribute or the operands'.
absl::StatusOr<DType> ConvResultType(const ir::Attrs& attrs, DType operand);

}  // namespace weft::ops
