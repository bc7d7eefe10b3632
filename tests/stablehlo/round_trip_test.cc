// What the writer writes the reader reads back to the same program, and the second writing has the same bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "src/autodiff/gradient.h"
#include "src/compiler/canonical.h"
#include "src/compiler/lower.h"
#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/build.h"
#include "src/ops/reducer.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"
#include "src/passes/pipeline.h"
#include "src/stablehlo/read.h"
#include "tests/support/control_programs.h"
#include "tests/support/op_programs.h"
#include "tests/support/training_programs.h"

namespace weft::stablehlo {
namespace {

std::string Canonical(const ir::Module& module) {
  std::string out;
  compiler::AppendCanonical(module.main(), &out);
  return out;
}

// The lines that differ, for a short message.
std::string FirstDifference(std::string_view found, std::string_view wanted) {
  const std::vector<std::string_view> x = absl::StrSplit(found, '\n'), y = absl::StrSplit(wanted, '\n');
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (x[i] != y[i]) return absl::StrCat("line ", i, "\n  ", x[i], "\nfor\n  ", y[i]);
  }
  return "only the length differs";
}

// Whether none of the operations that have such ways is in it, no function, whose name is not written, and no argument block, of
// which StableHLO has no idea.
bool SaysItInStableHlosWay(const ir::Module& module) {
  constexpr std::string_view kManyWays[] = {"concatenate", "reshape",  "reverse", "reduce",      "reduce_window",
                                            "convolution", "dot_general", "select_and_scatter"};
  return module.argument_words == 0 && std::ranges::none_of(module.main().nodes(), [&](const ir::Node* node) {
    return !node->regions().empty() || std::ranges::find(kManyWays, node->op().name) != std::end(kManyWays);
  });
}

// Our IR can say one thing in several ways (an axis from the end, a size to be worked out, a default left out, captures that a
// body does not use); StableHLO in one. So the program is brought there first, by the reader; from there on nothing may change.
void ComesBack(const test::OpProgram& program) {
  SCOPED_TRACE(program.name);
  auto lowered = passes::RunPipeline(program.module, {.verify_between = true});
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  auto text = ir::ToStableHlo(*lowered);
  ASSERT_TRUE(text.ok()) << text.status();
  auto read = ReadStableHlo(*text);
  ASSERT_TRUE(read.ok()) << read.status() << "\n" << *text;
  ASSERT_TRUE(ir::Verify(*read).ok()) << ir::Verify(*read) << "\n" << ir::Print(*read);
  auto again = ir::ToStableHlo(*read);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *text);
  auto once_more = ReadStableHlo(*again);
  ASSERT_TRUE(once_more.ok()) << once_more.status();
  EXPECT_TRUE(Canonical(*once_more) == Canonical(*read)) << FirstDifference(ir::Print(*once_more), ir::Print(*read));
  if (SaysItInStableHlosWay(*lowered)) {
    EXPECT_TRUE(Canonical(*read) == Canonical(*lowered)) << FirstDifference(ir::Print(*read), ir::Print(*lowered));
  }
}

TEST(StableHloRoundTrip, OfEveryOperation) {
  auto programs = test::OpPrograms(/*all_types=*/true);
  ASSERT_TRUE(programs.ok()) << programs.status();
  for (const test::OpProgram& program : *programs) ComesBack(program);
}

TEST(StableHloRoundTrip, OfControlFlow) {
  auto programs = test::ControlPrograms();
  ASSERT_TRUE(programs.ok()) << programs.status();
  for (const test::OpProgram& program : *programs) ComesBack(program);
}

