// How exact a product is on devices that round the factors of f32 when they may (TPUs to bf16, GPUs to tf32).
#pragma once

#include "src/ir/op_def.h"

namespace weft::ops {

// StableHLO's names, the most exact first.
inline constexpr std::string_view kPrecisions[] = {"HIGHEST", "HIGH", "DEFAULT"};
inline constexpr ir::AttrDef kPrecisionAttr = {
    .name = "precision",
    .type = ir::AttrType::kEnum,
    .doc =
        "of f32 on devices that may round the factors; absent: the option matmul_precision, which is HIGHEST unless set",
    .enumerators = kPrecisions};

// Returns the name for StableHloWriter::PrecisionConfig: empty where the product says nothing.
inline std::string_view PrecisionOf(const ir::Attrs& attrs, size_t at) {
  return attrs.has(at) ? kPrecisions[attrs.Int(at)] : std::string_view();
}

}  // namespace weft::ops
