// Direct NHWC convolution on register tiles. A tile is 6-8 output pixels by up to 64 channels; its K loop runs over the
// window's taps, each tap a pointer per pixel (padding points at a row of zeros) and a run of channels. Taps side by
// side in memory join into one run. Dilated inputs split into phases that each look like a plain strided convolution.
#include "src/backends/cpu/kernels/conv/conv_gather.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/backends/cpu/kernels/conv/conv_padding.h"
#include "src/backends/cpu/kernels/conv/conv_panels.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/parallel_pieces.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int kDims = kMaxSpatialDims;
constexpr int kInner = kDims - 1;
// Below this many operations the join of two threads is not repaid.
constexpr int64_t kInlineWork = 200'000;

class Gather {
 public:
  Gather(KernelSet::State& state, const GatherCall& call)
      : state_(state),
        plan_(GatherPlan::Make(state.target(), call)),
        call_(plan_.call),
        columns_(plan_.columns),
        phases_(plan_.phases),
        form_(plan_.form),
        mr_(plan_.rows) {
    element_ = plan_.element();
    source_ = call.types.source_bytes;
    // Strides of `from` in elements.
    int64_t stride = call_.FromChannels();
    for (int d = kDims - 1; d >= 0; --d) {
      in_stride_[d] = stride;
      stride *= call_.geometry.dims[d].in;
    }
    image_ = stride;
    int64_t out_stride = call_.ToChannels();
    for (int d = kDims - 1; d >= 0; --d) {
      out_stride_[d] = out_stride;
      out_stride *= call_.geometry.dims[d].out;
    }
    out_image_ = out_stride;
    for (const Phase& phase : phases_) max_run_steps_ = std::max(max_run_steps_, phase.run_steps);
    panels_.resize(plan_.Panels());
    for (int64_t flat = 0; flat < plan_.Panels(); ++flat) {
      const int64_t group = flat / columns_.panels, panel = flat % columns_.panels;
      const int64_t first = group * call_.group_to + columns_.First(panel) * columns_.lanes;
      panels_[flat] = {group,
                       first,
                       first + columns_.Columns(panel),
                       columns_.LastLanes(panel),
                       columns_.Vectors(panel),
                       (group * columns_.vectors + columns_.First(panel)) * columns_.lanes * plan_.element()};
    }
  }

  absl::Status Run(const Duty& duty) {
    for (const Phase& phase : phases_) {
      if (duty.pool == nullptr && !duty.fetches) break;
      WEFT_RETURN_IF_ERROR(FetchSets(phase, &sets_.emplace_back()));
      for (const Phase& part : phase.parts) WEFT_RETURN_IF_ERROR(FetchSets(part, &part_sets_.emplace_back()));
    }
    const int64_t packed_bytes = plan_.PackedBytes();
    const int64_t zero_bytes = (max_run_steps_ + 16) * element_ + 64;
    if (duty.pool == nullptr) {
      duty.needs->Once(ScratchSlot::kShared, packed_bytes + zero_bytes);
      for (const Phase& phase : phases_) {
        duty.needs->Each(ScratchSlot::kTables, TableBytes(phase));
        PaddedLines(call_.padded, phase, mr_).Need(*duty.needs);
        if (Widens(phase)) duty.needs->Each(ScratchSlot::kOutput, WideBytes(phase));
      }
      return absl::OkStatus();
    }
    const int64_t shared_bytes = zero_bytes + (call_.packed != nullptr ? 0 : packed_bytes);
    char* shared = static_cast<char*>(ThreadScratch(ScratchSlot::kShared, shared_bytes));
    if (shared == nullptr) return OutOfScratch("a convolution's packed kernel", shared_bytes);
    zeros_ = shared + shared_bytes - zero_bytes;
    std::memset(shared + shared_bytes - zero_bytes, 0, zero_bytes);
    std::vector<Dealing> dealings;
    denormals_vanish_ = call_.types.narrow && call_.ending.kind != EndingKind::kNone && call_.DenormalsVanish();
    for (const Phase& phase : phases_) dealings.push_back(DealingOf(phase, duty.pool->threads()));
    packed_ = static_cast<const char*>(call_.packed);
    if (packed_ == nullptr) {
      packs_to_ = shared;
      packed_ = shared;
      PackForTiles(dealings, *duty.pool);
    }
    for (size_t i = 0; i < phases_.size(); ++i) RunPhase(phases_[i], sets_[i], dealings[i], *duty.pool);
    return out_of_memory_.load(std::memory_order_relaxed) ? OutOfScratch("a convolution's tables", 0)
                                                          : absl::OkStatus();
  }