// What nobody has asked for is written behind the operation as it was read, whatever it is.
TEST(StableHloRoundTrip, OfAttributesThatNobodyKnows) {
  const std::string text = R"(#one = 1 : i64
#list = [#one, "x", #one]
!t = tensor<2xf32>
module @m {
  func.func public @main(%a: tensor<2xf32> {a.unit, "a name" = "\01\22\\", mhlo.sharding = "{\01\7F\0A}", a.alias = #list, a.type = !t}) -> tensor<2xf32> {
    %0 = stablehlo.sine %a {unit, "of two words" = 3 : i64, k = #list, d = {x = #one, y}, s = @f, m = #sdy.of<@mesh, #one>} : tensor<2xf32>
    %1 = stablehlo.cosine %0, dim, pair = [2] x [3] : tensor<2xf32>
    %2 = "stablehlo.negate"(%1) {mhlo.sharding = "\00\1F\C3\A9 \" \\"} : (tensor<2xf32>) -> tensor<2xf32>
    return %2 : tensor<2xf32>
  }
})";
  auto read = ReadStableHlo(text);
  ASSERT_TRUE(read.ok()) << read.status();
  auto written = ir::ToStableHlo(*read);
  ASSERT_TRUE(written.ok()) << written.status();
  constexpr std::string_view kParts[] = {
      "a.unit = unit", R"("a name" = "\01\22\\")", R"(mhlo.sharding = "{\01\7f\0a}")", R"(a.alias = [1 : i64, "x", 1 : i64])", "a.type = tensor<2xf32>",
      "unit = unit", R"("of two words" = 3 : i64)", "d = {x = 1 : i64, y}", "s = @f", "m = #sdy.of<@mesh, 1 : i64>", R"(dim = "dim")", "pair = [[2], [3]]",
      R"(mhlo.sharding = "\00\1f\c3\a9 \" \\")"};
  for (const std::string_view part : kParts) EXPECT_THAT(*written, testing::HasSubstr(part));
  auto again = ReadStableHlo(*written);
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << *written;
  auto twice = ir::ToStableHlo(*again);
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(*twice, *written);
}

// Functions stay functions, each printed once, and composites composites.
TEST(StableHloRoundTrip, OfCalls) {
  const std::string text = R"(module @m {
  func.func public @main(%a: tensor<f32>) -> tensor<f32> {
    %0 = call @twice(%a) : (tensor<f32>) -> tensor<f32>
    %1 = call @once(%0) : (tensor<f32>) -> tensor<f32>
    %2 = stablehlo.composite "my.neg" %1 {composite_attributes = {k = 3 : i64}, decomposition = @neg, version = 1 : i32} : (tensor<f32>) -> tensor<f32>
    return %2 : tensor<f32>
  }
  func.func private @twice(%a: tensor<f32>) -> tensor<f32> {
    %0 = call @once(%a) : (tensor<f32>) -> tensor<f32>
    %1 = call @once(%0) : (tensor<f32>) -> tensor<f32>
    return %1 : tensor<f32>
  }
  func.func private @once(%a: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.sine %a : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @neg(%a: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.negate %a : tensor<f32>
    return %0 : tensor<f32>
  }
})";
  auto read = ReadStableHlo(text);
  ASSERT_TRUE(read.ok()) << read.status();
  auto written = compiler::StableHloText(*read);
  ASSERT_TRUE(written.ok()) << written.status();
  const auto count = [&](std::string_view what) {
    size_t n = 0;
    for (size_t at = written->find(what); at != std::string::npos; at = written->find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("func.func private"), 3u) << *written;
  EXPECT_EQ(count("\"func.call\""), 4u) << *written;
  EXPECT_EQ(count("\"stablehlo.composite\""), 1u) << *written;
  EXPECT_EQ(count("name = \"my.neg\""), 1u) << *written;
  EXPECT_EQ(count("\"stablehlo.sine\""), 1u) << *written;
  auto again = ReadStableHlo(*written);
  ASSERT_TRUE(again.ok()) << again.status() << *written;
  EXPECT_EQ(Canonical(*again), Canonical(*read));
  auto second = compiler::StableHloText(*again);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, *written);
}

// Two functions of one name are two symbols.
TEST(StableHloRoundTrip, OfFunctionsOfOneName) {
  const auto body = [](const ir::OpDef& op) {
    const ir::Value x{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Scalar(DType::kF32)}), 0};
    ir::Builder b;
    return ir::Function::Create("main", {x}, {ops::Unary(b, op, x)});
  };
  const Ref<const ir::Function> sine = body(ops::kOp_sin), cosine = body(ops::kOp_cos);
  const ir::Value x{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Scalar(DType::kF32)}), 0};
  ir::Builder b;
  const ir::Values y = ops::CallAll(b, ops::kOp_call, {x}, {}, {&sine, 1});
  const ir::Values z = ops::CallAll(b, ops::kOp_call, y, {}, {&cosine, 1});
  ASSERT_TRUE(b.ok()) << b.status();
  ir::Module module;
  module.functions.push_back(ir::Function::Create("main", {x}, {z[0]}));
  auto text = ir::ToStableHlo(module);
  ASSERT_TRUE(text.ok()) << text.status();
  auto read = ReadStableHlo(*text);
  ASSERT_TRUE(read.ok()) << read.status() << *text;
  EXPECT_EQ(Canonical(*read), Canonical(module)) << *text;
}

