// What the verifier refuses, with its texts.
#include "src/ir/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/ir/text.h"
#include "src/ops/registry.h"
#include "tests/ir/support_ops.h"
#include "tests/support/small_stack.h"

namespace weft::ir {
namespace {

constexpr std::string_view kPrefix = "internal error (please report): ";

std::string VerifyText(std::string_view text) {
  auto module = Parse(text, FindTestOp);
  if (!module.ok()) return std::string(module.status().message());
  absl::Status status = Verify(*module);
  if (status.ok()) return "ok";
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(status.message().starts_with(kPrefix));
  return std::string(status.message().substr(kPrefix.size()));
}

TEST(Verify, AcceptsAGoodModule) {
  EXPECT_EQ(VerifyText("module {words = 3}\n"
                       "func @main(%0: tensor<2xf32> {donated_to = 0}, %1: tensor<f32> {word = 0}, %2: tensor<i64> {word = 1})"
                       " -> (tensor<2xf32>) {\n"
                       "%3 = broadcast_in_dim(%1) {shape = [2], broadcast_dimensions = []} : tensor<2xf32>\n"
                       "%4 = add(%0, %3) : tensor<2xf32> return %4 }"),
            "ok");
}

TEST(Verify, ComparesStoredTypesWithTheRule) {
  EXPECT_EQ(VerifyText("func @main(%0: tensor<2xf32>) -> (tensor<3xf32>) { %1 = add(%0, %0) : tensor<3xf32> loc(\"a.c:3\") return %1 }"),
            "in function @main: the operation's rule gives tensor<2xf32>, the node has tensor<3xf32>\n"
            "  %1 = add(%0, %0) : tensor<3xf32> loc(\"a.c:3\")\n  recorded at a.c:3");
}

TEST(Verify, AppliesTheOperationsOwnChecks) {
  EXPECT_EQ(VerifyText("func @main(%0: tensor<2xf32>) -> (tensor<2xf32>) { %1 = add(%0) : tensor<2xf32> return %1 }"),
            "in function @main: add(f32[2]): 1 operands given, 2 expected\n  %1 = add(%0) : tensor<2xf32>");
}

TEST(Verify, WantsDefaultsFilledIn) {
  const Value x{Node::Create(*ops::FindOp("parameter"), {}, {}, {Type::Tensor(DType::kF32, {2})}), 0};
  const Value y{Node::Create(*ops::FindOp("weft.softmax"), {x}, {}, {x.type()}), 0};
  Module module;
  module.functions.push_back(Function::Create("main", {x}, {y}));
  EXPECT_THAT(std::string(Verify(module).message()), testing::HasSubstr("an attribute's default is not filled in"));
}

// The text of an earlier build does not name the attributes that came since.
TEST(Verify, AbsentAttributesOfATextHaveTheirDefaults) {
  EXPECT_EQ(VerifyText("func @main(%0: tensor<2xf32>) -> (tensor<2xf32>) { %1 = weft.softmax(%0) : tensor<2xf32> return %1 }"), "ok");
}

TEST(Verify, ChecksTheArgumentBlock) {
  EXPECT_EQ(VerifyText("module {words = 2} func @main(%0: tensor<f64> {word = 1}) -> () { return }"),
            "in function @main: parameter 0 ends at word 3 of an argument block of 2\n  %0 = parameter() : tensor<f64>");
  EXPECT_EQ(VerifyText("module {words = 2} func @main(%0: tensor<f64> {word = 0, donated_to = 0}) -> (tensor<f64>) { return %0 }"),
            "in function @main: parameter 0 lies in the argument block and is donated\n  %0 = parameter() : tensor<f64>");
}

TEST(Verify, ChecksDonation) {
  EXPECT_EQ(VerifyText("func @main(%0: tensor<f64> {donated_to = 1}) -> (tensor<f64>) { return %0 }"),
            "in function @main: parameter 0 is donated to result 1 of 1\n  %0 = parameter() : tensor<f64>");
  EXPECT_EQ(VerifyText("func @main(%0: tensor<f64> {donated_to = 0}, %1: tensor<f32>) -> (tensor<f32>) { return %1 }"),
            "in function @main: parameter 0 of type tensor<f64> is donated to a result of type tensor<f32>\n"
            "  %0 = parameter() : tensor<f64>");
  EXPECT_EQ(VerifyText("func @main(%0: tensor<f32> {donated_to = 0}, %1: tensor<f32> {donated_to = 0}) -> (tensor<f32>) { return %1 }"),
            "in function @main: parameter 1 is donated to a result that has another donor\n  %1 = parameter() : tensor<f32>");
}

TEST(Verify, LooksIntoRegions) {
  EXPECT_EQ(VerifyText("func @main() -> (tensor<f32>) { %0 = test.everything() regions {\n"
                       "func @body(%0: tensor<2xf32>) -> (tensor<1xf32>) { %1 = add(%0, %0) : tensor<1xf32> return %1 }\n"
                       "} : tensor<f32> return %0 }"),
            "in function @body: the operation's rule gives tensor<2xf32>, the node has tensor<1xf32>\n"
            "  %1 = add(%0, %0) : tensor<1xf32>");
}

TEST(Verify, RefusesLeavesThatAreNotParameters) {
  auto leaf = Node::Create(*ops::FindOp("parameter"), {}, {}, {Type::Scalar(DType::kF32)});
  auto sum = Node::Create(*ops::FindOp("add"), {Value{leaf, 0}, Value{leaf, 0}}, {}, {leaf->type()});
  Module module{{Function::Create("main", {}, {Value{sum, 0}})}};
  EXPECT_EQ(Verify(module).message(),
            "internal error (please report): in function @main: a leaf that is not among the function's parameters\n"
            "  %0 = parameter() : tensor<f32>");
}

TEST(Verify, ChecksAMillionNodeChainOnASmallStack) {
  test::OnSmallStack([] {
    auto p = Node::Create(*ops::FindOp("parameter"), {}, {}, {Type::Scalar(DType::kF32)});
    Value x{p, 0};
    for (int i = 0; i < 1000000; ++i) x = Value{Node::Create(*ops::FindOp("add"), {x, x}, {}, {x.type()}), 0};
    Module module{{Function::Create("main", {Value{p, 0}}, {x})}};
    x = Value();
    EXPECT_EQ(Verify(module), absl::OkStatus());
  });
}

}  // namespace
}  // namespace weft::ir
