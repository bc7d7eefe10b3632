// Bad text: what the error says and where; text that wants more than it should.
#include "tests/stablehlo/read_support.h"

namespace weft::stablehlo {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string OneOp(std::string_view line) {
  return ReadBody("%a: tensor<2xf32>, %b: tensor<3xf32>", "tensor<2xf32>", absl::StrCat(line, "\nreturn %a : tensor<2xf32>"));
}

TEST(StableHloErrors, SayLineAndColumn) {
  EXPECT_EQ(Read("module {\n  func.func @main(%a: tensor<2xf32) {"),
            "line 2, column 35: expected '>', found \") {\"");
  EXPECT_EQ(OneOp("  %0 = stablehlo.add %a, %c : tensor<2xf32>"), "line 2, column 26: %c is not defined before its use");
  EXPECT_EQ(OneOp("%0 = stablehlo.add %a, %b : tensor<2xf32>"),
            "line 2, column 24: %b is tensor<3xf32>; stablehlo.add says tensor<2xf32>");
  EXPECT_EQ(OneOp("%0 = stablehlo.negate %a : (tensor<2xf32>) -> tensor<5xf32>"),
            "line 2, column 6: stablehlo.negate gives tensor<2xf32>; the text says tensor<5xf32>");
  EXPECT_EQ(OneOp("%0 = stablehlo.custom_call @SPMDFullToShardShape(%a) : (tensor<2xf32>) -> tensor<1xf32>"),
            "line 2, column 6: stablehlo.custom_call @SPMDFullToShardShape gives tensor<2xf32>; the text says tensor<1xf32>");
  EXPECT_EQ(OneOp("%a = stablehlo.negate %b : tensor<3xf32>"), "line 2, column 1: %a is defined twice");
  EXPECT_EQ(OneOp("%0:2 = stablehlo.negate %a : tensor<2xf32>"), "line 2, column 30: expected the types of 2 results, found \"tensor<2xf32>\"");
  EXPECT_THAT(OneOp("%0 = stablehlo.slice %a [0:9] : (tensor<2xf32>) -> tensor<9xf32>"),
              StartsWith("line 2, column 6: stablehlo.slice: slice(f32[2]): dimension 0 has size 2"));
  EXPECT_THAT(OneOp("%0 = stablehlo.compare XX, %a, %a : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>"),
              HasSubstr("comparison_direction is XX; it must be EQ, NE, GE, GT, LE or LT"));
}

TEST(StableHloErrors, BitsOfComplexNumbersHaveNoOtherWidth) {
  EXPECT_THAT(ReadBody("%c: tensor<2xcomplex<f32>>", "tensor<2x2xf32>",
                       "%0 = stablehlo.bitcast_convert %c : (tensor<2xcomplex<f32>>) -> tensor<2x2xf32>\n return %0 : tensor<2x2xf32>"),
              HasSubstr("operand x has dtype c64"));
}

TEST(StableHloErrors, ListAllThatIsMissingAtOnce) {
  EXPECT_EQ(OneOp("%0 = stablehlo.frobnicate %a : tensor<2xf32>\n"
                  "%1 = stablehlo.custom_call @lapack_x(%a) : (tensor<2xf32>) -> tensor<2xf32>\n"
                  "%2 = my.thing %b, k = 3 : tensor<3xf32>\n"
                  "%3 = stablehlo.iota dim = 0 : tensor<?xf8E4M3FN>\n"
                  "%4 = stablehlo.constant dense<0.1> : tensor<2x!quant.uniform<i4:f32, 0.5:3>>\n"
                  "%5 = stablehlo.xor %x, %x : tensor<2x!quant.uniform<i8:f32, 0.5:3>>"),
            "line 2, column 6: this version of Weft does not have all that the text uses; operations: my.thing, "
            "stablehlo.custom_call @lapack_x, stablehlo.frobnicate, stablehlo.xor of tensor<2x!quant.uniform<i8:f32, 0.5:3>>; types: "
            "tensor<2x!quant.uniform<i4:f32, 0.5:3>>, "
            "tensor<?xf8E4M3FN>");
}

TEST(StableHloErrors, RandomNumbersWhereTheyCannotBe) {
  const std::string draw = "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%n = stablehlo.constant dense<2> : tensor<1xi64>\n"
                           "%0 = stablehlo.rng %c, %c, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> ";
  EXPECT_EQ(OneOp(draw + "tensor<3xf32>"), "line 4, column 6: stablehlo.rng: shape is [2]; it must give the result's, [3]");
  EXPECT_EQ(OneOp(draw + "tensor<2x2xf32>"), "line 4, column 6: stablehlo.rng: shape is [2]; it must give the result's, [2, 2]");
  EXPECT_EQ(OneOp("%0 = \"stablehlo.rng\"(%a) <{rng_distribution = #stablehlo<rng_distribution UNIFORM>}> : (tensor<2xf32>) -> tensor<2xf32>"),
            "line 2, column 6: stablehlo.rng: 1 operands and 1 results; a, b and shape and one result are expected");
  EXPECT_EQ(OneOp("%0 = \"stablehlo.map\"(%a) <{dimensions = array<i64: 0>}> ({\n^bb0(%x: tensor<f32>):\n"
                  "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%n = stablehlo.constant dense<> : tensor<0xi64>\n"
                  "%r = stablehlo.rng %c, %c, %n, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<0xi64>) -> tensor<f32>\n"
                  "stablehlo.return %r : tensor<f32>\n}) : (tensor<2xf32>) -> tensor<2xf32>"),
            "line 2, column 6: stablehlo.map: its function draws random numbers (stablehlo.rng), which is for functions that are "
            "called and for while, if and case; draw before it");
  EXPECT_EQ(OneOp("%t = stablehlo.constant dense<true> : tensor<i1>\n"
                  "%0:2 = \"stablehlo.while\"(%a, %a) ({\n^bb0(%x: tensor<2xf32>):\n stablehlo.return %t : tensor<i1>\n}, {\n"
                  "^bb0(%x: tensor<2xf32>):\n" + draw + "tensor<2xf32>\n stablehlo.return %0, %0 : tensor<2xf32>, tensor<2xf32>\n"
                  "}) : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)"),
            "line 3, column 8: stablehlo.while carries 2 values; a region takes 1");
}

TEST(StableHloErrors, TuplesAndTokensWhereTheyDoNotBelong) {
  const std::string pair = "%t = stablehlo.tuple %a, %b : tuple<tensor<2xf32>, tensor<3xf32>>\n";
  EXPECT_EQ(OneOp(pair + "%0 = stablehlo.add %t, %t : tuple<tensor<2xf32>, tensor<3xf32>>"),
            "line 3, column 20: stablehlo.add takes tensors; %t is tuple<tensor<2xf32>, tensor<3xf32>>");
  EXPECT_EQ(OneOp(pair + "%0 = stablehlo.get_tuple_element %t[2] : (tuple<tensor<2xf32>, tensor<3xf32>>) -> tensor<3xf32>"),
            "line 3, column 6: stablehlo.get_tuple_element has index 2 of 2 elements");
  EXPECT_EQ(OneOp(pair + "%0 = stablehlo.get_tuple_element %t[1] : (tuple<tensor<2xf32>, tensor<3xf32>>) -> tensor<2xf32>"),
            "line 3, column 6: stablehlo.get_tuple_element gives tensor<3xf32>; the text says tensor<2xf32>");
  EXPECT_EQ(OneOp("%0 = stablehlo.get_tuple_element %a[0] : (tensor<2xf32>) -> tensor<2xf32>"),
            "line 2, column 6: stablehlo.get_tuple_element takes one tuple and an index");
  EXPECT_EQ(OneOp("%0 = stablehlo.tuple %a : tuple<tensor<3xf32>>"),
            "line 2, column 6: stablehlo.tuple gives tuple<tensor<2xf32>>; the text says tuple<tensor<3xf32>>");
  EXPECT_EQ(OneOp("%0 = \"stablehlo.after_all\"(%a) : (tensor<2xf32>) -> !stablehlo.token"),
            "line 2, column 28: stablehlo.after_all takes tokens; %a is tensor<2xf32>");
  EXPECT_EQ(Read("func.func @main(%t: tuple<tensor<f32>> {tf.aliasing_output = 0 : i32}) -> tensor<f32> {\n  return %t : tuple<tensor<f32>>\n}\n"),
            "line 1, column 1: parameter %t: tf.aliasing_output is for tensors, not for tuple<tensor<f32>>");
  // What talks to the host.
  EXPECT_THAT(OneOp("%0:2 = \"stablehlo.infeed\"(%a) <{infeed_config = \"\"}> : (tensor<2xf32>) -> (tensor<2xf32>, !stablehlo.token)"),
              HasSubstr("does not have all that the text uses; operations: stablehlo.infeed"));
  EXPECT_THAT(OneOp("%0:2 = \"stablehlo.recv\"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 3>, is_host_transfer = true}>"
                    " : (tensor<2xf32>) -> (tensor<2xf32>, !stablehlo.token)"),
              HasSubstr("does not have all that the text uses; operations: stablehlo.recv"));
  EXPECT_THAT(OneOp("%0 = \"stablehlo.send\"(%a, %a) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 2>, is_host_transfer = true}>"
                    " : (tensor<2xf32>, tensor<2xf32>) -> !stablehlo.token"),
              HasSubstr("does not have all that the text uses; operations: stablehlo.send"));
  EXPECT_THAT(OneOp("%0 = \"stablehlo.outfeed\"(%a, %a) <{outfeed_config = \"\"}> : (tensor<2xf32>, tensor<2xf32>) -> !stablehlo.token"),
              HasSubstr("does not have all that the text uses; operations: stablehlo.outfeed"));
}

TEST(StableHloErrors, QuantisedTypesThatAreNone) {
  const auto type = [](std::string_view element) {
    return Read(absl::StrCat("func.func @main(%a: tensor<2x3x!quant.uniform<", element, ">>) {\n  return\n}\n"));
  };
  EXPECT_THAT(type("i8:f32, 0.5:3"), StartsWith("func @main(%0: tensor<2x3xi8>)"));
  EXPECT_THAT(type("ui16<1:9>:f64:1, {1.0:3, 2:1, 3e-3:9}"), StartsWith("func @main(%0: tensor<2x3xui16>)"));
  for (const char* scale : {"0.0", "-0.5", "nan", "inf", "1e-60", "1e60", "1e400"}) {
    EXPECT_THAT(type(absl::StrCat("i8:f32, ", scale)), testing::ContainsRegex("^line 1, column 55: expected a scale")) << scale;
  }
  EXPECT_THAT(type("i8:f16, 1e-9"), HasSubstr("expected a scale that is positive and finite in f16"));
  EXPECT_EQ(type("i8:f32, 0.5:128"), "line 1, column 55: expected a scale with a zero point from -128 to 127, found \"0.5:128>>) {\"");
  EXPECT_THAT(type("u8:f32, 0.5:-1"), HasSubstr("a zero point from 0 to 255"));
  EXPECT_THAT(type("i8<1:9>:f32, 0.5"), HasSubstr("a zero point from 1 to 9"));
  EXPECT_THAT(type("i8:f32, 0.5:99999999999999999999"), HasSubstr("expected a zero point, found"));
  EXPECT_THAT(type("i8<7:-8>:f32, 0.5"), StartsWith("line 1, column 50: expected a range within -128:127"));
  EXPECT_THAT(type("i8<3:3>:f32, 0.5:3"), HasSubstr("expected a range within -128:127"));
  EXPECT_THAT(type("u8<-1:9>:f32, 0.5"), HasSubstr("expected a range within 0:255"));
  EXPECT_THAT(type("i8:f32:2, {0.5}"), HasSubstr("expected a dimension of a tensor of rank 2"));
  EXPECT_THAT(type("i8:f32:-1, {0.5}"), HasSubstr("expected a dimension of a tensor of rank 2"));
  EXPECT_THAT(type("i8:f32:1, {0.5, 1.0}"), HasSubstr("expected 3 scales, as dimension 1 has them, not 2"));
  EXPECT_THAT(type("i8:f32:1, 0.5"), HasSubstr("expected '{'"));
  EXPECT_THAT(type("i8:f32:1, {}"), HasSubstr("expected a scale"));
  EXPECT_THAT(type("i8, 0.5"), HasSubstr("expected ':'"));
  std::string many = "i8:f32:1, {0.5";
  for (int i = 0; i < 100000; ++i) many += ", 0.5";
  EXPECT_THAT(type(many + "}"), HasSubstr("expected 3 scales, as dimension 1 has them, not 100001"));
  for (const char* lacking : {"i4:f32, 0.5", "i64:f32, 0.5", "i1:f32, 0.5", "f32:f32, 0.5", "i8:f8E4M3FN, 0.5", "i8:i32, 0.5",
                              "i8:f32:{0:1, 1:3}, {{0.5}, {0.25}}"}) {
    EXPECT_THAT(type(lacking), testing::AllOf(HasSubstr("does not have all that the text uses; types: tensor<2x3x!quant.uniform<"), HasSubstr(lacking)));
  }
  EXPECT_THAT(Read("func.func @main(%a: tensor<?x3x!quant.uniform<i8:f32:0, {0.5}>>) {\n  return\n}\n"), HasSubstr("does not have all"));
  std::string deep = "func.func @main(%a: tensor<2x!quant.uniform<";
  for (int i = 0; i < 100000; ++i) deep += "tensor<2x!quant.uniform<";
  EXPECT_THAT(Read(deep), StartsWith("line 1, column "));
}

TEST(StableHloErrors, QuantisedTypesThatDoNotFit) {
  const std::string q = "tensor<2x!quant.uniform<i8:f32, 0.5:3>>", r = "tensor<2x!quant.uniform<i8:f32, 0.25:3>>";
  const auto body = [&](std::string_view line, std::string_view result) {
    return ReadBody(absl::StrCat("%a: ", q, ", %b: ", r, ", %f: tensor<2xf32>"), result,
                    absl::StrCat(line, "\nreturn %0 : ", result));
  };
  EXPECT_EQ(body(absl::StrCat("%0 = stablehlo.negate %b : ", q), q), absl::StrCat("line 2, column 23: %b is ", r, "; stablehlo.negate says ", q));
  EXPECT_EQ(body(absl::StrCat("%0 = stablehlo.negate %b : ", r), q),
            absl::StrCat("line 1, column 1: @main returns 1 values, value 0 of type ", r, "; the function says 1 and ", q));
  EXPECT_EQ(body(absl::StrCat("%0 = stablehlo.reshape %a : (", q, ") -> ", r), r),
            absl::StrCat("line 2, column 6: stablehlo.reshape: elements of ", q, " do not go where the type is ", r));
  EXPECT_EQ(body(absl::StrCat("%0 = stablehlo.reshape %a : (", q, ") -> tensor<2xi8>"), "tensor<2xi8>"),
            absl::StrCat("line 2, column 6: stablehlo.reshape: elements of ", q, " do not go where the type is tensor<2xi8>"));
  EXPECT_EQ(body("%0 = stablehlo.uniform_quantize %f : (tensor<2xf32>) -> tensor<2xf32>", "tensor<2xf32>"),
            "line 2, column 6: stablehlo.uniform_quantize: the result must be quantised");
  EXPECT_THAT(body("%0 = stablehlo.uniform_dequantize %f : (tensor<2xf32>) -> tensor<2xf32>", "tensor<2xf32>"),
              HasSubstr("the operand must be quantised, and the result not"));
  EXPECT_EQ(body(absl::StrCat("%0 = stablehlo.uniform_dequantize %a : (", q, ") -> tensor<2xf64>"), "tensor<2xf64>"),
            "line 2, column 6: stablehlo.uniform_dequantize gives tensor<2xf32>; the text says tensor<2xf64>");
  EXPECT_EQ(body(absl::StrCat("%0 = stablehlo.uniform_quantize %f : (tensor<2xf32>) -> tensor<2x!quant.uniform<i8:f64, 0.5>>"),
                 "tensor<2x!quant.uniform<i8:f64, 0.5>>"),
            "line 2, column 6: stablehlo.uniform_quantize gives tensor<2xf32> before it is quantised; the text says "
            "tensor<2x!quant.uniform<i8:f64, 0.5>>");
  EXPECT_THAT(body(absl::StrCat("%0 = stablehlo.optimization_barrier %a : (", q, ") -> ", r), r),
              HasSubstr(absl::StrCat("operand 0 is ", q, "; result 0 is ", r)));
  EXPECT_EQ(body(absl::StrCat("%t = stablehlo.tuple %a : tuple<tensor<2xi8>>\n%0 = stablehlo.negate %a : ", q), q),
            absl::StrCat("line 2, column 22: stablehlo.tuple takes values that are not quantised; %a is ", q));
  EXPECT_THAT(body(absl::StrCat("%0 = stablehlo.constant dense<1> : ", q), q), HasSubstr("a quantised one's are integers"));
  // Operations that leave their operands' types out.
  const std::string axis = "tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25}>>";
  EXPECT_EQ(ReadBody("%a: " + axis, "tensor<2xf32>", "%0 = stablehlo.clamp %a, %a, %a : tensor<f32>, tensor<2xf32>\nreturn %0 : tensor<2xf32>"),
            absl::StrCat("line 2, column 6: stablehlo.clamp needs the types of its operands; one is ", axis));
  EXPECT_THAT(ReadBody("%a: tensor<0x2x!quant.uniform<i8:f32:1, {0.5, 0.25}>>", "tensor<2x0x!quant.uniform<i8:f32:0, {0.5, 0.25}>>",
                       "%0 = stablehlo.reshape %a : (tensor<0x2x!quant.uniform<i8:f32:1, {0.5, 0.25}>>) -> "
                       "tensor<2x0x!quant.uniform<i8:f32:0, {0.5, 0.25}>>\nreturn %0 : tensor<2x0x!quant.uniform<i8:f32:0, {0.5, 0.25}>>"),
              HasSubstr("do not go where the type is"));
  EXPECT_THAT(body("%0 = stablehlo.complex %a, %a : tensor<2xcomplex<f32>>", "tensor<2xcomplex<f32>>"),
              HasSubstr(absl::StrCat("stablehlo.complex: this version of Weft does not have it of ", q)));
  EXPECT_THAT(Read(absl::StrCat("func.func @main(%a: ", q, ") -> ", q, " {\n  %0 = call @f(%a) : (", q, ") -> ", q, "\n  return %0 : ", q,
                                "\n}\nfunc.func private @f(%a: ", r, ") -> ", r, " {\n  return %a : ", r, "\n}\n")),
              StartsWith(absl::StrCat("line 2, column 8: func.call: operand 0 is ", q, "; parameter 0 is ", r)));
  const std::string s = "tensor<!quant.uniform<i8:f32, 0.5:3>>", t = "tensor<!quant.uniform<i8:f32, 0.25:3>>";
  EXPECT_THAT(body(absl::StrCat("%v = stablehlo.constant() <{value = dense<0> : tensor<i8>}> : () -> ", t,
                                "\n%0 = stablehlo.reduce(%b init: %v) across dimensions = [0] : (", r, ", ", t, ") -> ", t,
                                "\n reducer(%x: ", s, ", %y: ", s, ") {\n stablehlo.return %x : ", s, "\n }"), t),
              HasSubstr(absl::StrCat("where all are of one type without an axis; here are ", r, " and ", s)));
}

TEST(StableHloErrors, FunctionsThatCallThemselves) {
  EXPECT_THAT(Read("func.func @main(%a: tensor<f32>) -> tensor<f32> {\n  %0 = call @main(%a) : (tensor<f32>) -> tensor<f32>\n"
                   "  return %0 : tensor<f32>\n}\n"),
              StartsWith("line 1, column 1: @main calls itself"));
}

TEST(StableHloErrors, ChainsOfCallsAreAsShallowAsRegions) {
  std::string text = "func.func @main(%a: tensor<f32>) -> tensor<f32> {\n  %0 = call @f0(%a) : (tensor<f32>) -> tensor<f32>\n"
                     "  return %0 : tensor<f32>\n}\n";
  for (int i = 0; i < 10000; ++i) {
    absl::StrAppend(&text, "func.func @f", i, "(%a: tensor<f32>) -> tensor<f32> {\n  %0 = call @f", i + 1,
                    "(%a) : (tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32>\n}\n");
  }
  EXPECT_THAT(Read(text), HasSubstr("calls and regions nest deeper than 64"));
}

TEST(StableHloErrors, DeepNestingEnds) {
  std::string regions = "func.func @main(%p: tensor<i1>) -> tensor<i1> {\n";
  for (int i = 0; i < 100000; ++i) regions += "%0 = \"stablehlo.if\"(%p) ({\n";
  EXPECT_THAT(Read(regions), HasSubstr("expected regions at most 64 deep"));
  for (const char* open : {"[", "{a = ", "#stablehlo.x<a = ", "tensor<2x3xf32> : "}) {
    std::string text = "func.func @main(%p: tensor<i1> {a = ";
    for (int i = 0; i < 100000; ++i) text += open;
    EXPECT_THAT(Read(text), StartsWith("line 1, column ")) << open;
  }
  std::string types = "func.func @main(%p: ";
  for (int i = 0; i < 100000; ++i) types += "tuple<";
  EXPECT_THAT(Read(types), HasSubstr("expected a type that is less deeply nested"));
  std::string literal = "func.func @main() -> tensor<i1> { %0 = stablehlo.constant dense<";
  for (int i = 0; i < 100000; ++i) literal += "[";
  EXPECT_THAT(Read(literal), HasSubstr("expected brackets that are closed"));
}

TEST(StableHloErrors, NamesOfManyPartsTakeNoStack) {
  std::string name = "@f";
  for (int i = 0; i < 300000; ++i) name += "::@f";
  EXPECT_THAT(OneOp(absl::StrCat("%0 = call ", name, "(%a) : (tensor<2xf32>) -> tensor<2xf32>")), HasSubstr("there is no function @f::f::f"));
  EXPECT_THAT(OneOp("%0 = call @f::@\"g h\"(%a) : (tensor<2xf32>) -> tensor<2xf32>"), HasSubstr("there is no function @f::g h"));
  EXPECT_THAT(OneOp("%0 = call @f::@(%a) : (tensor<2xf32>) -> tensor<2xf32>"), HasSubstr("expected a name"));
}

// Sixty functions, each of which calls the next one twice, are 2^60 operations.
TEST(StableHloErrors, FunctionsOfScalarsWhoseCallsMultiply) {
  std::string text = "func.func @main(%a: tensor<2xf32>, %v: tensor<f32>) -> tensor<f32> {\n  %0 = \"stablehlo.reduce\"(%a, %v) <{dimensions = "
                     "array<i64: 0>}> ({\n  ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n    %1 = call @f0(%x, %y) : (tensor<f32>, tensor<f32>) -> "
                     "tensor<f32>\n    stablehlo.return %1 : tensor<f32>\n  }) : (tensor<2xf32>, tensor<f32>) -> tensor<f32>\n  return %0 : "
                     "tensor<f32>\n}\n";
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&text, "func.func @f", i, "(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {\n");
    for (int k = 0; k < 2; ++k) {
      absl::StrAppend(&text, "  %", k, " = ", i == 59 ? "stablehlo.atan2 " : absl::StrCat("call @f", i + 1, "("), k == 0 ? "%x" : "%0", ", %y",
                      i == 59 ? " : tensor<f32>\n" : ") : (tensor<f32>, tensor<f32>) -> tensor<f32>\n");
    }
    text += "  return %1 : tensor<f32>\n}\n";
  }
  EXPECT_THAT(Read(text), testing::ContainsRegex("which runs at every element, has [0-9]+ operations with its calls written out; at most 65536"));
}

