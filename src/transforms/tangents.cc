// See tangents.h.
#include "src/transforms/tangents.h"

#include <algorithm>

#include "src/autodiff/gradient.h"
#include "src/ir/rewrite.h"
#include "src/ops/control/custom_gradient.h"
#include "src/ops/control/scan.h"
#include "src/ops/parameter.h"
#include "src/ops/registry.h"

namespace weft::transforms {
namespace {

using ir::Builder;
using ir::Function;
using ir::Node;
using ir::Type;
using ir::Value;
using ir::Values;
using ops::Flows;
using ops::Parameter;

Value TangentOf(Builder& b, const Dual& dual) { return dual.tangent ? dual.tangent : ops::FullLike(b, dual.value, 0); }

std::vector<bool> Have(std::span<const Dual> duals) {
  std::vector<bool> have;
  for (const Dual& dual : duals) have.push_back(static_cast<bool>(dual.tangent));
  return have;
}

// Values, then the tangents of those that are flagged.
void Append(Builder& b, std::span<const Dual> duals, const std::vector<bool>& flagged, size_t first, Values* values) {
  for (const Dual& dual : duals) values->push_back(dual.value);
  for (size_t i = 0; i < duals.size(); ++i) {
    if (flagged[first + i]) values->push_back(TangentOf(b, duals[i]));
  }
}

// Results from `values`, those flagged with the tangents that stand behind.
void Take(std::span<const Value> values, size_t count, const std::vector<bool>& has, Duals* results) {
  size_t next = count;
  for (size_t i = 0; i < count; ++i) results->push_back({values[i], has[i] ? values[next++] : Value()});
}

// A body's parameters, group after group, each with the tangents of its own behind: as Region has them they all stand at the end.
struct Interleaved {
  std::vector<Value> parameters;
  Duals duals;

  void Add(std::span<const Value> like, const std::vector<bool>& flagged, size_t first) {
    const size_t begin = duals.size();
    for (const Value& value : like)
      duals.push_back({Parameter(value.type()), {}}), parameters.push_back(duals.back().value);
    for (size_t i = 0; i < like.size(); ++i) {
      if (!flagged[first + i]) continue;
      duals[begin + i].tangent = Parameter(like[i].type());
      parameters.push_back(duals[begin + i].tangent);
    }
  }
  // The region's results at them.
  Values On(const Function& region) const {
    std::vector<Value> arguments;
    for (const Dual& dual : duals) arguments.push_back(dual.value);
    for (const Dual& dual : duals) {
      if (dual.tangent) arguments.push_back(dual.tangent);
    }
    return ir::Inline(region, arguments);
  }
};

}  // namespace

absl::Status Tangents::Walk(Builder& b, const Function& function, std::span<const Dual> arguments, Duals* results) {
  HashMap<const Node*, Duals> found;
  for (size_t i = 0; i < arguments.size(); ++i) found[function.parameters()[i].node.get()] = {arguments[i]};
  const auto now = [&](const Value& value) { return value ? found.at(value.node.get())[value.result] : Dual{}; };
  const auto add = [&](const Node& node) -> absl::Status {
    b.set_location(node.location());
    Duals operands, made;
    for (const Value& operand : node.operands()) operands.push_back(now(operand));
    WEFT_RETURN_IF_ERROR(Add(b, node, operands, &made));
    WEFT_RETURN_IF_ERROR(b.status());
    found[&node] = std::move(made);
    return absl::OkStatus();
  };
  for (const Node* node : function.nodes()) {
    if (!found.contains(node)) WEFT_RETURN_IF_ERROR(add(*node));
  }
  for (const Value& result : function.results()) results->push_back(now(result));
  return absl::OkStatus();
}

absl::StatusOr<const Tangents::Made*> Tangents::Region(const Function& function, const Flags& given,
                                                       const Flags& wanted) {
  for (const auto& made : made_[&function]) {
    if (made->given == given && made->wanted == wanted) return made.get();
  }
  Builder b;
  Duals arguments, results;
  std::vector<Value> parameters, values;
  for (const Value& parameter : function.parameters()) {
    arguments.push_back({Parameter(parameter.type()), {}});
    parameters.push_back(arguments.back().value);
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i]) continue;
    arguments[i].tangent = Parameter(arguments[i].value.type());
    parameters.push_back(arguments[i].tangent);
  }
  WEFT_RETURN_IF_ERROR(Walk(b, function, arguments, &results));
  auto made = std::make_unique<Made>(Made{Ref<const Function>::Share(&function), given, wanted, {}, Have(results)});
  for (const Dual& result : results) values.push_back(result.value);
  for (size_t i = 0; i < results.size(); ++i) {
    made->has[i] = made->has[i] || (i < wanted.size() && wanted[i]);
    if (made->has[i]) values.push_back(TangentOf(b, results[i]));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  made->function = ir::Intern(Function::Create(function.name(), std::move(parameters), std::move(values)));
  return made_[&function].emplace_back(std::move(made)).get();
}

