// Folding of literals.
#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

TEST(FoldConstants, ComputesExactOperationsOfLiterals) {
  EXPECT_EQ(After(FoldConstants, Wrap("", "tensor<2xf32>",
                                      "%0 = constant() {value = dense tensor<2xf32> [1.5, 2.0]} : tensor<2xf32>\n"
                                      "%1 = constant() {value = dense tensor<2xf32> [0.1, -3.0]} : tensor<2xf32>\n"
                                      "%2 = multiply(%0, %1) : tensor<2xf32>\n"
                                      "%3 = negate(%2) : tensor<2xf32>",
                                      "%3")),
            Wrap("", "tensor<2xf32>", "%0 = constant() {value = dense tensor<2xf32> [-0.15, 6.0]} : tensor<2xf32>", "%0"));
}

TEST(FoldConstants, LeavesFunctionsToTheBackendThatRunsThem) {
  const std::string text = Wrap("", "tensor<f32>",
                                "%0 = constant() {value = dense tensor<f32> [1.5]} : tensor<f32>\n"
                                "%1 = exponential(%0) : tensor<f32>",
                                "%1");
  EXPECT_EQ(After(FoldConstants, text), text);
}

TEST(FoldConstants, LeavesBroadcastsOfScalarsSmall) {
  const std::string text =
      Wrap("", "tensor<4xf32>",
           "%0 = constant() {value = dense tensor<f32> [1.5]} : tensor<f32>\n"
           "%1 = broadcast_in_dim(%0) {shape = [4], broadcast_dimensions = []} : tensor<4xf32>",
           "%1");
  EXPECT_EQ(After(FoldConstants, text), text);
}

TEST(FoldConstants, NeverFoldsRunTimeScalars) {
  const std::string text = "module {words = 1}\n" +
                           Wrap("%0: tensor<f32> {word = 0}", "tensor<f32>",
                                "%1 = constant() {value = dense tensor<f32> [0.0]} : tensor<f32>\n"
                                "%2 = multiply(%0, %1) : tensor<f32>",
                                "%2");
  EXPECT_EQ(After(FoldConstants, text), text);
}

TEST(FoldConstants, StopsAtABarrier) {
  const std::string text = Wrap("", "tensor<i32>, tensor<i32>",
                                "%0 = constant() {value = dense tensor<i32> [2]} : tensor<i32>\n"
                                "%1:2 = optimization_barrier(%0, %0) : tensor<i32>, tensor<i32>\n"
                                "%2 = add(%1#0, %0) : tensor<i32>",
                                "%1#1, %2");
  EXPECT_EQ(After(FoldConstants, text), text);
}

}  // namespace
}  // namespace weft::passes
