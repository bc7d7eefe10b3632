// weft.per_device as it runs. Where one process stands for all devices, the function is written out once for each of them, side by
// side, and a collective becomes what it computes of all of them: no device waits for another, and none can fail to come. Where each
// device has a process of its own, nothing changes but that the process gets its number as an operand: plugins refuse partition_id.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/ops/collective/processes.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/parameter.h"
#include "src/ops/registry.h"
#include "src/passes/device_number.h"
#include "src/passes/passes.h"

namespace weft::passes {
namespace {

using ir::Function;
using ir::Node;
using ir::Value;
using ir::Values;
using ops::OfProcesses;
using Regions = std::vector<Ref<const Function>>;

bool Talks(const Function& function) {
  for (const Function* each : ir::CalleesFirst(function)) {
    for (const Node* node : each->nodes()) {
      if (ops::IsCollective(node->op())) return true;
    }
  }
  return false;
}

// A value of each process to values one after the other.
void Append(const Values& all, std::vector<Value>* to) { to->insert(to->end(), all.begin(), all.end()); }

// The same function of several processes at once.
class SideBySide {
 public:
  SideBySide(ir::Builder& b, size_t processes) : b_(b), processes_(processes) {}

  // Parameters and results: one Values for each, with a value of each process.
  absl::StatusOr<OfProcesses> Run(const Function& function, const OfProcesses& parameters) {
    HashMap<const Node*, OfProcesses> known;
    for (size_t i = 0; i < parameters.size(); ++i) known[function.parameters()[i].node.get()] = {parameters[i]};
    for (const Node* node : function.nodes()) {
      if (known.contains(node)) continue;
      OfProcesses operands;
      for (const Value& operand : node->operands()) {
        operands.push_back(operand ? known.at(operand.node.get())[operand.result] : Values(processes_));
      }
      b_.set_location(node->location());
      WEFT_ASSIGN_OR_RETURN(known[node], One(*node, operands));
      WEFT_RETURN_IF_ERROR(b_.status());
    }
    OfProcesses results;
    for (const Value& result : function.results()) results.push_back(known.at(result.node.get())[result.result]);
    return results;
  }

 private:
  absl::StatusOr<OfProcesses> One(const Node& node, const OfProcesses& operands) {
    if (ops::IsCollective(node.op())) return ops::Together(b_, node, operands, processes_);
    if (std::ranges::any_of(node.regions(), [](const Ref<const Function>& region) { return Talks(*region); })) {
      if (&node.op() == &ops::kOp_while) return Loop(node, operands);
      if (&node.op() == &ops::kOp_case) return Branches(node, operands);
      return UserErrorOf(absl::StatusCode::kUnimplemented, "a collective in a function that ", node.op().c_name,
                         " carries; loops and branches may have some");
    }
    OfProcesses results(node.results().size(), Values(processes_));
    for (size_t p = 0; p < processes_; ++p) {
      Values own;
      for (const Values& operand : operands) own.push_back(operand[p]);
      const Values made = b_.EmitAll(node.op(), std::move(own), node.attrs(), node.regions());
      for (size_t r = 0; r < results.size() && b_.ok(); ++r) results[r][p] = made[r];
    }
    return results;
  }

  // A function of `inputs` for all processes: what is in `types` once for each.
  absl::StatusOr<Ref<const Function>> Wide(const Function& function, bool first_alone) {
    std::vector<Value> parameters;
    OfProcesses shares;
    for (const Value& parameter : function.parameters()) {
      Values& share = shares.emplace_back();
      for (size_t p = 0; p < processes_; ++p) share.push_back(ops::Parameter(parameter.type()));
      Append(share, &parameters);
    }
    ir::Builder b(b_.location());
    WEFT_ASSIGN_OR_RETURN(const OfProcesses made, SideBySide(b, processes_).Run(function, shares));
    WEFT_RETURN_IF_ERROR(b.status());
    std::vector<Value> results;
    for (const Values& result : made) {
      if (first_alone) {
        results.push_back(result[0]);
      } else {
        Append(result, &results);
      }
    }
    return Function::Create(function.name(), std::move(parameters), std::move(results));
  }

