// The zeros that a convolution reads beside its input and between the pixels that a dilation spreads. By the definition
// they are multiplied with the kernel, and zero times an infinity or a NaN is NaN. Drivers leave such products out, or
// not, as it suits them: what they make of a finite kernel is the same. Results of a kernel that is not finite get
// their NaN here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/backends/cpu/kernels/tiles/geometry.h"

namespace weft::cpu {

// Which operand of a ConvCall is computed from the other two: y, x or w. The kernel is w; for kWeights, y takes its place.
enum class Direction : uint8_t { kForward, kData, kWeights };

// Tells whether a kernel's element meets such a zero at all; false for types without infinities.
bool MeetsZeros(const ConvCall& call, Direction direction);
// Tells whether this stored tap reads such a zero at this pixel of the result; for kWeights, at this pixel of y.
bool MeetsZero(const Geometry& geometry, Direction direction, int64_t pixel, int64_t stored_tap);

// Tells whether one of `count` elements is infinite or NaN.
bool AnyNotFinite(DType dtype, const void* elements, int64_t count);
bool AnyNotFinite(DType dtype, const void* elements, int64_t count, ThreadPool& pool);

// Which columns of which taps of w hold such an element: the byte at tap * columns + column is 1. Columns are those of the result
// of `direction`, which is not kWeights.
void MarkNotFinite(const ConvCall& call, Direction direction, uint8_t* marks);
inline int64_t MarkCount(const ConvCall& call, Direction direction) {
  return PadRank(call.spatial_rank, call.dims).window *
         (direction == Direction::kForward ? call.out_channels : call.in_channels);
}

// The same in front of a packed w: whether there is any, then the marks of the forward pass.
int64_t MarksBytes(const ConvCall& call);
void PackMarks(const ConvCall& call, void* packed, ThreadPool& pool);
const uint8_t* PackedMarks(const void* packed);  // null: all are finite

// An epilogue that makes NaN of the elements of finished blocks that owe it, then calls the call's own.
class NaNOfZeros {
 public:
  // `marks` must stay.
  NaNOfZeros(const ConvCall& call, Direction direction, const uint8_t* marks);
  Epilogue epilogue() { return {Run, this}; }

 private:
  static void Run(void* context, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols);

  const ConvCall& call_;
  const Direction direction_;
  const Geometry geometry_;
  const uint8_t* const marks_;
  const int64_t columns_, pixels_;
  std::vector<int64_t> taps_;  // that have a mark
};

// Writes the NaN that a finished gradient of w lacks. Where every element of y takes part in a sum over the first input channel and
// these sums are finite, y is finite, and the function looks at nothing else.
void MendWeights(const ConvCall& call, ThreadPool& pool);

}  // namespace weft::cpu
