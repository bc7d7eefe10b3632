// Matrix products over register tiles: B is packed into panels that stay in L2 (or read in place), A is read in place
// or packed tile by tile. Columns, rows or batch members are dealt out to the threads.
#include <algorithm>
#include <cstring>

#include "src/backends/cpu/kernels/product/gemm_ahead.h"
#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/backends/cpu/kernels/product/product.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// Below this many operations the join of two threads is not repaid.
constexpr double kInlineWork = 200'000;
// Members of so many operations look inside whether the launch ends, others before each.
constexpr double kLookedAtWork = 1e7;
// Row tiles that share one call of the epilogue: their rows are still in L1 or L2.
constexpr int64_t kEpilogueTiles = 8;
// Row tiles that are packed together where A's columns are contiguous: one tile's few rows are a part of a cache line, and of lines
// a power of two apart the next tile would find none again. They go through panels of B that are more than a near cache holds, or
// they would be packed again for each few of those; so many bytes of panels at a time for them, and so many packed.
constexpr int64_t kPackedTiles = 8;
constexpr int64_t kNearPanelBytes = 256 << 10, kPackedPanelBytes = 3 << 20;
// So many steps of K at a time.
constexpr int64_t kPackedSteps = 64;
// So many bytes of A stay in L2.
constexpr int64_t kNearBytes = 448 << 10;
// A C of so many bytes is in memory again when the next block of K comes to it.
constexpr int64_t kFarBytes = 8 << 20;
// Rows that an epilogue consumes stay in L1.
constexpr int64_t kConsumedBytes = 28 << 10;

using Bytes = const char*;

struct Member {  // one batch member's pointers
  int64_t index = 0;
  Bytes a = nullptr;
  Bytes b = nullptr;
  char* c = nullptr;     // where tiles write: the caller's C, or f32 space when the output is narrower
  int64_t c_stride = 0;  // bytes
};

class Driver {
 public:
  // `before`: another product, whose columns are computed before those of this one.
  Driver(KernelSet::State& state, const GemmCall& call, const GemmPlan& plan, Driver* before = nullptr)
      : target_(state.target()),
        call_(call),
        plan_(plan),
        members_(Members(call)),
        before_(before),
        backwards_(before != nullptr && state.pairs.fetch_add(1, std::memory_order_relaxed) % 2 != 0) {
    work_ = static_cast<double>(plan.m) * static_cast<double>(plan.n) * static_cast<double>(2 * plan.k + 16);
    looks_ = work_ >= kLookedAtWork;
    c_stride_ = call.c_row_stride != 0 ? call.c_row_stride : call.n;
    element_ = PackedElementBytes(plan.types.pack);
    output_bytes_ = plan.types.narrow ? 2 : plan.types.accumulator_bytes;
    packed_tiles_ = plan.pack_a && call.a.row_stride == 1 ? std::min(kPackedTiles, plan.tiles) : 1;
    asks_ = (call.b_packed || (PacksB() && packed_tiles_ > 1)) &&
            AsksAhead(plan.PackedOffset(plan.k_blocks, 0), call.b_packed ? plan.tiles : packed_tiles_);
    asks_next_ = plan.form == MicroForm::kColumns && !plan.pack_a && call.b.col_stride == 1 && !call.b_packed;
    asks_unpacked_ = PacksB() && packed_tiles_ == 1 && !asks_next_ &&
                     (call.b.row_stride == 1 || call.b.col_stride == 1) && StaysNear() &&
                     AsksAhead(plan.k * plan.n * plan.types.source_bytes, plan.tiles);
    fetches_c_ = plan.m * plan.n * plan.TileBytes() >= kFarBytes;
    // With several blocks of K, rows come back for the next one: they need C.
    consumed_ = call.epilogue.consume != nullptr && plan.k_blocks == 1 && !plan.Widens() && !call.accumulate;
    if (consumed_) {
      const int64_t tile_bytes = CeilDiv(plan.m, plan.tiles) * c_stride_ * output_bytes_;
      group_tiles_ = std::clamp<int64_t>(kConsumedBytes / std::max<int64_t>(1, tile_bytes), 1, kEpilogueTiles);
    }
  }

