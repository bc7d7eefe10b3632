// See gather_block.h.
#include "src/backends/cpu/kernels/conv/gather_block.h"

#include <algorithm>

#include "src/backends/cpu/kernels/conv/gather_results.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int kInner = PixelCursor::kInner;

// The cut of lines into tiles, where lines are cut alone: walked tile by tile, for divisions take long.
class LineTiles {
 public:
  LineTiles(const Phase& phase, int64_t tile) : line_(phase.dims[kInner].count), tiles_(phase.line_tiles) {
    if (tiles_ > 0) GoTo(tile % tiles_);
  }
  // Returns how many pixels the next tile has.
  int64_t Next() {
    const int64_t then = ++part_ == tiles_ ? 0 : line_ - CutAt(line_, tiles_, part_);
    const int64_t rows = left_ - then;
    left_ = then == 0 ? line_ : then;
    if (then == 0) part_ = 0;
    return rows;
  }
  void Skip(int64_t tiles) {
    if (tiles_ > 0) GoTo((part_ + tiles) % tiles_);
  }

 private:
  void GoTo(int64_t part) {
    part_ = part;
    left_ = line_ - CutAt(line_, tiles_, part);
  }

  const int64_t line_, tiles_;
  int64_t part_ = 0, left_ = 0;  // the next tile of the line, and pixels from there on
};

// The block that is read after one of these panels, and so prefetched meanwhile: their next one, or the first of the next chunk.
class BlockAhead {
 public:
  BlockAhead(const GatherOperands& operands, const Phase& phase, const KBlock& block, Range panels)
      : asks_(operands.plan.call.packed != nullptr && AsksAhead(operands.plan.PackedBytes(), phase.tiles)),
        phase_steps_(phase.steps()) {
    const GatherPlan& plan = operands.plan;
    const PackKind pack = plan.call.types.pack;
    const bool last = &block == &phase.blocks.back();
    const PanelPlace &from = operands.panels[panels.begin], &to = operands.panels[panels.end - 1];
    const int64_t on = last ? to.before + to.vectors * plan.columns.lanes * plan.element() - from.before : 0;
    start_ = operands.packed + phase.packed + phase_steps_ * on;
    if (!last) first_ = phase.StepsBefore(*(&block + 1), pack);
    steps_ = (last ? phase_steps_ : first_) - phase.StepsBefore(block, pack);
  }

  bool asks() const { return asks_; }
  // A tile that reads `panel` asks for a part of the next one: as many as there are tiles.
  void Ask(const PanelPlace& panel, int64_t part, int64_t parts, MicroArgs* args) const {
    const char* const at = start_ + phase_steps_ * panel.before + first_ * args->b_stride;
    AskAhead(at, steps_ * args->b_stride, part, parts, args);
  }

 private:
  const bool asks_;
  const int64_t phase_steps_;
  const char* start_;
  int64_t first_ = 0, steps_ = 0;  // within a panel
};

// The lines that tiles of a block ask for beside the kernel: of what they write or add, and of what the next tile reads.
class PixelsAhead {
 public:
  PixelsAhead(const GatherOperands& operands, const Phase& phase, const KBlock& block, bool ends, bool wide)
      : call_(operands.plan.call),
        ends_(ends),
        adds_(ends && call_.ending.added != nullptr),
        results_(FetchesResults(phase, ends || (!wide && !block.Adds()))),
        far_(ReadsFar(phase, block, operands.from.member)),
        result_bytes_(operands.plan.TileBytes(phase)),
        pixel_(call_.FromChannels() * call_.types.source_bytes) {}

  bool any() const { return results_ || far_; }
  [[gnu::always_inline]] void AskForResults(const MicroArgs& args, int64_t rows, int64_t channels) const {
    if (!results_) return;
    const int64_t bytes = channels * result_bytes_;
    AskForRows(args.c, rows, args.c_offset + (ends_ ? args.to_offset : 0), bytes);
    if (adds_ && args.added_offset != args.to_offset)
      AskForRows(args.c, rows, args.c_offset + args.added_offset, bytes);
  }
  // A part of what the next tile reads, of as many pixels: each of this one's panels asks for its own.
  [[gnu::always_inline]] void AskForNext(const char* first, int64_t rows, int64_t part, int64_t parts) const {
    if (!far_) return;
    const char* const next = first + rows * pixel_;
    const int64_t lines = rows * pixel_ / kLine, end = CutAt(lines, parts, part + 1);
    for (int64_t line = CutAt(lines, parts, part); line < end; ++line) __builtin_prefetch(next + line * kLine);
  }

