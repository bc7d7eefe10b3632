// Single elements of scatter (scatter_rows.h).
#include "src/backends/cpu/kernels/scatter/scatter_rows_lanes.h"
#include "src/backends/cpu/kernels/tiles/elements.h"

namespace weft::cpu {
namespace {

// The walk over the numbers. kAhead: places are asked for so many elements before; 0: they are near.
template <typename Index, int64_t kAhead, typename Visit>
[[gnu::always_inline]] inline void Walk(const PointRun& p, const void* where, uint64_t bytes, Visit visit) {
  const Index* const indices = static_cast<const Index*>(p.indices);
  for (int64_t i = 0; i < p.count; ++i) {
    if (kAhead > 0 && i + kAhead < p.count) {
      const auto number = static_cast<uint64_t>(indices[(i + kAhead) * p.index_step]);  // perhaps outside
      const uint64_t later = number * static_cast<uint64_t>(p.stride) + static_cast<uint64_t>(i * p.along);
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(where) + later * bytes), 1);
    }
    const int64_t at = indices[i * p.index_step];
    if (static_cast<uint64_t>(at) < static_cast<uint64_t>(p.limit)) visit(i * p.along + at * p.stride, i * p.step);
  }
}
// `where`: the memory of place 0, of elements so large.
template <typename Index, typename Visit>
[[gnu::always_inline]] inline void ForEachPoint(PointRun p, const void* where, uint64_t bytes, Visit visit) {
  constexpr int64_t kAhead = 32, kNear = 256 << 10;
  if (p.index_step == 1 && p.step == 1 && p.stride == 1 && p.along == 0) {
    p.index_step = p.step = p.stride = 1;  // as constants
    p.along = 0;
    if (p.limit * static_cast<int64_t>(bytes) <= kNear) return Walk<Index, 0>(p, where, bytes, visit);
    return Walk<Index, kAhead>(p, where, bytes, visit);
  }
  Walk<Index, kAhead>(p, where, bytes, visit);
}

template <typename Index, typename T, typename How>
void Points(const PointRun& p) {
  T* const result = static_cast<T*>(p.result);
  const T* const updates = static_cast<const T*>(p.updates);
  ForEachPoint<Index>(p, result, sizeof(T),
                      [&](int64_t to, int64_t from) { result[to] = How::Of(result[to], updates[from]); });
}
template <typename Index, typename T>
void PointsApart(const PointRun& p) {
  T* const sums = static_cast<T*>(p.result);
  T* const lost = static_cast<T*>(p.lost);
  const T* const updates = static_cast<const T*>(p.updates);
  ForEachPoint<Index>(p, sums, sizeof(T),
                      [&](int64_t to, int64_t from) { AddTerm(updates[from], sums[to], lost[to]); });
}
template <typename Index, typename T>
void PointsBeside(const PointRun& p) {
  T* const sums = static_cast<T*>(p.lost);
  const T* const updates = static_cast<const T*>(p.updates);
  ForEachPoint<Index>(p, sums, 2 * sizeof(T),
                      [&](int64_t to, int64_t from) { AddTerm(updates[from], sums[2 * to], sums[2 * to + 1]); });
}

template <typename Index, typename T>
CombinePoints OfNumbers(Combine how) {
  switch (how) {
    case Combine::kSum: return Points<Index, T, SumOf>;
    case Combine::kProduct: return Points<Index, T, ProductOf>;
    case Combine::kMax: return Points<Index, T, ExtremeOf<true>>;
    case Combine::kMin: return Points<Index, T, ExtremeOf<false>>;
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (how == Combine::kAnd) return Points<Index, T, AndOf>;
    if (how == Combine::kOr) return Points<Index, T, OrOf>;
    return Points<Index, T, SetOf>;
  } else {
    return nullptr;
  }
}
template <typename Index>
CombinePoints OfTypes(DType dtype, Combine how) {
  CombinePoints found = nullptr;
  VisitElement(dtype, [&]<typename T>() {
    if constexpr (std::is_arithmetic_v<T>) found = OfNumbers<Index, T>(how);
  });
  return found;
}

}  // namespace

CombinePoints PointsOf(DType dtype, Combine how, bool wide_index) {
  return wide_index ? OfTypes<int64_t>(dtype, how) : OfTypes<int32_t>(dtype, how);
}
CombinePoints AddPointsBeside(DType dtype, bool wide_index) {
  if (dtype == DType::kF64) return wide_index ? PointsBeside<int64_t, double> : PointsBeside<int32_t, double>;
  return wide_index ? PointsBeside<int64_t, float> : PointsBeside<int32_t, float>;
}
CombinePoints AddPointsApart(DType dtype, bool wide_index) {
  if (dtype == DType::kF64) return wide_index ? PointsApart<int64_t, double> : PointsApart<int32_t, double>;
  return wide_index ? PointsApart<int64_t, float> : PointsApart<int32_t, float>;
}

}  // namespace weft::cpu
