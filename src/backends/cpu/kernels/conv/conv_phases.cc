// Cutting gathering convolutions. The numbers are for an L2 of 1 MiB that holds a chunk of the kernel's block, the
// results of a group of tiles and the pixels that pass.
#include "src/backends/cpu/kernels/conv/conv_phases.h"

#include <algorithm>

namespace weft::cpu {
namespace {

constexpr int kInner = kMaxSpatialDims - 1;
// Steps of K between two visits of C, elements or pairs of bf16: 3x3 of 256 channels or, of pairs, 512. Such a panel takes
// 576 KiB of L2. Sums that wait for another block are read back, those of bf16 in f32, to be rounded apart.
constexpr int64_t kBlockSteps = 2304;
constexpr int64_t kChunkBytes = 480 << 10;
// Results that stay in L2 while all of K passes over them.
constexpr int64_t kResidentBytes = 192 << 10;
// Where all of K passes at once, results only wait for what follows them: they stay in L1.
constexpr int64_t kFinishedBytes = 24 << 10;

// Whole outer taps while they fit, so that neighbouring inner taps stay joined; else single taps; else channels in parts.
void CutK(const GatherCall& call, Phase& phase) {
  const int64_t taps = phase.outer_taps * phase.inner_taps, channels = call.group_from;
  const int64_t unit = phase.run_steps <= kBlockSteps || phase.joined_pack ? phase.inner_taps : 1;
  const int64_t unit_steps = unit == 1 ? phase.k_steps : phase.run_steps;
  phase.block_taps = std::min(taps, unit * std::max<int64_t>(1, kBlockSteps / std::max<int64_t>(1, unit_steps)));
  const int64_t parts = phase.joined_pack ? 1 : CeilDiv(phase.k_steps, kBlockSteps);
  const int64_t part = CeilDiv(CeilDiv(channels, std::max<int64_t>(1, parts)), 16) * 16;
  for (int64_t tap = 0; tap < taps; tap += phase.block_taps) {
    for (int64_t channel = 0; channel < channels; channel += part) {
      phase.blocks.push_back(
          {tap, std::min(taps, tap + phase.block_taps), channel, std::min(channels, channel + part)});
    }
  }
}

// Tiles that end with their line cost one pixel's arithmetic for all pointers (a tenth of a small kernel's time), so
// lines are cut alone unless that makes tiles a quarter lower.
void CutRows(const GatherCall& call, int most, Phase& phase) {
  const int64_t line = phase.dims[kInner].count;
  const int64_t rows = call.batch * phase.pixels;
  const int64_t parts = CeilDiv(line, most);
  const bool alone = RunsAlongPixels(call) || 4 * line >= 3 * parts * most;
  phase.line_tiles = alone ? parts : 0;
  phase.tiles = alone ? rows / line * parts : CeilDiv(rows, most);
}

// Cuts the first and the last pixels of lines off, unless tiles become much lower. (Of 3x3 a tenth of all products is beside an
// image of 7 pixels, a twentieth of 14.) Only where tiles do what follows: loops visit results line by line.
void CutEdges(const GatherCall& call, int most, Phase& phase) {
  const PhaseDim& inner = phase.dims[kInner];
  const int64_t line = inner.count, in = call.geometry.dims[kInner].in;
  if (phase.line_tiles == 0 || inner.inside || !EndsSums(call, phase, 1)) return;
  const auto outside = [&](int64_t at) {
    return at * inner.in_step + inner.offsets.front() < 0 || at * inner.in_step + inner.offsets.back() >= in;
  };
  const int64_t left = outside(0), right = outside(line - 1), middle = line - left - right;
  if (middle < 1 || outside(left) || outside(line - 1 - right) ||
      3 * middle * phase.line_tiles < 2 * line * CeilDiv(middle, most)) {
    return;
  }
  std::vector<Phase> parts;
  const auto add = [&](int64_t first, int64_t count) {
    if (count == 0) return;
    Phase& part = parts.emplace_back(phase);
    PhaseDim& dim = part.dims[kInner];
    dim.first += first * dim.step;
    dim.count = count;
    dim.inside = !outside(first);
    for (int64_t& offset : dim.offsets) offset += first * dim.in_step;
    part.pixels = phase.pixels / line * count;
    CutRows(call, most, part);
  };
  add(left, middle);
  add(0, left);
  add(line - 1, right);
  phase.parts = std::move(parts);
  phase.tiles = 0;
  for (const Phase& part : phase.parts) phase.tiles += part.tiles;
}

// A kernel that fits the cache stays there while all tiles pass, each over all panels. A larger one comes in chunks: as
// many panels of a block as fit, and a group of tiles whose results in these columns stay meanwhile.
void CutLoops(const GatherCall& call, const ColumnCut& columns, int rows, Phase& phase) {
  const int64_t panels = columns.panels * call.groups;
  const int64_t step_bytes = columns.MaxVectors() * columns.lanes * PackedElementBytes(call.types.pack);
  int64_t block_steps = 1;
  for (const KBlock& block : phase.blocks) {
    const int64_t channels = PackedSteps(call.types.pack, block.channel1 - block.channel0);
    block_steps = std::max(block_steps, (block.tap1 - block.tap0) * channels);
  }
  const bool fits = panels * std::max<int64_t>(1, phase.steps()) * step_bytes <= kChunkBytes;
  phase.chunk_panels = fits ? panels : std::clamp<int64_t>(kChunkBytes / (block_steps * step_bytes), 1, panels);
  const int64_t chunk_channels =
      phase.chunk_panels == panels ? call.ToChannels() : phase.chunk_panels * columns.MaxVectors() * columns.lanes;
  const int64_t tile_bytes = std::min(chunk_channels, call.ToChannels()) * call.types.accumulator_bytes * rows;
  const bool once = fits && phase.blocks.size() < 2;
  phase.group_tiles = std::clamp<int64_t>((once ? kFinishedBytes : kResidentBytes) / std::max<int64_t>(1, tile_bytes),
                                          once ? 1 : 4, 256);
}

}  // namespace

void JoinLines(GatherCall* call) {
  auto& dims = call->geometry.dims;
  if (!HasNoWindow(dims[kInner])) return;
  int d = kInner - 1;
  for (; d >= 0 && HasNoWindow(dims[d]); --d) {
    dims[kInner].in *= dims[d].in;
    dims[d] = {};
  }
  if (d < 0) {
    dims[kInner].in *= call->batch;
    call->geometry.in *= call->batch;
    call->geometry.out *= call->batch;
    call->batch = 1;
  }
  dims[kInner].out = dims[kInner].in;
}

bool RunsAlongPixels(const GatherCall& call) {
  constexpr int64_t kShortestLine = 6;
  const SpatialDim& inner = call.geometry.dims[kInner];
  return call.types.direct && call.groups == 1 && call.group_from == 1 && inner.stride == 1 &&
         inner.lhs_dilation == 1 && inner.rhs_dilation == 1 && inner.pad_lo == 0 &&
         inner.out + inner.window - 1 == inner.in && inner.out >= kShortestLine;
}

ColumnCut CutColumns(const CpuTarget& target, const GatherCall& call, MicroForm form) {
  constexpr int kLeastVectors = 3;  // fewer load more than they multiply
  ColumnCut cut = ColumnCut::Make(target, call.types.micro, call.group_to);
  const SpatialDim& lines = call.geometry.dims[kInner - 1];
  const int64_t line = call.geometry.dims[kInner].out;
  const int most = MicroMaxVectors(target);
  if (form != MicroForm::kRows || lines.window == 1 || (lines.pad_lo <= 0 && lines.pad_hi <= 0) ||
      most <= kLeastVectors || cut.MaxVectors() < most || line <= MicroMaxRows(target, form, most) ||
      line > MicroMaxRows(target, form, most - 1)) {
    return cut;
  }
  const int64_t panels = CeilDiv(cut.vectors, most - 1);
  cut.SetPanels(panels + panels % 2);  // two threads have as much to do
  return cut;
}

std::vector<Phase> CutPhases(const GatherCall& call, const ColumnCut& columns, int rows) {
  std::vector<Phase> phases;
  absl::InlinedVector<PhaseDim, 1> split[kMaxSpatialDims];
  int64_t count = 1;
  for (int d = 0; d < kMaxSpatialDims; ++d) {
    split[d] = SplitDim(call.geometry.dims[d]);
    count *= static_cast<int64_t>(split[d].size());
  }
  const bool odd = call.types.pack == PackKind::kPairs && call.group_from % 2 != 0;
  int64_t packed = 0;
  for (int64_t i = 0; i < count; ++i) {
    Phase phase;
    int64_t rest = i;
    for (int d = kInner; d >= 0; --d) {
      const auto phases_of_dim = static_cast<int64_t>(split[d].size());
      phase.dims[d] = split[d][rest % phases_of_dim];
      rest /= phases_of_dim;
    }
    phase.pixels = phase.outer_taps = 1;
    phase.within = true;
    for (int d = 0; d < kMaxSpatialDims; ++d) {
      phase.pixels *= phase.dims[d].count;
      if (d != kInner) phase.outer_taps *= static_cast<int64_t>(phase.dims[d].taps.size());
      phase.within = phase.within && phase.dims[d].inside;
    }
    if (phase.pixels == 0) continue;
    const PhaseDim& inner = phase.dims[kInner];
    phase.inner_taps = static_cast<int64_t>(inner.taps.size());
    phase.joinable = call.groups == 1;
    for (size_t t = 1; t < inner.offsets.size(); ++t) {
      if (inner.offsets[t] != inner.offsets[t - 1] + 1) phase.joinable = false;
    }
    // A run is in one block: a longer one would add up in one line.
    const int64_t run_steps = PackedSteps(call.types.pack, phase.inner_taps * call.group_from);
    phase.joined_pack = odd && phase.joinable && inner.inside && run_steps <= kBlockSteps;
    // Each tap's panel of fours begins with its sums.
    if ((odd && !phase.joined_pack) || IsQuads(call.types.pack)) phase.joinable = false;
    phase.k_steps = PackedSteps(call.types.pack, call.group_from);
    phase.run_steps = phase.joined_pack ? run_steps : phase.inner_taps * phase.k_steps;
    phase.packed = packed;
    packed += phase.steps() * columns.vectors * columns.lanes * PackedElementBytes(call.types.pack) * call.groups;
    if (!phase.empty()) CutK(call, phase);
    CutRows(call, rows, phase);
    CutLoops(call, columns, rows, phase);
    if (count == 1 && !phase.empty()) CutEdges(call, rows, phase);
    phases.push_back(std::move(phase));
  }
  return phases;
}

bool RoundsSums(const GatherCall& call, const Phase& phase) {
  return call.types.narrow && call.output == DType::kBF16 && call.types.micro == MicroType::kBF16Dot &&
         phase.blocks.size() == 1;
}

bool EndsSums(const GatherCall& call, const Phase& phase, size_t phases) {
  const bool plain = call.types.micro == MicroType::kF32 && !call.types.narrow;
  return call.ending.kind != EndingKind::kNone && phases == 1 && !phase.empty() && (plain || RoundsSums(call, phase));
}

bool DealsPanels(const GatherCall& call, const ColumnCut& columns, const Phase& phase, int threads) {
  const auto balance = [&](int64_t items) {
    return static_cast<double>(items) / static_cast<double>(CeilDiv(items, threads) * threads);
  };
  // In vector multiply-adds of one thread. What comes from beyond L2 takes an eighth of one a byte: dealing tiles, each
  // thread reads all of the kernel, packed by all of them; dealing panels, all pixels.
  const int64_t panels = columns.panels * call.groups;
  const double rows = static_cast<double>(call.batch * phase.pixels);
  const double work = rows * static_cast<double>(phase.steps() * columns.vectors * call.groups) / threads;
  const double kernel = static_cast<double>(phase.steps() * columns.vectors * call.groups * columns.lanes *
                                            PackedElementBytes(call.types.pack));
  const double pixels =
      static_cast<double>(call.batch * call.geometry.in * call.FromChannels() * call.types.source_bytes);
  const double by_tiles = work / balance(phase.tiles) + kernel * 1.5 / 8;
  const double by_panels = work / balance(panels) + (kernel / threads + pixels) / 8;
  return by_panels < by_tiles;
}

}  // namespace weft::cpu
