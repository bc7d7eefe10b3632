// See amx_driver.h. C is cut into blocks of 32 x 32, K into blocks that fit L2 with what they meet: the sums of a block of C stay in
// tiles for one of them, and leave, if it is the last, through a buffer of a block, from which the next block rounds them. B streams
// through L1, in which 32 rows of A stay where K is short. Sums of one block of C go through the same steps of K in the
// same order whoever computes it, so bits do not depend on threads.
#include "src/backends/cpu/kernels/product/amx_driver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "src/backends/cpu/kernels/tiles/amx_set.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// Steps of K in a block, at most, of A's rows that lie apart and of others.
constexpr int64_t kMostSteps = 160;
constexpr int64_t kBlockSteps = kMostTileSteps;
// Bytes of 32 packed rows of A that stay in L1 while B streams through it.
constexpr int64_t kNearBytes = 32 << 10;
// Bytes of B, a chunk of columns, that stay in L2 while a group of rows of A passes, and of A that do while chunks pass.
constexpr int64_t kChunkBytes = 256 << 10;
constexpr int64_t kGroupBytes = 768 << 10;
// B's columns that are packed together, at most, and the same where sums of several blocks of K wait in space of their own.
constexpr int64_t kPackedBytes = 8 << 20;
constexpr int64_t kWideColumns = 1024;
// Blocks of rows in a group where sums wait there, at most.
constexpr int64_t kWideBlocks = 16;
// Below this many operations the join of two threads is not repaid.
constexpr double kInlineWork = 1'000'000;

// The rows of C of a block of rows: their numbers, -1 for none, and where they lie; those that are none are another one there.
struct Rows32 {
  int64_t row_block = -1;
  int64_t count = 0;  // of numbers
  int64_t number[kTileBlockSide];
  TileRow rows[kTileBlockSide];
  bool any = false;

  void Set(const TileProduct& product, int64_t block);
};
void Rows32::Set(const TileProduct& product, int64_t block) {
  const int64_t first = block * kTileBlockSide, row_bytes = product.c_stride * BytesOf(product.output);
  row_block = block;
  count = std::min(kTileBlockSide, product.m - first);
  any = false;
  for (int64_t i = 0; i < count; ++i) number[i] = first + i;
  if (product.scattered) product.operands->ResultRows(first, count, number);
  TileRow some;
  for (int64_t i = 0; i < kTileBlockSide; ++i) {
    if (i < count && number[i] >= 0) {
      some = {i * kTileBlockSide * 4, product.c + number[i] * row_bytes};
      if (!any) std::fill_n(rows, i, some);
      any = true;
    }
    rows[i] = some;
  }
}

// A share's memory, and what it has not done yet.
struct Space {
  char* a = nullptr;
  float* wide = nullptr;
  int64_t group = 0, tile = 0;  // the first block of rows and tile of columns that `wide` has
  alignas(64) float sums[2][kTileBlockSide * kTileBlockSide];
  // The next block leaves its sums in one of the two; the other may still have to be rounded, to these places.
  int next = 0;
  const float* owed = nullptr;
  const Rows32* owed_to = nullptr;
  int64_t owed_offset = 0;
  // The rows of this block and of the block before it.
  Rows32 rows[2];
  int at = 0;
  // Rows and tiles of columns whose epilogue waits; null where none does.
  const Rows32* finished = nullptr;
  Range finished_tiles;
};

// The caller's epilogue of results that are there, if one waits: of rows of C that follow each other at once.
void Finish(const TileProduct& product, Space& space) {
  if (space.finished == nullptr) return;
  const Rows32& rows = *space.finished;
  space.finished = nullptr;
  const Epilogue& epilogue = product.epilogue;
  if (epilogue.consume == nullptr && epilogue.run == nullptr) return;
  const int64_t column = space.finished_tiles.begin * kTileSide;
  const int64_t columns = std::min(product.n, space.finished_tiles.end * kTileSide) - column;
  for (int64_t i = 0, end = 0; i < rows.count; i = end) {
    end = i + 1;
    if (rows.number[i] < 0) continue;
    while (end < rows.count && rows.number[end] == rows.number[i] + end - i) ++end;
    if (epilogue.consume != nullptr) {
      epilogue.consume(epilogue.context, product.c, rows.number[i], end - i, product.column0 + column, columns);
    } else {
      epilogue.run(epilogue.context, product.member, rows.number[i], end - i, product.column0 + column, columns);
    }
  }
}

