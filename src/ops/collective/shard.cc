// shard: x as it is, and a word on how it lies on the mesh of the program that has it.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/ir/mesh.h"
#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {
    {"spec", AttrType::kString, "a word a dimension: axes of the mesh joined by '+', or '-' for whole", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(ShardingWords(Attr<kAttrs, "spec">(call.attrs), call.operands[0]->rank()).status());
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

// Where one process has all of every value, there is nothing to say.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  results[0] = call.operands[0];
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  if (call.wanted[0]) grads[0] = Call(call.b, kOp_shard, {call.cotangents[0]}, call.node.attrs());
  return absl::OkStatus();
}

// The dimension of the examples is whole.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  const std::string& spec = Attr<kAttrs, "spec">(call.node.attrs());
  Attrs attrs = call.node.attrs();
  attrs.set(AttrPosition<kAttrs, "spec">(), spec.empty() ? "-" : absl::StrCat("-,", spec));
  results[0] = Call(call.b, kOp_shard, {call.operands[0]}, std::move(attrs));
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  call.results[0] = *call.operands[0];
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Mesh& mesh = writer.participants().mesh;
  const Value& x = node.operands()[0];
  if (mesh.none()) return writer.Alias(writer.Name(x));
  const absl::StatusOr<Sharding> sharding = ParseSharding(Attr<kAttrs, "spec">(node.attrs()), mesh);
  if (!sharding.ok()) return writer.Fail(sharding.status());
  if (absl::Status status = Check(mesh, *sharding, x.type(), "an operand of shard"); !status.ok()) {
    return writer.Fail(std::move(status));
  }
  writer.Emit("sdy.sharding_constraint", {{"sharding", ShloSharding(mesh, *sharding, x.type().rank())}});
}

constexpr Sample kSamples[] = {{"T[2,3] spec=x,-"}, {"T[4] spec=data+model"}, {"T[131,2,2] spec=-,-,y"}};

}  // namespace

constinit const OpDef kOp_shard = {
    .name = "weft.shard",
    .c_name = "shard",
    .kind = Kind::kComposite,
    .doc = "x itself, cut along axes of the mesh that it is on.",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .batching = Batching,
    .lowering = Lowering::kExpand,
    .reference = Reference,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoExample,
    .exported = false,
    .rounds_once = true,
    .planes = EachPlane,
    .on_bytes = true,
};

}  // namespace weft::ops
