// dot_general and convolution of StableHLO text: factors and result may be of three types.
#pragma once

#include "src/ir/stablehlo_read.h"

namespace weft::ops {

// Reads the precision that the text gives: the more exact one of two factors. HIGHEST reads as absent, which is written
// as that.
ir::AttrValue ReadPrecision(ir::StableHloOp& op);

// `product` of two factors, both of one type, with sums of the type that the text says (attribute `dtype_at`); where no product of such
// factors gives that, on types that hold both, and converted. Sums are at least as exact as those of the result's type.
ir::Values ReadProduct(ir::StableHloOp& op, const ir::OpDef& product, ir::Attrs attrs, size_t dtype_at);

}  // namespace weft::ops
