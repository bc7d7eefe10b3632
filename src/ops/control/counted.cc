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

// A literal's one integer.
std::optional<int64_t> NumberOf(const At& at) {
  if (!IsLiteral(at) || IsFloat(at.value.dtype())) return std::nullopt;
  const HostTensor& value = at.value.node->attrs().Tensor(0);
  return value.count() == 1 ? std::optional(value.GetInt(0)) : std::nullopt;
}

// How much more than the parameter the value is, by positive literals; 0 if it is something else, or a lot.
int64_t StepOf(At at, const Value& parameter) {
  constexpr int64_t kLot = int64_t{1} << 20;
  int64_t step = 0;
  while (&at.value.node->op() == &kOp_add) {
    const At x = Operand(at, 0), y = Operand(at, 1);
    const bool first = NumberOf(x).has_value();
    const int64_t more = NumberOf(first ? x : y).value_or(0);
    if (more <= 0 || more > kLot || (step += more) > kLot) return 0;
    at = first ? y : x;
  }
  return at.value == parameter ? step : 0;
}

// Steps of more than 1 may leave out the bound, go past the largest number and begin again: not below this one.
bool MeetsBound(int64_t step, const At& bound) {
  const DType dtype = bound.value.dtype();
  if (step <= 1) return step == 1;
  const std::optional<int64_t> number = NumberOf(bound);
  const int bits = 8 * static_cast<int>(BytesOf(dtype)) - (IsSigned(dtype) ? 1 : 0);
  return number.has_value() && *number <= (int64_t{1} << std::min(bits, 62)) - 1 - step;
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
  return common && MeetsBound(StepOf(Opened({body.results()[*counter]}), body.parameters()[*counter]), bound);
}

}  // namespace weft::ops