 private:
  // A panel of the packed kernel, found by its number over all groups; tiles are too short for the divisions that find it.
  struct Panel {
    int64_t group = 0;
    int64_t first = 0, end = 0;  // channels
    int64_t last_lanes = 0;
    int vectors = 0;
    int64_t before = 0;  // bytes of a packed step
  };
  // The tiles of blocks that others follow, and of the last one of a phase that ends its results.
  struct Sets {
    TileSet plain, end;
  };
  absl::Status FetchSets(const Phase& phase, Sets* sets) {
    if (phase.empty() || !phase.parts.empty()) return absl::OkStatus();
    const int64_t rows = phase.line_tiles > 0 ? phase.dims[kInner].count : call_.batch * phase.pixels;
    const MicroType type = Rounds(phase) ? MicroType::kBF16Rounded : call_.types.micro;
    const int64_t tiles = phase.line_tiles > 0 ? phase.line_tiles : phase.tiles;
    if (!Ends(phase) || phase.blocks.size() > 1) {
      WEFT_RETURN_IF_ERROR(FetchTiles(state_, type, form_, rows, tiles, columns_, false, &sets->plain));
    }
    if (!Ends(phase)) return absl::OkStatus();
    return FetchTiles(state_, type, form_, rows, tiles, columns_, false, &sets->end, call_.ending.kind);
  }

  enum class Dealing { kInline, kPanels, kTiles };
  // Threads that each have panels of their own pack them as they come to them, into their L2; else, and where K runs
  // along the kernel's memory (which is read in long runs or slowly), all is packed before.
  bool PacksBefore(Dealing dealing) const { return dealing == Dealing::kTiles || call_.from_stride == 1; }
  Dealing DealingOf(const Phase& phase, int threads) const {
    const int64_t work = 2 * call_.batch * phase.pixels * (phase.steps() + 8) * call_.ToChannels();
    if (work < kInlineWork || threads == 1) return Dealing::kInline;
    return DealsPanels(call_, columns_, phase, threads) ? Dealing::kPanels : Dealing::kTiles;
  }

  bool Rounds(const Phase& phase) const { return RoundsSums(call_, phase); }
  bool Ends(const Phase& phase) const { return EndsSums(call_, phase, phases_.size()); }
  bool Widens(const Phase& phase) const { return call_.types.narrow && !Rounds(phase); }
  int64_t TileBytes(const Phase& phase) const { return Rounds(phase) ? 2 : call_.types.accumulator_bytes; }

  void PackForTiles(const std::vector<Dealing>& dealings, ThreadPool& pool) {
    std::vector<const Phase*> before;
    for (size_t i = 0; i < phases_.size(); ++i) {
      if (!phases_[i].empty() && PacksBefore(dealings[i])) before.push_back(&phases_[i]);
    }
    plan_.Pack(state_.target(), before, packs_to_, pool);
  }

  // In how many parts a thread's share goes. Every part of the pixels reads all of the kernel: one that exceeds L2 once.
  int64_t Pieces(const Phase& phase, Dealing dealing, int threads) const {
    constexpr int64_t kPieceWork = 250'000, kMostPieces = 64, kMostBytes = 768 << 10;
    const int64_t work = 2 * call_.batch * phase.pixels * (phase.steps() + 8) * call_.ToChannels() / threads;
    if (dealing == Dealing::kTiles && plan_.PackedBytes() > kMostBytes) return 1;
    return std::clamp<int64_t>(work / kPieceWork, 1, kMostPieces);
  }

  void RunPhase(const Phase& phase, const Sets& sets, Dealing dealing, ThreadPool& pool) {
    const int64_t panels = plan_.Panels();
    const bool packs = packs_to_ != nullptr && !PacksBefore(dealing);
    switch (dealing) {
      case Dealing::kInline: return RunTiles(phase, sets, 0, phase.tiles, 0, panels, packs);
      case Dealing::kTiles:
        return ParallelPieces(
            pool, phase.tiles, Pieces(phase, dealing, pool.threads()),
            [&](int64_t begin, int64_t end, int) { RunTiles(phase, sets, begin, end, 0, panels, packs); });
      case Dealing::kPanels:
        return ParallelPieces(
            pool, panels, Pieces(phase, dealing, pool.threads()),
            [&](int64_t begin, int64_t end, int) { RunTiles(phase, sets, 0, phase.tiles, begin, end, packs); });
    }
  }

