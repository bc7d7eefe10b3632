// Run-time detection by CPUID. The operating system's consent to wide registers (XCR0) is checked as well as the
// processor's own bits, because a hypervisor may offer one without the other.
#include "src/backends/cpu/jit/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

struct HostBits {
  bool avx2 = false, fma = false, bmi = false, f16c = false, movbe = false, lzcnt = false;
  bool avx512_v4 = false, avx512_bf16 = false, avx512_fp16 = false, avx512_vnni = false, avx512_vbmi = false;
  bool avx512_vbmi2 = false, avx512_bitalg = false, avx512_vpopcntdq = false, avx512_ifma = false, gfni = false;
  bool avx_vnni = false;
  bool amx = false;  // tiles of 16 rows of 64 bytes, and products of bf16 and of bytes
};

bool Bit(unsigned word, int index) { return ((word >> index) & 1) != 0; }

// XCR0 by its encoding, so that this file needs no -mxsave.
unsigned ReadXcr0() {
  unsigned low = 0, high = 0;
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Palette 1 has eight tiles of 16 rows of 64 bytes: what kernels are written for.
bool TilesAsExpected() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(0x1D, 1, &a, &b, &c, &d) && (b & 0xFFFF) == 64 && (b >> 16) >= 8 && (c & 0xFFFF) == 16;
}

// Tiles are the one part of the state that Linux (5.16 and later) grants on demand. Threads that start later inherit it.
bool AskForTiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // the bit of XCR0
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
bool TilesGranted() {
  static const bool granted = AskForTiles();
  return granted;
}

HostBits Detect() {
  HostBits bits;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return bits;
  const bool osxsave = Bit(c, 27);
  if (!osxsave || !Bit(c, 28)) return bits;
  const unsigned xcr0 = ReadXcr0();
  if ((xcr0 & 0x6) != 0x6) return bits;
  bits.fma = Bit(c, 12);
  bits.movbe = Bit(c, 22);
  bits.f16c = Bit(c, 29);
  unsigned a7 = 0, b7 = 0, c7 = 0, d7 = 0;
  if (!__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7)) return bits;
  bits.avx2 = Bit(b7, 5);
  unsigned a71 = 0, b71 = 0, c71 = 0, d71 = 0;
  if (__get_cpuid_count(7, 1, &a71, &b71, &c71, &d71)) bits.avx_vnni = bits.avx2 && Bit(a71, 4);
  bits.bmi = Bit(b7, 3) && Bit(b7, 8);
  unsigned ae = 0, be = 0, ce = 0, de = 0;
  if (__get_cpuid(0x80000001u, &ae, &be, &ce, &de)) bits.lzcnt = Bit(ce, 5);
  if ((xcr0 & 0xE6) != 0xE6) return bits;
  bits.avx512_v4 = bits.avx2 && bits.fma && bits.bmi && bits.f16c && bits.movbe && bits.lzcnt && Bit(b7, 16) &&
                   Bit(b7, 17) && Bit(b7, 28) && Bit(b7, 30) && Bit(b7, 31);
  bits.avx512_ifma = Bit(b7, 21);
  bits.avx512_vbmi = Bit(c7, 1);
  bits.avx512_vbmi2 = Bit(c7, 6);
  bits.gfni = Bit(c7, 8);
  bits.avx512_vnni = Bit(c7, 11);
  bits.avx512_bitalg = Bit(c7, 12);
  bits.avx512_vpopcntdq = Bit(c7, 14);
  bits.avx512_fp16 = Bit(d7, 23);
  bits.avx512_bf16 = Bit(a71, 5);
  // AMX-BF16, AMX-TILE and AMX-INT8, which no processor has apart, and the system's consent to tile configuration and data.
  bits.amx = bits.avx512_v4 && Bit(d7, 22) && Bit(d7, 24) && Bit(d7, 25) && Bit(xcr0, 17) && Bit(xcr0, 18) &&
             TilesAsExpected();
  return bits;
}

const HostBits& Host() {
  static const HostBits bits = Detect();
  return bits;
}

}  // namespace

