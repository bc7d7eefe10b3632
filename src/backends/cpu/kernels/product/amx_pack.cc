// Operands of tiles from matrices: rows of A as they are or through a transposition, columns of B in pairs or fours of K.
#include <algorithm>
#include <cstring>

#include "src/backends/cpu/kernels/product/amx_driver.h"

namespace weft::cpu {
namespace {

constexpr int64_t kWords = kTileRowBytes / 4;  // of a row of a tile: pairs or fours
constexpr int64_t kMostWords = 256;            // of a block of K

// words[r][c] = words[c][r], 16 x 16.
void Transpose(const CpuTarget& target, const uint32_t* from, uint32_t* to) {
  if (target.isa == Isa::kAvx512) return Transpose16Avx512(from, kTileSide, to, kTileSide);
  for (int r = 0; r < kTileSide; ++r) {
    for (int c = 0; c < kTileSide; ++c) to[r * kTileSide + c] = from[c * kTileSide + r];
  }
}

// A row of A whose K is contiguous.
void CopyRow(const char* from, int64_t bytes, int64_t step_bytes, char* to) {
  for (; bytes >= kTileRowBytes; bytes -= kTileRowBytes, from += kTileRowBytes, to += step_bytes) {
    std::memcpy(to, from, kTileRowBytes);
  }
  if (bytes == 0) return;
  std::memcpy(to, from, bytes);
  std::memset(to + bytes, 0, kTileRowBytes - bytes);
}

}  // namespace

void PackTileRows(const CpuTarget& target, int64_t element, const PackSource& source, int64_t rows, int64_t length,
                  char* out) {
  const int64_t tiles = CeilDiv(rows, kTileSide), steps = TileSteps(length, element);
  const char* data = static_cast<const char*>(source.data);
  if (source.step_stride == 1) {
    for (int64_t r = 0; r < tiles * kTileSide; ++r) {
      char* to = out + r / kTileSide * kTileBytes + r % kTileSide * kTileRowBytes;
      if (r < rows) {
        CopyRow(data + r * source.lane_stride * element, length * element, tiles * kTileBytes, to);
      } else {
        for (int64_t s = 0; s < steps; ++s) std::memset(to + s * tiles * kTileBytes, 0, kTileRowBytes);
      }
    }
    return;
  }
  alignas(64) uint32_t words[kMostWords * kTileSide];  // [word of K][row]
  const int64_t most = kMostWords * TileWord(element);
  for (int64_t k = 0; k < length; k += most) {
    const int64_t part = std::min(most, length - k);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = k * source.step_stride + t * kTileSide * source.lane_stride;
      PackTileColumns(target, element, {data + first * element, source.step_stride, source.lane_stride},
                      std::min(kTileSide, rows - t * kTileSide), part, reinterpret_cast<char*>(words));
      for (int64_t s = 0; s < TileSteps(part, element); ++s) {
        Transpose(target, words + s * kWords * kTileSide,
                  reinterpret_cast<uint32_t*>(out + ((k / TileK(element) + s) * tiles + t) * kTileBytes));
      }
    }
  }
}

void PackTileColumns(const CpuTarget& target, int64_t element, const PackSource& source, int64_t columns,
                     int64_t length, char* out) {
  Pack(target, element == 1 ? PackKind::kQuads : PackKind::kPairs, source, length, columns, kTileSide, out);
  const int64_t written = CeilDiv(length, TileWord(element)) * kTileSide * 4;
  std::memset(out + written, 0, TileSteps(length, element) * kTileBytes - written);
}

}  // namespace weft::cpu