  // A thread's tables.
  struct Own {
    const void** a = nullptr;      // pointers of one block's taps
    int64_t* b_offsets = nullptr;  // into the panel, for joined and single taps
    char* wide = nullptr;          // results in f32 where they shall be narrower
    const char* from = nullptr;    // what is so many bytes behind the image's beginning
    int64_t behind = 0;
  };
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

  // One pixel's pointers for a block's taps, or the first inner ones of joined runs: stride `mr` between taps. Padding
  // points at zeros.
  void SetPixel(const Phase& phase, const KBlock& block, const Cursor& cursor, bool joined, int64_t channel, int64_t mr,
                const Own& own, const void** slot) const {
    const auto from = [&](int64_t offset) { return own.from + (offset * source_ - own.behind); };
    const PhaseDim& inner = phase.dims[kInner];
    const int64_t n2 = static_cast<int64_t>(phase.dims[2].taps.size());
    const int64_t n1 = static_cast<int64_t>(phase.dims[1].taps.size());
    const int64_t inner_at = cursor.at[kInner] * inner.in_step;
    const int64_t inner_size = call_.geometry.dims[kInner].in;
    const int64_t base = cursor.member * image_ + channel;
    int64_t outer = block.tap0 == 0 ? 0 : block.tap0 / phase.inner_taps;
    int64_t tap[kInner] = {0, 0, 0};  // as odometers turn: a division takes as long as a row of a small tile
    if (outer != 0) {
      tap[0] = outer / (n1 * n2);
      tap[1] = outer / n2 % n1;
      tap[2] = outer % n2;
    }
    const auto next = [&] {
      ++outer;
      if (++tap[2] < n2) return;
      tap[2] = 0;
      if (++tap[1] < n1) return;
      tap[1] = 0;
      ++tap[0];
    };
    for (int64_t flat = block.tap0; flat < block.tap1; next()) {
      const int64_t outer_end = std::min(block.tap1, (outer + 1) * phase.inner_taps);
      int64_t offset = base;
      bool inside = true;
      for (int d = 0; d < kInner; ++d) {
        if (phase.dims[d].count == 1 && phase.dims[d].offsets[tap[d]] == 0) continue;  // absent leading dimensions
        const int64_t at = cursor.at[d] * phase.dims[d].in_step + phase.dims[d].offsets[tap[d]];
        inside &= at >= 0 && at < call_.geometry.dims[d].in;
        offset += at * in_stride_[d];
      }
      if (joined) {
        *slot = inside ? from(offset + (inner_at + inner.offsets[0]) * in_stride_[kInner]) : zeros_;
        slot += mr;
        flat = outer_end;
        continue;
      }
      for (; flat < outer_end; ++flat) {
        const int64_t at = inner_at + inner.offsets[flat - outer * phase.inner_taps];
        *slot = inside && at >= 0 && at < inner_size ? from(offset + at * in_stride_[kInner]) : zeros_;
        slot += mr;
      }
    }
  }

  // Tells whether these pixels share a line and all inner taps of all of them lie inside: then they differ by a constant.
  bool InsideLine(const Phase& phase, const Cursor& first, int64_t rows) const {
    const PhaseDim& inner = phase.dims[kInner];
    if (first.at[kInner] + rows > inner.count) return false;
    if (inner.inside) return true;
    const int64_t low = first.at[kInner] * inner.in_step + inner.offsets.front();
    const int64_t high = (first.at[kInner] + rows - 1) * inner.in_step + inner.offsets.back();
    return low >= 0 && high < call_.geometry.dims[kInner].in;
  }

  int64_t Pointers(int64_t rows) const { return form_ == MicroForm::kColumns ? 1 : rows; }

  // All pointers of a tile: a's for `taps` taps or runs of them. Tiles within a line (nearly all) cost one pixel's
  // arithmetic and an addition a pointer. `wide`: the tile's results in f32 where they shall be narrower, rows of
  // `wide_stride` bytes.
  void SetTile(const Phase& phase, const KBlock& block, const Cursor& first, int64_t rows, bool in_line, bool joined,
               int64_t taps, int64_t channel, const Own& own, void** c, char* wide, int64_t wide_stride) const {
    const void** const a = own.a;
    const int64_t bytes = TileBytes(phase);
    const auto place = [&](const Cursor& cursor) {
      return wide != nullptr ? wide : static_cast<char*>(call_.to) + OutOffset(phase, cursor) * bytes;
    };
    if (!in_line) {
      Cursor cursor = first;
      for (int64_t r = 0; r < rows; ++r) {
        SetPixel(phase, block, cursor, joined, channel, rows, own, a + r);
        c[r] = place(cursor) + (wide != nullptr ? r * wide_stride : 0);
        Advance(phase, &cursor);
      }
      return;
    }
    const int64_t pointers = Pointers(rows);
    SetPixel(phase, block, first, joined, channel, pointers, own, a);
    const PhaseDim& inner = phase.dims[kInner];
    const int64_t delta = inner.in_step * in_stride_[kInner] * source_;
    for (int64_t t = 0; t < taps; ++t) {
      const void** slot = a + t * pointers;
      const char* base = static_cast<const char*>(slot[0]);
      const int64_t step = base == zeros_ ? 0 : delta;
      for (int64_t r = 1; r < pointers; ++r) slot[r] = base + r * step;
    }
    const int64_t c_step = wide != nullptr ? wide_stride : inner.step * out_stride_[kInner] * bytes;
    char* base = place(first);
    for (int64_t r = 0; r < rows; ++r) c[r] = base + r * c_step;
  }