TEST(StableHloErrors, AttributesOfAnotherKind) {
  const auto norm = [](std::string_view epsilon) {
    return ReadBody("%x: tensor<4x3xf32>, %s: tensor<3xf32>", "tensor<4x3xf32>",
                    absl::StrCat("%0 = \"stablehlo.batch_norm_inference\"(%x, %s, %s, %s, %s) <{epsilon = ", epsilon,
                                 ", feature_index = 1 : i64}> : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> "
                                 "tensor<4x3xf32>\nreturn %0 : tensor<4x3xf32>"));
  };
  EXPECT_THAT(norm("1.0e-3 : f32"), HasSubstr("epsilon = 0.001"));
  EXPECT_THAT(norm("\"0.001\""), HasSubstr("attribute epsilon is not of a kind that stablehlo.batch_norm_inference takes"));
  EXPECT_THAT(norm("-18446744073709551615"), HasSubstr("expected a number of at most 64 bits"));
}

TEST(StableHloErrors, ScansAndRaggedProductsThatCannotBe) {
  const auto scan = [](std::string_view operands, std::string_view types, std::string_view dimension) {
    return ReadBody("%x: tensor<4x3xf32>, %y: tensor<5xf32>, %s: tensor<3xf32>", "tensor<4x3xf32>, tensor<3xf32>",
                    absl::StrCat("%0:2 = chlo.scan(", operands, ") inits(%s) dimension=", dimension,
                                 " {\n^bb0(%a: tensor<3xf32>, %b: tensor<3xf32>):\n %z = stablehlo.add %a, %b : tensor<3xf32>\n stablehlo.return %z, %z : "
                                 "tensor<3xf32>, tensor<3xf32>\n} : (", types, "tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>)\n"
                                 "return %0#0, %0#1 : tensor<4x3xf32>, tensor<3xf32>"));
  };
  constexpr std::string_view kOne = "tensor<4x3xf32>, ";
  EXPECT_THAT(scan("%x", kOne, "0"), HasSubstr("weft.scan"));
  EXPECT_THAT(scan("%x", kOne, "2"), HasSubstr("input 0 is f32[4, 3]; all inputs are as long along dimension 2"));
  EXPECT_THAT(scan("%x", kOne, "1"), HasSubstr("takes slices f32[3]"));
  EXPECT_THAT(scan("", "", "0"), HasSubstr("inputs, at least one, inits and a region are expected"));
  EXPECT_THAT(scan("%x, %y", "tensor<4x3xf32>, tensor<5xf32>, ", "0"), HasSubstr("input 1 is f32[5]; all inputs are as long"));
  EXPECT_THAT(scan("%x, %x", "tensor<4x3xf32>, tensor<4x3xf32>, ", "0"), HasSubstr("the region takes 2 values and gives 2; there are 2 inputs and 1 inits"));
  const auto ragged = [](std::string_view numbers, std::string_view sizes) {
    return ReadBody(absl::StrCat("%x: tensor<5x3xf32>, %w: tensor<2x3x4xf32>, %s: ", sizes), "tensor<5x4xf32>",
                    absl::StrCat("%0 = \"chlo.ragged_dot\"(%x, %w, %s) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], ",
                                 "rhs_contracting_dimensions = [1], ", numbers, ">}> : (tensor<5x3xf32>, tensor<2x3x4xf32>, ", sizes,
                                 ") -> tensor<5x4xf32>\nreturn %0 : tensor<5x4xf32>"));
  };
  EXPECT_THAT(ragged("lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]", "tensor<2xi32>"), HasSubstr("dot_general"));
  EXPECT_THAT(ragged("lhs_ragged_dimensions = [0]", "tensor<2xi32>"), HasSubstr("rhs has a dimension of groups where"));
  EXPECT_THAT(ragged("lhs_ragged_dimensions = [1], rhs_group_dimensions = [0]", "tensor<2xi32>"), HasSubstr("rhs has a dimension of groups where"));
  EXPECT_THAT(ragged("lhs_ragged_dimensions = [3], rhs_group_dimensions = [0]", "tensor<2xi32>"), HasSubstr("one ragged dimension"));
  EXPECT_THAT(ragged("lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]", "tensor<2xf32>"), HasSubstr("sizes that are integers"));
  EXPECT_THAT(ragged("lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]", "tensor<3xi32>"), HasSubstr("sizes have shape [3]; [2] is needed"));
  EXPECT_THAT(ragged("rhs_batching_dimensions = [0], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]", "tensor<2xi32>"), HasSubstr("one ragged dimension"));
}

