// Direct NHWC convolution on register tiles. A tile is 6-8 output pixels by up to 64 channels; its K loop runs over the
// window's taps, each tap a pointer per pixel (padding points at a row of zeros) and a run of channels. Taps side by
// side in memory join into one run. Dilated inputs split into phases that each look like a plain strided convolution.
#include "src/backends/cpu/kernels/conv_gather.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/backends/cpu/kernels/gemm_plan.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int kDims = kMaxSpatialDims;
constexpr int kInner = kDims - 1;
// Steps of K between two visits of C: a panel of this many steps (128 KiB) stays in L2.
constexpr int64_t kBlockSteps = 512;
// Pixels whose results stay in L2 while all of K passes over them.
constexpr int64_t kResidentBytes = 192 << 10;

struct Phase {
  PhaseDim dims[kDims];
  int64_t pixels = 0;      // per batch member
  int64_t outer_taps = 0;  // all but the innermost dimension's
  int64_t inner_taps = 0;
  bool joinable = false;     // inner taps are neighbours in memory
  int64_t k_steps = 0;       // packed steps of one inner tap
  bool joined_pack = false;  // the panel holds joined runs (odd pairs): only with dims[kInner].inside
  int64_t run_steps = 0;     // packed steps of one outer tap
  int64_t block_outer = 1;   // outer taps per block of K
  int64_t packed = 0;        // byte offset of the phase's packed panels
  bool within = false;       // no tap of no pixel falls into padding
  int64_t tiles = 1;         // of rows
  int64_t line_tiles = 0;    // tiles of one line where lines are cut alone, else 0
};

class Gather {
 public:
  Gather(KernelSet::State& state, const GatherCall& call) : state_(state), call_(call) {
    element_ = PackedElementBytes(call.types.pack);
    source_ = call.types.source_bytes;
    columns_ = ColumnCut::Make(state.target(), call.types.micro, call.group_to);
    mr_ = MicroMaxRows(state.target(), MicroForm::kRows, columns_.MaxVectors());
    // Strides of `from` in elements.
    int64_t stride = call.FromChannels();
    for (int d = kDims - 1; d >= 0; --d) {
      in_stride_[d] = stride;
      stride *= call.geometry.dims[d].in;
    }
    image_ = stride;
    int64_t out_stride = call.ToChannels();
    for (int d = kDims - 1; d >= 0; --d) {
      out_stride_[d] = out_stride;
      out_stride *= call.geometry.dims[d].out;
    }
    out_image_ = out_stride;
    MakePhases();
  }

  absl::Status Run(const Duty& duty) {
    for (const Phase& phase : phases_) {
      if (phase.pixels == 0) continue;
      if (phase.outer_taps * phase.inner_taps == 0) continue;
      TileSet set;
      const int64_t rows = phase.line_tiles > 0 ? phase.dims[kInner].count : call_.batch * phase.pixels;
      WEFT_RETURN_IF_ERROR(FetchTiles(state_, call_.types.micro, MicroForm::kRows, rows,
                                      phase.line_tiles > 0 ? phase.line_tiles : phase.tiles, columns_, false, &set));
      sets_.push_back(set);
    }
    const int64_t zero_bytes = (max_run_steps_ + 16) * element_ + 64;
    if (duty.pool == nullptr) {
      duty.needs->Once(ScratchSlot::kShared, packed_bytes_ + zero_bytes);
      for (const Phase& phase : phases_) duty.needs->Each(ScratchSlot::kTables, TableBytes(phase));
      if (call_.types.narrow) duty.needs->Each(ScratchSlot::kOutput, WideBytes());
      return absl::OkStatus();
    }
    char* shared = static_cast<char*>(ThreadScratch(ScratchSlot::kShared, packed_bytes_ + zero_bytes));
    if (shared == nullptr) return OutOfScratch("a convolution's packed kernel", packed_bytes_ + zero_bytes);
    packed_ = shared;
    zeros_ = shared + packed_bytes_;
    std::memset(shared + packed_bytes_, 0, zero_bytes);
    PackAll(*duty.pool);
    size_t set = 0;
    for (const Phase& phase : phases_) {
      if (phase.pixels == 0) continue;
      const bool empty = phase.outer_taps * phase.inner_taps == 0;
      RunPhase(phase, empty ? nullptr : &sets_[set], *duty.pool);
      if (!empty) ++set;
    }
    return out_of_memory_.load(std::memory_order_relaxed) ? OutOfScratch("a convolution's tables", 0)
                                                          : absl::OkStatus();
  }