  // From a tile to the next of the same line, both as wide: SetTile and DropPadding would set the same, so far on.
  void StepTile(const Phase& phase, int64_t rows, int64_t tiles, int64_t taps, const void** a, void** c,
                int64_t wide_stride) const {
    const int64_t delta = tiles * FromStep(phase, rows), pointers = Pointers(rows);
    for (int64_t t = 0; t < taps; ++t) {
      const void** slot = a + t * pointers;
      if (slot[0] == zeros_) continue;
      for (int64_t r = 0; r < pointers; ++r) slot[r] = static_cast<const char*>(slot[r]) + delta;
    }
    const int64_t c_step = tiles * ToStep(phase, rows, wide_stride);
    for (int64_t r = 0; r < rows; ++r) c[r] = static_cast<char*>(c[r]) + c_step;
  }
  // From so many pixels of a line to the next, in bytes.
  int64_t FromStep(const Phase& phase, int64_t rows) const {
    return rows * phase.dims[kInner].in_step * in_stride_[kInner] * source_;
  }
  int64_t ToStep(const Phase& phase, int64_t rows, int64_t wide_stride) const {
    return rows * (wide_stride != 0 ? wide_stride : phase.dims[kInner].step * out_stride_[kInner] * TileBytes(phase));
  }
  // How many tiles from this one on, of `rows` rows, are alike and lie in one line: few steps of K take as long as a call.
  int64_t Alike(const Phase& phase, const Cursor& first, int64_t tile, int64_t tile_end, int64_t row,
                int64_t rows) const {
    constexpr int64_t kMost = 16;
    const int64_t count = std::min({kMost, tile_end - tile, (phase.dims[kInner].count - first.at[kInner]) / rows});
    return phase.FirstRow(call_.batch, tile + count) - row == rows * count ? count : 1;
  }

  static void GoTo(const Phase& phase, int64_t to, int64_t* part, int64_t* left) {
    const int64_t line = phase.dims[kInner].count;
    *part = to;
    *left = line - CutAt(line, phase.line_tiles, to);
  }
  // The next `part` and what is `left` of the line are those after the last of the tiles.
  void TakeTogether(const Phase& phase, int64_t rows, int64_t wide_stride, int64_t* part, int64_t* left,
                    MicroArgs* args) const {
    args->a_step = FromStep(phase, rows);
    args->c_step = ToStep(phase, rows, wide_stride);
    if (phase.line_tiles > 0) GoTo(phase, (*part + args->tiles - 1) % phase.line_tiles, part, left);
  }

  // Taps that lie in the padding for all of a tile's pixels add nothing (in a gradient of 3x3 over lines of 24, one line
  // in thirteen): moves the others to the front of `a`, their numbers to `kept`, and returns how many there are. In a
  // tile's first block one is left, for the zeros that it writes.
  int64_t DropPadding(const Phase& phase, int64_t pointers, int64_t taps, bool first, const void** a,
                      int64_t* kept) const {
    int64_t count = 0;
    for (; phase.within && count < taps; ++count) kept[count] = count;
    for (int64_t t = count; t < taps; ++t) {
      const void** from = a + t * pointers;
      bool padding = true;
      for (int64_t r = 0; r < pointers && padding; ++r) padding = from[r] == zeros_;
      if (padding && !(first && t == taps - 1 && count == 0)) continue;
      if (count < t) std::copy(from, from + pointers, a + count * pointers);
      kept[count++] = t;
    }
    return count;
  }

