// The inner loops of attention_columns.h, as attention_rows_lanes.h has those of the other.
#pragma once

#include "src/backends/cpu/kernels/attention/attention_columns.h"
#include "src/backends/cpu/kernels/attention/attention_rows_lanes.h"

namespace weft::cpu {
namespace {

// Vectors that go down their columns side by side.
constexpr int kColumnVectors = 4;

// Calls f.template operator()<n>(column) for runs of n vectors, n being kColumnVectors or 1.
template <int kLanes, typename F>
[[gnu::always_inline]] inline void ForEachRun(const AttentionColumns& run, F f) {
  int64_t column = 0;
  for (; column + kColumnVectors * kLanes <= run.columns; column += kColumnVectors * kLanes) {
    f.template operator()<kColumnVectors>(column);
  }
  for (; column < run.columns; column += kLanes) f.template operator()<1>(column);
}

template <int kLanes>
void ScaleColumns(const AttentionColumns& run) {
  using V = typename Lanes<float, kLanes>::V;
  ForEachRun<kLanes>(run, [&]<int n>(int64_t column) {
    V most[n];
    Unroll<n>([&]<int i>() { most[i] = Load<V>(run.most + column + i * kLanes); });
    for (int64_t r = 0; r < run.rows; ++r) {
      float* const s = run.scores + r * run.columns + column;
      const float* const mask = run.mask == nullptr ? nullptr : run.mask + r * run.mask_stride;
      V x[n];
      Unroll<n>([&]<int i>() {
        const V score = Load<V>(s + i * kLanes);
        if (mask == nullptr) {
          x[i] = score * run.scale;
        } else {
          x[i] = Fused(score, All<V>(run.scale), run.mask_one ? All<V>(*mask) : Load<V>(mask + column + i * kLanes));
        }
        Store(s + i * kLanes, x[i]);
      });
      if (run.hidden + r > column) {
        for (int64_t c = 0; c < n * kLanes && column + c < run.hidden + r; ++c) s[c] = -kInfinity;
        Unroll<n>([&]<int i>() { x[i] = Load<V>(s + i * kLanes); });
      }
      Unroll<n>([&]<int i>() { most[i] = x[i] > most[i] ? x[i] : most[i]; });  // NaN comes back as exp's
    }
    Unroll<n>([&]<int i>() { Store(run.most + column + i * kLanes, most[i]); });
  });
}

template <int kLanes>
void ColumnExponentials(const AttentionColumns& run) {
  using V = typename Lanes<float, kLanes>::V;
  ForEachRun<kLanes>(run, [&]<int n>(int64_t column) {
    V base[n], sums[n];
    Unroll<n>([&]<int i>() {
      const V most = Load<V>(run.most + column + i * kLanes);
      base[i] = most == All<V>(-kInfinity) ? V{} : most;  // sees no key: all are 0
      sums[i] = Load<V>(run.sums + column + i * kLanes);
    });
    for (int64_t r = 0; r < run.rows; ++r) {
      float* const s = run.scores + r * run.columns + column;
      Unroll<n>([&]<int i>() {
        const V p = Exp<kLanes>(Load<V>(s + i * kLanes) - base[i]);
        sums[i] += p;
        Store(s + i * kLanes, p);
      });
    }
    Unroll<n>([&]<int i>() { Store(run.sums + column + i * kLanes, sums[i]); });
  });
}

template <int kLanes>
void AlongColumns(const AttentionColumns& run) {
  using V = typename Lanes<float, kLanes>::V;
  ForEachRun<kLanes>(run, [&]<int n>(int64_t column) {
    V along[n];
    Unroll<n>([&]<int i>() { along[i] = Load<V>(run.along + column + i * kLanes); });
    for (int64_t r = 0; r < run.rows; ++r) {
      const int64_t at = r * run.columns + column;
      Unroll<n>([&]<int i>() {
        along[i] = Fused(Load<V>(run.scores + at + i * kLanes), Load<V>(run.slopes + at + i * kLanes), along[i]);
      });
    }
    Unroll<n>([&]<int i>() { Store(run.along + column + i * kLanes, along[i]); });
  });
}

template <int kLanes>
void ColumnSlopes(const AttentionColumns& run) {
  using V = typename Lanes<float, kLanes>::V;
  ForEachRun<kLanes>(run, [&]<int n>(int64_t column) {
    V factor[n], along[n];
    Unroll<n>([&]<int i>() {
      factor[i] = Load<V>(run.sums + column + i * kLanes);
      along[i] = Load<V>(run.along + column + i * kLanes);
    });
    for (int64_t r = 0; r < run.rows; ++r) {
      const int64_t at = r * run.columns + column;
      Unroll<n>([&]<int i>() {
        float* const s = run.scores + at + i * kLanes;
        float* const slope = run.slopes + at + i * kLanes;
        const V p = Load<V>(s) * factor[i];
        Store(s, p);
        Store(slope, (Load<V>(slope) - along[i]) * p * run.scale);
      });
    }
  });
}

template <int kLanes>
constexpr AttentionColumnKernels ColumnKernels() {
  return {ScaleColumns<kLanes>, ColumnExponentials<kLanes>, AlongColumns<kLanes>, ColumnSlopes<kLanes>};
}

}  // namespace
}  // namespace weft::cpu
