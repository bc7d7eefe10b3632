// Each rule of simplify, and what it must leave alone.
#include <gmock/gmock.h>

#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

// One parameter, one result.
void Expect(std::string_view parameter, std::string_view result, std::string_view before, std::string_view returned,
            std::string_view after, std::string_view returned_after) {
  const std::string p = std::string("%0: ").append(parameter);
  EXPECT_EQ(After(Simplify, Wrap(p, result, before, returned)), Wrap(p, result, after, returned_after));
}
void ExpectSame(std::string_view parameter, std::string_view result, std::string_view lines, std::string_view returned) {
  Expect(parameter, result, lines, returned, lines, returned);
}

TEST(Simplify, MergesReshapes) {
  Expect("tensor<2x3xf32>", "tensor<6xf32>",
         "%1 = reshape(%0) {shape = [3, 2]} : tensor<3x2xf32>\n%2 = reshape(%1) {shape = [6]} : tensor<6xf32>", "%2",
         "%1 = reshape(%0) {shape = [6]} : tensor<6xf32>", "%1");
  Expect("tensor<2x3xf32>", "tensor<2x3xf32>",
         "%1 = reshape(%0) {shape = [6]} : tensor<6xf32>\n%2 = reshape(%1) {shape = [2, 3]} : tensor<2x3xf32>", "%2", "", "%0");
}

TEST(Simplify, MergesTransposes) {
  Expect("tensor<2x3x4xf32>", "tensor<4x3x2xf32>",
         "%1 = transpose(%0) {permutation = [1, 0, 2]} : tensor<3x2x4xf32>\n"
         "%2 = transpose(%1) {permutation = [2, 0, 1]} : tensor<4x3x2xf32>", "%2",
         "%1 = transpose(%0) {permutation = [2, 1, 0]} : tensor<4x3x2xf32>", "%1");
  Expect("tensor<2x3xf32>", "tensor<2x3xf32>",
         "%1 = transpose(%0) {permutation = [1, 0]} : tensor<3x2xf32>\n"
         "%2 = transpose(%1) {permutation = [1, 0]} : tensor<2x3xf32>", "%2", "", "%0");
}

TEST(Simplify, TurnsTransposesThatMoveNothingIntoReshapes) {
  Expect("tensor<2x1x3xf32>", "tensor<1x2x3xf32>", "%1 = transpose(%0) {permutation = [1, 0, 2]} : tensor<1x2x3xf32>", "%1",
         "%1 = reshape(%0) {shape = [1, 2, 3]} : tensor<1x2x3xf32>", "%1");
}

TEST(Simplify, MergesBroadcasts) {
  Expect("tensor<3xf32>", "tensor<4x2x3xf32>",
         "%1 = broadcast_in_dim(%0) {shape = [2, 3], broadcast_dimensions = [1]} : tensor<2x3xf32>\n"
         "%2 = broadcast_in_dim(%1) {shape = [4, 2, 3], broadcast_dimensions = [1, 2]} : tensor<4x2x3xf32>", "%2",
         "%1 = broadcast_in_dim(%0) {shape = [4, 2, 3], broadcast_dimensions = [2]} : tensor<4x2x3xf32>", "%1");
}

TEST(Simplify, ReadsAReshapeBeforeABroadcastAsPositions) {
  Expect("tensor<3xf32>", "tensor<2x3xf32>",
         "%1 = reshape(%0) {shape = [1, 3]} : tensor<1x3xf32>\n"
         "%2 = broadcast_in_dim(%1) {shape = [2, 3], broadcast_dimensions = [0, 1]} : tensor<2x3xf32>", "%2",
         "%1 = broadcast_in_dim(%0) {shape = [2, 3], broadcast_dimensions = [1]} : tensor<2x3xf32>", "%1");
}

TEST(Simplify, TurnsBroadcastsThatRepeatNothingIntoReshapes) {
  Expect("tensor<3xf32>", "tensor<1x3xf32>",
         "%1 = broadcast_in_dim(%0) {shape = [1, 3], broadcast_dimensions = [1]} : tensor<1x3xf32>", "%1",
         "%1 = reshape(%0) {shape = [1, 3]} : tensor<1x3xf32>", "%1");
}

