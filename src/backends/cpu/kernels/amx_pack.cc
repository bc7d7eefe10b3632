// Operands of tiles from matrices: rows of A as they are or through a transposition, columns of B in pairs of K.
#include <algorithm>
#include <cstring>

#include "src/backends/cpu/kernels/amx_driver.h"

namespace weft::cpu {
namespace {

constexpr int64_t kPairs = kTileK / 2;  // of a tile
constexpr int64_t kMostPairs = 256;     // of a block of K

// words[r][c] = words[c][r], 16 x 16.
void Transpose(const CpuTarget& target, const uint32_t* from, uint32_t* to) {
  if (target.isa == Isa::kAvx512) return Transpose16Avx512(from, kTileSide, to, kTileSide);
  for (int r = 0; r < kTileSide; ++r) {
    for (int c = 0; c < kTileSide; ++c) to[r * kTileSide + c] = from[c * kTileSide + r];
  }
}

// A row of A whose K is contiguous.
void CopyRow(const char* from, int64_t length, int64_t step_bytes, char* to) {
  int64_t k = 0;
  for (; k + kTileK <= length; k += kTileK, to += step_bytes) std::memcpy(to, from + k * 2, kTileK * 2);
  if (k == length) return;
  std::memcpy(to, from + k * 2, (length - k) * 2);
  std::memset(to + (length - k) * 2, 0, (kTileK - (length - k)) * 2);
}

}  // namespace

void PackTileRows(const CpuTarget& target, const PackSource& source, int64_t rows, int64_t length, char* out) {
  const int64_t tiles = CeilDiv(rows, kTileSide), steps = TileSteps(length);
  const char* data = static_cast<const char*>(source.data);
  if (source.step_stride == 1) {
    for (int64_t r = 0; r < tiles * kTileSide; ++r) {
      char* to = out + r / kTileSide * kTileBytes + r % kTileSide * 64;
      if (r < rows) {
        CopyRow(data + r * source.lane_stride * 2, length, tiles * kTileBytes, to);
      } else {
        for (int64_t s = 0; s < steps; ++s) std::memset(to + s * tiles * kTileBytes, 0, 64);
      }
    }
    return;
  }
  alignas(64) uint32_t pairs[kMostPairs * kTileSide];  // [pair of K][row]
  for (int64_t k = 0; k < length; k += 2 * kMostPairs) {
    const int64_t part = std::min(2 * kMostPairs, length - k);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = k * source.step_stride + t * kTileSide * source.lane_stride;
      PackTileColumns(target, {data + first * 2, source.step_stride, source.lane_stride},
                      std::min(kTileSide, rows - t * kTileSide), part, reinterpret_cast<char*>(pairs));
      for (int64_t s = 0; s < TileSteps(part); ++s) {
        Transpose(target, pairs + s * kPairs * kTileSide,
                  reinterpret_cast<uint32_t*>(out + ((k / kTileK + s) * tiles + t) * kTileBytes));
      }
    }
  }
}

void PackTileColumns(const CpuTarget& target, const PackSource& source, int64_t columns, int64_t length, char* out) {
  Pack(target, PackKind::kPairs, source, length, columns, kTileSide, out);
  const int64_t written = CeilDiv(length, 2) * 64;
  std::memset(out + written, 0, TileSteps(length) * kTileBytes - written);
}

}  // namespace weft::cpu
