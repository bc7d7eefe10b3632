// Copies, gather and scatter on the launch list.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/backends/cpu/kernels/elements.h"
#include "src/backends/cpu/launch/box_call.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// params: bytes. Buffers: from, to.
absl::Status RunCopy(const HostCall& call) {
  const int64_t bytes = call.params[0];
  constexpr int64_t kPiece = 256 << 10;
  const char* from = static_cast<const char*>(call.buffers[0]);
  char* to = static_cast<char*>(call.buffers[1]);
  call.pool.ParallelFor((bytes + kPiece - 1) / kPiece, [&](int64_t i) {
    std::memcpy(to + i * kPiece, from + i * kPiece, std::min(kPiece, bytes - i * kPiece));
  });
  return absl::OkStatus();
}

BoxCall DecodeBoxes(std::span<const int64_t> params) {
  size_t at = 0;
  const auto next = [&] { return at < params.size() ? params[at++] : 0; };
  BoxCall c;
  c.dtype = static_cast<DType>(next());
  c.index_type = static_cast<DType>(next());
  c.reducer = next();
  c.move_inside = next() != 0;
  for (auto* list : {&c.batch, &c.window}) {
    const int64_t n = std::clamp<int64_t>(next(), 0, 64);
    for (int64_t i = 0; i < n; ++i) {
      BoxCall::Along a;
      a.size = next();
      a.operand_stride = next();
      a.box_stride = next();
      a.index_stride = next();
      list->push_back(a);
    }
  }
  const int64_t n = std::clamp<int64_t>(next(), 0, 64);
  for (int64_t i = 0; i < n; ++i) {
    BoxCall::Component k;
    k.operand_stride = next();
    k.limit = next();
    k.width = next();
    k.window = next();
    k.tensor = next();
    k.offset = next();
    c.components.push_back(k);
  }
  return c;
}

int64_t ReadIndex(DType dtype, const void* base, int64_t at) {
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

int64_t CountOfBatch(const BoxCall& c) {
  int64_t count = 1;
  for (const auto& b : c.batch) count *= b.size;
  return count;
}

// Corner of box `n`: positions in operand and boxes tensor; `start` per component. `tensors` are the index tensors.
struct Corner {
  int64_t operand = 0, box = 0;
};
Corner FindCorner(const BoxCall& c, std::span<void* const> tensors, int64_t n, bool move_inside, int64_t* start) {
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

// Buffers: operand, index tensors…, boxes.
absl::Status RunGather(const HostCall& call) {
  const BoxCall c = DecodeBoxes(call.params);
  const int64_t bytes = BytesOf(c.dtype);
  const char* operand = static_cast<const char*>(call.buffers[0]);
  char* boxes = static_cast<char*>(call.buffers.back());
  const auto tensors = call.buffers.subspan(1, call.buffers.size() - 2);
  int64_t window = 1;
  for (const auto& w : c.window) window *= w.size;
  if (window == 0) return absl::OkStatus();
  // The innermost window dimensions that are dense on both sides move as one piece.
  int64_t run = 1;
  size_t outer = c.window.size();
  while (outer > 0 && c.window[outer - 1].operand_stride == run && c.window[outer - 1].box_stride == run)
    run *= c.window[--outer].size;
  const int64_t pieces = window / run;
  call.pool.ParallelRanges(CountOfBatch(c), [&](int64_t begin, int64_t end, int) {
    int64_t start[64];
    for (int64_t n = begin; n < end; ++n) {
      const Corner corner = FindCorner(c, tensors, n, true, start);
      for (int64_t p = 0; p < pieces; ++p) {
        int64_t from = corner.operand, to = corner.box, rest = p;
        for (size_t d = outer; d-- > 0;) {
          const int64_t i = rest % c.window[d].size;
          rest /= c.window[d].size;
          from += i * c.window[d].operand_stride;
          to += i * c.window[d].box_stride;
        }
        std::memcpy(boxes + to * bytes, operand + from * bytes, static_cast<size_t>(run * bytes));
      }
    }
  });
  return absl::OkStatus();
}

template <typename T>
typename ElementRule<T>::Sum CombineElements(int64_t reducer, typename ElementRule<T>::Sum a,
                                             typename ElementRule<T>::Sum b) {
  using Sum = typename ElementRule<T>::Sum;
  switch (reducer) {
    case 0: return ElementRule<T>::Add(a, b);
    case 1: return ElementRule<T>::Multiply(a, b);
    case 2:
    case 3:
      if constexpr (std::is_floating_point_v<Sum>) {
        if (std::isnan(a)) return a;
        if (std::isnan(b)) return b;
      }
      return reducer == 2 ? std::max(a, b) : std::min(a, b);
    case 4:
    case 5:
      if constexpr (std::is_integral_v<Sum>) return static_cast<Sum>(reducer == 4 ? a & b : a | b);
      return b;
    default: return b;
  }
}

// Buffers: updates, index tensors…, result (which holds the operand already). One thread: the order of updates to one
// place decides the bits.
absl::Status RunScatter(const HostCall& call) {
  const BoxCall c = DecodeBoxes(call.params);
  const auto tensors = call.buffers.subspan(1, call.buffers.size() - 2);
  int64_t window = 1;
  for (const auto& w : c.window) window *= w.size;
  const int64_t boxes = CountOfBatch(c);
  VisitElement(c.dtype, [&]<typename T>() {
    using Rule = ElementRule<T>;
    const T* updates = static_cast<const T*>(call.buffers[0]);
    T* result = static_cast<T*>(call.buffers.back());
    int64_t start[64];
    int64_t at[64];
    for (int64_t n = 0; n < boxes; ++n) {
      const Corner corner = FindCorner(c, tensors, n, c.move_inside, start);
      for (int64_t p = 0; p < window; ++p) {
        int64_t to = corner.operand, from = corner.box, rest = p;
        for (size_t d = c.window.size(); d-- > 0;) {
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
        if (!inside) continue;
        if (c.reducer == BoxCall::kSet) {
          result[to] = updates[from];
        } else {
          result[to] = Rule::Store(CombineElements<T>(c.reducer, Rule::Load(result[to]), Rule::Load(updates[from])));
        }
      }
    }
  });
  return absl::OkStatus();
}

constexpr HostKernel kKernels[] = {
    {"copy", RunCopy},
    {"gather", RunGather},
    {"scatter", RunScatter},
};

}  // namespace

std::vector<int64_t> EncodeBoxes(const BoxCall& c) {
  std::vector<int64_t> out = {static_cast<int64_t>(c.dtype), static_cast<int64_t>(c.index_type), c.reducer,
                              c.move_inside};
  for (const auto* list : {&c.batch, &c.window}) {
    out.push_back(static_cast<int64_t>(list->size()));
    for (const BoxCall::Along& a : *list)
      out.insert(out.end(), {a.size, a.operand_stride, a.box_stride, a.index_stride});
  }
  out.push_back(static_cast<int64_t>(c.components.size()));
  for (const BoxCall::Component& k : c.components) {
    out.insert(out.end(), {k.operand_stride, k.limit, k.width, k.window, k.tensor, k.offset});
  }
  return out;
}

std::span<const HostKernel> MovementKernels() { return kKernels; }

}  // namespace weft::cpu
