// How results lie, from how parameters do: each rule beside what it must say.
#include "src/passes/shardings.h"

#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

constexpr std::string_view kMesh = "d=2,t=2";

// The shardings of the results, joined by ';', of a module on d=2,t=2 with all results open.
std::string Lies(std::string_view shardings, std::string_view parameters, std::string_view results, std::string_view body,
                 std::string_view returned) {
  const std::string text = absl::StrCat("module {partitions = 4, mesh = \"", kMesh, "\", parameters = \"", shardings, "\"}\n",
                                        Wrap(parameters, results, body, returned));
  absl::StatusOr<ir::Module> module = ir::Parse(text, ops::FindOp);
  if (!module.ok()) return std::string(module.status().message());
  for (const ir::Value& result : module->main().results()) {
    ir::Sharding& open = module->participants.results.emplace_back();
    open.dimensions.assign(result.type().rank(), {.axes = {}, .open = true});
  }
  const absl::StatusOr<std::vector<ir::Sharding>> found = ResultShardings(*module);
  if (!found.ok()) return std::string(found.status().message());
  std::string said;
  for (size_t i = 0; i < found->size(); ++i) {
    absl::StrAppend(&said, i == 0 ? "" : ";",
                    ir::ToString(module->participants.mesh, (*found)[i], module->main().results()[i].type().rank()));
  }
  return said;
}

TEST(Shardings, ElementsLieAsTheirOperands) {
  EXPECT_EQ(Lies("d,-;-,t", "%0: tensor<4x6xf32>, %1: tensor<4x6xf32>", "tensor<4x6xf32>, tensor<4x6xf32>",
                 "%2 = add(%0, %1) : tensor<4x6xf32>\n%3 = negate(%2) : tensor<4x6xf32>", "%2, %3"),
            "d,t;d,t");
  // An axis cuts one dimension: the first that asks for it.
  EXPECT_EQ(Lies("d,-;-,d", "%0: tensor<4x6xf32>, %1: tensor<4x6xf32>", "tensor<4x6xf32>",
                 "%2 = add(%0, %1) : tensor<4x6xf32>", "%2"),
            "d,-");
}

TEST(Shardings, WhatMovesElementsTakesThemAlong) {
  EXPECT_EQ(Lies("d,t", "%0: tensor<4x6xf32>", "tensor<6x4xf32>", "%1 = transpose(%0) {permutation = [1, 0]} : tensor<6x4xf32>", "%1"),
            "t,d");
  EXPECT_EQ(Lies("t", "%0: tensor<6xf32>", "tensor<4x6xf32>",
                 "%1 = broadcast_in_dim(%0) {shape = [4, 6], broadcast_dimensions = [1]} : tensor<4x6xf32>", "%1"),
            "-,t");
  EXPECT_EQ(Lies("d,-,t", "%0: tensor<4x3x6xf32>", "tensor<12x6xf32>, tensor<2x2x3x6xf32>",
                 "%1 = reshape(%0) {shape = [12, 6]} : tensor<12x6xf32>\n%2 = reshape(%0) {shape = [2, 2, 3, 6]} : tensor<2x2x3x6xf32>", "%1, %2"),
            "d,t;d,-,-,t");
  // The outermost of the new dimensions cannot be cut so often.
  EXPECT_EQ(Lies("d+t,-", "%0: tensor<4x6xf32>", "tensor<2x2x6xf32>", "%1 = reshape(%0) {shape = [2, 2, 6]} : tensor<2x2x6xf32>", "%1"),
            "-,-,-");
}

TEST(Shardings, SumsLoseWhatTheySumOver) {
  EXPECT_EQ(Lies("d,t", "%0: tensor<4x6xf32>", "tensor<6xf32>, tensor<4xf32>",
                 "%1 = reduce(%0) {dimensions = [0], reducer = sum} : tensor<6xf32>\n%2 = reduce(%0) {dimensions = [-1], reducer = sum} : tensor<4xf32>",
                 "%1, %2"),
            "t;d");
  constexpr std::string_view kProduct =
      "%2 = dot_general(%0, %1) {lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], "
      "rhs_contracting_dimensions = [0]} : tensor<4x8xf32>";
  constexpr std::string_view kFactors = "%0: tensor<4x6xf32>, %1: tensor<6x8xf32>";
  EXPECT_EQ(Lies("d,-;-,t", kFactors, "tensor<4x8xf32>", kProduct, "%2"), "d,t");
  EXPECT_EQ(Lies("-,t;t,-", kFactors, "tensor<4x8xf32>", kProduct, "%2"), "-,-");
}

