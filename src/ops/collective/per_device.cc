// weft.per_device: a function that each device of a mesh runs on its parts of the operands. JAX's shard_map.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/ir/mesh.h"
#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/collective/processes.h"
#include "src/ops/families.h"
#include "src/ops/parameter.h"
#include "src/ops/reducer.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {.name = "operands",
     .types = kAnyType,
     .doc = "whole values, then what the function captures, of which each device has all",
     .optional = true,
     .variadic = true,
     .group = 0}};
constexpr AttrDef kAttrs[] = {
    {"mesh", AttrType::kString, "axes and sizes: data=2,model=2", true},
    {"in_specs", AttrType::kString, "how operands are cut, joined by ';'; those behind the last are whole", true},
    {"out_specs", AttrType::kString, "how results are put together, joined by ';'", true}};
constexpr RegionDef kRegions[] = {{"body", "a device's parts of the operands in, its parts of the results out"}};
constexpr std::string_view kResults[] = {"results"};
constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions},
                              {Part::kExample, Reason::kCarriesFunctions},
                              {Part::kReference, Reason::kExpands}};

std::vector<std::string> Split(std::string_view specs) { return absl::StrSplit(specs, ';'); }
std::string WholeSpec(size_t rank) { return absl::StrJoin(std::vector<std::string_view>(rank, "-"), ","); }

// The sharding that text i of a list says of a value of this type, or whole where there is no such text.
absl::StatusOr<Sharding> SpecAt(const Mesh& mesh, std::span<const std::string> specs, size_t i, const Type& type) {
  if (i >= specs.size()) return Sharding();
  WEFT_RETURN_IF_ERROR(ShardingWords(specs[i], type.rank()).status());
  return ParseSharding(specs[i], mesh);
}

// Pieces along dimension d.
int64_t Pieces(const Mesh& mesh, const Sharding& sharding, size_t d) {
  int64_t pieces = 1;
  if (d >= sharding.dimensions.size()) return pieces;
  for (const uint32_t axis : sharding.dimensions[d].axes) pieces *= mesh.axes[axis].size;
  return pieces;
}

// Axes that cut nothing: along them each device has a copy.
std::vector<uint32_t> CopiesAlong(const Mesh& mesh, const Sharding& sharding) {
  std::vector<uint32_t> along;
  for (uint32_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const bool cuts = std::ranges::any_of(sharding.dimensions, [axis](const Sharding::Dimension& dimension) {
      return std::ranges::find(dimension.axes, axis) != dimension.axes.end();
    });
    if (!cuts) along.push_back(axis);
  }
  return along;
}

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const Mesh mesh, ParseMesh(Attr<kAttrs, "mesh">(call.attrs)));
  const std::vector<std::string> in = Split(Attr<kAttrs, "in_specs">(call.attrs)),
                                 out = Split(Attr<kAttrs, "out_specs">(call.attrs));
  const Function& body = *call.regions[0];
  const auto cuts = [](const Node* node) { return &node->op() == &kOp_shard; };
  for (const Function* each : CalleesFirst(body)) {
    if (std::ranges::none_of(each->nodes(), cuts)) continue;
    return UserError("the function @", each->name(),
                     " has a weft_shard; what each device runs has parts, which lie on that device alone");
  }
  size_t given = call.operands.size();
  while (given > 0 && call.operands[given - 1] == nullptr) --given;
  if (body.parameters().size() != given) {
    return UserError("the function @", body.name(), " has ", body.parameters().size(), " parameters; there are ", given,
                     " operands");
  }
  for (size_t i = 0; i < given; ++i) {
    const Type& whole = *call.operands[i];
    WEFT_ASSIGN_OR_RETURN(const Sharding sharding, SpecAt(mesh, in, i, whole));
    WEFT_RETURN_IF_ERROR(Check(mesh, sharding, whole, absl::StrCat("operand ", i)));
    const Type part = Type::Tensor(whole.dtype, BoxOf(mesh, sharding, whole.dims, 0).sizes);
    const Type& wanted = body.parameters()[i].type();
    if (part == wanted) continue;
    return UserError("parameter ", i, " of the function @", body.name(), " is ", ShortType(wanted),
                     "; a device's part of the operand ", ShortType(whole), " is ", ShortType(part));
  }
  if (body.results().empty() || out.size() != body.results().size()) {
    return UserError("the function @", body.name(), " has ", body.results().size(), " results; output_specs says how ",
                     out.size(), " are put together");
  }
  for (size_t r = 0; r < out.size(); ++r) {
    Type type = body.results()[r].type();
    WEFT_ASSIGN_OR_RETURN(const Sharding sharding, SpecAt(mesh, out, r, type));
    for (size_t d = 0; d < type.rank(); ++d) type.dims[d] *= Pieces(mesh, sharding, d);
    if (!CheckedCount(type.dims).has_value()) return UserError("result ", r, " has too many elements");
    WEFT_RETURN_IF_ERROR(Check(mesh, sharding, type, absl::StrCat("result ", r)));
    results->push_back(std::move(type));
  }
  return absl::OkStatus();
}

