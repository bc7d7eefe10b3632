// The gradient of a convolution's kernel: W[tap, ci, co] = sum over pixels of x[pixel moved by tap, ci] * dy[pixel, co].
// As a product its K runs over pixels: a tile is 6-12 of the (tap, ci) rows by up to 64 output channels; x and dy are
// read in place, or in pairs of pixels (weights_runs.h). Groups have tiles of their own.
#include <algorithm>
#include <cstring>
#include <vector>

#include "src/backends/cpu/kernels/conv/conv_gather.h"
#include "src/backends/cpu/kernels/conv/gathers.h"
#include "src/backends/cpu/kernels/conv/weights_runs.h"
#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// Below this many operations the join of two threads is not repaid.
constexpr int64_t kInlineWork = 200'000;
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

struct Tile {
  int64_t run = 0, first = 0, rows = 0;  // kColumns: within one run
  int64_t group = 0;
};

// How W is cut into tiles, and in which order they meet the pixels.
struct WeightCut {
  ColumnCut columns;
  MicroForm form = MicroForm::kColumns;
  std::vector<Tile> tiles;
  TileSet set;
  // The order of loops: chunks of columns, in them blocks of pixels, in them tiles, then panels of 64 columns.
  int64_t block_lines = 1, chunk_panels = 1;

  absl::Status Make(KernelSet::State& state, const WeightShape& shape, const WeightRuns& runs) {
    columns = ColumnCut::Make(state.target(), shape.types.micro, shape.group_columns);
    form = runs.spread() ? MicroForm::kRowsStrided : MicroForm::kColumns;
    CutLoops(shape);
    if (runs.size() == 0) return absl::OkStatus();
    // All runs have as many rows.
    const int64_t rows = runs.spread() ? runs.size() * runs[0].rows : runs[0].rows;
    const int64_t count = CeilDiv(rows, MicroMaxRows(state.target(), form, columns.MaxVectors()));
    for (int64_t r = 0; r < (runs.spread() ? 1 : runs.size()); ++r) {
      for (int64_t t = 0; t < count; ++t) {
        const int64_t first = CutAt(rows, count, t), tile_rows = CutAt(rows, count, t + 1) - first;
        for (int64_t g = 0; g < shape.call.feature_groups; ++g) tiles.push_back({r, first, tile_rows, g});
      }
    }
    // The last vector of dy may end where nothing must be read.
    const bool masks = !shape.pairs() && columns.columns % columns.lanes != 0;
    return FetchTiles(state, {shape.types.micro, form}, rows, count, columns, masks, &set);
  }

  // Pointers of a line's: of x for every row of a tile or the first alone.
  int64_t Pointers() const { return form == MicroForm::kRowsStrided ? 16 : 1; }
  int64_t TableBytes() const { return block_lines * (Pointers() + 3) * 8 + 64; }

 private:
  void CutLoops(const WeightShape& shape) {
    const SpatialDim& inner = shape.inner();
    const int64_t bytes = shape.bytes(), together = shape.together(), lines = std::max<int64_t>(1, shape.lines);
    chunk_panels = columns.panels;
    if (shape.elements() * bytes <= kKernelBytes) {
      const int64_t line_bytes =
          (inner.out * shape.call.out_channels + inner.in * shape.call.in_channels) * bytes / together;
      const int64_t most = kMostPixels / std::max<int64_t>(1, inner.out);
      block_lines = std::clamp<int64_t>(std::min(kResidentBytes / std::max<int64_t>(1, line_bytes), most), 1, lines);
      return;
    }
    block_lines = std::clamp<int64_t>(together * kBlockPixels / std::max<int64_t>(1, inner.out), 1, lines);
    const int64_t panel_bytes = block_lines * inner.out * columns.MaxVectors() * columns.lanes * bytes / together;
    chunk_panels = std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(1, panel_bytes), 1, columns.panels);
  }
};

// Where tiles read and write.
struct WeightOperands {
  const char *x = nullptr, *y = nullptr;
  char* w = nullptr;
};

// The work of one thread: sums of lines of pixels, for some of the tiles.
class WeightAdder {
 public:
  WeightAdder(const WeightShape& shape, const WeightRuns& runs, const WeightCut& cut, const WeightOperands& operands)
      : shape_(shape), runs_(runs), cut_(cut), columns_(cut.columns), operands_(operands) {}

