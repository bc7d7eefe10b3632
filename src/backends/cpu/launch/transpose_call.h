// Copies of a box between two layouts of which each runs along another dimension.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace weft::cpu {

struct TransposeCall {
  struct Along {  // one dimension; strides in elements
    int64_t size = 1, from = 0, to = 0;
  };
  int64_t bytes = 4;  // of an element
  int64_t from_offset = 0, to_offset = 0;
  Along reads, writes;  // whose strides on that side are 1
  absl::InlinedVector<Along, 4> others;
};

std::vector<int64_t> EncodeTranspose(const TransposeCall& call);

}  // namespace weft::cpu
