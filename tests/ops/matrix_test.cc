// Every operation on every sample and dtype: inference, the reference, the expansion and what they promise
// each other.
#include <gtest/gtest.h>

#include "tests/ops/op_matrix.h"
#include "tests/support/only_op.h"

namespace weft {
namespace {

using ir::Kind;
using ir::OpDef;
using test::Case;

template <typename F>
void ForEachCase(F f, ops::Spread spread = ops::Spread::kSample) {
  for (const OpDef* op : ops::AllOps()) {
    if (weft::test::LeftOut(*op)) continue;
    for (const ir::Sample& sample : op->samples) {
      for (DType dtype : ops::SampleTypes(*op, sample)) {
        absl::StatusOr<Case> c = test::MakeCase(*op, sample, dtype, /*seed=*/1, spread);
        ASSERT_TRUE(c.ok()) << c.status();
        SCOPED_TRACE(c->name);
        f(*op, *c);
      }
    }
  }
}

TEST(OpMatrix, EverySampleIsAcceptedAndRunsOnTheReference) {
  int runs = 0;
  ForEachCase([&](const OpDef& op, const Case& c) {
    ir::Builder b;
    const ir::Values results = ops::CallAll(b, op, c.operands, c.parsed.attrs);
    ASSERT_TRUE(b.ok()) << b.status();
    const auto values = test::Evaluate(c, results);
    ASSERT_TRUE(values.ok()) << values.status();
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ((*values)[i].dtype(), results[i].dtype());
      EXPECT_EQ((*values)[i].dims(), results[i].dims());
    }
    ++runs;
  });
  EXPECT_GT(runs, 1000);
}

TEST(OpMatrix, ShapeRulesOfExpandedOperationsAgreeWithTheirExpansions) {
  ForEachCase([&](const OpDef& op, const Case& c) {
    if (op.expand == nullptr || op.rule != ir::OperandRule::kNone) return;
    ir::Attrs attrs = c.parsed.attrs;
    ir::Types types;
    const absl::Status status = ir::CheckCall(op, c.operands, attrs, &types);
    ASSERT_TRUE(status.ok()) << status;
    ir::Builder b;
    ir::Values operands = c.operands;
    operands.resize(std::max(operands.size(), op.operands.size()));
    ir::Values results(types.size());
    const absl::Status expanded =
        op.expand(ir::ExpandCall{b, op, operands, attrs}, std::span(results.data(), results.size()));
    ASSERT_TRUE(expanded.ok()) << expanded;
    ASSERT_TRUE(b.ok()) << b.status();
    ASSERT_EQ(types.size(), results.size());
    for (size_t i = 0; i < types.size(); ++i) {
      EXPECT_EQ(types[i], results[i].type())
          << ir::ShortType(types[i]) << " " << ir::ShortType(results[i].type());
    }
  });
}

void CompareExpansions(ops::Spread spread) {
  const auto compare = [&](const OpDef& op, const Case& c) {
    if (op.expand == nullptr || op.reference == nullptr) return;
    ir::Builder b;
    ir::Attrs attrs = c.parsed.attrs;
    ir::Types types;
    ASSERT_TRUE(ir::CheckCall(op, c.operands, attrs, &types).ok());
    ir::Values operands = c.operands;
    operands.resize(std::max(operands.size(), op.operands.size()));
    ir::Values expanded(types.size());
    ASSERT_TRUE(ops::Expand(b, op, operands, attrs, types, std::span(expanded.data(), expanded.size())).ok());
    ASSERT_TRUE(b.ok()) << b.status();
    const auto got = test::Evaluate(c, expanded);
    ASSERT_TRUE(got.ok()) << got.status();
    std::vector<const HostTensor*> pointers;
    size_t next = 0;
    for (const ir::Value& operand : operands) pointers.push_back(operand ? &c.arguments[next++] : nullptr);
    const auto want = reference::InterpretCall(op, pointers, attrs, types);
    ASSERT_TRUE(want.ok()) << want.status();
    for (size_t i = 0; i < types.size(); ++i) {
      const double slack = spread == ops::Spread::kWhole ? test::Underflow(types[i].dtype) : 0;
      EXPECT_EQ(test::Differences((*got)[i], (*want)[i], op.tolerance, 4, slack), "");
    }
  };
  ForEachCase(compare, spread);
}

TEST(OpMatrix, ExpansionsComputeWhatTheReferenceComputes) { CompareExpansions(ops::Spread::kSample); }

TEST(OpMatrix, ExpansionsComputeWhatTheReferenceComputesOverTheWholeRange) {
  CompareExpansions(ops::Spread::kWhole);
}

}  // namespace
}  // namespace weft
