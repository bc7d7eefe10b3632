// Operations that carry functions which run by themselves: while and case.
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/control/counted.h"
#include "src/ops/registry.h"

namespace weft::cpu {
namespace {

using ir::Node;
using ir::Value;

std::vector<StorageId> StoragesOf(const Lowering& lowering, std::span<const Value> values) {
  std::vector<StorageId> storages;
  for (const Value& value : values) storages.push_back(lowering.Of(value));
  return storages;
}

absl::Status LowerWhile(Lowering& lowering, const Node& node) {
  const ir::Function &condition = *node.regions()[0], &body = *node.regions()[1];
  const size_t carried = body.results().size(), asks = condition.parameters().size() - carried;
  std::vector<Lowering::Carry> carries;
  std::vector<size_t> carry_of;  // of those values that the body does not just hand on
  std::vector<StorageId> now;
  const std::optional<ops::KnownRuns> runs = ops::RunsOf(node);
  for (size_t i = 0; i < carried; ++i) {
    const Value& first = node.operands()[i];
    now.push_back(lowering.Of(first));
    if (body.results()[i] == body.parameters()[i]) continue;
    now.back() = lowering.Temporary(first.type().bytes());
    if (!runs.has_value() || !ops::WritesEveryRow(node, *runs, i)) {
      lowering.Copy(first.type().bytes(), lowering.Of(first), now.back());
    } else {
      lowering.Lose(lowering.Of(first));
    }
    carries.push_back({now.back(), -1});
    carry_of.push_back(i);
  }
  const auto arguments = [&](std::span<const Value> captures) {
    std::vector<StorageId> all = now;
    for (const StorageId capture : StoragesOf(lowering, captures)) all.push_back(capture);
    return all;
  };
  const std::span<const Value> captures = node.operands().subspan(carried);
  const StorageId flag = lowering.Temporary(1);
  WEFT_RETURN_IF_ERROR(lowering.RepeatWhile(
      flag, carries,
      [&]() -> absl::Status {
        WEFT_ASSIGN_OR_RETURN(const std::vector<StorageId> goes_on,
                              lowering.Body(condition, arguments(captures.first(asks))));
        lowering.Copy(1, goes_on[0], flag);
        return absl::OkStatus();
      },
      [&]() -> absl::Status {
        WEFT_ASSIGN_OR_RETURN(const std::vector<StorageId> next,
                              lowering.Body(body, arguments(captures.subspan(asks))));
        for (size_t c = 0; c < carries.size(); ++c) carries[c].next = next[carry_of[c]];
        return absl::OkStatus();
      },
      ops::EndsByItself(condition, body)));
  for (uint32_t i = 0; i < carried; ++i) lowering.Alias({Ref<const Node>::Share(&node), i}, now[i]);
  return absl::OkStatus();
}

absl::Status LowerCase(Lowering& lowering, const Node& node) {
  std::vector<StorageId> results;
  for (uint32_t r = 0; r < node.results().size(); ++r) {
    results.push_back(lowering.Define({Ref<const Node>::Share(&node), r}));
  }
  std::span<const Value> captures = node.operands().subspan(1);
  return lowering.Branch(lowering.Of(node.operands()[0]), static_cast<int>(node.regions().size()),
                         [&](int i) -> absl::Status {
                           const ir::Function& branch = *node.regions()[static_cast<size_t>(i)];
                           const size_t own = branch.parameters().size();
                           const std::vector<StorageId> arguments = StoragesOf(lowering, captures.first(own));
                           captures = captures.subspan(own);
                           WEFT_ASSIGN_OR_RETURN(const std::vector<StorageId> made, lowering.Body(branch, arguments));
                           for (size_t r = 0; r < results.size(); ++r) {
                             lowering.Copy(branch.results()[r].type().bytes(), made[r], results[r]);
                           }
                           return absl::OkStatus();
                         });
}

// The function's entries in this list. Its kernels are those of its other calls, whose loops are equal.
absl::Status LowerCall(Lowering& lowering, const Node& node) {
  std::span<const Value> operands = node.operands();
  while (!operands.empty() && !operands.back()) operands = operands.first(operands.size() - 1);
  const std::vector<StorageId> arguments = StoragesOf(lowering, operands);
  WEFT_ASSIGN_OR_RETURN(const std::vector<StorageId> results, lowering.Body(*node.regions()[0], arguments));
  for (uint32_t i = 0; i < results.size(); ++i) lowering.Alias({Ref<const Node>::Share(&node), i}, results[i]);
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {{&ops::kOp_while, LowerWhile}, {&ops::kOp_case, LowerCase}, {&ops::kOp_call, LowerCall}};

}  // namespace

std::span<const OpRule> ControlRules() { return kRules; }

}  // namespace weft::cpu