absl::Status Tangents::Add(Builder& b, const Node& node, std::span<const Dual> operands, Duals* results) {
  const auto has_tangent = [](const Dual& dual) { return static_cast<bool>(dual.tangent); };
  if (std::ranges::any_of(operands, has_tangent)) {
    const ir::OpDef* const op = &node.op();
    if (op == &ops::kOp_call) return Call(b, node, operands, results);
    if (op == &ops::kOp_case || op == &ops::kOp_if) return Choice(b, node, operands, results);
    if (op == &ops::kOp_while) return While(b, node, operands, results);
    if (op == &ops::kOp_scan) return Scan(b, node, operands, results);
    if (ops::IsSettled(node)) return Forward(b, node, operands, results);
    if (ops::HasRule(node)) {
      return UserErrorOf(absl::StatusCode::kUnimplemented, "jvp: the function @", node.regions()[0]->name(),
                         " has a custom gradient, whose backward function is for reverse mode");
    }
  }
  Values values;
  for (const Dual& operand : operands) values.push_back(operand.value);
  const Ref<const Node> copy = ir::WithOperands(node, values, node.regions());
  for (uint32_t i = 0; i < node.results().size(); ++i) results->push_back({{copy, i}, {}});
  return std::ranges::any_of(operands, has_tangent) ? Transposed(b, node, operands, results) : absl::OkStatus();
}

// The tangents of a node's results. Backward is linear in the cotangents; the transpose of that is forward.
absl::Status Tangents::Transposed(Builder& b, const Node& node, std::span<const Dual> operands, Duals* results) {
  Builder scratch(node.location());
  Values inner(operands.size());
  std::vector<Value> parameters, arguments, wrt, tangents, outputs, seeds;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].value) continue;
    parameters.push_back(inner[i] = Parameter(operands[i].value.type()));
    arguments.push_back(operands[i].value);
    if (!operands[i].tangent) continue;
    wrt.push_back(inner[i]);
    tangents.push_back(operands[i].tangent);
  }
  const Ref<const Node> copy = ir::CopyNode(node, std::move(inner), node.regions());
  std::vector<uint32_t> flowing;
  for (uint32_t i = 0; i < node.results().size(); ++i) {
    if (!Flows(node.type(i))) continue;
    flowing.push_back(i);
    outputs.push_back({copy, i});
    seeds.push_back(Parameter(node.type(i)));
  }
  std::vector<Value> slopes(wrt.size()), linear, given, found(seeds.size());
  WEFT_RETURN_IF_ERROR(autodiff::Gradients(scratch, outputs, seeds, wrt, slopes));
  for (size_t i = 0; i < wrt.size(); ++i) {
    if (!slopes[i]) continue;
    linear.push_back(slopes[i]);
    given.push_back(Parameter(slopes[i].type()));
    parameters.push_back(given.back());
    arguments.push_back(tangents[i]);
  }
  if (linear.empty()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(autodiff::Gradients(scratch, linear, given, seeds, found));
  WEFT_RETURN_IF_ERROR(scratch.status());
  std::vector<Value> made;
  std::vector<uint32_t> of;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;
    made.push_back(found[i]);
    of.push_back(flowing[i]);
  }
  if (made.empty()) return absl::OkStatus();
  // A value that is linear in the cotangents does not depend on them once it is transposed.
  for (const Value& seed : seeds) {
    parameters.push_back(seed);
    arguments.push_back(ops::Full(b, seed.dtype(), seed.dims(), 0));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  const Values placed = ir::Inline(*Function::Create("tangent", std::move(parameters), std::move(made)), arguments);
  for (size_t i = 0; i < placed.size(); ++i) (*results)[of[i]].tangent = placed[i];
  return absl::OkStatus();
}