// The gradient of what a device computes, on each device. If several devices have one result, each counts for its
// share; if several have one operand, its gradient is the sum of theirs.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Attrs& a = call.node.attrs();
  const Function& body = *call.node.regions()[0];
  WEFT_ASSIGN_OR_RETURN(const Mesh mesh, ParseMesh(Attr<kAttrs, "mesh">(a)));
  std::vector<std::string> in = Split(Attr<kAttrs, "in_specs">(a));
  const std::vector<std::string> out = Split(Attr<kAttrs, "out_specs">(a));
  const size_t count = body.parameters().size();
  for (size_t i = in.size(); i < count; ++i) in.push_back(WholeSpec(body.parameters()[i].type().rank()));
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> gradient, call.region_gradient(body, call.wanted.first(count)));
  std::vector<Value> parameters = ParametersLike(gradient->parameters());
  std::vector<std::string> specs(in.begin(), in.begin() + static_cast<ptrdiff_t>(count)), back;
  Values operands(call.operands.begin(), call.operands.begin() + static_cast<ptrdiff_t>(count)),
      inside(parameters.begin(), parameters.end());
  Builder b(call.b.location());
  for (size_t r = 0, next = count; r < call.results.size(); ++r) {
    if (!CarriesGradient(call.results[r].dtype())) continue;
    operands.push_back(call.cotangents[r] ? call.cotangents[r] : FullLike(call.b, call.results[r], 0));
    specs.push_back(out[r]);
    WEFT_ASSIGN_OR_RETURN(const Sharding sharding, SpecAt(mesh, out, r, call.results[r].type()));
    double copies = 1;
    for (const uint32_t axis : CopiesAlong(mesh, sharding)) copies *= static_cast<double>(mesh.axes[axis].size);
    if (copies > 1) inside[next] = Div(b, inside[next], FullLike(b, inside[next], copies));
    ++next;
  }
  const Values found = Inline(*gradient, std::vector<Value>(inside.begin(), inside.end()));
  std::vector<Value> results;
  for (size_t i = 0; i < count; ++i) {
    if (!call.wanted[i]) continue;
    WEFT_ASSIGN_OR_RETURN(const Sharding sharding, SpecAt(mesh, in, i, call.operands[i].type()));
    const std::vector<uint32_t> along = CopiesAlong(mesh, sharding);
    Value sum = found[results.size()];
    if (!along.empty())
      sum = Call(b, kOp_all_reduce, {sum}, {GroupsAlong(mesh, along), static_cast<int64_t>(Reducer::kSum)});
    results.push_back(std::move(sum));
    back.push_back(in[i]);
  }
  WEFT_RETURN_IF_ERROR(b.status());
  const Ref<const Function> function =
      Intern(Function::Create(gradient->name(), std::move(parameters), std::move(results)));
  const Values made =
      CallAll(call.b, kOp_per_device, std::move(operands),
              {Attr<kAttrs, "mesh">(a), absl::StrJoin(specs, ";"), absl::StrJoin(back, ";")}, {&function, 1});
  WEFT_RETURN_IF_ERROR(call.b.status());
  for (size_t i = 0, next = 0; i < count; ++i) {
    if (call.wanted[i]) grads[i] = made[next++];
  }
  return absl::OkStatus();
}

// Each device has all examples of its part.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  const Attrs& a = call.node.attrs();
  const Function& body = *call.node.regions()[0];
  const size_t count = body.parameters().size();
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> all, call.region_batch(body, call.batched.first(count), {}));
  const auto longer = [](std::string* spec) { *spec = spec->empty() ? "-" : absl::StrCat("-,", *spec); };
  std::vector<std::string> in = Split(Attr<kAttrs, "in_specs">(a)), out = Split(Attr<kAttrs, "out_specs">(a));
  for (size_t i = 0; i < in.size() && i < count; ++i) {
    if (call.batched[i]) longer(&in[i]);
  }
  for (size_t r = 0; r < out.size(); ++r) {
    if (HasExamples(all->results()[r].type(), body.results()[r].type())) longer(&out[r]);
  }
  Values operands(call.operands.begin(), call.operands.begin() + static_cast<ptrdiff_t>(count));
  std::ranges::move(CallAll(call.b, kOp_per_device, std::move(operands),
                            {Attr<kAttrs, "mesh">(a), absl::StrJoin(in, ";"), absl::StrJoin(out, ";")}, {&all, 1}),
                    results.begin());
  return absl::OkStatus();
}

