// Which products keep their factors, and what the others' become.
#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

constexpr std::string_view kDot = ") {lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]";

// x [2, 3] times y [3, 4] of one type into another.
std::string Product(std::string_view factor, std::string_view result) {
  const std::string t(factor), r(result);
  return Wrap("%0: tensor<2x3x" + t + ">, %1: tensor<3x4x" + t + ">", "tensor<2x4x" + r + ">",
              "%2 = dot_general(%0, %1" + std::string(kDot) + ", dtype = " + r + "} : tensor<2x4x" + r + ">", "%2");
}

// The same with factors converted to `taken`, summed in `sum`.
std::string Converted(std::string_view factor, std::string_view taken, std::string_view sum, std::string_view result) {
  const std::string t(factor), k(taken), s(sum), r(result);
  std::string lines, x = "%0", y = "%1";
  int next = 2;
  const auto name = [&] { return "%" + std::to_string(next++); };
  if (k != t) {
    x = name();
    lines += x + " = convert(%0) {dtype = " + k + "} : tensor<2x3x" + k + ">\n";
    y = name();
    lines += y + " = convert(%1) {dtype = " + k + "} : tensor<3x4x" + k + ">\n";
  }
  std::string last = name();
  lines += last + " = dot_general(" + x + ", " + y + std::string(kDot) + (s != k ? ", dtype = " + s : "") + "} : tensor<2x4x" + s + ">\n";
  if (s != r) {
    const std::string z = name();
    lines += z + " = convert(" + last + ") {dtype = " + r + "} : tensor<2x4x" + r + ">\n";
    last = z;
  }
  return Wrap("%0: tensor<2x3x" + t + ">, %1: tensor<3x4x" + t + ">", "tensor<2x4x" + r + ">", lines, last);
}

TEST(ConvertFactors, LeavesWhatBackendsHave) {
  for (const auto& [factor, result] : {std::pair("f32", "f32"), {"bf16", "f32"}, {"f16", "f32"}, {"bf16", "bf16"}, {"i8", "i32"}, {"ui8", "i32"}, {"i16", "i32"}, {"i8", "i8"}}) {
    EXPECT_EQ(After(ConvertFactors, Product(factor, result)), Product(factor, result));
  }
}

TEST(ConvertFactors, SumsInTheResultsTypeIfThatIsWider) {
  EXPECT_EQ(After(ConvertFactors, Product("f32", "f64")), Converted("f32", "f64", "f64", "f64"));
  EXPECT_EQ(After(ConvertFactors, Product("bf16", "f64")), Converted("bf16", "f64", "f64", "f64"));
  EXPECT_EQ(After(ConvertFactors, Product("i32", "i64")), Converted("i32", "i64", "i64", "i64"));
  EXPECT_EQ(After(ConvertFactors, Product("i8", "i64")), Converted("i8", "i64", "i64", "i64"));
  EXPECT_EQ(After(ConvertFactors, Product("i8", "f32")), Converted("i8", "f64", "f64", "f32"));
}

TEST(ConvertFactors, RoundsOnceWhereTheResultIsShorter) {
  EXPECT_EQ(After(ConvertFactors, Product("f64", "f32")), Converted("f64", "f64", "f64", "f32"));
  EXPECT_EQ(After(ConvertFactors, Product("f32", "bf16")), Converted("f32", "f32", "f32", "bf16"));
  EXPECT_EQ(After(ConvertFactors, Product("bf16", "f16")), Converted("bf16", "bf16", "f32", "f16"));
}

TEST(ConvertFactors, CutsOffBitsOfIntegersThatTheResultHasNot) {
  EXPECT_EQ(After(ConvertFactors, Product("i32", "i8")), Converted("i32", "i8", "i8", "i8"));
  EXPECT_EQ(After(ConvertFactors, Product("i8", "ui32")), Converted("i8", "ui32", "ui32", "ui32"));
}

}  // namespace
}  // namespace weft::passes