absl::Status Tangents::Call(Builder& b, const Node& node, std::span<const Dual> operands, Duals* results) {
  const Function& callee = *node.regions()[0];
  operands = operands.first(callee.parameters().size());
  WEFT_ASSIGN_OR_RETURN(const Made* const made, Region(callee, Have(operands), {}));
  Values values;
  Append(b, operands, made->given, 0, &values);
  const Values found = ops::CallAll(b, node.op(), std::move(values), node.attrs(), {&made->function, 1});
  WEFT_RETURN_IF_ERROR(b.status());
  Take(found, node.results().size(), made->has, results);
  return absl::OkStatus();
}

// A settled function with a rule: what forward gives first.
absl::Status Tangents::Forward(Builder& b, const Node& node, std::span<const Dual> operands, Duals* results) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<size_t> places, ops::ForwardPlaces(node));
  Duals chosen;
  for (const size_t place : places) chosen.push_back(operands[place]);
  WEFT_ASSIGN_OR_RETURN(const Made* const made, Region(*node.regions()[1], Have(chosen), {}));
  Values values;
  Append(b, chosen, made->given, 0, &values);
  const Values found = ops::CallAll(b, ops::kOp_call, std::move(values), {}, {&made->function, 1});
  WEFT_RETURN_IF_ERROR(b.status());
  Take(found, made->has.size(), made->has, results);
  results->resize(node.results().size());
  return absl::OkStatus();
}

// A result has a tangent where that of one branch has: the second pass knows all of them.
absl::Status Tangents::Choice(Builder& b, const Node& node, std::span<const Dual> operands, Duals* results) {
  Flags wanted(node.results().size());
  Values values;
  std::vector<Ref<const Function>> branches;
  for (int pass = 0; pass < 2; ++pass) {
    values = {operands[0].value};
    branches.clear();
    size_t first = 1;
    for (const Ref<const Function>& branch : node.regions()) {
      const auto captures = operands.subspan(first, branch->parameters().size());
      first += captures.size();
      WEFT_ASSIGN_OR_RETURN(const Made* const made, Region(*branch, Have(captures), wanted));
      Append(b, captures, made->given, 0, &values);
      branches.push_back(made->function);
      for (size_t r = 0; r < wanted.size(); ++r) wanted[r] = wanted[r] || made->has[r];
    }
  }
  const Values found = ops::CallAll(b, node.op(), std::move(values), node.attrs(), branches);
  WEFT_RETURN_IF_ERROR(b.status());
  Take(found, node.results().size(), wanted, results);
  return absl::OkStatus();
}

// Carries each tangent beside its value. Where one run of the loop makes a tangent, it is carried from the first run
// on.
absl::Status Tangents::While(Builder& b, const Node& node, std::span<const Dual> operands, Duals* results) {
  const Function &condition = *node.regions()[0], &body = *node.regions()[1];
  const size_t carried = body.results().size(), asks = condition.parameters().size() - carried;
  const auto first = operands.first(carried), asked = operands.subspan(carried, asks),
             captures = operands.subspan(carried + asks, body.parameters().size() - carried);
  Flags given = Have(first);
  const Flags captured = Have(captures);
  given.insert(given.end(), captured.begin(), captured.end());
  const Made* made = nullptr;
  for (bool more = true; more;) {
    const Flags wanted(given.begin(), given.begin() + static_cast<ptrdiff_t>(carried));
    WEFT_ASSIGN_OR_RETURN(made, Region(body, given, wanted));
    more = made->has != wanted;
    std::copy(made->has.begin(), made->has.end(), given.begin());
  }
  Interleaved run, ask;
  const std::span<const Value> parameters = body.parameters();
  run.Add(parameters.first(carried), given, 0);
  run.Add(parameters.subspan(carried), given, carried);
  const Values next = run.On(*made->function);
  ask.Add(condition.parameters().first(carried), given, 0);
  ask.Add(condition.parameters().subspan(carried), Flags(asks), 0);
  std::vector<Value> arguments;
  for (const Dual& dual : ask.duals) arguments.push_back(dual.value);
  const Values goes_on = ir::Inline(condition, arguments);
  const Ref<const Function> functions[] = {
      ir::Intern(Function::Create(condition.name(), std::move(ask.parameters), {goes_on[0]})),
      ir::Intern(Function::Create(body.name(), std::move(run.parameters), {next.begin(), next.end()}))};
  Values values;
  Append(b, first, given, 0, &values);
  for (const Dual& dual : asked) values.push_back(dual.value);
  Append(b, captures, given, carried, &values);
  const Values found = ops::CallAll(b, node.op(), std::move(values), node.attrs(), functions);
  WEFT_RETURN_IF_ERROR(b.status());
  Take(found, carried, given, results);
  return absl::OkStatus();
}

