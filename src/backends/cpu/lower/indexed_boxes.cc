// See indexed_boxes.h.
#include "src/backends/cpu/lower/indexed_boxes.h"

#include <algorithm>

namespace weft::cpu {

using ir::Ints;
using ir::Value;

namespace {

bool In(const Ints& list, int64_t value) { return std::find(list.begin(), list.end(), value) != list.end(); }

}  // namespace

BoxCall IndexedBoxes(const Dims& operand, const Value& indices, const Dims& boxes, const IndexedDims& dims) {
  const auto& [window, collapsed, index_map, index_vector, operand_batching, index_batching] = dims;
  BoxCall call;
  call.index_type = indices.dtype();
  const Dims operand_strides = StridesOf(operand), box_strides = StridesOf(boxes),
             index_strides = StridesOf(indices.dims());
  std::vector<int64_t> window_of(operand.size(), -1);  // operand dimension to window dimension
  Ints inner;
  for (int64_t d = 0; d < static_cast<int64_t>(operand.size()); ++d) {
    if (!In(collapsed, d) && !In(operand_batching, d)) inner.push_back(d);
  }
  for (size_t k = 0; k < window.size(); ++k) {
    window_of[inner[k]] = static_cast<int64_t>(k);
    call.window.push_back({boxes[window[k]], operand_strides[inner[k]], box_strides[window[k]], 0});
  }
  Ints batch;
  for (int64_t d = 0; d < static_cast<int64_t>(boxes.size()); ++d) {
    if (!In(window, d)) batch.push_back(d);
  }
  size_t next = 0;
  for (int64_t e = 0; e < static_cast<int64_t>(indices.dims().size()); ++e) {
    if (e == index_vector) continue;
    int64_t along = 0;
    for (size_t i = 0; i < index_batching.size(); ++i) {
      if (index_batching[i] == e) along = operand_strides[operand_batching[i]];
    }
    const int64_t d = batch[next++];
    call.batch.push_back({boxes[d], along, box_strides[d], index_strides[e]});
  }
  for (size_t i = 0; i < index_map.size(); ++i) {
    const int64_t d = index_map[i];
    const bool scalars = index_vector == static_cast<int64_t>(indices.dims().size());
    const int64_t width = window_of[d] < 0 ? 1 : call.window[window_of[d]].size;
    call.components.push_back({operand_strides[d], operand[d], width, window_of[d], 0,
                               scalars ? 0 : static_cast<int64_t>(i) * index_strides[index_vector]});
  }
  return call;
}

}  // namespace weft::cpu
