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

const ir::OpDef* FindOp(std::string_view name) {
  static const auto* const index = [] {
    auto* map = new absl::flat_hash_map<std::string_view, const ir::OpDef*>();
    for (const ir::OpDef* op : kAll) {
      map->try_emplace(op->c_name, op);
      map->try_emplace(op->name, op);
    }
    return map;
  }();
  auto found = index->find(name);
  return found == index->end() ? nullptr : found->second;
}

}  // namespace weft::ops
