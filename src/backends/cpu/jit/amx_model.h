// The tile instructions of AMX-TILE, AMX-BF16 and AMX-INT8 as functions, for machines that lack them: code for the instruction set
// "amx-model" calls one where code for "amx" has an instruction. They follow the operation sections of Intel's manual (64 and
// IA-32 Architectures, volume 2) and keep eight tiles a thread. Where the processor would raise an exception, the process
// ends with a line that says why: only a wrong kernel gets there.
#pragma once

#include <cstdint>

// The memory operand of LDTILECFG.
struct WeftTileConfig {
  uint8_t palette = 0;  // 1: eight tiles of up to 16 rows of 64 bytes
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(WeftTileConfig) == 64);

extern "C" {
void weft_amx_model_loadconfig(const WeftTileConfig* config);              // ldtilecfg
void weft_amx_model_load(int32_t tile, const void* base, int64_t stride);  // tileloadd
void weft_amx_model_zero(int32_t tile);                                    // tilezero
void weft_amx_model_dp(int32_t sum, int32_t rows, int32_t pairs);          // tdpbf16ps
// A's bytes have a sign in the first two, B's in the first and the third.
void weft_amx_model_dpbssd(int32_t sum, int32_t rows, int32_t fours);  // tdpbssd
void weft_amx_model_dpbsud(int32_t sum, int32_t rows, int32_t fours);  // tdpbsud
void weft_amx_model_dpbusd(int32_t sum, int32_t rows, int32_t fours);  // tdpbusd
void weft_amx_model_dpbuud(int32_t sum, int32_t rows, int32_t fours);  // tdpbuud
void weft_amx_model_store(int32_t tile, void* base, int64_t stride);   // tilestored
void weft_amx_model_release();                                         // tilerelease
}
