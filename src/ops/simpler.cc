// See simpler.h.
#include "src/ops/simpler.h"

#include <algorithm>

namespace weft::ops {

using namespace ir;

Value MoveNarrow(const SimplerCall& call) {
  if (!call.from(kOp_convert) || call.from().extras() != nullptr) return {};
  const Value& narrow = call.from().operands()[0];
  if (!IsHalf(narrow.dtype()) || call.node.type().dtype != DType::kF32) return {};
  return Convert(call.b, call.b.Emit(call.node.op(), {narrow}, call.node.attrs()), DType::kF32);
}

Value Idempotent(const SimplerCall& call) { return call.operands[0] == call.operands[1] ? call.operands[0] : Value(); }
Value Involution(const SimplerCall& call) { return call.from(call.node.op()) ? call.from().operands()[0] : Value(); }

std::optional<Ints> LiteralStarts(std::span<const Value> starts, const Dims& whole, const Dims& box) {
  Ints begins;
  for (size_t d = 0; d < whole.size(); ++d) {
    const Ref<const Literal> literal = UniformLiteral(starts[d]);
    if (literal == nullptr) return std::nullopt;
    int64_t start = literal->value.GetInt(0);
    if (start < 0 && IsUnsigned(starts[d].dtype())) start = INT64_MAX;  // of u64
    begins.push_back(std::clamp<int64_t>(start, 0, whole[d] - box[d]));
  }
  return begins;
}

}  // namespace weft::ops
