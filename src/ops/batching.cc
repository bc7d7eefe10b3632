// See batching.h.
#include "src/ops/batching.h"

#include <algorithm>

namespace weft::ops {

using ir::BatchCall;
using ir::Ints;
using ir::Value;

bool AnyBatched(const BatchCall& call, size_t first) {
  const std::span<const bool> rest = call.batched.subspan(first);
  return std::ranges::find(rest, true) != rest.end();
}

Value Batched(const BatchCall& call, size_t i) {
  const Value& x = call.operands[i];
  if (call.batched[i] || !x) return x;
  Ints positions = Axes(x.dims().size());
  for (int64_t& position : positions) ++position;
  return BroadcastInDim(call.b, x, ToDims(Before(call.size, x.dims())), std::move(positions));
}

ir::Values AllBatched(const BatchCall& call) {
  ir::Values all;
  for (size_t i = 0; i < call.operands.size(); ++i) all.push_back(Batched(call, i));
  return all;
}

int64_t Shifted(int64_t dimension) { return dimension < 0 ? dimension : dimension + 1; }
Ints Shifted(const Ints& dimensions) {
  Ints shifted;
  for (const int64_t dimension : dimensions) shifted.push_back(Shifted(dimension));
  return shifted;
}

Ints Before(int64_t first, std::span<const int64_t> rest) {
  Ints all = {first};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

ir::Attrs Longer(ir::Attrs attrs, std::initializer_list<std::pair<size_t, int64_t>> first) {
  for (const auto& [attribute, entry] : first) {
    if (attrs.has(attribute)) attrs.set(attribute, Before(entry, attrs.IntList(attribute)));
  }
  return attrs;
}

Value Moved(ir::Builder& b, const Value& x, int64_t from, int64_t to) {
  if (!x || from == to) return x;
  Ints order = Axes(x.dims().size());
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return Transpose(b, x, std::move(order));
}

Value OfEachExample(ir::Builder& b, const Value& scalars, const Dims& dims) {
  return BroadcastInDim(b, scalars, dims, {0});
}

absl::Status BatchLeading(const BatchCall& call, std::span<Value> results) {
  std::ranges::move(CallAll(call.b, call.node.op(), AllBatched(call), call.node.attrs(), call.node.regions()),
                    results.begin());
  return absl::OkStatus();
}

namespace {

// Each example is a scalar, along whose one axis the operation goes as along a row of one element: here of [size, 1].
absl::Status BatchRows(const BatchCall& call, size_t attribute, std::span<Value> results) {
  ir::Builder& b = call.b;
  ir::Attrs attrs = call.node.attrs();
  attrs.set(attribute, int64_t{1});
  ir::Values operands = AllBatched(call);
  for (Value& x : operands) x = x ? Reshape(b, x, {call.size, 1}) : x;
  const ir::Values rows = CallAll(b, call.node.op(), std::move(operands), std::move(attrs));
  for (size_t i = 0; i < rows.size() && b.ok(); ++i) {
    Dims dims = call.node.results()[i].dims;
    dims.insert(dims.begin(), call.size);
    results[i] = Reshape(b, rows[i], dims);
  }
  return b.status();
}

}  // namespace

absl::Status BatchAlong(const BatchCall& call, size_t attribute, std::span<Value> results) {
  ir::Attrs attrs = call.node.attrs();
  const ir::Node& node = call.node;
  if (node.op().attrs[attribute].type == ir::AttrType::kInt && node.operands()[0].dims().empty()) {
    return BatchRows(call, attribute, results);
  }
  if (call.node.op().attrs[attribute].type == ir::AttrType::kInts) {
    attrs.set(attribute, Shifted(attrs.IntList(attribute)));
  } else {
    attrs.set(attribute, Shifted(attrs.Int(attribute)));
  }
  std::ranges::move(CallAll(call.b, call.node.op(), AllBatched(call), std::move(attrs), call.node.regions()),
                    results.begin());
  return absl::OkStatus();
}

absl::Status BatchInputs(const BatchCall& call, size_t inputs, ir::Attrs attrs, std::span<Value> results) {
  if (AnyBatched(call, inputs)) return absl::OkStatus();
  ir::Values operands(call.operands.begin(), call.operands.end());
  for (size_t i = 0; i < inputs; ++i) operands[i] = Batched(call, i);
  std::ranges::move(CallAll(call.b, call.node.op(), std::move(operands), std::move(attrs), call.node.regions()),
                    results.begin());
  return absl::OkStatus();
}

Value Starts(const BatchCall& call, size_t first) {
  ir::Values columns;
  for (size_t i = first; i < call.operands.size(); ++i) {
    columns.push_back(Reshape(call.b, Batched(call, i), {call.size, 1}));
  }
  return Call(call.b, kOp_concatenate, std::move(columns), {int64_t{1}});
}

}  // namespace weft::ops
