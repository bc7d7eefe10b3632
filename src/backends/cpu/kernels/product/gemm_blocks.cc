// See gemm_blocks.h.
#include "src/backends/cpu/kernels/product/gemm_blocks.h"

#include <algorithm>

#include "src/backends/cpu/kernels/product/gemm_ahead.h"
#include "src/runtime/launch_look.h"

namespace weft::cpu {
namespace {

// Members of so many operations look inside whether the launch ends, others before each.
constexpr double kLookedAtWork = 1e7;
// Row tiles that are packed together pass panels of so many bytes, which are near, before they go on.
constexpr int64_t kNearPanelBytes = 256 << 10;
// So many steps of K of them at a time.
constexpr int64_t kPackedSteps = 64;

// A as tiles read it.
class RowsOfA {
 public:
  RowsOfA(const CpuTarget& target, const GemmCuts& cuts, const GemmMember& member)
      : target_(target), cuts_(cuts), plan_(cuts.plan), view_(cuts.call.a), member_(member) {}

  const char* Start(int64_t row, int64_t k) const {
    return member_.a + (row * view_.row_stride + k * view_.col_stride) * plan_.types.source_bytes;
  }

  // Steps of K, `k`, of these tiles, one after another.
  void PackTiles(Range tiles, Range k, char* packed) const {
    const PackKind kind = RowsOf(plan_.types.pack);
    const int64_t length = k.size(), steps = tiles.size() == 1 ? length : kPackedSteps;
    for (int64_t step = 0; step < length; step += steps) {
      for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        const int64_t row = plan_.Row(tile), rows = plan_.Row(tile + 1) - row;
        Pack(target_, kind, {Start(row, k.begin + step), view_.col_stride, view_.row_stride},
             std::min(steps, length - step), rows, rows,
             packed + (tile - tiles.begin) * cuts_.PackedTileBytes(length) +
                 PackedSteps(kind, step) * rows * cuts_.Element());
      }
    }
  }

  // The reads of columns `k`, for these tiles.
  void AddReads(Range tiles, Range k, NextReads* next) const {
    const int64_t bytes = plan_.types.source_bytes, row = plan_.Row(tiles.begin);
    next->Add(Start(row, k.begin), k.size(), view_.col_stride * bytes, (plan_.Row(tiles.end) - row) * bytes);
  }

  // The pointers of a tile, from step `k` on. `packed`: its rows, if they have been packed.
  void Set(Range rows, int64_t k, const char* packed, const void** a, MicroArgs* args) const {
    const int64_t bytes = plan_.types.source_bytes;
    const char* start = Start(rows.begin, k);
    if (plan_.pack_a) {
      a[0] = packed;
      args->a_stride = rows.size() * cuts_.Element();
    } else if (plan_.form == MicroForm::kColumns) {
      a[0] = start;
      args->a_stride = view_.col_stride * bytes;
    } else {
      for (int64_t r = 0; r < rows.size(); ++r) a[r] = start + r * view_.row_stride * bytes;
    }
  }

