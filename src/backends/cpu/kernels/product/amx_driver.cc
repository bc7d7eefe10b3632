// See amx_driver.h. C is cut into blocks of 32 x 32, K into blocks of at most a kilobyte: 32 rows of A (32 KiB) stay
// in L1 while a chunk of B's columns (512 KiB in L2) passes. Sums of one block of C go through the same blocks of K in the
// same order whoever computes it, so bits do not depend on threads.
#include "src/backends/cpu/kernels/product/amx_driver.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "src/backends/cpu/kernels/tiles/amx_set.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kBlockBytes = 1024;
constexpr int64_t kChunkBytes = 512 << 10;
// B's columns that are packed together, at most, and the same where C passes through space of its own.
constexpr int64_t kPackedBytes = 8 << 20;
constexpr int64_t kWideColumns = 1024;
// Rows whose packed A (512 KiB a block of K) and space for sums stay in L2 while the chunks of B pass.
constexpr int64_t kGroupBlocks = 16;
// Below this many operations the join of two threads is not repaid.
constexpr double kInlineWork = 1'000'000;

class Driver {
 public:
  Driver(const TileSet& set, const TileProduct& product, bool dealt)
      : set_(set), p_(product), dealt_(dealt), element_(product.element()), tile_k_(TileK(element_)) {
    const int64_t k_blocks = std::max<int64_t>(1, CeilDiv(p_.k * element_, kBlockBytes));
    k_block_ = std::max<int64_t>(1, CeilDiv(CeilDiv(p_.k, k_blocks), tile_k_)) * tile_k_;
    k_blocks_ = std::max<int64_t>(1, CeilDiv(p_.k, k_block_));
    column_bytes_ = std::max<int64_t>(1, Steps(p_.k)) * kTileBytes;
    wide_ = BytesOf(p_.output) != 4 || p_.scattered || p_.k == 0;
    row_blocks_ = CeilDiv(p_.m, kTileBlockSide);
    const int64_t tiles = CeilDiv(p_.n, kTileSide);
    super_ = std::max<int64_t>(2, kPackedBytes / column_bytes_ / 2 * 2);
    super_ = std::min({super_, tiles, wide_ ? kWideColumns / kTileSide : tiles});
    chunk_ = std::max<int64_t>(2, kChunkBytes / (Steps(k_block_) * kTileBytes) / 2 * 2);
  }

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
      if (threads == 1 || Balance(row_blocks_, threads) >= Balance(pairs, threads) - 0.02) {
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
    return p_.a_in_place ? PackedBlockBytes() + 2 * kTileBytes
                         : std::min(kGroupBlocks, row_blocks_) * PackedBlockBytes();
  }
  // Rows of the f32 space: an odd number of lines apart, so that a tile's fall into different sets of the cache.
  int64_t WideStride() const { return (super_ + 1) / 2 * 2 * kTileSide + kTileSide; }
  int64_t WideBytes() const { return std::min(kGroupBlocks, row_blocks_) * kTileBlockSide * WideStride() * 4; }

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
    for (int64_t group = row_begin; group < row_end; group += kGroupBlocks) {
      const int64_t group_end = std::min(row_end, group + kGroupBlocks);
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
            OneRowBlock(space, r, block, chunk, chunk_end, b + (chunk - base) * column_bytes_);
            if (block + 1 == k_blocks_) Finish(space, r, chunk, chunk_end);
          }
        }
      }
    }
  }

  struct Space {
    char* a = nullptr;
    float* wide = nullptr;
    int64_t group = 0, tile = 0;  // the first block of rows and tile of columns that `wide` has
  };
  // A block that is not in place; only the last one can be such a block where others are.
  char* PackedA(const Space& space, int64_t row_block) const {
    return space.a + (p_.a_in_place ? 0 : (row_block - space.group) * PackedBlockBytes());
  }
  char* Tail(const Space& space) const { return space.a + PackedBlockBytes(); }
  float* Wide(const Space& space, int64_t row_block, int64_t tile) const {
    return space.wide + (row_block - space.group) * kTileBlockSide * WideStride() + (tile - space.tile) * kTileSide;
  }

  // One block of K for 32 rows and a chunk of columns. `b` is where the chunk begins.
  void OneRowBlock(const Space& space, int64_t r, int64_t block, int64_t tile_begin, int64_t tile_end,
                   const char* b) const {
    const int64_t rows = Rows(r), length = BlockLength(block);
    const int64_t row_tiles = CeilDiv(rows, kTileSide);
    if (p_.k == 0) {
      for (int64_t i = 0; i < rows; ++i) {
        std::memset(Wide(space, r, tile_begin) + i * WideStride(), 0, (tile_end - tile_begin) * kTileSide * 4);
      }
      return;
    }
    TileArgs args[2];  // the second for what K has beyond steps that are read in place
    int calls = 1;
    if (InPlace(r)) {
      args[0] = {length / tile_k_, p_.a + r * kTileBlockSide * p_.a_stride + BlockStart(block) * element_, p_.a_stride,
                 kTileRowBytes, kTileSide * p_.a_stride};
      if (length % tile_k_ != 0) {
        const int64_t whole = args[0].steps * tile_k_;
        p_.operands->PackA(r * kTileBlockSide, rows, BlockStart(block) + whole, length - whole, Tail(space));
        args[calls++] = {1, Tail(space), kTileRowBytes, 0, kTileBytes};
        if (args[0].steps == 0) args[0] = args[--calls];
      }
    } else {
      args[0] = {Steps(length), PackedA(space, r), kTileRowBytes, row_tiles * kTileBytes, kTileBytes};
    }
    for (int64_t tile = tile_begin; tile < tile_end; tile += 2) {
      const int64_t columns = std::min<int64_t>(2, tile_end - tile);
      const char* from = b + (tile - tile_begin) * column_bytes_ + BlockStart(block) / tile_k_ * kTileBytes;
      for (int i = 0; i < calls; ++i) {
        args[i].b = from + (i == 0 ? 0 : args[0].steps * kTileBytes);
        args[i].b_beside = column_bytes_;
      }
      OneBlock(space, r, {tile, tile + columns}, block > 0 || p_.accumulate, {args, static_cast<size_t>(calls)},
               set_.block[row_tiles - 1][columns - 1]);
    }
  }

  // The calls of a block of rows and of these tiles of columns, one after the other.
  void OneBlock(const Space& space, int64_t r, Range tiles, bool accumulate, std::span<TileArgs> calls,
                TileFn* fn) const {
    const int64_t tile = tiles.begin, rows = Rows(r);
    const int64_t columns = std::min(tiles.size() * kTileSide, p_.n - tile * kTileSide);
    float* c = nullptr;
    int64_t stride = WideStride();
    alignas(64) float edge[kTileBlockSide * kTileBlockSide];
    float* const result =
        wide_ ? nullptr : reinterpret_cast<float*>(p_.c) + r * kTileBlockSide * p_.c_stride + tile * kTileSide;
    const bool whole = rows % kTileSide == 0 && columns % kTileSide == 0;
    if (wide_) {
      c = Wide(space, r, tile);
    } else if (whole) {
      c = result;
      stride = p_.c_stride;
    } else {
      c = edge;
      stride = kTileBlockSide;
      if (accumulate) {
        std::memset(edge, 0, sizeof(edge));
        for (int64_t i = 0; i < rows; ++i) std::memcpy(edge + i * stride, result + i * p_.c_stride, columns * 4);
      }
    }
    for (TileArgs& args : calls) {
      args.c = c;
      args.c_stride = stride * 4;
      args.accumulate = accumulate || &args != calls.data();
      fn(&args);
    }
    if (c != edge) return;
    for (int64_t i = 0; i < rows; ++i) std::memcpy(result + i * p_.c_stride, edge + i * stride, columns * 4);
  }

  // Sums that have all of K: to where they belong in their type, then the caller's epilogue.
  void Finish(const Space& space, int64_t r, int64_t tile, int64_t tile_end) const {
    const int64_t row = r * kTileBlockSide, rows = Rows(r);
    const int64_t column = tile * kTileSide, columns = std::min(p_.n, tile_end * kTileSide) - column;
    if (wide_) {
      const float* from = Wide(space, r, tile);
      const int64_t at_once = p_.scattered ? 1 : rows;
      for (int64_t i = 0; i < rows; i += at_once) {
        const int64_t to = p_.operands->ResultRow(row + i) * p_.c_stride + column;
        if (BytesOf(p_.output) == 4) {
          for (int64_t j = i; j < i + at_once; ++j) {
            std::memcpy(p_.c + (to + (j - i) * p_.c_stride) * 4, from + j * WideStride(), columns * 4);
          }
        } else {
          Narrow(p_.output, from + i * WideStride(), WideStride(), p_.c + to * 2, p_.c_stride, at_once, columns);
        }
      }
    }
    if (p_.epilogue.consume != nullptr) {
      p_.epilogue.consume(p_.epilogue.context, p_.c, row, rows, p_.column0 + column, columns);
    } else if (p_.epilogue.run != nullptr) {
      const int64_t at_once = p_.scattered ? 1 : rows;
      for (int64_t i = 0; i < rows; i += at_once) {
        p_.epilogue.run(p_.epilogue.context, p_.member, p_.operands->ResultRow(row + i), at_once, p_.column0 + column,
                        columns);
      }
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
  bool wide_ = false;
  std::atomic<bool> out_of_memory_{false};
  std::atomic<int64_t> wanted_{0};
};

}  // namespace

absl::Status RunTiles(KernelSet::State& state, const TileProduct& product, const Duty& duty, bool dealt) {
  if (IsLong(product)) return RunLong(state, product, duty, dealt);
  WEFT_ASSIGN_OR_RETURN(const TileSet set, FetchTiles(state, product.input));
  Driver driver(set, product, dealt);
  if (duty.pool != nullptr) return driver.Run(*duty.pool);
  driver.AddNeeds(*duty.needs);
  return absl::OkStatus();
}

}  // namespace weft::cpu
