// Fusion: what joins a kernel, and that no two kernels ever wait for each other.
#include "src/passes/fuse.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

bool CanFuse(const ir::Node& node) {
  const std::string_view op = node.op().name;
  return op == "add" || op == "multiply" || op == "exponential" || op == "broadcast_in_dim" || op == "reduce";
}

absl::StatusOr<ir::Module> FuseAll(const ir::Module& module, const PipelineOptions&) {
  FuseOptions options;
  options.can_fuse = CanFuse;
  ir::Module fused = module;
  WEFT_ASSIGN_OR_RETURN(fused.functions[0], Fuse(module.main(), options));
  return fused;
}

// Where products do what follows them.
absl::StatusOr<ir::Module> FuseEnding(const ir::Module& module, const PipelineOptions&) {
  FuseOptions options;
  options.can_fuse = CanFuse;
  options.ends_sums = [](const ir::Node& node) { return node.op().name == std::string_view("dot_general"); };
  ir::Module fused = module;
  WEFT_ASSIGN_OR_RETURN(fused.functions[0], Fuse(module.main(), options));
  return fused;
}

// Where kernels write parts of results.
absl::StatusOr<ir::Module> FuseParts(const ir::Module& module, const PipelineOptions&) {
  FuseOptions options;
  options.can_fuse = CanFuse;
  options.joins_parts = [](const ir::Node& node) { return node.op().name == std::string_view("concatenate"); };
  ir::Module fused = module;
  WEFT_ASSIGN_OR_RETURN(fused.functions[0], Fuse(module.main(), options));
  return fused;
}

int Fusions(std::string_view text) {
  int count = 0;
  for (size_t at = text.find("= fusion"); at != text.npos; at = text.find("= fusion", at + 1)) ++count;
  return count;
}

constexpr std::string_view kDot =
    "{lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], "
    "rhs_contracting_dimensions = [0]} : tensor<8x8xf32>\n";

// %2 is wanted by the last kernel, and spread out by one that the last kernel waits for.
TEST(Fuse, KeepsAProducerOutOfAKernelThatWaitsForAnotherReaderOfIt) {
  const std::string text = After(
      FuseAll, Wrap("%0: tensor<8xf32>, %1: tensor<8x8xf32>", "tensor<8xf32>",
                    absl::StrCat("%2 = exponential(%0) : tensor<8xf32>\n"
                                 "%3 = broadcast_in_dim(%2) {shape = [8, 8], broadcast_dimensions = [0]} : tensor<8x8xf32>\n"
                                 "%4 = multiply(%3, %1) : tensor<8x8xf32>\n"
                                 "%5 = dot_general(%4, %1) ", kDot,
                                 "%6 = slice(%5) {start_indices = [0, 0], limit_indices = [1, 8], strides = [1, 1]} : tensor<1x8xf32>\n"
                                 "%7 = reshape(%6) {shape = [8]} : tensor<8xf32>\n"
                                 "%8 = multiply(%2, %7) : tensor<8xf32>"),
                    "%8"));
  EXPECT_EQ(Fusions(text), 3) << text;
}

// What follows the first product alone does not wait for the second one.
TEST(Fuse, GivesEachOfTwoProductsThatAreAddedAnEndingOfItsOwn) {
  const auto fusions = [](auto pass, std::string_view results) {
    return Fusions(After(pass, Wrap("%0: tensor<8x8xf32>, %1: tensor<8xf32>", "tensor<8x8xf32>",
                                    absl::StrCat("%2 = broadcast_in_dim(%1) {shape = [8, 8], broadcast_dimensions = [1]} : tensor<8x8xf32>\n"
                                                 "%3 = dot_general(%0, %0) ", kDot,
                                                 "%4 = multiply(%3, %0) : tensor<8x8xf32>\n"
                                                 "%5 = dot_general(%0, %4) ", kDot,
                                                 "%6 = dot_general(%0, %0) ", kDot,
                                                 "%7 = multiply(%6, %2) : tensor<8x8xf32>\n"
                                                 "%8 = multiply(%5, %2) : tensor<8x8xf32>\n"
                                                 "%9 = add(%7, %8) : tensor<8x8xf32>"),
                                    results)));
  };
  EXPECT_EQ(fusions(FuseAll, "%9"), 2);
  EXPECT_EQ(fusions(FuseEnding, "%9"), 3);
}

