// dot_general and convolution of StableHLO text: factors and result may be of three types.
#pragma once

#include "src/ir/stablehlo_read.h"

namespace weft::ops {

// What the text says of the precision: of two factors the more exact. HIGHEST reads as absent, which is written as that.
ir::AttrValue ReadPrecision(ir::StableHloOp& op);

// `product` of two factors, on types that it has (both factors of one, sums of halves kept in f32 where attribute
// `dtype_at` says so), converted to what the text says. Sums are at least as exact as those of the result's type.
ir::Values ReadProduct(ir::StableHloOp& op, const ir::OpDef& product, ir::Attrs attrs, size_t dtype_at);

}  // namespace weft::ops
