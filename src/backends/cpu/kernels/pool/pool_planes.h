// Max-pooling of images whose rows lie one after another, a plane at a time: vectors run along columns. pool_planes.cc finds
// out whom that serves and deals out the planes; these are the loops, one set per instruction set.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "src/backends/cpu/jit/isa.h"
#include "src/backends/cpu/kernels/kernels.h"
#include "src/backends/cpu/kernels/tiles/halves.h"

namespace weft::cpu {

constexpr int64_t kMostPlaneTaps = 8;  // of a window, in each dimension

// One plane, and a thread's working memory for any number of them. A row of the image is split into phases: columns `stride`
// apart, the padding before the image counted, side by side. So the taps of neighbouring outputs are neighbours.
struct PlaneRun {
  SpatialDim rows, columns;
  DType dtype = DType::kF32;
  const HalvesKernels* halves = nullptr;
  const void* x = nullptr;
  void* y = nullptr;         // forward
  const void* dy = nullptr;  // backward
  void* dx = nullptr;

  bool nan_gives_way = false;  // backward

  int64_t taps[kMostPlaneTaps] = {};  // of columns: where each one's first element is in a split row

  int64_t phase = 0;   // elements of a phase and of a row of results
  int64_t row = 0;     // elements of a split row
  int64_t choice = 0;  // elements of a row of choices, with what is left and right of it
  int64_t split_rows = 0, best_rows = 0, choice_rows = 0;  // rows that are kept, by their number and these bits
  int64_t choice_before = 0;   // rows of outputs that see the same row of the image, but one
  float start = 0;             // of the sums; -0, which an addition loses, where there is but one summand
  float* line = nullptr;       // a row of any image in f32
  float* split = nullptr;      // -inf where there is padding
  float* best = nullptr;       // forward: the best of each row's taps
  float* nothing = nullptr;    // forward: a row of -inf
  int32_t* first = nullptr;    // backward: of each column of outputs, the first tap that is no padding
  int32_t* padding = nullptr;  // backward: by phase, -1 where there is padding
  int32_t* chosen = nullptr;   // backward: of each window, which tap; -1 left and right of them
  float* given = nullptr;      // backward: dy
};
constexpr int64_t kPlaneMargin = 16;  // elements left of a row of choices

struct PlaneKernels {
  void (*forward)(const PlaneRun&) = nullptr;
  void (*backward)(const PlaneRun&) = nullptr;
};
extern const PlaneKernels kPlanesPortable, kPlanesAvx2, kPlanesAvx512;

// Tells whether these loops serve: max-pools of one channel over rows and columns.
bool PoolsPlanes(const PoolCall& call, bool backward);
int64_t BytesOfPlanes(const PoolCall& call, Isa isa, bool backward);  // of a share's scratch, in kTables
absl::Status PoolPlanes(const PoolCall& call, Isa isa, ThreadPool& pool);
absl::Status PoolPlanesBackward(const PoolBackwardCall& call, Isa isa, ThreadPool& pool);

}  // namespace weft::cpu
