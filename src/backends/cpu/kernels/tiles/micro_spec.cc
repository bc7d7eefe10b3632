// Numbers, names and sizes of register tiles, without the code that emits them. See micro.h.
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/kernels/tiles/micro.h"

namespace weft::cpu {

MicroSpec MicroSpec::FromIndex(int index) {
  MicroSpec spec;
  spec.masked_b = index % 2 != 0;
  spec.nv = index / 2 % 4 + 1;
  spec.mr = index / 8 % 16;
  spec.form = static_cast<MicroForm>(index / 128 % kMicroForms);
  spec.type = static_cast<MicroType>(index / 128 / kMicroForms % kMicroTypes);
  spec.ending = static_cast<EndingKind>(index / 128 / kMicroForms / kMicroTypes);
  return spec;
}

std::string MicroSpec::Symbol() const {
  static constexpr std::string_view kTypes[] = {"f32",        "f64",      "bf16_pairs", "bf16_tiles",
                                                "bf16_ended", "i32",      "i64",        "i16_pairs",
                                                "i8_quads",   "u8_quads", "i8_tiles",   "u8_tiles"};
  static constexpr std::string_view kForms[] = {"rows", "columns", "strided"};
  static constexpr std::string_view kEndings[] = {"", ".affine", ".affine_add"};
  static_assert(std::size(kTypes) == kMicroTypes && std::size(kForms) == kMicroForms);
  return absl::StrCat("weft.tile.", kTypes[static_cast<size_t>(type)], ".", kForms[static_cast<size_t>(form)], ".", mr,
                      "x", nv, masked_b ? ".masked" : "", kEndings[static_cast<size_t>(ending)]);
}

int MicroLanes(const CpuTarget& target, MicroType type) {
  return target.vector_bytes / (type == MicroType::kF64 || type == MicroType::kI64 ? 8 : 4);
}

int MicroMaxVectors(const CpuTarget& target) { return target.vector_registers >= 32 ? 4 : 2; }

int MicroMaxRows(const CpuTarget& target, MicroForm form, int nv) {
  // One register for the broadcast of A; without fused multiply-add one more for the product.
  const int free = target.vector_registers - nv - (target.has_fma ? 1 : 2);
  int rows = free / nv;
  // Eight row pointers are what general registers hold beside the counters; with one pointer, code size decides.
  rows = std::min(rows, form == MicroForm::kColumns ? 12 : 8);
  if (nv >= 3) rows = std::min(rows, 24 / nv);
  return rows;
}

}  // namespace weft::cpu