 private:
  // Tells whether it pays to prefetch what a tile writes or adds: not for sums that wait for more, in a near cache, nor where a tile
  // is done with a few steps; what is only written by a 1x1 convolution comes as fast by itself.
  bool FetchesResults(const Phase& phase, bool writes) const {
    constexpr int64_t kLeastSteps = 64;
    return writes && phase.steps() >= kLeastSteps && (adds_ || phase.outer_taps * phase.inner_taps > 1);
  }
  // Tells whether tiles follow each other through memory that the processor alone prefetches too late: more than a cache of all
  // cores holds, or, from there, pixels of few channels, each a stream of its own, under columns enough to pay for it.
  bool ReadsFar(const Phase& phase, const KBlock& block, int64_t image) const {
    constexpr int64_t kMemoryBytes = 16 << 20, kFarBytes = 2 << 20, kShortBytes = 512, kManyColumns = 256;
    const int64_t pixel = call_.FromChannels() * call_.types.source_bytes;
    const int64_t bytes = call_.batch * image * call_.types.source_bytes;
    return phase.outer_taps * phase.inner_taps == 1 && phase.within && phase.dims[kInner].in_step == 1 &&
           block.channel1 - block.channel0 == call_.FromChannels() &&
           (bytes >= kMemoryBytes ||
            (bytes >= kFarBytes && pixel <= kShortBytes && call_.ToChannels() >= kManyColumns));
  }

  const GatherCall& call_;
  const bool ends_, adds_;
  const bool results_, far_;
  const int64_t result_bytes_, pixel_;
};

// One thread's tiles of a block, one after the other, each through all of the panels.
class GatherBlock {
 public:
  GatherBlock(const GatherOperands& operands, const Phase& phase, const KBlock& block, Range panels,
              const GatherTables& tables)
      : operands_(operands),
        call_(operands.plan.call),
        phase_(phase),
        block_(block),
        panels_(panels),
        tables_(tables),
        ends_(operands.plan.Ends(phase) && &block == &phase.blocks.back()),
        block_ahead_(operands, phase, block, panels),
        pixels_ahead_(operands, phase, block, ends_, tables.wide != nullptr),
        pointers_(operands, phase, block, tables) {}

  void Run(const PhaseTiles& set, Range tiles) {
    const TileSet& functions = ends_ ? set.end : set.plain;
    const int64_t channels = block_.channel1 - block_.channel0, together = StepElements(call_.types.pack);
    MicroArgs args;
    args.a = tables_.a, args.b_offsets = tables_.b_offsets, args.c = pointers_.c();
    args.a_stride = operands_.plan.element();  // along pixels
    args.accumulate = block_.Adds();
    if (ends_) SetEnding(&args);
    const bool repeats = !pixels_ahead_.any() && !block_ahead_.asks() && phase_.within && call_.groups == 1;
    int64_t row = phase_.FirstRow(call_.batch, tiles.begin);
    const int64_t row0 = row;
    PixelCursor first(phase_, row);
    LineTiles line(phase_, tiles.begin);
    TileShape last;
    const int64_t products = operands_.plan.rows * operands_.Channels(panels_).size();  // of a tile, a step
    PieceLook look(static_cast<double>(products) * static_cast<double>((block_.tap1 - block_.tap0) * channels));
    for (int64_t tile = tiles.begin; tile < tiles.end; tile += args.tiles) {
      if (look.Ends()) return;
      const int64_t rows = phase_.line_tiles == 0 ? phase_.FirstRow(call_.batch, tile + 1) - row : line.Next();
      const TileShape shape = pointers_.Shape(first, rows);
      const int64_t length = shape.joined ? phase_.inner_taps * channels : channels;
      args.k = length / together;
      args.odd = length % together;
      char* const wide = tables_.wide == nullptr ? nullptr : tables_.wide + (row - row0) * tables_.wide_stride;
      int64_t group = -1;
      if (shape == last && first.inner() != 0) {  // the last's neighbour
        pointers_.Step(rows, args.tiles, args.taps);
        group = 0;
      }
      args.tiles = repeats && shape.in_line ? Alike(first, {tile, tiles.end}, row, rows) : 1;
      if (args.tiles > 1) {
        args.a_step = pointers_.FromStep(rows);
        args.c_step = pointers_.ToStep(rows);
        line.Skip(args.tiles - 1);
      }
      last = shape.in_line && call_.groups == 1 ? shape : TileShape{};
      for (int64_t flat = panels_.begin; flat < panels_.end; ++flat) {
        const PanelPlace& panel = operands_.panels[flat];
        if (panel.group != group) {
          group = panel.group;
          args.taps = pointers_.Set(first, shape, group * call_.group_from + block_.channel0, wide);
        }
        if (args.taps == 0) {  // all of a later block is padding, for all panels
          FollowAlone(rows);
          break;
        }
        SetPanel(panel, shape.joined ? phase_.run_steps : phase_.k_steps, &args);
        if (block_ahead_.asks()) block_ahead_.Ask(panel, tile - tiles.begin, tiles.size(), &args);
        pixels_ahead_.AskForResults(args, rows, panel.end - panel.first);
        if (shape.in_line) {
          pixels_ahead_.AskForNext(pointers_.first(), rows, flat - panels_.begin, panels_.size());
        }
        functions.At(rows, panel.vectors, false)(&args);
      }
      first.AdvanceBy(rows * args.tiles);
      row += rows * args.tiles;
    }
  }

