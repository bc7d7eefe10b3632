// The operation table and its name index.
#include "src/ops/registry.h"

#include "absl/container/flat_hash_map.h"

namespace weft::ops {
namespace {

constexpr const ir::OpDef* kAll[] = {
#define WEFT_OP(name) &kOp_##name,
#include "src/ops/ops.list"
#undef WEFT_OP
};

}  // namespace

std::span<const ir::OpDef* const> AllOps() { return kAll; }

namespace {

using Index = absl::flat_hash_map<std::string_view, const ir::OpDef*>;

const ir::OpDef* Find(const Index& index, std::string_view name) {
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

// Where one operation's name is what users call another, `first` says whose it is.
template <typename First, typename Second>
const Index* MakeIndex(First first, Second second) {
  auto* index = new Index();
  for (const ir::OpDef* op : kAll) index->try_emplace(first(*op), op);
  for (const ir::OpDef* op : kAll) index->try_emplace(second(*op), op);
  return index;
}

constexpr auto kName = [](const ir::OpDef& op) { return op.name; };
constexpr auto kCName = [](const ir::OpDef& op) { return op.c_name; };

}  // namespace

const ir::OpDef* FindOp(std::string_view name) {
  static const Index* const index = MakeIndex(kName, kCName);
  return Find(*index, name);
}

const ir::OpDef* FindCalled(std::string_view name) {
  static const Index* const index = MakeIndex(kCName, kName);
  return Find(*index, name);
}

}  // namespace weft::ops