 private:
  void MakePhases() {
    std::vector<PhaseDim> split[kDims];
    for (int d = 0; d < kDims; ++d) split[d] = SplitDim(call_.geometry.dims[d]);
    const bool pairs = call_.types.pack == PackKind::kBF16Pairs;
    for (const PhaseDim& p0 : split[0]) {
      for (const PhaseDim& p1 : split[1]) {
        for (const PhaseDim& p2 : split[2]) {
          for (const PhaseDim& p3 : split[3]) {
            Phase phase;
            phase.dims[0] = p0;
            phase.dims[1] = p1;
            phase.dims[2] = p2;
            phase.dims[3] = p3;
            phase.pixels = p0.count * p1.count * p2.count * p3.count;
            phase.outer_taps = static_cast<int64_t>(p0.taps.size() * p1.taps.size() * p2.taps.size());
            phase.inner_taps = static_cast<int64_t>(p3.taps.size());
            phase.joinable = call_.groups == 1;
            phase.within = p0.inside && p1.inside && p2.inside && p3.inside;
            for (size_t t = 1; t < p3.offsets.size(); ++t) {
              if (p3.offsets[t] != p3.offsets[t - 1] + 1) phase.joinable = false;
            }
            const bool odd = pairs && call_.group_from % 2 != 0;
            phase.joined_pack = odd && phase.joinable && p3.inside;
            if (odd && !phase.joined_pack) phase.joinable = false;
            phase.k_steps = PackedSteps(call_.types.pack, call_.group_from);
            phase.run_steps = phase.joined_pack ? PackedSteps(call_.types.pack, phase.inner_taps * call_.group_from)
                                                : phase.inner_taps * phase.k_steps;
            phase.block_outer = std::max<int64_t>(1, kBlockSteps / std::max<int64_t>(1, phase.run_steps));
            phase.packed = packed_bytes_;
            packed_bytes_ += PhaseBytes(phase);
            max_run_steps_ = std::max(max_run_steps_, phase.run_steps);
            if (phase.pixels > 0) CutRows(phase);
            phases_.push_back(std::move(phase));
          }
        }
      }
    }
  }

  // Tiles that end with their line cost one pixel's arithmetic for all pointers (a tenth of a small kernel's time), so
  // lines are cut alone unless that makes tiles a quarter lower.
  void CutRows(Phase& phase) const {
    const int64_t line = phase.dims[kInner].count;
    const int64_t rows = call_.batch * phase.pixels;
    const int64_t parts = CeilDiv(line, mr_);
    const bool alone = 4 * line >= 3 * parts * mr_;
    phase.line_tiles = alone ? parts : 0;
    phase.tiles = alone ? rows / line * parts : CeilDiv(rows, mr_);
  }
  int64_t FirstRow(const Phase& phase, int64_t tile) const {
    if (phase.line_tiles == 0) return CutAt(call_.batch * phase.pixels, phase.tiles, tile);
    const int64_t line = phase.dims[kInner].count;
    return tile / phase.line_tiles * line + CutAt(line, phase.line_tiles, tile % phase.line_tiles);
  }

  int64_t GroupBytes(const Phase& phase) const {
    return phase.outer_taps * phase.run_steps * columns_.vectors * columns_.lanes * element_;
  }
  int64_t PhaseBytes(const Phase& phase) const { return GroupBytes(phase) * call_.groups; }
  // A panel holds all taps of its columns, K-major.
  int64_t PanelOffset(const Phase& phase, int64_t group, int64_t panel) const {
    return phase.packed + group * GroupBytes(phase) +
           phase.outer_taps * phase.run_steps * columns_.First(panel) * columns_.lanes * element_;
  }

