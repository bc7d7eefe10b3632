// What complex values become: planes, in every function, and views of memory at the program's edges.
#include <gmock/gmock.h>

#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SplitComplex, LeavesRealModulesAsTheyAre) {
  const auto module = ir::Parse(Wrap("%0: tensor<2xf32>", "tensor<2xf32>", "%1 = sine(%0) : tensor<2xf32>", "%1"), ops::FindOp);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto split = SplitComplex(*module, {});
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(&split->main(), &module->main());
}

TEST(SplitComplex, SeesParametersAndResultsAsPairsInMemory) {
  const std::string after = After(SplitComplex, Wrap("%0: tensor<3xcomplex<f32>>", "tensor<3xcomplex<f32>>",
                                                     "%1 = negate(%0) : tensor<3xcomplex<f32>>", "%1"));
  EXPECT_EQ(after, Wrap("%0: tensor<3xcomplex<f32>>", "tensor<3xcomplex<f32>>",
                        "%1 = view_as_real(%0) {shape = [3, 2]} : tensor<3x2xf32>\n"
                        "%2 = slice(%1) {start_indices = [0, 0], limit_indices = [3, 1], strides = [1, 1]} : tensor<3x1xf32>\n"
                        "%3 = reshape(%2) {shape = [3]} : tensor<3xf32>\n"
                        "%4 = slice(%1) {start_indices = [0, 1], limit_indices = [3, 2], strides = [1, 1]} : tensor<3x1xf32>\n"
                        "%5 = reshape(%4) {shape = [3]} : tensor<3xf32>\n"
                        "%6 = negate(%3) : tensor<3xf32>\n"
                        "%7 = negate(%5) : tensor<3xf32>\n"
                        "%8 = reshape(%6) {shape = [3, 1]} : tensor<3x1xf32>\n"
                        "%9 = reshape(%7) {shape = [3, 1]} : tensor<3x1xf32>\n"
                        "%10 = concatenate(%8, %9) {dimension = 1} : tensor<3x2xf32>\n"
                        "%11 = view_as_complex(%10) {shape = [3]} : tensor<3xcomplex<f32>>",
                        "%11"));
}

TEST(SplitComplex, TakesLiteralsApartAndMultipliesByFourProducts) {
  const std::string after = After(
      SplitComplex, Wrap("%0: tensor<f64>", "tensor<f64>",
                         "%1 = constant() {value = dense tensor<complex<f64>> [(1.5, -2.0)]} : tensor<complex<f64>>\n"
                         "%2 = complex(%0, %0) : tensor<complex<f64>>\n"
                         "%3 = multiply(%1, %2) : tensor<complex<f64>>\n"
                         "%4 = imag(%3) : tensor<f64>",
                         "%4"));
  EXPECT_THAT(after, HasSubstr("dense tensor<f64> [1.5]"));
  EXPECT_THAT(after, HasSubstr("dense tensor<f64> [-2.0]"));
  EXPECT_THAT(after, Not(HasSubstr("complex")));
  EXPECT_THAT(after, HasSubstr("add("));
}

// Carried values double in place, in the loop's functions too.
TEST(SplitComplex, DoublesWhatLoopsCarry) {
  const std::string after = After(
      SplitComplex,
      "func @main(%0: tensor<i32>, %1: tensor<complex<f32>>, %2: tensor<f32>) -> (tensor<complex<f32>>, tensor<f32>) {\n"
      "  %3:3 = while(%0, %1, %2) regions {\n"
      "    func @condition(%0: tensor<i32>, %1: tensor<complex<f32>>, %2: tensor<f32>) -> (tensor<i1>) {\n"
      "      %3 = constant() {value = dense tensor<i32> [3]} : tensor<i32>\n"
      "      %4 = compare(%0, %3) {direction = lt} : tensor<i1>\n"
      "      return %4\n"
      "    }\n"
      "    func @body(%0: tensor<i32>, %1: tensor<complex<f32>>, %2: tensor<f32>) -> (tensor<i32>, tensor<complex<f32>>, tensor<f32>) {\n"
      "      %3 = add(%0, %0) : tensor<i32>\n"
      "      %4 = multiply(%1, %1) : tensor<complex<f32>>\n"
      "      return %3, %4, %2\n"
      "    }\n"
      "  } : tensor<i32>, tensor<complex<f32>>, tensor<f32>\n"
      "  return %3#1, %3#2\n}\n");
  EXPECT_THAT(after, HasSubstr("@body(%0: tensor<i32>, %1: tensor<f32>, %2: tensor<f32>, %3: tensor<f32>)")) << after;
}

}  // namespace
}  // namespace weft::passes
