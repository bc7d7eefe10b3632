// See amx_model.h.
#include "src/backends/cpu/jit/amx_model.h"

#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

struct Tiles {
  WeftTileConfig config;
  uint8_t data[kTiles][kRows][kRowBytes];
};
thread_local Tiles tiles;

[[noreturn]] void Fault(const char* instruction, const char* why) {
  std::fprintf(stderr, "weft: %s, where AMX would raise an exception: %s\n", instruction, why);
  std::abort();
}

// Only configured tiles are named.
void Check(const char* instruction, int32_t tile) {
  if (tiles.config.palette != 1) Fault(instruction, "no tiles are configured");
  if (tile < 0 || tile >= kTiles) Fault(instruction, "no such tile");
  if (tiles.config.rows[tile] == 0 || tiles.config.row_bytes[tile] == 0) Fault(instruction, "the tile is empty");
}

// Denormals are zeros on the way in and on the way out, whatever MXCSR says; the sign stays.
[[gnu::always_inline]] inline float Flush(float value) {
  return std::fabs(value) < FLT_MIN ? std::copysign(0.0f, value) : value;
}

[[gnu::always_inline]] inline float Widen(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return Flush(value);
}

// Tiny is what is below FLT_MIN when rounded to 24 bits with any exponent, so a result of FLT_MIN may be flushed, too. The
// double's sum is exact where that matters: a product has 16 bits.
[[gnu::always_inline]] inline float MultiplyAdd(float a, float b, float sum) {
  const float result = __builtin_fmaf(a, b, Flush(sum));
  if (std::fabs(result) != FLT_MIN) return Flush(result);
  const double exact = static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(Flush(sum));
  return std::fabs(exact) < FLT_MIN * (1 - 0x1p-25) ? std::copysign(0.0f, result) : result;
}

// Sums of floats below 2 * FLT_MIN are exact.
[[gnu::always_inline]] inline float Add(float a, float b) { return Flush(Flush(a) + Flush(b)); }

[[gnu::always_inline]] inline void Dot(int32_t sum, int32_t rows, int32_t pairs) {
  const WeftTileConfig& config = tiles.config;
  const int words = config.row_bytes[rows] / 4, columns = config.row_bytes[sum] / 4;
  for (int m = 0; m < config.rows[sum]; ++m) {
    // Even and odd elements of K have sums of their own, from zero; the two are added, then to the tile.
    float sums[kRowBytes / 4][2] = {};
    for (int k = 0; k < words; ++k) {
      uint16_t a[2], b[kRowBytes / 4][2];
      std::memcpy(a, tiles.data[rows][m] + 4 * k, sizeof(a));
      std::memcpy(b, tiles.data[pairs][k], sizeof(b));
      const float even = Widen(a[0]), odd = Widen(a[1]);
      for (int n = 0; n < columns; ++n) {
        sums[n][0] = MultiplyAdd(even, Widen(b[n][0]), sums[n][0]);
        sums[n][1] = MultiplyAdd(odd, Widen(b[n][1]), sums[n][1]);
      }
    }
    float row[kRowBytes / 4];
    std::memcpy(row, tiles.data[sum][m], sizeof(row));
    for (int n = 0; n < columns; ++n) row[n] = Add(row[n], Add(sums[n][0], sums[n][1]));
    std::memcpy(tiles.data[sum][m], row, sizeof(row));
  }
}

// 8,192 multiply-adds a tile: through the C library they take two and a half times as long.
[[gnu::target("fma")]] void DotFma(int32_t sum, int32_t rows, int32_t pairs) { Dot(sum, rows, pairs); }
void DotLibm(int32_t sum, int32_t rows, int32_t pairs) { Dot(sum, rows, pairs); }

// B holds fours: word n of row k is elements 4k to 4k + 3 of column n. Sums wrap.
template <typename A, typename B>
void DotBytes(int32_t sum, int32_t rows, int32_t fours) {
  const WeftTileConfig& config = tiles.config;
  const int words = config.row_bytes[rows] / 4, columns = config.row_bytes[sum] / 4;
  for (int m = 0; m < config.rows[sum]; ++m) {
    uint32_t row[kRowBytes / 4];
    std::memcpy(row, tiles.data[sum][m], sizeof(row));
    for (int k = 0; k < words; ++k) {
      A a[4];
      B b[kRowBytes / 4][4];
      std::memcpy(a, tiles.data[rows][m] + 4 * k, sizeof(a));
      std::memcpy(b, tiles.data[fours][k], sizeof(b));
      for (int n = 0; n < columns; ++n) {
        for (int i = 0; i < 4; ++i) row[n] += static_cast<uint32_t>(int32_t{a[i]} * int32_t{b[n][i]});
      }
    }
    std::memcpy(tiles.data[sum][m], row, sizeof(row));
  }
}

