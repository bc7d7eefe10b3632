// What the writer writes the reader reads back to the same program, and the second writing has the same bytes.
#include <gtest/gtest.h>

#include "src/compiler/canonical.h"
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

// The text is what there is in common: what the writer adds (a reduction's first value) and what the IR says otherwise than
// StableHLO (captures that a body does not use) is gone after one round, so the second one must change nothing.
void ComesBack(const test::OpProgram& program) {
  SCOPED_TRACE(program.name);
  auto lowered = passes::RunPipeline(program.module, {.verify_between = true});
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  auto text = ir::ToStableHlo(*lowered);
  ASSERT_TRUE(text.ok()) << text.status();
  auto read = ReadStableHlo(*text);
  ASSERT_TRUE(read.ok()) << read.status() << "\n" << *text;
  ASSERT_TRUE(ir::Verify(*read).ok()) << ir::Verify(*read) << "\n" << ir::Print(*read);
  EXPECT_EQ(Canonical(*read), Canonical(*lowered)) << *text << ir::Print(*read) << ir::Print(*lowered);
  auto again = ir::ToStableHlo(*read);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *text);
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

TEST(StableHloRoundTrip, OfTrainingSteps) {
  auto mlp = test::MlpStep(64), cnn = test::CnnStep(4);
  ASSERT_TRUE(mlp.ok() && cnn.ok());
  ComesBack(*mlp);
  ComesBack(*cnn);
}

}  // namespace
}  // namespace weft::stablehlo
