// Which instructions the CPU backend may emit. One CpuTarget is chosen per device at start-up and is part of every
// cache key: machine code made for one target is never loaded by another. Knows nothing of LLVM.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weft::cpu {

// Code paths with their own instruction selection. One path gives the same bits for any number of threads; two
// paths agree within an operation's tolerance.
enum class Isa : uint8_t {
  kPortable,  // any x86-64: 128-bit SSE2, no fused multiply-add
  kAvx2,      // 256-bit AVX2 with FMA
  kAvx512,    // 512-bit, x86-64-v4 (F, BW, CD, DQ, VL)
  kAmx,       // kAvx512, and products of bf16 on AMX's tiles
  kAmxModel,  // the widest of the first three, and kAmx's products with a model in the place of the tiles: for tests
};
inline constexpr Isa kEveryIsa[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx, Isa::kAmxModel};

std::string_view NameOf(Isa isa);

// The unit that multiplies tiles (16 rows of 64 bytes).
enum class TileUnit : uint8_t {
  kNone,
  kAmx,    // the processor: AMX-TILE and AMX-BF16
  kModel,  // jit/amx_model.h
};

// A complete description of the machine that code is made for.
struct CpuTarget {
  Isa isa = Isa::kPortable;  // of vectors: one of the first three, whatever multiplies tiles
  TileUnit tiles = TileUnit::kNone;
  int vector_bytes = 16;      // width that kernels are written for: 16, 32 or 64
  bool has_fma = false;       // fused multiply-add; without it products round before they are added
  bool has_bf16_dot = false;  // AVX512_BF16 (vdpbf16ps); without it bf16 is widened while packing
  bool has_byte_dot = false;  // AVX512_VNNI or AVX_VNNI (vpdpbusd); without it bytes are widened while packing
  std::string cpu;            // LLVM's target-cpu
  std::string features;       // LLVM's target-features, "+avx512f,+…", sorted, complete
  int vector_registers = 16;

  // The target's name as TargetFromName reads it.
  std::string_view name() const;
  int VectorBits() const { return vector_bytes * 8; }
  // Names everything above that changes machine code; goes into cache keys.
  std::string Fingerprint() const;
};

// The best path that this machine runs; never the model.
Isa BestIsa();
// The widest of the first three.
Isa BestVectors();
// Asking for kAmx the first time asks the kernel for tiles, for all threads of this process (Linux keeps 8 KiB more of state
// for those that use them). It may refuse.
bool IsSupported(Isa isa);

// The target for `isa` with all extras of this machine (AVX512_BF16 and others). FAILED_PRECONDITION if this machine
// cannot run it.
absl::StatusOr<CpuTarget> TargetFor(Isa isa);
// Parses "amx", "avx512", "avx2", "portable", "amx-model" or "auto" (an option of the device).
absl::StatusOr<CpuTarget> TargetFromName(std::string_view name);

}  // namespace weft::cpu