// The operands of a product are three tiles that fit each other.
void CheckProduct(const char* instruction, int32_t sum, int32_t rows, int32_t columns) {
  for (const int32_t tile : {sum, rows, columns}) Check(instruction, tile);
  if (sum == rows || sum == columns || rows == columns) Fault(instruction, "two of its tiles are one");
  const WeftTileConfig& config = tiles.config;
  if (config.rows[sum] != config.rows[rows] || config.row_bytes[sum] != config.row_bytes[columns] ||
      config.rows[columns] != config.row_bytes[rows] / 4 || config.row_bytes[rows] % 4 != 0 ||
      config.row_bytes[sum] % 4 != 0) {
    Fault(instruction, "the tiles do not fit each other");
  }
}

template <typename A, typename B>
void CheckedDotBytes(const char* instruction, int32_t sum, int32_t rows, int32_t fours) {
  CheckProduct(instruction, sum, rows, fours);
  DotBytes<A, B>(sum, rows, fours);
}

}  // namespace

extern "C" {

void weft_amx_model_loadconfig(const WeftTileConfig* config) {
  if (config->palette != 1 || config->start_row != 0) Fault("ldtilecfg", "a palette that kernels are not written for");
  for (const uint8_t byte : config->reserved) {
    if (byte != 0) Fault("ldtilecfg", "a reserved byte is not zero");
  }
  for (int t = 0; t < 16; ++t) {
    const bool used = config->rows[t] != 0 || config->row_bytes[t] != 0;
    if (t >= kTiles && used) Fault("ldtilecfg", "more than eight tiles");
    if (config->rows[t] > kRows || config->row_bytes[t] > kRowBytes) Fault("ldtilecfg", "a tile is too large");
    if ((config->rows[t] == 0) != (config->row_bytes[t] == 0))
      Fault("ldtilecfg", "rows without bytes or bytes without rows");
  }
  tiles.config = *config;
  std::memset(tiles.data, 0, sizeof(tiles.data));
}

void weft_amx_model_load(int32_t tile, const void* base, int64_t stride) {
  Check("tileloadd", tile);
  std::memset(tiles.data[tile], 0, sizeof(tiles.data[tile]));
  for (int r = 0; r < tiles.config.rows[tile]; ++r) {
    std::memcpy(tiles.data[tile][r], static_cast<const char*>(base) + r * stride, tiles.config.row_bytes[tile]);
  }
}

void weft_amx_model_zero(int32_t tile) {
  Check("tilezero", tile);
  std::memset(tiles.data[tile], 0, sizeof(tiles.data[tile]));
}

void weft_amx_model_dp(int32_t sum, int32_t rows, int32_t pairs) {
  CheckProduct("tdpbf16ps", sum, rows, pairs);
  static const bool has_fma = __builtin_cpu_supports("fma") != 0;
  (has_fma ? &DotFma : &DotLibm)(sum, rows, pairs);
}

void weft_amx_model_dpbssd(int32_t sum, int32_t rows, int32_t fours) {
  CheckedDotBytes<int8_t, int8_t>("tdpbssd", sum, rows, fours);
}
void weft_amx_model_dpbsud(int32_t sum, int32_t rows, int32_t fours) {
  CheckedDotBytes<int8_t, uint8_t>("tdpbsud", sum, rows, fours);
}
void weft_amx_model_dpbusd(int32_t sum, int32_t rows, int32_t fours) {
  CheckedDotBytes<uint8_t, int8_t>("tdpbusd", sum, rows, fours);
}
void weft_amx_model_dpbuud(int32_t sum, int32_t rows, int32_t fours) {
  CheckedDotBytes<uint8_t, uint8_t>("tdpbuud", sum, rows, fours);
}

void weft_amx_model_store(int32_t tile, void* base, int64_t stride) {
  Check("tilestored", tile);
  for (int r = 0; r < tiles.config.rows[tile]; ++r) {
    std::memcpy(static_cast<char*>(base) + r * stride, tiles.data[tile][r], tiles.config.row_bytes[tile]);
  }
}

void weft_amx_model_release() { tiles.config = {}; }

}  // extern "C"