class Driver {
 public:
  Driver(const TileSet& set, const TileProduct& product, bool dealt)
      : set_(set), p_(product), dealt_(dealt), element_(product.element()), tile_k_(TileK(element_)) {
    const int64_t k_blocks =
        std::max<int64_t>(1, CeilDiv(Steps(p_.k), p_.a_steps != nullptr ? kMostSteps : kBlockSteps));
    k_block_ = std::max<int64_t>(1, CeilDiv(CeilDiv(p_.k, k_blocks), tile_k_)) * tile_k_;
    k_blocks_ = std::max<int64_t>(1, CeilDiv(p_.k, k_block_));
    column_bytes_ = std::max<int64_t>(1, Steps(p_.k)) * kTileBytes;
    narrow_ = BytesOf(p_.output) != 4;
    wide_ = k_blocks_ > 1 && (narrow_ || p_.scattered);
    row_blocks_ = CeilDiv(p_.m, kTileBlockSide);
    const int64_t block_bytes = p_.a_steps != nullptr ? kTileBlockSide * p_.a_stride : PackedBlockBytes();
    group_ = std::clamp<int64_t>(kGroupBytes / block_bytes, 1, wide_ ? kWideBlocks : row_blocks_ + 1);
    const int64_t tiles = CeilDiv(p_.n, kTileSide);
    super_ = std::max<int64_t>(2, kPackedBytes / column_bytes_ / 2 * 2);
    super_ = std::min({super_, tiles, wide_ ? kWideColumns / kTileSide : tiles});
    chunk_ = std::max<int64_t>(2, kChunkBytes / (Steps(k_block_) * kTileBytes) / 2 * 2);
  }

  // Tells whether 32 rows of A leave L1 before the next columns need them. Rows in place are loaded as usual, whatever they are:
  // past L1 that took a quarter longer.
  bool AStreams() const { return !p_.a_in_place && PackedBlockBytes() > kNearBytes; }

  void AddNeeds(ScratchNeeds& needs) const {
    if (!p_.b_packed) {
      if (dealt_) {
        needs.Each(ScratchSlot::kPackB, super_ * column_bytes_);
      } else {
        needs.Once(ScratchSlot::kShared, super_ * column_bytes_);
      }
    }
    needs.Each(ScratchSlot::kPackA, PackedABytes());
    if (wide_) needs.Each(ScratchSlot::kOutput, WideBytes());
  }

  absl::Status Run(ThreadPool& pool) {
    const int64_t tiles = CeilDiv(p_.n, kTileSide);
    const double work = 2.0 * static_cast<double>(p_.m) * static_cast<double>(p_.n) * static_cast<double>(p_.k + 8);
    const int threads = dealt_ || work < kInlineWork ? 1 : pool.threads();
    for (int64_t first = 0; first < tiles && !LaunchEnds(); first += super_) {
      const int64_t end = std::min(tiles, first + super_);
      const char* b = nullptr;
      if (p_.b_packed) {
        b = p_.b + first * column_bytes_;
      } else {
        char* space =
            static_cast<char*>(Scratch(dealt_ ? ScratchSlot::kPackB : ScratchSlot::kShared, super_ * column_bytes_));
        if (space == nullptr) break;
        Deal(pool, threads, end - first,
             [&](int64_t from, int64_t to) { PackColumns(first + from, first + to, space + from * column_bytes_); });
        b = space;
      }
      const int64_t pairs = CeilDiv(end - first, 2);
      const double by_rows = Balance(row_blocks_, threads), by_columns = Balance(pairs, threads);
      // Threads share what they do not read all of: better the larger one, but that A is collected by each of them.
      if (threads == 1 || by_rows >= by_columns + (p_.n >= 2 * p_.m ? 0.02 : -0.02)) {
        Deal(pool, threads, row_blocks_, [&](int64_t from, int64_t to) { Compute(from, to, first, end, first, b); });
      } else {
        Deal(pool, threads, pairs, [&](int64_t from, int64_t to) {
          Compute(0, row_blocks_, first + 2 * from, std::min(end, first + 2 * to), first, b);
        });
      }
    }
    return out_of_memory_.load(std::memory_order_relaxed) ? OutOfScratch("a matrix product's packed blocks", wanted_)
                                                          : absl::OkStatus();
  }

