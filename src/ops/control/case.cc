// case and if: one of several functions, chosen while the program runs.
#include <algorithm>

#include "src/ir/differentiable.h"
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

constexpr OperandDef kCaseOperands[] = {{.name = "index",
                                         .types = kSI,
                                         .doc = "an i32 scalar: which function; one that there is not means the last",
                                         .group = 0},
                                        {.name = "captures",
                                         .types = kEveryType,
                                         .doc = "the parameters of the first function, then of the second, …",
                                         .optional = true,
                                         .variadic = true,
                                         .group = 0}};
constexpr OperandDef kIfOperands[] = {
    {.name = "pred", .types = kB, .doc = "a bool scalar: the first function, else the second", .group = 0},
    {.name = "captures",
     .types = kEveryType,
     .doc = "the parameters of the first function, then of the second",
     .optional = true,
     .variadic = true,
     .group = 0}};
constexpr RegionDef kCaseRegions[] = {{"branches", "its captures in, the results out", true}};
constexpr RegionDef kIfRegions[] = {{"true_branch", "its captures in, the results out"},
                                    {"false_branch", "its captures in, the same types out"}};
constexpr std::string_view kResults[] = {"results"};

absl::Status Infer(const InferCall& call, DType chooser, Types* results) {
  if (call.regions.empty()) return UserError("at least one function is needed");
  const Type& choice = *call.operands[0];
  if (!(choice == Type::Scalar(chooser))) {
    return UserError(call.op.operands[0].name, " is ", ShortType(choice), "; it must be ",
                     ShortType(Type::Scalar(chooser)));
  }
  size_t given = call.operands.size();
  while (given > 1 && call.operands[given - 1] == nullptr) --given;
  size_t wanted = 1;
  for (const Ref<const Function>& branch : call.regions) wanted += branch->parameters().size();
  if (given != wanted) {
    return UserError("the functions have ", wanted - 1, " parameters in all; there are ", given - 1, " captures");
  }
  size_t at = 1;
  const Function& first = *call.regions[0];
  for (const Ref<const Function>& branch : call.regions) {
    WEFT_RETURN_IF_ERROR(CheckParameters(*branch, 0, call.operands.subspan(at, branch->parameters().size())));
    at += branch->parameters().size();
    if (branch->results().size() != first.results().size()) {
      return UserError("the function @", first.name(), " has ", first.results().size(), " results, @", branch->name(),
                       " ", branch->results().size(), "; they must have the same");
    }
    for (size_t r = 0; r < first.results().size(); ++r) {
      const Type &one = first.results()[r].type(), &other = branch->results()[r].type();
      if (one == other) continue;
      return UserError("result ", r, " of the function @", first.name(), " is ", ShortType(one), ", of @",
                       branch->name(), " ", ShortType(other), "; they must be of one type");
    }
  }
  if (first.results().empty()) return UserError("the function @", first.name(), " has no results");
  for (const Value& result : first.results()) results->push_back(result.type());
  return absl::OkStatus();
}

// A branch of the gradient: the branch's captures and the cotangents in, the cotangents of all wanted captures out, zeros for
// those of other branches. `wanted` is of all captures, this branch's begin at `first`.
absl::StatusOr<Ref<const Function>> GradientBranch(const GradCall& call, const Function& branch, size_t first,
                                                   std::span<const bool> wanted) {
  const size_t own = branch.parameters().size();
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> gradient, call.region_gradient(branch, wanted.subspan(first, own)));
  std::vector<Value> parameters = ParametersLike(gradient->parameters());
  const Values found = Inline(*gradient, parameters);
  Builder b;
  std::vector<Value> results;
  size_t next = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    const Value& capture = call.operands[i + 1];
    results.push_back(i >= first && i < first + own ? found[next++] : FullLike(b, capture, 0));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return Intern(Function::Create(gradient->name(), std::move(parameters), std::move(results)));
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const RegionSpan branches = call.node.regions();
  const std::span<const bool> wanted = call.wanted.subspan(1);
  if (std::ranges::none_of(wanted, [](bool w) { return w; })) return absl::OkStatus();
  Values cotangents;
  for (size_t r = 0; r < call.results.size(); ++r) {
    if (!CarriesGradient(call.results[r].dtype())) continue;
    cotangents.push_back(call.cotangents[r] ? call.cotangents[r] : FullLike(call.b, call.results[r], 0));
  }
  std::vector<Ref<const Function>> gradients;
  Values operands = {call.operands[0]};
  size_t first = 0;
  for (const Ref<const Function>& branch : branches) {
    WEFT_ASSIGN_OR_RETURN(Ref<const Function> gradient, GradientBranch(call, *branch, first, wanted));
    gradients.push_back(std::move(gradient));
    const size_t own = branch->parameters().size();
    for (size_t i = 0; i < own; ++i) operands.push_back(call.operands[1 + first + i]);
    for (const Value& cotangent : cotangents) operands.push_back(cotangent);
    first += own;
  }
  const Values found = CallAll(call.b, call.node.op(), std::move(operands), {}, gradients);
  WEFT_RETURN_IF_ERROR(call.b.status());
  for (size_t i = 0, next = 0; i < grads.size(); ++i) {
    if (call.wanted[i]) grads[i] = found[next++];
  }
  return absl::OkStatus();
}

