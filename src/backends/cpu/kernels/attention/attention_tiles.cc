// See attention_tiles.h.
#include "src/backends/cpu/kernels/attention/attention_tiles.h"

#include <algorithm>
#include <cstring>

namespace weft::cpu {
namespace {

// Tiles, one or two, of `count` rows or columns of which those before `at` are done.
int64_t TilesAt(int64_t at, int64_t count) { return count - at > kTileSide ? 2 : 1; }

// A block over `steps` steps of A, which lie kStep bytes apart. It adds to C if `accumulate`.
template <int64_t kStep>
void RunSteps(TileFn* block, TileArgs args, int64_t steps, bool accumulate) {
  args.a_steps = kTileSteps<kStep>.data();
  args.before_stride = args.c_stride;
  for (int64_t s = 0; s < steps; s += kMostTileSteps) {
    args.steps = std::min(steps - s, kMostTileSteps);
    args.before = accumulate || s > 0 ? args.c : nullptr;
    block(&args);
    args.a = static_cast<const char*>(args.a) + kMostTileSteps * kStep;
    args.b = static_cast<const char*>(args.b) + kMostTileSteps * kTileBytes;
  }
}

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
  const int64_t steps = TileStepsOf(width);
  TileArgs args;
  args.a_stride = kTileRowBytes;
  args.a_below = args.b_beside = steps * kTileBytes;
  args.c_stride = run.stride * 4;
  for (int64_t key = 0; key < run.columns; key += kTileBlockSide) {
    args.b = keys + key / kTileSide * args.b_beside;
    for (int64_t row = 0; row < run.rows; row += kTileBlockSide) {
      if (key >= ColumnsOf(run, row)) continue;
      args.a = queries + row / kTileSide * args.a_below;
      args.c = run.scores + row * run.stride + key;
      RunSteps<kTileBytes>(set.block[TilesAt(row, run.rows) - 1][TilesAt(key, run.columns) - 1], args, steps, false);
    }
  }
}

void AttentionTiles::Values(const AttentionRows& run, const char* v, float* values) const {
  TileArgs args;
  args.a_stride = run.stride * 4;
  args.a_below = kTileSide * args.a_stride;
  args.b_beside = TileStepsOf(run.columns) * kTileBytes;
  args.c_stride = run.value_stride * 4;
  for (int64_t column = 0; column < value_width; column += kTileBlockSide) {
    args.b = v + column / kTileSide * args.b_beside;
    for (int64_t row = 0; row < run.rows; row += kTileBlockSide) {
      const int64_t steps = TileStepsOf(ColumnsOf(run, row));
      if (steps == 0) continue;
      args.c = values + row * run.value_stride + column;
      for (int64_t half = 0; half < 2; ++half) {
        args.a = run.scores + row * run.stride + half * kTileSide;
        RunSteps<2 * kTileRowBytes>(set.block[TilesAt(row, run.rows) - 1][TilesAt(column, value_width) - 1], args,
                                    steps, half > 0 || run.values != nullptr);
      }
    }
  }
}

}  // namespace weft::cpu