 private:
  template <typename Share>
  static void Deal(ThreadPool& pool, int threads, int64_t count, Share share) {
    if (threads == 1) return share(0, count);
    pool.ParallelRanges(count, [&](int64_t begin, int64_t end, int) { share(begin, end); });
  }
  static double Balance(int64_t items, int threads) {
    return static_cast<double>(items) / static_cast<double>(CeilDiv(items, threads) * threads);
  }

  int64_t Steps(int64_t k) const { return TileSteps(k, element_); }
  int64_t BlockStart(int64_t block) const { return block * k_block_; }
  int64_t BlockLength(int64_t block) const { return std::min(k_block_, p_.k - BlockStart(block)); }
  int64_t Rows(int64_t row_block) const { return std::min(kTileBlockSide, p_.m - row_block * kTileBlockSide); }
  bool InPlace(int64_t row_block) const { return p_.a_in_place && Rows(row_block) % kTileSide == 0; }

  // The packed bytes of 32 rows and one block of K.
  int64_t PackedBlockBytes() const { return 2 * Steps(k_block_) * kTileBytes; }
  // Where A is read in place: one block whose rows fill no tile, and the last elements of K of another.
  int64_t PackedABytes() const {
    return p_.a_in_place ? PackedBlockBytes() + 2 * kTileBytes : std::min(group_, row_blocks_) * PackedBlockBytes();
  }
  // Rows of the f32 space: an odd number of lines apart, so that a tile's fall into different sets of the cache.
  int64_t WideStride() const { return (super_ + 1) / 2 * 2 * kTileSide + kTileSide; }
  int64_t WideBytes() const { return std::min(group_, row_blocks_) * kTileBlockSide * WideStride() * 4; }

  void* Scratch(ScratchSlot slot, int64_t bytes) {
    void* memory = ThreadScratch(slot, bytes);
    if (memory == nullptr) {
      wanted_.store(bytes, std::memory_order_relaxed);
      out_of_memory_.store(true, std::memory_order_relaxed);
    }
    return memory;
  }

  // Block of K after block, so that B's rows are in cache for all of their columns.
  void PackColumns(int64_t tile, int64_t tile_end, char* out) const {
    for (int64_t block = 0; block < k_blocks_; ++block) {
      for (int64_t t = tile; t < tile_end; ++t) {
        p_.operands->PackB(t * kTileSide, std::min(kTileSide, p_.n - t * kTileSide), BlockStart(block),
                           BlockLength(block),
                           out + (t - tile) * column_bytes_ + BlockStart(block) / tile_k_ * kTileBytes);
      }
    }
  }

  // Blocks of rows by columns (in tiles). `b` is where the tile `base` of columns begins.
  void Compute(int64_t row_begin, int64_t row_end, int64_t tile_begin, int64_t tile_end, int64_t base, const char* b) {
    const TileScope scope(set_);
    Space space;
    space.a = static_cast<char*>(Scratch(ScratchSlot::kPackA, PackedABytes()));
    if (wide_) space.wide = static_cast<float*>(Scratch(ScratchSlot::kOutput, WideBytes()));
    if (space.a == nullptr || (wide_ && space.wide == nullptr)) return;
    for (int64_t group = row_begin; group < row_end; group += group_) {
      const int64_t group_end = std::min(row_end, group + group_);
      space.group = group;
      space.tile = tile_begin;
      for (int64_t block = 0; block < k_blocks_; ++block) {
        for (int64_t r = group; r < group_end; ++r) {
          if (!InPlace(r))
            p_.operands->PackA(r * kTileBlockSide, Rows(r), BlockStart(block), BlockLength(block), PackedA(space, r));
        }
        for (int64_t chunk = tile_begin; chunk < tile_end; chunk += chunk_) {
          if (LaunchEnds()) return;
          const int64_t chunk_end = std::min(tile_end, chunk + chunk_);
          for (int64_t r = group; r < group_end; ++r) {
            OneRowBlock(space, r, block, {chunk, chunk_end}, b + (chunk - base) * column_bytes_);
          }
        }
      }
    }
    if (space.owed == nullptr) return;
    for (const TileRow& row : space.owed_to->rows) {
      Narrow(p_.output, reinterpret_cast<const float*>(reinterpret_cast<const char*>(space.owed) + row.from), 0,
             row.to + space.owed_offset, 0, 1, kTileBlockSide);
    }
    Finish(p_, space);
  }

