// Literals behind shape operations.
#include "src/passes/literals.h"

#include <cmath>
#include <cstring>

#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"

namespace weft::passes {

Ref<const Literal> UniformLiteral(const ir::Value& value) {
  const ir::Value* at = &value;
  // Usually one broadcast; simplification merges longer chains.
  for (int depth = 0; depth < 8 && *at; ++depth) {
    const ir::Node& node = *at->node;
    if (&node.op() == &ops::kOp_constant) {
      const HostTensor& tensor = ops::ConstantAttrs{node.attrs()}.value();
      const size_t width = BytesOf(tensor.dtype());
      const auto bytes = tensor.bytes();
      if (tensor.count() == 0 ||
          (tensor.count() > 1 && std::memcmp(bytes.data(), bytes.data() + width, bytes.size() - width) != 0)) {
        return nullptr;
      }
      return MakeRef<const Literal>(HostTensor(tensor.dtype(), {}, bytes.first(width)));
    }
    if (&node.op() != &ops::kOp_broadcast_in_dim && &node.op() != &ops::kOp_reshape &&
        &node.op() != &ops::kOp_transpose) {
      return nullptr;
    }
    at = &node.operands()[0];
  }
  return nullptr;
}

bool IsUniform(const ir::Value& value, double number) {
  Ref<const Literal> literal = UniformLiteral(value);
  if (literal == nullptr) return false;
  const double found = literal->value.GetDouble(0);
  return found == number && std::signbit(found) == std::signbit(number);
}

}  // namespace weft::passes
