// See counted.h.
#include "src/ops/control/counted.h"

#include <algorithm>
#include <optional>

#include "src/ops/families.h"
#include "src/ops/registry.h"

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

// Looks through a fusion to the nodes that it is made of. Fusions do not nest.
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

// The condition of such a loop: a carried value is below a bound that all runs have in common.
struct Question {
  size_t counter = 0;
  At bound;
};
std::optional<Question> QuestionOf(const Function& condition, const Function& body) {
  const At asked = Opened({condition.results()[0]});
  if (&asked.value.node->op() != &kOp_compare) return std::nullopt;
  if (static_cast<Direction>(asked.value.node->attrs().Int(0)) != Direction::kLt) return std::nullopt;
  const At below = Operand(asked, 0), bound = Operand(asked, 1);
  const size_t carried = body.results().size();
  const std::optional<size_t> counter = ParameterOf(condition, below.value),
                              limit = ParameterOf(condition, bound.value);
  if (!counter.has_value() || *counter >= carried || !IsInteger(below.value.dtype())) return std::nullopt;
  const bool common =
      limit.has_value() ? *limit >= carried || body.results()[*limit] == body.parameters()[*limit] : IsLiteral(bound);
  return common ? std::optional(Question{*counter, bound}) : std::nullopt;
}

// The integer that a value of one of a while's functions is in every run, seen from outside.
class Constants {
 public:
  Constants(const Node& loop, size_t region)
      : loop_(loop), function_(*loop.regions()[region]), carried_(loop.regions()[1]->results().size()) {
    first_capture_ = region == 0 ? carried_ : loop.regions()[0]->parameters().size();
  }
  std::optional<int64_t> Of(const At& at) const {
    if (IsLiteral(at)) return NumberOf(at);
    if (&at.value.node->op() == &kOp_sub) {
      const std::optional<int64_t> x = Of(Operand(at, 0)), y = Of(Operand(at, 1));
      return x.has_value() && y.has_value() ? std::optional(*x - *y) : std::nullopt;
    }
    const std::optional<size_t> parameter = ParameterOf(function_, at.value);
    if (!parameter.has_value() || *parameter < carried_) return std::nullopt;
    return NumberOf(Opened({loop_.operands()[first_capture_ + *parameter - carried_]}));
  }

 private:
  const Node& loop_;
  const Function& function_;
  const size_t carried_;
  size_t first_capture_;
};

}  // namespace

bool EndsByItself(const Function& condition, const Function& body) {
  const std::optional<Question> asked = QuestionOf(condition, body);
  if (!asked.has_value()) return false;
  const Value &next = body.results()[asked->counter], &now = body.parameters()[asked->counter];
  return MeetsBound(StepOf(Opened({next}), now), asked->bound);
}

std::optional<KnownRuns> RunsOf(const Node& loop) {
  const Function& body = *loop.regions()[1];
  const std::optional<Question> asked = QuestionOf(*loop.regions()[0], body);
  if (!asked.has_value()) return std::nullopt;
  const size_t counter = asked->counter;
  const std::optional<int64_t> first = NumberOf(Opened({loop.operands()[counter]}));
  const std::optional<int64_t> count = Constants(loop, 0).Of(asked->bound);
  if (first != 0 || !count.has_value() || *count < 0) return std::nullopt;
  if (StepOf(Opened({body.results()[counter]}), body.parameters()[counter]) != 1) return std::nullopt;
  return KnownRuns{counter, *count};
}

bool IsRowOfRun(const Node& loop, const KnownRuns& runs, const Value& value) {
  const Value& counter = loop.regions()[1]->parameters()[runs.counter];
  const At at = Opened({value});
  if (at.value == counter) return true;
  if (&at.value.node->op() != &kOp_sub || !(Operand(at, 1).value == counter)) return false;
  return Constants(loop, 1).Of(Operand(at, 0)) == runs.count - 1;
}

bool WritesEveryRow(const Node& loop, const KnownRuns& runs, size_t i) {
  const Function &condition = *loop.regions()[0], &body = *loop.regions()[1];
  const Value &stack = body.parameters()[i], &next = body.results()[i];
  if (&next.node->op() != &kOp_dynamic_update_slice || !(next.node->operands()[0] == stack)) return false;
  Dims row = stack.dims();
  if (row.empty() || row[0] != runs.count) return false;
  row[0] = 1;
  if (next.node->operands()[1].dims() != row || !IsRowOfRun(loop, runs, next.node->operands()[2])) return false;
  const auto uses = [](const Function& function, const Value& value) {
    int64_t n = std::ranges::count(function.results(), value);
    for (const Node* node : function.nodes()) n += std::ranges::count(node->operands(), value);
    return n;
  };
  return uses(body, stack) == 1 && uses(condition, condition.parameters()[i]) == 0;
}

}  // namespace weft::ops
