// How a gathering convolution is cut, from its sizes alone: into phases that each look like a plain strided convolution,
// their output pixels into tiles, K into blocks and the kernel's panels into chunks. Everything that decides a result's
// bits is here; only who computes what depends on the threads.
#pragma once

#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/backends/cpu/kernels/conv/conv_gather.h"
#include "src/backends/cpu/kernels/product/gemm_plan.h"

namespace weft::cpu {

// A block of K: taps [tap0, tap1) of the phase, counted through all dimensions, by channels [channel0, channel1).
struct KBlock {
  int64_t tap0 = 0, tap1 = 0;
  int64_t channel0 = 0, channel1 = 0;

  // Tells whether there are sums of earlier blocks to add to.
  bool Adds() const { return tap0 > 0 || channel0 > 0; }
};

struct Phase {
  PhaseDim dims[kMaxSpatialDims];
  int64_t pixels = 0;      // per batch member
  int64_t outer_taps = 0;  // all but the innermost dimension's
  int64_t inner_taps = 0;
  bool joinable = false;     // inner taps are neighbours in memory
  bool joined_pack = false;  // the panel holds joined runs (odd pairs): only with the innermost dimension inside
  bool within = false;       // no tap of no pixel falls into padding
  int64_t k_steps = 0;       // packed steps of one inner tap
  int64_t run_steps = 0;     // packed steps of one outer tap
  int64_t packed = 0;        // byte offset of the phase's packed panels
  int64_t tiles = 1;         // of rows
  int64_t line_tiles = 0;    // tiles of one line where lines are cut alone, else 0
  // The order of loops: chunks of panels, in them groups of tiles, in them blocks of K, in them tiles, then panels.
  absl::InlinedVector<KBlock, 1> blocks;
  int64_t block_taps = 1;    // the most that a block has
  int64_t chunk_panels = 1;  // over all groups of the convolution
  int64_t group_tiles = 1;
  // Parts in place of whole lines where that is less work: the middle of each, then the first and the last pixels of
  // all, one below the other, so that they leave out the taps beside the image. They share the packed kernel; `tiles`
  // counts all of theirs.
  std::vector<Phase> parts;

  bool empty() const { return outer_taps * inner_taps * k_steps == 0; }
  int64_t steps() const { return outer_taps * run_steps; }
  // Packed steps before a block.
  int64_t StepsBefore(const KBlock& block, PackKind pack) const {
    return block.tap0 / inner_taps * run_steps + block.tap0 % inner_taps * k_steps + PackedSteps(pack, block.channel0);
  }
  int64_t FirstRow(int64_t batch, int64_t tile) const {
    if (line_tiles == 0) return CutAt(batch * pixels, tiles, tile);
    const int64_t line = dims[kMaxSpatialDims - 1].count;
    return tile / line_tiles * line + CutAt(line, line_tiles, tile % line_tiles);
  }
};

// Dimensions without a window of their own become one line, together with the batch if all are such: a 1x1 convolution
// is then a matrix product over one line of pixels. Their order in memory stays.
void JoinLines(GatherCall* call);

// Tells whether neighbouring output pixels read neighbouring elements, everywhere: one channel, moved by one, without
// padding along the line. A tile then needs no pointer for each of its pixels.
bool RunsAlongPixels(const GatherCall& call);

// The kernel's columns in panels: as wide as registers allow, unless somewhat narrower ones make tiles of whole lines. Such
// leave out the taps that lie above and below the image (of 3x3 over lines of 7, a tenth of all).
ColumnCut CutColumns(const CpuTarget& target, const GatherCall& call, MicroForm form);

// `rows`: of a tile, at most.
std::vector<Phase> CutPhases(const GatherCall& call, const ColumnCut& columns, int rows);

// Tells whether tiles round the sums: those that are done with one block of K. Others wait for the next one in f32.
bool RoundsSums(const GatherCall& call, const Phase& phase);
// Tells whether tiles do the epilogue, in the last block of K of one of `phases` phases.
bool EndsSums(const GatherCall& call, const Phase& phase, size_t phases);

// Tells whether the work is partitioned over threads by panels of the kernel, rather than by tiles of pixels.
bool DealsPanels(const GatherCall& call, const ColumnCut& columns, const Phase& phase, int threads);

}  // namespace weft::cpu
