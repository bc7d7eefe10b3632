// See rules.h.
#include "src/transforms/rules.h"

#include "src/ops/control/custom_gradient.h"
#include "src/ops/parameter.h"

namespace weft::transforms {
namespace {

using ir::Builder;
using ir::Function;
using ir::Value;
using ir::Values;
using ops::ParametersLike;

absl::Status CheckResults(const Function& function) {
  if (!function.results().empty()) return absl::OkStatus();
  return UserError("the function @", function.name(), " has no results");
}

}  // namespace

absl::StatusOr<Ref<const Function>> Checkpoint(const Function& function, ops::Keep keep) {
  WEFT_RETURN_IF_ERROR(CheckResults(function));
  std::vector<Value> parameters = ParametersLike(function.parameters());
  const Ref<const Function> callee = Ref<const Function>::Share(&function);
  Builder b;
  const Values results = ops::CallAll(b, ops::kOp_call, {parameters.begin(), parameters.end()},
                                      {static_cast<int64_t>(keep)}, {&callee, 1});
  WEFT_RETURN_IF_ERROR(b.status());
  return ir::Intern(Function::Create(function.name(), std::move(parameters), {results.begin(), results.end()}));
}

absl::StatusOr<Ref<const Function>> CustomGradient(const Rule& function, const Rule& forward, const Rule& backward) {
  WEFT_RETURN_IF_ERROR(CheckResults(function.function));
  if (backward.draws) {
    return UserError("the backward function @", backward.function.name(),
                     " draws random numbers: forward can draw them and give them as residuals");
  }
  const Ref<const Function> regions[] = {Ref<const Function>::Share(&function.function),
                                         Ref<const Function>::Share(&forward.function),
                                         Ref<const Function>::Share(&backward.function)};
  const ops::TakenInputs taken = {forward.inputs, backward.inputs};
  WEFT_RETURN_IF_ERROR(ops::CustomPartsOf(regions, function.inputs, &taken).status());
  const auto all = function.function.parameters();
  std::vector<Value> parameters = ParametersLike(all.first(function.inputs));
  Value stream;
  if (function.draws || forward.draws) {
    stream = ParametersLike((function.draws ? all : forward.function.parameters()).last(1))[0];
  }
  Values operands(parameters.begin(), parameters.end());
  for (const Rule* rule : {&function, &forward, &backward}) {
    for (const Value& capture : ParametersLike(rule->function.parameters().subspan(rule->inputs, rule->captures()))) {
      parameters.push_back(capture);
      operands.push_back(capture);
    }
    if (rule->draws) operands.push_back(stream);
  }
  if (stream) parameters.push_back(stream);
  Builder b;
  const Values results =
      ops::CallAll(b, ops::kOp_custom_gradient, std::move(operands), {static_cast<int64_t>(function.inputs)}, regions);
  WEFT_RETURN_IF_ERROR(b.status());
  return ir::Intern(
      Function::Create(function.function.name(), std::move(parameters), {results.begin(), results.end()}));
}

}  // namespace weft::transforms