  absl::Status Run(ThreadPool& pool) {
    const int threads = pool.threads();
    if (DealsMembers(threads)) {
      if (work_ * static_cast<double>(members_) < kInlineWork) {
        for (int64_t i = 0; i < members_; ++i) RunMember(i, nullptr);
      } else {
        pool.ParallelRanges(members_, [&](int64_t begin, int64_t end, int) {
          PieceLook look(work_);
          for (int64_t i = begin; i < end && !look.Ends(); ++i) RunMember(i, nullptr);
        });
      }
    } else {
      ThreadPool* const inside = threads > 1 && work_ >= kInlineWork ? &pool : nullptr;
      for (int64_t i = 0; i < members_; ++i) RunMember(i, inside);
    }
    if (before_ != nullptr && before_->out_of_memory_.load(std::memory_order_relaxed)) {
      return OutOfScratch("a matrix product's packed blocks", before_->wanted_);
    }
    return out_of_memory_.load(std::memory_order_relaxed) ? OutOfScratch("a matrix product's packed blocks", wanted_)
                                                          : absl::OkStatus();
  }

  // Adds what all calls of Scratch below ask for, at most.
  void AddNeeds(int threads, ScratchNeeds& needs) const {
    if (plan_.Widens()) {
      if (DealsMembers(threads)) needs.Each(ScratchSlot::kOutput, WideBytes());
      needs.Once(ScratchSlot::kOutput, WideBytes());
    }
    if (PacksB()) {
      needs.Each(ScratchSlot::kPackB, ChunkBytes());
      needs.Once(ScratchSlot::kShared, ChunkBytes());
    }
    if (plan_.pack_a) needs.Each(ScratchSlot::kPackA, PackedRowsBytes(plan_.k_block));
    if (consumed_) needs.Each(ScratchSlot::kOutput, ConsumedBytes());
  }

