// collective_permute: what another process sends to this one; on one device what it sends itself.
#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/collective/processes.h"
#include "src/ops/families.h"
#include "src/runtime/hash_map.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"operand", kAnyType, "what this process sends"}};
constexpr AttrDef kAttrs[] = {{"source_target_pairs", AttrType::kLiteral, "i64 [pairs, 2]: who sends to whom", true},
                              {"handle", AttrType::kInt, "of the channel; absent or 0: none"},
                              {"type", AttrType::kInt, "of the channel"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const HostTensor& pairs = Attr<kAttrs, "source_target_pairs">(call.attrs);
  if (pairs.dtype() != DType::kI64 || pairs.dims().size() != 2 || pairs.dims()[1] != 2) {
    return UserError("source_target_pairs is ", ShortType(Type::Tensor(pairs.dtype(), pairs.dims())),
                     "; it must be i64 [pairs, 2]");
  }
  // Counts how often each process is a source, and a target.
  HashMap<int64_t, int64_t> times[2];
  for (int64_t i = 0; i < pairs.count(); ++i) {
    const int64_t process = pairs.GetInt(i);
    if (const int64_t n = ++times[i % 2][process]; n > 1) {
      return UserError("source_target_pairs names process ", process, " ", n, " times",
                       i % 2 == 0 ? " as a source" : " as a target");
    }
  }
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  WEFT_RETURN_IF_ERROR(CheckProcesses(call.op, call.attrs, 1));  // others are never expanded
  const Value& x = call.operands[0];
  results[0] = Attr<kAttrs, "source_target_pairs">(call.attrs).count() != 0 ? x : FullLike(call.b, x, 0);
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  ShloAttrs attrs = {{"source_target_pairs", ShloDense(Attr<kAttrs, "source_target_pairs">(a))}};
  if (std::string channel = ChannelOf(node, writer); !channel.empty()) {
    attrs.emplace_back("channel_handle", std::move(channel));
  }
  writer.Emit("collective_permute", std::move(attrs));
}

// Back the way it came.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const HostTensor& pairs = Attr<kAttrs, "source_target_pairs">(call.node.attrs());
  HostTensor turned(pairs);
  for (int64_t i = 0; i < pairs.count(); ++i) turned.SetInt(i, pairs.GetInt(i ^ 1));
  Attrs attrs = call.node.attrs();
  attrs.set(AttrPosition<kAttrs, "source_target_pairs">(), Ref<const Literal>(MakeRef<Literal>(std::move(turned))));
  if (call.wanted[0]) grads[0] = Call(call.b, call.node.op(), {call.cotangents[0]}, std::move(attrs));
  return absl::OkStatus();
}

constexpr Absent kAbsent[] = {{Part::kReference, Reason::kExpands}, {Part::kExample, Reason::kFromStableHlo}};
constexpr Sample kSamples[] = {{"T[2,3] source_target_pairs=i64[1,2]{0,0}"}, {"T[131] source_target_pairs=i64[0,2]{}"}};

}  // namespace

constinit const OpDef kOp_collective_permute = {
    .name = "collective_permute",
    .c_name = "collective_permute",
    .kind = Kind::kComposite,
    .doc = "What another process sends to this one, zeros where none does. One process sends to itself or not at all.",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expand,
    .batching = BatchLeading,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
