// The loops of scatter_rows.h, written once over a vector type and compiled per instruction set. Included by
// scatter_rows_{portable,avx2}.cc and scatter_points.cc; everything is in an anonymous namespace and calls nothing that is not.
#include <cstdint>
#include <type_traits>

#include "src/backends/cpu/kernels/scatter/scatter_rows.h"
#include "src/backends/cpu/kernels/tiles/lanes.h"

namespace weft::cpu {
namespace {

constexpr int64_t kLinesAhead =
    128;                            // that are asked for before they are read: a fourth of them took four times as long
constexpr int64_t kLinesOfRow = 8;  // at most, of each
constexpr int64_t kChunk = 256;     // columns whose sums are kept beside each other in the first cache
constexpr int64_t kLookEvery = 1 << 16;  // elements

template <int kBytes, typename T>
using VectorOf = typename Lanes<T, kBytes / static_cast<int>(sizeof(T))>::V;

[[gnu::always_inline]] inline void Ask(const void* row, int64_t bytes) {
  const int64_t end = bytes < kLinesOfRow * 64 ? bytes : kLinesOfRow * 64;
  for (int64_t at = 0; at < end; at += 64) __builtin_prefetch(static_cast<const char*>(row) + at);
}
// How many rows ahead.
inline int64_t RowsAhead(int64_t bytes) {
  const int64_t lines = (bytes + 63) / 64;
  return lines < 2 ? kLinesAhead / 2 : kLinesAhead / (lines < kLinesOfRow ? lines : kLinesOfRow);
}

// --- how two elements combine, one by one and side by side: V is an element or a vector of them

struct SumOf {
  template <typename V>
  [[gnu::always_inline]] static V Of(V a, V b) {
    return static_cast<V>(a + b);
  }
};
struct ProductOf {
  template <typename V>
  [[gnu::always_inline]] static V Of(V a, V b) {
    if constexpr (std::is_integral_v<V>) {
      return static_cast<V>(static_cast<uint64_t>(a) * b);  // narrow ones would become int, which must not overflow
    } else {
      return a * b;
    }
  }
};
struct AndOf {
  template <typename V>
  [[gnu::always_inline]] static V Of(V a, V b) {
    return static_cast<V>(a & b);
  }
};
struct OrOf {
  template <typename V>
  [[gnu::always_inline]] static V Of(V a, V b) {
    return static_cast<V>(a | b);
  }
};
// Bytes that count as 0 or 1.
struct BoolAnd {
  static uint8_t Of(uint8_t a, uint8_t b) { return a != 0 && b != 0; }
};
struct BoolOr {
  static uint8_t Of(uint8_t a, uint8_t b) { return a != 0 || b != 0; }
};
// The first of equals stays. A NaN stays too, and wins over numbers.
template <bool kMax>
struct ExtremeOf {
  template <typename V>
  [[gnu::always_inline]] static V Of(V a, V b) {
    if constexpr (std::is_integral_v<V>) {
      return (kMax ? a < b : b < a) ? b : a;
    } else if constexpr (std::is_floating_point_v<V>) {
      const bool takes = (kMax ? a < b : b < a) || (a == a && b != b);
      return takes ? b : a;
    } else {
      auto takes = kMax ? a < b : b < a;
      if constexpr (std::is_floating_point_v<std::remove_reference_t<decltype(a[0])>>) takes |= (a == a) & (b != b);
      return takes ? b : a;
    }
  }
};
// The same of bf16 or f16: their bits, below the sign, are in the order of the numbers. A NaN becomes quiet, of f16 the one NaN that
// rounding knows.
template <bool kMax, bool kBF16>
struct HalfExtreme {
  static constexpr int kInfinity = kBF16 ? 0x7F80 : 0x7C00;
  static bool IsNan(uint16_t x) { return (x & 0x7FFF) > kInfinity; }
  static int Order(uint16_t x) { return (x & 0x8000) != 0 ? -(x & 0x7FFF) : x; }
  static uint16_t Of(uint16_t a, uint16_t b) {
    const bool less = kMax ? Order(a) < Order(b) : Order(b) < Order(a);
    const uint16_t best = !IsNan(a) && (IsNan(b) || less) ? b : a;
    if (!IsNan(best)) return best;
    return static_cast<uint16_t>(kBF16 ? best | 0x40 : (best & 0x8000) | 0x7E00);
  }
};
struct SetOf {
  template <typename V>
  [[gnu::always_inline]] static V Of(V, V b) {
    return b;
  }
};

// --- rows in the order of the updates

template <typename T, typename Visit>
[[gnu::always_inline]] inline void ForEachRow(const RowBlock& b, Visit visit) {
  const T* const updates = static_cast<const T*>(b.updates);
  const T* const result = static_cast<const T*>(b.result);
  const int64_t bytes = b.run * static_cast<int64_t>(sizeof(T)), ahead = RowsAhead(bytes);
  for (int64_t i = 0; i < b.count && i < ahead; ++i) {
    Ask(result + b.to[b.rows[i]], bytes);
    Ask(updates + b.rows[i] * b.step, bytes);
  }
  for (int64_t i = 0; i < b.count; ++i) {
    const int32_t row = b.rows[i];
    if (i + ahead < b.count) {
      const int32_t later = b.rows[i + ahead];
      Ask(result + b.to[later], bytes);
      Ask(updates + later * b.step, bytes);
    }
    visit(b.to[row], updates + row * b.step);
  }
}
// Elements have no line of their own: what is next is fetched by the processor.
template <typename T, typename Visit>
[[gnu::always_inline]] inline void ForEachElement(const RowBlock& b, Visit visit) {
  const T* const updates = static_cast<const T*>(b.updates);
  for (int64_t i = 0; i < b.count; ++i) visit(b.to[b.rows[i]], updates + b.rows[i] * b.step);
}

template <int kBytes, typename T, typename How, bool kVectors = true>
void Rows(const RowBlock& b) {
  T* const result = static_cast<T*>(b.result);
  if (b.run == 1) {
    return ForEachElement<T>(
        b, [&](int64_t to, const T* x) __attribute__((always_inline)) { result[to] = How::Of(result[to], *x); });
  }
  ForEachRow<T>(b, [&](int64_t to, const T* x) __attribute__((always_inline)) {
    T* const y = result + to;
    int64_t c = 0;
    if constexpr (kVectors) {
      using V = VectorOf<kBytes, T>;
      constexpr int64_t kLanes = kBytes / sizeof(T);
      for (; c + kLanes <= b.run; c += kLanes) Store(y + c, How::Of(Load<V>(y + c), Load<V>(x + c)));
    }
    for (; c < b.run; ++c) y[c] = How::Of(y[c], x[c]);
  });
}

// Adds a term; what rounding takes is taken from the next one (Kahan), nothing of infinities.
template <typename V>
[[gnu::always_inline]] inline void AddTerm(V term, V& sum, V& lost) {
  const V rest = term - lost, after = sum + rest, more = (after - sum) - rest;
  sum = after;
  lost = more - more == V{} ? more : V{};
}

template <int kBytes, typename T>
[[gnu::always_inline]] inline void Add(const T* x, int64_t count, T* sums) {
  using V = VectorOf<kBytes, T>;
  constexpr int64_t kLanes = kBytes / sizeof(T);
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) Store(sums + c, Load<V>(sums + c) + Load<V>(x + c));
  for (; c < count; ++c) sums[c] = sums[c] + x[c];
}
template <int kBytes, typename T>
[[gnu::always_inline]] inline void AddTerms(const T* x, int64_t count, T* sums, T* lost) {
  using V = VectorOf<kBytes, T>;
  constexpr int64_t kLanes = kBytes / sizeof(T);
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    V sum = Load<V>(sums + c), gone = Load<V>(lost + c);
    AddTerm(Load<V>(x + c), sum, gone);
    Store(sums + c, sum);
    Store(lost + c, gone);
  }
  for (; c < count; ++c) AddTerm(x[c], sums[c], lost[c]);
}