  // False without memory.
  bool Run(Range tiles, Range lines) {
    void* memory = ThreadScratch(ScratchSlot::kTables, cut_.TableBytes());
    if (memory == nullptr) return false;
    a_ = static_cast<const void**>(memory);
    b_offsets_ = reinterpret_cast<int64_t*>(a_ + cut_.block_lines * cut_.Pointers());
    line_offsets_ = b_offsets_ + cut_.block_lines;
    std::vector<char> begun(static_cast<size_t>(runs_.size()));  // whether a run's rows hold anything yet
    for (int64_t chunk = 0; chunk < columns_.panels; chunk += cut_.chunk_panels) {
      const Range panels = {chunk, std::min(columns_.panels, chunk + cut_.chunk_panels)};
      std::fill(begun.begin(), begun.end(), 0);
      for (int64_t line = lines.begin; line < lines.end; line += cut_.block_lines) {
        const Range block = {line, std::min(lines.end, line + cut_.block_lines)};
        const bool goes_on =
            runs_.spread() ? AddSpread(tiles, block, panels, line > lines.begin) : AddRuns(tiles, block, panels, begun);
        if (!goes_on) return true;
      }
      for (int64_t t = tiles.begin; t < tiles.end && !runs_.spread(); ++t) {
        if (begun[cut_.tiles[t].run] == 0) ZeroTile(cut_.tiles[t], panels);
      }
    }
    return true;
  }

 private:
  // False where the launch ends.
  bool AddSpread(Range tiles, Range lines, Range panels, bool adds) {
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      if (LaunchEnds()) return false;
      OneSpreadTile(cut_.tiles[t], lines, panels, adds);
    }
    return true;
  }
  // The lines of a run serve all its tiles.
  bool AddRuns(Range tiles, Range block, Range panels, std::vector<char>& begun) {
    int64_t run = -1, lines = 0;
    bool adds = false;
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      if (LaunchEnds()) return false;
      const Tile& tile = cut_.tiles[t];
      if (tile.run != run) {
        run = tile.run;
        lines = 0;
        for (int64_t line = block.begin; line < block.end; ++line) {
          const int64_t offset = runs_.LineOffset(line, runs_[run]);
          if (offset < 0) continue;
          line_offsets_[lines] = offset;
          b_offsets_[lines++] = runs_.YOffset(line, runs_[run]);
        }
        adds = begun[run] != 0;
        if (lines > 0) begun[run] = 1;
      }
      if (lines > 0) OneTile(tile, lines, panels, adds);
    }
    return true;
  }

  // A tile none of whose lines read anything but padding.
  void ZeroTile(const Tile& tile, Range panels) const {
    const int64_t first = columns_.First(panels.begin) * columns_.lanes;
    const int64_t end = std::min(shape_.group_columns, columns_.First(panels.end) * columns_.lanes);
    for (int64_t r = 0; r < tile.rows; ++r) {
      std::memset(Row(runs_[tile.run].weight_row + tile.first + r) +
                      (tile.group * shape_.group_columns + first) * shape_.bytes(),
                  0, (end - first) * shape_.bytes());
    }
  }

  char* Row(int64_t row) const { return operands_.w + row * row_bytes_; }

  void OneTile(const Tile& tile, int64_t lines, Range panels, bool adds) {
    const WeightRun& run = runs_[tile.run];
    const char* x = operands_.x + (tile.group * shape_.channels + tile.first) * shape_.bytes();
    for (int64_t i = 0; i < lines; ++i) a_[i] = x + line_offsets_[i];
    void* c[16];
    char* const first = Row(run.weight_row + tile.first);
    for (int64_t r = 0; r < tile.rows; ++r) c[r] = first + r * row_bytes_;
    AddColumns(tile, lines, run.count, c, panels, adds);
  }

  void OneSpreadTile(const Tile& tile, Range lines, Range panels, bool adds) {
    void* c[16];
    const int64_t length = runs_[0].rows;
    for (int64_t line = lines.begin; line < lines.end; ++line) {
      b_offsets_[line - lines.begin] = runs_.YOffset(line, runs_[0]);
      for (int64_t r = 0; r < tile.rows; ++r) {
        const WeightRun& run = runs_[(tile.first + r) / length];
        a_[(line - lines.begin) * tile.rows + r] =
            operands_.x + runs_.LineOffset(line, run) + (tile.first + r) % length * shape_.bytes();
      }
    }
    for (int64_t r = 0; r < tile.rows; ++r) {
      const WeightRun& run = runs_[(tile.first + r) / length];
      c[r] = Row(run.weight_row + (tile.first + r) % length);
    }
    AddColumns(tile, lines.size(), runs_[0].count, c, panels, adds);
  }

  void AddColumns(const Tile& tile, int64_t lines, int64_t pixels, void** c, Range panels, bool adds) {
    MicroArgs args;
    args.taps = lines;
    args.a = a_;
    args.a_stride = runs_.XStep();
    args.b_offsets = b_offsets_;
    args.b_stride = runs_.YStep();
    args.c = c;
    args.accumulate = adds || !runs_.whole();
    const int64_t group = tile.group * shape_.group_columns, bytes = shape_.bytes();
    const bool masks = !shape_.pairs();
    const int64_t together = shape_.together(), most = kMostPixels / together, steps = CeilDiv(pixels, together);
    for (int64_t step = 0; step < steps; step += most) {  // a line that is longer is alone
      if (step > 0 && LaunchEnds()) return;
      args.k = std::min(most, steps - step);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        args.c_offset = (group + columns_.First(panel) * columns_.lanes) * bytes;
        args.b = operands_.y + args.c_offset + step * args.b_stride;
        args.last_lanes = columns_.LastLanes(panel);
        cut_.set.At(tile.rows, columns_.Vectors(panel), masks && args.last_lanes != columns_.lanes)(&args);
      }
      args.accumulate = 1;
      if (step + most >= steps) return;
      const int64_t pointers = lines * (runs_.spread() ? tile.rows : 1);
      for (int64_t i = 0; i < pointers; ++i) a_[i] = static_cast<const char*>(a_[i]) + most * args.a_stride;
    }
  }

  const WeightShape& shape_;
  const WeightRuns& runs_;
  const WeightCut& cut_;
  const ColumnCut& columns_;
  const WeightOperands operands_;
  const int64_t row_bytes_ = shape_.call.out_channels * shape_.bytes();  // of W
  // A block's lines: pointers into x, offsets into dy, and those of a run into x.
  const void** a_ = nullptr;
  int64_t *b_offsets_ = nullptr, *line_offsets_ = nullptr;
};