  // The flat stored tap for an outer tap index and an inner one of this phase.
  int64_t StoredTap(const Phase& phase, int64_t outer, int64_t inner) const {
    const int64_t n2 = static_cast<int64_t>(phase.dims[2].taps.size());
    const int64_t n1 = static_cast<int64_t>(phase.dims[1].taps.size());
    const int64_t at[kDims] = {outer / (n1 * n2), outer / n2 % n1, outer % n2, inner};
    int64_t flat = 0;
    for (int d = 0; d < kDims; ++d) {
      const SpatialDim& dim = call_.geometry.dims[d];
      flat = flat * dim.window + WeightTap(dim, phase.dims[d].taps[at[d]]);
    }
    return flat;
  }

  void PackAll(ThreadPool& pool) {
    struct Job {
      const Phase* phase;
      int64_t group, panel;
    };
    std::vector<Job> jobs;
    for (const Phase& phase : phases_) {
      for (int64_t group = 0; group < call_.groups; ++group) {
        for (int64_t panel = 0; panel < columns_.panels; ++panel) jobs.push_back({&phase, group, panel});
      }
    }
    const auto pack = [&](int64_t begin, int64_t end, int) {
      for (int64_t j = begin; j < end; ++j) PackPanel(*jobs[j].phase, jobs[j].group, jobs[j].panel);
    };
    const int64_t count = static_cast<int64_t>(jobs.size());
    if (packed_bytes_ < (64 << 10)) return pack(0, count, 0);
    pool.ParallelRanges(count, pack);
  }

  void PackPanel(const Phase& phase, int64_t group, int64_t panel) {
    const int64_t lanes = columns_.Columns(panel);
    const int64_t width = static_cast<int64_t>(columns_.Vectors(panel)) * columns_.lanes;
    char* out = packed_ + PanelOffset(phase, group, panel);
    const char* base =
        static_cast<const char*>(call_.weights) +
        (group * call_.group_stride + columns_.First(panel) * columns_.lanes * call_.to_stride) * source_;
    for (int64_t outer = 0; outer < phase.outer_taps; ++outer) {
      if (phase.joined_pack) {
        // Odd pairs straddle taps: only where the stored taps follow each other, which `joinable` and this check say.
        PackJoinedPairs(phase, outer, base, lanes, width, out + outer * phase.run_steps * width * element_);
        continue;
      }
      for (int64_t inner = 0; inner < phase.inner_taps; ++inner) {
        const int64_t steps = outer * phase.run_steps + inner * phase.k_steps;
        Pack(state_.target(), call_.types.pack,
             {base + StoredTap(phase, outer, inner) * call_.tap_stride * source_, call_.from_stride, call_.to_stride},
             call_.group_from, lanes, width, out + steps * width * element_);
      }
    }
  }

  void PackJoinedPairs(const Phase& phase, int64_t outer, const char* base, int64_t lanes, int64_t width, char* out) {
    const int64_t length = phase.inner_taps * call_.group_from;
    uint16_t* to = reinterpret_cast<uint16_t*>(out);
    std::memset(out, 0, phase.run_steps * width * element_);
    for (int64_t k = 0; k < length; ++k) {
      const uint16_t* row = reinterpret_cast<const uint16_t*>(base) +
                            StoredTap(phase, outer, k / call_.group_from) * call_.tap_stride +
                            k % call_.group_from * call_.from_stride;
      for (int64_t lane = 0; lane < lanes; ++lane) to[(k / 2 * width + lane) * 2 + k % 2] = row[lane * call_.to_stride];
    }
  }

