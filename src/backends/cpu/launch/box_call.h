// Gather and scatter as strides: boxes of an operand whose corners stand in index tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/runtime/dtype.h"

namespace weft::cpu {

struct BoxCall {
  static constexpr int64_t kSet = 6;  // reducers 0 to 5 are ops::Reducer

  struct Along {  // one dimension of the boxes tensor
    int64_t size = 1, operand_stride = 0, box_stride = 0, index_stride = 0;
  };
  struct Component {  // one number of a corner
    int64_t operand_stride = 0, limit = 0, width = 1;
    int64_t window = -1;  // window dimension that runs along the same operand dimension
    int64_t tensor = 0;   // which index tensor
    int64_t offset = 0;   // in it
  };

  DType dtype = DType::kInvalid, index_type = DType::kInvalid;
  int64_t reducer = kSet;
  bool move_inside = false;  // scatter: hold boxes inside as gather does, instead of dropping elements outside
  // Scatter that adds floats: whether what rounding took from each sum is kept, in an array as large as the result, or, where boxes
  // are elements, beside each sum in one of twice its size; of a result of so many elements. Where parts of the boxes reach parts of
  // the result of their own: a part's, in scratch.
  enum Lost : int64_t { kForgotten, kApart, kBeside, kOfRegion };
  int64_t lost = kForgotten, elements = 0;
  // Decoded for each call, thousands of times in a loop: without a heap.
  absl::InlinedVector<Along, 4> batch, window;
  absl::InlinedVector<Component, 4> components;
};

// Tells whether a scatter has a buffer for what its sums lose.
inline bool HasSpace(const BoxCall& call) { return call.lost == BoxCall::kApart || call.lost == BoxCall::kBeside; }

std::vector<int64_t> EncodeBoxes(const BoxCall& call);
BoxCall DecodeBoxes(std::span<const int64_t> params);

}  // namespace weft::cpu
