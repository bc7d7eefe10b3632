// Every form that JAX prints (pretty, and generic inside pretty text), read into the IR's own text.
#include "src/runtime/host_tensor.h"
#include "tests/stablehlo/forms.h"
#include "tests/stablehlo/read_support.h"

namespace weft::stablehlo {
namespace {

using testing::HasSubstr;

TEST(StableHloForms, AreRead) {
  for (const Form& form : kForms) {
    EXPECT_THAT(ReadBody(form.arguments, form.results, form.body), HasSubstr(form.read)) << form.name;
  }
}

std::string ReadConstant(std::string_view literal, std::string_view type) {
  return ReadBody("", type, absl::StrCat("%0 = stablehlo.constant dense<", literal, "> : ", type, "\n return %0 : ", type));
}

TEST(StableHloForms, ConstantsInEverySpelling) {
  EXPECT_THAT(ReadConstant("1.500000e+00", "tensor<f32>"), HasSubstr("dense tensor<f32> [1.5]"));
  EXPECT_THAT(ReadConstant("0x7FC00000", "tensor<f32>"), HasSubstr("0x0000c07f"));
  EXPECT_THAT(ReadConstant("[[1, -2], [3, 4]]", "tensor<2x2xi8>"), HasSubstr("[1, -2, 3, 4]"));
  EXPECT_THAT(ReadConstant("18446744073709551615", "tensor<ui64>"), HasSubstr("[18446744073709551615]"));
  EXPECT_THAT(ReadConstant("-2147483648", "tensor<i32>"), HasSubstr("[-2147483648]"));
  EXPECT_THAT(ReadConstant("-9223372036854775808", "tensor<i64>"), HasSubstr("[-9223372036854775808]"));
  // What no double holds is infinite, or 0.
  EXPECT_THAT(ReadConstant("[1.0e+400, -1.0e+400, 1.0e-400]", "tensor<3xf64>"), HasSubstr("[inf, -inf, 0.0]"));
  EXPECT_THAT(ReadConstant("1.0e+39", "tensor<f32>"), HasSubstr("[inf]"));
  EXPECT_THAT(ReadConstant("[true, false]", "tensor<2xi1>"), HasSubstr("[true, false]"));
  EXPECT_THAT(ReadConstant("\"0x0100000002000000\"", "tensor<2xi32>"), HasSubstr("[1, 2]"));
  EXPECT_THAT(ReadConstant("", "tensor<0x3xf32>"), HasSubstr("dense tensor<0x3xf32> []"));
  EXPECT_THAT(ReadConstant("\"0x01000000\"", "tensor<2xi32>"), HasSubstr("broadcast_in_dim(%0) {shape = [2]"));
  // One byte may be a splat, or bits.
  EXPECT_THAT(ReadConstant("\"0xFF\"", "tensor<4xi1>"), HasSubstr("broadcast_in_dim(%0)"));
  EXPECT_THAT(ReadConstant("\"0x05\"", "tensor<4xi1>"), HasSubstr("[true, false, true, false]"));
  EXPECT_THAT(ReadConstant("\"0x0501\"", "tensor<9xi1>"), HasSubstr("[true, false, true, false, false, false, false, false, true]"));
}

TEST(StableHloForms, ALargeSplatTakesNoMemory) {
  EXPECT_THAT(ReadConstant("0.0", "tensor<1000000x1000000xf32>"), HasSubstr("broadcast_in_dim(%0)"));
}

TEST(StableHloForms, ModulesAsJaxPrintsThem) {
  EXPECT_EQ(Read("#loc1 = loc(\"f.py\":7:3)\n"
                 "module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 2 : i32} {\n"
                 "  sdy.mesh @maximal_mesh_0 = <[], device_ids=[0]> {stablehlo.mesh = {axes = []}}\n"
                 "  func.func public @main(%arg0: tensor<f32> {tf.aliasing_output = 0 : i32} loc(unknown)) -> (tensor<f32> "
                 "{jax.result_info = \"result\"}) {\n"
                 "    %0 = call @inner(%arg0) : (tensor<f32>) -> tensor<f32> loc(#loc1)\n"
                 "    return %0 : tensor<f32> loc(callsite(\"a\"(#loc1) at #loc))\n"
                 "  } loc(#loc)\n"
                 "  func.func private @inner(%arg0: tensor<f32>) -> tensor<f32> {\n"
                 "    %0 = stablehlo.negate %arg0 : tensor<f32>\n"
                 "    return %0 : tensor<f32>\n"
                 "  }\n"
                 "} loc(#loc)\n"
                 "#loc = loc(unknown)\n"),
            "module {replicas = 2}\n"
            "private func @inner(%0: tensor<f32>) -> (tensor<f32>) {\n"
            "  %1 = negate(%0) : tensor<f32>\n"
            "  return %1\n"
            "}\n"
            "func @main(%0: tensor<f32> {donated_to = 0}) -> (tensor<f32>) {\n"
            "  %1 = weft.call(%0) @inner : tensor<f32>\n"
            "  return %1\n"
            "}\n");
}

TEST(StableHloForms, LocationsAreKeptWhereTheyNameAFile) {
  auto module = ReadStableHlo("func.func @main(%a: tensor<f32>) -> tensor<f32> {\n"
                              "  %0 = stablehlo.negate %a : tensor<f32> loc(#loc2)\n"
                              "  return %0 : tensor<f32>\n}\n"
                              "#loc1 = loc(\"f.py\":12:5 to :9)\n#loc2 = loc(\"neg\"(#loc1))\n");
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_THAT(ir::Print(*module), HasSubstr("loc(\"f.py:12\")"));
}

TEST(StableHloForms, GenericModules) {
  EXPECT_THAT(Read("\"builtin.module\"() <{sym_name = \"m\"}> ({\n"
                   "  \"func.func\"() <{function_type = (tensor<f32>) -> tensor<i1>, sym_name = \"main\", arg_attrs = "
                   "[{mhlo.layout_mode = \"default\"}]}> ({\n"
                   "  ^bb0(%arg0: tensor<f32>):\n"
                   "    %0 = \"stablehlo.compare\"(%arg0, %arg0) <{comparison_direction = #stablehlo<comparison_direction GE>}> : "
                   "(tensor<f32>, tensor<f32>) -> tensor<i1>\n"
                   "    \"func.return\"(%0) : (tensor<i1>) -> ()\n"
                   "  }) : () -> ()\n}) : () -> ()\n"),
              HasSubstr("compare(%0, %0) {direction = ge}"));
}

TEST(StableHloForms, AWhileClosesItsRegions) {
  EXPECT_EQ(ReadBody("%n: tensor<i32>, %d: tensor<i32>", "tensor<i32>",
                     "%c = stablehlo.constant dense<0> : tensor<i32>\n"
                     "%0 = stablehlo.while(%iterArg = %c) : tensor<i32>\n"
                     " cond {\n  %1 = stablehlo.compare LT, %iterArg, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
                     "  stablehlo.return %1 : tensor<i1>\n } do {\n"
                     "  %1 = stablehlo.add %iterArg, %d : tensor<i32>\n  stablehlo.return %1 : tensor<i32>\n }\n"
                     "return %0 : tensor<i32>"),
            "func @main(%0: tensor<i32>, %1: tensor<i32>) -> (tensor<i32>) {\n"
            "  %2 = constant() {value = dense tensor<i32> [0]} : tensor<i32>\n"
            "  %3 = while(%2, %0, %1) regions {\n"
            "    func @cond(%0: tensor<i32>, %1: tensor<i32>) -> (tensor<i1>) {\n"
            "      %2 = compare(%0, %1) {direction = lt} : tensor<i1>\n"
            "      return %2\n"
            "    }\n"
            "    func @body(%0: tensor<i32>, %1: tensor<i32>) -> (tensor<i32>) {\n"
            "      %2 = add(%0, %1) : tensor<i32>\n"
            "      return %2\n"
            "    }\n"
            "  } : tensor<i32>\n"
            "  return %3\n"
            "}\n");
}

TEST(StableHloForms, ACaptureOfACaptureGoesThroughTheRegionBetween) {
  EXPECT_THAT(ReadBody("%i: tensor<i32>, %p: tensor<i1>, %x: tensor<f32>", "tensor<f32>",
                       "%0 = \"stablehlo.case\"(%i) ({\n"
                       "  %1 = \"stablehlo.if\"(%p) ({\n    stablehlo.return %x : tensor<f32>\n  }, {\n"
                       "    %2 = stablehlo.negate %x : tensor<f32>\n    stablehlo.return %2 : tensor<f32>\n  }) : (tensor<i1>) -> "
                       "tensor<f32>\n  stablehlo.return %1 : tensor<f32>\n}) : (tensor<i32>) -> tensor<f32>\n"
                       "return %0 : tensor<f32>"),
              HasSubstr("%3 = case(%0, %1, %2) regions {\n"
                        "    func @branches(%0: tensor<i1>, %1: tensor<f32>) -> (tensor<f32>) {\n"
                        "      %2 = if(%0, %1, %1) regions {\n"));
}

TEST(StableHloForms, WhatGivesNothingIsNotThere) {
  EXPECT_EQ(Read("func.func public @main(%i: tensor<i32>, %x: tensor<f32>) -> (tensor<f32>) {\n"
                 "  \"stablehlo.case\"(%i) ({\n    stablehlo.return\n  }, {\n"
                 "    func.call @nothing(%x) : (tensor<f32>) -> ()\n    stablehlo.return\n  }) : (tensor<i32>) -> ()\n"
                 "  call @nothing(%x) : (tensor<f32>) -> ()\n  return %x : tensor<f32>\n}\n"
                 "func.func private @nothing(%x: tensor<f32>) {\n  %0 = stablehlo.negate %x : tensor<f32>\n  return\n}\n"),
            "func @main(%0: tensor<i32>, %1: tensor<f32>) -> (tensor<f32>) {\n  return %1\n}\n");
}

TEST(StableHloForms, TuplesAreTheirElementsAndTokensNothing) {
  EXPECT_EQ(ReadBody("%t: tuple<tensor<2xf32>, tuple<tensor<i32>, !stablehlo.token>>, %x: tensor<2xf32>", "tuple<tensor<2xf32>, tensor<i32>>",
                     "%0 = stablehlo.get_tuple_element %t[0] : (tuple<tensor<2xf32>, tuple<tensor<i32>, !stablehlo.token>>) -> tensor<2xf32>\n"
                     "%1 = \"stablehlo.get_tuple_element\"(%t) <{index = 1 : i32}> : (tuple<tensor<2xf32>, tuple<tensor<i32>, "
                     "!stablehlo.token>>) -> tuple<tensor<i32>, !stablehlo.token>\n"
                     "%2 = stablehlo.get_tuple_element %1[0] : (tuple<tensor<i32>, !stablehlo.token>) -> tensor<i32>\n"
                     "%3 = stablehlo.create_token : !stablehlo.token\n"
                     "%4 = stablehlo.after_all %3, %3 : !stablehlo.token\n"
                     "%5:2 = stablehlo.optimization_barrier %0, %4 : tensor<2xf32>, !stablehlo.token\n"
                     "%6 = stablehlo.tuple %2, %5#0 : tuple<tensor<i32>, tensor<2xf32>>\n"
                     "%7 = stablehlo.while(%c = %6) : tuple<tensor<i32>, tensor<2xf32>>\n"
                     " cond {\n  %8 = stablehlo.get_tuple_element %c[0] : (tuple<tensor<i32>, tensor<2xf32>>) -> tensor<i32>\n"
                     "  %9 = stablehlo.get_tuple_element %6[0] : (tuple<tensor<i32>, tensor<2xf32>>) -> tensor<i32>\n"
                     "  %10 = stablehlo.compare LT, %8, %9 : (tensor<i32>, tensor<i32>) -> tensor<i1>\n  stablehlo.return %10 : tensor<i1>\n"
                     " } do {\n  stablehlo.return %c : tuple<tensor<i32>, tensor<2xf32>>\n }\n"
                     "%8 = stablehlo.get_tuple_element %7[1] : (tuple<tensor<i32>, tensor<2xf32>>) -> tensor<2xf32>\n"
                     "%9 = stablehlo.add %8, %x : tensor<2xf32>\n"
                     "%10 = stablehlo.tuple %9, %2 : tuple<tensor<2xf32>, tensor<i32>>\n"
                     "%11 = stablehlo.tuple %10 : tuple<tuple<tensor<2xf32>, tensor<i32>>>\n"
                     "%12 = stablehlo.get_tuple_element %11[0] : (tuple<tuple<tensor<2xf32>, tensor<i32>>>) -> tuple<tensor<2xf32>, tensor<i32>>\n"
                     "return %12 : tuple<tensor<2xf32>, tensor<i32>>"),
            "func @main(%0: tensor<2xf32>, %1: tensor<i32>, %2: tensor<2xf32>) -> (tensor<2xf32>, tensor<i32>) {\n"
            "  %3 = optimization_barrier(%0) : tensor<2xf32>\n"
            "  %4:2 = while(%1, %3, %1, %3) regions {\n"
            "    func @cond(%0: tensor<i32>, %1: tensor<2xf32>, %2: tensor<i32>, %3: tensor<2xf32>) -> (tensor<i1>) {\n"
            "      %4 = compare(%0, %2) {direction = lt} : tensor<i1>\n"
            "      return %4\n"
            "    }\n"
            "    func @body(%0: tensor<i32>, %1: tensor<2xf32>) -> (tensor<i32>, tensor<2xf32>) {\n"
            "      return %0, %1\n"
            "    }\n"
            "  } : tensor<i32>, tensor<2xf32>\n"
            "  %5 = add(%4#1, %2) : tensor<2xf32>\n"
            "  return %5, %1\n"
            "}\n");
  // Results are counted as the text counts them: the second is the third tensor.
  EXPECT_THAT(Read("func.func @main(%x: tensor<f32> {tf.aliasing_output = 1 : i32}, %y: tensor<i32>) -> (tuple<tensor<i32>, tensor<i32>>, "
                   "tensor<f32>) {\n  %0 = stablehlo.tuple %y, %y : tuple<tensor<i32>, tensor<i32>>\n"
                   "  return %0, %x : tuple<tensor<i32>, tensor<i32>>, tensor<f32>\n}\n"),
              HasSubstr("{donated_to = 2}"));
}

TEST(StableHloForms, SeveralNamedResults) {
  EXPECT_THAT(ReadBody("%s: tensor<3xui64>", "tensor<3xui64>, tensor<5xui32>",
                       "%output_state, %output = stablehlo.rng_bit_generator %s, algorithm = PHILOX : (tensor<3xui64>) -> "
                       "(tensor<3xui64>, tensor<5xui32>)\nreturn %output_state, %output : tensor<3xui64>, tensor<5xui32>"),
              HasSubstr("return %1#0, %1#1"));
}

TEST(StableHloForms, ACompositeIsACallOfItsDecomposition) {
  EXPECT_THAT(Read("func.func @main(%a: tensor<f32>) -> tensor<f32> {\n"
                   "  %0 = stablehlo.composite \"my.neg\" %a {composite_attributes = {k = 3 : i64}, decomposition = @d, version = 1 : "
                   "i32} : (tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32>\n}\n"
                   "func.func private @d(%a: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.negate %a : tensor<f32>\n  return %0 : "
                   "tensor<f32>\n}\n"),
              testing::AllOf(HasSubstr("weft.call(%0) @d : "), HasSubstr("unknown(\"name\" = \"\\\"my.neg\\\"\"")));
}

}  // namespace
}  // namespace weft::stablehlo