  OfProcesses Apart(const Values& made, size_t count) const {
    OfProcesses results;
    for (size_t r = 0; r < count; ++r) {
      const auto first = made.begin() + static_cast<ptrdiff_t>(r * processes_);
      results.emplace_back(first, first + static_cast<ptrdiff_t>(processes_));
    }
    return results;
  }

  // All go on as long as the first does: a process that talks to others in a loop runs it as often as they.
  absl::StatusOr<OfProcesses> Loop(const Node& node, const OfProcesses& operands) {
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> condition, Wide(*node.regions()[0], /*first_alone=*/true));
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> body, Wide(*node.regions()[1], /*first_alone=*/false));
    std::vector<Value> all;
    for (const Values& operand : operands) Append(operand, &all);
    const Regions regions = {condition, body};
    const Values made = b_.EmitAll(node.op(), Values(all.begin(), all.end()), node.attrs(), regions);
    WEFT_RETURN_IF_ERROR(b_.status());
    return Apart(made, node.results().size());
  }

  // All take the branch of the first.
  absl::StatusOr<OfProcesses> Branches(const Node& node, const OfProcesses& operands) {
    Regions regions;
    for (const Ref<const Function>& branch : node.regions()) {
      WEFT_ASSIGN_OR_RETURN(regions.emplace_back(), Wide(*branch, /*first_alone=*/false));
    }
    std::vector<Value> all = {operands[0][0]};
    for (size_t i = 1; i < operands.size(); ++i) {
      if (operands[i][0]) Append(operands[i], &all);
    }
    const Values made = b_.EmitAll(node.op(), Values(all.begin(), all.end()), node.attrs(), regions);
    WEFT_RETURN_IF_ERROR(b_.status());
    return Apart(made, node.results().size());
  }

  ir::Builder& b_;
  const size_t processes_;
};

// How the operands and results of a weft.per_device lie.
struct Plan {
  ir::Mesh mesh;
  std::vector<ir::Sharding> in, out;
};

absl::StatusOr<Plan> PlanOf(const Node& node) {
  const ops::PerDeviceAttrs attrs{node.attrs()};
  Plan plan;
  WEFT_ASSIGN_OR_RETURN(plan.mesh, ir::ParseMesh(attrs.mesh()));
  const std::vector<std::string> in = absl::StrSplit(attrs.in_specs(), ';'),
                                 out = absl::StrSplit(attrs.out_specs(), ';');
  plan.in.resize(node.operands().size());
  for (size_t i = 0; i < std::min(in.size(), plan.in.size()); ++i) {
    WEFT_ASSIGN_OR_RETURN(plan.in[i], ir::ParseSharding(in[i], plan.mesh));
  }
  for (const std::string& spec : out) {
    WEFT_ASSIGN_OR_RETURN(plan.out.emplace_back(), ir::ParseSharding(spec, plan.mesh));
  }
  return plan;
}

Value PartOf(ir::Builder& b, const Value& x, const ir::Box& box) {
  if (box.sizes == x.dims()) return x;
  ir::Ints ends = ops::ToInts(box.starts);
  for (size_t d = 0; d < ends.size(); ++d) ends[d] += box.sizes[d];
  const ir::Ints strides(ends.size(), 1);
  return ops::Slice(b, x, ops::ToInts(box.starts), std::move(ends), strides);
}

