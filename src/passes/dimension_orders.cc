// See dimension_orders.h.
#include "src/passes/dimension_orders.h"

#include <algorithm>
#include <array>

#include "src/ops/build.h"
#include "src/ops/conv/conv_shape.h"
#include "src/ops/generated/attributes.h"

namespace weft::passes {
namespace {

using ir::Ints;
using ir::Node;
using ir::OpDef;
using ir::Value;

// Pooling across lines, an element at a time, takes longer than several copies of what is read and written.
constexpr double kPoolWeight = 4;

// Which attribute says where the dimensions of operands 0 and 1 and of the result are. The kernel's stand behind the others.
struct ConvRoles {
  const OpDef* op;
  std::array<size_t, 2> operands;
  size_t result;
};
constexpr ConvRoles kConvolutions[] = {
    {&ops::kOp_convolution, {ops::kConvInputDims, ops::kConvKernelDims}, ops::kConvOutputDims},
    {&ops::kOp_conv_backward_input, {ops::kConvOutputDims, ops::kConvKernelDims}, ops::kConvInputDims},
    {&ops::kOp_conv_backward_kernel, {ops::kConvInputDims, ops::kConvOutputDims}, ops::kConvKernelDims},
};
const ConvRoles* RolesOf(const Node& node) {
  for (const ConvRoles& roles : kConvolutions) {
    if (&node.op() == roles.op) return &roles;
  }
  return nullptr;
}

// [batch, feature, spatial…] and [input feature, output feature, window…] to batch, spatial…, feature and window…, input
// feature, output feature: what the kernels read.
Ints KernelOrder(const Ints& positions, bool kernel) {
  Ints order;
  if (!kernel) order.push_back(positions[0]);
  order.insert(order.end(), positions.begin() + 2, positions.end());
  if (kernel) order.push_back(positions[0]);
  order.push_back(positions[1]);
  return order;
}

bool IsPool(const Node& node) {
  return &node.op() == &ops::kOp_reduce_window || &node.op() == &ops::kOp_select_and_scatter;
}
bool IsScalar(const Node& node) {
  return node.op().lowering == ir::Lowering::kScalar && node.op().scalar != nullptr && node.regions().empty() &&
         std::ranges::none_of(node.op().attrs, [](const ir::AttrDef& a) { return a.type == ir::AttrType::kInts; });
}

// The kernels read these row by row where they lie, channels first: max-pools over the last one or two dimensions, and
// their gradients. Narrower results leave most of a vector empty.
bool PoolsPlanes(const Node& node) {
  constexpr int64_t kMostTaps = 8, kLeastColumns = 8;
  const bool gradient = &node.op() == &ops::kOp_select_and_scatter;
  if (!gradient) {
    const ops::ReduceWindowAttrs attrs{node.attrs()};
    if (attrs.reducer() != static_cast<int64_t>(ops::Reducer::kMax)) return false;
    if (attrs.has_base_dilations() && std::ranges::any_of(attrs.base_dilations(), [](int64_t d) { return d != 1; }))
      return false;
  }
  const DType dtype = node.type().dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) return false;
  const Ints& sizes = node.attrs().IntList(ops::ReduceWindowAttrs::kWindowDimensions);
  const Dims &in = node.operands()[0].dims(), &out = gradient ? node.operands()[1].dims() : node.type().dims;
  const size_t rank = sizes.size();
  if (rank < 2 || out[rank - 1] < kLeastColumns) return false;
  for (size_t d = 0; d < rank; ++d) {
    if (d + 2 < rank && (sizes[d] != 1 || in[d] != out[d])) return false;
    if (sizes[d] > kMostTaps) return false;
  }
  return true;
}

// The last dimension without a window, behind all others, if windows come after it.
Ints PoolOrder(const Node& node) {
  static_assert(ops::ReduceWindowAttrs::kWindowDimensions == +ops::SelectAndScatterAttrs::kWindowDimensions);
  const Ints& sizes = node.attrs().IntList(ops::ReduceWindowAttrs::kWindowDimensions);
  const Dims &in = node.operands()[0].dims(),
             &out = (&node.op() == &ops::kOp_reduce_window ? node.type().dims : node.operands()[1].dims());
  const auto rank = static_cast<int64_t>(sizes.size());
  int64_t feature = rank - 1;
  while (feature >= 0 && (sizes[feature] != 1 || in[feature] != out[feature])) --feature;
  if (feature < 0) return {};
  Ints order;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != feature) order.push_back(d);
  }
  order.push_back(feature);
  return order;
}

}  // namespace

