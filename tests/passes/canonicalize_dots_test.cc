// Transposes in front of dot_general.
#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

TEST(CanonicalizeDots, TakesTransposesIntoTheDimensionNumbers) {
  EXPECT_EQ(
      After(CanonicalizeDots,
            Wrap("%0: tensor<5x4xf32>, %1: tensor<6x5xf32>", "tensor<4x6xf32>",
                 "%2 = transpose(%0) {permutation = [1, 0]} : tensor<4x5xf32>\n"
                 "%3 = transpose(%1) {permutation = [1, 0]} : tensor<5x6xf32>\n"
                 "%4 = dot_general(%2, %3) {lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
                 "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]} : tensor<4x6xf32>",
                 "%4")),
      Wrap("%0: tensor<5x4xf32>, %1: tensor<6x5xf32>", "tensor<4x6xf32>",
           "%2 = dot_general(%0, %1) {lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
           "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [1]} : tensor<4x6xf32>",
           "%2"));
}

TEST(CanonicalizeDots, KeepsATransposeThatOrdersTheResult) {
  const std::string text =
      Wrap("%0: tensor<2x3x5xf32>, %1: tensor<5x6xf32>", "tensor<3x2x6xf32>",
           "%2 = transpose(%0) {permutation = [1, 0, 2]} : tensor<3x2x5xf32>\n"
           "%3 = dot_general(%2, %1) {lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
           "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]} : tensor<3x2x6xf32>",
           "%3");
  EXPECT_EQ(After(CanonicalizeDots, text), text);
}

TEST(CanonicalizeDots, MovesBatchDimensions) {
  EXPECT_EQ(
      After(CanonicalizeDots,
            Wrap("%0: tensor<4x2x5xf32>, %1: tensor<2x5x6xf32>", "tensor<2x4x6xf32>",
                 "%2 = transpose(%0) {permutation = [1, 0, 2]} : tensor<2x4x5xf32>\n"
                 "%3 = dot_general(%2, %1) {lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], "
                 "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]} : tensor<2x4x6xf32>",
                 "%3")),
      Wrap("%0: tensor<4x2x5xf32>, %1: tensor<2x5x6xf32>", "tensor<2x4x6xf32>",
           "%2 = dot_general(%0, %1) {lhs_batching_dimensions = [1], rhs_batching_dimensions = [0], "
           "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]} : tensor<2x4x6xf32>",
           "%2"));
}

TEST(CanonicalizeDots, ExchangesTheFactorsInsteadOfTransposingTheProduct) {
  // The gradient of a layer's weights.
  EXPECT_EQ(
      After(CanonicalizeDots,
            Wrap("%0: tensor<64x10xf32>, %1: tensor<64x256xf32>", "tensor<256x10xf32>",
                 "%2 = dot_general(%0, %1) {lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
                 "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]} : tensor<10x256xf32>\n"
                 "%3 = transpose(%2) {permutation = [1, 0]} : tensor<256x10xf32>",
                 "%3")),
      Wrap("%0: tensor<64x10xf32>, %1: tensor<64x256xf32>", "tensor<256x10xf32>",
           "%2 = dot_general(%1, %0) {lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
           "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]} : tensor<256x10xf32>",
           "%2"));
}

TEST(CanonicalizeDots, ExchangesFactorsOfBatchesOfRanks) {
  EXPECT_EQ(
      After(CanonicalizeDots,
            Wrap("%0: tensor<5x2x3x4xf32>, %1: tensor<6x5x4xf32>", "tensor<5x6x2x3xf32>",
                 "%2 = dot_general(%0, %1) {lhs_batching_dimensions = [0], rhs_batching_dimensions = [1], "
                 "lhs_contracting_dimensions = [3], rhs_contracting_dimensions = [2]} : tensor<5x2x3x6xf32>\n"
                 "%3 = transpose(%2) {permutation = [0, 3, 1, 2]} : tensor<5x6x2x3xf32>",
                 "%3")),
      Wrap("%0: tensor<5x2x3x4xf32>, %1: tensor<6x5x4xf32>", "tensor<5x6x2x3xf32>",
           "%2 = dot_general(%1, %0) {lhs_batching_dimensions = [1], rhs_batching_dimensions = [0], "
           "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [3]} : tensor<5x6x2x3xf32>",
           "%2"));
}

TEST(CanonicalizeDots, KeepsATransposeOfAProductThatOthersRead) {
  const std::string text =
      Wrap("%0: tensor<4x5xf32>, %1: tensor<5x6xf32>", "tensor<6x4xf32>, tensor<4x6xf32>",
           "%2 = dot_general(%0, %1) {lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
           "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]} : tensor<4x6xf32>\n"
           "%3 = transpose(%2) {permutation = [1, 0]} : tensor<6x4xf32>",
           "%3, %2");
  EXPECT_EQ(After(CanonicalizeDots, text), text);
}

}  // namespace
}  // namespace weft::passes
