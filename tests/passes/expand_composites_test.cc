// Expansion of composites.
#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

TEST(ExpandComposites, ReplacesANodeByItsExpansion) {
  EXPECT_EQ(After(ExpandComposites, Wrap("%0: tensor<2x3xf32>", "tensor<2x3xf32>",
                                         "%1 = weft.softmax(%0) {axis = -1, safe = false} : tensor<2x3xf32> loc(\"a.c:1\")", "%1")),
            Wrap("%0: tensor<2x3xf32>", "tensor<2x3xf32>",
                 "%1 = reduce(%0) {dimensions = [1], reducer = max} : tensor<2xf32> loc(\"a.c:1\")\n"
                 "%2 = reshape(%1) {shape = [2, 1]} : tensor<2x1xf32> loc(\"a.c:1\")\n"
                 "%3 = broadcast_in_dim(%2) {shape = [2, 3], broadcast_dimensions = [0, 1]} : tensor<2x3xf32> loc(\"a.c:1\")\n"
                 "%4 = subtract(%0, %3) : tensor<2x3xf32> loc(\"a.c:1\")\n"
                 "%5 = exponential(%4) : tensor<2x3xf32> loc(\"a.c:1\")\n"
                 "%6 = reduce(%5) {dimensions = [1], reducer = sum} : tensor<2xf32> loc(\"a.c:1\")\n"
                 "%7 = reshape(%6) {shape = [2, 1]} : tensor<2x1xf32> loc(\"a.c:1\")\n"
                 "%8 = broadcast_in_dim(%7) {shape = [2, 3], broadcast_dimensions = [0, 1]} : tensor<2x3xf32> loc(\"a.c:1\")\n"
                 "%9 = divide(%5, %8) : tensor<2x3xf32> loc(\"a.c:1\")",
                 "%9"));
}

TEST(ExpandComposites, AsksTheBackendAboutCompositesInsideExpansionsToo) {
  // silu is x * sigmoid(x): a backend that claims nothing sees primitives only.
  int asked = 0;
  PipelineOptions options;
  options.claims = [&](const ir::Node&) { return ++asked, false; };
  After(ExpandComposites, Wrap("%0: tensor<2xf32>", "tensor<2xf32>", "%1 = weft.silu(%0) : tensor<2xf32>", "%1"), options);
  EXPECT_GE(asked, 1);
}

}  // namespace
}  // namespace weft::passes