 private:
  void SetEnding(MicroArgs* args) const {
    const Ending& ending = call_.ending;
    args->to_offset = static_cast<char*>(ending.to) - static_cast<char*>(call_.to);
    if (ending.added != nullptr) {
      args->added_offset = static_cast<const char*>(ending.added) - static_cast<char*>(call_.to);
    }
    args->least = ending.least;
    args->most = ending.most;
    args->denormals_vanish = operands_.denormals_vanish;
  }

  // Sets the arguments of a tile that differ by panel: where it lies in the kernel and in the results.
  void SetPanel(const PanelPlace& panel, int64_t tap_steps, MicroArgs* args) const {
    const GatherPlan& plan = operands_.plan;
    const int64_t step_bytes = panel.vectors * plan.columns.lanes * plan.element();
    for (int64_t t = 0; t < args->taps; ++t) tables_.b_offsets[t] = tables_.kept[t] * tap_steps * step_bytes;
    args->b = operands_.packed + phase_.packed + phase_.steps() * panel.before + steps_before_ * step_bytes;
    args->b_stride = step_bytes;
    args->c_offset = (panel.first - first_channel_) * tile_bytes_;
    args->last_lanes = panel.last_lanes;
    if (!ends_) return;
    args->factor = call_.ending.factor + panel.first;
    args->summand = call_.ending.summand + panel.first;
  }

  // How many of these tiles, of `rows` rows, are alike and lie in one line: few steps of K take as long as a call.
  int64_t Alike(const PixelCursor& first, Range tiles, int64_t row, int64_t rows) const {
    constexpr int64_t kMost = 16;
    const int64_t count = std::min({kMost, tiles.size(), (phase_.dims[kInner].count - first.inner()) / rows});
    return phase_.FirstRow(call_.batch, tiles.begin + count) - row == rows * count ? count : 1;
  }

  // The epilogue of a tile that adds nothing, where tiles do it.
  void FollowAlone(int64_t rows) const {
    const GatherResults results(operands_, panels_);
    for (int64_t r = 0; ends_ && r < rows; ++r) results.FollowAt(pointers_.c()[r]);
  }

  const GatherOperands& operands_;
  const GatherCall& call_;
  const Phase& phase_;
  const KBlock& block_;
  const Range panels_;
  const GatherTables& tables_;
  const bool ends_;  // the results
  const BlockAhead block_ahead_;
  const PixelsAhead pixels_ahead_;
  TilePointers pointers_;
  const int64_t steps_before_ = phase_.StepsBefore(block_, call_.types.pack);
  const int64_t tile_bytes_ = operands_.plan.TileBytes(phase_);
  // The channel with which rows of results begin.
  const int64_t first_channel_ = tables_.wide != nullptr ? operands_.Channels(panels_).begin : 0;
};

}  // namespace

absl::Status PhaseTiles::Fetch(KernelSet::State& state, const GatherPlan& plan, const Phase& phase) {
  if (phase.empty()) return absl::OkStatus();
  const bool lines = phase.line_tiles > 0;
  const int64_t rows = lines ? phase.dims[kInner].count : plan.call.batch * phase.pixels;
  const int64_t tiles = lines ? phase.line_tiles : phase.tiles;
  const MicroType type = plan.Rounds(phase) ? MicroType::kBF16Rounded : plan.call.types.micro;
  if (!plan.Ends(phase) || phase.blocks.size() > 1) {
    WEFT_RETURN_IF_ERROR(FetchTiles(state, {type, plan.form}, rows, tiles, plan.columns, false, &plain));
  }
  if (!plan.Ends(phase)) return absl::OkStatus();
  return FetchTiles(state, {type, plan.form, plan.call.ending.kind}, rows, tiles, plan.columns, false, &end);
}

void RunGatherBlock(const GatherOperands& operands, const Phase& phase, const KBlock& block, const PhaseTiles& set,
                    Range tiles, Range panels, const GatherTables& tables) {
  GatherBlock(operands, phase, block, panels, tables).Run(set, tiles);
}

}  // namespace weft::cpu