TEST(Simplify, DropsConversionsOnlyWhereNoValueChanges) {
  Expect("tensor<2xbf16>", "tensor<2xbf16>",
         "%1 = convert(%0) {dtype = f32} : tensor<2xf32>\n%2 = convert(%1) {dtype = bf16} : tensor<2xbf16>", "%2", "", "%0");
  Expect("tensor<2xi8>", "tensor<2xf32>",
         "%1 = convert(%0) {dtype = i32} : tensor<2xi32>\n%2 = convert(%1) {dtype = f32} : tensor<2xf32>", "%2",
         "%1 = convert(%0) {dtype = f32} : tensor<2xf32>", "%1");
  ExpectSame("tensor<2xf32>", "tensor<2xf32>",
             "%1 = convert(%0) {dtype = bf16} : tensor<2xbf16>\n%2 = convert(%1) {dtype = f32} : tensor<2xf32>", "%2");
  // -1 becomes 0 by way of f32 (saturating), 255 directly (wrapping).
  ExpectSame("tensor<2xi8>", "tensor<2xui8>",
             "%1 = convert(%0) {dtype = f32} : tensor<2xf32>\n%2 = convert(%1) {dtype = ui8} : tensor<2xui8>", "%2");
  ExpectSame("tensor<2xi32>", "tensor<2xi32>",
             "%1 = convert(%0) {dtype = f32} : tensor<2xf32>\n%2 = convert(%1) {dtype = i32} : tensor<2xi32>", "%2");
}

TEST(Simplify, MergesSlices) {
  Expect("tensor<10xf32>", "tensor<2xf32>",
         "%1 = slice(%0) {start_indices = [1], limit_indices = [9], strides = [2]} : tensor<4xf32>\n"
         "%2 = slice(%1) {start_indices = [1], limit_indices = [4], strides = [2]} : tensor<2xf32>", "%2",
         "%1 = slice(%0) {start_indices = [3], limit_indices = [8], strides = [4]} : tensor<2xf32>", "%1");
  Expect("tensor<10xf32>", "tensor<10xf32>",
         "%1 = slice(%0) {start_indices = [0], limit_indices = [10], strides = [1]} : tensor<10xf32>", "%1", "", "%0");
}

TEST(Simplify, MergesSlicesThatTakeNothingOrOneWhereverTheyWouldBegin) {
  // 8 + 2 * 4 = 16 lies outside of ten elements, and the stride of 2^42 would be refused.
  Expect("tensor<10xf32>", "tensor<0xf32>",
         "%1 = slice(%0) {start_indices = [8], limit_indices = [10], strides = [4]} : tensor<1xf32>\n"
         "%2 = slice(%1) {start_indices = [1], limit_indices = [1], strides = [1]} : tensor<0xf32>", "%2",
         "%1 = slice(%0) {start_indices = [0], limit_indices = [0], strides = [1]} : tensor<0xf32>", "%1");
  Expect("tensor<10xf32>", "tensor<1xf32>",
         "%1 = slice(%0) {start_indices = [0], limit_indices = [10], strides = [4]} : tensor<3xf32>\n"
         "%2 = slice(%1) {start_indices = [1], limit_indices = [3], strides = [1099511627776]} : tensor<1xf32>", "%2",
         "%1 = slice(%0) {start_indices = [4], limit_indices = [5], strides = [1]} : tensor<1xf32>", "%1");
}

TEST(Simplify, AddsMinusZeroButNotZero) {
  const std::string_view constant = "%1 = constant() {value = dense tensor<f32> [-0.0]} : tensor<f32>\n"
                                    "%2 = broadcast_in_dim(%1) {shape = [2], broadcast_dimensions = []} : tensor<2xf32>\n"
                                    "%3 = add(%0, %2) : tensor<2xf32>";
  Expect("tensor<2xf32>", "tensor<2xf32>", constant, "%3", "", "%0");
  std::string plus(constant);
  plus.erase(plus.find("-0.0"), 1);
  ExpectSame("tensor<2xf32>", "tensor<2xf32>", plus, "%3");
}