template <typename T>
void AddParts(const T* sums, int64_t parts, int64_t size, T* w) {
  for (int64_t i = 0; i < size; ++i) {
    T sum = sums[i];
    for (int64_t part = 1; part < parts; ++part) sum += sums[part * size + i];
    w[i] = sum;
  }
}

class Weights {
 public:
  Weights(const ConvCall& call, const TypePlan& types) : call_(call), shape_(call, types), runs_(shape_) {}

  absl::Status Cut(KernelSet::State& state) {
    WEFT_RETURN_IF_ERROR(cut_.Make(state, shape_, runs_));
    const int64_t items = static_cast<int64_t>(cut_.tiles.size()) * cut_.columns.panels, lines = shape_.lines;
    const int64_t least = items < 16 && lines >= 2 * kParts ? kParts : 1;
    parts_ = std::max(least, std::min({CeilDiv(lines * shape_.inner().out, kPartPixels), lines, kMostParts}));
    return absl::OkStatus();
  }

  void AddNeeds(ScratchNeeds& needs) const {
    if (parts_ > 1) needs.Once(ScratchSlot::kShared, SumBytes());
    if (shape_.pairs()) needs.Once(ScratchSlot::kWiden, PairsBytes());
    needs.Each(ScratchSlot::kTables, cut_.TableBytes());
  }

  absl::Status Run(const CpuTarget& target, ThreadPool& pool) {
    WeightOperands operands = {static_cast<const char*>(call_.x), static_cast<const char*>(call_.y),
                               static_cast<char*>(const_cast<void*>(call_.w))};
    if (shape_.pairs()) {
      char* const pairs = static_cast<char*>(ThreadScratch(ScratchSlot::kWiden, PairsBytes()));
      if (pairs == nullptr) return OutOfScratch("pairs of pixels", PairsBytes());
      runs_.MakePairs(target, pairs, pool);
      operands.x = operands.y = pairs;
      if (shape_.types.narrow) operands.w = pairs + runs_.PairsBytes();
    }
    if (parts_ == 1) {
      AddAll(operands, pool);
    } else {
      WEFT_RETURN_IF_ERROR(AddInParts(operands, pool));
    }
    if (shape_.types.narrow) {
      pool.ParallelRanges(shape_.elements() / call_.out_channels, [&](int64_t begin, int64_t end, int) {
        const int64_t first = begin * call_.out_channels;
        Narrow(call_.output, reinterpret_cast<const float*>(operands.w) + first, 0,
               static_cast<uint16_t*>(const_cast<void*>(call_.w)) + first, 0, 1, (end - begin) * call_.out_channels);
      });
    }
    if (call_.epilogue.run != nullptr) {
      call_.epilogue.run(call_.epilogue.context, 0, 0, shape_.geometry.window * shape_.channels, 0, call_.out_channels);
    }
    return out_of_memory_.load(std::memory_order_relaxed) ? OutOfScratch("a convolution's tables", 0)
                                                          : absl::OkStatus();
  }