// The call in the second branch uses one of its arguments, the loop's the other way round: when they are written out, what was
// computed for the others alone is not there any more.
TEST(StableHloRoundTrip, OfCallsThatUseOneArgument) {
  const auto read = ReadStableHlo(
      "func.func public @main(%i: tensor<i32>, %x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {\n"
      "  %0 = stablehlo.sine %x : tensor<f32>\n  %1 = stablehlo.cosine %x : tensor<f32>\n  %2 = stablehlo.tanh %x : tensor<f32>\n"
      "  %3 = \"stablehlo.case\"(%i) ({\n    stablehlo.return %x : tensor<f32>\n  }, {\n"
      "    %5 = func.call @second(%0, %1) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
      "    %6 = func.call @second(%5, %2) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
      "    %7 = stablehlo.add %6, %1 : tensor<f32>\n    stablehlo.return %7 : tensor<f32>\n  }) : (tensor<i32>) -> tensor<f32>\n"
      "  %4:2 = stablehlo.while(%n = %i, %y = %3) : tensor<i32>, tensor<f32>\n cond {\n"
      "    %5 = stablehlo.compare LT, %n, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>\n    stablehlo.return %5 : tensor<i1>\n  } do {\n"
      "    %5 = func.call @second(%0, %2) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
      "    stablehlo.return %n, %5 : tensor<i32>, tensor<f32>\n  }\n"
      "  return %3, %4#1 : tensor<f32>, tensor<f32>\n}\n"
      "func.func private @second(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {\n  return %b : tensor<f32>\n}\n");
  ASSERT_TRUE(read.ok()) << read.status();
  ir::Module module;
  module.functions.push_back(ir::CopyFunction(read->main()));
  const auto inlined = passes::InlineCalls(module, {});
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  const auto text = compiler::StableHloText(*inlined);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->find("func.call"), std::string::npos) << *text;
  EXPECT_EQ(text->find("stablehlo.sine"), std::string::npos) << *text;
  const auto again = ReadStableHlo(*text);
  ASSERT_TRUE(again.ok()) << again.status();
  const auto once_more = compiler::StableHloText(*again);
  ASSERT_TRUE(once_more.ok()) << once_more.status();
  EXPECT_EQ(*once_more, *text);
}

// Scales and zero points are written as the constants they have become; the signature is of integers.
TEST(StableHloRoundTrip, OfQuantisedPrograms) {
  const std::string q = "!quant.uniform<i8<-100:127>:f32, 0.5:3>", axis = "!quant.uniform<u8:f32:1, {0.5:3, 0.25, 0.1:255}>";
  const auto read = ReadStableHlo(absl::StrCat(
      "func.func public @main(%a: tensor<2x3x", axis, ">, %b: tensor<2x3x", q, ">) -> (tensor<2x3x", q, ">, tensor<3x", q, ">) {\n",
      "  %0 = stablehlo.multiply %a, %b : (tensor<2x3x", axis, ">, tensor<2x3x", q, ">) -> tensor<2x3x", q, ">\n",
      "  %1 = stablehlo.constant() <{value = dense<-3> : tensor<i8>}> : () -> tensor<", q, ">\n",
      "  %2 = stablehlo.reduce(%0 init: %1) applies stablehlo.add across dimensions = [0] : (tensor<2x3x", q, ">, tensor<", q,
      ">) -> tensor<3x", q, ">\n  return %0, %2 : tensor<2x3x", q, ">, tensor<3x", q, ">\n}\n"));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_TRUE(ir::Verify(*read).ok()) << ir::Verify(*read);
  const auto written = compiler::StableHloText(*read);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->find("quant"), std::string::npos) << *written;
  EXPECT_NE(written->find("@main(%0: tensor<2x3xui8>, %1: tensor<2x3xi8>)"), std::string::npos) << *written;
  const auto again = ReadStableHlo(*written);
  ASSERT_TRUE(again.ok()) << again.status() << *written;
  EXPECT_EQ(Canonical(*again), Canonical(*read));
  const auto second = compiler::StableHloText(*again);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, *written);
}

