// How one matrix product is cut into blocks and register tiles. Everything that changes a result's bits is decided
// here from the shape alone; only who computes which block depends on the threads.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

// Columns in vectors, cut into panels of nearly equal width.
struct ColumnCut {
  int lanes = 16;
  int64_t columns = 0;
  int64_t vectors = 0;
  int64_t panels = 0;
  int64_t each = 0;  // vectors of every panel, if they are equal: a product asks often, and divisions take long

  static ColumnCut Make(const CpuTarget& target, MicroType type, int64_t columns);
  void SetPanels(int64_t count) {
    panels = count;
    each = count > 0 && vectors % count == 0 ? vectors / count : 0;
  }
  int64_t First(int64_t panel) const { return each > 0 ? panel * each : CutAt(vectors, panels, panel); }  // in vectors
  int Vectors(int64_t panel) const { return static_cast<int>(First(panel + 1) - First(panel)); }
  int MaxVectors() const { return static_cast<int>(CeilDiv(vectors, panels)); }
  int MinVectors() const { return static_cast<int>(vectors / panels); }
  int64_t Columns(int64_t panel) const {
    const int64_t end = First(panel + 1) * lanes;
    return (end < columns ? end : columns) - First(panel) * lanes;
  }
  // Lanes of the panel's last vector that exist.
  int64_t LastLanes(int64_t panel) const { return Columns(panel) - (Vectors(panel) - 1) * lanes; }
};

// The tile functions that one driver call needs: two heights by two widths at most, with and without masked B.
struct TileSet {
  int mr_low = 1, nv_low = 1;
  MicroFn* fn[2][2][2] = {};

  MicroFn* At(int64_t rows, int64_t vectors, bool masked) const { return fn[rows - mr_low][vectors - nv_low][masked]; }
};
// The kind of a call's tiles: what they multiply, how they read A, and what they do to their sums.
struct TileKind {
  MicroType type = MicroType::kF32;
  MicroForm form = MicroForm::kRows;
  EndingKind ending = EndingKind::kNone;
};
// Fetches (and compiles) the tiles for `rows` cut into `tiles` and columns cut by `columns`. `masked` asks for the
// masked form of the last panel as well.
absl::Status FetchTiles(KernelSet::State& state, TileKind kind, int64_t rows, int64_t tiles, const ColumnCut& columns,
                        bool masked, TileSet* out);

struct GemmPlan {
  TypePlan types;
  ColumnCut columns;
  int64_t m = 0, n = 0, k = 0;
  int64_t k_blocks = 1, k_block = 0;  // elements of K; even, so that pairs and fours stay whole
  MicroForm form = MicroForm::kRows;
  bool pack_a = false;
  bool direct_b = false;
  bool rounds = false;       // tiles write C in bf16: all of K is in one block
  int64_t tiles = 1;         // of rows
  int64_t chunk_panels = 1;  // panels of B that stay in L2 together
  TileSet set;

  // Tells whether C waits in f32 to be narrowed.
  bool Widens() const { return types.narrow && !rounds; }
  int64_t TileBytes() const { return rounds ? 2 : types.accumulator_bytes; }  // of an element of C as tiles write it
  int64_t BlockStart(int64_t block) const { return block * k_block < k ? block * k_block : k; }
  int64_t BlockLength(int64_t block) const { return BlockStart(block + 1) - BlockStart(block); }
  int64_t Row(int64_t tile) const { return CutAt(m, tiles, tile); }
  int64_t PanelBytes(int64_t block, int64_t panel) const {
    return PackedSteps(types.pack, BlockLength(block)) * columns.Vectors(panel) * columns.lanes *
           PackedElementBytes(types.pack);
  }
  // Where a panel lies if all are packed one after another; in a chunk, relative to its first panel.
  int64_t PackedOffset(int64_t block, int64_t panel) const {
    const int64_t width = PackedElementBytes(types.pack) * columns.lanes;
    const int64_t whole = block < k_blocks ? block : k_blocks - 1;  // those before the last are of equal length
    int64_t before = whole * PackedSteps(types.pack, k_block);
    if (block > whole) before += PackedSteps(types.pack, BlockLength(whole));
    return before * columns.vectors * width +
           PackedSteps(types.pack, BlockLength(block)) * columns.First(panel) * width;
  }
};

// The plan without its tiles.
GemmPlan CutGemm(const CpuTarget& target, const GemmCall& call, const TypePlan& types);
// The whole plan with its tiles fetched. The call is checked and tiles serve its types.
absl::Status PlanGemm(KernelSet::State& state, const GemmCall& call, const TypePlan& types, GemmPlan* plan);

// Where a batch's member begins, in elements.
struct MemberOffsets {
  int64_t a = 0, b = 0, c = 0;
};
MemberOffsets OffsetsOf(const GemmCall& call, int64_t index);
int64_t Members(const GemmCall& call);

// Tells whether B is streamed for a few rows of A (few_rows.h), never packed: by the shape alone, since bits depend on it. A
// matrix times one column is one row times the matrix.
bool HasFewRows(const GemmCall& call, const TypePlan& types);

}  // namespace weft::cpu
