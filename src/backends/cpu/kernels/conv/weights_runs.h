// The gradient of a convolution's kernel as a product: which rows of W go together, and which pixels they are sums of. Where the
// processor multiplies pairs of bf16, pixels of a line lie in pairs before: those that an inner tap reads, and those that read it.
#pragma once

#include <cstdint>
#include <vector>

#include "src/backends/cpu/kernels/tiles/geometry.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

// The sizes of such a gradient, all that its parts know of it.
struct WeightShape {
  WeightShape(const ConvCall& call, const TypePlan& types);

  const SpatialDim& inner() const { return geometry.dims[kMaxSpatialDims - 1]; }
  bool pairs() const { return types.pack == PackKind::kPairs; }
  // Pixels that lie side by side in one element of `bytes`.
  int64_t together() const { return pairs() ? 2 : 1; }
  int64_t bytes() const { return types.accumulator_bytes; }
  int64_t elements() const { return geometry.window * channels * call.out_channels; }  // of W

  const ConvCall& call;
  const TypePlan types;
  const Geometry geometry;
  int64_t channels = 0, group_columns = 0;  // of a group, of x and of y
  int64_t period = 1, in_step = 1;  // along the innermost dimension, of output pixels and the inputs that they read
  int64_t lines = 0, in_lines = 0;  // of dy and x along the innermost dimension, over the whole batch
};

// Rows of W that tiles may cross: a run of channels of one tap, or of neighbouring inner taps where none is padded.
struct WeightRun {
  int64_t tap[kMaxSpatialDims] = {};  // the first tap
  int64_t rows = 0;                   // elements of (inner taps x channels)
  // Output positions along the innermost dimension that read an input: low, low + period, …, so many; the first reads at.
  int64_t low = 0, count = 0, at = 0;
  int64_t weight_row = 0;  // row of W, in units of out_channels
  int64_t x = 0, y = 0;    // bytes before its pairs
};

class WeightRuns {
 public:
  explicit WeightRuns(const WeightShape& shape);

  const WeightRun& operator[](int64_t i) const { return runs_[static_cast<size_t>(i)]; }
  int64_t size() const { return static_cast<int64_t>(runs_.size()); }
  // Every row of W belongs to a run; else rows that nothing reaches are zeroed first.
  bool whole() const { return whole_; }
  // Rows of several runs share a tile, with a pointer each.
  bool spread() const { return spread_; }

  // Bytes before what the first tap of `run` reads for output line `line`, -1 where the line falls on padding.
  int64_t LineOffset(int64_t line, const WeightRun& run) const {
    int64_t rest = line, offset = 0;
    for (int d = kMaxSpatialDims - 2; d >= 0; --d) {
      const SpatialDim& dim = shape_.geometry.dims[d];
      const int64_t at = InputPosition(dim, rest % dim.out, run.tap[d]);
      if (at < 0) return -1;
      rest /= dim.out;
      offset += at * in_stride_[d];
    }
    offset += rest * image_;
    if (shape_.pairs()) return run.x + offset * XLineBytes(run);
    return (offset + run.at * shape_.call.in_channels) * shape_.bytes();
  }
  // The same of dy.
  int64_t YOffset(int64_t line, const WeightRun& run) const {
    if (shape_.pairs()) return run.y + line * YLineBytes(run);
    return (line * shape_.inner().out + run.low) * shape_.call.out_channels * shape_.bytes();
  }
  // From one pixel of a run, or pair, to the next, in bytes.
  int64_t XStep() const { return (shape_.pairs() ? 1 : shape_.in_step) * shape_.call.in_channels * shape_.bytes(); }
  int64_t YStep() const { return (shape_.pairs() ? 1 : shape_.period) * shape_.call.out_channels * shape_.bytes(); }

  // Pairs of pixels, of x and of dy.
  int64_t PairsBytes() const { return pairs_bytes_; }
  void MakePairs(const CpuTarget& target, char* pairs, ThreadPool& pool) const;

 private:
  void Make(bool joined);
  void FindPixels(int64_t tap, WeightRun& run) const;
  bool Spreads(bool joined) const;
  void PlacePairs();
  int64_t XLineBytes(const WeightRun& run) const {
    return CeilDiv(run.count, 2) * shape_.call.in_channels * shape_.bytes();
  }
  int64_t YLineBytes(const WeightRun& run) const {
    return CeilDiv(run.count, 2) * shape_.call.out_channels * shape_.bytes();
  }

  const WeightShape& shape_;
  int64_t in_stride_[kMaxSpatialDims];  // of elements, or of lines where these are in pairs
  int64_t image_ = 0;
  std::vector<WeightRun> runs_;
  bool whole_ = true, spread_ = false;
  int64_t pairs_bytes_ = 0;
};

}  // namespace weft::cpu