// All functions run, and each example takes the results of the one that it chooses.
void Choose(const BatchCall& call, std::span<const Ref<const Function>> branches, std::span<Value> results) {
  Builder& b = call.b;
  const Value& choice = call.operands[0];
  size_t first = call.operands.size();
  while (!call.operands[first - 1]) --first;
  // Begins with the last branch, which also serves indices out of range.
  for (size_t k = branches.size(); k-- > 0;) {
    const size_t own = branches[k]->parameters().size();
    first -= own;
    Values found = Inline(*branches[k], call.operands.subspan(first, own));
    const bool last = k + 1 == branches.size();
    const Value chosen = last                     ? Value()
                         : IsBool(choice.dtype()) ? choice
                                                  : Compare(b, Direction::kEq, choice, static_cast<double>(k));
    for (size_t r = 0; r < results.size() && b.ok(); ++r) {
      results[r] =
          last ? std::move(found[r]) : Select(b, OfEachExample(b, chosen, results[r].dims()), found[r], results[r]);
    }
  }
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  const RegionSpan branches = call.node.regions();
  const bool each = call.batched[0];
  // A result has examples where that of one branch has: the second pass knows all of them.
  absl::InlinedVector<bool, 4> wanted(results.size(), each);
  std::vector<Ref<const Function>> all(branches.size());
  for (int pass = 0; pass < 2; ++pass) {
    size_t first = 1;
    for (size_t k = 0; k < branches.size(); ++k) {
      const size_t own = branches[k]->parameters().size();
      WEFT_ASSIGN_OR_RETURN(all[k], call.region_batch(*branches[k], call.batched.subspan(first, own),
                                                      std::span(wanted.data(), wanted.size())));
      first += own;
      for (size_t r = 0; r < wanted.size(); ++r) {
        wanted[r] = wanted[r] || HasExamples(all[k]->results()[r].type(), call.node.type(r));
      }
    }
  }
  if (each) {
    Choose(call, all, results);
  } else {
    std::ranges::move(CallAll(call.b, call.node.op(), {call.operands.begin(), call.operands.end()}, {}, all),
                      results.begin());
  }
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call, size_t chosen) {
  size_t at = 1;
  for (size_t i = 0; i < chosen; ++i) at += call.regions[i]->parameters().size();
  std::vector<HostTensor> arguments;
  for (size_t i = 0; i < call.regions[chosen]->parameters().size(); ++i) arguments.push_back(*call.operands[at + i]);
  WEFT_ASSIGN_OR_RETURN(std::vector<HostTensor> results, call.run(*call.regions[chosen], arguments));
  std::ranges::move(results, call.results.begin());
  return absl::OkStatus();
}

absl::Status InferCase(const InferCall& call, Types* results) { return Infer(call, DType::kI32, results); }
absl::Status InferIf(const InferCall& call, Types* results) { return Infer(call, DType::kBool, results); }

absl::Status ReferenceCase(const ReferenceCall& call) {
  const int64_t index = call.operands[0]->GetInt(0), last = static_cast<int64_t>(call.regions.size()) - 1;
  return Reference(call, static_cast<size_t>(index < 0 || index > last ? last : index));
}

// The branches see their captures by the names these have outside.
void StableHlo(const Node& node, StableHloWriter& writer) {
  std::string regions;
  std::span<const Value> captures = node.operands().subspan(1);
  for (const Ref<const Function>& branch : node.regions()) {
    const size_t own = branch->parameters().size();
    absl::StrAppend(&regions, regions.empty() ? "" : ", ", writer.Body(*branch, captures.first(own)));
    captures = captures.subspan(own);
  }
  const std::string chooser = writer.Name(node.operands()[0]);
  writer.EmitOn(node.op().name, {&chooser, 1}, {}, regions);
}

absl::Status ExpandIf(const ExpandCall& call, std::span<Value> results) {
  const Value zero = Scalar(call.b, DType::kI32, 0), one = Scalar(call.b, DType::kI32, 1);
  Values operands(call.operands.begin(), call.operands.end());
  operands[0] = Select(call.b, operands[0], zero, one);
  while (!operands.back()) operands.pop_back();
  std::ranges::move(CallAll(call.b, kOp_case, std::move(operands), {}, call.regions), results.begin());
  return absl::OkStatus();
}

}  // namespace

constinit const OpDef kOp_case = {
    .name = "case",
    .c_name = "case",
    .doc =
        "The results of the function that the index chooses, at its captures; the last one if there is none of that number. "
        "The others do not run. The C function is weft_case.",
    .operands = kCaseOperands,
    .regions = kCaseRegions,
    .results = kResults,
    .infer = InferCase,
    .gradient = Gradient,
    .batching = Batching,
    .reference = ReferenceCase,
    .stablehlo = StableHlo,
    .absent = kCarriesFunctions,
    .exported = false,
    .rounds_once = true,
    .planes = InPlace,
    .work = WorkOfDearest,
    .on_bytes = true,
};

constinit const OpDef kOp_if = {
    .name = "if",
    .c_name = "if",
    .kind = Kind::kComposite,
    .doc =
        "The results of the first function at its captures if pred holds, else of the second at its own. The other does not "
        "run. The C function is weft_if.",
    .operands = kIfOperands,
    .regions = kIfRegions,
    .results = kResults,
    .infer = InferIf,
    .gradient = Gradient,
    .expand = ExpandIf,
    .batching = Batching,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .absent = kExpandsToOthers,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
