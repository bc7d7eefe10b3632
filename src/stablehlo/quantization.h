// Quantised values: integers that stand for (integer - zero point) * scale. In the IR they are those integers; scales and zero
// points are the reader's, and what is computed becomes operations on floats between two conversions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/ir/stablehlo_read.h"
#include "src/stablehlo/syntax.h"

namespace weft::stablehlo {

// The ways in which an operation treats quantised operands and results.
enum class QuantizedUse : uint8_t {
  kRefused,
  kBits,      // integers are bits: another type may follow
  kPasses,    // values as they are, into and out of functions
  kMoves,     // elements of operands become those of results, all of one type
  kBody,      // as kMoves, and a function of scalars of that type
  kComputes,  // on dequantised operands; results are quantised
};
QuantizedUse QuantizedUseOf(std::string_view operation);

// The types of a function that an operation calls or has as a region: one for each tensor.
struct Signature {
  std::vector<TypeText> parameters, results;
};

// The types around an operation, one for each tensor: operands' as they are, results' as the text says.
struct QuantizedCall {
  std::vector<TypeText> operands, results;
  std::vector<Signature> functions;
};

// Checks that the types agree, beyond what the operation's own rule asks of integers, and returns the use, kBits where
// nothing is quantised. Asks `op` for the attributes that say where a dimension goes. A UserError.
absl::StatusOr<QuantizedUse> CheckQuantized(const QuantizedCall& call, ir::StableHloOp& op);

// Same shapes, integers, scales and zero points.
bool SameType(const TypeText& a, const TypeText& b);
// Writes a type for errors: as the text has it where that says more than the IR's type.
std::string Spell(const TypeText& type);

// The specification's formulas, of the type that x has or gets. A float has the shape and the expressed type.
ir::Type ExpressedType(const TypeText& type);
ir::Value Dequantize(ir::Builder& b, const ir::Value& x, const Quantization& of);
ir::Value Quantize(ir::Builder& b, const ir::Value& x, const Quantization& to);

}  // namespace weft::stablehlo
