// Pooling: walks output pixels, collects the window's elements that exist, and hands f32 to a vector kernel over
// channels; other types go through a plain loop. Images are dealt out to the threads.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "src/backends/cpu/kernels/pool/pool2d.h"
#include "src/backends/cpu/kernels/pool/pool_halves.h"
#include "src/backends/cpu/kernels/pool/pool_planes.h"
#include "src/backends/cpu/kernels/scratch.h"
#include "src/backends/cpu/kernels/tiles/elements.h"
#include "src/backends/cpu/kernels/tiles/geometry.h"
#include "src/backends/cpu/kernels/tiles/halves.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// The element offsets of every window, dimension by dimension: a window's offsets are sums of one entry each.
class Windows {
 public:
  Windows(const PoolCall& call) : geometry_(PadRank(call.spatial_rank, call.dims)) {
    int64_t stride = call.channels;
    for (int d = kMaxSpatialDims - 1; d >= 0; --d) {
      const SpatialDim& dim = geometry_.dims[d];
      table_[d].resize(dim.out * dim.window);
      for (int64_t o = 0; o < dim.out; ++o) {
        for (int64_t t = 0; t < dim.window; ++t) {
          const int64_t at = InputPosition(dim, o, t);
          table_[d][o * dim.window + t] = at < 0 ? -1 : at * stride;
        }
      }
      stride *= dim.in;
      if (dim.stride < (dim.window - 1) * dim.rhs_dilation + 1 || dim.lhs_dilation != 1) overlaps_ = true;
      if (dim.stride * dim.out != dim.in || dim.window != dim.stride || dim.rhs_dilation != 1 || dim.pad_lo != 0) {
        covers_ = false;
      }
    }
  }

  const Geometry& geometry() const { return geometry_; }
  bool overlaps() const { return overlaps_; }  // two windows may share an element
  bool covers() const { return covers_; }      // every element is in exactly one window
  int64_t OffsetBytes() const { return std::max<int64_t>(1, geometry_.window) * static_cast<int64_t>(sizeof(int64_t)); }
  // Returns the step from a window to the next one of the same row, if both are whole there; 0 where that differs.
  int64_t Step(int64_t column) const {
    const SpatialDim& dim = geometry_.dims[kMaxSpatialDims - 1];
    const int64_t* const taps = table_[kMaxSpatialDims - 1].data() + column * dim.window;
    const bool whole = dim.lhs_dilation == 1 && column > 0 && taps[-dim.window] >= 0 && taps[dim.window - 1] >= 0;
    return whole ? taps[0] - taps[-dim.window] : 0;
  }

  // Offsets of a window, in window order; returns how many.
  int64_t Collect(const Odometer& o, int64_t* offsets) const {
    const int64_t* row[kMaxSpatialDims];
    for (int d = 0; d < kMaxSpatialDims; ++d) row[d] = table_[d].data() + o.at[d] * geometry_.dims[d].window;
    int64_t count = 0;
    for (int64_t t0 = 0; t0 < geometry_.dims[0].window; ++t0) {
      for (int64_t t1 = 0; t1 < geometry_.dims[1].window; ++t1) {
        for (int64_t t2 = 0; t2 < geometry_.dims[2].window; ++t2) {
          if (row[0][t0] < 0 || row[1][t1] < 0 || row[2][t2] < 0) continue;
          const int64_t base = row[0][t0] + row[1][t1] + row[2][t2];
          for (int64_t t3 = 0; t3 < geometry_.dims[3].window; ++t3) {
            if (row[3][t3] >= 0) offsets[count++] = base + row[3][t3];
          }
        }
      }
    }
    return count;
  }

 private:
  Geometry geometry_;
  std::vector<int64_t> table_[kMaxSpatialDims];
  bool overlaps_ = false;
  bool covers_ = true;
};

// Walks from window to window, in the order of the outputs.
class Walk {
 public:
  // `offsets` has room for a window.
  Walk(const Windows& windows, int64_t out, int64_t* offsets) : windows_(windows), offsets_(offsets) {
    at_.Set(out, [&](int d) { return windows.geometry().dims[d].out; });
    taps_ = windows.Collect(at_, offsets);
  }
  int64_t taps() const { return taps_; }
  void Next() {
    constexpr int kLast = kMaxSpatialDims - 1;
    ++at_.at[kLast];
    const bool same_row = at_.at[kLast] < windows_.geometry().dims[kLast].out;
    if (const int64_t step = same_row ? windows_.Step(at_.at[kLast]) : 0; step > 0) {
      for (int64_t t = 0; t < taps_; ++t) offsets_[t] += step;
      return;
    }
    for (int d = kLast; d >= 0 && at_.at[d] == windows_.geometry().dims[d].out; --d) {
      at_.at[d] = 0;
      if (d > 0) ++at_.at[d - 1];  // else the next image
    }
    taps_ = windows_.Collect(at_, offsets_);
  }