// Parts put together, one dimension after the other, from the last on. `at`: the part that begins at these indices.
Value Joined(ir::Builder& b, const ir::Mesh& mesh, const ir::Sharding& sharding, const Values& parts,
             const ir::Type& whole) {
  // Says which process's part begins where: of copies, the first process's.
  std::vector<std::pair<Dims, Value>> pieces;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (ir::IsFirstCopy(mesh, sharding, static_cast<int64_t>(p))) {
      pieces.emplace_back(ir::BoxOf(mesh, sharding, whole.dims, static_cast<int64_t>(p)).starts, parts[p]);
    }
  }
  for (size_t d = whole.dims.size(); d-- > 0;) {
    std::ranges::stable_sort(pieces, [d](const auto& x, const auto& y) {
      return std::lexicographical_compare(x.first.begin(), x.first.begin() + static_cast<ptrdiff_t>(d), y.first.begin(),
                                          y.first.begin() + static_cast<ptrdiff_t>(d)) ||
             (std::equal(x.first.begin(), x.first.begin() + static_cast<ptrdiff_t>(d), y.first.begin()) &&
              x.first[d] < y.first[d]);
    });
    std::vector<std::pair<Dims, Value>> joined;
    for (size_t i = 0; i < pieces.size();) {
      Values row;
      const Dims at = pieces[i].first;
      for (;
           i < pieces.size() && std::equal(at.begin(), at.begin() + static_cast<ptrdiff_t>(d), pieces[i].first.begin());
           ++i)
        row.push_back(pieces[i].second);
      joined.emplace_back(
          at, row.size() == 1 ? row[0] : ops::Call(b, ops::kOp_concatenate, std::move(row), {static_cast<int64_t>(d)}));
    }
    pieces = std::move(joined);
  }
  return pieces[0].second;
}

absl::StatusOr<Values> WrittenOut(ir::Builder& b, const Node& node, const Values& operands, const Function& body) {
  WEFT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(node));
  const auto processes = static_cast<size_t>(plan.mesh.size());
  // Nothing but primitives, and collectives as they are: loops and branches among them are taken apart.
  ir::Module module;
  // A body that asks for its device's number gets it as an operand: devices then take branches of their own, unless they talk to others there.
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> numbered, NumberedBody(body, plan.mesh.size()));
  module.functions.push_back(numbered != nullptr ? numbered : ir::CopyFunction(body));
  module.participants.partitions = static_cast<uint32_t>(std::max<size_t>(processes, 2));
  if (Talks(module.main())) {
    WEFT_ASSIGN_OR_RETURN(module, ExpandComposites(module, {}));
  }
  OfProcesses parts;
  for (size_t i = 0; i < operands.size(); ++i) {
    Values& part = parts.emplace_back();
    for (size_t p = 0; p < processes; ++p) {
      part.push_back(
          PartOf(b, operands[i], ir::BoxOf(plan.mesh, plan.in[i], operands[i].dims(), static_cast<int64_t>(p))));
    }
  }
  if (numbered != nullptr) {
    Values& numbers = parts.emplace_back();
    for (size_t p = 0; p < processes; ++p) numbers.push_back(ops::Full(b, DType::kU32, {}, static_cast<double>(p)));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  WEFT_ASSIGN_OR_RETURN(const OfProcesses made, SideBySide(b, processes).Run(module.main(), parts));
  Values results;
  for (size_t r = 0; r < made.size(); ++r) {
    results.push_back(Joined(b, plan.mesh, plan.out[r], made[r], node.type(static_cast<uint32_t>(r))));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return results;
}

}  // namespace

absl::StatusOr<ir::Module> UnfoldDevices(const ir::Module& module, const PipelineOptions&) {
  const bool alone = module.participants.alone();
  absl::Status status;
  const auto rule = [&](const ir::RewriteCall& call) -> Values {
    if (&call.node.op() != &ops::kOp_per_device || !status.ok()) return {};
    const Function& body = *call.regions[0];
    Values given;
    for (const Value& operand : call.operands) {
      if (operand) given.push_back(operand);
    }
    absl::StatusOr<Values> results =
        alone ? WrittenOut(call.b, call.node, given, body) : WithDeviceNumber(call.b, call.node, given, body);
    status.Update(results.status());
    return results.ok() ? *std::move(results) : Values();
  };
  WEFT_ASSIGN_OR_RETURN(ir::Module result, ir::Rewrite(module, rule));
  WEFT_RETURN_IF_ERROR(status);
  return result;
}

}  // namespace weft::passes