  // Panels [begin, end) of a block, laid out after each other from the chunk's first panel on.
  static void PackPanels(const CpuTarget& target, const GemmPlan& plan, const MatrixView& b, Bytes from, int64_t block,
                         int64_t chunk, int64_t begin, int64_t end, char* out) {
    const int64_t base = plan.PackedOffset(block, chunk);
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t column = plan.columns.First(panel) * plan.columns.lanes;
      PackSource source;
      source.data = from + (plan.BlockStart(block) * b.row_stride + column * b.col_stride) * plan.types.source_bytes;
      source.step_stride = b.row_stride;
      source.lane_stride = b.col_stride;
      Pack(target, plan.types.pack, source, plan.BlockLength(block), plan.columns.Columns(panel),
           static_cast<int64_t>(plan.columns.Vectors(panel)) * plan.columns.lanes,
           out + plan.PackedOffset(block, panel) - base);
    }
  }

 private:
  bool PacksB() const { return !plan_.direct_b && !call_.b_packed; }

  // Whole members of the batch to the threads, rather than parts of each.
  bool DealsMembers(int threads) const { return members_ > 1 && (members_ >= 2 * threads || work_ < kInlineWork); }

  // Bytes of C in f32 where the result is narrower.
  int64_t WideBytes() const { return plan_.m * plan_.n * 4; }
  // Bytes of the rows of A that one tile reads, so many steps of K; and that tiles packed together read.
  int64_t PackedTileBytes(int64_t length) const {
    return PackedSteps(RowsOf(plan_.types.pack), length) * CeilDiv(plan_.m, plan_.tiles) * element_;
  }
  int64_t PackedRowsBytes(int64_t length) const { return packed_tiles_ * PackedTileBytes(length); }
  // Bytes of the rows of C that an epilogue consumes together.
  int64_t ConsumedBytes() const { return group_tiles_ * CeilDiv(plan_.m, plan_.tiles) * c_stride_ * output_bytes_; }

  void* Scratch(ScratchSlot slot, int64_t bytes) {
    void* memory = ThreadScratch(slot, bytes);
    if (memory == nullptr) {
      wanted_.store(bytes, std::memory_order_relaxed);
      out_of_memory_.store(true, std::memory_order_relaxed);
    }
    return memory;
  }

  Member Locate(int64_t index) const {
    Member member;
    member.index = index;
    const MemberOffsets at = OffsetsOf(call_, index);
    member.a = static_cast<Bytes>(call_.a.data) + at.a * plan_.types.source_bytes;
    if (call_.b.data != nullptr) member.b = static_cast<Bytes>(call_.b.data) + at.b * plan_.types.source_bytes;
    member.c = static_cast<char*>(call_.c) + at.c * output_bytes_;
    member.c_stride = c_stride_ * output_bytes_;
    return member;
  }

  // With a pool, rows or columns are dealt out.
  void RunMember(int64_t index, ThreadPool* pool) {
    Member member = Locate(index);
    char* result = member.c;
    if (call_.epilogue.parts > 1 || before_ != nullptr) return RunParts(member, result, pool);
    if (plan_.Widens()) {
      member.c = static_cast<char*>(Scratch(ScratchSlot::kOutput, WideBytes()));
      if (member.c == nullptr) return;
      member.c_stride = plan_.n * 4;
    }
    const int64_t panels = plan_.columns.panels;
    if (pool == nullptr) return Compute(member, result, 0, plan_.tiles, 0, panels, nullptr, -1);
    const int threads = pool->threads();
    const double share_n = Balance(panels, threads);
    const double share_m = Balance(plan_.tiles, threads);
    // Rows where B is ready and each thread would otherwise pack all of A, or an epilogue wants long runs of memory.
    const bool rows_first =
        plan_.direct_b && (plan_.pack_a || consumed_ || call_.epilogue.run != nullptr) && share_m >= share_n - 0.05;
    if (!rows_first && share_n >= share_m - 0.02) {
      pool->ParallelRanges(panels, [&](int64_t begin, int64_t end, int) {
        Compute(member, result, 0, plan_.tiles, begin, end, nullptr, -1);
      });
      return;
    }
    if (!PacksB()) {
      pool->ParallelRanges(plan_.tiles, [&](int64_t begin, int64_t end, int) {
        Compute(member, result, begin, end, 0, panels, nullptr, -1);
      });
      return;
    }
    // Rows are dealt out: every thread needs all of B, so it is packed once, together.
    char* shared = static_cast<char*>(Scratch(ScratchSlot::kShared, ChunkBytes()));
    if (shared == nullptr) return;
    for (int64_t block = 0; block < plan_.k_blocks; ++block) {
      for (int64_t chunk = 0; chunk < panels; chunk += plan_.chunk_panels) {
        const int64_t chunk_end = std::min(panels, chunk + plan_.chunk_panels);
        pool->ParallelRanges(chunk_end - chunk, [&](int64_t begin, int64_t end, int) {
          PackPanels(target_, plan_, call_.b, member.b, block, chunk, chunk + begin, chunk + end, shared);
        });
        pool->ParallelRanges(plan_.tiles, [&](int64_t begin, int64_t end, int) {
          Compute(member, result, begin, end, chunk, chunk_end, shared, block);
        });
      }
    }
  }

  // The thread that computes columns of one part of C computes those of the others, too, and then runs the epilogue on them. A pair's
  // panels fill L2, and in a loop the next run finds those there that it begins with if every other one goes backwards.
  void RunParts(const Member& member, char* result, ThreadPool* pool) {
    const int64_t panels = plan_.columns.panels / call_.epilogue.parts;
    const Member other = before_ != nullptr ? before_->Locate(0) : Member();
    const auto compute = [&](int64_t panel) {
      for (int64_t first = 0; before_ != nullptr && first < plan_.columns.panels; first += panels) {
        before_->Compute(other, other.c, 0, before_->plan_.tiles, first + panel, first + panel + 1, nullptr, -1);
      }
      for (int64_t first = 0; first < plan_.columns.panels; first += panels) {
        Compute(member, result, 0, plan_.tiles, first + panel, first + panel + 1, nullptr, -1);
      }
      if (call_.epilogue.parts == 1) return;  // the product has run it
      const int64_t column = plan_.columns.First(panel) * plan_.columns.lanes;
      const int64_t columns = plan_.columns.First(panel + 1) * plan_.columns.lanes - column;
      call_.epilogue.run(call_.epilogue.context, member.index, 0, plan_.m, column, columns);
    };
    const auto share = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) compute(backwards_ ? begin + end - 1 - i : i);
    };
    if (pool == nullptr) return share(0, panels, 0);
    pool->ParallelRanges(panels, share);
  }

 public:
  // Tells whether parts of C are panels alike, which the threads share as evenly as all of them.
  static bool ServesParts(const GemmPlan& plan, int64_t members, int64_t parts, int threads) {
    const ColumnCut& cut = plan.columns;
    if (members != 1 || plan.Widens() || plan.n % (parts * cut.lanes) != 0 || cut.panels % parts != 0) return false;
    return Balance(cut.panels / parts, threads) >=
           std::max(Balance(cut.panels, threads), Balance(plan.tiles, threads)) - 0.02;
  }

 private:
  static double Balance(int64_t items, int threads) {
    return static_cast<double>(items) / (CeilDiv(items, threads) * threads);
  }

  // A thread's panels in chunks of equal size: a few more in one rather than few in the last, for which A would be packed again.
  int64_t MostPanels() const {
    const int64_t most = packed_tiles_ > 1 ? std::max(plan_.chunk_panels, kPackedPanelBytes / WidestPanelBytes())
                                           : plan_.chunk_panels + plan_.chunk_panels / 4;
    return std::min(plan_.columns.panels, most);
  }
  // One where A stays in L2 beside two panels, so that the next one is there when it is read; half as many where what they are
  // packed from shall be there, too.
  int64_t PanelsAChunk(int64_t panels) const {
    if (asks_ && !plan_.pack_a && StaysNear()) return 1;
    const int64_t most = asks_unpacked_ ? CeilDiv(plan_.chunk_panels, 2) : MostPanels();
    return CeilDiv(panels, CeilDiv(panels, most));
  }

  // A, in L2.
  bool StaysNear() const { return plan_.m * plan_.k_block * plan_.types.source_bytes <= kNearBytes; }

  int64_t WidestPanelBytes() const {
    return std::max<int64_t>(
        1, PackedSteps(plan_.types.pack, plan_.k_block) * plan_.columns.MaxVectors() * plan_.columns.lanes * element_);
  }
  int64_t ChunkBytes() const { return MostPanels() * WidestPanelBytes(); }

  // Row tiles x panels. With `shared`, one block and one chunk that others packed; else all of K, packing here.
  void Compute(const Member& member, char* result, int64_t tile_begin, int64_t tile_end, int64_t panel_begin,
               int64_t panel_end, const char* shared, int64_t only_block) {
    char* own = nullptr;
    if (shared == nullptr && PacksB()) {
      own = static_cast<char*>(Scratch(ScratchSlot::kPackB, ChunkBytes()));
      if (own == nullptr) return;
    }
    const int64_t first_block = only_block < 0 ? 0 : only_block;
    const int64_t last_block = only_block < 0 ? plan_.k_blocks : only_block + 1;
    const int64_t together = shared != nullptr ? panel_end - panel_begin : PanelsAChunk(panel_end - panel_begin);
    for (int64_t block = first_block; block < last_block; ++block) {
      for (int64_t chunk = panel_begin; chunk < panel_end; chunk += together) {
        if (looks_ && LaunchEnds()) return;
        const int64_t chunk_end = std::min(panel_end, chunk + together);
        const char* packed = shared;
        Coming next;
        if (own != nullptr) {
          PackPanels(target_, plan_, call_.b, member.b, block, chunk, chunk, chunk_end, own);
          packed = own;
        } else if (call_.b_packed) {
          packed = member.b + plan_.PackedOffset(block, chunk);
        }
        if (asks_next_ || (asks_unpacked_ && own != nullptr)) {
          const bool same = chunk_end < panel_end;
          const int64_t first = same ? chunk_end : panel_begin, in = same ? block : block + 1;
          if (in < last_block)
            AddReads(member, tile_begin, tile_end, first, std::min(panel_end, first + together), in,
                     !same && !asks_unpacked_, &next.reads);
        }
        if (packed_tiles_ > 1) {
          ComputePacked(member, result, block, tile_begin, tile_end, chunk, chunk_end, packed);
        } else {
          if (asks_) next.panels = packed + plan_.PackedOffset(block, chunk_end) - plan_.PackedOffset(block, chunk);
          ComputeChunk(member, result, block, tile_begin, tile_end, chunk, chunk_end, packed, next, nullptr);
        }
      }
    }
  }

  void AddReads(const Member& member, int64_t tile_begin, int64_t tile_end, int64_t panel_begin, int64_t panel_end,
                int64_t block, bool rows_too, NextReads* next) const {
    const int64_t bytes = plan_.types.source_bytes, k = plan_.BlockStart(block), length = plan_.BlockLength(block);
    const int64_t column = plan_.columns.First(panel_begin) * plan_.columns.lanes;
    const int64_t column_end = std::min(plan_.n, plan_.columns.First(panel_end) * plan_.columns.lanes);
    const char* const b = member.b + (k * call_.b.row_stride + column * call_.b.col_stride) * bytes;
    if (call_.b.col_stride == 1) {
      next->Add(b, length, call_.b.row_stride * bytes, (column_end - column) * bytes);
    } else {
      next->Add(b, column_end - column, call_.b.col_stride * bytes, length * bytes);
    }
    if (!rows_too) return;
    const int64_t row = plan_.Row(tile_begin);
    next->Add(StartOfA(member, row, k), length, call_.a.col_stride * bytes, (plan_.Row(tile_end) - row) * bytes);
  }

  // Tiles that are packed together go through all panels, a few of which are near.
  void ComputePacked(const Member& member, char* result, int64_t block, int64_t tile_begin, int64_t tile_end,
                     int64_t panel_begin, int64_t panel_end, const char* packed) {
    const int64_t length = plan_.BlockLength(block);
    char* const packed_a = static_cast<char*>(Scratch(ScratchSlot::kPackA, PackedRowsBytes(length)));
    if (packed_a == nullptr) return;
    const int64_t panels = panel_end - panel_begin;
    const int64_t near = std::clamp<int64_t>(kNearPanelBytes / WidestPanelBytes(), 1, panels);
    const int64_t together = CeilDiv(panels, CeilDiv(panels, near));
    const auto at = [&](int64_t panel) {
      const int64_t offset = plan_.PackedOffset(block, panel) - plan_.PackedOffset(block, panel_begin);
      return packed != nullptr ? packed + offset : nullptr;
    };
    for (int64_t tile = tile_begin; tile < tile_end; tile += packed_tiles_) {
      const int64_t end = std::min(tile + packed_tiles_, tile_end);
      PackTiles(member, tile, end, plan_.BlockStart(block), length, packed_a);
      for (int64_t panel = panel_begin; panel < panel_end; panel += together) {
        if (looks_ && LaunchEnds()) return;
        const int64_t next = std::min(panel_end, panel + together);
        Coming coming;
        coming.panels = at(next < panel_end ? next : panel_begin);
        ComputeChunk(member, result, block, tile, end, panel, next, at(panel), coming, packed_a);
      }
    }
  }

  // `rows_of_a`: the tiles' rows of A if they have been packed.
  void ComputeChunk(const Member& member, char* result, int64_t block, int64_t tile_begin, int64_t tile_end,
                    int64_t panel_begin, int64_t panel_end, const char* packed, Coming& next, const char* rows_of_a) {
    const int64_t k0 = plan_.BlockStart(block);
    const int64_t length = plan_.BlockLength(block);
    const int64_t together = StepElements(plan_.types.pack);
    const int64_t zero = 0;
    const void* a[16];
    void* c[16];
    MicroArgs args;
    args.a = a;
    args.c = c;
    args.b_offsets = &zero;
    args.k = length / together;
    args.odd = length % together;
    char* own_rows = nullptr;
    if (plan_.pack_a) {
      if (rows_of_a == nullptr) {
        own_rows = static_cast<char*>(Scratch(ScratchSlot::kPackA, PackedTileBytes(length)));
        if (own_rows == nullptr) return;
      }
      args.k = PackedSteps(RowsOf(plan_.types.pack), length);
      args.odd = 0;
    }
    args.accumulate = block > 0 || call_.accumulate;
    char* space = nullptr;
    if (consumed_) {
      space = static_cast<char*>(Scratch(ScratchSlot::kOutput, ConsumedBytes()));
      if (space == nullptr) return;
    }
    const int64_t packed_base = plan_.PackedOffset(block, panel_begin);
    const bool last = block == plan_.k_blocks - 1;
    PieceLook look(work_ / static_cast<double>(plan_.tiles * plan_.k_blocks * plan_.columns.panels) *
                   static_cast<double>(panel_end - panel_begin));
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      if (looks_ && look.Ends()) return;
      const int64_t row = plan_.Row(tile);
      const int64_t rows = plan_.Row(tile + 1) - row;
      const char* packed_a = own_rows;
      if (own_rows != nullptr) PackTiles(member, tile, tile + 1, k0, length, own_rows);
      if (rows_of_a != nullptr) packed_a = rows_of_a + (tile - tile_begin) * PackedTileBytes(length);
      SetA(member, row, rows, k0, packed_a, a, &args);
      const int64_t first = tile - (tile - tile_begin) % group_tiles_;
      char* to = consumed_ ? space + (row - plan_.Row(first)) * member.c_stride : member.c + row * member.c_stride;
      for (int64_t r = 0; r < rows; ++r) c[r] = to + r * member.c_stride;
      for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        const int vectors = plan_.columns.Vectors(panel);
        const int64_t column = plan_.columns.First(panel) * plan_.columns.lanes;
        args.c_offset = column * plan_.TileBytes();
        args.last_lanes = plan_.columns.LastLanes(panel);
        bool masked = false;
        if (plan_.direct_b) {
          args.b = member.b + (k0 * call_.b.row_stride + column) * element_;
          args.b_stride = call_.b.row_stride * element_;
          masked = args.last_lanes != plan_.columns.lanes;
        } else {
          args.b = packed + plan_.PackedOffset(block, panel) - packed_base;
          args.b_stride = static_cast<int64_t>(vectors) * plan_.columns.lanes * element_;
        }
        if (asks_) {
          AskAhead(next.panels + plan_.PackedOffset(block, panel) - packed_base, plan_.PanelBytes(block, panel),
                   tile - tile_begin, tile_end - tile_begin, &args);
        }
        if (asks_next_ || asks_unpacked_) next.reads.Ask(&args);
        if (fetches_c_ && block > 0)
          AskForRows(c, rows, args.c_offset, vectors * plan_.columns.lanes * plan_.TileBytes());
        plan_.set.At(rows, vectors, masked)(&args);
      }
      const bool group_ends = (tile - tile_begin) % group_tiles_ == group_tiles_ - 1 || tile + 1 == tile_end;
      if (last && group_ends)
        Finish(member, result, plan_.Row(first), plan_.Row(tile + 1), panel_begin, panel_end, space);
    }
  }

  const char* StartOfA(const Member& member, int64_t row, int64_t k) const {
    return member.a + (row * call_.a.row_stride + k * call_.a.col_stride) * plan_.types.source_bytes;
  }

  void PackTiles(const Member& member, int64_t begin, int64_t end, int64_t k0, int64_t length, char* packed) const {
    const PackKind kind = RowsOf(plan_.types.pack);
    const int64_t steps = end - begin == 1 ? length : kPackedSteps;
    for (int64_t step = 0; step < length; step += steps) {
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t row = plan_.Row(tile), rows = plan_.Row(tile + 1) - row;
        Pack(target_, kind, {StartOfA(member, row, k0 + step), call_.a.col_stride, call_.a.row_stride},
             std::min(steps, length - step), rows, rows,
             packed + (tile - begin) * PackedTileBytes(length) + PackedSteps(kind, step) * rows * element_);
      }
    }
  }

  void SetA(const Member& member, int64_t row, int64_t rows, int64_t k0, const char* packed_a, const void** a,
            MicroArgs* args) const {
    const int64_t bytes = plan_.types.source_bytes;
    const char* start = StartOfA(member, row, k0);
    if (plan_.pack_a) {
      a[0] = packed_a;
      args->a_stride = rows * element_;
    } else if (plan_.form == MicroForm::kColumns) {
      a[0] = start;
      args->a_stride = call_.a.col_stride * bytes;
    } else {
      for (int64_t r = 0; r < rows; ++r) a[r] = start + r * call_.a.row_stride * bytes;
    }
  }

  // Rows whose every K block is in: narrowed if the output is bf16 or f16, then the caller's epilogue.
  void Finish(const Member& member, char* result, int64_t row, int64_t row_end, int64_t panel_begin, int64_t panel_end,
              const char* space) const {
    const int64_t column = plan_.columns.First(panel_begin) * plan_.columns.lanes;
    const int64_t column_end = std::min(plan_.n, plan_.columns.First(panel_end) * plan_.columns.lanes);
    if (plan_.Widens()) {
      Narrow(call_.output, reinterpret_cast<const float*>(member.c) + row * plan_.n + column, plan_.n,
             result + (row * c_stride_ + column) * 2, c_stride_, row_end - row, column_end - column);
    }
    if (call_.epilogue.consume != nullptr) {
      // As an integer: the address of a row before the space is nothing to compute with pointers.
      const uintptr_t c = space != nullptr
                              ? reinterpret_cast<uintptr_t>(space) - static_cast<uintptr_t>(row * member.c_stride)
                              : reinterpret_cast<uintptr_t>(result);
      call_.epilogue.consume(call_.epilogue.context, reinterpret_cast<const void*>(c), row, row_end - row, column,
                             column_end - column);
    } else if (call_.epilogue.run != nullptr && call_.epilogue.parts == 1) {
      call_.epilogue.run(call_.epilogue.context, member.index, row, row_end - row, column, column_end - column);
    }
  }

  const CpuTarget& target_;
  const GemmCall& call_;
  const GemmPlan& plan_;
  const int64_t members_;
  Driver* const before_;
  const bool backwards_;  // through the panels of a pair
  double work_ = 0;       // operations of one member
  bool looks_ = false;    // inside a member, whether the launch ends
  int64_t c_stride_ = 0;
  int64_t element_ = 4;
  int64_t output_bytes_ = 4;
  bool consumed_ = false;
  int64_t group_tiles_ = kEpilogueTiles;
  int64_t packed_tiles_ = 1;
  bool asks_ = false;           // for panels ahead
  bool asks_unpacked_ = false;  // for what becomes panels
  bool asks_next_ = false;      // for what the next block reads in place
  bool fetches_c_ = false;      // what tiles add to
  std::atomic<bool> out_of_memory_{false};
  std::atomic<int64_t> wanted_{0};
};