 private:
  const CpuTarget& target_;
  const GemmCuts& cuts_;
  const GemmPlan& plan_;
  const MatrixView& view_;
  const GemmMember& member_;
};

// The reads of B by a block of K, for these panels.
void AddReadsOfB(const GemmCuts& cuts, const GemmMember& member, Range panels, Range k, NextReads* next) {
  const GemmPlan& plan = cuts.plan;
  const MatrixView& view = cuts.call.b;
  const int64_t bytes = plan.types.source_bytes;
  const int64_t column = plan.columns.First(panels.begin) * plan.columns.lanes;
  const int64_t column_end = std::min(plan.n, plan.columns.First(panels.end) * plan.columns.lanes);
  const char* const b = member.b + (k.begin * view.row_stride + column * view.col_stride) * bytes;
  if (view.col_stride == 1) {
    next->Add(b, k.size(), view.row_stride * bytes, (column_end - column) * bytes);
  } else {
    next->Add(b, column_end - column, view.col_stride * bytes, k.size() * bytes);
  }
}

// Rows whose every K block is in: narrowed if the output is bf16 or f16, then the caller's epilogue. `space`: where an epilogue
// that consumes them finds them, or null.
void Finish(const GemmCuts& cuts, const GemmMember& member, Range rows, Range panels, const char* space) {
  const GemmPlan& plan = cuts.plan;
  const GemmCall& call = cuts.call;
  const int64_t row = rows.begin, column = plan.columns.First(panels.begin) * plan.columns.lanes;
  const int64_t columns = std::min(plan.n, plan.columns.First(panels.end) * plan.columns.lanes) - column;
  if (plan.Widens()) {
    Narrow(call.output, reinterpret_cast<const float*>(member.c) + row * plan.n + column, plan.n,
           member.result + (row * cuts.CStride() + column) * 2, cuts.CStride(), rows.size(), columns);
  }
  if (call.epilogue.consume != nullptr) {
    // As an integer: the address of a row before the space is nothing to compute with pointers.
    const uintptr_t c = space != nullptr
                            ? reinterpret_cast<uintptr_t>(space) - static_cast<uintptr_t>(row * member.c_stride)
                            : reinterpret_cast<uintptr_t>(member.result);
    call.epilogue.consume(call.epilogue.context, reinterpret_cast<const void*>(c), row, rows.size(), column, columns);
  } else if (call.epilogue.run != nullptr && call.epilogue.parts == 1) {
    call.epilogue.run(call.epilogue.context, member.index, row, rows.size(), column, columns);
  }
}

}  // namespace

void PanelsOfB::Pack(const char* from, int64_t block, int64_t first, Range panels, char* out) const {
  const int64_t base = plan_.PackedOffset(block, first);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t column = plan_.columns.First(panel) * plan_.columns.lanes;
    PackSource source;
    source.data = from + (plan_.BlockStart(block) * b_.row_stride + column * b_.col_stride) * plan_.types.source_bytes;
    source.step_stride = b_.row_stride;
    source.lane_stride = b_.col_stride;
    cpu::Pack(target_, plan_.types.pack, source, plan_.BlockLength(block), plan_.columns.Columns(panel),
              static_cast<int64_t>(plan_.columns.Vectors(panel)) * plan_.columns.lanes,
              out + plan_.PackedOffset(block, panel) - base);
  }
}

void* GemmScratch::Get(ScratchSlot slot, int64_t bytes) {
  void* memory = ThreadScratch(slot, bytes);
  if (memory == nullptr) {
    wanted_.store(bytes, std::memory_order_relaxed);
    out_of_memory_.store(true, std::memory_order_relaxed);
  }
  return memory;
}

absl::Status GemmScratch::status() const {
  if (!out_of_memory_.load(std::memory_order_relaxed)) return absl::OkStatus();
  return OutOfScratch("a matrix product's packed blocks", wanted_);
}

GemmBlocks::GemmBlocks(const CpuTarget& target, const GemmCall& call, const GemmPlan& plan)
    : target_(target), cuts_(call, plan), panels_of_b_(target, plan, call.b), looks_(cuts_.work >= kLookedAtWork) {}

GemmMember GemmBlocks::Locate(int64_t index) const {
  const GemmCall& call = cuts_.call;
  const int64_t source_bytes = cuts_.plan.types.source_bytes;
  GemmMember member;
  member.index = index;
  const MemberOffsets at = OffsetsOf(call, index);
  member.a = static_cast<const char*>(call.a.data) + at.a * source_bytes;
  if (call.b.data != nullptr) member.b = static_cast<const char*>(call.b.data) + at.b * source_bytes;
  member.c = member.result = static_cast<char*>(call.c) + at.c * cuts_.OutputBytes();
  member.c_stride = cuts_.CStride() * cuts_.OutputBytes();
  return member;
}