  int64_t TableBytes(const Phase& phase) const { return phase.block_taps * (mr_ + 2) * 8 + 64; }
  // Row stride of the f32 sums of a group of tiles in a chunk's columns, where the results are narrower.
  int64_t WideStride(const Phase& phase) const {
    const int64_t chunk = phase.chunk_panels * columns_.MaxVectors() * columns_.lanes;
    return std::min(chunk, call_.ToChannels()) * 4;
  }
  int64_t WideBytes(const Phase& phase) const { return phase.group_tiles * mr_ * WideStride(phase); }

  void RunTiles(const Phase& phase, const Sets& sets, int64_t tile_begin, int64_t tile_end, int64_t panel_begin,
                int64_t panel_end, bool packs) {
    void* memory = ThreadScratch(ScratchSlot::kTables, TableBytes(phase));
    PaddedLines lines(call_.padded, phase, mr_);
    Own own;
    if (Widens(phase)) own.wide = static_cast<char*>(ThreadScratch(ScratchSlot::kOutput, WideBytes(phase)));
    if (memory == nullptr || (Widens(phase) && own.wide == nullptr) || !lines.Reserve()) {
      out_of_memory_.store(true, std::memory_order_relaxed);
      return;
    }
    own.a = static_cast<const void**>(memory);
    own.b_offsets = reinterpret_cast<int64_t*>(own.a + phase.block_taps * mr_);
    own.from = static_cast<const char*>(call_.from);
    // Results that wait for nothing need not stay together.
    const bool ended = Ends(phase) && phase.blocks.size() == 1;
    int64_t group_tiles = ended ? std::max<int64_t>(1, tile_end - tile_begin) : phase.group_tiles;
    if (call_.padded != nullptr) group_tiles = std::min(group_tiles, PaddedLines::Tiles(phase));
    for (int64_t chunk = panel_begin; chunk < panel_end; chunk += phase.chunk_panels) {
      const int64_t chunk_end = std::min(panel_end, chunk + phase.chunk_panels);
      for (int64_t group = tile_begin; group < tile_end; group += group_tiles) {
        const int64_t group_end = std::min(tile_end, group + group_tiles);
        const int64_t row0 = phase.FirstRow(call_.batch, group), row1 = phase.FirstRow(call_.batch, group_end);
        if (call_.padded != nullptr) own.from = lines.Make(row0, row1, &own.behind);
        for (const KBlock& block : phase.blocks) {
          for (int64_t flat = chunk; packs && group == tile_begin && flat < chunk_end; ++flat) {
            plan_.PackPanel(state_.target(), phase, block, flat, packs_to_);
          }
          RunParts(phase, sets, block, group, group_end, chunk, chunk_end, own);
        }
        if (phase.empty()) {
          Zero(phase, row0, row1, chunk, chunk_end);
        } else if (own.wide != nullptr) {
          NarrowRows(phase, row0, row1, chunk, chunk_end, own.wide);
        }
        Finish(phase, row0, row1, chunk, chunk_end);
      }
    }
  }

  int64_t FirstChannel(int64_t flat_panel) const { return panels_[flat_panel].first; }
  int64_t EndChannel(int64_t flat_panel_end) const { return panels_[flat_panel_end - 1].end; }

  void SetEnding(MicroArgs* args) const {
    const Ending& ending = call_.ending;
    args->to_offset = static_cast<char*>(ending.to) - static_cast<char*>(call_.to);
    if (ending.added != nullptr) {
      args->added_offset = static_cast<const char*>(ending.added) - static_cast<char*>(call_.to);
    }
    args->least = ending.least;
    args->most = ending.most;
    args->denormals_vanish = denormals_vanish_;
  }

  // Sets the arguments of a tile that differ by panel: where it lies in the kernel and in the results.
  void SetPanel(const Phase& phase, const Panel& panel, int64_t steps_before, int64_t tap_steps, int64_t first_channel,
                const int64_t* kept, int64_t* b_offsets, bool ends, MicroArgs* args) const {
    const int64_t step_bytes = panel.vectors * columns_.lanes * element_;
    for (int64_t t = 0; t < args->taps; ++t) b_offsets[t] = kept[t] * tap_steps * step_bytes;
    args->b = packed_ + phase.packed + phase.steps() * panel.before + steps_before * step_bytes;
    args->b_stride = step_bytes;
    args->c_offset = (panel.first - first_channel) * TileBytes(phase);
    args->last_lanes = panel.last_lanes;
    if (!ends) return;
    args->factor = call_.ending.factor + panel.first;
    args->summand = call_.ending.summand + panel.first;
  }