TEST(StableHloRoundTrip, OfReductionsOfComplexNumbers) {
  for (const DType dtype : {DType::kC64, DType::kC128}) {
    for (const auto& [reducer, start] : {std::pair{ops::Reducer::kSum, "dense<(0.0, 0.0)>"}, {ops::Reducer::kProd, "dense<(1.0, 0.0)>"}}) {
      const ir::Value x{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(dtype, {3})}), 0};
      ir::Builder b;
      const ir::Value y = ops::Call(b, ops::kOp_reduce, {x}, {ir::Ints{0}, static_cast<int64_t>(reducer)});
      ASSERT_TRUE(b.ok()) << b.status();
      ir::Module module;
      module.functions.push_back(ir::Function::Create("main", {x}, {y}));
      const auto text = compiler::StableHloText(module);
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_THAT(*text, ::testing::HasSubstr(start));
      const auto read = ReadStableHlo(*text);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*text, *compiler::StableHloText(*read));
    }
  }
}

// What a product says of its precision its gradients say, too; what says nothing is written as the writer is asked to.
TEST(StableHloRoundTrip, OfAPrecision) {
  const auto parameter = [](Dims dims) {
    return ir::Value{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(DType::kF32, std::move(dims))}), 0};
  };
  ir::Builder b;
  constexpr int64_t kHigh = 1, kDefault = 2;
  const ir::Value a = parameter({2, 3}), w = parameter({3, 4}), x = parameter({1, 5, 5, 2}), k = parameter({3, 3, 2, 4});
  const ir::Value product = ops::Call(b, ops::kOp_matmul, {a, w}, {{}, kDefault});
  const ir::Value image = ops::Call(b, ops::kOp_conv, {x, k}, {{}, {}, {}, {}, {}, {}, kHigh});
  const ir::Value other = ops::Call(b, ops::kOp_matmul, {w, parameter({4, 2})});
  std::vector<ir::Value> results = {other};
  for (const auto& [y, of] : {std::pair{product, std::vector{a, w}}, {image, std::vector{x, k}}}) {
    const auto slopes = autodiff::Gradient(b, y, of, ops::FullLike(b, y, 1));
    ASSERT_TRUE(slopes.ok()) << slopes.status();
    results.push_back(y);
    results.insert(results.end(), slopes->begin(), slopes->end());
  }
  ASSERT_TRUE(b.ok()) << b.status();
  ir::Module module;
  module.functions.push_back(ir::Function::Create("main", {a, w, x, k, other.node->operands()[1]}, results));
  const auto text = compiler::StableHloText(module);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto times = [&](std::string_view said) { return std::vector<std::string_view>(absl::StrSplit(*text, said)).size() - 1; };
  EXPECT_EQ(6u, times("<precision DEFAULT>")) << *text;  // three products of two factors each
  EXPECT_EQ(6u, times("<precision HIGH>")) << *text;
  EXPECT_EQ(2u, times("<precision HIGHEST>")) << *text;
  const auto read = ReadStableHlo(*text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*text, *compiler::StableHloText(*read));
  const auto mixed = ReadStableHlo(absl::StrReplaceAll(*text, {{"[#stablehlo<precision DEFAULT>", "[#stablehlo<precision HIGH>"}}));
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_EQ(absl::StrReplaceAll(*text, {{"<precision DEFAULT>", "<precision HIGH>"}}), *compiler::StableHloText(*mixed));
  EXPECT_THAT(ReadStableHlo(absl::StrReplaceAll(*text, {{"precision HIGH>", "precision LOWEST>"}})).status().message(),
              ::testing::HasSubstr("precision 'LOWEST' is not one of HIGHEST, HIGH and DEFAULT"));
}

TEST(StableHloRoundTrip, OfTrainingSteps) {
  auto mlp = test::MlpStep(64), cnn = test::CnnStep(4);
  ASSERT_TRUE(mlp.ok() && cnn.ok());
  ComesBack(*mlp);
  ComesBack(*cnn);
}

}  // namespace
}  // namespace weft::stablehlo