Ints Inverse(const Ints& order) {
  Ints inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return inverse;
}

Ints Composed(const Ints& first, const Ints& second) {
  Ints both;
  for (int64_t d : second) both.push_back(first[d]);
  return both;
}

bool MovesNothing(const Dims& dims, const Ints& order) {
  int64_t last = -1;
  for (int64_t d : order) {
    if (dims[d] == 1) continue;
    if (d < last) return false;
    last = d;
  }
  return true;
}

bool IsConvolution(const Node& node) { return RolesOf(node) != nullptr && node.extras() == nullptr; }

std::optional<Wishes> WishesOf(const Node& node) {
  if (node.extras() != nullptr) return std::nullopt;
  Wishes wishes;
  if (const ConvRoles* roles = RolesOf(node); roles != nullptr) {
    const auto order = [&](size_t attribute) {
      return KernelOrder(node.attrs().IntList(attribute), attribute == ops::kConvKernelDims);
    };
    wishes.operands = {order(roles->operands[0]), order(roles->operands[1])};
    wishes.result = order(roles->result);
    return wishes;
  }
  if (!IsPool(node) || PoolsPlanes(node)) return std::nullopt;
  const Ints order = PoolOrder(node);
  wishes.operands.assign(node.operands().size(), order);
  wishes.result = order;
  wishes.weight = kPoolWeight;
  return wishes;
}

bool IsPermutable(const Node& node) {
  if (node.extras() != nullptr || node.results().size() != 1 || !node.type().is_tensor()) return false;
  if (node.type().rank() < 3) return false;
  const OpDef& op = node.op();
  if (IsConvolution(node) || !op.along.empty()) return true;
  if (!IsScalar(node) || node.operands().empty()) return false;
  return std::ranges::all_of(node.operands(), [&](const Value& operand) {
    return operand && (operand.dims() == node.type().dims || operand.dims().empty());
  });
}

bool SharesOrder(const Node& node, const Value& operand) {
  return operand && !IsConvolution(node) && operand.dims().size() == node.type().rank();
}

ir::Attrs PermutedAttrs(const Node& node, const Ints& order) {
  ir::Attrs attrs = node.attrs();
  const auto rank = static_cast<int64_t>(order.size());
  const Ints inverse = Inverse(order);
  const auto now = [&](int64_t d) { return inverse[d < 0 ? d + rank : d]; };
  for (size_t i = 0; i < node.op().along.size(); ++i) {
    const ir::Along along = node.op().along[i];
    if (along == ir::Along::kNothing || !attrs.has(i)) continue;
    if (node.op().attrs[i].type == ir::AttrType::kInt) {
      attrs.set(i, now(attrs.Int(i)));
      continue;
    }
    const Ints& before = node.attrs().IntList(i);
    Ints after;
    if (along == ir::Along::kNumbers) {
      for (int64_t d : before) after.push_back(now(d));
    } else {
      const int64_t per = along == ir::Along::kPairs ? 2 : 1;
      for (int64_t d : order) {
        for (int64_t k = 0; k < per; ++k) after.push_back(before[d * per + k]);
      }
    }
    attrs.set(i, std::move(after));
  }
  return attrs;
}

void SetConvDims(const Node& convolution, size_t i, const Ints& permutation, ir::Attrs* attrs) {
  const size_t attribute = RolesOf(convolution)->operands[i];
  attrs->set(attribute, Composed(permutation, convolution.attrs().IntList(attribute)));
}

void SetConvResult(const Node& convolution, const Ints& order, ir::Attrs* attrs) {
  const ConvRoles& roles = *RolesOf(convolution);
  attrs->set(roles.result, Composed(Inverse(order), convolution.attrs().IntList(roles.result)));
  if (&convolution.op() == &ops::kOp_convolution) return;
  attrs->set(ops::kConvShape, Composed(convolution.attrs().IntList(ops::kConvShape), order));
}

}  // namespace weft::passes
