// The gradient of a convolution's kernel: W[tap, ci, co] = sum over pixels of x[pixel moved by tap, ci] * dy[pixel, co].
// As a product its K runs over pixels: a tile is 6-12 of the (tap, ci) rows by up to 64 output channels; x and dy are
// read in place. Groups have tiles of their own. Where the processor multiplies pairs of bf16, pixels of a line lie in pairs before:
// those that an inner tap reads, and those that read it.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "src/backends/cpu/kernels/conv/conv_gather.h"
#include "src/backends/cpu/kernels/conv/gathers.h"
#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int kDims = kMaxSpatialDims;
constexpr int kInner = kDims - 1;
// A kernel of so many bytes stays in L2 beside blocks of pixels of x and dy that all tiles pass over.
constexpr int64_t kKernelBytes = 256 << 10;
constexpr int64_t kResidentBytes = 320 << 10;
// A larger one is visited as seldom as can be: so many pixels at once, of as many columns of dy as stay in L2.
constexpr int64_t kBlockPixels = 512;
constexpr int64_t kChunkBytes = 384 << 10;
// Too few tiles for the threads: pixels are cut into this many parts with sums of their own, whatever the number of
// threads, and the sums are added in order.
constexpr int64_t kParts = 8;
// The numbers of pixels that are added up in registers at once, beyond which there are more parts, and of parts at
// most.
constexpr int64_t kMostPixels = 2048, kPartPixels = 64 * kMostPixels, kMostParts = 64;
// In pairs: of a narrower group a tile has few rows; and every tap of a longer window has pixels of its own.
constexpr int64_t kLeastPairedChannels = 8;
constexpr int64_t kMostPairedTaps = 5;

// Rows of W that tiles may cross: a run of channels of one tap, or of neighbouring inner taps where none is padded.
struct Run {
  int64_t tap[kDims] = {};  // the first tap
  int64_t rows = 0;         // elements of (inner taps x channels)
  // Output positions along the innermost dimension that read an input: low, low + period, …, so many; the first reads at.
  int64_t low = 0, count = 0, at = 0;
  int64_t weight_row = 0;  // row of W, in units of out_channels
  int64_t x = 0, y = 0;    // bytes before its pairs
};

struct Tile {
  int64_t run = 0, first = 0, rows = 0;  // kColumns: within one run
  int64_t group = 0;
};

class Weights {
 public:
  Weights(KernelSet::State& state, const ConvCall& call, const TypePlan& types)
      : state_(state),
        call_(call),
        types_(types),
        geometry_(PadRank(call.spatial_rank, call.dims)),
        pairs_(types.pack == PackKind::kPairs) {
    bytes_ = types.accumulator_bytes;  // those of a pair, too
    channels_ = call.in_channels / call.feature_groups;
    group_columns_ = call.out_channels / call.feature_groups;
    columns_ = ColumnCut::Make(state.target(), types.micro, group_columns_);
    in_stride_[kInner] = call.in_channels;
    int64_t stride = pairs_ ? 1 : geometry_.dims[kInner].in * call.in_channels;
    for (int d = kInner - 1; d >= 0; --d) {
      in_stride_[d] = stride;
      stride *= geometry_.dims[d].in;
    }
    image_ = stride;
    const SpatialDim& inner = geometry_.dims[kInner];
    period_ = inner.lhs_dilation / std::gcd(inner.lhs_dilation, inner.stride);
    in_step_ = period_ * inner.stride / inner.lhs_dilation;
    lines_ = call.batch * geometry_.out / std::max<int64_t>(1, geometry_.dims[kInner].out);
    in_lines_ = call.batch * geometry_.in / std::max<int64_t>(1, geometry_.dims[kInner].in);
    MakeRuns();
    if (pairs_) PlacePairs();
  }