TEST(Shardings, RowsThatAreGatheredLieAsTheirIndices) {
  EXPECT_EQ(Lies("-,t;d", "%0: tensor<10x6xf32>, %1: tensor<4xi32>", "tensor<4x6xf32>",
                 "%2 = gather(%0, %1) {offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1, "
                 "slice_sizes = [1, 6], operand_batching_dims = [], start_indices_batching_dims = []} : tensor<4x6xf32>",
                 "%2"),
            "d,t");
}

TEST(Shardings, ASaidShardingStandsAndIsChecked) {
  EXPECT_EQ(Lies("d,-", "%0: tensor<4x6xf32>", "tensor<4x6xf32>",
                 "%1 = weft.shard(%0) {spec = \"-,d+t\"} : tensor<4x6xf32>", "%1"),
            "the sharding '-,d+t' of an operand of shard, tensor<4x6xf32>, cuts dimension 1 of size 6 into 4 pieces, which do not come out even");
  EXPECT_EQ(Lies("d,-", "%0: tensor<4x8xf32>", "tensor<4x8xf32>", "%1 = weft.shard(%0) {spec = \"-,d+t\"} : tensor<4x8xf32>", "%1"), "-,d+t");
}

TEST(Shardings, ResultsThatNoRuleKnowsAreNamed) {
  const std::string text = absl::StrCat("module {partitions = 4, mesh = \"", kMesh, "\", parameters = \"d,-;\"}\n",
                                        Wrap("%0: tensor<4x6xf32>, %5: tensor<f32>", "tensor<8x8xf32>, tensor<8x8xf32>, tensor<4x6xf32>, tensor<6xf32>",
                                             "%1 = pad(%0, %5) {edge_padding_low = [2, 1], edge_padding_high = [2, 1], interior_padding = [0, 0]} : tensor<8x8xf32>\n"
                                             "%2 = negate(%1) : tensor<8x8xf32>\n%3 = negate(%0) : tensor<4x6xf32>\n"
                                             "%4 = reduce(%0) {dimensions = [0], reducer = sum} : tensor<6xf32>",
                                             "%1, %2, %3, %4"));
  absl::StatusOr<ir::Module> module = ir::Parse(text, ops::FindOp);
  ASSERT_TRUE(module.ok()) << module.status() << "\n" << text;
  for (const ir::Value& result : module->main().results()) {
    module->participants.results.emplace_back().dimensions.assign(result.type().rank(), {.axes = {}, .open = true});
  }
  std::vector<UnknownResult> unknown;
  ASSERT_TRUE(ResultShardings(*module, &unknown).ok());
  ASSERT_EQ(unknown.size(), 2u);
  EXPECT_EQ(unknown[0].result, 0u);
  EXPECT_EQ(unknown[1].result, 1u);
  EXPECT_EQ(unknown[1].operation, "pad") << "of which the second is made";
}

TEST(Shardings, WhatIsDrawnLiesAsWhatItIsCombinedWith) {
  const std::string text = absl::StrCat(
      "module {partitions = 4, mesh = \"", kMesh, "\", parameters = \"-;d,-\"}\n",
      Wrap("%0: tensor<3xui64>, %1: tensor<4x6xui32>", "tensor<3xui64>, tensor<4x6xui32>",
           "%2:2 = rng_bit_generator(%0) {shape = [4, 6], dtype = ui32} : tensor<3xui64>, tensor<4x6xui32>\n"
           "%3 = bitwise_not(%2#1) : tensor<4x6xui32>\n%4 = add(%1, %3) : tensor<4x6xui32>",
           "%2#0, %4"));
  const absl::StatusOr<ir::Module> module = ir::Parse(text, ops::FindOp);
  ASSERT_TRUE(module.ok()) << module.status() << "\n" << text;
  const absl::StatusOr<ir::Module> placed = PlaceDrawn(*module);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_NE(ir::Print(*placed).find("weft.shard(%2#1) {spec = \"d,-\"}"), std::string::npos) << ir::Print(*placed);
}

}  // namespace
}  // namespace weft::passes