  // A block that is not in place; only the last one can be such a block where others are.
  char* PackedA(const Space& space, int64_t row_block) const {
    return space.a + (p_.a_in_place ? 0 : (row_block - space.group) * PackedBlockBytes());
  }
  char* Tail(const Space& space) const { return space.a + PackedBlockBytes(); }
  float* Wide(const Space& space, int64_t row_block, int64_t tile) const {
    return space.wide + (row_block - space.group) * kTileBlockSide * WideStride() + (tile - space.tile) * kTileSide;
  }

  // Finds the places that the rows of a block go to.
  const Rows32& RowsOf(Space& space, int64_t r) const {
    if (space.rows[space.at].row_block != r) space.rows[space.at ^= 1].Set(p_, r);
    return space.rows[space.at];
  }

  const char* RowInPlace(int64_t row) const {
    if (p_.a_steps == nullptr) return p_.a + row * p_.a_stride;
    return p_.a + row / p_.member_rows * p_.member_bytes + row % p_.member_rows * p_.a_stride;
  }

  // One block of K for 32 rows and a chunk of columns. `b` is where the chunk begins.
  void OneRowBlock(Space& space, int64_t r, int64_t block, Range tiles, const char* b) const {
    const int64_t length = BlockLength(block), row_tiles = CeilDiv(Rows(r), kTileSide);
    TileArgs args[2];  // the second for what K has beyond steps that are read in place
    int calls = 1;
    if (InPlace(r)) {
      const char* const a = RowInPlace(r * kTileBlockSide);
      args[0] = {length / tile_k_, a, p_.a_stride, p_.a_steps, kTileSide * p_.a_stride};
      if (p_.a_steps != nullptr) {
        args[0].a_steps += BlockStart(block) / tile_k_;
      } else {
        args[0].a_steps = kTileSteps<kTileRowBytes>.data();
        args[0].a = a + BlockStart(block) * element_;
      }
      if (length % tile_k_ != 0) {
        const int64_t whole = args[0].steps * tile_k_;
        p_.operands->PackA(r * kTileBlockSide, Rows(r), BlockStart(block) + whole, length - whole, Tail(space));
        args[calls++] = {1, Tail(space), kTileRowBytes, kTileSteps<kTileRowBytes>.data(), kTileBytes};
        if (args[0].steps == 0) args[0] = args[--calls];
      }
    } else {
      args[0] = {Steps(length), PackedA(space, r), kTileRowBytes,
                 row_tiles == 1 ? kTileSteps<kTileBytes>.data() : kTileSteps<2 * kTileBytes>.data(), kTileBytes};
    }
    for (int64_t tile = tiles.begin; tile < tiles.end; tile += 2) {
      const int64_t columns = std::min<int64_t>(2, tiles.end - tile);
      const char* from = b + (tile - tiles.begin) * column_bytes_ + BlockStart(block) / tile_k_ * kTileBytes;
      for (int i = 0; i < calls; ++i) {
        args[i].b = from + (i == 0 ? 0 : args[0].steps * kTileBytes);
        args[i].b_beside = column_bytes_;
      }
      OneBlock(space, r, {tile, tile + columns}, block, {args, static_cast<size_t>(calls)},
               set_.block[row_tiles - 1][columns - 1]);
    }
    if (block + 1 < k_blocks_) return;
    space.finished = &RowsOf(space, r);
    space.finished_tiles = tiles;
    if (space.owed == nullptr) Finish(p_, space);
  }