// The gradient of chunks is the sum of their gradients, each between zeros.
TEST(Simplify, JoinsPaddedNeighbours) {
  const std::string_view zero = "%1 = constant() {value = dense tensor<f32> [0.0]} : tensor<f32>\n";
  const auto pad = [](int name, std::string_view of, int low, int high) {
    return absl::StrCat("%", name, " = pad(", of, ", %1) {edge_padding_low = [", low, "], edge_padding_high = [", high,
                        "], interior_padding = [0]} : tensor<6xf32>\n");
  };
  const std::string three = absl::StrCat(zero, pad(2, "%0", 2, 2), pad(3, "%0", 4, 0), pad(4, "%0", 0, 4),
                                         "%5 = add(%3, %2) : tensor<6xf32>\n%6 = add(%5, %4) : tensor<6xf32>");
  const std::string after = After(Simplify, Wrap("%0: tensor<2xf32>", "tensor<6xf32>", three, "%6"));
  EXPECT_THAT(after, testing::HasSubstr("concatenate("));
  EXPECT_THAT(after, testing::Not(testing::HasSubstr("pad(")));
  EXPECT_THAT(after, testing::HasSubstr("add(%0"));  // -0.0 becomes 0.0 as it did
  // Zeros stand in a gap, where what comes later finds room; neighbours that overlap stay as they are.
  const std::string gap = absl::StrCat(zero, pad(2, "%0", 0, 4), pad(3, "%0", 4, 0), pad(4, "%0", 2, 2),
                                       "%5 = add(%2, %3) : tensor<6xf32>\n%6 = add(%5, %4) : tensor<6xf32>");
  const std::string between = After(Simplify, Wrap("%0: tensor<2xf32>", "tensor<6xf32>", gap, "%5"));
  EXPECT_THAT(between, testing::HasSubstr("concatenate("));
  EXPECT_THAT(between, testing::Not(testing::HasSubstr("pad(")));
  EXPECT_THAT(between, testing::ContainsRegex("concatenate\\(%[0-9]+, %[0-9]+, %[0-9]+\\)"));
  const std::string filled = After(Simplify, Wrap("%0: tensor<2xf32>", "tensor<6xf32>", gap, "%6"));
  EXPECT_THAT(filled, testing::ContainsRegex("concatenate\\(%[0-9]+, %[0-9]+, %[0-9]+\\)"));
  EXPECT_THAT(filled, testing::Not(testing::HasSubstr("pad(")));
  const std::string overlap = absl::StrCat(zero, pad(2, "%0", 1, 3), pad(3, "%0", 2, 2), "%4 = add(%2, %3) : tensor<6xf32>");
  ExpectSame("tensor<2xf32>", "tensor<6xf32>", overlap, "%4");
  const std::string part = absl::StrCat(zero, pad(2, "%0", 3, 1), pad(3, "%0", 1, 3), "%4 = add(%2, %3) : tensor<6xf32>");
  const std::string joined = After(Simplify, Wrap("%0: tensor<2xf32>", "tensor<6xf32>", part, "%4"));
  EXPECT_THAT(joined, testing::HasSubstr("edge_padding_low = [1], edge_padding_high = [1]"));
}

