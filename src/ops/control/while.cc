// while: a function again and again.
#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/control/captures.h"
#include "src/ops/parameter.h"
#include "src/ops/planes.h"
#include "src/ops/work.h"

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

// The functions of a loop over examples, and which of the carried values these have each.
struct Batch {
  Ref<const Function> condition, body;
  absl::InlinedVector<bool, 8> carried;
  bool apart = false;  // examples end after different numbers of runs
};

// A carried value differs as soon as one that it is made of does; where examples end apart, so does all that a run changes.
absl::StatusOr<Batch> BatchFunctions(const BatchCall& call) {
  const Function &condition = *call.node.regions()[0], &body = *call.node.regions()[1];
  const size_t carried = body.results().size(), asks = condition.parameters().size() - carried;
  Batch batch{.carried = {call.batched.begin(), call.batched.begin() + static_cast<ptrdiff_t>(carried)}};
  const auto parameters = [&](size_t first, size_t count) {
    absl::InlinedVector<bool, 8> flags = batch.carried;
    const std::span<const bool> captures = call.batched.subspan(first, count);
    flags.insert(flags.end(), captures.begin(), captures.end());
    return flags;
  };
  for (bool more = true; more;) {
    const auto asked = parameters(carried, asks), run = parameters(carried + asks, body.parameters().size() - carried);
    WEFT_ASSIGN_OR_RETURN(batch.condition, call.region_batch(condition, {asked.data(), asked.size()}, {}));
    WEFT_ASSIGN_OR_RETURN(batch.body,
                          call.region_batch(body, {run.data(), run.size()}, {batch.carried.data(), carried}));
    batch.apart = HasExamples(batch.condition->results()[0].type(), condition.results()[0].type());
    more = false;
    for (size_t i = 0; i < carried; ++i) {
      const bool changes = batch.apart && !(body.results()[i] == body.parameters()[i]);
      const bool differs = changes || HasExamples(batch.body->results()[i].type(), body.results()[i].type());
      more = more || differs != batch.carried[i];
      batch.carried[i] = batch.carried[i] || differs;
    }
  }
  return batch;
}

// The loop runs as long as one example goes on; the others keep what they carry. A flag for each, whether it goes on,
// is carried behind the rest.
absl::Status RunApart(const BatchCall& call, const Batch& batch, const Values& operands, std::span<Value> results) {
  const size_t carried = batch.carried.size(), asks = batch.condition->parameters().size() - carried;
  const std::span<const Value> given(operands.data(), operands.size());
  Values all(given.begin(), given.begin() + static_cast<ptrdiff_t>(carried));
  all.push_back(Inline(*batch.condition, given.first(carried + asks))[0]);

  Builder b(call.b.location());
  std::vector<Value> asked = ParametersLike(all);
  const Value any = Reduce(b, asked.back(), Reducer::kOr, {0});
  all.insert(all.end(), given.begin() + static_cast<ptrdiff_t>(carried), given.end());
  std::vector<Value> parameters = ParametersLike(all);
  const std::span<const Value> old = std::span<const Value>(parameters).first(carried);
  const std::span<const Value> captures = std::span<const Value>(parameters).subspan(carried + 1);
  const Value& goes_on = parameters[carried];
  const auto run = [](const Function& function, std::span<const Value> values, std::span<const Value> captured) {
    std::vector<Value> arguments(values.begin(), values.end());
    arguments.insert(arguments.end(), captured.begin(), captured.end());
    return Inline(function, arguments);
  };
  std::vector<Value> next;
  const Values found = run(*batch.body, old, captures.subspan(asks));
  for (size_t i = 0; i < carried; ++i) {
    next.push_back(batch.carried[i] ? Select(b, OfEachExample(b, goes_on, found[i].dims()), found[i], old[i])
                                    : found[i]);
    WEFT_RETURN_IF_ERROR(b.status());
  }
  next.push_back(And(b, goes_on, run(*batch.condition, next, captures.first(asks))[0]));
  WEFT_RETURN_IF_ERROR(b.status());
  const Ref<const Function> functions[] = {
      Intern(Function::Create(batch.condition->name(), std::move(asked), {any})),
      Intern(Function::Create(batch.body->name(), std::move(parameters), std::move(next)))};
  // The condition has no captures: those of both are the body's.
  const Values ended = CallAll(call.b, kOp_while, std::move(all), {}, functions);
  WEFT_RETURN_IF_ERROR(call.b.status());
  std::ranges::copy(std::span<const Value>(ended.data(), carried), results.begin());
  return absl::OkStatus();
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  WEFT_ASSIGN_OR_RETURN(const Batch batch, BatchFunctions(call));
  Values operands(call.operands.begin(), call.operands.end());
  for (size_t i = 0; i < batch.carried.size(); ++i) {
    if (batch.carried[i]) operands[i] = Batched(call, i);
  }
  WEFT_RETURN_IF_ERROR(call.b.status());
  if (batch.apart) return RunApart(call, batch, operands, results);
  const Ref<const Function> functions[] = {batch.condition, batch.body};
  std::ranges::move(CallAll(call.b, kOp_while, std::move(operands), {}, functions), results.begin());
  return absl::OkStatus();
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
    .batching = Batching,
    .reference = Reference,
    .stablehlo = StableHlo,
    .absent = kCarriesFunctions,
    .exported = false,
    .rounds_once = true,
    .planes = InPlace,
    .work = WorkOfAll,
    .on_bytes = true,
};

}  // namespace weft::ops