TEST(StableHloErrors, LiteralsThatDoNotFit) {
  const auto constant = [](std::string_view literal, std::string_view type) {
    return ReadBody("", type, absl::StrCat("%0 = stablehlo.constant dense<", literal, "> : ", type, "\n return %0 : ", type));
  };
  EXPECT_THAT(constant("[1, 2, 3]", "tensor<2xi32>"), StartsWith("line 2, column 36: expected at most 2 elements in this list"));
  EXPECT_THAT(constant("[1]", "tensor<2xi32>"), HasSubstr("expected 2 elements in this list"));
  EXPECT_THAT(constant("[1, 2]", "tensor<1099511627776xi32>"), HasSubstr("expected 1099511627776 elements"));
  EXPECT_THAT(constant("300", "tensor<i8>"), HasSubstr("expected an element of i8, found \"300"));
  EXPECT_THAT(constant("-1", "tensor<ui8>"), HasSubstr("expected an element of ui8"));
  EXPECT_THAT(constant("-1", "tensor<ui64>"), HasSubstr("expected an element of ui64"));
  EXPECT_THAT(constant("0x1FF", "tensor<i8>"), HasSubstr("expected an element of i8"));
  EXPECT_THAT(constant("\"0x0102\"", "tensor<3xi32>"), HasSubstr("expected \"0x and 24 hexadecimal digits\""));
  EXPECT_THAT(constant("1", "tensor<99999999999x99999999999xi32>"), HasSubstr("that memory could hold"));
  EXPECT_THAT(ReadBody("", "tensor<2xi32>", "%0 = stablehlo.constant dense_resource<r> : tensor<2xi32>\nreturn %0 : tensor<2xi32>"),
              StartsWith("line 2, column "));
}

