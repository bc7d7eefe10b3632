// Which calls are written out, and where that would not end.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "src/compiler/lower.h"
#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

// @f0 adds; each of the others calls the one before twice.
std::string Doubling(int functions) {
  std::string text = "private func @f0(%0: tensor<f32>) -> (tensor<f32>) {\n  %1 = sine(%0) : tensor<f32>\n  return %1\n}\n";
  for (int i = 1; i < functions; ++i) {
    absl::StrAppend(&text, "private func @f", i, "(%0: tensor<f32>) -> (tensor<f32>) {\n  %1 = weft.call(%0) @f", i - 1,
                    " : tensor<f32>\n  %2 = weft.call(%1) @f", i - 1, " : tensor<f32>\n  return %2\n}\n");
  }
  return absl::StrCat(text, "func @main(%0: tensor<f32>) -> (tensor<f32>) {\n  %1 = weft.call(%0) @f", functions - 1,
                      " : tensor<f32>\n  return %1\n}\n");
}

TEST(InlineCalls, WritesSmallFunctionsOut) {
  const std::string after = After(InlineCalls, Doubling(4));
  EXPECT_EQ(after.find("weft.call"), std::string::npos) << after;
  EXPECT_NE(after.find("%8 = sine(%7)"), std::string::npos) << after;
}

// Forty small functions would be 2^40 operations.
TEST(InlineCalls, RefusesWhatWouldNotEnd) {
  PipelineOptions claims;
  claims.claims = [](const ir::Node&) { return true; };
  for (const PipelineOptions& options : {PipelineOptions(), claims}) {
    EXPECT_THAT(After(InlineCalls, Doubling(40), options),
                testing::MatchesRegex("the program has .* operations and functions that call others again and again: with every call "
                                      "written out there are .*, at most 1048576 are supported; .*"));
  }
  EXPECT_THAT(After(InlineCalls, Doubling(63)), testing::HasSubstr("there are more than 2^63"));
  const auto module = ir::Parse(Doubling(40), ops::FindOp);
  ASSERT_TRUE(module.ok()) << module.status();
  // Text has each function once.
  const auto text = compiler::StableHloText(*module);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_LT(text->size(), 40'000u);
  EXPECT_NE(text->find("func.func private @\"f39\""), std::string::npos) << *text;
}

}  // namespace
}  // namespace weft::passes
