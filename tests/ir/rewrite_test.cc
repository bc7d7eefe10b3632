// Rebuilding and cloning.
#include "src/ir/rewrite.h"

#include <gtest/gtest.h>

#include "src/ir/text.h"
#include "src/ops/registry.h"
#include "tests/ir/support_ops.h"

namespace weft::ir {
namespace {

Module ParseOrDie(std::string_view text) {
  auto module = Parse(text, FindTestOp);
  EXPECT_TRUE(module.ok()) << module.status();
  return *module;
}

TEST(Rewrite, KeepsTheFunctionItselfIfNothingChanges) {
  Module module = ParseOrDie("func @main(%0: tensor<f32>) -> (tensor<f32>) { %1 = add(%0, %0) : tensor<f32> return %1 }");
  auto same = Rewrite(module.main(), [](const RewriteCall&) { return Values(); });
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->get(), &module.main());
}

TEST(Rewrite, ReplacesANodeEverywhereAndKeepsPositions) {
  Module module = ParseOrDie(
      "func @main(%0: tensor<f32>, %1: tensor<f32>) -> (tensor<f32>, tensor<f32>) {\n"
      "%2 = add(%0, %1) : tensor<f32> %3 = add(%2, %1) : tensor<f32> loc(\"a.c:3\") return %3, %2 }");
  auto out = Rewrite(module, [](const RewriteCall& call) -> Values {
    if (call.node.location().line == 3) return {};
    return {call.operands[0]};
  });
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(Print(*out),
            "func @main(%0: tensor<f32>, %1: tensor<f32>) -> (tensor<f32>, tensor<f32>) {\n"
            "  %2 = add(%0, %1) : tensor<f32> loc(\"a.c:3\")\n"
            "  return %2, %0\n"
            "}\n");
}

TEST(Rewrite, GoesIntoRegions) {
  Module module = ParseOrDie(
      "func @main() -> (tensor<f32>) { %0 = test.everything() regions {\n"
      "func @body(%0: tensor<f32>) -> (tensor<f32>) { %1 = add(%0, %0) : tensor<f32> return %1 }\n"
      "} : tensor<f32> return %0 }");
  auto out = Rewrite(module, [](const RewriteCall& call) -> Values {
    return call.node.op().name == "add" ? Values{call.operands[0]} : Values();
  });
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(Print(*out),
            "func @main() -> (tensor<f32>) {\n"
            "  %0 = test.everything() regions {\n"
            "    func @body(%0: tensor<f32>) -> (tensor<f32>) {\n"
            "      return %0\n"
            "    }\n"
            "  } : tensor<f32>\n"
            "  return %0\n"
            "}\n");
}

TEST(InternAll, MakesOneObjectOfEqualFunctionsAtEveryDepth) {
  const auto text = [](std::string_view inner, std::string_view op) {
    return "func @main() -> (tensor<f32>) { %0 = test.everything() regions {\n"
           "func @" + std::string(inner) + "(%0: tensor<f32>) -> (tensor<f32>) { %1 = " + std::string(op) + "(%0, %0) : tensor<f32> return %1 }\n"
           "} : tensor<f32> return %0 }";
  };
  const Module first = ParseOrDie(text("a", "add")), second = ParseOrDie(text("b", "add")), third = ParseOrDie(text("a", "multiply"));
  const Ref<const Function> one = InternAll(first.main()), two = InternAll(second.main()), other = InternAll(third.main());
  EXPECT_EQ(one, two);
  EXPECT_EQ(one->callees()[0], Intern(OwnNodes(*second.main().callees()[0])).get());
  EXPECT_NE(one, other);
  EXPECT_NE(one->callees()[0], other->callees()[0]);
}

TEST(Rewrite, RefusesAReplacementOfAnotherType) {
  Module module = ParseOrDie(
      "func @main(%0: tensor<f32>) -> (tensor<2xf32>) {\n"
      "%1 = broadcast_in_dim(%0) {shape = [2], broadcast_dimensions = []} : tensor<2xf32> return %1 }");
  auto out = Rewrite(module, [](const RewriteCall& call) { return call.operands; });
  EXPECT_EQ(out.status().message(),
            "internal error (please report): a rewrite changes the type tensor<2xf32> to tensor<f32>\n"
            "  %1 = broadcast_in_dim(%0) {shape = [2], broadcast_dimensions = []} : tensor<2xf32>");
}

}  // namespace
}  // namespace weft::ir