// The gradient of every third slice: they take turns within rows of three.
TEST(Simplify, JoinsPadsThatTakeTurns) {
  const std::string_view zero = "%1 = constant() {value = dense tensor<f32> [0.0]} : tensor<f32>\n";
  const auto pad = [](int name, int low, int high, int between) {
    return absl::StrCat("%", name, " = pad(%0, %1) {edge_padding_low = [", low, "], edge_padding_high = [", high,
                        "], interior_padding = [", between, "]} : tensor<6xf32>\n");
  };
  const std::string three = absl::StrCat(zero, pad(2, 2, 0, 2), pad(3, 0, 2, 2), pad(4, 1, 1, 2),
                                         "%5 = add(%2, %3) : tensor<6xf32>\n%6 = add(%5, %4) : tensor<6xf32>");
  const std::string after = After(Simplify, Wrap("%0: tensor<2xf32>", "tensor<6xf32>", three, "%6"));
  EXPECT_THAT(after, testing::HasSubstr("concatenate("));
  EXPECT_THAT(after, testing::HasSubstr("tensor<2x3xf32>"));
  EXPECT_THAT(after, testing::Not(testing::HasSubstr("pad(")));
  // The same turn twice is a sum.
  ExpectSame("tensor<2xf32>", "tensor<6xf32>", absl::StrCat(zero, pad(2, 1, 1, 2), "%3 = add(%2, %2) : tensor<6xf32>"), "%3");
}

// Boxes whose places are literals are slices, and pads of what was one number everywhere.
TEST(Simplify, KnowsWhereBoxesWithLiteralPlacesAre) {
  const std::string_view at = "%1 = constant() {value = dense tensor<i32> [2]} : tensor<i32>\n%2 = constant() {value = dense tensor<f32> [0.0]} : tensor<f32>\n";
  const std::string slice = After(Simplify, Wrap("%0: tensor<6xf32>", "tensor<3xf32>", absl::StrCat(at, "%3 = dynamic_slice(%0, %1) {slice_sizes = [3]} : tensor<3xf32>"), "%3"));
  EXPECT_THAT(slice, testing::HasSubstr("start_indices = [2], limit_indices = [5]"));
  const std::string zeros = absl::StrCat(at, "%3 = broadcast_in_dim(%2) {shape = [6], broadcast_dimensions = []} : tensor<6xf32>\n");
  const std::string pad = After(Simplify, Wrap("%0: tensor<3xf32>", "tensor<6xf32>", absl::StrCat(zeros, "%4 = dynamic_update_slice(%3, %0, %1) : tensor<6xf32>"), "%4"));
  EXPECT_THAT(pad, testing::HasSubstr("edge_padding_low = [2], edge_padding_high = [1]"));
}

TEST(Simplify, MultipliesByALiteralOneOnly) {
  Expect("tensor<f32>", "tensor<f32>",
         "%1 = constant() {value = dense tensor<f32> [1.0]} : tensor<f32>\n%2 = multiply(%1, %0) : tensor<f32>", "%2", "", "%0");
  Expect("tensor<f32>", "tensor<f32>",
         "%1 = constant() {value = dense tensor<f32> [1.0]} : tensor<f32>\n%2 = divide(%0, %1) : tensor<f32>", "%2", "", "%0");
  ExpectSame("tensor<f32>", "tensor<f32>",
             "%1 = constant() {value = dense tensor<f32> [0.0]} : tensor<f32>\n%2 = multiply(%1, %0) : tensor<f32>", "%2");
}

TEST(Simplify, SelectsBetweenEqualArms) {
  EXPECT_EQ(After(Simplify, Wrap("%0: tensor<i1>, %1: tensor<f32>", "tensor<f32>", "%2 = select(%0, %1, %1) : tensor<f32>", "%2")),
            Wrap("%0: tensor<i1>, %1: tensor<f32>", "tensor<f32>", "", "%1"));
}

TEST(Simplify, UndoesNegationTwice) {
  Expect("tensor<f32>", "tensor<f32>", "%1 = negate(%0) : tensor<f32>\n%2 = negate(%1) : tensor<f32>", "%2", "", "%0");
}

TEST(Simplify, NeverLooksAtParameters) {
  // A scalar argument that happens to be one is still an argument.
  const std::string text = "module {words = 1}\n" +
                           Wrap("%0: tensor<f32>, %1: tensor<f32> {word = 0}", "tensor<f32>", "%2 = multiply(%0, %1) : tensor<f32>", "%2");
  EXPECT_EQ(After(Simplify, text), text);
}

}  // namespace
}  // namespace weft::passes