// The second product, too, which stood before the first one's kernel and is wanted by the last.
TEST(Fuse, PutsProductsRightBeforeWhatFollowsThem) {
  const std::string text =
      After(FuseEnding, Wrap("%0: tensor<8x8xf32>, %1: tensor<8x8xf32>", "tensor<8x8xf32>",
                             absl::StrCat("%2 = dot_general(%0, %0) ", kDot, "%3 = dot_general(%0, %1) ", kDot,
                                          "%4 = multiply(%2, %1) : tensor<8x8xf32>\n"
                                          "%5 = dot_general(%4, %0) ", kDot,
                                          "%6 = multiply(%5, %1) : tensor<8x8xf32>\n"
                                          "%7 = add(%3, %0) : tensor<8x8xf32>\n"
                                          "%8 = add(%6, %7) : tensor<8x8xf32>"),
                             "%8"));
  const char* const products[] = {"dot_general(%0, %0)", "dot_general(%0, %1)"};
  for (const char* const product : products) {
    const size_t at = text.find(product), line = text.find('\n', at);
    ASSERT_NE(at, text.npos) << text;
    EXPECT_NE(text.substr(line, text.find('\n', line + 1) - line).find("= fusion"), text.npos) << text;
  }
}

// A gradient of gates: the parts share what they are made of, of which another result is made, too. What reads the whole comes after.
TEST(Fuse, ComputesPartsAndWhatStandsBesideThemTogether) {
  const std::string text = Wrap("%0: tensor<8x8xf32>, %1: tensor<8x8xf32>", "tensor<16x8xf32>, tensor<8x8xf32>, tensor<16x8xf32>",
                                "%2 = add(%0, %1) : tensor<8x8xf32>\n"
                                "%3 = exponential(%2) : tensor<8x8xf32>\n"
                                "%4 = multiply(%2, %1) : tensor<8x8xf32>\n"
                                "%5 = concatenate(%3, %4) {dimension = 0} : tensor<16x8xf32>\n"
                                "%6 = multiply(%2, %0) : tensor<8x8xf32>\n"
                                "%7 = exponential(%5) : tensor<16x8xf32>",
                                "%5, %6, %7");
  EXPECT_EQ(Fusions(After(FuseAll, text)), 4) << After(FuseAll, text);
  EXPECT_EQ(Fusions(After(FuseParts, text)), 2) << After(FuseParts, text);
}

// Random graphs of elementwise operations, broadcasts, reductions and products: every one can be put in order.
TEST(Fuse, FindsAnOrderForEveryGraph) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    std::vector<int> vectors = {0}, matrices = {1};
    std::string lines;
    const int n = 6 + static_cast<int>(random() % 60);
    // Mostly the newest few, now and then anything: long chains with skips, as gradients have them.
    const auto pick = [&](const std::vector<int>& from) {
      const size_t back = random() % 3 == 0 ? random() % from.size() : random() % std::min<size_t>(from.size(), 4);
      return from[from.size() - 1 - back];
    };
    for (int i = 2; i < n; ++i) {
      absl::StrAppend(&lines, "%", i, " = ");
      switch (random() % 9) {
        case 0: case 1:
          absl::StrAppend(&lines, "add(%", pick(vectors), ", %", pick(vectors), ") : tensor<8xf32>\n");
          vectors.push_back(i);
          break;
        case 2:
          absl::StrAppend(&lines, "exponential(%", pick(vectors), ") : tensor<8xf32>\n");
          vectors.push_back(i);
          break;
        case 3: case 4:
          absl::StrAppend(&lines, "multiply(%", pick(matrices), ", %", pick(matrices), ") : tensor<8x8xf32>\n");
          matrices.push_back(i);
          break;
        case 5:
          absl::StrAppend(&lines, "broadcast_in_dim(%", pick(vectors), ") {shape = [8, 8], broadcast_dimensions = [",
                          random() % 2, "]} : tensor<8x8xf32>\n");
          matrices.push_back(i);
          break;
        case 6:
          absl::StrAppend(&lines, "reduce(%", pick(matrices), ") {dimensions = [", random() % 2,
                          "], reducer = sum} : tensor<8xf32>\n");
          vectors.push_back(i);
          break;
        case 7:
          absl::StrAppend(&lines, "concatenate(%", pick(matrices), ", %", pick(matrices),
                          ") {dimension = 0} : tensor<16x8xf32>\n%", i + 1, " = slice(%", i,
                          ") {start_indices = [4, 0], limit_indices = [12, 8], strides = [1, 1]} : tensor<8x8xf32>\n");
          matrices.push_back(++i);
          break;
        default:
          absl::StrAppend(&lines, "dot_general(%", pick(matrices), ", %", pick(matrices), ") ", kDot);
          matrices.push_back(i);
          break;
      }
    }
    const std::string text = Wrap("%0: tensor<8xf32>, %1: tensor<8x8xf32>", "tensor<8xf32>, tensor<8x8xf32>", lines,
                                  absl::StrCat("%", vectors.back(), ", %", matrices.back()));
    for (const auto pass : {FuseAll, FuseEnding, FuseParts}) {
      const std::string fused = After(pass, text);
      ASSERT_TRUE(fused.starts_with("func @main") || fused.starts_with("module")) << fused << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace weft::passes
