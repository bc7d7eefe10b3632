// The node loop, and the two ways to run one call.
#include "src/backends/reference/interpreter.h"

#include <algorithm>
#include <utility>

#include "src/backends/custom_call/host_call.h"
#include "src/ops/call.h"
#include "src/runtime/hash_map.h"

namespace weft::reference {
namespace {

using ir::Node;
using ir::Value;

// Elements of an elementwise operation at a time: some tens of milliseconds of the slowest functions.
constexpr int64_t kElementsAtOnce = 1 << 16;

thread_local const CustomScope* g_custom = nullptr;

// Elements [begin, begin + count) as a tensor of one dimension.
HostTensor Elements(const HostTensor& x, int64_t begin, int64_t count) {
  const auto bytes = static_cast<size_t>(BytesOf(x.dtype()));
  return {x.dtype(), {count}, x.bytes().subspan(begin * bytes, count * bytes)};
}

// Tells whether an elementwise operation can be done for some elements after the others. A constant, which has no operands, cannot: it is
// given out whole.
bool RunsInPieces(const ir::ReferenceCall& call) {
  if (call.operands.empty()) return false;
  if (call.op.lowering != ir::Lowering::kScalar || !call.regions.empty() || call.results.size() != 1) return false;
  const HostTensor& y = call.results[0];
  if (y.count() <= kElementsAtOnce || BytesOf(y.dtype()) == 0) return false;
  return std::ranges::all_of(call.operands, [&](const HostTensor* x) {
    return x == nullptr || (x->dims() == y.dims() && BytesOf(x->dtype()) > 0);
  });
}

absl::Status Reference(const ir::ReferenceCall& call) {
  if (!RunsInPieces(call)) return call.op.reference(call);
  HostTensor& y = call.results[0];
  for (int64_t begin = 0; begin < y.count(); begin += kElementsAtOnce) {
    WEFT_RETURN_IF_ERROR(CancelScope::Look());
    const int64_t count = std::min(kElementsAtOnce, y.count() - begin);
    std::vector<HostTensor> pieces;
    for (const HostTensor* x : call.operands)
      pieces.push_back(x == nullptr ? HostTensor() : Elements(*x, begin, count));
    std::vector<const HostTensor*> operands;
    for (size_t i = 0; i < pieces.size(); ++i) operands.push_back(call.operands[i] == nullptr ? nullptr : &pieces[i]);
    std::vector<HostTensor> results;
    results.emplace_back(y.dtype(), Dims{count});
    WEFT_RETURN_IF_ERROR(
        call.op.reference(ir::ReferenceCall{call.op, operands, call.attrs, results, call.regions, call.run}));
    std::ranges::copy(results[0].bytes(), y.mutable_bytes().begin() + begin * BytesOf(y.dtype()));
  }
  return absl::OkStatus();
}

ir::Value NewParameter(const ir::Type& type) { return {Node::Create(ops::kOp_parameter, {}, {}, {type}), 0}; }

// Expansions nest a few levels (cross_entropy, log_softmax, primitives), so the recursion is shallow.
absl::StatusOr<std::vector<HostTensor>> ByExpansion(const ir::OpDef& op, std::span<const HostTensor* const> operands,
                                                    const ir::Attrs& attrs, std::span<const ir::Type> types,
                                                    ir::RegionSpan regions) {
  std::vector<Value> parameters;
  std::vector<HostTensor> arguments;
  ir::Values values;
  for (const HostTensor* operand : operands) {
    if (operand == nullptr) {
      values.push_back({});
      continue;
    }
    values.push_back(NewParameter(ir::Type::Tensor(operand->dtype(), operand->dims())));
    parameters.push_back(values.back());
    arguments.push_back(*operand);
  }
  ir::Builder b;
  ir::Values results(types.size());
  WEFT_RETURN_IF_ERROR(
      ops::Expand(b, op, std::move(values), attrs, types, std::span(results.data(), results.size()), regions));
  WEFT_RETURN_IF_ERROR(b.status());
  const Ref<const ir::Function> body =
      ir::Function::Create(std::string(op.c_name), std::move(parameters), {results.begin(), results.end()});
  return Interpret(*body, arguments);
}

}  // namespace

absl::Status CancelScope::Look() { return LaunchEnds() ? Stopped() : absl::OkStatus(); }
absl::Status CancelScope::Stopped() {
  const auto* const launch = static_cast<const RunningLaunch*>(ThreadPool::owner());
  return launch != nullptr && launch->look != nullptr ? launch->look->Outcome() : absl::OkStatus();
}

CustomScope::CustomScope(std::shared_ptr<ops::CustomFunctions> registered)
    : registered_(std::move(registered)), before_(std::exchange(g_custom, this)) {}
CustomScope::~CustomScope() { g_custom = before_; }

absl::StatusOr<std::vector<HostTensor>> InterpretCall(const ir::OpDef& op, std::span<const HostTensor* const> operands,
                                                      const ir::Attrs& attrs, std::span<const ir::Type> types,
                                                      ir::RegionSpan regions) {
  if (op.reference == nullptr) {
    if (op.expand != nullptr) return ByExpansion(op, operands, attrs, types, regions);
    return absl::UnimplementedError(absl::StrCat(op.c_name, ": the reference backend cannot run it"));
  }
  std::vector<HostTensor> results;
  for (const ir::Type& type : types) results.emplace_back(type.dtype, type.dims);
  if (&op == &ops::kOp_custom_call && g_custom != nullptr) {
    WEFT_RETURN_IF_ERROR(custom::CallOnHost(attrs, operands, results, g_custom->registered()));
    return results;
  }
  std::vector<const HostTensor*> all(operands.begin(), operands.end());
  all.resize(std::max(all.size(), op.operands.size()), nullptr);
  WEFT_RETURN_IF_ERROR(Reference(ir::ReferenceCall{op, all, attrs, results, regions, &Interpret}));
  WEFT_RETURN_IF_ERROR(CancelScope::Stopped());
  return results;
}

absl::StatusOr<std::vector<HostTensor>> Interpret(const ir::Function& function, std::span<const HostTensor> arguments) {
  if (arguments.size() != function.parameters().size()) {
    return InternalError(function.name(), " takes ", function.parameters().size(), " arguments, ", arguments.size(),
                         " given");
  }
  WEFT_RETURN_IF_ERROR(CancelScope::Look());
  HashMap<const Node*, size_t> last_user;
  for (size_t i = 0; i < function.nodes().size(); ++i) {
    for (const Value& operand : function.nodes()[i]->operands()) {
      if (operand) last_user[operand.node.get()] = i;
    }
  }
  for (const Value& result : function.results()) last_user[result.node.get()] = function.nodes().size();

  HashMap<const Node*, std::vector<HostTensor>> values;
  for (size_t i = 0; i < arguments.size(); ++i) values[function.parameters()[i].node.get()] = {arguments[i]};
  for (size_t i = 0; i < function.nodes().size(); ++i) {
    const Node* node = function.nodes()[i];
    if (values.contains(node)) continue;  // a parameter
    WEFT_RETURN_IF_ERROR(CancelScope::Look());
    std::vector<const HostTensor*> operands;
    for (const Value& operand : node->operands()) {
      operands.push_back(operand ? &values.at(operand.node.get())[operand.result] : nullptr);
    }
    absl::StatusOr<std::vector<HostTensor>> results;
    if (node->op().lowering == ir::Lowering::kStructural && node->regions().size() == 1) {  // a fusion: its body
      std::vector<HostTensor> copies;
      for (const HostTensor* operand : operands) copies.push_back(*operand);
      results = Interpret(*node->regions()[0], copies);
    } else {
      results = InterpretCall(node->op(), operands, node->attrs(), node->results(), node->regions());
    }
    if (!results.ok()) return std::move(results).status();
    values[node] = *std::move(results);
    for (const Value& operand : node->operands()) {
      if (operand && last_user[operand.node.get()] == i) values.erase(operand.node.get());
    }
  }
  std::vector<HostTensor> results;
  for (const Value& result : function.results()) results.push_back(values.at(result.node.get())[result.result]);
  return results;
}

}  // namespace weft::reference
