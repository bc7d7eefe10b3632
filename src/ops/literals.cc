// Literals behind shape operations.
#include "src/ops/literals.h"

#include <cmath>
#include <cstring>

#include "src/ops/registry.h"

namespace weft::ops {

Ref<const Literal> UniformLiteral(const ir::Value& value) {
  const ir::Value* at = &value;
  // Usually one broadcast; simplification merges longer chains.
  for (int depth = 0; depth < 8 && *at; ++depth) {
    const ir::Node& node = *at->node;
    if (&node.op() == &kOp_constant) {
      const HostTensor& tensor = node.attrs().Tensor(0);
      const size_t width = BytesOf(tensor.dtype());
      const auto bytes = tensor.bytes();
      if (tensor.count() == 0 ||
          (tensor.count() > 1 && std::memcmp(bytes.data(), bytes.data() + width, bytes.size() - width) != 0)) {
        return nullptr;
      }
      return MakeRef<const Literal>(HostTensor(tensor.dtype(), {}, bytes.first(width)));
    }
    if (&node.op() != &kOp_broadcast_in_dim && &node.op() != &kOp_reshape && &node.op() != &kOp_transpose) {
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

}  // namespace weft::ops