  // The calls of a block of rows and of these tiles of columns, one after the other.
  void OneBlock(Space& space, int64_t r, Range tiles, int64_t block, std::span<TileArgs> calls, TileFn* fn) const {
    const int64_t rows = Rows(r), columns = std::min(tiles.size() * kTileSide, p_.n - tiles.begin * kTileSide);
    float* const buffer = space.sums[space.next];
    float* c = buffer;
    int64_t stride = kTileBlockSide;
    TileArgs& first = calls.front();
    first.before = nullptr;
    if (wide_) {
      float* const wide = Wide(space, r, tiles.begin);
      if (block > 0) first.before = wide;
      first.before_stride = WideStride() * 4;
      if (block + 1 < k_blocks_) {
        c = wide;
        stride = WideStride();
      }
    } else if (!narrow_ && !p_.scattered) {
      const bool adds = block > 0 || p_.accumulate;
      float* const result = reinterpret_cast<float*>(p_.c) + r * kTileBlockSide * p_.c_stride + tiles.begin * kTileSide;
      if (rows % kTileSide == 0 && columns % kTileSide == 0) {
        c = result;
        stride = p_.c_stride;
      } else if (adds) {
        for (int64_t i = 0; i < rows; ++i) std::memcpy(buffer + i * stride, result + i * p_.c_stride, columns * 4);
      }
      if (adds) first.before = c;
      first.before_stride = stride * 4;
    }
    first.sums = space.owed;
    if (space.owed != nullptr) first.rows = space.owed_to->rows;
    first.rows_offset = space.owed_offset;
    for (TileArgs& args : calls) {
      args.c = c;
      args.c_stride = stride * 4;
      if (&args != &first) {
        args.before = c;
        args.before_stride = args.c_stride;
      }
      fn(&args);
    }
    if (space.owed != nullptr) Finish(p_, space);
    space.owed = nullptr;
    if (c == buffer) Leave(space, RowsOf(space, r), tiles.begin * kTileSide, columns);
  }

  // The sums in the buffer to where they belong in their type; those of 32 columns of bf16 are left to be rounded as the next block
  // runs.
  void Leave(Space& space, const Rows32& rows, int64_t column, int64_t columns) const {
    const float* const sums = space.sums[space.next];
    const int64_t offset = column * BytesOf(p_.output);
    if (!rows.any) return;
    if (narrow_ && columns == kTileBlockSide) {
      space.owed = sums;
      space.owed_to = &rows;
      space.owed_offset = offset;
      space.next ^= 1;
      return;
    }
    for (int64_t i = 0; i < rows.count; ++i) {
      if (rows.number[i] < 0) continue;
      const float* const from = sums + i * kTileBlockSide;
      narrow_ ? Narrow(p_.output, from, 0, rows.rows[i].to + offset, 0, 1, columns)
              : static_cast<void>(std::memcpy(rows.rows[i].to + offset, from, columns * 4));
    }
  }

  const TileSet& set_;
  const TileProduct& p_;
  const bool dealt_;
  const int64_t element_, tile_k_;      // bytes of an element of A or B, and elements of a step
  int64_t k_block_ = 0, k_blocks_ = 1;  // elements; a multiple of a step
  int64_t column_bytes_ = 0;            // of 16 packed columns
  int64_t row_blocks_ = 0;
  int64_t super_ = 2, chunk_ = 2;  // tiles of columns
  int64_t group_ = 1;              // blocks of rows
  bool narrow_ = false;            // results are of two bytes
  bool wide_ = false;              // sums of several blocks of K wait in f32 space
  std::atomic<bool> out_of_memory_{false};
  std::atomic<int64_t> wanted_{0};
};

}  // namespace

absl::Status RunTiles(KernelSet::State& state, const TileProduct& product, const Duty& duty, bool dealt) {
  if (IsLong(product)) return RunLong(state, product, duty, dealt);
  TileSet set;
  Driver driver(set, product, dealt);
  WEFT_ASSIGN_OR_RETURN(set, FetchTiles(state, product.input, driver.AStreams()));
  if (duty.pool != nullptr) return driver.Run(*duty.pool);
  driver.AddNeeds(*duty.needs);
  return absl::OkStatus();
}

}  // namespace weft::cpu