  absl::Status Run(const Duty& duty) {
    WEFT_RETURN_IF_ERROR(MakeTiles());
    CutLoops();
    const SpatialDim& inner = geometry_.dims[kInner];
    const int64_t size = geometry_.window * channels_ * call_.out_channels;
    const int64_t pairs_bytes = pairs_bytes_ + (types_.narrow ? size * bytes_ : 0);
    const int64_t tiles = static_cast<int64_t>(tiles_.size());
    const int64_t items = tiles * columns_.panels;
    const int64_t least = items < 16 && lines_ >= 2 * kParts ? kParts : 1;
    const int64_t parts = std::max(least, std::min({CeilDiv(lines_ * inner.out, kPartPixels), lines_, kMostParts}));
    const int64_t sum_bytes = parts * size * bytes_;
    if (duty.pool == nullptr) {
      if (parts > 1) duty.needs->Once(ScratchSlot::kShared, sum_bytes);
      if (pairs_) duty.needs->Once(ScratchSlot::kWiden, pairs_bytes);
      duty.needs->Each(ScratchSlot::kTables, TableBytes());
      return absl::OkStatus();
    }
    x_ = static_cast<const char*>(call_.x);
    y_ = static_cast<const char*>(call_.y);
    char* w = static_cast<char*>(const_cast<void*>(call_.w));
    if (pairs_) {
      char* const pairs = static_cast<char*>(ThreadScratch(ScratchSlot::kWiden, pairs_bytes));
      if (pairs == nullptr) return OutOfScratch("pairs of pixels", pairs_bytes);
      MakePairs(pairs, *duty.pool);
      x_ = y_ = pairs;
      if (types_.narrow) w = pairs + pairs_bytes_;
    }
    if (parts == 1) {
      if (!whole_) std::memset(w, 0, size * bytes_);
      if (2 * size * lines_ * inner.out < 200'000) {
        RunTiles(0, tiles, 0, lines_, w);
      } else {
        duty.pool->ParallelRanges(tiles, [&](int64_t begin, int64_t end, int) { RunTiles(begin, end, 0, lines_, w); });
      }
    } else {
      char* sums = static_cast<char*>(ThreadScratch(ScratchSlot::kShared, sum_bytes));
      if (sums == nullptr) return OutOfScratch("partial sums of a convolution's gradient", sum_bytes);
      if (!whole_) std::memset(sums, 0, sum_bytes);
      duty.pool->ParallelRanges(parts * tiles, [&](int64_t begin, int64_t end, int) {
        for (int64_t at = begin; at < end;) {
          const int64_t part = at / tiles, next = std::min(end, (part + 1) * tiles);
          RunTiles(at - part * tiles, next - part * tiles, CutAt(lines_, parts, part), CutAt(lines_, parts, part + 1),
                   sums + part * size * bytes_);
          at = next;
        }
      });
      if (bytes_ == 8) {
        AddParts(reinterpret_cast<double*>(sums), parts, size, reinterpret_cast<double*>(w));
      } else {
        AddParts(reinterpret_cast<float*>(sums), parts, size, reinterpret_cast<float*>(w));
      }
    }
    if (types_.narrow) {
      duty.pool->ParallelRanges(size / call_.out_channels, [&](int64_t begin, int64_t end, int) {
        const int64_t first = begin * call_.out_channels;
        Narrow(call_.output, reinterpret_cast<const float*>(w) + first, 0,
               static_cast<uint16_t*>(const_cast<void*>(call_.w)) + first, 0, 1, (end - begin) * call_.out_channels);
      });
    }
    if (call_.epilogue.run != nullptr) {
      call_.epilogue.run(call_.epilogue.context, 0, 0, geometry_.window * channels_, 0, call_.out_channels);
    }
    return out_of_memory_.load(std::memory_order_relaxed) ? OutOfScratch("a convolution's tables", 0)
                                                          : absl::OkStatus();
  }

 private:
  template <typename T>
  static void AddParts(const T* sums, int64_t parts, int64_t size, T* w) {
    for (int64_t i = 0; i < size; ++i) {
      T sum = sums[i];
      for (int64_t part = 1; part < parts; ++part) sum += sums[part * size + i];
      w[i] = sum;
    }
  }

  int64_t PixelPairs(const struct Run& run) const { return CeilDiv(run.count, 2); }
  int64_t XLineBytes(const struct Run& run) const { return PixelPairs(run) * call_.in_channels * bytes_; }
  int64_t YLineBytes(const struct Run& run) const { return PixelPairs(run) * call_.out_channels * bytes_; }

