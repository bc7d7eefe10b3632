// Convolutions: any dimension order to the kernels' NHWC and HWIO, with copies only where the order differs.
#include <algorithm>
#include <numeric>

#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/conv/conv_shape.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using ir::Ints;
using ir::Node;
using ir::Value;

Ints Order(int64_t first, const Ints& middle, int64_t last) {
  Ints order = {first};
  order.insert(order.end(), middle.begin(), middle.end());
  order.push_back(last);
  return order;
}

// Permutes [batch, spatial…, features] to where `order` says each of them stands.
Ints Inverse(const Ints& order) {
  Ints inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return inverse;
}

struct Geometry {
  ConvCall call;
  Ints x_order, w_order, y_order;
};

absl::StatusOr<Geometry> Read(const Node& node, const Dims& input, const Dims& kernel) {
  WEFT_ASSIGN_OR_RETURN(const ops::ConvShape shape, ops::ReadConv(node.op(), node.attrs(), input, kernel));
  Geometry g;
  ConvCall& c = g.call;
  c.batch = shape.batch;
  c.in_channels = shape.features;
  c.out_channels = shape.out_features;
  c.feature_groups = shape.feature_groups;
  c.batch_groups = shape.batch_groups;
  if (shape.windows.size() > static_cast<size_t>(kMaxSpatialDims)) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the CPU backend runs convolutions of up to ", kMaxSpatialDims,
                       " spatial dimensions");
  }
  c.spatial_rank = std::max(1, static_cast<int>(shape.windows.size()));
  for (size_t d = 0; d < shape.windows.size(); ++d) {
    const ops::Window& w = shape.windows[d];
    c.dims[d] =
        SpatialDim{w.in, w.size, w.out(), w.stride, w.low, w.high, w.base_dilation, w.dilation, shape.reversal[d] != 0};
  }
  g.x_order = Order(static_cast<int64_t>(shape.input[0]), shape.input_spatial, static_cast<int64_t>(shape.input[1]));
  g.w_order = shape.kernel_spatial;
  g.w_order.push_back(static_cast<int64_t>(shape.kernel[0]));
  g.w_order.push_back(static_cast<int64_t>(shape.kernel[1]));
  g.y_order = Order(static_cast<int64_t>(shape.output[0]), shape.output_spatial, static_cast<int64_t>(shape.output[1]));
  return g;
}

double ConvCost(const ConvCall& c) {
  double products = 1.0 * c.batch * c.out_channels * (c.in_channels / std::max<int64_t>(1, c.feature_groups));
  for (int d = 0; d < c.spatial_rank; ++d) products *= 1.0 * c.dims[d].out * c.dims[d].window;
  return products * 10 + 1e6;
}

// Runs the kernel `name` on two operands in the kernels' order and puts the result in its own. `columns`: of the result as a
// matrix, if a loop may follow on its finished blocks, else 0.
absl::Status Emit(Lowering& lowering, const Node& node, std::string_view name, Geometry g,
                  const std::vector<StorageId>& operands, const Ints& result_order, int64_t columns) {
  const Value result{Ref<const Node>::Share(&node), 0};
  ConvCall& c = g.call;
  c.input = node.operands()[0].dtype();
  c.output = result.dtype();
  if (lowering.options().allow_winograd && !c.columns) c.winograd = UseWinograd::kWhereFaster;
  const int64_t count = result.type().count();
  const Ints inverse = Inverse(result_order);
  bool in_order = true;
  for (size_t i = 0; i < inverse.size(); ++i) in_order = in_order && inverse[i] == static_cast<int64_t>(i);
  if (in_order) {
    lowering.Host(name, operands, {lowering.Define(result)}, EncodeConv(c), ConvCost(c),
                  columns > 0 ? count / columns : 0, columns);
    return absl::OkStatus();
  }
  const StorageId raw = lowering.Temporary(count * BytesOf(c.output));
  lowering.Host(name, operands, {raw}, EncodeConv(c), ConvCost(c));
  Dims ordered;
  for (int64_t d : result_order) ordered.push_back(result.dims()[d]);
  lowering.Alias(result, lowering.Permuted(raw, result.dtype(), ordered, inverse));
  return absl::OkStatus();
}

