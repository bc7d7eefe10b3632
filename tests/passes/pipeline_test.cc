// The shared passes as a whole, over every operation.
#include "src/passes/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "src/backends/reference/interpreter.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/call.h"
#include "src/passes/passes.h"
#include "tests/support/op_programs.h"
#include "tests/support/small_stack.h"
#include "tests/support/training_programs.h"

namespace weft::passes {
namespace {

bool IsFilledWithALiteral(const ir::Node& node) {
  return &node.op() == &ops::kOp_broadcast_in_dim && &node.operands()[0].node->op() == &ops::kOp_constant;
}

// Nodes, without what is free where an element is read: those that widen 16 bits, of which moves in 16 bits may have one each, those that
// give a product's factors its result's type, and a literal in every place, of which sums that became a concatenation have one for each
// size of part.
int64_t Count(const ir::Function& function) {
  std::set<const ir::Node*> factors;
  for (const ir::Node* node : function.nodes()) {
    if (&node->op() != &ops::kOp_dot_general && &node->op() != &ops::kOp_convolution) continue;
    for (const ir::Value& factor : node->operands()) factors.insert(factor.node.get());
  }
  return std::count_if(function.nodes().begin(), function.nodes().end(), [&](const ir::Node* node) {
    const bool of_factor = &node->op() == &ops::kOp_convert && factors.contains(node);
    return !ops::IsWidening(*node) && !of_factor && !IsFilledWithALiteral(*node);
  });
}

TEST(Pipeline, KeepsEveryBitOfEveryOperationAndItsGradient) {
  auto programs = test::OpPrograms(/*all_types=*/true);
  ASSERT_TRUE(programs.ok()) << programs.status();
  EXPECT_GT(programs->size(), 100u);
  for (const test::OpProgram& program : *programs) {
    SCOPED_TRACE(program.name);
    EXPECT_EQ(ir::Verify(program.module), absl::OkStatus());
    auto expanded = ExpandComposites(program.module, {});
    ASSERT_TRUE(expanded.ok()) << expanded.status();
    PipelineOptions options;
    options.verify_between = true;
    auto whole = RunPipeline(program.module, options);
    ASSERT_TRUE(whole.ok()) << whole.status();
    const auto split = SplitComplex(*expanded, {});
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_LE(Count(whole->main()), Count(split->main()));
    auto expected = reference::Interpret(expanded->main(), program.inputs);
    auto found = reference::Interpret(whole->main(), program.inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(found.ok()) << found.status();
    for (size_t i = 0; i < expected->size(); ++i) {
      EXPECT_TRUE((*expected)[i] == (*found)[i]) << "result " << i << "\n" << ir::Print(*expanded) << ir::Print(*whole);
    }
  }
}

TEST(Pipeline, ExpandsWhatIsNotClaimedAndKeepsWhatIs) {
  auto module = ir::Parse(
      "func @main(%0: tensor<4xf32>) -> (tensor<4xf32>) { %1 = weft.softmax(%0) {axis = -1} : tensor<4xf32> return %1 }",
      ops::FindOp);
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<std::string> passes;
  PipelineOptions options{.verify_between = true,
                          .claims = [](const ir::Node& node) { return node.op().name == "weft.softmax"; },
                          .dump = [&](std::string_view pass, const ir::Module&) { passes.emplace_back(pass); }};
  auto kept = RunPipeline(*module, options);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(ir::Print(*kept), ir::Print(*module));
  EXPECT_EQ(passes, (std::vector<std::string>{"input", "unfold_devices", "hold_types", "merge_calls", "inline_calls", "expand_composites", "split_complex", "widen_narrow", "convert_factors", "prune_loops", "simplify", "absorb_converts", "canonicalize_dots", "fold_constants",
                                              "merge_equal", "simplify"}));
  options.claims = nullptr;
  auto expanded = RunPipeline(*module, options);
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  for (const ir::Node* node : expanded->main().nodes()) EXPECT_EQ(node->op().kind, ir::Kind::kPrimitive);
}

TEST(Pipeline, NamesThePassAfterWhichAModuleIsBroken) {
  auto module = ir::Parse("func @main(%0: tensor<4xf32>) -> (tensor<3xf32>) { %1 = negate(%0) : tensor<3xf32> return %1 }",
                          ops::FindOp);
  ASSERT_TRUE(module.ok()) << module.status();
  auto out = RunPipeline(*module, {.verify_between = true});
  EXPECT_EQ(out.status().message(),
            "internal error (please report): in function @main: the operation's rule gives tensor<4xf32>, the node has "
            "tensor<3xf32>\n  %1 = negate(%0) : tensor<3xf32>\n  after pass: input");
}

TEST(Pipeline, TakesALongChainOnASmallStack) {
  test::OnSmallStack([] {
    ir::Value p{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Scalar(DType::kF32)}), 0};
    ir::Value x = p;
    for (int i = 0; i < 300000; ++i) x = ir::Value{ir::Node::Create(ops::kOp_mul, {x, p}, {}, {x.type()}), 0};
    ir::Module module{{ir::Function::Create("main", {p}, {x})}};
    x = ir::Value();
    auto out = RunPipeline(module, {});
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(out->main().nodes().size(), 300001u);
  });
}

TEST(Pipeline, KeepsEveryBitOfATrainingStep) {
  auto program = test::MlpStep(4);
  ASSERT_TRUE(program.ok()) << program.status();
  auto expanded = ExpandComposites(program->module, {});
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  auto whole = RunPipeline(program->module, {.verify_between = true});
  ASSERT_TRUE(whole.ok()) << whole.status();
  auto expected = reference::Interpret(expanded->main(), program->inputs);
  auto found = reference::Interpret(whole->main(), program->inputs);
  ASSERT_TRUE(expected.ok() && found.ok()) << expected.status() << found.status();
  for (size_t i = 0; i < expected->size(); ++i) EXPECT_TRUE((*expected)[i] == (*found)[i]) << "result " << i;
  // No transpose is left around the matrix products, and the pipeline's text reads back.
  for (const ir::Node* node : whole->main().nodes()) EXPECT_NE(&node->op(), &ops::kOp_transpose);
  auto back = ir::Parse(ir::Print(*whole), ops::FindOp);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ir::Print(*back), ir::Print(*whole));
}

}  // namespace
}  // namespace weft::passes
