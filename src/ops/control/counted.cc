// See counted.h.
#include "src/ops/control/counted.h"

#include <algorithm>
#include <optional>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

// A value of a function, or of the body of a fusion in it.
struct At {
  Value value;
  const Node* fusion = nullptr;
};

std::optional<size_t> ParameterOf(const Function& function, const Value& value) {
  const auto found = std::ranges::find(function.parameters(), value);
  if (found == function.parameters().end()) return std::nullopt;
  return static_cast<size_t>(found - function.parameters().begin());
}

// As what fusions are made of. They do not nest.
At Opened(At at) {
  const Node* node = at.value.node.get();
  if (at.fusion == nullptr && &node->op() == &kOp_fusion) {
    at = {node->regions()[0]->results()[at.value.result], node};
    node = at.value.node.get();
  }
  if (at.fusion == nullptr) return at;
  const std::optional<size_t> parameter = ParameterOf(*at.fusion->regions()[0], at.value);
  return parameter.has_value() ? At{at.fusion->operands()[*parameter]} : at;
}

At Operand(const At& at, size_t i) { return Opened({at.value.node->operands()[i], at.fusion}); }

bool IsLiteral(const At& at) { return &at.value.node->op() == &kOp_constant; }

bool IsPositive(const At& at) {
  if (!IsLiteral(at) || IsFloat(at.value.dtype())) return false;
  const HostTensor& value = at.value.node->attrs().Tensor(0);
  return value.count() == 1 && value.GetInt(0) > 0;
}

// Whether the value is the parameter and positive literals.
bool Grows(At at, const Value& parameter) {
  bool grown = false;
  while (&at.value.node->op() == &kOp_add) {
    const At x = Operand(at, 0), y = Operand(at, 1);
    if (!IsPositive(x) && !IsPositive(y)) return false;
    at = IsPositive(y) ? x : y;
    grown = true;
  }
  return grown && at.value == parameter;
}

}  // namespace

bool EndsByItself(const Function& condition, const Function& body) {
  const At asked = Opened({condition.results()[0]});
  if (&asked.value.node->op() != &kOp_compare) return false;
  if (static_cast<Direction>(asked.value.node->attrs().Int(0)) != Direction::kLt) return false;
  const At below = Operand(asked, 0), bound = Operand(asked, 1);
  const size_t carried = body.results().size();
  const std::optional<size_t> counter = ParameterOf(condition, below.value),
                              limit = ParameterOf(condition, bound.value);
  if (!counter.has_value() || *counter >= carried || !IsInteger(below.value.dtype())) return false;
  const bool common =
      limit.has_value() ? *limit >= carried || body.results()[*limit] == body.parameters()[*limit] : IsLiteral(bound);
  return common && Grows(Opened({body.results()[*counter]}), body.parameters()[*counter]);
}

}  // namespace weft::ops