std::string Lists(const Mesh& mesh, std::span<const Sharding> shardings, std::span<const Type> types) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < types.size(); ++i) {
    std::string text = ShloSharding(mesh, shardings[i], types[i].rank());
    texts.push_back(text.substr(std::string_view("#sdy.sharding").size()));
  }
  return absl::StrCat("#sdy.sharding_per_value<[", absl::StrJoin(texts, ", "), "]>");
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Mesh& mesh = writer.participants().mesh;
  const absl::StatusOr<Mesh> own = ParseMesh(Attr<kAttrs, "mesh">(node.attrs()));
  if (!own.ok() || !(mesh.axes == own->axes)) {
    return writer.Fail(UserError("per_device is for the mesh ", Attr<kAttrs, "mesh">(node.attrs()),
                                 "; the program's is ", mesh.none() ? "none" : ToString(mesh)));
  }
  const auto specs = [&](std::string_view text, std::span<const Type> types) -> absl::StatusOr<std::string> {
    const std::vector<std::string> all = Split(text);
    std::vector<Sharding> shardings;
    for (size_t i = 0; i < types.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(shardings.emplace_back(), SpecAt(mesh, all, i, types[i]));
    }
    return Lists(mesh, shardings, types);
  };
  std::vector<Type> operands;
  for (const Value& operand : node.operands()) operands.push_back(operand.type());
  const absl::StatusOr<std::string> in = specs(Attr<kAttrs, "in_specs">(node.attrs()), operands),
                                    out = specs(Attr<kAttrs, "out_specs">(node.attrs()), node.results());
  if (!in.ok() || !out.ok()) return writer.Fail(in.ok() ? out.status() : in.status());
  std::vector<std::string> axes;
  for (const Mesh::Axis& axis : mesh.axes) axes.push_back(ShloText(axis.name));
  writer.Emit("sdy.manual_computation",
              {{"in_shardings", *in},
               {"out_shardings", *out},
               {"manual_axes", absl::StrCat("#sdy<manual_axes{", absl::StrJoin(axes, ", "), "}>")}},
              writer.Body(*node.regions()[0], {}, "sdy.return"));
}

}  // namespace

AttrValue GroupsAlong(const Mesh& mesh, std::span<const uint32_t> along) {
  int64_t width = 1;
  for (const uint32_t axis : along) width *= mesh.axes[axis].size;
  // Places in row-major order: those of one group differ along these axes alone, and stand in the order that these have in the list.
  const int64_t size = mesh.size();
  std::vector<int64_t> strides(mesh.axes.size());
  for (size_t i = mesh.axes.size(), stride = 1; i-- > 0; stride *= static_cast<size_t>(mesh.axes[i].size))
    strides[i] = static_cast<int64_t>(stride);
  HostTensor literal(DType::kI64, {size / width, width});
  int64_t row = 0;
  for (int64_t at = 0; at < size; ++at) {
    const bool first =
        std::ranges::all_of(along, [&](uint32_t axis) { return at / strides[axis] % mesh.axes[axis].size == 0; });
    if (!first) continue;
    for (int64_t k = 0; k < width; ++k) {
      int64_t member = at, rest = k;
      for (size_t i = along.size(); i-- > 0; rest /= mesh.axes[along[i]].size)
        member += rest % mesh.axes[along[i]].size * strides[along[i]];
      literal.SetInt(row * width + k, member);
    }
    ++row;
  }
  return Ref<const Literal>(MakeRef<Literal>(std::move(literal)));
}

constinit const OpDef kOp_per_device = {
    .name = "weft.per_device",
    .c_name = "per_device",
    .doc =
        "What each device of a mesh computes of its parts of the operands, put together: the function sees parts, and talks to "
        "other devices by collectives. The C function is weft_per_device.",
    .operands = kOperands,
    .attrs = kAttrs,
    .regions = kRegions,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .stablehlo = StableHlo,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
