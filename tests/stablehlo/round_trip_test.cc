// What the writer writes the reader reads back to the same program, and the second writing has the same bytes.
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "src/compiler/canonical.h"
#include "src/compiler/lower.h"
#include "src/ir/stablehlo.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
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
  const auto text = compiler::StableHloText(*read);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->find("stablehlo.sine"), std::string::npos) << *text;
  const auto again = ReadStableHlo(*text);
  ASSERT_TRUE(again.ok()) << again.status();
  const auto once_more = compiler::StableHloText(*again);
  ASSERT_TRUE(once_more.ok()) << once_more.status();
  EXPECT_EQ(*once_more, *text);
}

TEST(StableHloRoundTrip, OfTrainingSteps) {
  auto mlp = test::MlpStep(64), cnn = test::CnnStep(4);
  ASSERT_TRUE(mlp.ok() && cnn.ok());
  ComesBack(*mlp);
  ComesBack(*cnn);
}

}  // namespace
}  // namespace weft::stablehlo
