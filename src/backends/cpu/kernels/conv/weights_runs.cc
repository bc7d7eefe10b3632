// See weights_runs.h.
#include "src/backends/cpu/kernels/conv/weights_runs.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace weft::cpu {
namespace {

constexpr int kDims = kMaxSpatialDims;
constexpr int kInner = kDims - 1;

// Tells whether inner taps are neighbours, none of which is padded: then runs go across them.
bool JoinsTaps(const WeightShape& shape) {
  const SpatialDim& inner = shape.inner();
  return !shape.pairs() && shape.call.feature_groups == 1 && inner.rhs_dilation == 1 && inner.lhs_dilation == 1 &&
         !inner.reversed && inner.pad_lo <= 0 && inner.window > 1 &&
         (inner.out - 1) * inner.stride - inner.pad_lo + inner.window <= inner.in;
}

}  // namespace

WeightShape::WeightShape(const ConvCall& call, const TypePlan& types)
    : call(call), types(types), geometry(PadRank(call.spatial_rank, call.dims)) {
  channels = call.in_channels / call.feature_groups;
  group_columns = call.out_channels / call.feature_groups;
  period = inner().lhs_dilation / std::gcd(inner().lhs_dilation, inner().stride);
  in_step = period * inner().stride / inner().lhs_dilation;
  lines = call.batch * geometry.out / std::max<int64_t>(1, inner().out);
  in_lines = call.batch * geometry.in / std::max<int64_t>(1, inner().in);
}

WeightRuns::WeightRuns(const WeightShape& shape) : shape_(shape) {
  in_stride_[kInner] = shape.call.in_channels;
  image_ = shape.pairs() ? 1 : shape.inner().in * shape.call.in_channels;
  for (int d = kInner - 1; d >= 0; --d) {
    in_stride_[d] = image_;
    image_ *= shape.geometry.dims[d].in;
  }
  const bool joined = JoinsTaps(shape);
  Make(joined);
  spread_ = Spreads(joined);
  if (shape.pairs()) PlacePairs();
}

void WeightRuns::Make(bool joined) {
  const auto& dims = shape_.geometry.dims;
  const int64_t window = shape_.inner().window, outer = shape_.geometry.window / window;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t t = 0; t < (joined ? 1 : window); ++t) {
      WeightRun run;
      int64_t rest = o;
      for (int d = kInner - 1; d >= 0; --d) {
        run.tap[d] = rest % dims[d].window;
        rest /= dims[d].window;
      }
      run.tap[kInner] = t;
      run.rows = (joined ? window : 1) * shape_.channels;
      FindPixels(t, run);
      int64_t stored = 0;
      for (int d = 0; d < kDims; ++d) stored = stored * dims[d].window + WeightTap(dims[d], run.tap[d]);
      run.weight_row = stored * shape_.channels;
      if (run.count > 0) {
        runs_.push_back(run);
      } else {
        whole_ = false;
      }
    }
  }
}

// An input that is spread meets a tap once in a period of output pixels.
void WeightRuns::FindPixels(int64_t tap, WeightRun& run) const {
  const SpatialDim& inner = shape_.inner();
  const int64_t period = shape_.period, in_step = shape_.in_step;
  const int64_t shift = tap * inner.rhs_dilation - inner.pad_lo;
  for (int64_t first = 0; first < std::min(period, inner.out); ++first) {
    if ((first * inner.stride + shift) % inner.lhs_dilation != 0) continue;
    const int64_t at = (first * inner.stride + shift) / inner.lhs_dilation;
    const int64_t begin = at >= 0 ? 0 : CeilDiv(-at, in_step);
    const int64_t end =
        inner.in - at <= 0 ? 0 : std::min(CeilDiv(inner.out - first, period), CeilDiv(inner.in - at, in_step));
    run.low = first + begin * period;
    run.at = at + begin * in_step;
    run.count = end - begin;
    return;
  }
}

// Short runs (few channels) leave tiles low: then rows of several taps share a tile. Their pixel ranges must agree, which is so
// where the inner dimension is joined, and no line falls on padding.
bool WeightRuns::Spreads(bool joined) const {
  if (!joined || runs_.empty() || runs_[0].rows >= 4) return false;
  return std::all_of(shape_.geometry.dims.begin(), shape_.geometry.dims.end() - 1, [](const SpatialDim& dim) {
    return dim.pad_lo <= 0 && dim.lhs_dilation == 1 &&
           (dim.out - 1) * dim.stride - dim.pad_lo + (dim.window - 1) * dim.rhs_dilation < dim.in;
  });
}

// Runs of one inner tap share their pairs of x, runs of the same output pixels those of dy.
void WeightRuns::PlacePairs() {
  constexpr int64_t kBehind = 64;  // that a vector may read
  for (WeightRun& run : runs_) {
    const auto before = [&](auto same) {
      return std::find_if(runs_.data(), &run, [&](const WeightRun& other) { return same(other); });
    };
    const auto take = [this](int64_t bytes) { return std::exchange(pairs_bytes_, pairs_bytes_ + bytes); };
    const auto* const x = before([&](const WeightRun& other) { return other.tap[kInner] == run.tap[kInner]; });
    run.x = x != &run ? x->x : take(shape_.in_lines * XLineBytes(run));
    const auto* const y =
        before([&](const WeightRun& other) { return other.low == run.low && other.count == run.count; });
    run.y = y != &run ? y->y : take(shape_.lines * YLineBytes(run));
  }
  pairs_bytes_ += kBehind;
}

// A last one without a second is followed by zeros on both sides: what is no pixel takes no part.
void WeightRuns::MakePairs(const CpuTarget& target, char* pairs, ThreadPool& pool) const {
  const ConvCall& call = shape_.call;
  // Lines of `line` pixels, of each of which `pixels` are taken from the `first` on, `step` apart.
  struct Lines {
    const void* from;
    int64_t count, line, channels;
    int64_t first, step, pixels;
  };
  const auto make = [&](const Lines& lines, char* to, int64_t line_bytes) {
    pool.ParallelRanges(lines.count, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const auto* const source =
            static_cast<const uint16_t*>(lines.from) + (i * lines.line + lines.first) * lines.channels;
        Pack(target, shape_.types.pack, {source, lines.step * lines.channels, 1}, lines.pixels, lines.channels,
             lines.channels, to + i * line_bytes);
      }
    });
  };
  int64_t x = -1, y = -1;  // the last that has been made: later ones lie behind it
  for (const WeightRun& run : runs_) {
    if (run.x > x) {
      x = run.x;
      make({call.x, shape_.in_lines, shape_.inner().in, call.in_channels, run.at, shape_.in_step, run.count}, pairs + x,
           XLineBytes(run));
    }
    if (run.y > y) {
      y = run.y;
      make({call.y, shape_.lines, shape_.inner().out, call.out_channels, run.low, 1, run.count}, pairs + y,
           YLineBytes(run));
    }
  }
}

}  // namespace weft::cpu
