// The gradients of random scalar programs, and those of their gradients, against central differences along random directions, in f64 on the reference.
// WEFT_FUZZ_SEEDS=first:last runs more of them; a failure prints the smallest program that shows it.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "src/autodiff/gradient.h"
#include "src/backends/reference/interpreter.h"
#include "src/ops/build.h"
#include "tests/support/random_program.h"
#include "tests/support/seeds.h"

namespace weft {
namespace {

using test::BuiltProgram;
using test::RandomProgram;

constexpr double kStep = 1e-5;       // as for single operations
constexpr double kAgreement = 1e-6;  // of differences with two steps: else there is a kink nearby, or chaos
constexpr double kTolerance = 1e-4;

// The float outputs, weighted by fixed numbers and added up.
ir::Value Loss(ir::Builder& b, std::span<const ir::Value> outputs) {
  ir::Value total;
  test::Rng rng(5);
  for (const ir::Value& output : outputs) {
    if (output.dtype() != DType::kF64) continue;
    HostTensor weights(DType::kF64, output.dims());
    for (int64_t i = 0; i < weights.count(); ++i) weights.SetDouble(i, rng.Uniform(-1, 1));
    const ir::Value part = ops::Reduce(b, ops::Mul(b, output, ops::Constant(b, std::move(weights))), ops::Reducer::kSum,
                                       ops::Axes(output.dims().size()));
    total = total ? ops::Add(b, total, part) : part;
  }
  return total;
}

// The slope along the direction (one number per element of each argument; empty: none), if differences with two steps
// and from both sides agree about it.
std::optional<double> Difference(const ir::Function& loss, const std::vector<HostTensor>& arguments,
                                 const std::vector<std::vector<double>>& direction) {
  auto at = [&](double step) {
    std::vector<HostTensor> moved = arguments;
    for (size_t a = 0; a < moved.size(); ++a) {
      for (size_t i = 0; i < direction[a].size(); ++i) {
        const auto k = static_cast<int64_t>(i);
        moved[a].SetDouble(k, moved[a].GetDouble(k) + step * direction[a][i]);
      }
    }
    const auto results = reference::Interpret(loss, moved);
    return results.ok() ? (*results)[0].GetDouble(0) : NAN;
  };
  const double here = at(0), up = at(kStep), down = at(-kStep), near_up = at(kStep / 4), near_down = at(-kStep / 4);
  const double wide = (up - down) / (2 * kStep), narrow = (near_up - near_down) / (kStep / 2);
  const double right = (near_up - here) / (kStep / 4), left = (here - near_down) / (kStep / 4);
  const double scale = 1 + std::fabs(wide);
  if (!(std::fabs(wide - narrow) <= kAgreement * scale) || !(std::fabs(right - left) <= 100 * kAgreement * scale)) return std::nullopt;
  return wide;
}

// What is wrong with the slopes of a scalar, or ""; counts those that could be compared.
std::string Compare(const BuiltProgram& built, const ir::Value& loss, const std::vector<ir::Value>& slopes,
                    std::span<const size_t> places, int* compared) {
  const auto parameters = built.function->parameters();
  const std::vector<ir::Value> given(parameters.begin(), parameters.end());
  const auto found = reference::Interpret(*ir::Function::Create("gradient", given, slopes), built.arguments);
  if (!found.ok()) return found.status().ToString();
  const auto forward = ir::Function::Create("loss", given, {loss});
  test::Rng rng(9);
  // All arguments at once, then each alone, a single element at last.
  for (size_t turn = 0; turn < 1 + 2 * places.size(); ++turn) {
    std::vector<std::vector<double>> direction(given.size());
    double expected = 0;
    for (size_t w = 0; w < places.size(); ++w) {
      if (turn > 0 && (turn - 1) / 2 != w) continue;
      const HostTensor& slope = (*found)[w];
      std::vector<double>& along = direction[places[w]];
      along.assign(static_cast<size_t>(slope.count()), 0);
      const int64_t only = turn > 0 && turn % 2 == 0 ? rng.Below(slope.count()) : -1;
      for (int64_t i = 0; i < slope.count(); ++i) {
        if (only >= 0 && i != only) continue;
        along[static_cast<size_t>(i)] = rng.Uniform(-1, 1);
        expected += along[static_cast<size_t>(i)] * slope.GetDouble(i);
      }
    }
    const std::optional<double> difference = Difference(*forward, built.arguments, direction);
    if (!difference) continue;
    ++*compared;
    if (!(std::fabs(expected - *difference) <= kTolerance * (1 + std::fabs(*difference)))) {
      return absl::StrCat("turn ", turn, ": the gradient says ", expected, ", differences ", *difference);
    }
  }
  return "";
}

// What is wrong, or "", order by order.
std::string Problem(const RandomProgram& program, int* compared) {
  const auto built = test::BuildProgram(program);
  if (!built.ok()) return "";
  ir::Builder b;
  ir::Value loss = Loss(b, built->function->results());
  std::vector<ir::Value> wrt;
  std::vector<size_t> places;
  const auto parameters = built->function->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].dtype() != DType::kF64) continue;
    wrt.push_back(parameters[i]);
    places.push_back(i);
  }
  if (!loss || wrt.empty()) return "";
  for (int order = 1; order <= 2; ++order) {
    const auto slopes = autodiff::Gradient(b, loss, wrt);
    if (absl::IsUnimplemented(slopes.status())) return "";  // the product of a window, and nothing else
    if (!slopes.ok()) return slopes.status().ToString();
    const std::string problem = Compare(*built, loss, *slopes, places, compared + order - 1);
    if (!problem.empty()) return absl::StrCat("order ", order, ", ", problem);
    loss = Loss(b, *slopes);
    if (!b.ok()) return b.status().ToString();
  }
  return "";
}

void Check(uint64_t few, test::RandomOptions options, int per_program) {
  const auto [first, last] = test::Seeds(few);
  ASSERT_LE(first, last);
  int compared[2] = {};
  for (uint64_t seed = first; seed <= last; ++seed) {
    options.gradients = seed % 3 == 0;
    const RandomProgram program = test::MakeRandomProgram(seed, options);
    const std::string problem = Problem(program, compared);
    if (problem.empty()) continue;
    const RandomProgram small = test::Shrink(program, [](const RandomProgram& p) {
      int unused[2];
      return !Problem(p, unused).empty();
    });
    ADD_FAILURE() << "seed " << seed << ": " << problem << "\nsmallest: " << Problem(small, compared) << "\n" << test::ToString(small);
  }
  for (int count : compared) EXPECT_GT(count, static_cast<int>(last - first) * per_program);
}

TEST(RandomGradients, AgreeWithFiniteDifferences) { Check(100, {.calls = 18, .smooth = true}, 2); }

TEST(RandomControlFlow, HasTheGradientsOfFiniteDifferences) { Check(50, {.calls = 6, .smooth = true, .control = 1}, 1); }

}  // namespace
}  // namespace weft
