// Deals the planes of a max-pool out to the threads. See pool_planes.h.
#include "src/backends/cpu/kernels/pool/pool_planes.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "src/backends/cpu/kernels/pool/pool2d.h"
#include "src/backends/cpu/kernels/scratch.h"
#include "src/backends/cpu/kernels/tiles/geometry.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/thread_pool.h"

namespace weft::cpu {
namespace {

int64_t RoundUp(int64_t count) { return (count + kPlaneMargin - 1) / kPlaneMargin * kPlaneMargin; }
const PlaneKernels& KernelsOf(Isa isa) {
  return isa == Isa::kAvx512 ? kPlanesAvx512 : isa == Isa::kAvx2 ? kPlanesAvx2 : kPlanesPortable;
}
bool Overlaps(const SpatialDim& dim) { return dim.stride < dim.window; }

// A thread's PlaneRun in its memory.
class Workplace {
 public:
  Workplace(const PoolCall& call, Isa isa, bool backward) : backward_(backward) {
    const Geometry geometry = PadRank(call.spatial_rank, call.dims);
    const SpatialDim &h = run_.rows = geometry.dims[kMaxSpatialDims - 2],
                     &w = run_.columns = geometry.dims[kMaxSpatialDims - 1];
    run_.dtype = call.dtype;
    run_.halves = &HalvesKernelsOf(isa);
    run_.nan_gives_way = call.nan_gives_way;
    if (!Overlaps(h) && !Overlaps(w)) run_.start = -0.0f;
    const int64_t reach = (w.window - 1) * w.rhs_dilation;
    const int64_t columns = (w.in - 1 + w.pad_lo) / w.stride + 1;
    run_.phase = std::max(RoundUp(w.out) + RoundUp(reach / w.stride), RoundUp(columns));
    run_.row = w.stride * run_.phase;
    for (int64_t b = 0; b < w.window; ++b) {
      run_.taps[b] = b * w.rhs_dilation % w.stride * run_.phase + b * w.rhs_dilation / w.stride;
    }
    line_ = RoundUp(std::max(w.in, w.out) + 1);
    const auto bits = [](int64_t rows) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))) - 1; };
    // A step more than what one row of outputs sees, or sees one row of the image.
    run_.split_rows = backward ? bits(h.window + h.stride) : 1;
    run_.choice_before = (h.window - 1) / h.stride;
    run_.choice_rows = bits(run_.choice_before + 2);
    run_.best_rows = bits((h.window - 1) * h.rhs_dilation + 1);
    run_.choice = kPlaneMargin + RoundUp(std::max(w.out, columns) + 1) + 2 * kPlaneMargin;
    split_ = (run_.split_rows + 1) * run_.row;
    best_ = backward ? 0 : (run_.best_rows + 2) * run_.phase;
    choices_ = backward ? (run_.choice_rows + 1) * run_.choice : 0;
    integers_ = backward ? run_.row + RoundUp(w.out) + choices_ : 0;
  }

  int64_t Bytes() const { return (line_ + split_ + best_ + choices_ + integers_) * 4; }

  PlaneRun& In(void* memory) {
    const SpatialDim& w = run_.columns;
    run_.line = static_cast<float*>(memory);
    run_.split = run_.line + line_;
    run_.best = run_.split + split_;
    run_.given = run_.best + best_;
    run_.nothing = run_.best + (run_.best_rows + 1) * run_.phase;
    std::fill(run_.split, run_.given, -std::numeric_limits<float>::infinity());
    if (!backward_) return run_;
    std::fill_n(run_.given, choices_, 0.0f);
    run_.padding = reinterpret_cast<int32_t*>(run_.given + choices_);
    run_.first = run_.padding + run_.row;
    run_.chosen = run_.first + RoundUp(w.out);
    std::fill_n(run_.padding, integers_, -1);
    for (int64_t j = 0; j < w.out; ++j) {
      run_.first[j] = std::numeric_limits<int32_t>::min() / 2;  // none
      for (int64_t b = w.window - 1; b >= 0; --b) {
        if (InputPosition(w, j, b) >= 0) run_.first[j] = static_cast<int32_t>(b);
      }
    }
    for (int64_t i = w.pad_lo; i < w.pad_lo + w.in; ++i) run_.padding[i % w.stride * run_.phase + i / w.stride] = 0;
    return run_;
  }

 private:
  PlaneRun run_;
  const bool backward_;
  int64_t line_ = 0, split_ = 0, best_ = 0, choices_ = 0, integers_ = 0;  // elements of 4 bytes
};

