// Register tiles: the innermost loops of GEMM and convolution as generated functions. One tile computes MR rows by NV
// vectors of C; drivers (gemm.cc, conv.cc) see only the argument block below. A new instruction set or element type
// is a new way to emit a step, not a new driver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "src/backends/cpu/jit/jit.h"
#include "src/backends/cpu/kernels/kernels.h"

namespace weft::cpu {

enum class MicroType : uint8_t {
  kF32,
  kF64,
  kBF16Dot,
  kBF16Tiles,    // amx_micro.h
  kBF16Rounded,  // kBF16Dot whose C is bf16: sums are rounded as they are stored, and never accumulate
  kI32,
  kI64,     // with or without a sign: sums wrap
  kI16Dot,  // pairs of i16, summed in i32
  // Fours of bytes, summed in i32 by an instruction that multiplies bytes with a sign by bytes without one: 128 is added to A's of
  // i8 or taken from those of u8. What this makes too much is in each tap's first row of B (PackKind::kQuadsI8, kQuadsU8), with
  // which its sums begin; `k` counts the others. They wrap, so that they are exact whatever the bytes are.
  kI8Dot,
  kU8Dot,
  kI8Tiles,  // amx_micro.h: bytes of A and B, summed in i32
  kU8Tiles,
};
inline constexpr int kMicroTypes = 12;
inline bool IsIntegers(MicroType type) { return type >= MicroType::kI32; }
inline bool TakesPairs(MicroType type) {
  return type == MicroType::kBF16Dot || type == MicroType::kBF16Rounded || type == MicroType::kI16Dot;
}
inline bool TakesFours(MicroType type) { return type == MicroType::kI8Dot || type == MicroType::kU8Dot; }

// Where element (row r, step k) of A lies.
enum class MicroForm : uint8_t {
  kRows,         // a[tap * mr + r] + k: one pointer a row, unit stride along k
  kColumns,      // a[tap] + k * a_stride + r: one pointer, rows side by side (A transposed, or packed)
  kRowsStrided,  // a[tap * mr + r] + k * a_stride: both free
};
inline constexpr int kMicroForms = 3;

struct MicroSpec {
  MicroType type = MicroType::kF32;
  MicroForm form = MicroForm::kRows;
  int mr = 1;  // rows, 1 to 15
  int nv = 1;  // vectors of columns, 1 to 4
  bool masked_b =
      false;  // the last vector of B ends in memory that must not be read; packed B is padded and needs no mask
  EndingKind ending = EndingKind::kNone;  // of kF32 and kBF16Rounded

  static constexpr int kCount = 3 * kMicroTypes * kMicroForms * 16 * 4 * 2;
  int Index() const {
    const int row =
        (static_cast<int>(ending) * kMicroTypes + static_cast<int>(type)) * kMicroForms + static_cast<int>(form);
    return ((row * 16 + mr) * 4 + (nv - 1)) * 2 + masked_b;
  }
  static MicroSpec FromIndex(int index);
  std::string Symbol() const;  // "weft.tile.f32.rows.6x2": one for each index
};

// Strides and offsets are bytes. Steps are elements of K, pairs of them for kBF16Dot, kBF16Rounded and kI16Dot, fours for
// kI8Dot and kU8Dot (B holds them side by side).
struct MicroArgs {
  int64_t taps = 1;  // outer K: runs of `k` steps, each with its own pointers; at least 1
  int64_t k = 0;     // steps per tap; at least 1 unless odd
  // Elements beyond the last whole pair (1) or four (up to 3), with kRows. Those of a four are read with the bytes before them.
  int64_t odd = 0;
  const void* const* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;
  const int64_t* b_offsets = nullptr;  // [taps], added to b
  int64_t b_stride = 0;
  // A later tile reads this; it is prefetched as this one runs, so many bytes on with each step. Null: nothing is.
  const void* ahead = nullptr;
  int64_t ahead_step = 0;
  void* const* c = nullptr;  // [mr] rows of C
  int64_t c_offset = 0;      // added to every row
  // One after another, from one to the next so many bytes on in A and in C.
  int64_t tiles = 1, a_step = 0, c_step = 0;
  int64_t asks_c = 0;      // 1: each asks for the next one's rows of C
  int64_t last_lanes = 0;  // columns of the last vector that exist, 1 to lanes
  int64_t accumulate = 0;  // 0: C = sum, 1: C += sum
  // With an ending: the columns' numbers, and how far from C the results go and what is added lies.
  const float* factor = nullptr;
  const float* summand = nullptr;
  int64_t to_offset = 0, added_offset = 0;
  float least = 0, most = 0;
  int64_t denormals_vanish = 0;  // GatherCall::DenormalsVanish, of kBF16Rounded
};

inline constexpr int64_t kLine = 64;  // bytes of the caches

// Tells whether tiles prefetch what comes after the panel that they read, of a packed operand of so many bytes: a small one is in L2
// soon, and few tiles would ask for much each, while they load much themselves.
inline bool AsksAhead(int64_t bytes, int64_t tiles) { return bytes >= 192 << 10 && tiles >= 8; }
// Tile `index` of `tiles` that read the same panel asks for its share of the next one, whose first line is `next`: a burst of
// such requests, or all of them by the first tile, would hold up what tiles load themselves.
inline void AskAhead(const void* next, int64_t bytes, int64_t index, int64_t tiles, MicroArgs* args) {
  args->ahead = static_cast<const char*>(next) + bytes * index / tiles;
  args->ahead_step = bytes / (tiles * std::max<int64_t>(1, args->taps * args->k)) + 1;
}
// Asks for lines of rows that a tile is about to write or add to: from memory they take as long as the sums of few steps.
// (Inline always: g++ takes calls away that do nothing else.)
[[gnu::always_inline]] inline void AskForRows(void* const* c, int64_t rows, int64_t offset, int64_t bytes) {
  for (int64_t r = 0; r < rows; ++r) {
    const char* const row = static_cast<const char*>(c[r]) + offset;
    for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at);
  }
}
using MicroFn = void(const MicroArgs*);

// f32 lanes (or f64 lanes) of one vector of C.
int MicroLanes(const CpuTarget& target, MicroType type);
// The widest tile that registers hold, in vectors, and the most rows for a width and form.
int MicroMaxVectors(const CpuTarget& target);
int MicroMaxRows(const CpuTarget& target, MicroForm form, int nv);

// The object code of one tile, or a text of it. Symbol() names the function.
absl::StatusOr<std::string> CompileMicro(const Jit& jit, const MicroSpec& spec, Jit::Form form = Jit::Form::kObject);

}  // namespace weft::cpu
