// Data with features second by rules for features last.
#include "src/ops/conv/channels.h"

#include <algorithm>

namespace weft::ops {

using namespace ir;

namespace {

// The order of dimensions that brings the second one to the end, or the last one to the second place.
Ints Order(size_t rank, bool to_last) {
  Ints order = Axes(rank);
  if (to_last) {
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  } else {
    std::rotate(order.begin() + 1, order.end() - 1, order.end());
  }
  return order;
}
Dims Moved(const Dims& dims, bool to_last) {
  Dims moved;
  for (const int64_t d : Order(dims.size(), to_last)) moved.push_back(dims[d]);
  return moved;
}
Ints KernelOrder(size_t rank, Kernel kernel) {
  Ints order = Axes(rank);
  std::rotate(order.begin(), order.begin() + 2, order.end());
  if (kernel == Kernel::kForward) std::swap(order[rank - 2], order[rank - 1]);
  return order;
}

absl::Status CheckRank(std::string_view name, const Dims& dims) {
  if (dims.size() >= 3) return absl::OkStatus();
  return UserError(name, " has shape ", DimsToString(dims), "; with channels_first it must have rank 3 or more");
}
// A transposed kernel holds a group's inputs together; they become neighbours of the other groups' outputs.
absl::StatusOr<Dims> KernelDims(const Dims& w, Kernel kernel, int64_t groups) {
  WEFT_RETURN_IF_ERROR(CheckRank("w", w));
  Dims dims;
  for (const int64_t d : KernelOrder(w.size(), kernel)) dims.push_back(w[d]);
  if (kernel != Kernel::kTransposed || groups <= 1) return dims;
  if (w[0] % groups != 0)
    return UserError("w has ", w[0], " features; they must be a multiple of ", groups, ", the groups");
  dims[w.size() - 2] = w[0] / groups;
  dims[w.size() - 1] = w[1] * groups;
  return dims;
}
Value KernelLast(Builder& b, const Value& w, Kernel kernel, int64_t groups) {
  if (kernel != Kernel::kTransposed || groups <= 1) return Transpose(b, w, KernelOrder(w.dims().size(), kernel));
  const Dims& dims = w.dims();
  Dims split = {groups, dims[0] / groups};
  split.insert(split.end(), dims.begin() + 1, dims.end());
  Ints order = Axes(split.size());  // [window…, inputs, groups, outputs]
  std::rotate(order.begin(), order.begin() + 3, order.end());
  const size_t last = order.size() - 1;
  order[last - 2] = 1;
  order[last - 1] = 0;
  order[last] = 2;
  Dims joined(dims.begin() + 2, dims.end());
  joined.insert(joined.end(), {dims[0] / groups, dims[1] * groups});
  return Reshape(b, Transpose(b, Reshape(b, w, split), order), joined);
}

}  // namespace

absl::Status InferFirst(const InferCall& call, Types* results, size_t flag, InferRule rule, Kernel kernel,
                        size_t groups) {
  if (!call.attrs.Bool(flag)) return rule(call, results);
  std::vector<Type> types;
  for (const Type* operand : call.operands) types.push_back(*operand);
  WEFT_RETURN_IF_ERROR(CheckRank("x", types[0].dims));
  types[0].dims = Moved(types[0].dims, true);
  if (kernel != Kernel::kNone) {
    WEFT_ASSIGN_OR_RETURN(types[1].dims, KernelDims(types[1].dims, kernel, call.attrs.Int(groups)));
  }
  std::vector<const Type*> pointers;
  for (const Type& type : types) pointers.push_back(&type);
  WEFT_RETURN_IF_ERROR(rule(InferCall{call.op, pointers, call.attrs}, results));
  for (Type& type : *results) type.dims = Moved(type.dims, false);
  return absl::OkStatus();
}

absl::Status ExpandFirst(const ExpandCall& call, std::span<Value> results, size_t flag, ExpandRule rule, Kernel kernel,
                         size_t groups) {
  if (!call.attrs.Bool(flag)) return rule(call, results);
  Builder& b = call.b;
  Values operands(call.operands.begin(), call.operands.end());
  operands[0] = Transpose(b, operands[0], Order(operands[0].dims().size(), true));
  if (kernel != Kernel::kNone) operands[1] = KernelLast(b, operands[1], kernel, call.attrs.Int(groups));
  WEFT_RETURN_IF_ERROR(b.status());
  ExpandCall last = call;
  last.operands = operands;
  WEFT_RETURN_IF_ERROR(rule(last, results));
  for (Value& result : results) {
    if (result) result = Transpose(b, result, Order(result.dims().size(), false));
  }
  return b.status();
}

}  // namespace weft::ops
