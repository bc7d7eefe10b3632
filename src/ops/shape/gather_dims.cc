// Checks and index arithmetic of gather and scatter.
#include "src/ops/shape/gather_dims.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/ir/stablehlo.h"

namespace weft::ops {
namespace {

using ir::Ints;

bool In(const Ints& list, int64_t value) { return std::find(list.begin(), list.end(), value) != list.end(); }

absl::Status CheckList(std::string_view what, const Ints& list, int64_t limit, bool sorted) {
  for (size_t i = 0; i < list.size(); ++i) {
    const bool repeated = std::find(list.begin(), list.begin() + i, list[i]) != list.begin() + i;
    if (list[i] < 0 || list[i] >= limit || repeated || (sorted && i > 0 && list[i] < list[i - 1])) {
      return UserError(what, " ", DimsToString(list), " must be different dimensions from 0 to ", limit - 1,
                       sorted ? ", ascending" : "");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Ints GatherDims::BatchDims(size_t rank) const {
  Ints batch;
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d) {
    if (!In(window, d)) batch.push_back(d);
  }
  return batch;
}

Ints GatherDims::WindowDims(size_t operand_rank) const {
  Ints dims;
  for (int64_t d = 0; d < static_cast<int64_t>(operand_rank); ++d) {
    if (!In(collapsed, d) && !In(operand_batching, d)) dims.push_back(d);
  }
  return dims;
}

absl::Status CheckGather(const GatherDims& g, const Dims& operand, const Dims& indices) {
  const int64_t rank = operand.size(), index_rank = indices.size();
  if (g.index_vector < 0 || g.index_vector > index_rank) {
    return UserError("index_vector_dim is ", g.index_vector, "; indices of rank ", index_rank, " allow 0 to ",
                     index_rank);
  }
  const int64_t components = g.index_vector == index_rank ? 1 : indices[g.index_vector];
  if (static_cast<int64_t>(g.index_map.size()) != components) {
    return UserError("an index has ", components, " components and names ", g.index_map.size(), " operand dimensions");
  }
  WEFT_RETURN_IF_ERROR(CheckList("the index map", g.index_map, rank, false));
  WEFT_RETURN_IF_ERROR(CheckList("the dimensions without window", g.collapsed, rank, true));
  WEFT_RETURN_IF_ERROR(CheckList("the operand's batching dimensions", g.operand_batching, rank, true));
  WEFT_RETURN_IF_ERROR(CheckList("the indices' batching dimensions", g.index_batching, index_rank, false));
  if (g.operand_batching.size() != g.index_batching.size()) {
    return UserError("the operand has ", g.operand_batching.size(), " batching dimensions and the indices ",
                     g.index_batching.size());
  }
  for (size_t i = 0; i < g.operand_batching.size(); ++i) {
    const int64_t d = g.operand_batching[i], e = g.index_batching[i];
    if (In(g.collapsed, d) || In(g.index_map, d) || e == g.index_vector || operand[d] != indices[e]) {
      return UserError("operand dimension ", d, " cannot run along with indices dimension ", e,
                       ": sizes must agree and neither may have another role");
    }
  }
  if (static_cast<int64_t>(g.sizes.size()) != rank) {
    return UserError("the window has ", g.sizes.size(), " sizes for an operand of rank ", rank);
  }
  for (int64_t d = 0; d < rank; ++d) {
    const bool single = In(g.collapsed, d) || In(g.operand_batching, d);
    if (g.sizes[d] < 0 || g.sizes[d] > operand[d] || (single && g.sizes[d] > 1)) {
      return UserError("the window is ", g.sizes[d], " wide in dimension ", d, " of size ", operand[d],
                       single ? "; there it must be at most 1" : "");
    }
  }
  const int64_t batch = index_rank - (g.index_vector < index_rank ? 1 : 0);
  if (static_cast<int64_t>(g.window.size()) != static_cast<int64_t>(g.WindowDims(rank).size())) {
    return UserError("the result has ", g.window.size(), " window dimensions; the operand leaves ",
                     g.WindowDims(rank).size());
  }
  return CheckList("the window dimensions", g.window, batch + static_cast<int64_t>(g.window.size()), true);
}

Dims GatheredDims(const GatherDims& g, const Dims& operand, const Dims& indices) {
  Dims batch = indices;
  if (g.index_vector < static_cast<int64_t>(batch.size())) batch.erase(batch.begin() + g.index_vector);
  const Ints inner = g.WindowDims(operand.size());
  Dims dims(batch.size() + g.window.size());
  size_t next_batch = 0, next_window = 0;
  for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
    dims[d] = In(g.window, d) ? g.sizes[inner[next_window++]] : batch[next_batch++];
  }
  return dims;
}

void SizeByUpdates(GatherDims& dims, const Dims& operand, const Dims& updates) {
  dims.sizes.assign(operand.size(), 1);
  for (size_t d = 0; d < operand.size(); ++d) dims.sizes[d] = std::min<int64_t>(1, operand[d]);  // nothing is inside
  const Ints inner = dims.WindowDims(operand.size());
  for (size_t k = 0; k < inner.size() && k < dims.window.size(); ++k) {
    const int64_t d = dims.window[k];
    if (d >= 0 && d < static_cast<int64_t>(updates.size())) dims.sizes[inner[k]] = updates[d];
  }
}

std::string ShloScatterDims(const GatherDims& dims) {
  return absl::StrCat("#stablehlo.scatter<update_window_dims = ", ir::ShloList(dims.window),
                      ", inserted_window_dims = ", ir::ShloList(dims.collapsed),
                      ", input_batching_dims = ", ir::ShloList(dims.operand_batching),
                      ", scatter_indices_batching_dims = ", ir::ShloList(dims.index_batching),
                      ", scatter_dims_to_operand_dims = ", ir::ShloList(dims.index_map),
                      ", index_vector_dim = ", dims.index_vector, ">");
}

bool Locate(const GatherDims& g, const HostTensor& indices, const Dims& operand, const Dims& index, bool move_inside,
            Dims* at) {
  Ints batch;
  for (int64_t d : g.BatchDims(index.size())) batch.push_back(index[d]);
  const Dims strides = StridesOf(indices.dims());
  const auto index_rank = static_cast<int64_t>(indices.dims().size());
  int64_t base = 0;
  for (int64_t d = 0, next = 0; d < index_rank; ++d) {
    if (d != g.index_vector) base += batch[next++] * strides[d];
  }
  *at = Dims(operand.size(), 0);
  for (size_t i = 0; i < g.index_map.size(); ++i) {
    const int64_t d = g.index_map[i];
    int64_t start =
        indices.GetInt(base + (g.index_vector < index_rank ? static_cast<int64_t>(i) * strides[g.index_vector] : 0));
    // A u64 above 2^63 looks negative here; it lies beyond the end.
    if (indices.dtype() == DType::kU64 && start < 0) start = operand[d];
    (*at)[d] = move_inside ? std::clamp<int64_t>(start, 0, operand[d] - g.sizes[d]) : start;
  }
  for (size_t i = 0; i < g.operand_batching.size(); ++i) {
    const int64_t e = g.index_batching[i];
    (*at)[g.operand_batching[i]] = batch[e < g.index_vector ? e : e - 1];
  }
  const Ints inner = g.WindowDims(operand.size());
  for (size_t k = 0; k < inner.size(); ++k) (*at)[inner[k]] += index[g.window[k]];
  for (size_t d = 0; d < operand.size(); ++d) {
    if ((*at)[d] < 0 || (*at)[d] >= operand[d]) return false;
  }
  return true;
}

ir::Value HoldInside(ir::Builder& b, const GatherDims& g, const ir::Value& indices, const Dims& operand) {
  const Dims& dims = indices.dims();
  const bool vectors = g.index_vector < static_cast<int64_t>(dims.size());
  HostTensor most(indices.dtype(), vectors ? Dims{static_cast<int64_t>(g.index_map.size())} : Dims{});
  for (size_t i = 0; i < g.index_map.size(); ++i) {
    // Saturates in narrow index types, whose values then never exceed it.
    most.SetDouble(i, static_cast<double>(operand[g.index_map[i]] - g.sizes[g.index_map[i]]));
  }
  ir::Value high = BroadcastInDim(b, Constant(b, std::move(most)), dims, vectors ? Ints{g.index_vector} : Ints{});
  return Call(b, kOp_clamp, {FullLike(b, indices, 0), indices, high});
}

}  // namespace weft::ops