  void RunPhase(const Phase& phase, const TileSet* set, ThreadPool& pool) {
    const int64_t rows = call_.batch * phase.pixels;
    const int64_t tiles = phase.tiles;
    const int64_t panels = columns_.panels * call_.groups;
    const auto by_tiles = [&](int64_t begin, int64_t end, int) { RunTiles(phase, set, begin, end, 0, panels); };
    const int64_t work = 2 * rows * (phase.outer_taps * phase.run_steps + 8) * call_.ToChannels();
    const int threads = pool.threads();
    if (work < 200'000 || threads == 1) return by_tiles(0, tiles, 0);
    const auto balance = [&](int64_t items) {
      return static_cast<double>(items) / (CeilDiv(items, threads) * threads);
    };
    if (balance(tiles) >= balance(panels) - 0.02) return pool.ParallelRanges(tiles, by_tiles);
    pool.ParallelRanges(panels, [&](int64_t begin, int64_t end, int) { RunTiles(phase, set, 0, tiles, begin, end); });
  }

  // Where a tile's pixels are: filled for one tile at a time, walking an odometer over (member, positions).
  struct Cursor {
    int64_t member = 0;
    int64_t at[kDims] = {};
  };

  void Seek(const Phase& phase, int64_t row, Cursor* cursor) const {
    cursor->member = row / phase.pixels;
    int64_t rest = row % phase.pixels;
    for (int d = kDims - 1; d >= 0; --d) {
      cursor->at[d] = rest % phase.dims[d].count;
      rest /= phase.dims[d].count;
    }
  }
  static void Advance(const Phase& phase, Cursor* cursor) {
    for (int d = kDims - 1; d >= 0; --d) {
      if (++cursor->at[d] < phase.dims[d].count) return;
      cursor->at[d] = 0;
    }
    ++cursor->member;
  }
  static void AdvanceBy(const Phase& phase, int64_t rows, Cursor* cursor) {
    cursor->at[kInner] += rows;
    while (cursor->at[kInner] >= phase.dims[kInner].count) {
      cursor->at[kInner] -= phase.dims[kInner].count;
      int d = kInner - 1;
      for (; d >= 0; --d) {
        if (++cursor->at[d] < phase.dims[d].count) break;
        cursor->at[d] = 0;
      }
      if (d < 0) ++cursor->member;
    }
  }
  int64_t OutOffset(const Phase& phase, const Cursor& cursor) const {
    int64_t offset = cursor.member * out_image_;
    for (int d = 0; d < kDims; ++d)
      offset += (phase.dims[d].first + cursor.at[d] * phase.dims[d].step) * out_stride_[d];
    return offset;
  }

  // One pixel's pointers for outer taps [outer0, outer1): stride `mr` between taps. Padding points at zeros.
  void SetPixel(const Phase& phase, const Cursor& cursor, int64_t outer0, int64_t outer1, bool joined, int64_t channel,
                int64_t mr, const void** slot) const {
    const char* from = static_cast<const char*>(call_.from);
    const PhaseDim& inner = phase.dims[kInner];
    const int64_t n2 = static_cast<int64_t>(phase.dims[2].taps.size());
    const int64_t n1 = static_cast<int64_t>(phase.dims[1].taps.size());
    const int64_t inner_at = cursor.at[kInner] * inner.in_step;
    const int64_t inner_size = call_.geometry.dims[kInner].in;
    const int64_t base = cursor.member * image_ + channel;
    for (int64_t outer = outer0; outer < outer1; ++outer) {
      const int64_t tap[kInner] = {outer / (n1 * n2), outer / n2 % n1, outer % n2};
      int64_t offset = base;
      bool inside = true;
      for (int d = 0; d < kInner; ++d) {
        if (phase.dims[d].count == 1 && phase.dims[d].offsets[tap[d]] == 0) continue;  // absent leading dimensions
        const int64_t at = cursor.at[d] * phase.dims[d].in_step + phase.dims[d].offsets[tap[d]];
        inside &= at >= 0 && at < call_.geometry.dims[d].in;
        offset += at * in_stride_[d];
      }
      if (joined) {
        *slot = inside ? from + (offset + (inner_at + inner.offsets[0]) * in_stride_[kInner]) * source_ : zeros_;
        slot += mr;
        continue;
      }
      for (int64_t t = 0; t < phase.inner_taps; ++t) {
        const int64_t at = inner_at + inner.offsets[t];
        *slot = inside && at >= 0 && at < inner_size ? from + (offset + at * in_stride_[kInner]) * source_ : zeros_;
        slot += mr;
      }
    }
  }

  // Whether these pixels share a line and all inner taps of all of them lie inside: then they differ by a constant.
  bool InsideLine(const Phase& phase, const Cursor& first, int64_t rows) const {
    const PhaseDim& inner = phase.dims[kInner];
    if (first.at[kInner] + rows > inner.count) return false;
    if (inner.inside) return true;
    const int64_t low = first.at[kInner] * inner.in_step + inner.offsets.front();
    const int64_t high = (first.at[kInner] + rows - 1) * inner.in_step + inner.offsets.back();
    return low >= 0 && high < call_.geometry.dims[kInner].in;
  }

  // All pointers of a tile. Tiles within a line (nearly all) cost one pixel's arithmetic and an addition a pointer.
  void SetTile(const Phase& phase, const Cursor& first, int64_t rows, bool in_line, int64_t outer0, int64_t outer1,
               bool joined, int64_t channel, const void** a, void** c, char* narrow) const {
    const int64_t bytes = call_.types.accumulator_bytes;
    char* to = narrow != nullptr ? narrow : static_cast<char*>(call_.to);
    const auto place = [&](const Cursor& cursor) {
      return to + (narrow != nullptr ? 0 : OutOffset(phase, cursor) * bytes);
    };
    if (!in_line) {
      Cursor cursor = first;
      for (int64_t r = 0; r < rows; ++r) {
        SetPixel(phase, cursor, outer0, outer1, joined, channel, rows, a + r);
        c[r] = place(cursor) + (narrow != nullptr ? r * call_.ToChannels() * bytes : 0);
        Advance(phase, &cursor);
      }
      return;
    }
    SetPixel(phase, first, outer0, outer1, joined, channel, rows, a);
    const PhaseDim& inner = phase.dims[kInner];
    const int64_t delta = inner.in_step * in_stride_[kInner] * source_;
    const int64_t taps = (outer1 - outer0) * (joined ? 1 : phase.inner_taps);
    for (int64_t t = 0; t < taps; ++t) {
      const void** slot = a + t * rows;
      const char* base = static_cast<const char*>(slot[0]);
      const int64_t step = base == zeros_ ? 0 : delta;
      for (int64_t r = 1; r < rows; ++r) slot[r] = base + r * step;
    }
    const int64_t c_step = (narrow != nullptr ? call_.ToChannels() : inner.step * out_stride_[kInner]) * bytes;
    char* base = place(first);
    for (int64_t r = 0; r < rows; ++r) c[r] = base + r * c_step;
  }

  // Taps that lie in the padding for all of a tile's pixels add nothing (in a gradient of 3x3 over lines of 24, one line
  // in thirteen): moves the others to the front of `a`, their numbers to `kept`, and returns how many there are.
  int64_t DropPadding(const Phase& phase, int64_t rows, int64_t taps, const void** a, int64_t* kept) const {
    int64_t count = 0;
    for (int64_t t = 0; t < taps; ++t) {
      const void** from = a + t * rows;
      bool padding = !phase.within;
      for (int64_t r = 0; r < rows && padding; ++r) padding = from[r] == zeros_;
      // One is left, for the zeros that it writes.
      if (padding && !(t == taps - 1 && count == 0)) continue;
      if (count < t) std::copy(from, from + rows, a + count * rows);
      kept[count++] = t;
    }
    return count;
  }

  // Tiles whose results stay in L2 together.
  int64_t ResidentTiles() const {
    const int64_t tile_bytes = call_.ToChannels() * call_.types.accumulator_bytes * mr_;
    return std::clamp<int64_t>(kResidentBytes / std::max<int64_t>(1, tile_bytes), 4, 256);
  }
  // Taps of one block of K.
  static int64_t BlockTaps(const Phase& phase) { return phase.block_outer * std::max<int64_t>(1, phase.inner_taps); }
  int64_t TableBytes(const Phase& phase) const { return BlockTaps(phase) * (mr_ + 2) * 8 + 64; }
  // Of resident results in f32 where they shall be narrower.
  int64_t WideBytes() const { return ResidentTiles() * mr_ * call_.ToChannels() * 4; }

  void RunTiles(const Phase& phase, const TileSet* set, int64_t tile_begin, int64_t tile_end, int64_t panel_begin,
                int64_t panel_end) {
    const int64_t resident = ResidentTiles();
    const int64_t table = BlockTaps(phase);
    // Pointers of one block's taps, and the offsets into the panel for joined and single taps.
    void* memory = ThreadScratch(ScratchSlot::kTables, TableBytes(phase));
    char* narrow = nullptr;
    if (call_.types.narrow) {
      narrow = static_cast<char*>(ThreadScratch(ScratchSlot::kOutput, WideBytes()));
    }
    if (memory == nullptr || (call_.types.narrow && narrow == nullptr)) {
      out_of_memory_.store(true, std::memory_order_relaxed);
      return;
    }
    const void** a = static_cast<const void**>(memory);
    int64_t* b_offsets = reinterpret_cast<int64_t*>(a + table * mr_);
    for (int64_t group0 = tile_begin; group0 < tile_end; group0 += resident) {
      const int64_t group1 = std::min(tile_end, group0 + resident);
      const int64_t row0 = FirstRow(phase, group0);
      const int64_t row1 = FirstRow(phase, group1);
      if (set == nullptr) {
        Zero(phase, row0, row1, panel_begin, panel_end);
      } else {
        for (int64_t outer = 0; outer < phase.outer_taps; outer += phase.block_outer) {
          RunBlock(phase, *set, table, group0, group1, outer, std::min(phase.outer_taps, outer + phase.block_outer),
                   panel_begin, panel_end, a, b_offsets, narrow, row0);
        }
        if (narrow != nullptr) NarrowRows(phase, row0, row1, panel_begin, panel_end, narrow);
      }
      Finish(phase, row0, row1, panel_begin, panel_end);
    }
  }

  int64_t FirstChannel(int64_t flat_panel) const {
    const int64_t group = flat_panel / columns_.panels;
    return group * call_.group_to + columns_.First(flat_panel % columns_.panels) * columns_.lanes;
  }
  int64_t EndChannel(int64_t flat_panel_end) const {
    const int64_t last = flat_panel_end - 1;
    return FirstChannel(last) + columns_.Columns(last % columns_.panels);
  }

  void RunBlock(const Phase& phase, const TileSet& set, int64_t table, int64_t tile_begin, int64_t tile_end,
                int64_t outer0, int64_t outer1, int64_t panel_begin, int64_t panel_end, const void** a,
                int64_t* b_offsets, char* narrow, int64_t narrow_row0) {
    const int64_t accumulator = call_.types.accumulator_bytes;
    int64_t* kept = b_offsets + table;
    const bool pairs = call_.types.pack == PackKind::kBF16Pairs;
    void* c[16];
    MicroArgs args;
    args.a = a;
    args.b_offsets = b_offsets;
    args.c = c;
    args.accumulate = outer0 > 0;
    int64_t row = FirstRow(phase, tile_begin);
    Cursor first;
    Seek(phase, row, &first);
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      const int64_t rows = FirstRow(phase, tile + 1) - row;
      const bool in_line = InsideLine(phase, first, rows);
      // Joining changes no bits: the same products in the same order.
      const bool joined = phase.joinable && (in_line || phase.dims[kInner].inside);
      const int64_t per_outer = joined ? 1 : phase.inner_taps;
      const int64_t length = joined ? phase.inner_taps * call_.group_from : call_.group_from;
      const int64_t taps = (outer1 - outer0) * per_outer;
      args.k = pairs ? length / 2 : length;
      args.odd = pairs ? length % 2 : 0;
      const int64_t tap_steps = joined ? phase.run_steps : phase.k_steps;
      int64_t group = -1;
      for (int64_t flat = panel_begin; flat < panel_end; ++flat) {
        const int64_t panel = flat % columns_.panels;
        if (flat / columns_.panels != group) {
          group = flat / columns_.panels;
          char* narrow_row = narrow == nullptr ? nullptr : narrow + (row - narrow_row0) * call_.ToChannels() * 4;
          SetTile(phase, first, rows, in_line, outer0, outer1, joined, group * call_.group_from, a, c, narrow_row);
          args.taps = DropPadding(phase, rows, taps, a, kept);
        }
        const int64_t step_bytes = static_cast<int64_t>(columns_.Vectors(panel)) * columns_.lanes * element_;
        for (int64_t t = 0; t < args.taps; ++t) b_offsets[t] = kept[t] * tap_steps * step_bytes;
        args.b = packed_ + PanelOffset(phase, group, panel) + outer0 * phase.run_steps * step_bytes;
        args.b_stride = step_bytes;
        args.c_offset = FirstChannel(flat) * accumulator;
        args.last_lanes = columns_.LastLanes(panel);
        set.At(rows, columns_.Vectors(panel), false)(&args);
      }
      AdvanceBy(phase, rows, &first);
      row += rows;
    }
  }