// Calls fn(run, plane) for every plane, those of a thread one after another.
template <typename Fn>
absl::Status ForEachPlane(const PoolCall& call, Isa isa, bool backward, ThreadPool& pool, Fn fn) {
  const Workplace workplace(call, isa, backward);
  std::atomic<bool> out_of_memory{false};
  const auto range = [&](int64_t begin, int64_t end, int) {
    void* const memory = ThreadScratch(ScratchSlot::kTables, workplace.Bytes());
    if (memory == nullptr) return out_of_memory.store(true, std::memory_order_relaxed);
    Workplace own = workplace;
    PlaneRun& run = own.In(memory);
    PieceLook look(static_cast<double>(PadRank(call.spatial_rank, call.dims).in));
    for (int64_t plane = begin; plane < end && !look.Ends(); ++plane) fn(run, plane);
  };
  if (call.batch * PadRank(call.spatial_rank, call.dims).in < kInlinePoolElements) {
    range(0, call.batch, 0);
  } else {
    pool.ParallelRanges(call.batch, range);
  }
  return out_of_memory.load(std::memory_order_relaxed) ? OutOfScratch("a pooling's rows", workplace.Bytes())
                                                       : absl::OkStatus();
}

}  // namespace

int64_t BytesOfPlanes(const PoolCall& call, Isa isa, bool backward) { return Workplace(call, isa, backward).Bytes(); }

bool PoolsPlanes(const PoolCall& call, bool backward) {
  if (call.kind != PoolKind::kMax || call.channels != 1 || call.spatial_rank < 1 || call.spatial_rank > 2) return false;
  if (call.dtype != DType::kF32 && call.dtype != DType::kBF16 && call.dtype != DType::kF16) return false;
  for (int d = 0; d < call.spatial_rank; ++d) {
    const SpatialDim& dim = call.dims[d];
    if (dim.in < 1 || dim.lhs_dilation != 1 || dim.pad_lo < 0 || dim.window > kMostPlaneTaps) return false;
    if (backward && dim.rhs_dilation != 1) return false;
  }
  return true;
}

absl::Status PoolPlanes(const PoolCall& call, Isa isa, ThreadPool& pool) {
  const Geometry geometry = PadRank(call.spatial_rank, call.dims);
  const int64_t bytes = BytesOf(call.dtype);
  return ForEachPlane(call, isa, false, pool, [&](PlaneRun& run, int64_t plane) {
    run.x = static_cast<const char*>(call.x) + plane * geometry.in * bytes;
    run.y = static_cast<char*>(call.y) + plane * geometry.out * bytes;
    KernelsOf(isa).forward(run);
  });
}

absl::Status PoolPlanesBackward(const PoolBackwardCall& call, Isa isa, ThreadPool& pool) {
  const Geometry geometry = PadRank(call.pool.spatial_rank, call.pool.dims);
  const int64_t bytes = BytesOf(call.pool.dtype);
  return ForEachPlane(call.pool, isa, true, pool, [&](PlaneRun& run, int64_t plane) {
    run.x = static_cast<const char*>(call.pool.x) + plane * geometry.in * bytes;
    run.dy = static_cast<const char*>(call.dy) + plane * geometry.out * bytes;
    run.dx = static_cast<char*>(call.dx) + plane * geometry.in * bytes;
    KernelsOf(isa).backward(run);
  });
}

}  // namespace weft::cpu
