// Matrix products of bf16 and of bytes on AMX's tiles. The driver knows how C is cut, what stays in which cache and who computes what; where
// A and B come from (a matrix in either order, the pixels of a convolution) say the operands, which pack them.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "src/backends/cpu/kernels/tiles/amx_micro.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

// Tells whether products of these types run on tiles.
inline bool AmxServes(const CpuTarget& target, DType input, DType output) {
  if (target.tiles == TileUnit::kNone) return false;
  if (input == DType::kBF16) return output == DType::kBF16 || output == DType::kF32;
  return (input == DType::kI8 || input == DType::kU8) && output == DType::kI32;
}

// The elements of so many bytes that a step of K has, and those that a word has, which B holds side by side.
inline int64_t TileK(int64_t element) { return kTileRowBytes / element; }
inline int64_t TileWord(int64_t element) { return 4 / element; }
inline int64_t TileSteps(int64_t k, int64_t element) { return CeilDiv(k, TileK(element)); }
// B as tiles: 16 columns after 16 columns, each with all of K.
inline int64_t TilePackedBytes(int64_t k, int64_t n, int64_t element) {
  return CeilDiv(n, kTileSide) * TileSteps(k, element) * kTileBytes;
}

// Both write whole tiles, zeros where there is no element: garbage times zero may be NaN.
class TileOperands {
 public:
  virtual ~TileOperands() = default;
  // Rows [row, row + rows) of A, at most 32, and elements [k0, k0 + length) of K: step after step, each with its one or two tiles.
  virtual void PackA(int64_t row, int64_t rows, int64_t k0, int64_t length, char* out) const = 0;
  // Columns [column, column + columns) of B, at most 16, likewise; k0 is a multiple of a step.
  virtual void PackB(int64_t column, int64_t columns, int64_t k0, int64_t length, char* out) const = 0;
  // The rows of C of rows [row, row + rows) of A, where `scattered`; -1: that one is none of C's.
  virtual void ResultRows(int64_t row, int64_t rows, int64_t* to) const {}
};

struct TileProduct {
  const TileOperands* operands = nullptr;
  int64_t m = 0, n = 0, k = 0;
  bool a_in_place = false;  // tiles read A's rows where they are, `a_stride` bytes apart
  const char* a = nullptr;
  int64_t a_stride = 0;
  // Where they are if whole steps of K do not lie one after another: bytes from a row's beginning on. Then rows of a member, whole
  // blocks of them, begin so many bytes after those of the one before, and any of them may be read.
  const int64_t* a_steps = nullptr;
  int64_t member_rows = 0, member_bytes = 0;
  bool b_packed = false;
  const char* b = nullptr;  // where b_packed
  DType input = DType::kBF16, output = DType::kF32;
  char* c = nullptr;
  int64_t c_stride = 0;  // elements
  bool scattered = false;
  bool accumulate = false;  // into f32, not scattered
  Epilogue epilogue;
  int64_t member = 0;   // for the epilogue
  int64_t column0 = 0;  // likewise, of C's first column

  int64_t element() const { return BytesOf(input); }  // of A and B, in bytes
};

// Tells whether tiles had better read rows of A where they are. Rows this far apart share so few sets of L1 that it
// does not keep 32 of them: then A is copied, unless it is passed over twice at most.
inline bool ReadsInPlace(int64_t stride_bytes, int64_t n) {
  constexpr int64_t kCrowded = 2048;
  return stride_bytes % kCrowded != 0 || n <= 2 * kTileBlockSide;
}

// Copies and transpositions that operands are made of, of elements of so many bytes. `source` has K along `step`; lanes are rows of A.
void PackTileRows(const CpuTarget& target, int64_t element, const PackSource& source, int64_t rows, int64_t length,
                  char* out);
// Lanes are columns of B.
void PackTileColumns(const CpuTarget& target, int64_t element, const PackSource& source, int64_t columns,
                     int64_t length, char* out);

// Runs the product on duty's pool, or adds what that will ask for. `dealt`: inside a share of a region that deals out
// members; duty then has a pool of one thread.
absl::Status RunTiles(KernelSet::State& state, const TileProduct& product, const Duty& duty, bool dealt = false);

// Those of very long K, which RunTiles hands on (amx_long.cc).
bool IsLong(const TileProduct& product);
absl::Status RunLong(KernelSet::State& state, const TileProduct& product, const Duty& duty, bool dealt);

}  // namespace weft::cpu
