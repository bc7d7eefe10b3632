// Kernels of the library that call generated code on single elements: what their integers say.
#pragma once

#include <cstdint>
#include <vector>

#include "src/backends/cpu/launch/box_call.h"

namespace weft::cpu {

// Rows of `length` elements, `inner` apart; `outer` times `inner` of them.
struct SortCall {
  int64_t outer = 1, length = 0, inner = 1;
  int64_t key_bytes = 0;       // sort_keys: of the unsigned keys
  int64_t captures = 0;        // sort_by
  std::vector<int64_t> bytes;  // of an element, by tensor

  int64_t rows() const { return outer * inner; }
  // Positions in a row fit 32 bits, and so does a key.
  bool narrow() const { return length <= UINT32_MAX && key_bytes <= 4; }
  // The bytes per item of the space that sorting needs, for all rows.
  int64_t ItemBytes() const { return (narrow() ? 4 : 8) * (key_bytes > 0 ? 2 : 1); }
};
std::vector<int64_t> EncodeSort(const SortCall& call);

struct ScatterCall {
  BoxCall boxes;
  int64_t captures = 0;
  std::vector<int64_t> bytes;  // of an element, by tensor
};
std::vector<int64_t> EncodeScatter(const ScatterCall& call);

}  // namespace weft::cpu