// Tells whether the kernel is [out channels, in channels, window...], as PyTorch has it.
bool IsOutFirst(const Geometry& g) {
  const size_t spatial = g.w_order.size() - 2;
  for (size_t i = 0; i < spatial; ++i) {
    if (g.w_order[i] != static_cast<int64_t>(i) + 2) return false;
  }
  return g.w_order[spatial] == 1 && g.w_order[spatial + 1] == 0;
}

// Takes such a kernel, or its gradient, as it lies, where that is less work than turning it round (ConvCall::columns).
bool TakeColumns(const Node& node, Geometry& g) {
  ConvCall call = g.call;
  call.input = node.operands()[0].dtype();
  call.output = node.type().dtype;
  g.call.columns = g.call.w_out_first = IsOutFirst(g) && TakesColumns(call);
  return g.call.columns;
}

// Tells whether the kernel is packed from where it lies: an argument that nobody else reads, as weights of inference
// are, comes again and stays packed. In training it is another one in each step, and is transposed faster than packed
// from there.
bool ReadsOutFirst(const Lowering& lowering, const Node& node, const Geometry& g) {
  const Value& w = node.operands()[1];
  if (!IsOutFirst(g) || !lowering.IsArgumentReadOnce(w)) return false;
  ConvCall call = g.call;
  call.input = w.dtype();
  call.output = node.type().dtype;
  return PackedBytesOfW(lowering.target(), call) > 0;
}

absl::Status LowerConv(Lowering& lowering, const Node& node) {
  const Value &x = node.operands()[0], &w = node.operands()[1];
  WEFT_ASSIGN_OR_RETURN(Geometry g, Read(node, x.dims(), w.dims()));
  g.call.w_out_first = ReadsOutFirst(lowering, node, g) || TakeColumns(node, g);
  const StorageId left = lowering.Transposed(x, g.x_order);
  const StorageId right = g.call.w_out_first ? lowering.Of(w) : lowering.Transposed(w, g.w_order);
  const Ints order = g.y_order;
  const int64_t columns = g.call.out_channels;
  return Emit(lowering, node, "conv", std::move(g), {left, right}, order, columns);
}

absl::Status LowerBackwardInput(Lowering& lowering, const Node& node) {
  const Value &y = node.operands()[0], &w = node.operands()[1];
  WEFT_ASSIGN_OR_RETURN(Geometry g, Read(node, node.type().dims, w.dims()));
  const StorageId left = lowering.Transposed(y, g.y_order);
  const StorageId right = TakeColumns(node, g) ? lowering.Of(w) : lowering.Transposed(w, g.w_order);
  const Ints order = g.x_order;
  const int64_t columns = g.call.in_channels;
  return Emit(lowering, node, "conv_backward_data", std::move(g), {left, right}, order, columns);
}

absl::Status LowerBackwardKernel(Lowering& lowering, const Node& node) {
  const Value &x = node.operands()[0], &y = node.operands()[1];
  WEFT_ASSIGN_OR_RETURN(Geometry g, Read(node, x.dims(), node.type().dims));
  const StorageId left = lowering.Transposed(x, g.x_order), right = lowering.Transposed(y, g.y_order);
  Ints order = g.w_order;
  int64_t columns = 0;
  if (TakeColumns(node, g)) {
    std::iota(order.begin(), order.end(), 0);
    columns = node.type().count() / g.call.out_channels;
  }
  // Else the gradient of the kernel is small and comes in partial sums: nothing follows it in cache.
  return Emit(lowering, node, "conv_backward_weights", std::move(g), {left, right}, order, columns);
}

constexpr OpRule kRules[] = {
    {.op = &ops::kOp_convolution, .rule = LowerConv, .ends_sums = true},
    {&ops::kOp_conv_backward_input, LowerBackwardInput},
    {&ops::kOp_conv_backward_kernel, LowerBackwardKernel},
};

}  // namespace

std::span<const OpRule> ConvolutionRules() { return kRules; }

}  // namespace weft::cpu
