// The operation table and its name index.
#include "src/ops/registry.h"

#include "src/runtime/hash_map.h"
#include "src/runtime/lasting.h"

namespace weft::ops {

#define WEFT_OP(name) extern const ir::OpDef kOp_##name;
#include "src/ops/special.list"
#undef WEFT_OP

namespace {

constexpr const ir::OpDef* kAll[] = {
#define WEFT_OP(name) &kOp_##name,
#include "src/ops/ops.list"
#include "src/ops/special.list"
#undef WEFT_OP
};

}  // namespace

std::span<const ir::OpDef* const> AllOps() { return kAll; }

namespace {

using Index = HashMap<std::string_view, const ir::OpDef*>;
constinit Lasting<Index> g_by_name, g_called;

// Where one operation's name is what users call another, `first` says whose it is.
template <typename First, typename Second>
const ir::OpDef* Find(Lasting<Index>& lasting, std::string_view name, First first, Second second) {
  const Index& index = lasting.Get([&] {
    auto made = std::make_unique<Index>();
    for (const ir::OpDef* op : kAll) made->try_emplace(first(*op), op);
    for (const ir::OpDef* op : kAll) made->try_emplace(second(*op), op);
    return made;
  });
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

constexpr auto kName = [](const ir::OpDef& op) { return op.name; };
constexpr auto kCName = [](const ir::OpDef& op) { return op.c_name; };

}  // namespace

const ir::OpDef* FindOp(std::string_view name) { return Find(g_by_name, name, kName, kCName); }
const ir::OpDef* FindCalled(std::string_view name) { return Find(g_called, name, kCName, kName); }

}  // namespace weft::ops
