// The test operation with everything a node can carry.
#include "tests/ir/support_ops.h"

#include "src/ops/registry.h"

namespace weft::ir {
namespace {

constexpr std::string_view kModes[] = {"valid", "same", "full.x"};
constexpr AttrDef kAttrs[] = {
    {"i", AttrType::kInt, ""},      {"d", AttrType::kDouble, ""},   {"b", AttrType::kBool, ""},
    {"e", AttrType::kEnum, "", false, {}, kModes},                  {"t", AttrType::kDType, ""},
    {"ints", AttrType::kInts, ""},  {"doubles", AttrType::kDoubles, ""},
    {"s", AttrType::kString, ""},   {"l", AttrType::kLiteral, ""},
};
constexpr RegionDef kRegions[] = {{"bodies", "anything", true}};
constexpr std::string_view kResults[] = {"first", "second"};

}  // namespace

constinit const OpDef kEverything = {
    .name = "test.everything", .c_name = "everything", 
    .attrs = kAttrs, .regions = kRegions, .results = kResults};

const OpDef* FindTestOp(std::string_view name) {
  return name == kEverything.name ? &kEverything : ops::FindOp(name);
}

}  // namespace weft::ir