 private:
  // Pairs of pixels, and W in f32 where the result is narrower.
  int64_t PairsBytes() const {
    return runs_.PairsBytes() + (shape_.types.narrow ? shape_.elements() * shape_.bytes() : 0);
  }
  int64_t SumBytes() const { return parts_ * shape_.elements() * shape_.bytes(); }

  void Add(Range tiles, Range lines, const WeightOperands& operands) {
    if (!WeightAdder(shape_, runs_, cut_, operands).Run(tiles, lines)) {
      out_of_memory_.store(true, std::memory_order_relaxed);
    }
  }

  void AddAll(const WeightOperands& operands, ThreadPool& pool) {
    const int64_t tiles = static_cast<int64_t>(cut_.tiles.size()), lines = shape_.lines;
    if (!runs_.whole()) std::memset(operands.w, 0, shape_.elements() * shape_.bytes());
    if (2 * shape_.elements() * lines * shape_.inner().out < kInlineWork) return Add({0, tiles}, {0, lines}, operands);
    pool.ParallelRanges(tiles, [&](int64_t begin, int64_t end, int) { Add({begin, end}, {0, lines}, operands); });
  }

  // Parts of the pixels that have sums of their own.
  absl::Status AddInParts(const WeightOperands& operands, ThreadPool& pool) {
    const int64_t tiles = static_cast<int64_t>(cut_.tiles.size()), size = shape_.elements(), bytes = shape_.bytes();
    char* sums = static_cast<char*>(ThreadScratch(ScratchSlot::kShared, SumBytes()));
    if (sums == nullptr) return OutOfScratch("partial sums of a convolution's gradient", SumBytes());
    if (!runs_.whole()) std::memset(sums, 0, SumBytes());
    pool.ParallelRanges(parts_ * tiles, [&](int64_t begin, int64_t end, int) {
      for (int64_t at = begin; at < end;) {
        const int64_t part = at / tiles, next = std::min(end, (part + 1) * tiles);
        Add({at - part * tiles, next - part * tiles},
            {CutAt(shape_.lines, parts_, part), CutAt(shape_.lines, parts_, part + 1)},
            {operands.x, operands.y, sums + part * size * bytes});
        at = next;
      }
    });
    if (bytes == 8) {
      AddParts(reinterpret_cast<double*>(sums), parts_, size, reinterpret_cast<double*>(operands.w));
    } else {
      AddParts(reinterpret_cast<float*>(sums), parts_, size, reinterpret_cast<float*>(operands.w));
    }
    return absl::OkStatus();
  }

  const ConvCall& call_;
  const WeightShape shape_;
  const WeightRuns runs_;
  WeightCut cut_;
  int64_t parts_ = 1;
  std::atomic<bool> out_of_memory_{false};
};

}  // namespace

bool WeightsInPairs(const ConvCall& call, const TypePlan& types) {
  const SpatialDim inner = PadRank(call.spatial_rank, call.dims).dims[kMaxSpatialDims - 1];
  return types.pack == PackKind::kPairs && inner.lhs_dilation == 1 && inner.window <= kMostPairedTaps &&
         call.in_channels / call.feature_groups >= kLeastPairedChannels;
}

absl::Status RunWeights(KernelSet::State& state, const ConvCall& call, const Duty& duty) {
  TypePlan types;
  if (!PlanTypes(state.target(), call.input, call.output, &types) || !(types.direct || WeightsInPairs(call, types))) {
    return InternalError("the gradient of a kernel of types that no tile adds");
  }
  Weights weights(call, types);
  WEFT_RETURN_IF_ERROR(weights.Cut(state));
  if (duty.pool != nullptr) return weights.Run(state.target(), *duty.pool);
  weights.AddNeeds(*duty.needs);
  return absl::OkStatus();
}

}  // namespace weft::cpu
