// See batching.h.
#include "src/ops/batching.h"

#include <algorithm>

namespace weft::ops {

using ir::BatchCall;
using ir::Ints;
using ir::Value;

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

Value Moved(ir::Builder& b, const Value& x, int64_t from, int64_t to) {
  if (!x || from == to) return x;
  Ints order = Axes(x.dims().size());
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return Transpose(b, x, std::move(order));
}

absl::Status BatchLeading(const BatchCall& call, std::span<Value> results) {
  std::ranges::move(CallAll(call.b, call.node.op(), AllBatched(call), call.node.attrs(), call.node.regions()),
                    results.begin());
  return absl::OkStatus();
}

absl::Status BatchAlong(const BatchCall& call, size_t attribute, std::span<Value> results) {
  ir::Attrs attrs = call.node.attrs();
  if (call.node.op().attrs[attribute].type == ir::AttrType::kInts) {
    attrs.set(attribute, Shifted(attrs.IntList(attribute)));
  } else {
    attrs.set(attribute, Shifted(attrs.Int(attribute)));
  }
  std::ranges::move(CallAll(call.b, call.node.op(), AllBatched(call), std::move(attrs), call.node.regions()),
                    results.begin());
  return absl::OkStatus();
}

}  // namespace weft::ops