const char* Refuses(const Product& product) {
  return product.registers && !product.amx ? nullptr : "no register tile serves the types, or AMX's do";
}
const char* RefusesVnni(const Product& product) {
  return IsQuads(product.types.pack) ? Refuses(product) : "the target has no dot product of bytes, or these are none";
}

absl::Status Run(const Product& product, KernelSet&, KernelSet::State& state, const Duty& duty) {
  GemmPlan own;
  if (product.plan == nullptr) WEFT_RETURN_IF_ERROR(PlanGemm(state, product.call, product.types, &own));
  Driver driver(state, product.call, product.plan != nullptr ? *product.plan : own);
  if (duty.pool != nullptr) return driver.Run(*duty.pool);
  driver.AddNeeds(duty.threads, *duty.needs);
  return absl::OkStatus();
}

int64_t PackedBytes(const Product& product) {
  const GemmPlan plan = CutGemm(product.target, product.call, product.types);
  return plan.direct_b ? 0 : plan.PackedOffset(plan.k_blocks, 0);
}
std::vector<int64_t> PackedForm(const Product& product) {
  const GemmCall& call = product.call;
  const GemmPlan plan = CutGemm(product.target, call, product.types);
  return {static_cast<int64_t>(product.types.pack),
          plan.columns.lanes,
          plan.columns.panels,
          plan.k_block,
          call.k,
          call.n,
          call.b.row_stride,
          call.b.col_stride};
}
void PackB(const Product& product, void* packed, ThreadPool& pool) {
  const GemmCall& call = product.call;
  const GemmPlan plan = CutGemm(product.target, call, product.types);
  pool.ParallelRanges(plan.columns.panels, [&](int64_t begin, int64_t end, int) {
    for (int64_t block = 0; block < plan.k_blocks; ++block) {
      Driver::PackPanels(product.target, plan, call.b, static_cast<Bytes>(call.b.data), block, 0, begin, end,
                         static_cast<char*>(packed) + plan.PackedOffset(block, 0));
    }
  });
}

}  // namespace

constinit const ProductImplementation kProductTilesVnni = {"gemm tiles vnni", RefusesVnni, Run,
                                                           PackedBytes,       PackedForm,  PackB};
constinit const ProductImplementation kProductTiles = {"gemm tiles", Refuses, Run, PackedBytes, PackedForm, PackB};

bool DealsParts(const Product& product, int64_t parts, int threads) {
  const ProductImplementation& chosen = ChooseProduct(product);
  return (&chosen == &kProductTiles || &chosen == &kProductTilesVnni) &&
         Driver::ServesParts(CutGemm(product.target, product.call, product.types), Members(product.call), parts,
                             threads);
}

absl::Status RunPair(const Product& first, const Product& second, KernelSet::State& state, ThreadPool& pool) {
  GemmPlan plan, other;
  WEFT_RETURN_IF_ERROR(PlanGemm(state, first.call, first.types, &other));
  WEFT_RETURN_IF_ERROR(PlanGemm(state, second.call, second.types, &plan));
  Driver before(state, first.call, other);
  return Driver(state, second.call, plan, &before).Run(pool);
}

}  // namespace weft::cpu
