// The tile of a product in registers, and passes over four columns of a matrix, on any vectors: `Lanes` has a type of elements, a type of vectors, how many elements a
// vector has, and Load, Store, Spread and MultiplyAdd. Included by one file an instruction set, each of which keeps it to itself.
#include <cstdint>

namespace {

template <typename Lanes, int kVectors, int kColumns>
void RunTile(int64_t depth, const typename Lanes::Element* a, const typename Lanes::Element* b,
             typename Lanes::Element* out) {
  typename Lanes::Vector sums[kColumns][kVectors];
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[j][v] = Lanes::Spread(0);
  }
  for (int64_t k = 0; k < depth; ++k, a += kVectors * Lanes::kCount, b += kColumns) {
    typename Lanes::Vector left[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) left[v] = Lanes::Load(a + v * Lanes::kCount);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const typename Lanes::Vector right = Lanes::Spread(b[j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[j][v] = Lanes::MultiplyAdd(left[v], right, sums[j][v]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Lanes::Store(out + (j * kVectors + v) * Lanes::kCount, sums[j][v]);
  }
}

template <typename Lanes>
void AddColumns(int64_t count, const typename Lanes::Element* a, int64_t stride, const typename Lanes::Element* factors,
                typename Lanes::Element* y) {
  typename Lanes::Vector f[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) f[c] = Lanes::Spread(factors[c]);
  int64_t i = 0;
  for (; i + Lanes::kCount <= count; i += Lanes::kCount) {
    typename Lanes::Vector sum = Lanes::Load(y + i);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sum = Lanes::MultiplyAdd(Lanes::Load(a + c * stride + i), f[c], sum);
    Lanes::Store(y + i, sum);
  }
  for (; i < count; ++i) {
    for (int c = 0; c < 4; ++c) y[i] += factors[c] * a[c * stride + i];
  }
}

template <typename Lanes>
typename Lanes::Element SumOf(typename Lanes::Vector x) {
  typename Lanes::Element lanes[Lanes::kCount], sum = 0;
  Lanes::Store(lanes, x);
  for (int i = 0; i < Lanes::kCount; ++i) sum += lanes[i];
  return sum;
}

template <typename Lanes>
void DotColumns(int64_t count, const typename Lanes::Element* a, int64_t stride, const typename Lanes::Element* x,
                typename Lanes::Element* sums) {
  typename Lanes::Vector s[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) s[c] = Lanes::Spread(0);
  int64_t i = 0;
  for (; i + Lanes::kCount <= count; i += Lanes::kCount) {
    const typename Lanes::Vector right = Lanes::Load(x + i);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) s[c] = Lanes::MultiplyAdd(Lanes::Load(a + c * stride + i), right, s[c]);
  }
  for (int c = 0; c < 4; ++c) sums[c] += SumOf<Lanes>(s[c]);
  for (; i < count; ++i) {
    for (int c = 0; c < 4; ++c) sums[c] += a[c * stride + i] * x[i];
  }
}

template <typename Lanes>
void AddAndDotColumns(int64_t count, const typename Lanes::Element* a, int64_t stride,
                      const typename Lanes::Element* factors, typename Lanes::Element* y,
                      const typename Lanes::Element* x, typename Lanes::Element* sums) {
  typename Lanes::Vector f[4], s[4];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    f[c] = Lanes::Spread(factors[c]);
    s[c] = Lanes::Spread(0);
  }
  int64_t i = 0;
  for (; i + Lanes::kCount <= count; i += Lanes::kCount) {
    typename Lanes::Vector sum = Lanes::Load(y + i);
    const typename Lanes::Vector right = Lanes::Load(x + i);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const typename Lanes::Vector element = Lanes::Load(a + c * stride + i);
      sum = Lanes::MultiplyAdd(element, f[c], sum);
      s[c] = Lanes::MultiplyAdd(element, right, s[c]);
    }
    Lanes::Store(y + i, sum);
  }
  for (int c = 0; c < 4; ++c) sums[c] += SumOf<Lanes>(s[c]);
  for (; i < count; ++i) {
    for (int c = 0; c < 4; ++c) {
      y[i] += factors[c] * a[c * stride + i];
      sums[c] += a[c * stride + i] * x[i];
    }
  }
}

}  // namespace
