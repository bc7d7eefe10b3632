// Branches see what they use, and nothing is computed for the rest.
#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

std::string Case(std::string_view sees, std::string_view computes, std::string_view arguments) {
  return std::string("func @main(%0: tensor<i32>, %1: tensor<f32>, %2: tensor<f32>) -> (tensor<f32>) {\n") +
         std::string(computes) + std::string(arguments) + " regions {\n    func @first(" + std::string(sees) +
         ") -> (tensor<f32>) {\n";
}

TEST(PruneLoops, TakesUnusedCapturesOutOfBranches) {
  const std::string before = Case("%0: tensor<f32>, %1: tensor<f32>", "  %3 = sine(%1) : tensor<f32>\n", "  %4 = case(%0, %3, %2, %1, %2)") +
                             "      %2 = negate(%1) : tensor<f32>\n      return %2\n    }\n"
                             "    func @second(%0: tensor<f32>, %1: tensor<f32>) -> (tensor<f32>) {\n      return %0\n    }\n"
                             "  } : tensor<f32>\n  return %4\n}\n";
  const std::string after = Case("%0: tensor<f32>", "", "  %3 = case(%0, %2, %1)") +
                            "      %1 = negate(%0) : tensor<f32>\n      return %1\n    }\n"
                            "    func @second(%0: tensor<f32>) -> (tensor<f32>) {\n      return %0\n    }\n"
                            "  } : tensor<f32>\n  return %3\n}\n";
  EXPECT_EQ(After(PruneLoops, before), after);
  EXPECT_EQ(After(PruneLoops, after), after);
}

}  // namespace
}  // namespace weft::passes
