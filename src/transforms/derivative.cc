// See derivative.h.
#include "src/transforms/derivative.h"

#include <algorithm>

#include "src/autodiff/gradient.h"
#include "src/ir/rewrite.h"
#include "src/ops/complex.h"
#include "src/ops/parameter.h"
#include "src/transforms/tangents.h"

namespace weft::transforms {
namespace {

using ir::Builder;
using ir::Function;
using ir::Type;
using ir::Value;
using ops::Flows;
using ops::Parameter;

// The inputs that the call is about.
absl::StatusOr<std::vector<size_t>> Wrt(const DerivativeCall& call) {
  const Function& f = call.function;
  std::vector<size_t> wrt;
  for (size_t i = 0; i < call.inputs && call.wrt.empty(); ++i) {
    if (Flows(f.parameters()[i].type())) wrt.push_back(i);
  }
  for (size_t k = 0; k < call.wrt.size(); ++k) {
    const int64_t i = call.wrt[k];
    if (i < 0 || i >= static_cast<int64_t>(call.inputs)) {
      return UserError("wrt[", k, "] is ", i, "; the function @", f.name(), " has ", call.inputs, " inputs");
    }
    const auto input = static_cast<size_t>(i);
    if (!Flows(f.parameters()[input].type())) {
      return UserError("wrt[", k, "] is ", i, "; input ", i, " of the function @", f.name(), " is ",
                       ir::ShortType(f.parameters()[input].type()),
                       ", and only floats and complex numbers have derivatives");
    }
    if (std::ranges::find(wrt, input) != wrt.end()) {
      return UserError("wrt[", k, "] is ", i, ", which wrt names before");
    }
    wrt.push_back(input);
  }
  if (wrt.empty())
    return UserError("none of the ", call.inputs, " inputs of the function @", f.name(), " is a float or complex");
  return wrt;
}

absl::Status CheckFlows(const Function& f) {
  if (std::ranges::any_of(f.results(), [](const Value& result) { return Flows(result.type()); })) {
    return absl::OkStatus();
  }
  return UserError("none of the ", f.results().size(), " results of the function @", f.name(),
                   " is a float or complex: it has no derivative");
}

// The function's parameters with others behind its inputs.
std::vector<Value> With(const Function& function, size_t inputs, std::span<const Value> others) {
  std::vector<Value> parameters(function.parameters().begin(), function.parameters().end());
  parameters.insert(parameters.begin() + static_cast<ptrdiff_t>(inputs), others.begin(), others.end());
  return parameters;
}

absl::StatusOr<Ref<const Function>> Finish(const Builder& b, const DerivativeCall& call, std::span<const Value> values,
                                           std::vector<Value> parameters, std::vector<Value> found) {
  WEFT_RETURN_IF_ERROR(b.status());
  if (call.values) found.insert(found.begin(), values.begin(), values.end());
  return ir::Intern(Function::Create(call.function.name(), std::move(parameters), std::move(found)));
}

// One reverse sweep from these results; with `seeded` their cotangents are parameters.
absl::StatusOr<Ref<const Function>> Reverse(const DerivativeCall& call, bool seeded) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<size_t> wrt, Wrt(call));
  const Ref<const Function> own = ir::OwnNodes(call.function);  // the sweep marks what it walks
  Builder b;
  std::vector<Value> outputs(own->results().begin(), own->results().end()), values(outputs.size());
  std::vector<Value> cotangents, seeds, inputs, slopes(wrt.size());
  for (const Value& result : outputs) {
    seeds.emplace_back();
    if (!Flows(result.type()) || (!seeded && seeds.size() > 1)) continue;
    if (seeded) cotangents.push_back(Parameter(result.type()));
    seeds.back() = seeded ? ops::Conj(b, cotangents.back()) : ops::FullLike(b, result, 1);
  }
  for (const size_t i : wrt) inputs.push_back(own->parameters()[i]);
  WEFT_RETURN_IF_ERROR(autodiff::Gradients(b, outputs, seeds, inputs, slopes, values));
  for (size_t i = 0; i < wrt.size(); ++i) {
    slopes[i] = slopes[i] ? ops::Conj(b, slopes[i]) : ops::FullLike(b, inputs[i], 0);
  }
  std::vector<Value> parameters = With(*own, call.inputs, cotangents);
  return Finish(b, call, values, std::move(parameters), std::move(slopes));
}

}  // namespace

absl::StatusOr<Ref<const Function>> Grad(const DerivativeCall& call) {
  const Function& f = call.function;
  const Type* const type = f.results().empty() ? nullptr : &f.results()[0].type();
  if (type == nullptr || !type->is_tensor() || !IsFloat(type->dtype) || type->count() != 1) {
    return UserError("result 0 of the function @", f.name(), " is ", type == nullptr ? "missing" : ir::ShortType(*type),
                     "; a gradient is of one float: reduce it, or give cotangents to a vjp");
  }
  return Reverse(call, false);
}

absl::StatusOr<Ref<const Function>> Vjp(const DerivativeCall& call) {
  WEFT_RETURN_IF_ERROR(CheckFlows(call.function));
  return Reverse(call, true);
}

absl::StatusOr<Ref<const Function>> Jvp(const DerivativeCall& call) {
  WEFT_RETURN_IF_ERROR(CheckFlows(call.function));
  WEFT_ASSIGN_OR_RETURN(const std::vector<size_t> wrt, Wrt(call));
  const Function& f = call.function;
  Duals arguments, results;
  for (const Value& parameter : f.parameters()) arguments.push_back({Parameter(parameter.type()), {}});
  std::vector<Value> parameters, tangents, values, found;
  for (const size_t i : wrt) {
    tangents.push_back(Parameter(f.parameters()[i].type()));
    arguments[i].tangent = tangents.back();
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i == call.inputs) parameters.insert(parameters.end(), tangents.begin(), tangents.end());
    parameters.push_back(arguments[i].value);
  }
  if (arguments.size() == call.inputs) parameters.insert(parameters.end(), tangents.begin(), tangents.end());
  Builder b;
  WEFT_RETURN_IF_ERROR(Tangents().Walk(b, f, arguments, &results));
  for (const Dual& result : results) {
    values.push_back(result.value);
    if (!Flows(result.value.type())) continue;
    found.push_back(result.tangent ? result.tangent : ops::FullLike(b, result.value, 0));
  }
  return Finish(b, call, values, std::move(parameters), std::move(found));
}

}  // namespace weft::transforms