template <int kBytes, typename T>
void AddApart(const RowBlock& b) {
  T* const result = static_cast<T*>(b.result);
  T* const lost = static_cast<T*>(b.lost);
  if (b.run == 1) {
    return ForEachElement<T>(
        b, [&](int64_t to, const T* x) __attribute__((always_inline)) { AddTerm(*x, result[to], lost[to]); });
  }
  ForEachRow<T>(b, [&](int64_t to, const T* x)
                       __attribute__((always_inline)) { AddTerms<kBytes>(x, b.run, result + to, lost + to); });
}
template <typename T>
void AddBeside(const RowBlock& b) {
  T* const sums = static_cast<T*>(b.lost);
  ForEachElement<T>(
      b, [&](int64_t to, const T* x) __attribute__((always_inline)) { AddTerm(*x, sums[2 * to], sums[2 * to + 1]); });
}

// --- row after row of the result

// Calls group(first, last, row) for the items of each row of the result, until the launch ends.
template <typename Group>
[[gnu::always_inline]] inline void ForEachGroup(const SortedRows& s, Group group) {
  int64_t left = kLookEvery;
  for (int64_t first = 0, last = 0; first < s.count; first = last) {
    const uint32_t row = s.items[2 * first];
    for (last = first + 1; last < s.count && s.items[2 * last] == row;) ++last;
    group(first, last, row);
    left -= (last - first) * s.columns;
    if (left > 0) continue;
    left = kLookEvery;
    if (s.ends()) return;
  }
}
// Calls term(row) for the updates of one group, some columns of them, until the launch ends.
template <typename T, typename Term>
[[gnu::always_inline]] inline void ForEachTerm(const SortedRows& s, int64_t first, int64_t last, int64_t column,
                                               int64_t columns, Term term) {
  const T* const updates = static_cast<const T*>(s.updates) + column;
  const T* const result = static_cast<const T*>(s.result) + column;
  const int64_t bytes = columns * static_cast<int64_t>(sizeof(T)), ahead = RowsAhead(bytes);
  int64_t left = kLookEvery;
  for (int64_t i = first; i < last; ++i) {
    if (i + ahead < s.count + s.ahead) {
      const uint32_t* const later = s.items + 2 * (i + ahead);
      Ask(updates + later[1] * s.step, bytes);
      if (later[0] != later[-2]) Ask(result + later[0] * s.unit, bytes);
    }
    term(updates + s.items[2 * i + 1] * s.step);
    left -= columns;
    if (left > 0) continue;
    left = kLookEvery;
    if (s.ends()) return;
  }
}

