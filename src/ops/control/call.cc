// call: a function's results at the operands.
#include "src/ir/differentiable.h"
#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ops/control/captures.h"
#include "src/ops/control/recompute.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{.name = "operands",
                                     .types = kEveryType,
                                     .doc = "what the function's parameters are",
                                     .optional = true,
                                     .variadic = true,
                                     .group = 0}};
constexpr RegionDef kRegions[] = {{"callee", "the operands in, the results out"}};
constexpr std::string_view kResults[] = {"results"};
constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions},
                              {Part::kExample, Reason::kCarriesFunctions},
                              {Part::kReference, Reason::kExpands}};

absl::Status Infer(const InferCall& call, Types* results) {
  if (HasAttr<kCallAttrs, "keep">(call.attrs)) {
    const int64_t keep = Attr<kCallAttrs, "keep">(call.attrs);
    if (keep < 0 || keep > 1) return UserError("keep is ", keep, "; it is 0 or 1");
  }
  const Function& callee = *call.regions[0];
  size_t given = call.operands.size();
  while (given > 0 && call.operands[given - 1] == nullptr) --given;
  if (callee.parameters().size() != given) {
    return UserError("the function @", callee.name(), " has ", callee.parameters().size(), " parameters; there are ",
                     given, " operands");
  }
  if (callee.results().empty()) return UserError("the function @", callee.name(), " has no results");
  WEFT_RETURN_IF_ERROR(CheckParameters(callee, 0, call.operands.first(given)));
  for (const Value& result : callee.results()) results->push_back(result.type());
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Attrs& attrs = call.node.attrs();
  const bool again = HasAttr<kCallAttrs, "keep">(attrs);
  const Function& callee = *call.node.regions()[0];
  absl::InlinedVector<bool, 4> given;
  for (size_t r = 0; r < call.results.size(); ++r) {
    given.push_back(call.cotangents[r] && CarriesGradient(callee.results()[r].dtype()));
  }
  const std::span<const bool> flows(given.data(), given.size());
  WEFT_ASSIGN_OR_RETURN(const Ref<const SplitGradient> split,
                        again ? RecomputeSplit(call, static_cast<Keep>(Attr<kCallAttrs, "keep">(attrs)), flows)
                              : call.region_split(callee, call.wanted, flows));
  // The backward step may read these values, by SplitGradient's numbers.
  Values known(call.operands.begin(), call.operands.end());
  if (split->forward == nullptr) {
    known.insert(known.end(), call.results.begin(), call.results.end());
  } else {
    const Values forward = CallAll(call.b, kOp_call, known, attrs, {&split->forward, 1});
    known.insert(known.end(), forward.begin(), forward.end());
  }
  for (size_t r = 0; r < given.size(); ++r) {
    if (given[r]) known.push_back(call.cotangents[r]);
  }
  WEFT_RETURN_IF_ERROR(call.b.status());
  Values operands;
  for (const uint32_t number : split->reads) operands.push_back(known[number]);
  // A recomputation reads everything behind a barrier, together with the cotangents. So nothing merges it with the
  // forward run, nothing starts it before the cotangents are there, and code that splits a function by what needs
  // cotangents finds that it does.
  if (again && !operands.empty()) operands = CallAll(call.b, kOp_optimization_barrier, std::move(operands));
  WEFT_RETURN_IF_ERROR(call.b.status());
  const Values found = CallAll(call.b, kOp_call, std::move(operands), attrs, {&split->backward, 1});
  WEFT_RETURN_IF_ERROR(call.b.status());
  for (size_t i = 0, next = 0; i < grads.size(); ++i) {
    if (call.wanted[i]) grads[i] = found[next++];
  }
  return absl::OkStatus();
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  const Function& callee = *call.node.regions()[0];
  const size_t given = callee.parameters().size();
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> all, call.region_batch(callee, call.batched.first(given), {}));
  Values operands(call.operands.begin(), call.operands.begin() + static_cast<ptrdiff_t>(given));
  std::ranges::move(CallAll(call.b, kOp_call, std::move(operands), call.node.attrs(), {&all, 1}), results.begin());
  return absl::OkStatus();
}

absl::Status Expansion(const ExpandCall& call, std::span<Value> results) {
  Values operands;
  for (const Value& operand : call.operands) {
    if (operand) operands.push_back(operand);
  }
  std::ranges::move(Inline(*call.regions[0], operands), results.begin());
  return absl::OkStatus();
}

// Writes a call that was read as a composite as one again.
void StableHlo(const Node& node, StableHloWriter& writer) {
  bool composite = false;
  if (node.extras() != nullptr) {
    for (const auto& [name, text] : node.extras()->unknown_attributes) composite = composite || name == "name";
  }
  const std::string symbol = writer.Symbol(*node.regions()[0]);
  if (composite) return writer.Emit("composite", {{"decomposition", symbol}});
  writer.Emit("func.call", {{"callee", symbol}});
}

}  // namespace

constinit const OpDef kOp_call = {
    .name = "weft.call",
    .c_name = "call",
    .kind = Kind::kComposite,
    .doc = "The results of a function at these operands. The C function is weft_function_call.",
    .operands = kOperands,
    .attrs = kCallAttrs,
    .regions = kRegions,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expansion,
    .batching = Batching,
    .lowering = Lowering::kKernel,
    .stablehlo = StableHlo,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
    .calls = true,
    .planes = InPlace,
    .on_bytes = true,
};

}  // namespace weft::ops