 private:
  const Windows& windows_;
  Odometer at_;
  int64_t* const offsets_;
  int64_t taps_ = 0;
};

template <typename T>
typename ElementRule<T>::Sum Neutral(PoolKind kind) {
  using Sum = typename ElementRule<T>::Sum;
  if (kind == PoolKind::kSum) return Sum{};
  if constexpr (std::is_same_v<T, Bool>) return kind == PoolKind::kMin;
  using Limits = std::numeric_limits<Sum>;
  if constexpr (Limits::has_infinity) return kind == PoolKind::kMax ? -Limits::infinity() : Limits::infinity();
  return kind == PoolKind::kMax ? Limits::lowest() : Limits::max();
}

template <typename T>
void PlainForward(const PoolCall& call, const T* image, const int64_t* offsets, int64_t taps, T* y) {
  using Rule = ElementRule<T>;
  for (int64_t c = 0; c < call.channels; ++c) {
    auto sum = taps == 0 ? Neutral<T>(call.kind) : Rule::Load(image[offsets[0] + c]);
    for (int64_t t = 1; t < taps; ++t) {
      const auto x = Rule::Load(image[offsets[t] + c]);
      if (call.kind == PoolKind::kSum) {
        sum = Rule::Add(sum, x);
      } else if (!((call.kind == PoolKind::kMax ? sum >= x : sum <= x) || sum != sum)) {
        sum = x;
      }
    }
    if (call.kind == PoolKind::kSum && call.scale != 1.0) {
      sum = static_cast<typename Rule::Sum>(sum * static_cast<typename Rule::Sum>(call.scale));
    }
    y[c] = Rule::Store(sum);
  }
}

// The loops of an instruction set over bf16 and f16.
struct HalvesLoops {
  HalvesLoops(Isa isa, void (*pixel)(const PoolPixel&))
      : rows(HalvesKernelsOf(isa)),
        window(isa == Isa::kAvx512 ? &PoolHalvesAvx512
               : isa == Isa::kAvx2 ? &PoolHalvesAvx2
                                   : nullptr),
        pixel(pixel) {}
  const HalvesKernels& rows;
  int64_t (*window)(const HalvesWindow&);  // null: there are no vectors for it
  void (*pixel)(const PoolPixel&);         // f32
};

// Whole vectors of channels; of the rest a few hundred channels and a few taps at a time, widened: what was found so far is the first tap of the next ones.
void HalvesForward(const HalvesLoops& loops, const PoolCall& call, const uint16_t* image, const int64_t* offsets,
                   int64_t taps, uint16_t* y) {
  constexpr int64_t kChannels = 256, kTaps = 8;
  alignas(64) float lines[(kTaps + 1) * kChannels];
  constexpr int64_t kLines[kTaps + 1] = {0, 256, 512, 768, 1024, 1280, 1536, 1792, 2048};
  PoolPixel pixel;
  pixel.kind = call.kind;
  pixel.x = pixel.y = lines;
  pixel.offsets = kLines;
  const HalvesWindow window = {
      call.dtype, call.kind, image, offsets, taps, call.channels, static_cast<float>(call.scale), y};
  const int64_t done = loops.window == nullptr ? 0 : loops.window(window);
  for (int64_t c = done; c < call.channels; c += kChannels) {
    pixel.channels = std::min(kChannels, call.channels - c);
    for (int64_t t = 0; t < taps;) {
      pixel.taps = t == 0 ? 0 : 1;
      for (; t < taps && pixel.taps <= kTaps; ++t) {
        loops.rows.widen(call.dtype, image + offsets[t] + c, pixel.channels, lines + pixel.taps++ * kChannels);
      }
      pixel.scale = t == taps ? static_cast<float>(call.scale) : 1;
      loops.pixel(pixel);
    }
    loops.rows.narrow(call.dtype, lines, pixel.channels, y + c);
  }
}