TEST(StableHloErrors, AliasesThatMultiply) {
  std::string text = "#a0 = [" + std::string(2000, '1') + "]\n";
  text = "#a0 = [1, 2, 3, 4, 5, 6, 7, 8]\n";
  for (int i = 1; i < 60; ++i) absl::StrAppend(&text, "#a", i, " = [#a", i - 1, ", #a", i - 1, "]\n");
  EXPECT_THAT(Read(text + "func.func @main(%a: tensor<f32> {x.y = #a59}) -> tensor<f32> { return %a : tensor<f32> }"),
              HasSubstr("aliases that stand for less than a MiB in all"));
}

TEST(StableHloErrors, ATextCutOffAnywhereIsAnError) {
  const std::string_view text =
      "module @m attributes {mhlo.num_partitions = 1 : i32} {\n  func.func public @main(%a: tensor<2xf32> {jax.x = \"s\"}) -> "
      "(tensor<f32>) {\n    %c = stablehlo.constant dense<[[1.0], [0x7FC00000]]> : tensor<2x1xf32>\n    %v = stablehlo.constant "
      "dense<0.0> : tensor<f32>\n    %0 = stablehlo.reduce(%a init: %v) applies stablehlo.add across dimensions = [0] : "
      "(tensor<2xf32>, tensor<f32>) -> tensor<f32>\n    return %0 : tensor<f32>\n  }\n}";
  ASSERT_TRUE(ReadStableHlo(text).ok()) << ReadStableHlo(text).status();
  for (size_t length = 0; length < text.size(); ++length) {
    auto module = ReadStableHlo(text.substr(0, length));
    EXPECT_FALSE(module.ok()) << text.substr(0, length);
    EXPECT_THAT(std::string(module.status().message()), StartsWith("line "));
  }
}

}  // namespace
}  // namespace weft::stablehlo
