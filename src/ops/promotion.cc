// See promotion.h.
#include "src/ops/promotion.h"

#include <algorithm>

#include "src/ops/build.h"
#include "src/ops/result_dtype.h"

namespace weft::ops {
namespace {

// u16, u32 and u64, which came to PyTorch late and without rules for integers.
bool IsLate(DType dtype) { return IsUnsigned(dtype) && BitsOf(dtype) > 8; }

DType PromotedFloats(DType a, DType b) { return BitsOf(a) == BitsOf(b) ? DType::kF32 : Wider(a, b); }

}  // namespace

std::optional<DType> Promoted(DType a, DType b) {
  if (a == b) return a;
  if (IsNarrow(a) || IsNarrow(b)) return std::nullopt;
  if (IsFloat(a) && IsFloat(b)) return PromotedFloats(a, b);
  if (IsFloat(b) || IsComplex(b)) std::swap(a, b);
  if (IsFloat(a) && !IsComplex(b)) return a;
  if (IsLate(a) || IsLate(b)) return std::nullopt;
  if (IsComplex(a) || IsComplex(b)) {
    const bool wide = PartOf(a) == DType::kF64 || PartOf(b) == DType::kF64;
    return wide ? DType::kC128 : DType::kC64;
  }
  if (IsBool(a)) return b;
  if (IsBool(b)) return a;
  return BitsOf(a) == BitsOf(b) ? DType::kI16 : Wider(a, b);  // u8 and i8
}

std::optional<DType> PromotedWithNumber(DType tensor, NumberKind number) {
  switch (number) {
    case NumberKind::kTruth: return tensor;
    case NumberKind::kInt: return IsBool(tensor) ? DType::kI64 : tensor;
    case NumberKind::kFloat: return IsFloat(tensor) || IsComplex(tensor) ? tensor : DType::kF32;
    case NumberKind::kComplex: break;
  }
  if (IsNarrow(tensor)) return std::nullopt;
  return IsComplex(tensor) ? tensor : ComplexOf(tensor);
}

void PromoteOperands(ir::Builder& b, const ir::OpDef& op, ir::Values& operands) {
  if (op.kind == ir::Kind::kPrimitive || op.operands.empty()) return;
  const auto def_of = [&](size_t i) -> const ir::OperandDef& {
    return op.operands[std::min(i, op.operands.size() - 1)];
  };
  const auto takes_part = [&](size_t i, char group) {
    return operands[i] && operands[i].type().is_tensor() && def_of(i).group == group;
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    const char group = def_of(i).group;
    if (group == 0 || !takes_part(i, group)) continue;
    std::optional<DType> common = operands[i].dtype();
    for (size_t j = 0; j < operands.size() && common; ++j) {
      if (takes_part(j, group)) common = Promoted(*common, operands[j].dtype());
    }
    if (common && *common != operands[i].dtype()) operands[i] = Convert(b, operands[i], *common);
  }
}

}  // namespace weft::ops