template <typename T>
void PlainBackward(const PoolCall& call, const T* image, const int64_t* offsets, int64_t taps, const T* dy, T* dx) {
  using Rule = ElementRule<T>;
  for (int64_t c = 0; c < call.channels && taps > 0; ++c) {
    int64_t best = 0;
    for (int64_t t = 1; t < taps; ++t) {
      const auto kept = Rule::Load(image[offsets[best] + c]);
      const auto x = Rule::Load(image[offsets[t] + c]);
      const bool nan_stays = kept != kept && !call.nan_gives_way;
      if (!((call.kind == PoolKind::kMax ? kept >= x : kept <= x) || nan_stays)) best = t;
    }
    T& target = dx[offsets[best] + c];
    target = Rule::Store(Rule::Add(Rule::Load(target), Rule::Load(dy[c])));
  }
}

template <typename T>
void SumBackward(const PoolCall& call, const int64_t* offsets, int64_t taps, const T* dy, T* dx) {
  using Rule = ElementRule<T>;
  for (int64_t t = 0; t < taps; ++t) {
    for (int64_t c = 0; c < call.channels; ++c) {
      const auto share = Rule::Multiply(Rule::Load(dy[c]), static_cast<typename Rule::Sum>(call.scale));
      T& target = dx[offsets[t] + c];
      target = Rule::Store(Rule::Add(Rule::Load(target), share));
    }
  }
}

// One image's gradient over bf16 or f16: rows that windows see are widened, and rounded when no more windows come.
class HalvesBackward {
 public:
  HalvesBackward(const PoolBackwardCall& call, const HalvesKernels& halves, void (*kernel)(const PoolPixel&),
                 const Windows& windows)
      : call_(call),
        halves_(halves),
        kernel_(kernel),
        overwrite_(!windows.overlaps()),
        h_(windows.geometry().dims[kMaxSpatialDims - 2]),
        w_(windows.geometry().dims[kMaxSpatialDims - 1]),
        row_(w_.in * call.pool.channels),
        rows_(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(h_.window)))),
        row_of_dy_(w_.out * call.pool.channels) {}

  int64_t Bytes() const {
    return h_.window * w_.window * static_cast<int64_t>(sizeof(int64_t)) +
           (2 * rows_ * row_ + row_of_dy_) * static_cast<int64_t>(sizeof(float));
  }
  void In(void* memory) {
    offsets_ = static_cast<int64_t*>(memory);
    x_ = reinterpret_cast<float*>(offsets_ + h_.window * w_.window);
    dx_ = x_ + rows_ * row_;
    dy_ = dx_ + rows_ * row_;
  }

  void Run(int64_t n) {
    const PoolCall& pool = call_.pool;
    const auto* const x = static_cast<const uint16_t*>(pool.x) + n * h_.in * row_;
    const auto* const dy = static_cast<const uint16_t*>(call_.dy) + n * h_.out * w_.out * pool.channels;
    auto* const dx = static_cast<uint16_t*>(call_.dx) + n * h_.in * row_;
    int64_t ready = 0, done = 0;  // rows that are widened, or seen by no window; that are rounded
    const auto finish = [&](int64_t end) {
      for (; done < std::min(end, h_.in); ++done) {
        if (done < ready) {
          halves_.narrow(pool.dtype, dx_ + Kept(done), row_, dx + done * row_);
        } else {
          std::memset(dx + done * row_, 0, row_ * sizeof(uint16_t));
        }
      }
    };
    for (int64_t o = 0; o < h_.out; ++o) {
      const int64_t first = o * h_.stride - h_.pad_lo;
      finish(first);
      for (ready = std::max(ready, first); ready < std::min(first + h_.window, h_.in); ++ready) {
        halves_.widen(pool.dtype, x + ready * row_, row_, x_ + Kept(ready));
        std::fill_n(dx_ + Kept(ready), row_, 0.0f);
      }
      halves_.widen(pool.dtype, dy + o * row_of_dy_, row_of_dy_, dy_);
      for (int64_t j = 0; j < w_.out; ++j) Add(o, j);
    }
    finish(h_.in);
  }

 private:
  int64_t Kept(int64_t row) const { return (row & (rows_ - 1)) * row_; }

  void Add(int64_t o, int64_t j) {
    PoolPixel pixel;
    for (int64_t a = 0; a < h_.window; ++a) {
      const int64_t row = InputPosition(h_, o, a);
      for (int64_t b = 0; b < w_.window && row >= 0; ++b) {
        const int64_t column = InputPosition(w_, j, b);
        if (column >= 0) offsets_[pixel.taps++] = Kept(row) + column * call_.pool.channels;
      }
    }
    if (pixel.taps == 0) return;
    pixel.kind = call_.pool.kind;
    pixel.x = x_;
    pixel.offsets = offsets_;
    pixel.channels = call_.pool.channels;
    pixel.dy = dy_ + j * pixel.channels;
    pixel.dx = dx_;
    pixel.overwrite = overwrite_;
    pixel.nan_gives_way = call_.pool.nan_gives_way;
    kernel_(pixel);
  }

  const PoolBackwardCall& call_;
  const HalvesKernels& halves_;
  void (*kernel_)(const PoolPixel&);
  const bool overwrite_;
  const SpatialDim h_, w_;
  const int64_t row_, rows_;  // elements of a row, rows that are kept
  const int64_t row_of_dy_;
  int64_t* offsets_ = nullptr;
  float *x_ = nullptr, *dx_ = nullptr, *dy_ = nullptr;
};

