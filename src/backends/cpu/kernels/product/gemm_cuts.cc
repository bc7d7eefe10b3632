// See gemm_cuts.h.
#include "src/backends/cpu/kernels/product/gemm_cuts.h"

#include <algorithm>

namespace weft::cpu {
namespace {

// Row tiles that share one call of the epilogue: their rows are still in L1 or L2.
constexpr int64_t kEpilogueTiles = 8;
// Row tiles that are packed together where A's columns are contiguous: one tile's few rows are a part of a cache line, and of lines
// a power of two apart the next tile would find none again. They go through panels of B that are more than a near cache holds, or
// they would be packed again for each few of those; so many bytes of panels at a time for them.
constexpr int64_t kPackedTiles = 8;
constexpr int64_t kPackedPanelBytes = 3 << 20;
// So many bytes of A stay in L2.
constexpr int64_t kNearBytes = 448 << 10;
// A C of so many bytes is in memory again when the next block of K comes to it.
constexpr int64_t kFarBytes = 8 << 20;
// Rows that an epilogue consumes stay in L1.
constexpr int64_t kConsumedBytes = 28 << 10;

}  // namespace

GemmCuts::GemmCuts(const GemmCall& call, const GemmPlan& plan)
    : call(call),
      plan(plan),
      work(static_cast<double>(plan.m) * static_cast<double>(plan.n) * static_cast<double>(2 * plan.k + 16)),
      packed_tiles(plan.pack_a && call.a.row_stride == 1 ? std::min(kPackedTiles, plan.tiles) : 1),
      // With several blocks of K, rows come back for the next one: they need C.
      consumed(call.epilogue.consume != nullptr && plan.k_blocks == 1 && !plan.Widens() && !call.accumulate),
      group_tiles(GroupTiles()),
      asks(FindAsks()) {}

int64_t GemmCuts::GroupTiles() const {
  if (!consumed) return kEpilogueTiles;
  const int64_t tile_bytes = CeilDiv(plan.m, plan.tiles) * CStride() * OutputBytes();
  return std::clamp<int64_t>(kConsumedBytes / std::max<int64_t>(1, tile_bytes), 1, kEpilogueTiles);
}

GemmAsks GemmCuts::FindAsks() const {
  GemmAsks asks;
  asks.panels = (call.b_packed || (PacksB() && packed_tiles > 1)) &&
                AsksAhead(plan.PackedOffset(plan.k_blocks, 0), call.b_packed ? plan.tiles : packed_tiles);
  asks.next = plan.form == MicroForm::kColumns && !plan.pack_a && call.b.col_stride == 1 && !call.b_packed;
  asks.unpacked = PacksB() && packed_tiles == 1 && !asks.next && (call.b.row_stride == 1 || call.b.col_stride == 1) &&
                  StaysNear() && AsksAhead(plan.k * plan.n * plan.types.source_bytes, plan.tiles);
  asks.c = plan.m * plan.n * plan.TileBytes() >= kFarBytes;
  return asks;
}

bool GemmCuts::StaysNear() const { return plan.m * plan.k_block * plan.types.source_bytes <= kNearBytes; }

int64_t GemmCuts::WidestPanelBytes() const {
  return std::max<int64_t>(
      1, PackedSteps(plan.types.pack, plan.k_block) * plan.columns.MaxVectors() * plan.columns.lanes * Element());
}

// A thread's panels in chunks of equal size: a few more in one rather than few in the last, for which A would be packed again.
int64_t GemmCuts::MostPanels() const {
  const int64_t most = packed_tiles > 1 ? std::max(plan.chunk_panels, kPackedPanelBytes / WidestPanelBytes())
                                        : plan.chunk_panels + plan.chunk_panels / 4;
  return std::min(plan.columns.panels, most);
}

// One where A stays in L2 beside two panels, so that the next one is there when it is read; half as many where what they are
// packed from shall be there, too.
int64_t GemmCuts::PanelsAChunk(int64_t panels) const {
  if (asks.panels && !plan.pack_a && StaysNear()) return 1;
  const int64_t most = asks.unpacked ? CeilDiv(plan.chunk_panels, 2) : MostPanels();
  return CeilDiv(panels, CeilDiv(panels, most));
}

}  // namespace weft::cpu
