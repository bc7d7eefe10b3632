// Common subexpressions.
#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

constexpr std::string_view kTwo = "%0: tensor<2xf32>, %1: tensor<2xf32>";

TEST(MergeEqual, ComputesEqualNodesOnce) {
  EXPECT_EQ(After(MergeEqual, Wrap(kTwo, "tensor<2xf32>, tensor<2xf32>",
                                   "%2 = subtract(%0, %1) : tensor<2xf32>\n%3 = subtract(%0, %1) : tensor<2xf32>\n"
                                   "%4 = negate(%2) : tensor<2xf32>\n%5 = negate(%3) : tensor<2xf32>",
                                   "%4, %5")),
            Wrap(kTwo, "tensor<2xf32>, tensor<2xf32>",
                 "%2 = subtract(%0, %1) : tensor<2xf32>\n%3 = negate(%2) : tensor<2xf32>", "%3, %3"));
}

TEST(MergeEqual, KnowsThatAdditionCommutes) {
  EXPECT_EQ(After(MergeEqual, Wrap(kTwo, "tensor<2xf32>, tensor<2xf32>",
                                   "%2 = add(%0, %1) : tensor<2xf32>\n%3 = add(%1, %0) : tensor<2xf32>", "%2, %3")),
            Wrap(kTwo, "tensor<2xf32>, tensor<2xf32>", "%2 = add(%0, %1) : tensor<2xf32>", "%2, %2"));
  const std::string text = Wrap(kTwo, "tensor<2xf32>, tensor<2xf32>",
                                "%2 = subtract(%0, %1) : tensor<2xf32>\n%3 = subtract(%1, %0) : tensor<2xf32>", "%2, %3");
  EXPECT_EQ(After(MergeEqual, text), text);
}

TEST(MergeEqual, TellsAttributesAndLiteralsApart) {
  const std::string text = Wrap("%0: tensor<2x2xf32>", "tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<f32>",
                                "%1 = reduce(%0) {dimensions = [0], reducer = sum} : tensor<2xf32>\n"
                                "%2 = reduce(%0) {dimensions = [1], reducer = sum} : tensor<2xf32>\n"
                                "%3 = constant() {value = dense tensor<f32> [0.0]} : tensor<f32>\n"
                                "%4 = constant() {value = dense tensor<f32> [-0.0]} : tensor<f32>",
                                "%1, %2, %3, %4");
  EXPECT_EQ(After(MergeEqual, text), text);
}

TEST(MergeEqual, NeverMergesArguments) {
  // Equal scalars of two arguments today may differ tomorrow.
  const std::string text = "module {words = 2}\n" + Wrap("%0: tensor<f32> {word = 0}, %1: tensor<f32> {word = 1}",
                                                         "tensor<f32>, tensor<f32>",
                                                         "%2 = negate(%0) : tensor<f32>\n%3 = negate(%1) : tensor<f32>", "%2, %3");
  EXPECT_EQ(After(MergeEqual, text), text);
}

TEST(MergeEqual, SeesNothingPastABarrier) {
  // What a recomputation begins with is not what it recomputes, nor another recomputation.
  const std::string text = Wrap("%0: tensor<2xf32>", "tensor<2xf32>, tensor<2xf32>, tensor<2xf32>",
                                "%1 = negate(%0) : tensor<2xf32>\n%2 = optimization_barrier(%0) : tensor<2xf32>\n"
                                "%3 = negate(%2) : tensor<2xf32>\n%4 = optimization_barrier(%0) : tensor<2xf32>\n"
                                "%5 = negate(%4) : tensor<2xf32>",
                                "%1, %3, %5");
  EXPECT_EQ(After(MergeEqual, text), text);
}

}  // namespace
}  // namespace weft::passes