  // Output pixels that no tap reaches (a gradient of skipped input): zeros.
  void Zero(const Phase& phase, int64_t row0, int64_t row1, int64_t panel_begin, int64_t panel_end) const {
    const int64_t bytes = call_.types.narrow ? 2 : call_.types.accumulator_bytes;
    Cursor cursor;
    Seek(phase, row0, &cursor);
    for (int64_t row = row0; row < row1; ++row) {
      std::memset(static_cast<char*>(call_.to) + (OutOffset(phase, cursor) + FirstChannel(panel_begin)) * bytes, 0,
                  (EndChannel(panel_end) - FirstChannel(panel_begin)) * bytes);
      Advance(phase, &cursor);
    }
  }

  void NarrowRows(const Phase& phase, int64_t row0, int64_t row1, int64_t panel_begin, int64_t panel_end,
                  const char* narrow) const {
    const int64_t channel = FirstChannel(panel_begin);
    Cursor cursor;
    Seek(phase, row0, &cursor);
    for (int64_t row = row0; row < row1; ++row) {
      Narrow(call_.output, reinterpret_cast<const float*>(narrow) + (row - row0) * call_.ToChannels() + channel, 0,
             static_cast<char*>(call_.to) + (OutOffset(phase, cursor) + channel) * 2, 0, 1,
             EndChannel(panel_end) - channel);
      Advance(phase, &cursor);
    }
  }