  // How many pixels the next tile of a line has, where `left` of them are left; parts count the tiles of a line.
  static int64_t NextRows(const Phase& phase, int64_t* part, int64_t* left) {
    const int64_t line = phase.dims[kInner].count;
    const int64_t then = ++*part == phase.line_tiles ? 0 : line - CutAt(line, phase.line_tiles, *part);
    const int64_t rows = *left - then;
    *left = then == 0 ? line : then;
    if (then == 0) *part = 0;
    return rows;
  }

  // The block that is read after one of these panels, and so prefetched meanwhile: their next one, or the first of the next chunk.
  struct Next {
    bool asks = false;
    int64_t on = 0;                // from a panel to that of the next chunk, bytes of a packed step
    int64_t first = 0, steps = 0;  // within a panel
  };
  Next After(const Phase& phase, const KBlock& block, int64_t panel_begin, int64_t panel_end) const {
    Next next;
    next.asks = call_.packed != nullptr && AsksAhead(plan_.PackedBytes(), phase.tiles);
    const bool last = &block == &phase.blocks.back();
    const Panel &from = panels_[panel_begin], &to = panels_[panel_end - 1];
    if (last) next.on = to.before + to.vectors * columns_.lanes * element_ - from.before;
    if (!last) next.first = phase.StepsBefore(*(&block + 1), call_.types.pack);
    next.steps = (last ? phase.steps() : next.first) - phase.StepsBefore(block, call_.types.pack);
    return next;
  }

  void Ask(const Phase& phase, const Next& next, const Panel& panel, int64_t tile, int64_t tiles,
           MicroArgs* args) const {
    const char* const at =
        packed_ + phase.packed + phase.steps() * (panel.before + next.on) + next.first * args->b_stride;
    AskAhead(at, next.steps * args->b_stride, tile, tiles, args);
  }

  // Tells whether it pays to prefetch what a tile writes or adds: not for sums that wait for more, in a near cache, nor where a tile is
  // done with a few steps; what is only written by a 1x1 convolution comes as fast by itself.
  bool FetchesResults(const Phase& phase, const KBlock& block, bool ends, bool wide) const {
    constexpr int64_t kLeastSteps = 64;
    const bool writes = ends || (!wide && block.tap0 == 0 && block.channel0 == 0);
    const bool adds = ends && call_.ending.added != nullptr;
    return writes && phase.steps() >= kLeastSteps && (adds || phase.outer_taps * phase.inner_taps > 1);
  }
  __attribute__((always_inline)) void FetchResults(const MicroArgs& args, int64_t rows, int64_t bytes,
                                                   bool ends) const {
    AskForRows(args.c, rows, args.c_offset + (ends ? args.to_offset : 0), bytes);
    if (ends && call_.ending.added != nullptr && args.added_offset != args.to_offset) {
      AskForRows(args.c, rows, args.c_offset + args.added_offset, bytes);
    }
  }

  // Tells whether tiles follow each other through memory that the processor alone prefetches too late: more than a cache of all cores
  // holds, or, from there, pixels of few channels, each a stream of its own, under columns enough to pay for it.
  bool ReadsFar(const Phase& phase, const KBlock& block) const {
    constexpr int64_t kMemoryBytes = 16 << 20, kFarBytes = 2 << 20, kShortBytes = 512, kManyColumns = 256;
    const int64_t pixel = call_.FromChannels() * source_, bytes = call_.batch * image_ * source_;
    return phase.outer_taps * phase.inner_taps == 1 && phase.within && phase.dims[kInner].in_step == 1 &&
           block.channel1 - block.channel0 == call_.FromChannels() &&
           (bytes >= kMemoryBytes ||
            (bytes >= kFarBytes && pixel <= kShortBytes && call_.ToChannels() >= kManyColumns));
  }
  // Asks for a part of what the next tile reads: each of this one's panels for its own.
  __attribute__((always_inline)) static void FetchPixels(const char* next, int64_t bytes, int64_t part, int64_t parts) {
    const int64_t lines = bytes / kLine, end = CutAt(lines, parts, part + 1);
    for (int64_t line = CutAt(lines, parts, part); line < end; ++line) __builtin_prefetch(next + line * kLine);
  }

