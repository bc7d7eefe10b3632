// while: a function again and again.
#include "src/ir/stablehlo.h"
#include "src/ops/control/captures.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {.name = "operands",
     .types = kEveryType,
     .doc = "first values of what is carried, then the captures of the condition, then those of the body",
     .variadic = true,
     .group = 0}};
constexpr RegionDef kRegions[] = {{"cond", "what is carried and its captures in, a bool scalar out"},
                                  {"body", "what is carried and its captures in, what is carried next out"}};
constexpr std::string_view kResults[] = {"results"};

absl::Status Infer(const InferCall& call, Types* results) {
  const Function &condition = *call.regions[0], &body = *call.regions[1];
  const size_t carried = body.results().size();
  if (carried == 0) return UserError("the function @", body.name(), " carries nothing: it has no results");
  for (const Function* function : {&condition, &body}) {
    if (function->parameters().size() >= carried) continue;
    return UserError("the function @", body.name(), " carries ", carried, " values; @", function->name(), " has only ",
                     function->parameters().size(), " parameters");
  }
  const size_t asks = condition.parameters().size() - carried, runs = body.parameters().size() - carried;
  if (call.operands.size() != carried + asks + runs) {
    return UserError(carried, " values are carried, the functions capture ", asks, " and ", runs, "; there are ",
                     call.operands.size(), " operands");
  }
  for (size_t i = 0; i < carried; ++i) WEFT_RETURN_IF_ERROR(CheckCarried(body, i, *call.operands[i]));
  WEFT_RETURN_IF_ERROR(CheckParameters(condition, 0, call.operands.first(carried + asks)));
  WEFT_RETURN_IF_ERROR(CheckParameters(body, 0, call.operands.first(carried)));
  WEFT_RETURN_IF_ERROR(CheckParameters(body, carried, call.operands.subspan(carried + asks)));
  const bool asks_one = condition.results().size() == 1;
  if (!asks_one || !(condition.results()[0].type() == Type::Scalar(DType::kBool))) {
    return UserError("the function @", condition.name(), " gives ", condition.results().size(), " results",
                     condition.results().empty() ? "" : ", the first " + ShortType(condition.results()[0].type()),
                     "; a condition is one bool scalar");
  }
  for (const Value& result : body.results()) results->push_back(result.type());
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall&, std::span<Value>) {
  return UserErrorOf(
      absl::StatusCode::kUnimplemented,
      "a loop without a known number of iterations has no reverse-mode gradient: what it would keep of each "
      "is unbounded");
}

absl::Status Reference(const ReferenceCall& call) {
  const Function &condition = *call.regions[0], &body = *call.regions[1];
  const size_t carried = body.results().size(), asks = condition.parameters().size() - carried;
  const auto captures = [&](size_t first, size_t count) {
    std::vector<HostTensor> arguments(carried);
    for (size_t i = 0; i < count; ++i) arguments.push_back(*call.operands[first + i]);
    return arguments;
  };
  std::vector<HostTensor> values;
  for (size_t i = 0; i < carried; ++i) values.push_back(*call.operands[i]);
  std::vector<HostTensor> asked = captures(carried, asks);
  std::vector<HostTensor> arguments = captures(carried + asks, body.parameters().size() - carried);
  while (true) {
    std::ranges::copy(values, asked.begin());
    WEFT_ASSIGN_OR_RETURN(const std::vector<HostTensor> goes_on, call.run(condition, asked));
    if (goes_on[0].GetInt(0) == 0) break;
    std::ranges::move(values, arguments.begin());
    WEFT_ASSIGN_OR_RETURN(values, call.run(body, arguments));
  }
  std::ranges::move(values, call.results.begin());
  return absl::OkStatus();
}

// The functions see their captures by the names these have outside.
void StableHlo(const Node& node, StableHloWriter& writer) {
  const Function &condition = *node.regions()[0], &body = *node.regions()[1];
  const size_t carried = body.results().size(), asks = condition.parameters().size() - carried;
  const std::span<const Value> captures = node.operands().subspan(carried);
  std::string regions = writer.Body(condition, captures.first(asks));
  absl::StrAppend(&regions, ", ", writer.Body(body, captures.subspan(asks)));
  std::vector<std::string> first;
  for (const Value& value : node.operands().first(carried)) first.push_back(writer.Name(value));
  writer.EmitOn("while", first, {}, regions);
}

}  // namespace

constinit const OpDef kOp_while = {
    .name = "while",
    .c_name = "while",
    .doc =
        "What is carried after the body has run on it as often as the condition holds of it, which is asked before each "
        "run. The C function is weft_while.",
    .operands = kOperands,
    .regions = kRegions,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .reference = Reference,
    .stablehlo = StableHlo,
    .absent = kCarriesFunctions,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
