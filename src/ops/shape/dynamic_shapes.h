// StableHLO's operations of run-time shapes and amounts share these. The type of their result must be known all the
// same.
#pragma once

#include <optional>

#include "src/ops/families.h"

namespace weft::ops {

inline constexpr ir::OperandDef kDynamicX = {"x", ir::kEveryType, "operand"};
// A vector of integers.
constexpr ir::OperandDef Amounts(std::string_view name, std::string_view doc) {
  return {.name = name, .types = ir::kI, .doc = doc, .group = 'I'};
}
inline constexpr ir::OperandDef kShapeOperand =
    Amounts("output_shape", "[rank of the result]; the type of the result says it too");
inline constexpr ir::AttrDef kShapeAttr = {"shape", ir::AttrType::kInts, "result shape", true};

// No entry is negative, which stands for a size that is not known.
absl::Status CheckStaticShape(const ir::Ints& shape);
// Operands from the first on are vectors of `rank` entries.
absl::Status CheckAmounts(const ir::InferCall& call, size_t first, size_t rank);

// The numbers of a literal; absent for what is computed.
std::optional<ir::Ints> KnownAmounts(const ir::Value& amounts);
// Entry i at every place of a vector, as i64.
ir::Value Along(ir::Builder& b, const ir::Value& amounts, int64_t i, int64_t count);

// pad by integer vectors, one entry a dimension; of computed ones high follows from the shape.
ir::Value DynamicPad(ir::Builder& b, const ir::Value& x, const ir::Value& value, const ir::Value& low,
                     const ir::Value& high, const ir::Value& interior, const Dims& shape);

}  // namespace weft::ops