  void RunBlock(const Phase& phase, const Sets& sets, const KBlock& block, int64_t tile_begin, int64_t tile_end,
                int64_t panel_begin, int64_t panel_end, const Own& own) {
    int64_t *const b_offsets = own.b_offsets, *const kept = b_offsets + phase.block_taps;
    const int64_t accumulator = TileBytes(phase);
    const int64_t wide_stride = own.wide != nullptr ? WideStride(phase) : 0;
    const int64_t steps_before = phase.StepsBefore(block, call_.types.pack);
    const int64_t channels = block.channel1 - block.channel0;
    const Next then = After(phase, block, panel_begin, panel_end);
    const int64_t together = StepElements(call_.types.pack);
    const bool whole_runs = (block.tap1 - block.tap0) % phase.inner_taps == 0 && block.tap0 % phase.inner_taps == 0 &&
                            channels == call_.group_from;
    void* c[16];
    MicroArgs args;
    args.a = own.a, args.b_offsets = b_offsets, args.c = c;
    args.a_stride = element_;  // along pixels
    args.accumulate = block.tap0 > 0 || block.channel0 > 0;
    const bool ends = Ends(phase) && &block == &phase.blocks.back();
    const TileSet& tiles = ends ? sets.end : sets.plain;
    if (ends) SetEnding(&args);
    const bool fetches = FetchesResults(phase, block, ends, own.wide != nullptr), far = ReadsFar(phase, block);
    const int64_t pixel = call_.FromChannels() * source_;
    const int64_t first_channel = own.wide != nullptr ? FirstChannel(panel_begin) : 0;
    int64_t row = phase.FirstRow(call_.batch, tile_begin);
    const int64_t row0 = row;
    Cursor first;
    Seek(phase, row, &first);
    const int64_t all_taps = block.tap1 - block.tap0, runs = all_taps / phase.inner_taps;
    const bool repeats = !fetches && !far && !then.asks && phase.within && call_.groups == 1;
    int64_t part = 0, left = 0, last_rows = 0;  // of the line
    bool last_joined = false;
    if (phase.line_tiles > 0) GoTo(phase, tile_begin % phase.line_tiles, &part, &left);
    const int64_t products = mr_ * (EndChannel(panel_end) - FirstChannel(panel_begin));  // of a tile, a step
    PieceLook look(static_cast<double>(products) * static_cast<double>(all_taps * channels));
    for (int64_t tile = tile_begin; tile < tile_end; tile += args.tiles) {
      if (look.Ends()) return;
      const int64_t rows =
          phase.line_tiles == 0 ? phase.FirstRow(call_.batch, tile + 1) - row : NextRows(phase, &part, &left);
      const bool in_line = InsideLine(phase, first, rows);
      // Joining changes no bits: the same products in the same order.
      const bool joined = phase.joinable && whole_runs && (in_line || phase.dims[kInner].inside);
      const int64_t length = joined ? phase.inner_taps * channels : channels;
      const int64_t taps = joined ? runs : all_taps;
      args.k = length / together;
      args.odd = length % together;
      const int64_t tap_steps = joined ? phase.run_steps : phase.k_steps;
      char* wide_row = own.wide == nullptr ? nullptr : own.wide + (row - row0) * wide_stride;
      int64_t group = -1;
      if (in_line && rows == last_rows && joined == last_joined && first.at[kInner] != 0) {  // the last's neighbour
        StepTile(phase, rows, args.tiles, args.taps, own.a, c, wide_stride);
        group = 0;
      }
      args.tiles = repeats && in_line ? Alike(phase, first, tile, tile_end, row, rows) : 1;
      if (args.tiles > 1) TakeTogether(phase, rows, wide_stride, &part, &left, &args);
      last_rows = in_line && call_.groups == 1 ? rows : 0;
      last_joined = joined;
      for (int64_t flat = panel_begin; flat < panel_end; ++flat) {
        const Panel& panel = panels_[flat];
        if (panel.group != group) {
          group = panel.group;
          SetTile(phase, block, first, rows, in_line, joined, taps, group * call_.group_from + block.channel0, own, c,
                  wide_row, wide_stride);
          args.taps = DropPadding(phase, Pointers(rows), taps, args.accumulate == 0, own.a, kept);
        }
        if (args.taps == 0) {  // all of a later block is padding, for all panels
          for (int64_t r = 0; ends && r < rows; ++r) Follow(RowAt(c[r]), 1, panel_begin, panel_end);
          break;
        }
        SetPanel(phase, panel, steps_before, tap_steps, first_channel, kept, b_offsets, ends, &args);
        if (then.asks) Ask(phase, then, panel, tile - tile_begin, tile_end - tile_begin, &args);
        if (fetches) FetchResults(args, rows, (panel.end - panel.first) * accumulator, ends);
        if (far && in_line) {
          FetchPixels(static_cast<const char*>(own.a[0]) + rows * pixel, rows * pixel, flat - panel_begin,
                      panel_end - panel_begin);
        }
        tiles.At(rows, panel.vectors, false)(&args);
      }
      AdvanceBy(phase, rows * args.tiles, &first);
      row += rows * args.tiles;
    }
  }

