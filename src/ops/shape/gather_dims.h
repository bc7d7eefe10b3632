// The dimension numbers that gather and scatter share: which box of the operand each index vector names.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

inline constexpr int64_t kScatterSet =
    6;  // of scatter's reducers, the others are Reducer's: the update takes the place

struct GatherDims {
  ir::Ints window;            // result (or update) dimensions that run within a box
  ir::Ints collapsed;         // operand dimensions of box size 1 that the result does not have
  ir::Ints index_map;         // operand dimension of each component of an index vector
  int64_t index_vector = 0;   // dimension of the indices that holds the components; their rank: scalars
  ir::Ints operand_batching;  // operand dimensions that run along with …
  ir::Ints index_batching;    // … these dimensions of the indices
  ir::Ints sizes;             // of the box, one entry an operand dimension

  // The result's dimensions outside the window.
  ir::Ints BatchDims(size_t rank) const;
  // Operand dimensions within the window, ascending: the k-th one is result dimension window[k].
  ir::Ints WindowDims(size_t operand_rank) const;
};

// Everything but the result's own shape.
absl::Status CheckGather(const GatherDims& dims, const Dims& operand, const Dims& indices);
// The result of a gather, the updates of a scatter.
Dims GatheredDims(const GatherDims& dims, const Dims& operand, const Dims& indices);

// Sets the box of a scatter to the sizes of the updates' window.
void SizeByUpdates(GatherDims& dims, const Dims& operand, const Dims& updates);
// StableHLO's dimension numbers of a scatter.
std::string ShloScatterDims(const GatherDims& dims);

// Where result element `index` lies in the operand. Boxes are moved inside (gather), or an element outside
// makes it false (scatter).
bool Locate(const GatherDims& dims, const HostTensor& indices, const Dims& operand, const Dims& index, bool move_inside,
            Dims* at);

// The indices held so that every box lies inside.
ir::Value HoldInside(ir::Builder& b, const GatherDims& dims, const ir::Value& indices, const Dims& operand);

}  // namespace weft::ops
