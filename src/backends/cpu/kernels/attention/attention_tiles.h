// The products of a block of queries on AMX's tiles. Blocks of tiles have 32 queries; each reads the keys that one of them sees.
#pragma once

#include "src/backends/cpu/kernels/attention/attention_internal.h"
#include "src/backends/cpu/kernels/attention/attention_rows.h"
#include "src/backends/cpu/kernels/tiles/amx_set.h"

namespace weft::cpu {

// Steps of K, each of kHalvesRun numbers, that a product over so many numbers of bf16 has.
inline int64_t TileStepsOf(int64_t count) { return CeilDiv(count, kHalvesRun); }
inline int64_t PackedQueriesBytes(int64_t rows, int64_t width) {
  return CeilDiv(rows, kTileSide) * TileStepsOf(width) * kTileBytes;
}
// 16 rows after 16 rows, each with all of its steps; zeros where there is no element.
void PackQueries(const char* from, int64_t row_bytes, int64_t rows, int64_t width, char* to);

struct AttentionTiles {
  const TileSet& set;
  const char* queries = nullptr;  // packed
  int64_t width = 0, value_width = 0;

  // run.scores = queries times keys, which KernelSet::PackB has packed.
  void Scores(const AttentionRows& run, const char* keys) const;
  // values = both halves of the exponentials times v, packed likewise; onto those of earlier keys, if there are any.
  void Values(const AttentionRows& run, const char* v, float* values) const;
};

}  // namespace weft::cpu
