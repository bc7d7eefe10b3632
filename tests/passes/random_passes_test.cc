// The shared passes on random programs, half of them of empty tensors, tensors of one element and of rank 0: the reference
// gives the same bits before and after, but for those of NaN. WEFT_FUZZ_SEEDS=first:last runs more of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/backends/reference/interpreter.h"
#include "src/ir/text.h"
#include "src/passes/passes.h"
#include "src/passes/pipeline.h"
#include "tests/support/random_program.h"
#include "tests/support/seeds.h"

namespace weft::passes {
namespace {

bool Same(const HostTensor& a, const HostTensor& b) {
  if (a == b) return true;
  if (a.dtype() != b.dtype() || a.dims() != b.dims() || !IsFloat(a.dtype())) return false;
  const auto width = static_cast<size_t>(BytesOf(a.dtype()));
  for (int64_t i = 0; i < a.count(); ++i) {
    const size_t at = static_cast<size_t>(i) * width;
    const bool nan = std::isnan(a.GetDouble(i)) && std::isnan(b.GetDouble(i));
    if (!nan && std::memcmp(&a.bytes()[at], &b.bytes()[at], width) != 0) return false;
  }
  return true;
}

// What is wrong, or "".
std::string Problem(const test::RandomProgram& program) {
  const auto built = test::BuildProgram(program);
  if (!built.ok()) return "";  // a smaller one that makes no sense
  const ir::Module module{{built->function}};
  const auto expanded = ExpandComposites(module, {});
  if (!expanded.ok()) return absl::StrCat("expanding: ", expanded.status().ToString());
  const auto whole = RunPipeline(module, {.verify_between = true});
  if (!whole.ok()) return absl::StrCat("passes: ", whole.status().ToString());
  const auto expected = reference::Interpret(expanded->main(), built->arguments);
  const auto found = reference::Interpret(whole->main(), built->arguments);
  if (!expected.ok() || !found.ok()) return absl::StrCat("runs: ", expected.status().ToString(), "; ", found.status().ToString());
  for (size_t i = 0; i < expected->size(); ++i) {
    if (!Same((*expected)[i], (*found)[i])) return absl::StrCat("result ", i, " has other bits after\n", ir::Print(*whole));
  }
  return "";
}

void Check(uint64_t few, const test::RandomOptions& options) {
  const auto [first, last] = test::Seeds(few);
  ASSERT_LE(first, last);
  for (uint64_t seed = first; seed <= last; ++seed) {
    const test::RandomProgram program = test::MakeRandomProgram(seed, options);
    const std::string problem = Problem(program);
    if (problem.empty()) continue;
    const auto small = test::Shrink(program, [](const test::RandomProgram& p) { return !Problem(p).empty(); });
    ADD_FAILURE() << "seed " << seed << ": " << problem << "\nsmallest: " << Problem(small) << "\n" << test::ToString(small);
  }
}

TEST(RandomPasses, KeepEveryBit) { Check(1000, {.calls = 20, .hollow = 0.5}); }

TEST(RandomControlFlow, KeepsEveryBitInPasses) { Check(200, {.calls = 8, .control = 1, .hollow = 0.3}); }

}  // namespace
}  // namespace weft::passes
