// partition_id and replica_id: which process this is, the only one.
#include "src/ir/stablehlo.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

absl::Status Infer(const InferCall&, Types* results) {
  results->push_back(Type::Scalar(DType::kU32));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  results[0] = Constant(call.b, HostTensor(DType::kU32, {}));
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) { writer.Emit(node.op().name); }

constexpr Sample kSamples[] = {{""}};
constexpr Absent kAbsent[] = {{Part::kGradient, Reason::kNotDifferentiable},
                              {Part::kReference, Reason::kExpands},
                              {Part::kExample, Reason::kFromStableHlo}};

constexpr OpDef ProcessId(std::string_view name, std::string_view doc) {
  return {.name = name,
          .c_name = name,
          .kind = Kind::kComposite,
          .doc = doc,
          .results = kResult,
          .infer = Infer,
          .expand = Expand,
          .lowering = Lowering::kExpand,
          .stablehlo = StableHlo,
          .samples = kSamples,
          .tolerance = kExact,
          .absent = kAbsent,
          .exported = false,
          .rounds_once = true};
}

}  // namespace

constinit const OpDef kOp_partition_id = ProcessId("partition_id", "Which partition this process is: 0, the only one.");
constinit const OpDef kOp_replica_id = ProcessId("replica_id", "Which replica this process is: 0, the only one.");

}  // namespace weft::ops
