// The innermost loop of products of bf16 and of bytes on AMX's tiles as generated functions: up to 2 x 2 tiles of C (32 x 32 sums
// in f32 or i32), for which each step of 64 bytes of K loads four tiles and multiplies four times. They are members of the table of
// register tiles (MicroSpec; kBF16Tiles, kI8Tiles, kU8Tiles), so they are compiled, kept and cached as those are; drivers (amx_driver.cc) see only the
// argument block below.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "src/backends/cpu/jit/jit.h"
#include "src/backends/cpu/kernels/tiles/micro.h"

namespace weft::cpu {

inline constexpr int64_t kTileSide = 16;      // rows of a tile, and columns of f32 or i32
inline constexpr int64_t kTileRowBytes = 64;  // of A: a step of K
inline constexpr int64_t kTileBytes = kTileSide * kTileRowBytes;
inline constexpr int64_t kTileBlockSide = 2 * kTileSide;  // of C in registers

// A row of sums, so many bytes from where they begin, and where it goes.
struct TileRow {
  int64_t from = 0;
  char* to = nullptr;
};

// Strides are bytes. A's tiles hold 16 rows of 32 elements of bf16 or 64 bytes, B's 16 pairs or fours of K by 16 columns.
struct TileArgs {
  int64_t steps = 0;  // of kTileRowBytes, at least 1
  const void* a = nullptr;
  int64_t a_stride = 0;              // between rows
  const int64_t* a_steps = nullptr;  // where each step lies, from `a` on
  int64_t a_below = 0;               // from the upper tile to the lower one
  const void* b = nullptr;           // tiles are kTileBytes one after another along K, without gaps between rows
  int64_t b_beside = 0;              // from the left tile to the right one
  const void* before = nullptr;      // what sums begin with, of C's shape; null: zeros. It may be C
  int64_t before_stride = 0;
  void* c = nullptr;
  int64_t c_stride = 0;
  // Sums of an earlier block, rows of kTileBlockSide side by side, as many of which (kTileBlockSide, too) are rounded to bf16 between
  // this one's products, where that takes no time of its own, and written so far from where each of them goes. Null: none.
  const void* sums = nullptr;
  const TileRow* rows = nullptr;
  int64_t rows_offset = 0;
};
using TileFn = void(const TileArgs*);

// Tells whether a type is one of tiles.
inline bool IsTiles(MicroType type) {
  return type == MicroType::kBF16Tiles || type == MicroType::kI8Tiles || type == MicroType::kU8Tiles;
}
// Names the block of such a type with `rows` by `columns` tiles, each 1 or 2. B streams through L1, and A as well if it does not stay
// there from one block of columns to the next.
MicroSpec TileBlock(MicroType type, int rows, int columns, bool a_streams = false);
// Configures the calling thread's tiles (void()), which it must do before it calls a block, and releases them: a thread with
// tiles has 8 KiB more state to be saved whenever it is interrupted.
MicroSpec TileBegin();
MicroSpec TileEnd();

// CompileMicro for these.
absl::StatusOr<std::string> CompileTiles(const Jit& jit, const MicroSpec& spec, Jit::Form form);

}  // namespace weft::cpu