std::string_view NameOf(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAmx: return "amx";
    case Isa::kAmxModel: return "amx-model";
  }
  return "unknown";
}

std::string_view CpuTarget::name() const {
  if (tiles == TileUnit::kNone) return NameOf(isa);
  return NameOf(tiles == TileUnit::kAmx ? Isa::kAmx : Isa::kAmxModel);
}

std::string CpuTarget::Fingerprint() const { return absl::StrCat(name(), ";", cpu, ";", features); }

bool IsSupported(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return true;
    case Isa::kAvx2: return Host().avx2 && Host().fma && Host().bmi && Host().f16c && Host().movbe && Host().lzcnt;
    case Isa::kAvx512: return Host().avx512_v4;
    case Isa::kAmx: return Host().amx && TilesGranted();
    case Isa::kAmxModel: return true;
  }
  return false;
}

Isa BestVectors() {
  if (IsSupported(Isa::kAvx512)) return Isa::kAvx512;
  return IsSupported(Isa::kAvx2) ? Isa::kAvx2 : Isa::kPortable;
}

Isa BestIsa() { return IsSupported(Isa::kAmx) ? Isa::kAmx : BestVectors(); }

absl::StatusOr<CpuTarget> TargetFor(Isa isa) {
  if (!IsSupported(isa)) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "this processor cannot run the instruction set '",
                       NameOf(isa), "'; the best that it runs is '", NameOf(BestIsa()), "'");
  }
  CpuTarget target;
  if (isa == Isa::kAmx || isa == Isa::kAmxModel) {
    WEFT_ASSIGN_OR_RETURN(target, TargetFor(isa == Isa::kAmx ? Isa::kAvx512 : BestVectors()));
    target.tiles = isa == Isa::kAmx ? TileUnit::kAmx : TileUnit::kModel;
    if (isa == Isa::kAmx) {
      target.features =
          absl::StrCat("+amx-bf16,+amx-int8,+amx-tile", target.features.empty() ? "" : ",", target.features);
    }
    return target;
  }
  target.isa = isa;
  switch (isa) {
    case Isa::kPortable:
      target.cpu = "x86-64";
      target.features = "";
      break;
    case Isa::kAvx2:
      target.cpu = "x86-64-v3";
      target.has_byte_dot = Host().avx_vnni;
      if (target.has_byte_dot) target.features = "+avxvnni";
      target.vector_bytes = 32;
      target.has_fma = true;
      break;
    case Isa::kAvx512: {
      target.cpu = "x86-64-v4";
      target.vector_bytes = 64;
      target.vector_registers = 32;
      target.has_fma = true;
      const HostBits& host = Host();
      const struct {
        bool present;
        const char* name;
      } extras[] = {{host.avx512_bf16, "avx512bf16"},
                    {host.avx512_bitalg, "avx512bitalg"},
                    {host.avx512_fp16, "avx512fp16"},
                    {host.avx512_ifma, "avx512ifma"},
                    {host.avx512_vbmi, "avx512vbmi"},
                    {host.avx512_vbmi2, "avx512vbmi2"},
                    {host.avx512_vnni, "avx512vnni"},
                    {host.avx512_vpopcntdq, "avx512vpopcntdq"},
                    {host.gfni, "gfni"}};
      for (const auto& extra : extras) {
        if (extra.present) absl::StrAppend(&target.features, target.features.empty() ? "+" : ",+", extra.name);
      }
      target.has_bf16_dot = host.avx512_bf16;
      target.has_byte_dot = host.avx512_vnni;
      break;
    }
    case Isa::kAmx:
    case Isa::kAmxModel: break;
  }
  return target;
}

absl::StatusOr<CpuTarget> TargetFromName(std::string_view name) {
  if (name.empty() || name == "auto") return TargetFor(BestIsa());
  for (Isa isa : kEveryIsa) {
    if (name == NameOf(isa)) return TargetFor(isa);
  }
  return UserError("unknown instruction set '", name, "'; expected auto, amx, avx512, avx2, portable or amx-model");
}

}  // namespace weft::cpu
