// What moves, what cancels, what stays.
#include "src/passes/move_channels.h"

#include "absl/strings/str_cat.h"
#include "tests/passes/golden.h"

namespace weft::passes {
namespace {

absl::StatusOr<ir::Module> Move(const ir::Module& module, const PipelineOptions&) {
  ir::Module moved = module;
  WEFT_ASSIGN_OR_RETURN(moved.functions[0], MoveChannels(module.main()));
  return moved;
}

constexpr std::string_view kNchw = "tensor<2x4x8x8xf32>", kNhwc = "tensor<2x8x8x4xf32>";
constexpr std::string_view kParameters = "%0: tensor<2x4x8x8xf32>, %1: tensor<4x4x3x3xf32>";
constexpr std::string_view kFirst = "[0, 1, 2, 3]", kLast = "[0, 3, 1, 2]";

// A 3x3 convolution of %1 with the positions of batch, feature and spatial dimensions before and behind it.
std::string Convolved(std::string_view x, std::string_view from, std::string_view to, std::string_view type) {
  return absl::StrCat("convolution(", x, ", %1) {window_strides = [1, 1], padding = [1, 1, 1, 1], lhs_dilation = [1, 1], rhs_dilation = [1, 1], "
                      "input_dimensions = ", from, ", kernel_dimensions = [1, 0, 2, 3], output_dimensions = ", to,
                      ", feature_group_count = 1, batch_group_count = 1} : ", type, "\n");
}
std::string Transposed(std::string_view x, std::string_view permutation, std::string_view type) {
  return absl::StrCat("transpose(", x, ") {permutation = ", permutation, "} : ", type, "\n");
}
// What has windows of 2 in the last two dimensions.
std::string Pooled(std::string_view x) {
  return absl::StrCat("reduce_window(", x, ") {window_dimensions = [1, 1, 2, 2], reducer = max, window_strides = [1, 1, 2, 2]} : tensor<2x4x4x4xf32>\n");
}
void ExpectSame(std::string_view parameters, std::string_view result, std::string_view lines, std::string_view returned) {
  const std::string text = Wrap(parameters, result, lines, returned);
  EXPECT_EQ(After(Move, text), text);
}

TEST(MoveChannels, BetweenTwoConvolutionsNothingIsTransposed) {
  EXPECT_EQ(After(Move, Wrap(kParameters, kNchw,
                             absl::StrCat("%2 = ", Convolved("%0", kFirst, kFirst, kNchw), "%3 = tanh(%2) : ", kNchw, "\n%4 = ", Convolved("%3", kFirst, kFirst, kNchw)), "%4")),
            Wrap(kParameters, kNchw,
                 absl::StrCat("%2 = ", Convolved("%0", kFirst, kLast, kNhwc), "%3 = tanh(%2) : ", kNhwc, "\n%4 = ", Convolved("%3", kLast, kFirst, kNchw)), "%4"));
}

TEST(MoveChannels, TransposesAroundANetworkCancel) {
  EXPECT_EQ(After(Move, Wrap("%0: tensor<2x8x8x4xf32>, %1: tensor<4x4x3x3xf32>", kNhwc,
                             absl::StrCat("%2 = ", Transposed("%0", "[0, 3, 1, 2]", kNchw), "%3 = tanh(%2) : ", kNchw, "\n%4 = ", Convolved("%3", kFirst, kFirst, kNchw),
                                          "%5 = add(%4, %2) : ", kNchw, "\n%6 = ", Transposed("%5", "[0, 2, 3, 1]", kNhwc)), "%6")),
            Wrap("%0: tensor<2x8x8x4xf32>, %1: tensor<4x4x3x3xf32>", kNhwc,
                 absl::StrCat("%2 = tanh(%0) : ", kNhwc, "\n%3 = ", Convolved("%2", kLast, kLast, kNhwc), "%4 = add(%3, %0) : ", kNhwc, "\n"), "%4"));
}

TEST(MoveChannels, PoolsRunOverChannelsThatLieSideBySide) {
  EXPECT_EQ(After(Move, Wrap("%0: tensor<2x4x8x8xf32>", "tensor<2x4x4x4xf32>", absl::StrCat("%1 = ", Pooled("%0")), "%1")),
            Wrap("%0: tensor<2x4x8x8xf32>", "tensor<2x4x4x4xf32>",
                 absl::StrCat("%1 = ", Transposed("%0", "[0, 2, 3, 1]", kNhwc),
                              "%2 = reduce_window(%1) {window_dimensions = [1, 2, 2, 1], reducer = max, window_strides = [1, 2, 2, 1]} : tensor<2x4x4x4xf32>\n%3 = ",
                              Transposed("%2", kLast, "tensor<2x4x4x4xf32>")), "%3"));
}

// The kernels run along rows that are long enough; a sum's do not.
TEST(MoveChannels, LargestOfLongRowsStayWhereTheyLie) {
  const auto pooled = [](std::string_view reducer) {
    return absl::StrCat("%1 = reduce_window(%0) {window_dimensions = [1, 1, 3, 3], reducer = ", reducer,
                        ", window_strides = [1, 1, 2, 2], padding = [0, 0, 0, 0, 1, 1, 1, 1]} : tensor<2x4x8x8xf32>\n");
  };
  ExpectSame("%0: tensor<2x4x16x16xf32>", kNchw, pooled("max"), "%1");
  ExpectSame("%0: tensor<2x4x16x16xf32>, %1: tensor<2x4x8x8xf32>", "tensor<2x4x16x16xf32>",
             "%2 = tanh(%0) : tensor<2x4x16x16xf32>\n%3 = select_and_scatter(%2, %1) {window_dimensions = [1, 1, 3, 3], window_strides = [1, 1, 2, 2], "
             "padding = [0, 0, 0, 0, 1, 1, 1, 1], select = largest} : tensor<2x4x16x16xf32>\n", "%3");
  EXPECT_NE(After(Move, Wrap("%0: tensor<2x4x16x16xf32>", kNchw, pooled("sum"), "%1")), Wrap("%0: tensor<2x4x16x16xf32>", kNchw, pooled("sum"), "%1"));
}

TEST(MoveChannels, PoolsOfLongRowsFollowConvolutions) {
  const std::string_view wide = "tensor<2x4x16x16xf32>", wide_last = "tensor<2x16x16x4xf32>";
  const auto pooled = [](std::string_view ones, std::string_view twos, std::string_view type) {
    return absl::StrCat("%3 = reduce_window(%2) {window_dimensions = ", twos, ", reducer = max, window_strides = ", ones, "} : ", type, "\n%4 = ");
  };
  EXPECT_EQ(After(Move, Wrap("%0: tensor<2x4x16x16xf32>, %1: tensor<4x4x3x3xf32>", kNchw,
                             absl::StrCat("%2 = ", Convolved("%0", kFirst, kFirst, wide), pooled("[1, 1, 2, 2]", "[1, 1, 2, 2]", kNchw), Convolved("%3", kFirst, kFirst, kNchw)), "%4")),
            Wrap("%0: tensor<2x4x16x16xf32>, %1: tensor<4x4x3x3xf32>", kNchw,
                 absl::StrCat("%2 = ", Convolved("%0", kFirst, kLast, wide_last), pooled("[1, 2, 2, 1]", "[1, 2, 2, 1]", kNhwc), Convolved("%3", kLast, kFirst, kNchw)), "%4"));
}

// The order of additions is that of the dimensions as they were.
TEST(MoveChannels, SumsReadThroughATranspose) {
  EXPECT_EQ(After(Move, Wrap(kParameters, "tensor<4xf32>, tensor<2x4x8x8xf32>",
                             absl::StrCat("%2 = ", Convolved("%0", kFirst, kFirst, kNchw), "%3 = abs(%2) : ", kNchw,
                                          "\n%4 = reduce(%3) {dimensions = [0, 2, 3], reducer = sum} : tensor<4xf32>\n%5 = ", Convolved("%3", kFirst, kFirst, kNchw)), "%4, %5")),
            Wrap(kParameters, "tensor<4xf32>, tensor<2x4x8x8xf32>",
                 absl::StrCat("%2 = ", Convolved("%0", kFirst, kLast, kNhwc), "%3 = abs(%2) : ", kNhwc, "\n%4 = ", Transposed("%3", kLast, kNchw),
                              "%5 = reduce(%4) {dimensions = [0, 2, 3], reducer = sum} : tensor<4xf32>\n%6 = ", Convolved("%3", kLast, kFirst, kNchw)), "%5, %6"));
}

TEST(MoveChannels, AttributesOfEveryDimensionMoveWithIt) {
  EXPECT_EQ(After(Move, Wrap(absl::StrCat(kParameters, ", %2: tensor<f32>, %3: tensor<4xf32>"), kNchw,
                             absl::StrCat("%4 = ", Convolved("%0", kFirst, kFirst, kNchw),
                                          "%5 = slice(%4) {start_indices = [0, 1, 2, 3], limit_indices = [2, 3, 8, 8], strides = [1, 1, 1, 2]} : tensor<2x2x6x3xf32>\n"
                                          "%6 = pad(%5, %2) {edge_padding_low = [0, 0, 1, 2], edge_padding_high = [0, 0, 1, 3], interior_padding = [0, 0, 0, 0]} : "
                                          "tensor<2x2x8x8xf32>\n"
                                          "%7 = concatenate(%6, %6) {dimension = 1} : ", kNchw, "\n%8 = reverse(%7) {dimensions = [1, 3]} : ", kNchw,
                                          "\n%9 = broadcast_in_dim(%3) {shape = [2, 4, 8, 8], broadcast_dimensions = [1]} : ", kNchw, "\n%10 = multiply(%8, %9) : ", kNchw,
                                          "\n%11 = ", Convolved("%10", kFirst, kFirst, kNchw)), "%11")),
            Wrap(absl::StrCat(kParameters, ", %2: tensor<f32>, %3: tensor<4xf32>"), kNchw,
                 absl::StrCat("%4 = ", Convolved("%0", kFirst, kLast, kNhwc),
                              "%5 = slice(%4) {start_indices = [0, 2, 3, 1], limit_indices = [2, 8, 8, 3], strides = [1, 1, 2, 1]} : tensor<2x6x3x2xf32>\n"
                              "%6 = pad(%5, %2) {edge_padding_low = [0, 1, 2, 0], edge_padding_high = [0, 1, 3, 0], interior_padding = [0, 0, 0, 0]} : "
                              "tensor<2x8x8x2xf32>\n"
                              "%7 = concatenate(%6, %6) {dimension = 3} : ", kNhwc, "\n%8 = reverse(%7) {dimensions = [3, 2]} : ", kNhwc,
                              "\n%9 = broadcast_in_dim(%3) {shape = [2, 8, 8, 4], broadcast_dimensions = [3]} : ", kNhwc, "\n%10 = multiply(%8, %9) : ", kNhwc,
                              "\n%11 = ", Convolved("%10", kLast, kFirst, kNchw)), "%11"));
}

TEST(MoveChannels, LeavesAloneWhatWouldHaveToMoveBack) {
  ExpectSame(kParameters, kNchw, absl::StrCat("%2 = ", Convolved("%0", kFirst, kFirst, kNchw), "%3 = tanh(%2) : ", kNchw, "\n"), "%3");
  // One of two users of the sum is no convolution, and the sum has two operands that would be copied.
  ExpectSame(absl::StrCat(kParameters, ", %2: ", kNchw), absl::StrCat(kNchw, ", ", kNchw),
             absl::StrCat("%3 = add(%0, %2) : ", kNchw, "\n%4 = ", Convolved("%3", kFirst, kFirst, kNchw)), "%3, %4");
}

TEST(MoveChannels, LeavesAloneWhatNobodyAsksFor) {
  ExpectSame(kParameters, kNchw, absl::StrCat("%2 = tanh(%0) : ", kNchw, "\n"), "%2");
  ExpectSame("%0: tensor<2x8x8x4xf32>, %1: tensor<4x4x3x3xf32>", kNhwc,
             absl::StrCat("%2 = ", Convolved("%0", kLast, kLast, kNhwc), "%3 = tanh(%2) : ", kNhwc, "\n%4 = ", Convolved("%3", kLast, kLast, kNhwc)), "%4");
}

}  // namespace
}  // namespace weft::passes