absl::Status Check(const PoolCall& call) {
  WEFT_RETURN_IF_ERROR(CheckDims("pooling", call.spatial_rank, call.dims));
  if (call.batch < 0 || call.channels < 0) {
    return UserError("pooling with batch ", call.batch, " and ", call.channels, " channels");
  }
  if (!VisitElement(call.dtype, []<typename T>() {})) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the CPU backend has no pooling of ", NameOf(call.dtype));
  }
  return absl::OkStatus();
}

}  // namespace

bool RoundsOnce(const PoolCall& call) {
  if (call.kind == PoolKind::kSum || call.spatial_rank > 2) return false;
  return std::ranges::all_of(call.dims, [](const SpatialDim& dim) {
    return dim.lhs_dilation == 1 && dim.rhs_dilation == 1 && dim.pad_lo >= 0;
  });
}

absl::Status KernelSet::Pool(const PoolCall& call, ThreadPool& pool) {
  WEFT_RETURN_IF_ERROR(Check(call));
  if (PoolsPlanes(call, false)) return PoolPlanes(call, target().isa, pool);
  const Windows windows(call);
  const Geometry& geometry = windows.geometry();
  const int64_t pixels = call.batch * geometry.out;
  if (pixels == 0 || call.channels == 0) return absl::OkStatus();
  const auto kernel = target().isa == Isa::kAvx512 ? &PoolForwardAvx512 : &PoolForwardPortable;
  const bool half = call.dtype == DType::kBF16 || call.dtype == DType::kF16;
  const HalvesLoops halves(target().isa, kernel);
  const int64_t image = geometry.in * call.channels;
  std::atomic<bool> out_of_memory{false};
  const auto range = [&](int64_t begin, int64_t end, int) {
    auto* const offsets = static_cast<int64_t*>(ThreadScratch(ScratchSlot::kTables, windows.OffsetBytes()));
    if (offsets == nullptr) return out_of_memory.store(true, std::memory_order_relaxed);
    Walk walk(windows, begin % geometry.out, offsets);
    PieceLook look(static_cast<double>(geometry.window * call.channels));
    for (int64_t p = begin; p < end; ++p, walk.Next()) {
      if (look.Ends()) return;
      const int64_t taps = walk.taps();
      const int64_t in = p / geometry.out * image;
      if (call.dtype == DType::kF32 && taps > 0) {
        PoolPixel pixel;
        pixel.kind = call.kind;
        pixel.x = static_cast<const float*>(call.x) + in;
        pixel.offsets = offsets;
        pixel.taps = taps;
        pixel.channels = call.channels;
        pixel.scale = static_cast<float>(call.scale);
        pixel.y = static_cast<float*>(call.y) + p * call.channels;
        kernel(pixel);
        continue;
      }
      if (half && taps > 0) {
        HalvesForward(halves, call, static_cast<const uint16_t*>(call.x) + in, offsets, taps,
                      static_cast<uint16_t*>(call.y) + p * call.channels);
        continue;
      }
      VisitElement(call.dtype, [&]<typename T>() {
        PlainForward<T>(call, static_cast<const T*>(call.x) + in, offsets, taps,
                        static_cast<T*>(call.y) + p * call.channels);
      });
    }
  };
  if (pixels * call.channels * geometry.window < kInlinePoolElements) {
    range(0, pixels, 0);
  } else {
    pool.ParallelRanges(pixels, range);
  }
  return out_of_memory.load(std::memory_order_relaxed) ? OutOfScratch("a pooling's window", windows.OffsetBytes())
                                                       : absl::OkStatus();
}

