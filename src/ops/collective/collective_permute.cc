// collective_permute: what another process sends to this one; on one device what it sends itself.
#include "src/ir/stablehlo.h"
#include "src/ops/families.h"

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
  for (int64_t i = 0; i < pairs.count(); ++i) {
    if (pairs.GetInt(i) == 0) continue;
    return UserError("source_target_pairs names process ", pairs.GetInt(i),
                     "; a program has one replica and one partition, process 0, in this version");
  }
  if (pairs.dims()[0] > 1) return UserError("source_target_pairs names process 0 ", pairs.dims()[0], " times");
  results->push_back(*call.operands[0]);
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  const Value& x = call.operands[0];
  results[0] = Attr<kAttrs, "source_target_pairs">(call.attrs).count() != 0 ? x : FullLike(call.b, x, 0);
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  ShloAttrs attrs = {{"source_target_pairs", ShloDense(Attr<kAttrs, "source_target_pairs">(a))}};
  if (HasAttr<kAttrs, "handle">(a)) {
    attrs.emplace_back("channel_handle",
                       absl::StrCat("#stablehlo.channel_handle<handle = ", Attr<kAttrs, "handle">(a),
                                    ", type = ", HasAttr<kAttrs, "type">(a) ? Attr<kAttrs, "type">(a) : 1, ">"));
  }
  writer.Emit("collective_permute", std::move(attrs));
}

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
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kStableHloComposite,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
