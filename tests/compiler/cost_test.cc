// What functions cost, against counts by hand.
#include "src/compiler/cost.h"

#include <gtest/gtest.h>

#include "src/stablehlo/read.h"

namespace weft::compiler {
namespace {

Cost Of(std::string_view arguments, std::string_view results, std::string_view body) {
  const std::string text = absl::StrCat("func.func public @main(", arguments, ") -> (", results, ") {\n", body, "\n}\n",
                                        "func.func private @f(%x: tensor<5xf32>) -> tensor<5xf32> {\n"
                                        "  %0 = stablehlo.add %x, %x : tensor<5xf32>\n"
                                        "  %1 = stablehlo.tanh %0 : tensor<5xf32>\n"
                                        "  return %1 : tensor<5xf32>\n}\n");
  auto module = stablehlo::ReadStableHlo(text);
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) return {};
  const absl::StatusOr<Cost> cost = CostOf(module->main());
  EXPECT_TRUE(cost.ok()) << cost.status();
  return cost.ok() ? *cost : Cost();
}

TEST(Cost, OfElements) {
  const Cost cost = Of("%a: tensor<2x3xf32>", "tensor<3x2xf32>",
                       "%0 = stablehlo.multiply %a, %a : tensor<2x3xf32>\n"
                       "%1 = stablehlo.exponential %0 : tensor<2x3xf32>\n"
                       "%2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"
                       "return %2 : tensor<3x2xf32>");
  EXPECT_EQ(cost.flops, 6);
  EXPECT_EQ(cost.transcendentals, 6);
}

TEST(Cost, OfProductsAndSums) {
  EXPECT_EQ(Of("%a: tensor<4x7x5xf32>, %b: tensor<4x5x6xf32>", "tensor<4x7x6xf32>",
               "%0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] : "
               "(tensor<4x7x5xf32>, tensor<4x5x6xf32>) -> tensor<4x7x6xf32>\nreturn %0 : tensor<4x7x6xf32>")
                .flops,
            2 * 4 * 7 * 6 * 5);
  // 6 x 6 places of a 3 x 3 window over 4 features into 8.
  EXPECT_EQ(Of("%a: tensor<1x8x8x4xf32>, %b: tensor<3x3x4x8xf32>", "tensor<1x6x6x8xf32>",
               "%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} "
               "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x4xf32>, "
               "tensor<3x3x4x8xf32>) -> tensor<1x6x6x8xf32>\nreturn %0 : tensor<1x6x6x8xf32>")
                .flops,
            2 * 6 * 6 * 8 * 9 * 4);
  EXPECT_EQ(Of("%a: tensor<4x10xf32>", "tensor<4xf32>",
               "%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
               "%0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [1] : "
               "(tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>")
                .flops,
            36);
}

TEST(Cost, OfFunctions) {
  const Cost calls = Of("%a: tensor<5xf32>", "tensor<5xf32>",
                        "%0 = call @f(%a) : (tensor<5xf32>) -> tensor<5xf32>\n"
                        "%1 = call @f(%0) : (tensor<5xf32>) -> tensor<5xf32>\nreturn %1 : tensor<5xf32>");
  EXPECT_EQ(calls.flops, 10);
  EXPECT_EQ(calls.transcendentals, 10);
  const Cost branches = Of("%i: tensor<i32>, %a: tensor<5xf32>", "tensor<5xf32>",
                           "%0 = \"stablehlo.case\"(%i) ({\n"
                           "  %1 = stablehlo.negate %a : tensor<5xf32>\n  stablehlo.return %1 : tensor<5xf32>\n}, {\n"
                           "  %2 = func.call @f(%a) : (tensor<5xf32>) -> tensor<5xf32>\n"
                           "  stablehlo.return %2 : tensor<5xf32>\n}) : (tensor<i32>) -> tensor<5xf32>\n"
                           "return %0 : tensor<5xf32>");
  EXPECT_EQ(branches.flops, 5);
  EXPECT_EQ(branches.transcendentals, 5);
}

}  // namespace
}  // namespace weft::compiler