absl::Status KernelSet::PoolBackward(const PoolBackwardCall& call, ThreadPool& pool) {
  const PoolCall& forward = call.pool;
  WEFT_RETURN_IF_ERROR(Check(forward));
  if (PoolsPlanes(forward, true)) return PoolPlanesBackward(call, target().isa, pool);
  const Windows windows(forward);
  const Geometry& geometry = windows.geometry();
  const int64_t image = geometry.in * forward.channels;
  if (forward.batch * image == 0) return absl::OkStatus();
  const bool vectors = forward.dtype == DType::kF32 && forward.kind != PoolKind::kSum;
  const auto kernel = target().isa == Isa::kAvx512 ? &PoolBackwardAvx512 : &PoolBackwardPortable;
  const int64_t bytes = BytesOf(forward.dtype);
  const bool halves = (forward.dtype == DType::kBF16 || forward.dtype == DType::kF16) && RoundsOnce(forward);
  const HalvesBackward rounded(call, HalvesKernelsOf(target().isa), kernel, windows);
  const int64_t scratch = halves ? rounded.Bytes() : windows.OffsetBytes();
  std::atomic<bool> out_of_memory{false};
  // An image's gradient belongs to one thread: windows may overlap.
  const auto range = [&](int64_t begin, int64_t end, int) {
    void* const memory = ThreadScratch(ScratchSlot::kTables, scratch);
    if (memory == nullptr) return out_of_memory.store(true, std::memory_order_relaxed);
    if (halves) {
      HalvesBackward backward = rounded;
      backward.In(memory);
      for (int64_t n = begin; n < end && !LaunchEnds(); ++n) backward.Run(n);
      return;
    }
    auto* const offsets = static_cast<int64_t*>(memory);
    for (int64_t n = begin; n < end; ++n) {
      if (!vectors || !windows.covers()) std::memset(static_cast<char*>(call.dx) + n * image * bytes, 0, image * bytes);
      if (geometry.out == 0) continue;
      Walk walk(windows, 0, offsets);
      PieceLook look(static_cast<double>(geometry.window * forward.channels));
      for (int64_t o = 0; o < geometry.out; ++o, walk.Next()) {
        if (look.Ends()) return;
        const int64_t taps = walk.taps();
        const int64_t out = (n * geometry.out + o) * forward.channels;
        if (taps == 0) continue;
        if (vectors) {
          PoolPixel pixel;
          pixel.kind = forward.kind;
          pixel.x = static_cast<const float*>(forward.x) + n * image;
          pixel.offsets = offsets;
          pixel.taps = taps;
          pixel.channels = forward.channels;
          pixel.dy = static_cast<const float*>(call.dy) + out;
          pixel.dx = static_cast<float*>(call.dx) + n * image;
          pixel.overwrite = !windows.overlaps();
          pixel.nan_gives_way = forward.nan_gives_way;
          kernel(pixel);
          continue;
        }
        VisitElement(forward.dtype, [&]<typename T>() {
          const T* dy = static_cast<const T*>(call.dy) + out;
          T* dx = static_cast<T*>(call.dx) + n * image;
          if (forward.kind == PoolKind::kSum) {
            SumBackward<T>(forward, offsets, taps, dy, dx);
          } else {
            PlainBackward<T>(forward, static_cast<const T*>(forward.x) + n * image, offsets, taps, dy, dx);
          }
        });
      }
    }
  };
  if (forward.batch * image < kInlinePoolElements) {
    range(0, forward.batch, 0);
  } else {
    pool.ParallelRanges(forward.batch, range);
  }
  return out_of_memory.load(std::memory_order_relaxed) ? OutOfScratch("a pooling's rows", scratch) : absl::OkStatus();
}

absl::Status KernelSet::PreparePool(const PoolCall& call, bool backward, ScratchNeeds& needs) const {
  WEFT_RETURN_IF_ERROR(Check(call));
  if (PoolsPlanes(call, backward)) {
    needs.Each(ScratchSlot::kTables, BytesOfPlanes(call, target().isa, backward));
    return absl::OkStatus();
  }
  const Windows windows(call);
  needs.Each(ScratchSlot::kTables, windows.OffsetBytes());
  if (backward && (call.dtype == DType::kBF16 || call.dtype == DType::kF16) && RoundsOnce(call)) {
    PoolBackwardCall gradient;
    gradient.pool = call;
    needs.Each(ScratchSlot::kTables, HalvesBackward(gradient, HalvesKernelsOf(target().isa), nullptr, windows).Bytes());
  }
  return absl::OkStatus();
}

}  // namespace weft::cpu
