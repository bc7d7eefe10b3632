// The cuts that the driver of register tiles makes beside its plan: how much of its operands is packed at a time, what an epilogue
// gets together, and what tiles prefetch. Constant while the product runs.
#pragma once

#include "src/backends/cpu/kernels/product/gemm_plan.h"

namespace weft::cpu {

// The prefetches of tiles.
struct GemmAsks {
  bool panels = false;    // panels ahead
  bool unpacked = false;  // what becomes panels
  bool next = false;      // what the next block reads in place
  bool c = false;         // what tiles add to
};

struct GemmCuts {
  GemmCuts(const GemmCall& call, const GemmPlan& plan);

  // Elements from one row of the caller's C to the next, and bytes of one.
  int64_t CStride() const { return call.c_row_stride != 0 ? call.c_row_stride : call.n; }
  int64_t OutputBytes() const { return plan.types.narrow ? 2 : plan.types.accumulator_bytes; }
  int64_t Element() const { return PackedElementBytes(plan.types.pack); }

  bool PacksB() const { return !plan.direct_b && !call.b_packed; }
  // Bytes of C in f32 where the result is narrower.
  int64_t WideBytes() const { return plan.m * plan.n * 4; }
  // Bytes of the rows of A that one tile reads, so many steps of K; and that tiles packed together read.
  int64_t PackedTileBytes(int64_t length) const {
    return PackedSteps(RowsOf(plan.types.pack), length) * CeilDiv(plan.m, plan.tiles) * Element();
  }
  int64_t PackedRowsBytes(int64_t length) const { return packed_tiles * PackedTileBytes(length); }
  // Bytes of the rows of C that an epilogue consumes together.
  int64_t ConsumedBytes() const { return group_tiles * CeilDiv(plan.m, plan.tiles) * CStride() * OutputBytes(); }
  int64_t WidestPanelBytes() const;
  int64_t ChunkBytes() const { return MostPanels() * WidestPanelBytes(); }
  // Panels of B of `panels` that are packed together, or pass together.
  int64_t PanelsAChunk(int64_t panels) const;

  const GemmCall& call;
  const GemmPlan& plan;
  const double work;  // operations of one member
  const int64_t packed_tiles;
  // An epilogue consumes rows from space of the driver's, so many tiles at a time.
  const bool consumed;
  const int64_t group_tiles;
  const GemmAsks asks;

 private:
  GemmAsks FindAsks() const;
  int64_t GroupTiles() const;
  // A, in L2.
  bool StaysNear() const;
  int64_t MostPanels() const;
};

}  // namespace weft::cpu
