// See text_on_mesh.h.
#include "src/c_api/text_on_mesh.h"

#include <algorithm>

#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/ops/collective/processes.h"
#include "src/ops/parameter.h"
#include "src/ops/registry.h"
#include "src/stablehlo/read.h"

namespace weft::c_api {
namespace {

using ir::Mesh;
using ir::Sharding;
using ir::Value;

const lazy::DeviceMesh* MeshFor(const Context& context) {
  const lazy::DeviceMesh* const mesh =
      context.frame() != nullptr ? &context.frame()->place.mesh : context.engine().mesh();
  return mesh == nullptr || mesh->alone() ? nullptr : mesh;
}

bool HasAxes(const Mesh& mesh, const Mesh& wanted) {
  return std::ranges::all_of(
      wanted.axes, [&](const Mesh::Axis& axis) { return std::ranges::find(mesh.axes, axis) != mesh.axes.end(); });
}

// The value cut as the text says of it; what it leaves open altogether stays as it is.
Value Cut(ir::Builder& b, const Mesh& mesh, const std::vector<Sharding>& shardings, size_t i, const Value& x) {
  if (i >= shardings.size() || !x.type().is_tensor()) return x;
  Sharding sharding = shardings[i];
  const bool open = std::ranges::any_of(sharding.dimensions, &Sharding::Dimension::open);
  for (Sharding::Dimension& dimension : sharding.dimensions) dimension.open = false;
  if (open && sharding.whole()) return x;
  return ops::Call(b, ops::kOp_shard, {x}, {ir::ToString(mesh, sharding, x.dims().size())});
}

// Values that are recorded on a mesh are whole values; a collective belongs into the body of each device.
absl::Status RefuseBare(const ir::Function& main) {
  const auto unlike = [](const ir::Function& function) {
    return std::ranges::none_of(function.nodes(), [](const ir::Node* node) { return ops::IsCollective(node->op()); });
  };
  std::vector<const ir::Function*> open = {&main};
  HashSet<const ir::Function*> seen = {&main};
  while (!open.empty()) {
    const ir::Function& function = *open.back();
    open.pop_back();
    if (!unlike(function)) {
      return UserErrorOf(absl::StatusCode::kUnimplemented, "the function @", function.name(),
                         " has a collective outside of sdy.manual_computation, in a program of several partitions");
    }
    for (const ir::Node* node : function.nodes()) {
      if (&node->op() == &ops::kOp_per_device) continue;
      for (const Ref<const ir::Function>& region : node->regions()) {
        if (seen.insert(region.get()).second) open.push_back(region.get());
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ir::Module> WithShards(ir::Module module) {
  const ir::Participants who = std::exchange(module.participants, {});
  const ir::Function& main = module.main();
  WEFT_RETURN_IF_ERROR(RefuseBare(main));
  if (who.mesh.none()) return module;
  ir::Builder b;
  std::vector<Value> parameters = ops::ParametersLike(main.parameters()), arguments, results;
  for (size_t i = 0; i < parameters.size(); ++i) {
    arguments.push_back(Cut(b, who.mesh, who.parameters, i, parameters[i]));
  }
  const ir::Values made = ir::Inline(main, arguments);
  for (size_t i = 0; i < made.size(); ++i) results.push_back(Cut(b, who.mesh, who.results, i, made[i]));
  WEFT_RETURN_IF_ERROR(b.status());
  module.functions[0] = ir::Function::Create(main.name(), std::move(parameters), std::move(results),
                                             {main.parameter_infos().begin(), main.parameter_infos().end()});
  return module;
}

}  // namespace

absl::StatusOr<ir::Module> ReadTextFor(const Context& context, std::string_view text) {
  const lazy::DeviceMesh* const mesh = MeshFor(context);
  const auto alone = [&] { return stablehlo::ReadStableHlo(text, {.custom = &context.custom()}); };
  if (mesh == nullptr) return alone();
  WEFT_ASSIGN_OR_RETURN(ir::Module module,
                        stablehlo::ReadStableHlo(text, {.custom = &context.custom(), .alone = false}));
  const ir::Participants& who = module.participants;
  if (who.partitions > 1 && who.partitions != mesh->axes().size()) {
    return UserError("the program is of ", who.partitions, " partitions; ", mesh->name(), " has ", mesh->axes().size(),
                     " devices");
  }
  if (who.replicas > 1 || !HasAxes(mesh->axes(), who.mesh)) return alone();
  return WithShards(std::move(module));
}

}  // namespace weft::c_api
