// ResultsToLook leaves out what shows elsewhere, and nothing that may not.
#include "src/lazy/run/results_to_look.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/ir/text.h"
#include "src/ops/registry.h"

namespace weft::lazy {
namespace {

std::vector<bool> Of(const std::string& body, const std::string& results, const std::string& types) {
  const auto module = ir::Parse("module {words = 0}\nfunc @main(%0: tensor<4xf32>, %1: tensor<4xf32>) -> (" + types + ") {\n" + body +
                                    "  return " + results + "\n}\n",
                                ops::FindOp);
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? ResultsToLook(module->main()) : std::vector<bool>();
}

using Answer = std::vector<bool>;

TEST(ResultsToLook, OfAdamWTheFirstMomentShowsInTheParameter) {
  // The parameter, its gradient; results: first moment, second moment, parameter.
  EXPECT_EQ(Of("  %2 = add(%1, %1) : tensor<4xf32>\n"
               "  %3 = mul(%1, %1) : tensor<4xf32>\n"
               "  %4 = sqrt(%3) : tensor<4xf32>\n"
               "  %5 = div(%2, %4) : tensor<4xf32>\n"
               "  %6 = sub(%0, %5) : tensor<4xf32>\n",
               "%2, %3, %6", "tensor<4xf32>, tensor<4xf32>, tensor<4xf32>"),
            (Answer{false, true, true}));
}

TEST(ResultsToLook, WhatMayBeFiniteAgainIsLookedAt) {
  const std::string two = "tensor<4xf32>, tensor<4xf32>";
  for (const char* const again : {"div(%0, %2)", "maximum(%0, %2)", "exp(%2)", "tanh(%2)", "add(%0, %1)"}) {
    EXPECT_EQ(Of("  %2 = mul(%0, %1) : tensor<4xf32>\n  %3 = " + std::string(again) + " : tensor<4xf32>\n", "%2, %3", two), (Answer{true, true}))
        << again;
  }
  for (const char* const kept : {"div(%2, %0)", "add(%0, %2)", "sub(%0, %2)", "sub(%2, %0)", "mul(%2, %0)", "neg(%2)"}) {
    EXPECT_EQ(Of("  %2 = mul(%0, %1) : tensor<4xf32>\n  %3 = " + std::string(kept) + " : tensor<4xf32>\n", "%2, %3", two), (Answer{false, true}))
        << kept;
  }
  // A bad number that reaches a value which is no result is seen nowhere, so its source must be read.
  EXPECT_EQ(Of("  %2 = mul(%0, %1) : tensor<4xf32>\n  %3 = neg(%2) : tensor<4xf32>\n  %4 = tanh(%3) : tensor<4xf32>\n", "%2, %4", two),
            (Answer{true, true}));
}

}  // namespace
}  // namespace weft::lazy
