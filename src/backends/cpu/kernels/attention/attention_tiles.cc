#include "src/backends/cpu/kernels/attention/attention_tiles.h"

#include <algorithm>
#include <cstring>

namespace weft::cpu {
namespace {

// Tiles, one or two, of `count` rows or columns of which those before `at` are done.
int64_t TilesAt(int64_t at, int64_t count) { return count - at > kTileSide ? 2 : 1; }

}  // namespace

void PackQueries(const char* from, int64_t row_bytes, int64_t rows, int64_t width, char* to) {
  const int64_t steps = TileStepsOf(width);
  for (int64_t r = 0; r < RoundUp(rows, kTileSide); ++r) {
    char* row = to + r / kTileSide * steps * kTileBytes + r % kTileSide * kTileRowBytes;
    for (int64_t s = 0; s < steps; ++s, row += kTileBytes) {
      const int64_t left = r < rows ? width * 2 - s * kTileRowBytes : 0;
      const char* const step = from + r * row_bytes + s * kTileRowBytes;
      if (left >= kTileRowBytes) {
        std::memcpy(row, step, kTileRowBytes);
      } else {
        std::memset(row, 0, kTileRowBytes);
        std::memcpy(row, step, static_cast<size_t>(left));
      }
    }
  }
}

void AttentionTiles::Scores(const AttentionRows& run, const char* keys) const {
  TileArgs args;
  args.steps = TileStepsOf(width);
  args.a_stride = kTileRowBytes;
  args.a_step = kTileBytes;
  args.a_below = args.b_beside = args.steps * kTileBytes;
  args.c_stride = run.stride * 4;
  for (int64_t key = 0; key < run.columns; key += kTileBlockSide) {
    args.b = keys + key / kTileSide * args.b_beside;
    for (int64_t row = 0; row < run.rows; row += kTileBlockSide) {
      if (key >= ColumnsOf(run, row)) continue;
      args.a = queries + row / kTileSide * args.a_below;
      args.c = run.scores + row * run.stride + key;
      set.block[TilesAt(row, run.rows) - 1][TilesAt(key, run.columns) - 1](&args);
    }
  }
}

void AttentionTiles::Values(const AttentionRows& run, const char* v, float* values) const {
  TileArgs args;
  args.a_stride = run.stride * 4;
  args.a_step = 2 * kTileRowBytes;
  args.a_below = kTileSide * args.a_stride;
  args.b_beside = TileStepsOf(run.columns) * kTileBytes;
  args.c_stride = run.value_stride * 4;
  for (int64_t column = 0; column < value_width; column += kTileBlockSide) {
    args.b = v + column / kTileSide * args.b_beside;
    for (int64_t row = 0; row < run.rows; row += kTileBlockSide) {
      args.steps = TileStepsOf(ColumnsOf(run, row));
      if (args.steps == 0) continue;
      args.c = values + row * run.value_stride + column;
      for (int64_t half = 0; half < 2; ++half) {
        args.a = run.scores + row * run.stride + half * kTileSide;
        args.accumulate = half > 0 || run.values != nullptr;
        set.block[TilesAt(row, run.rows) - 1][TilesAt(column, value_width) - 1](&args);
      }
    }
  }
}

}  // namespace weft::cpu