  void Finish(const Phase& phase, int64_t row0, int64_t row1, int64_t panel_begin, int64_t panel_end) const {
    if (call_.epilogue.run == nullptr) return;
    const int64_t channel = FirstChannel(panel_begin);
    const int64_t channels = EndChannel(panel_end) - channel;
    if (phases_.size() == 1) return call_.epilogue.run(call_.epilogue.context, 0, row0, row1 - row0, channel, channels);
    Cursor cursor;
    Seek(phase, row0, &cursor);
    for (int64_t row = row0; row < row1; ++row) {
      call_.epilogue.run(call_.epilogue.context, 0, OutOffset(phase, cursor) / call_.ToChannels(), 1, channel,
                         channels);
      Advance(phase, &cursor);
    }
  }

  KernelSet::State& state_;
  const GatherCall& call_;
  int64_t element_, source_;
  ColumnCut columns_;
  int mr_;
  int64_t in_stride_[kDims], out_stride_[kDims];
  int64_t image_ = 0, out_image_ = 0;
  std::vector<Phase> phases_;
  std::vector<TileSet> sets_;
  int64_t packed_bytes_ = 0;
  int64_t max_run_steps_ = 0;
  char* packed_ = nullptr;
  const char* zeros_ = nullptr;
  std::atomic<bool> out_of_memory_{false};
};

}  // namespace

absl::Status RunGather(KernelSet::State& state, const GatherCall& call, const Duty& duty) {
  if (call.batch * call.geometry.out * call.ToChannels() == 0) return absl::OkStatus();
  return Gather(state, call).Run(duty);
}

}  // namespace weft::cpu
