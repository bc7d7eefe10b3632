// See product_read.h.
#include "src/ops/linalg/product_read.h"

#include <algorithm>

#include "src/ops/build.h"
#include "src/ops/linalg/precision.h"
#include "src/ops/result_dtype.h"

namespace weft::ops {
namespace {

// The type that holds what both do, as far as products of them ask for it.
DType Common(DType x, DType y) {
  if (x == y) return x;
  if (IsComplex(x) || IsComplex(y)) {
    const bool wide = PartOf(x) == DType::kF64 || PartOf(y) == DType::kF64;
    return wide ? DType::kC128 : DType::kC64;
  }
  if (IsFloat(x) != IsFloat(y)) return IsFloat(x) ? x : y;
  if (IsHalf(x) && IsHalf(y)) return DType::kF32;
  return BitsOf(x) >= BitsOf(y) ? x : y;
}

}  // namespace

ir::AttrValue ReadPrecision(ir::StableHloOp& op) {
  const ir::ShloAttr* const said = op.Find("precision_config");
  if (said == nullptr || said->list.empty()) return {};
  auto exact = static_cast<int64_t>(std::size(kPrecisions));
  for (const ir::ShloAttr& factor : said->list) {
    const int64_t at = std::ranges::find(kPrecisions, factor.string) - std::begin(kPrecisions);
    if (at == std::ssize(kPrecisions)) {
      op.b.Fail(UserError("precision '", factor.string, "' is not one of HIGHEST, HIGH and DEFAULT"));
      return {};
    }
    exact = std::min(exact, at);
  }
  if (exact == 0) return {};
  return exact;
}

ir::Values ReadProduct(ir::StableHloOp& op, const ir::OpDef& product, ir::Attrs attrs, size_t dtype_at) {
  if (op.operands.size() != 2 || op.results.size() != 1) {
    op.b.Fail(UserError(op.operands.size(), " operands and ", op.results.size(), " results; 2 and 1 are expected"));
    return {};
  }
  const DType result = op.results[0].dtype;
  DType factor = Common(op.operands[0].dtype(), op.operands[1].dtype());
  DType sum = result;
  if (!CheckResultDType(result, factor).ok()) factor = sum = Common(factor, result);
  ir::Values factors;
  for (const ir::Value& x : op.operands) factors.push_back(Convert(op.b, x, factor));
  attrs.set(dtype_at, {});
  if (sum != factor) attrs.set(dtype_at, sum);
  return {Convert(op.b, Call(op.b, product, std::move(factors), std::move(attrs)), result)};
}

}  // namespace weft::ops
