// The work of attention's gradient on scores between its products. Scores lie transposed, a row for each key and a
// column for each query, so that maxima and sums of queries run down columns, a query a lane. These are the inner
// loops, one set per instruction set; attention_gradient.cc drives them.
#pragma once

#include <cstdint>

#include "src/backends/cpu/jit/isa.h"

namespace weft::cpu {

// Some keys' scores of `columns` queries, a multiple of kAttentionLanes; strides are that.
struct AttentionColumns {
  int64_t rows = 0, columns = 0;
  float* scores = nullptr;
  float* slopes = nullptr;  // cotangents of probabilities, then of scores
  float scale = 1;
  int64_t hidden = 0;           // row r hides columns before hidden + r
  const float* mask = nullptr;  // null: none
  int64_t mask_stride = 0;      // of its rows, whose elements are as many as columns, or one
  bool mask_one = false;
  float* most = nullptr;   // by query: its largest score
  float* sums = nullptr;   // of exponentials; then one by that
  float* along = nullptr;  // of exponentials times slopes; then that by the sum
};

struct AttentionColumnKernels {
  // scores = scores * scale + mask, -inf where they are hidden; most grows.
  void (*scale)(const AttentionColumns&) = nullptr;
  // scores = exp(scores - most); sums grow.
  void (*exponentials)(const AttentionColumns&) = nullptr;
  // along grows by exponentials times slopes.
  void (*along)(const AttentionColumns&) = nullptr;
  // scores = exponentials * sums, the probabilities p; slopes = p (slopes - along) scale.
  void (*slopes)(const AttentionColumns&) = nullptr;
};
extern const AttentionColumnKernels kAttentionColumnsPortable, kAttentionColumnsAvx2, kAttentionColumnsAvx512;
const AttentionColumnKernels& AttentionColumnKernelsOf(Isa vectors);

}  // namespace weft::cpu
