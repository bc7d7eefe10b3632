// Running sums, products and extremes: a kernel where the expansion's passes over memory would cost more.
#include "src/backends/cpu/launch/running_call.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"

namespace weft::cpu {
namespace {

using ir::Node;
using ir::Value;

// Shorter lines are a few operations element by element, which fuse with what is around them.
constexpr int64_t kLeastLength = 32;

RunningCall CallOf(const Node& node) {
  const ir::OpDef* const op = &node.op();
  const Value& x = node.operands()[0];
  const ops::CumsumAttrs attrs{node.attrs()};  // all four have the same
  const auto rank = static_cast<int64_t>(x.dims().size());
  const size_t axis = static_cast<size_t>(attrs.axis() < 0 ? attrs.axis() + rank : attrs.axis());
  RunningCall c;
  c.kind = op == &ops::kOp_cumsum    ? RunningCall::Kind::kSum
           : op == &ops::kOp_cumprod ? RunningCall::Kind::kProduct
           : op == &ops::kOp_cummax  ? RunningCall::Kind::kMax
                                     : RunningCall::Kind::kMin;
  c.dtype = x.dtype();
  c.outer = CountOf(std::span(x.dims()).first(axis));
  c.length = x.dims()[axis];
  c.inner = CountOf(std::span(x.dims()).subspan(axis + 1));
  c.reverse = attrs.reverse();
  return c;
}

bool Serves(const Node& node, const CpuTarget&) {
  const Value& x = node.operands()[0];
  if (x.dtype() != node.type().dtype) return false;  // bools that count
  if (!IsComputable(x.dtype()) || IsComplex(x.dtype()) || x.dims().empty() || x.type().count() == 0) return false;
  return CallOf(node).length >= kLeastLength;
}

absl::Status Lower(Lowering& lowering, const Node& node) {
  const RunningCall c = CallOf(node);
  std::vector<StorageId> writes;
  for (uint32_t r = 0; r < node.results().size(); ++r)
    writes.push_back(lowering.Define({Ref<const Node>::Share(&node), r}));
  writes.push_back(lowering.Temporary(c.space_bytes()));
  lowering.Host(
      "running", {lowering.Of(node.operands()[0])}, writes, EncodeRunning(c),
      1e3 + 2e3 * static_cast<double>(c.outer) * static_cast<double>(c.length) * static_cast<double>(c.inner));
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {{&ops::kOp_cumsum, Lower, Serves},
                             {&ops::kOp_cumprod, Lower, Serves},
                             {&ops::kOp_cummax, Lower, Serves},
                             {&ops::kOp_cummin, Lower, Serves}};

}  // namespace

std::span<const OpRule> RunningRules() { return kRules; }

}  // namespace weft::cpu
