// The boxes of gather and scatter, one element after the other.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>

#include "src/backends/cpu/kernels/tiles/elements.h"
#include "src/backends/cpu/launch/box_call.h"
#include "src/runtime/launch_look.h"

namespace weft::cpu {

inline int64_t ReadIndex(DType dtype, const void* base, int64_t at) {
  int64_t value = 0;
  VisitElement(dtype, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      const T raw = static_cast<const T*>(base)[at];
      // A u64 beyond 2^63 lies beyond every end.
      value = std::is_same_v<T, uint64_t> && static_cast<uint64_t>(raw) > uint64_t{INT64_MAX}
                  ? INT64_MAX
                  : static_cast<int64_t>(raw);
    }
  });
  return value;
}

inline int64_t CountOfBatch(const BoxCall& c) {
  int64_t count = 1;
  for (const auto& b : c.batch) count *= b.size;
  return count;
}

// Corner of box `n`: positions in operand and boxes tensor; `start` per component. `tensors` are the index tensors.
struct Corner {
  int64_t operand = 0, box = 0;
};
inline Corner FindCorner(const BoxCall& c, std::span<void* const> tensors, int64_t n, bool move_inside,
                         int64_t* start) {
  Corner corner;
  int64_t index = 0;
  for (size_t d = c.batch.size(); d-- > 0;) {
    const int64_t i = n % c.batch[d].size;
    n /= c.batch[d].size;
    corner.operand += i * c.batch[d].operand_stride;
    corner.box += i * c.batch[d].box_stride;
    index += i * c.batch[d].index_stride;
  }
  for (size_t k = 0; k < c.components.size(); ++k) {
    const BoxCall::Component& component = c.components[k];
    int64_t at = ReadIndex(c.index_type, tensors[component.tensor], index + component.offset);
    if (move_inside) at = std::clamp<int64_t>(at, 0, std::max<int64_t>(0, component.limit - component.width));
    start[k] = at;
    // Far outside: keep the arithmetic small, the element check refuses it anyway.
    if (at >= -component.limit && at <= 2 * component.limit) corner.operand += at * component.operand_stride;
  }
  return corner;
}

// Boxes of one element that one list of numbers places along one dimension: what is left of the walk then.
inline bool ArePoints(const BoxCall& c) {
  const auto one = [](const BoxCall::Along& along) { return along.size == 1; };
  return c.batch.size() == 1 && c.components.size() == 1 && std::ranges::all_of(c.window, one);
}
template <typename Visit>
void ForEachPointInside(const BoxCall& c, std::span<void* const> tensors, Visit visit) {
  const BoxCall::Component& component = c.components[0];
  const BoxCall::Along& batch = c.batch[0];
  const int64_t most = std::max<int64_t>(0, component.limit - component.width);
  PieceLook look(100);
  VisitElement(c.index_type, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      const T* const indices = static_cast<const T*>(tensors[component.tensor]) + component.offset;
      for (int64_t n = 0; n < batch.size && !look.Ends(); ++n) {
        const T raw = indices[n * batch.index_stride];
        int64_t at = std::cmp_greater(raw, INT64_MAX) ? INT64_MAX : static_cast<int64_t>(raw);
        if (c.move_inside) at = std::clamp<int64_t>(at, 0, most);
        if (at < 0 || at >= component.limit) continue;
        visit(n * batch.operand_stride + at * component.operand_stride, n * batch.box_stride, int64_t{1});
      }
    }
  });
}

// Calls visit(element of the operand, element of the boxes, how many) for what lies inside, box after box, each in row-major order.
// The innermost window dimensions that are dense on both sides, and along which no box can lie half outside, are one run.
template <typename Visit>
void ForEachRunInside(const BoxCall& c, std::span<void* const> tensors, Visit visit) {
  if (ArePoints(c)) return ForEachPointInside(c, tensors, visit);
  int64_t run = 1, window = 1;
  size_t outer = c.window.size();
  const auto is_along = [&](const BoxCall::Component& k) { return k.window == static_cast<int64_t>(outer) - 1; };
  while (outer > 0 && c.window[outer - 1].operand_stride == run && c.window[outer - 1].box_stride == run &&
         std::ranges::none_of(c.components, is_along)) {
    run *= c.window[--outer].size;
  }
  for (size_t d = 0; d < outer; ++d) window *= c.window[d].size;
  if (run == 0) return;
  const int64_t boxes = CountOfBatch(c);
  int64_t start[64];
  int64_t at[64];
  PieceLook look(100 + static_cast<double>(run));
  for (int64_t n = 0; n < boxes; ++n) {
    const Corner corner = FindCorner(c, tensors, n, c.move_inside, start);
    for (int64_t p = 0; p < window; ++p) {
      if (look.Ends()) return;
      int64_t to = corner.operand, from = corner.box, rest = p;
      for (size_t d = outer; d-- > 0;) {
        at[d] = rest % c.window[d].size;
        rest /= c.window[d].size;
        to += at[d] * c.window[d].operand_stride;
        from += at[d] * c.window[d].box_stride;
      }
      bool inside = true;
      for (size_t k = 0; k < c.components.size(); ++k) {
        const BoxCall::Component& component = c.components[k];
        const int64_t along = component.window < 0 ? 0 : at[component.window];
        inside = inside && start[k] >= -along && start[k] < component.limit - along;
      }
      if (inside) visit(to, from, run);
    }
  }
}
// visit(element of the operand, element of the boxes), one by one.
template <typename Visit>
void ForEachInside(const BoxCall& c, std::span<void* const> tensors, Visit visit) {
  ForEachRunInside(c, tensors, [&](int64_t to, int64_t from, int64_t run) {
    for (int64_t i = 0; i < run; ++i) visit(to + i, from + i);
  });
}

}  // namespace weft::cpu