void GemmBlocks::Compute(const GemmMember& member, Range tiles, Range panels, SharedPanels shared) {
  const GemmPlan& plan = cuts_.plan;
  char* own = nullptr;
  if (shared.packed == nullptr && cuts_.PacksB()) {
    own = static_cast<char*>(scratch_.Get(ScratchSlot::kPackB, cuts_.ChunkBytes()));
    if (own == nullptr) return;
  }
  const Range blocks = shared.packed == nullptr ? Range{0, plan.k_blocks} : Range{shared.block, shared.block + 1};
  const int64_t together = shared.packed != nullptr ? panels.size() : cuts_.PanelsAChunk(panels.size());
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    for (int64_t first = panels.begin; first < panels.end; first += together) {
      if (looks_ && LaunchEnds()) return;
      Chunk chunk = {block, {first, std::min(panels.end, first + together)}, shared.packed};
      Coming next;
      if (own != nullptr) {
        panels_of_b_.Pack(member.b, block, first, chunk.panels, own);
        chunk.packed = own;
      } else if (cuts_.call.b_packed) {
        chunk.packed = member.b + plan.PackedOffset(block, first);
      }
      if (cuts_.asks.next || (cuts_.asks.unpacked && own != nullptr)) {
        const bool same = chunk.panels.end < panels.end;
        const int64_t then = same ? chunk.panels.end : panels.begin, in = same ? block : block + 1;
        if (in < blocks.end) {
          const Range k = {plan.BlockStart(in), plan.BlockStart(in + 1)};
          AddReadsOfB(cuts_, member, {then, std::min(panels.end, then + together)}, k, &next.reads);
          if (!same && !cuts_.asks.unpacked) RowsOfA(target_, cuts_, member).AddReads(tiles, k, &next.reads);
        }
      }
      if (cuts_.packed_tiles > 1) {
        ComputePacked(member, tiles, chunk);
      } else {
        if (cuts_.asks.panels) {
          next.panels = chunk.packed + plan.PackedOffset(block, chunk.panels.end) - plan.PackedOffset(block, first);
        }
        ComputeChunk(member, tiles, chunk, next, nullptr);
      }
    }
  }
}

// Tiles that are packed together go through all panels, a few of which are near.
void GemmBlocks::ComputePacked(const GemmMember& member, Range tiles, const Chunk& chunk) {
  const GemmPlan& plan = cuts_.plan;
  const Range k = {plan.BlockStart(chunk.block), plan.BlockStart(chunk.block + 1)}, panels = chunk.panels;
  char* const packed_a = static_cast<char*>(scratch_.Get(ScratchSlot::kPackA, cuts_.PackedRowsBytes(k.size())));
  if (packed_a == nullptr) return;
  const int64_t near = std::clamp<int64_t>(kNearPanelBytes / cuts_.WidestPanelBytes(), 1, panels.size());
  const int64_t together = CeilDiv(panels.size(), CeilDiv(panels.size(), near));
  const auto at = [&](int64_t panel) {
    const int64_t offset = plan.PackedOffset(chunk.block, panel) - plan.PackedOffset(chunk.block, panels.begin);
    return chunk.packed != nullptr ? chunk.packed + offset : nullptr;
  };
  const RowsOfA rows(target_, cuts_, member);
  for (int64_t tile = tiles.begin; tile < tiles.end; tile += cuts_.packed_tiles) {
    const Range group = {tile, std::min(tile + cuts_.packed_tiles, tiles.end)};
    rows.PackTiles(group, k, packed_a);
    for (int64_t panel = panels.begin; panel < panels.end; panel += together) {
      if (looks_ && LaunchEnds()) return;
      const int64_t next = std::min(panels.end, panel + together);
      Coming coming;
      coming.panels = at(next < panels.end ? next : panels.begin);
      ComputeChunk(member, group, {chunk.block, {panel, next}, at(panel)}, coming, packed_a);
    }
  }
}

