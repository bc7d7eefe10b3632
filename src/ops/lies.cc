// See lies.h.
#include "src/ops/lies.h"

#include <algorithm>

namespace weft::ops {
namespace {

using ir::LieCall;
using ir::Sharding;

bool Takes(const Sharding& sharding, uint32_t axis) {
  return std::ranges::any_of(sharding.dimensions, [axis](const Sharding::Dimension& dimension) {
    return std::ranges::find(dimension.axes, axis) != dimension.axes.end();
  });
}

// The operand's dimension whose index each index of the result is, one an operand dimension; -1: no such.
std::vector<int64_t> Sources(const ir::Node& node) {
  const size_t rank = node.type().rank();
  const ir::AffineIndex zero = {0, std::vector<int64_t>(rank)};
  std::vector<ir::AffineIndex> indices(rank, zero);
  for (size_t d = 0; d < rank; ++d) indices[d].coefficients[d] = 1;
  const absl::StatusOr<std::vector<ir::AffineIndex>> map = node.op().index_map({node, indices, zero});
  std::vector<int64_t> sources(node.operands()[0].dims().size(), -1);
  if (!map.ok() || map->size() != sources.size()) return sources;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto found = std::ranges::find(indices, (*map)[i].coefficients, &ir::AffineIndex::coefficients);
    if (found != indices.end() && (*map)[i].offset == 0) sources[i] = found - indices.begin();
  }
  return sources;
}

}  // namespace

void LieAs(const LieCall& call, const Sharding& operand, int64_t from, int64_t to, Sharding* result) {
  if (from >= static_cast<int64_t>(operand.dimensions.size())) return;
  const Sharding::Dimension& cut = operand.dimensions[static_cast<size_t>(from)];
  const auto at = static_cast<size_t>(to);
  if (cut.axes.empty()) return;
  if (at < result->dimensions.size() && !result->dimensions[at].axes.empty()) return;
  int64_t pieces = 1;
  for (const uint32_t axis : cut.axes) {
    if (Takes(*result, axis)) return;
    pieces *= call.mesh.axes[axis].size;
  }
  if (call.node.type().dims[at] % pieces != 0) return;
  if (result->dimensions.size() <= at) result->dimensions.resize(at + 1);
  result->dimensions[at].axes = cut.axes;
}

Sharding LiesAlong(const LieCall& call, std::span<const int64_t> kept) {
  Sharding result;
  for (size_t d = 0; d < kept.size(); ++d) LieAs(call, call.operands[0], kept[d], static_cast<int64_t>(d), &result);
  return result;
}

Sharding Lies(const LieCall& call) {
  const ir::Node& node = call.node;
  if (node.op().lies != nullptr) return node.op().lies(call);
  Sharding result;
  const Dims& dims = node.type().dims;
  if (node.op().index_map != nullptr && !node.operands().empty()) {
    const std::vector<int64_t> sources = Sources(node);
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i] < 0 || node.operands()[0].dims()[i] != dims[static_cast<size_t>(sources[i])]) continue;
      LieAs(call, call.operands[0], static_cast<int64_t>(i), sources[i], &result);
    }
    return result;
  }
  for (size_t o = 0; o < node.operands().size(); ++o) {
    const ir::Value& operand = node.operands()[o];
    if (!operand || !operand.type().is_tensor() || operand.dims().size() != dims.size()) continue;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (operand.dims()[d] != dims[d]) continue;
      LieAs(call, call.operands[o], static_cast<int64_t>(d), static_cast<int64_t>(d), &result);
    }
  }
  return result;
}

}  // namespace weft::ops