  // Runs of one inner tap share their pairs of x, runs of the same output pixels those of dy.
  void PlacePairs() {
    constexpr int64_t kBehind = 64;  // that a vector may read
    for (struct Run& run : runs_) {
      const auto before = [&](auto same) {
        return std::find_if(runs_.data(), &run, [&](const struct Run& other) { return same(other); });
      };
      const auto take = [this](int64_t bytes) { return std::exchange(pairs_bytes_, pairs_bytes_ + bytes); };
      const auto* const x = before([&](const struct Run& other) { return other.tap[kInner] == run.tap[kInner]; });
      run.x = x != &run ? x->x : take(in_lines_ * XLineBytes(run));
      const auto* const y =
          before([&](const struct Run& other) { return other.low == run.low && other.count == run.count; });
      run.y = y != &run ? y->y : take(lines_ * YLineBytes(run));
    }
    pairs_bytes_ += kBehind;
  }
  // A last one without a second is followed by zeros on both sides: what is no pixel takes no part.
  void MakePairs(char* pairs, ThreadPool& pool) const {
    const SpatialDim& inner = geometry_.dims[kInner];
    const auto lines = [&](int64_t count, const void* from, int64_t line, int64_t first, int64_t step, int64_t channels,
                           const struct Run& run, char* to, int64_t line_bytes) {
      pool.ParallelRanges(count, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const auto* const source = static_cast<const uint16_t*>(from) + (i * line + first) * channels;
          Pack(state_.target(), types_.pack, {source, step * channels, 1}, run.count, channels, channels,
               to + i * line_bytes);
        }
      });
    };
    int64_t x = -1, y = -1;  // the last that has been made: later ones lie behind it
    for (const struct Run& run : runs_) {
      if (run.x > x) {
        x = run.x;
        lines(in_lines_, call_.x, inner.in, run.at, in_step_, call_.in_channels, run, pairs + x, XLineBytes(run));
      }
      if (run.y > y) {
        y = run.y;
        lines(lines_, call_.y, inner.out, run.low, 1, call_.out_channels, run, pairs + y, YLineBytes(run));
      }
    }
  }

  // The order of loops: chunks of columns, in them blocks of pixels, in them tiles, then panels of 64 columns.
  void CutLoops() {
    const SpatialDim& inner = geometry_.dims[kInner];
    const int64_t lines = std::max<int64_t>(1, lines_), together = pairs_ ? 2 : 1;  // pixels of `bytes_`
    chunk_panels_ = columns_.panels;
    if (geometry_.window * channels_ * call_.out_channels * bytes_ <= kKernelBytes) {
      const int64_t line_bytes = (inner.out * call_.out_channels + inner.in * call_.in_channels) * bytes_ / together;
      const int64_t most = kMostPixels / std::max<int64_t>(1, inner.out);
      block_lines_ = std::clamp<int64_t>(std::min(kResidentBytes / std::max<int64_t>(1, line_bytes), most), 1, lines);
      return;
    }
    block_lines_ = std::clamp<int64_t>(together * kBlockPixels / std::max<int64_t>(1, inner.out), 1, lines);
    const int64_t panel_bytes = block_lines_ * inner.out * columns_.MaxVectors() * columns_.lanes * bytes_ / together;
    chunk_panels_ = std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(1, panel_bytes), 1, columns_.panels);
  }

  // An input that is spread meets a tap once in a period of output pixels.
  void FindPixels(int64_t tap, struct Run& run) const {
    const SpatialDim& inner = geometry_.dims[kInner];
    const int64_t shift = tap * inner.rhs_dilation - inner.pad_lo;
    for (int64_t first = 0; first < std::min(period_, inner.out); ++first) {
      if ((first * inner.stride + shift) % inner.lhs_dilation != 0) continue;
      const int64_t at = (first * inner.stride + shift) / inner.lhs_dilation;
      const int64_t begin = at >= 0 ? 0 : CeilDiv(-at, in_step_);
      const int64_t end =
          inner.in - at <= 0 ? 0 : std::min(CeilDiv(inner.out - first, period_), CeilDiv(inner.in - at, in_step_));
      run.low = first + begin * period_;
      run.at = at + begin * in_step_;
      run.count = end - begin;
      return;
    }
  }

  void MakeRuns() {
    const SpatialDim& inner = geometry_.dims[kInner];
    const bool joined = !pairs_ && call_.feature_groups == 1 && inner.rhs_dilation == 1 && inner.lhs_dilation == 1 &&
                        !inner.reversed && inner.pad_lo <= 0 && inner.window > 1 &&
                        (inner.out - 1) * inner.stride - inner.pad_lo + inner.window <= inner.in;
    const int64_t outer = geometry_.window / inner.window;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t t = 0; t < (joined ? 1 : inner.window); ++t) {
        struct Run run;
        int64_t rest = o;
        for (int d = kInner - 1; d >= 0; --d) {
          run.tap[d] = rest % geometry_.dims[d].window;
          rest /= geometry_.dims[d].window;
        }
        run.tap[kInner] = t;
        run.rows = (joined ? inner.window : 1) * channels_;
        FindPixels(t, run);
        int64_t stored = 0;
        for (int d = 0; d < kDims; ++d) {
          stored = stored * geometry_.dims[d].window + WeightTap(geometry_.dims[d], run.tap[d]);
        }
        run.weight_row = stored * channels_;
        if (run.count > 0) {
          runs_.push_back(run);
        } else {
          whole_ = false;
        }
      }
    }
    // Short runs (few channels) leave tiles low: then rows of several taps share a tile, with a pointer each. Their
    // pixel ranges must agree, which is so where the inner dimension is joined.
    spread_ = joined && !runs_.empty() && runs_[0].rows < 4 && kDims > 1;
    for (const SpatialDim& dim : geometry_.dims) {
      if (&dim != &geometry_.dims[kInner] &&
          (dim.pad_lo > 0 || dim.lhs_dilation != 1 ||
           (dim.out - 1) * dim.stride - dim.pad_lo + (dim.window - 1) * dim.rhs_dilation >= dim.in)) {
        spread_ = false;
      }
    }
  }

  absl::Status MakeTiles() {
    form_ = spread_ ? MicroForm::kRowsStrided : MicroForm::kColumns;
    const int most = MicroMaxRows(state_.target(), form_, columns_.MaxVectors());
    if (spread_) {
      const int64_t rows = static_cast<int64_t>(runs_.size()) * runs_[0].rows;
      const int64_t count = CeilDiv(rows, most);
      for (int64_t t = 0; t < count; ++t) {
        tiles_.push_back({0, CutAt(rows, count, t), CutAt(rows, count, t + 1) - CutAt(rows, count, t)});
      }
      return FetchTiles(state_, types_.micro, form_, rows, count, columns_, Masks(), &set_);
    }
    int64_t rows = 0, count = 0;
    for (size_t r = 0; r < runs_.size(); ++r) {
      rows = runs_[r].rows;  // equal for all runs
      count = CeilDiv(rows, most);
      for (int64_t t = 0; t < count; ++t) {
        const int64_t first = CutAt(rows, count, t), tile_rows = CutAt(rows, count, t + 1) - first;
        for (int64_t g = 0; g < call_.feature_groups; ++g)
          tiles_.push_back({static_cast<int64_t>(r), first, tile_rows, g});
      }
    }
    if (runs_.empty()) return absl::OkStatus();
    return FetchTiles(state_, types_.micro, form_, rows, count, columns_, Masks(), &set_);
  }
  // Tells whether the last vector of dy may end where nothing must be read.
  bool Masks() const { return !pairs_ && columns_.columns % columns_.lanes != 0; }

  // Bytes before what the first tap of `run` reads for output line `line`, -1 where the line falls on padding.
  int64_t LineOffset(int64_t line, const struct Run& run) const {
    int64_t rest = line, offset = 0;
    for (int d = kInner - 1; d >= 0; --d) {
      const SpatialDim& dim = geometry_.dims[d];
      const int64_t at = InputPosition(dim, rest % dim.out, run.tap[d]);
      if (at < 0) return -1;
      rest /= dim.out;
      offset += at * in_stride_[d];
    }
    offset += rest * image_;
    return pairs_ ? run.x + offset * XLineBytes(run) : (offset + run.at * call_.in_channels) * bytes_;
  }
  // Likewise of dy.
  int64_t YOffset(int64_t line, const struct Run& run) const {
    if (pairs_) return run.y + line * YLineBytes(run);
    return (line * geometry_.dims[kInner].out + run.low) * call_.out_channels * bytes_;
  }

  // A line's: of x for every row of a tile or the first alone; then offsets.
  int64_t Pointers() const { return spread_ ? 16 : 1; }
  int64_t TableBytes() const { return block_lines_ * (Pointers() + 3) * 8 + 64; }

  void RunTiles(int64_t tile_begin, int64_t tile_end, int64_t line_begin, int64_t line_end, char* w) {
    void* memory = ThreadScratch(ScratchSlot::kTables, TableBytes());
    if (memory == nullptr) {
      out_of_memory_.store(true, std::memory_order_relaxed);
      return;
    }
    const void** a = static_cast<const void**>(memory);
    int64_t* b_offsets = reinterpret_cast<int64_t*>(a + block_lines_ * Pointers());
    int64_t* line_offsets = b_offsets + block_lines_;
    std::vector<char> begun(runs_.size());  // whether a run's rows hold anything yet
    for (int64_t chunk = 0; chunk < columns_.panels; chunk += chunk_panels_) {
      const int64_t chunk_end = std::min(columns_.panels, chunk + chunk_panels_);
      std::fill(begun.begin(), begun.end(), 0);
      for (int64_t line0 = line_begin; line0 < line_end; line0 += block_lines_) {
        const int64_t line1 = std::min(line_end, line0 + block_lines_);
        int64_t run = -1, lines = 0;
        bool adds = false;
        for (int64_t t = tile_begin; t < tile_end; ++t) {
          if (LaunchEnds()) return;
          if (spread_) {
            OneSpreadTile(tiles_[t], line0, line1, a, b_offsets, w, chunk, chunk_end, line0 > line_begin);
            continue;
          }
          if (tiles_[t].run != run) {  // the lines of a run serve all its tiles
            run = tiles_[t].run;
            lines = 0;
            for (int64_t line = line0; line < line1; ++line) {
              const int64_t offset = LineOffset(line, runs_[run]);
              if (offset < 0) continue;
              line_offsets[lines] = offset;
              b_offsets[lines++] = YOffset(line, runs_[run]);
            }
            adds = begun[run] != 0;
            if (lines > 0) begun[run] = 1;
          }
          if (lines > 0) OneTile(tiles_[t], lines, line_offsets, a, b_offsets, w, chunk, chunk_end, adds);
        }
      }
      for (int64_t t = tile_begin; t < tile_end && !spread_; ++t) {
        if (begun[tiles_[t].run] == 0) ZeroTile(tiles_[t], w, chunk, chunk_end);
      }
    }
  }

  // A tile none of whose lines read anything but padding.
  void ZeroTile(const Tile& tile, char* w, int64_t panel_begin, int64_t panel_end) const {
    const int64_t first = columns_.First(panel_begin) * columns_.lanes;
    const int64_t end = std::min(group_columns_, columns_.First(panel_end) * columns_.lanes);
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t row = runs_[tile.run].weight_row + tile.first + r;
      std::memset(w + (row * call_.out_channels + tile.group * group_columns_ + first) * bytes_, 0,
                  (end - first) * bytes_);
    }
  }

  void OneTile(const Tile& tile, int64_t lines, const int64_t* line_offsets, const void** a, const int64_t* b_offsets,
               char* w, int64_t panel_begin, int64_t panel_end, bool adds) const {
    const struct Run& run = runs_[tile.run];
    const char* x = x_ + (tile.group * channels_ + tile.first) * bytes_;
    for (int64_t i = 0; i < lines; ++i) a[i] = x + line_offsets[i];
    void* c[16];
    for (int64_t r = 0; r < tile.rows; ++r) {
      c[r] = w + (run.weight_row + tile.first + r) * call_.out_channels * bytes_;
    }
    Columns(tile, lines, run.count, a, b_offsets, c, panel_begin, panel_end, adds);
  }

  void OneSpreadTile(const Tile& tile, int64_t line0, int64_t line1, const void** a, int64_t* b_offsets, char* w,
                     int64_t panel_begin, int64_t panel_end, bool adds) const {
    void* c[16];
    const int64_t length = runs_[0].rows;
    for (int64_t line = line0; line < line1; ++line) {
      b_offsets[line - line0] = YOffset(line, runs_[0]);
      for (int64_t r = 0; r < tile.rows; ++r) {
        const struct Run& run = runs_[(tile.first + r) / length];
        a[(line - line0) * tile.rows + r] = x_ + LineOffset(line, run) + (tile.first + r) % length * bytes_;
      }
    }
    for (int64_t r = 0; r < tile.rows; ++r) {
      const struct Run& run = runs_[(tile.first + r) / length];
      c[r] = w + (run.weight_row + (tile.first + r) % length) * call_.out_channels * bytes_;
    }
    Columns(tile, line1 - line0, runs_[0].count, a, b_offsets, c, panel_begin, panel_end, adds);
  }

  void Columns(const Tile& tile, int64_t lines, int64_t pixels, const void** a, const int64_t* b_offsets, void** c,
               int64_t panel_begin, int64_t panel_end, bool adds) const {
    MicroArgs args;
    args.taps = lines;
    args.a = a;
    args.a_stride = (pairs_ ? 1 : in_step_) * call_.in_channels * bytes_;
    args.b_offsets = b_offsets;
    args.b_stride = (pairs_ ? 1 : period_) * call_.out_channels * bytes_;
    args.c = c;
    args.accumulate = adds || !whole_;
    const int64_t together = pairs_ ? 2 : 1, most = kMostPixels / together, steps = CeilDiv(pixels, together);
    for (int64_t step = 0; step < steps; step += most) {  // a line that is longer is alone
      if (step > 0 && LaunchEnds()) return;
      args.k = std::min(most, steps - step);
      for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        args.c_offset = (tile.group * group_columns_ + columns_.First(panel) * columns_.lanes) * bytes_;
        args.b = y_ + args.c_offset + step * args.b_stride;
        args.last_lanes = columns_.LastLanes(panel);
        set_.At(tile.rows, columns_.Vectors(panel), !pairs_ && args.last_lanes != columns_.lanes)(&args);
      }
      args.accumulate = 1;
      if (step + most >= steps) return;
      const int64_t pointers = lines * (spread_ ? tile.rows : 1);
      for (int64_t i = 0; i < pointers; ++i) a[i] = static_cast<const char*>(a[i]) + most * args.a_stride;
    }
  }

  KernelSet::State& state_;
  const ConvCall& call_;
  TypePlan types_;
  Geometry geometry_;
  ColumnCut columns_;
  const bool pairs_;
  int64_t pairs_bytes_ = 0;
  const char *x_ = nullptr, *y_ = nullptr;  // what tiles read
  int64_t bytes_ = 4;
  int64_t channels_ = 0, group_columns_ = 0;  // of a group, of x and of y
  int64_t in_stride_[kDims];                  // of elements, or of lines where these are in pairs
  int64_t image_ = 0;
  int64_t period_ = 1, in_step_ = 1;  // along the innermost dimension, of output pixels and the inputs that they read
  int64_t lines_ = 0, in_lines_ = 0;  // of dy and x along the innermost dimension, over the whole batch
  int64_t block_lines_ = 1, chunk_panels_ = 1;
  std::vector<struct Run> runs_;
  std::vector<Tile> tiles_;
  bool spread_ = false;
  bool whole_ = true;  // every row of W belongs to a run; else rows that nothing reaches are zeroed first
  MicroForm form_ = MicroForm::kColumns;
  TileSet set_;
  std::atomic<bool> out_of_memory_{false};
};

}  // namespace

bool WeightsInPairs(const ConvCall& call, const TypePlan& types) {
  const SpatialDim inner = PadRank(call.spatial_rank, call.dims).dims[kInner];
  return types.pack == PackKind::kPairs && inner.lhs_dilation == 1 && inner.window <= kMostPairedTaps &&
         call.in_channels / call.feature_groups >= kLeastPairedChannels;
}

absl::Status RunWeights(KernelSet::State& state, const ConvCall& call, const Duty& duty) {
  TypePlan types;
  if (!PlanTypes(state.target(), call.input, call.output, &types) || !(types.direct || WeightsInPairs(call, types))) {
    return InternalError("the gradient of a kernel of types that no tile adds");
  }
  return Weights(state, call, types).Run(duty);
}

}  // namespace weft::cpu