// y = y - rate * sums
template <int kBytes, typename T>
[[gnu::always_inline]] inline void Subtract(const T* sums, T rate, int64_t count, T* y) {
  using V = VectorOf<kBytes, T>;
  constexpr int64_t kLanes = kBytes / sizeof(T);
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) Store(y + c, Load<V>(y + c) - Load<V>(sums + c) * rate);
  for (; c < count; ++c) y[c] = y[c] - sums[c] * rate;
}

template <int kBytes, typename T, bool kSteps>
void SortedFloats(const SortedRows& s) {
  T* const result = static_cast<T*>(s.result);
  T rate = 0, lost[kChunk], held[kChunk];
  if constexpr (kSteps) rate = *static_cast<const T*>(s.rate);
  ForEachGroup(s, [&](int64_t first, int64_t last, uint32_t row) {
    for (int64_t c = 0; c < s.columns; c += kChunk) {
      const int64_t columns = s.columns - c < kChunk ? s.columns - c : kChunk;
      T* const y = result + row * s.unit + c;
      T* const sums = kSteps ? held : y;
      if constexpr (kSteps) {
        for (int64_t k = 0; k < columns; ++k) held[k] = 0;
      }
      if (!s.keeps_lost || last == first + 1) {  // no term follows that would take what is lost
        ForEachTerm<T>(s, first, last, c, columns,
                       [&](const T* x) __attribute__((always_inline)) { Add<kBytes>(x, columns, sums); });
      } else {
        for (int64_t k = 0; k < columns; ++k) lost[k] = 0;
        ForEachTerm<T>(s, first, last, c, columns,
                       [&](const T* x) __attribute__((always_inline)) { AddTerms<kBytes>(x, columns, sums, lost); });
      }
      if constexpr (kSteps) Subtract<kBytes>(sums, rate, columns, y);
    }
  });
}

template <int kBytes, typename How, bool kKeepsLost>
void SortedHalves(const SortedRows& s) {
  using V = VectorOf<kBytes, float>;
  constexpr int64_t kLanes = kBytes / 4;
  uint16_t* const result = static_cast<uint16_t*>(s.result);
  // Whole vectors are computed; nobody reads what lies behind the columns.
  alignas(64) float sums[kChunk] = {}, lost[kChunk], terms[kChunk] = {};
  ForEachGroup(s, [&](int64_t first, int64_t last, uint32_t row) {
    for (int64_t c = 0; c < s.columns; c += kChunk) {
      const int64_t columns = s.columns - c < kChunk ? s.columns - c : kChunk;
      uint16_t* const at = result + row * s.unit + c;
      s.widen(s.dtype, at, columns, sums);
      if constexpr (kKeepsLost) {
        for (int64_t k = 0; k < columns; k += kLanes) Store(lost + k, V{});
      }
      ForEachTerm<uint16_t>(s, first, last, c, columns, [&](const uint16_t* x) __attribute__((always_inline)) {
        s.widen(s.dtype, x, columns, terms);
        for (int64_t k = 0; k < columns; k += kLanes) {
          V sum = Load<V>(sums + k);
          if constexpr (kKeepsLost) {
            V gone = Load<V>(lost + k);
            AddTerm(Load<V>(terms + k), sum, gone);
            Store(lost + k, gone);
          } else {
            sum = How::Of(sum, Load<V>(terms + k));
          }
          Store(sums + k, sum);
        }
      });
      s.narrow(s.dtype, sums, columns, at);
    }
  });
}

