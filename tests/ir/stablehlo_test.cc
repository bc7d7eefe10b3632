// StableHLO text, character by character; tests/oracle runs it.
#include "src/ir/stablehlo.h"

#include <gtest/gtest.h>

#include "src/ir/text.h"
#include "tests/ir/support_ops.h"

namespace weft::ir {
namespace {

std::string Hlo(std::string_view text) {
  auto module = Parse(text, FindTestOp);
  if (!module.ok()) return std::string(module.status().message());
  auto out = ToStableHlo(*module);
  return out.ok() ? *out : std::string(out.status().message());
}

TEST(StableHlo, PrintsGenericForm) {
  EXPECT_EQ(Hlo("module {replicas = 2}\n"
                "func @main(%0: tensor<2x3xf32> {donated_to = 0}, %1: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<2xi1>) {\n"
                "%2 = broadcast_in_dim(%1) {shape = [2, 3], broadcast_dimensions = [1]} : tensor<2x3xf32>\n"
                "%3 = add(%0, %2) : tensor<2x3xf32> sharding(\"{replicated}\") unknown(\"my.note\" = \"7 : i32\")\n"
                "%4 = reduce(%3) {dimensions = [1], reducer = max} : tensor<2xf32>\n"
                "%5 = compare(%4, %4) {direction = ne} : tensor<2xi1>\n"
                "return %3, %5 }"),
            "module @weft attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 2 : i32} {\n"
            "  func.func public @main(%0: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %1: tensor<3xf32>) -> "
            "(tensor<2x3xf32>, tensor<2xi1>) {\n"
            "    %2 = \"stablehlo.broadcast_in_dim\"(%1) {broadcast_dimensions = array<i64: 1>} : (tensor<3xf32>) -> tensor<2x3xf32>\n"
            "    %3 = \"stablehlo.add\"(%0, %2) {mhlo.sharding = \"{replicated}\", my.note = 7 : i32} : (tensor<2x3xf32>, "
            "tensor<2x3xf32>) -> tensor<2x3xf32>\n"
            "    %4 = \"stablehlo.constant\"() {value = dense<0xff800000> : tensor<f32>} : () -> tensor<f32>\n"
            "    %8 = \"stablehlo.reduce\"(%3, %4) ({^bb0(%5: tensor<f32>, %6: tensor<f32>): %7 = \"stablehlo.maximum\"(%5, %6) : "
            "(tensor<f32>, tensor<f32>) -> tensor<f32> \"stablehlo.return\"(%7) : (tensor<f32>) -> ()}) {dimensions = array<i64: 1>} "
            ": (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>\n"
            "    %9 = \"stablehlo.compare\"(%8, %8) {comparison_direction = #stablehlo<comparison_direction NE>} : (tensor<2xf32>, "
            "tensor<2xf32>) -> tensor<2xi1>\n"
            "    \"func.return\"(%3, %9) : (tensor<2x3xf32>, tensor<2xi1>) -> ()\n"
            "  }\n"
            "}\n");
}

TEST(StableHlo, WritesLiteralsExactly) {
  HostTensor small(DType::kF32, {2, 2});
  small.SetDouble(0, 1);
  small.SetDouble(1, -0.5);
  small.SetDouble(2, 0.1f);
  small.SetDouble(3, __builtin_nan(""));
  EXPECT_EQ(ShloDense(small), "dense<[[1.0, -0.5], [0x3dcccccd, 0x7fc00000]]> : tensor<2x2xf32>");
  HostTensor bools(DType::kBool, {3});
  bools.SetInt(1, 1);
  EXPECT_EQ(ShloDense(bools), "dense<[false, true, false]> : tensor<3xi1>");
  EXPECT_EQ(ShloDense(HostTensor(DType::kI8, {0, 3})), "dense<> : tensor<0x3xi8>");
  HostTensor large(DType::kU16, {65});
  large.SetInt(0, 0x1234);
  EXPECT_EQ(ShloDense(large), "dense<\"0x3412" + std::string(256, '0') + "\"> : tensor<65xui16>");
  HostTensor most(DType::kU64, {});
  most.SetInt(0, -1);
  EXPECT_EQ(ShloDense(most), "dense<18446744073709551615> : tensor<ui64>");
}

TEST(StableHlo, RefusesCompositesByName) {
  EXPECT_EQ(Hlo("func @main(%0: tensor<2xf32>) -> (tensor<2xf32>) { %1 = weft.softmax(%0) {axis = -1} : tensor<2xf32> return %1 }"),
            "internal error (please report): StableHLO has no weft.softmax: it must be expanded first");
}

}  // namespace
}  // namespace weft::ir
