// The work of attention on scores between its two products: scale, mask, exponentials with the running maximum and sum
// of each query, and in the end the division. These are the inner loops, one set per instruction set; attention.cc
// drives them.
#pragma once

#include <cstdint>

#include "src/backends/cpu/jit/isa.h"

namespace weft::cpu {

// The number of running sums of one query, to which rows of scores and values are padded: the most lanes of any set.
inline constexpr int64_t kAttentionLanes = 16;
// So many exponentials lie as their first halves, then their second ones, where both are bf16.
inline constexpr int64_t kHalvesRun = 32;

enum class AttentionMask : uint8_t {
  kNone,
  kOne,  // one element for all keys
  kF32,
  kBF16,
};

// Scores of some queries and some keys become exp(score * scale + mask - most). Strides count elements.
struct AttentionRows {
  float* scores = nullptr;
  int64_t stride = 0, rows = 0, columns = 0;
  int64_t seen = 0;  // row r sees columns before seen + r
  float scale = 1;
  AttentionMask kind = AttentionMask::kNone;
  const void* mask = nullptr;
  int64_t mask_stride = 0;
  bool mask_bf16 = false;      // of kOne
  uint16_t* narrow = nullptr;  // where they go as bf16, rows as far apart as scores; null: in place of the scores
  uint16_t* rest = nullptr;    // there, too: what rounding them took away
  float* most = nullptr;       // [rows], -inf at first
  float* sums = nullptr;       // [rows, kAttentionLanes], 0 at first
  float* values = nullptr;     // [rows, value_stride] of earlier keys, brought to the new maximum; null: there are none
  int64_t value_stride = 0;
};

// The columns, where exponentials are halves, that one of the 32 rows around `row` sees; some, if there are no earlier keys.
[[gnu::always_inline]] inline int64_t ColumnsOf(const AttentionRows& run, int64_t row) {
  const int64_t last = (row | 31) < run.rows ? row | 31 : run.rows - 1, least = run.values == nullptr ? 1 : 0;
  const int64_t seen = run.seen + last < run.columns ? run.seen + last : run.columns;
  return seen > least ? seen : least;
}

// out = values / sums. A sum is 0 where a query saw no key: the largest exponential is 1.
struct AttentionResult {
  const float* values = nullptr;
  const float* sums = nullptr;
  int64_t value_stride = 0, rows = 0, width = 0;
  void* out = nullptr;
  int64_t out_stride = 0;
  bool bf16 = false;
  bool nan_if_unseen = false;  // 0 / 0 instead of 0
};

struct AttentionKernels {
  void (*exponentials)(const AttentionRows&) = nullptr;
  // The same, but they become two bf16 each, which add up to them but for 2^-14 at most, in place: kHalvesRun first ones,
  // then as many second ones, zeros up to the end of the last run of ColumnsOf. `most` is in powers of 2.
  void (*halves)(const AttentionRows&) = nullptr;
  void (*finish)(const AttentionResult&) = nullptr;
  void (*finish_halves)(const AttentionResult&) = nullptr;  // of bf16, times one by the sum
  void (*exp)(const float* x, float* y,
              int64_t count) = nullptr;  // of what is not positive; count a multiple of the lanes
};
extern const AttentionKernels kAttentionPortable, kAttentionAvx2, kAttentionAvx512;
// Tiles come with AVX-512; without it they are the model's, and this suffices.
void HalvesPortable(const AttentionRows& run);
void FinishHalvesPortable(const AttentionResult& run);
// The loops for a CpuTarget's isa.
const AttentionKernels& AttentionKernelsOf(Isa vectors);

}  // namespace weft::cpu
