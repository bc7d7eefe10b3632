// ResultsToLook leaves out what shows elsewhere, and nothing that may not.
#include "src/lazy/run/results_to_look.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/ir/text.h"
#include "src/lazy/optimizer.h"
#include "src/ops/registry.h"
#include "tests/lazy/world.h"

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

TEST(ResultsToLook, StopGradientRepeatsItsOperand) {
  const std::string product = "  %2 = mul(%0, %1) : tensor<4xf32>\n", three = "tensor<4xf32>, tensor<4xf32>, tensor<4xf32>";
  const std::string repeated = product + "  %3 = stop_gradient(%2) : tensor<4xf32>\n";
  EXPECT_EQ(Of(repeated, "%3", "tensor<4xf32>"), (Answer{true}));
  EXPECT_EQ(Of(repeated, "%2, %3", "tensor<4xf32>, tensor<4xf32>"), (Answer{true, true}));
  EXPECT_EQ(Of(repeated + "  %4 = neg(%2) : tensor<4xf32>\n  %5 = stop_gradient(%4) : tensor<4xf32>\n", "%2, %3, %5", three),
            (Answer{false, false, true}));
  EXPECT_EQ(Of(repeated + "  %4 = neg(%3) : tensor<4xf32>\n", "%2, %3, %4", three), (Answer{false, false, true}));
  EXPECT_EQ(Of(repeated + "  %4 = tanh(%3) : tensor<4xf32>\n", "%2, %3, %4", three), (Answer{true, true, true}));
}

// How many results of the next barrier's program are read, of how many.
std::pair<int64_t, size_t> Looked(World& w, const OptimizerOptions& options) {
  T p = w.Vector({1, 2, 3});
  EXPECT_TRUE(w.engine->SetRequiresGrad(p.get(), true).ok());
  Tensor* parameters[] = {p.get()};
  const auto optimizer = Optimizer::Create(*w.engine, parameters, {&options, 1}).value();
  const auto step = [&] {
    T loss = w.Sum(w.Tmp("mul", {p, p}));
    w.engine->AdoptByScope(loss.get());
    std::vector<T> g = w.Grad(loss, {p});
    w.engine->AdoptByScope(g[0].get());
    Tensor* gradients[] = {g[0].get()};
    const double rate = 0.5;
    EXPECT_TRUE(optimizer->Step(gradients, {&rate, 1}).ok());
  };
  step();
  w.Sync();
  step();
  const auto text = w.engine->GraphText({});
  EXPECT_TRUE(text.ok()) << text.status();
  const auto module = ir::Parse(*text, ops::FindOp);
  EXPECT_TRUE(module.ok()) << module.status() << *text;
  const Answer look = ResultsToLook(module->main());
  return {std::ranges::count(look, true), look.size()};
}

TEST(ResultsToLook, OfRealOptimizersMomentsShowInParameters) {
  World w;
  OptimizerOptions options;
  EXPECT_EQ(Looked(w, options), std::pair(int64_t{1}, size_t{1}));
  options.momentum = 0.9;
  EXPECT_EQ(Looked(w, options), std::pair(int64_t{1}, size_t{2}));
  options = {};
  options.kind = OptimizerOptions::Kind::kAdam;
  EXPECT_EQ(Looked(w, options), std::pair(int64_t{2}, size_t{3}));
  options.kind = OptimizerOptions::Kind::kAdamW;
  EXPECT_EQ(Looked(w, options), std::pair(int64_t{2}, size_t{3}));
}

}  // namespace
}  // namespace weft::lazy