absl::Status Tangents::Scan(Builder& b, const Node& node, std::span<const Dual> operands, Duals* results) {
  const Function& body = *node.regions()[0];
  WEFT_ASSIGN_OR_RETURN(const ops::ScanParts p, ops::PartsOf(node.attrs(), body));
  const auto first = operands.subspan(p.counted, p.carried),
             scanned = operands.subspan(p.counted + p.carried, p.scanned),
             captures = operands.subspan(p.counted + p.carried + p.scanned, p.captures);
  Flags given(p.indexed);
  for (const auto& group : {first, scanned, captures}) {
    const Flags have = Have(group);
    given.insert(given.end(), have.begin(), have.end());
  }
  const auto carried = given.begin() + static_cast<ptrdiff_t>(p.indexed);
  const Made* made = nullptr;
  for (bool more = true; more;) {
    const Flags wanted(carried, carried + static_cast<ptrdiff_t>(p.carried));
    WEFT_ASSIGN_OR_RETURN(made, Region(body, given, wanted));
    more = !std::equal(wanted.begin(), wanted.end(), made->has.begin());
    std::copy_n(made->has.begin(), p.carried, carried);
  }
  Interleaved run;
  const std::span<const Value> parameters = body.parameters();
  run.Add(parameters.first(p.indexed), given, 0);
  run.Add(parameters.subspan(p.indexed, p.carried), given, p.indexed);
  run.Add(parameters.subspan(p.indexed + p.carried, p.scanned), given, p.indexed + p.carried);
  run.Add(parameters.subspan(p.first_capture()), given, p.first_capture());
  // The region gives values, then tangents; a scan what is carried, then slices.
  Duals each;
  Take(run.On(*made->function), body.results().size(), made->has, &each);
  std::vector<Value> next;
  const auto put = [&](std::span<const Dual> duals) {
    for (const Dual& dual : duals) next.push_back(dual.value);
    for (const Dual& dual : duals) {
      if (dual.tangent) next.push_back(dual.tangent);
    }
  };
  put(std::span<const Dual>(each).first(p.carried));
  const size_t all_carried = next.size();
  put(std::span<const Dual>(each).subspan(p.carried));
  const size_t all = next.size();

  Values values;
  if (p.counted != 0) values.push_back(operands[0].value);
  Append(b, first, given, p.indexed, &values);
  const size_t before = values.size();
  Append(b, scanned, given, p.indexed + p.carried, &values);
  const auto all_scanned = static_cast<int64_t>(values.size() - before);
  Append(b, captures, given, p.first_capture(), &values);
  ir::Attrs attrs = node.attrs();
  attrs.set(ops::AttrPosition<ops::kScanAttrs, "carried">(), static_cast<int64_t>(all_carried));
  attrs.set(ops::AttrPosition<ops::kScanAttrs, "scanned">(), all_scanned);
  const Ref<const Function> function =
      ir::Intern(Function::Create(body.name(), std::move(run.parameters), std::move(next)));
  const Values found = ops::CallAll(b, node.op(), std::move(values), std::move(attrs), {&function, 1});
  WEFT_RETURN_IF_ERROR(b.status());
  const std::span<const Value> made_of(found.data(), found.size());
  const Flags &has = made->has, carried_has(has.begin(), has.begin() + static_cast<ptrdiff_t>(p.carried)),
              sliced_has(has.begin() + static_cast<ptrdiff_t>(p.carried), has.end());
  Take(made_of, p.carried, carried_has, results);
  Take(made_of.subspan(all_carried), p.sliced, sliced_has, results);
  if (p.kept) Take(made_of.subspan(all), p.carried, carried_has, results);
  return absl::OkStatus();
}

}  // namespace weft::transforms