template <int kBytes>
void Sorted(const SortedRows& s) {
  if (s.dtype == DType::kF64) {
    return s.rate != nullptr ? SortedFloats<kBytes, double, true>(s) : SortedFloats<kBytes, double, false>(s);
  }
  if (s.dtype == DType::kF32) {
    return s.rate != nullptr ? SortedFloats<kBytes, float, true>(s) : SortedFloats<kBytes, float, false>(s);
  }
  if (s.how == Combine::kProduct) return SortedHalves<kBytes, ProductOf, false>(s);
  s.keeps_lost ? SortedHalves<kBytes, SumOf, true>(s) : SortedHalves<kBytes, SumOf, false>(s);
}

// --- which loop

// Arithmetic that does not see the sign.
template <int kBytes, typename T>
CombineRows OfWidth(Combine how) {
  switch (how) {
    case Combine::kSum: return Rows<kBytes, T, SumOf>;
    case Combine::kProduct: return Rows<kBytes, T, ProductOf>;
    case Combine::kAnd: return Rows<kBytes, T, AndOf>;
    case Combine::kOr: return Rows<kBytes, T, OrOf>;
    default: return Rows<kBytes, T, SetOf>;
  }
}
template <int kBytes, typename T>
CombineRows OfIntegers(Combine how) {
  if (how == Combine::kMax) return Rows<kBytes, T, ExtremeOf<true>>;
  if (how == Combine::kMin) return Rows<kBytes, T, ExtremeOf<false>>;
  return OfWidth<kBytes, std::make_unsigned_t<T>>(how);
}
template <int kBytes, typename T>
CombineRows OfFloats(Combine how) {
  switch (how) {
    case Combine::kSum: return Rows<kBytes, T, SumOf>;
    case Combine::kProduct: return Rows<kBytes, T, ProductOf>;
    case Combine::kMax: return Rows<kBytes, T, ExtremeOf<true>>;
    case Combine::kMin: return Rows<kBytes, T, ExtremeOf<false>>;
    default: return nullptr;
  }
}
template <bool kBF16>
CombineRows OfHalves(Combine how) {
  if (how == Combine::kMax) return Rows<16, uint16_t, HalfExtreme<true, kBF16>, false>;
  if (how == Combine::kMin) return Rows<16, uint16_t, HalfExtreme<false, kBF16>, false>;
  return nullptr;
}

template <int kBytes>
CombineRows CombineOf(DType dtype, Combine how) {
  switch (dtype) {
    case DType::kF32: return OfFloats<kBytes, float>(how);
    case DType::kF64: return OfFloats<kBytes, double>(how);
    case DType::kBF16: return OfHalves<true>(how);
    case DType::kF16: return OfHalves<false>(how);
    case DType::kI8: return OfIntegers<kBytes, int8_t>(how);
    case DType::kI16: return OfIntegers<kBytes, int16_t>(how);
    case DType::kI32: return OfIntegers<kBytes, int32_t>(how);
    case DType::kI64: return OfIntegers<kBytes, int64_t>(how);
    case DType::kU8: return OfIntegers<kBytes, uint8_t>(how);
    case DType::kU16: return OfIntegers<kBytes, uint16_t>(how);
    case DType::kU32: return OfIntegers<kBytes, uint32_t>(how);
    case DType::kU64: return OfIntegers<kBytes, uint64_t>(how);
    case DType::kBool: {
      const bool both = how == Combine::kProduct || how == Combine::kMin || how == Combine::kAnd;
      return both ? Rows<16, uint8_t, BoolAnd, false> : Rows<16, uint8_t, BoolOr, false>;
    }
    default: return nullptr;
  }
}
template <int kBytes>
CombineRows ApartOf(DType dtype) {
  return dtype == DType::kF64 ? AddApart<kBytes, double> : AddApart<kBytes, float>;
}
template <int>
CombineRows BesideOf(DType dtype) {
  return dtype == DType::kF64 ? AddBeside<double> : AddBeside<float>;
}

template <int kBytes>
constexpr ScatterKernels Kernels() {
  return {CombineOf<kBytes>, BesideOf<kBytes>, ApartOf<kBytes>, Sorted<kBytes>};
}

}  // namespace
}  // namespace weft::cpu