// `rows_of_a`: the tiles' rows of A if they have been packed.
void GemmBlocks::ComputeChunk(const GemmMember& member, Range tiles, const Chunk& chunk, Coming& next,
                              const char* rows_of_a) {
  const GemmPlan& plan = cuts_.plan;
  const int64_t block = chunk.block;
  const Range k = {plan.BlockStart(block), plan.BlockStart(block + 1)};
  const RowsOfA rows_a(target_, cuts_, member);
  const int64_t zero = 0;
  const void* a[16];
  void* c[16];
  MicroArgs args;
  args.a = a;
  args.c = c;
  args.b_offsets = &zero;
  const int64_t together = StepElements(plan.types.pack);
  args.k = k.size() / together;
  args.odd = k.size() % together;
  char* own_rows = nullptr;
  if (plan.pack_a) {
    if (rows_of_a == nullptr) {
      own_rows = static_cast<char*>(scratch_.Get(ScratchSlot::kPackA, cuts_.PackedTileBytes(k.size())));
      if (own_rows == nullptr) return;
    }
    args.k = PackedSteps(RowsOf(plan.types.pack), k.size());
    args.odd = 0;
  }
  args.accumulate = block > 0 || cuts_.call.accumulate;
  char* space = nullptr;
  if (cuts_.consumed) {
    space = static_cast<char*>(scratch_.Get(ScratchSlot::kOutput, cuts_.ConsumedBytes()));
    if (space == nullptr) return;
  }
  const int64_t element = cuts_.Element(), packed_base = plan.PackedOffset(block, chunk.panels.begin);
  const bool last = block == plan.k_blocks - 1;
  PieceLook look(cuts_.work / static_cast<double>(plan.tiles * plan.k_blocks * plan.columns.panels) *
                 static_cast<double>(chunk.panels.size()));
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    if (looks_ && look.Ends()) return;
    const Range rows = {plan.Row(tile), plan.Row(tile + 1)};
    const char* packed_a = own_rows;
    if (own_rows != nullptr) rows_a.PackTiles({tile, tile + 1}, k, own_rows);
    if (rows_of_a != nullptr) packed_a = rows_of_a + (tile - tiles.begin) * cuts_.PackedTileBytes(k.size());
    rows_a.Set(rows, k.begin, packed_a, a, &args);
    const int64_t in_group = (tile - tiles.begin) % cuts_.group_tiles, first = plan.Row(tile - in_group);
    char* to =
        space != nullptr ? space + (rows.begin - first) * member.c_stride : member.c + rows.begin * member.c_stride;
    for (int64_t r = 0; r < rows.size(); ++r) c[r] = to + r * member.c_stride;
    for (int64_t panel = chunk.panels.begin; panel < chunk.panels.end; ++panel) {
      const int vectors = plan.columns.Vectors(panel);
      const int64_t column = plan.columns.First(panel) * plan.columns.lanes;
      args.c_offset = column * plan.TileBytes();
      args.last_lanes = plan.columns.LastLanes(panel);
      bool masked = false;
      if (plan.direct_b) {
        args.b = member.b + (k.begin * cuts_.call.b.row_stride + column) * element;
        args.b_stride = cuts_.call.b.row_stride * element;
        masked = args.last_lanes != plan.columns.lanes;
      } else {
        args.b = chunk.packed + plan.PackedOffset(block, panel) - packed_base;
        args.b_stride = static_cast<int64_t>(vectors) * plan.columns.lanes * element;
      }
      if (cuts_.asks.panels) {
        AskAhead(next.panels + plan.PackedOffset(block, panel) - packed_base, plan.PanelBytes(block, panel),
                 tile - tiles.begin, tiles.size(), &args);
      }
      if (cuts_.asks.next || cuts_.asks.unpacked) next.reads.Ask(&args);
      if (cuts_.asks.c && block > 0) {
        AskForRows(c, rows.size(), args.c_offset, vectors * plan.columns.lanes * plan.TileBytes());
      }
      plan.set.At(rows.size(), vectors, masked)(&args);
    }
    const bool group_ends = in_group == cuts_.group_tiles - 1 || tile + 1 == tiles.end;
    if (last && group_ends) Finish(cuts_, member, {first, rows.end}, chunk.panels, space);
  }
}

}  // namespace weft::cpu