  // These tiles of a phase, which may be those of its parts.
  void RunParts(const Phase& phase, const Sets& sets, const KBlock& block, int64_t tile_begin, int64_t tile_end,
                int64_t panel_begin, int64_t panel_end, const Own& own) {
    if (phase.parts.empty()) {
      return RunBlock(phase, sets, block, tile_begin, tile_end, panel_begin, panel_end, own);
    }
    for (size_t i = 0; i < phase.parts.size() && tile_end > 0; ++i) {
      const Phase& part = phase.parts[i];
      const int64_t begin = std::max<int64_t>(tile_begin, 0), end = std::min(tile_end, part.tiles);
      if (begin < end) {
        RunBlock(part, part_sets_[i], part.blocks[&block - phase.blocks.data()], begin, end, panel_begin, panel_end,
                 own);
      }
      tile_begin -= part.tiles;
      tile_end -= part.tiles;
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
                  const char* wide) const {
    const int64_t channel = FirstChannel(panel_begin), channels = EndChannel(panel_end) - channel;
    const int64_t all = call_.ToChannels(), stride = WideStride(phase) / 4;
    const auto* const from = reinterpret_cast<const float*>(wide);
    auto* const to = static_cast<uint16_t*>(call_.to);
    if (phases_.size() == 1) {  // every output pixel, in order
      const bool run = channels == all && stride == all;
      const int64_t rows = row1 - row0;
      Narrow(call_.output, from, stride, to + row0 * all + channel, all, run ? 1 : rows, run ? rows * all : channels);
      return;
    }
    Cursor cursor;
    Seek(phase, row0, &cursor);
    for (int64_t row = row0; row < row1; ++row) {
      Narrow(call_.output, from + (row - row0) * stride, 0, to + OutOffset(phase, cursor) + channel, 0, 1, channels);
      Advance(phase, &cursor);
    }
  }

  // Returns the number of the output pixel that lies there.
  int64_t RowAt(const void* c) const {
    const int64_t bytes = call_.ToChannels() * (call_.types.narrow ? 2 : call_.types.accumulator_bytes);
    return (static_cast<const char*>(c) - static_cast<const char*>(call_.to)) / bytes;
  }
  // The epilogue of output pixels that lie in order.
  void Follow(int64_t row, int64_t rows, int64_t panel_begin, int64_t panel_end) const {
    const int64_t channel = FirstChannel(panel_begin);
    call_.epilogue.run(call_.epilogue.context, 0, row, rows, channel, EndChannel(panel_end) - channel);
  }

  void Finish(const Phase& phase, int64_t row0, int64_t row1, int64_t panel_begin, int64_t panel_end) const {
    if (call_.epilogue.run == nullptr || Ends(phase)) return;
    if (phases_.size() == 1) return Follow(row0, row1 - row0, panel_begin, panel_end);
    const int64_t channel = FirstChannel(panel_begin);
    const int64_t channels = EndChannel(panel_end) - channel;
    Cursor cursor;
    Seek(phase, row0, &cursor);
    for (int64_t row = row0; row < row1; ++row) {
      call_.epilogue.run(call_.epilogue.context, 0, OutOffset(phase, cursor) / call_.ToChannels(), 1, channel,
                         channels);
      Advance(phase, &cursor);
    }
  }

  KernelSet::State& state_;
  const GatherPlan plan_;
  const GatherCall& call_;
  const ColumnCut& columns_;
  const std::vector<Phase>& phases_;
  const MicroForm form_;
  const int mr_;
  int64_t element_, source_;
  int64_t in_stride_[kDims], out_stride_[kDims];
  int64_t image_ = 0, out_image_ = 0;
  std::vector<Sets> sets_;
  std::vector<Sets> part_sets_;  // of the only phase, if it has parts
  std::vector<Panel> panels_;
  int64_t max_run_steps_ = 0;
  bool denormals_vanish_ = false;  // in the ending
  const char* packed_ = nullptr;
  char* packs_to_ = nullptr;  // the same, unless the caller has packed it
  const char* zeros_ = nullptr;
  std::atomic<bool> out_of_memory_{false};
};

}  // namespace

absl::Status RunGather(KernelSet::State& state, const GatherCall& call, const Duty& duty) {
  if (call.batch * call.geometry.out * call.ToChannels() == 0) return absl::OkStatus();
  return Gather(state, call).Run(duty);
}

}  // namespace weft::cpu
