// Random programs draw every attribute of every operation that they call by a sample: what is never drawn is never compared.
#include <gtest/gtest.h>


#include "src/ops/registry.h"
#include "tests/support/random_moves.h"
#include "tests/support/only_op.h"

namespace weft::test {
namespace {

TEST(RandomPrograms, DrawEveryAttributeOfEveryOperation) {
  constexpr int kTries = 400;
  const auto drawn = [](const ir::AttrDef& attr) {
    return attr.type != ir::AttrType::kLiteral && attr.type != ir::AttrType::kString && attr.type != ir::AttrType::kDoubles;
  };
  int attributes = 0;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (weft::test::LeftOut(*op)) continue;
    if (op->attrs.empty() || op->samples.empty() || !op->exported) continue;
    std::vector<std::vector<ir::AttrValue>> seen(op->attrs.size());
    bool called = false;
    for (uint64_t seed = 1; seed <= kTries; ++seed) {
      ProgramMaker m(seed, {});
      m.sizes = {2, 3, 5};
      const int result = SampleCall(m, *op);
      if (result < 0) continue;
      const RandomProgram program = m.Finish({result});
      const auto call = std::ranges::find(program.items, op, &RandomProgram::Item::op);
      if (call == program.items.end()) continue;
      called = true;
      size_t most = 2;
      for (size_t i = 0; i < op->attrs.size(); ++i) {
        if (!drawn(op->attrs[i])) continue;
        const ir::AttrValue value = i < call->attrs.size() ? call->attrs.at(i) : ir::AttrValue();
        if (std::ranges::find(seen[i], value) == seen[i].end()) seen[i].push_back(value);
        most = std::min(most, seen[i].size());
      }
      if (most >= 2) break;
    }
    for (size_t i = 0; called && i < op->attrs.size(); ++i) {
      if (!drawn(op->attrs[i])) continue;
      ++attributes;
      EXPECT_GE(seen[i].size(), 2u) << op->c_name << "." << op->attrs[i].name;
    }
  }
  EXPECT_GT(attributes, 200);
}

}  // namespace
}  // namespace weft::test
