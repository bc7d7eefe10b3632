#include "src/backends/cpu/kernels/product/gemm_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace weft::cpu {
namespace {

TEST(AskAhead, SharesAPanelAmongTheTilesThatReadTheOneBefore) {
  for (int64_t tiles : {1, 2, 7, 21, 1000}) {
    for (int64_t steps : {1, 16, 384, 2304}) {
      for (int64_t taps : {1, 9}) {
        for (int64_t bytes : {int64_t{64}, int64_t{98'304}, int64_t{589'824}}) {
          std::vector<char> panel(static_cast<size_t>(bytes));
          const char* asked = panel.data();  // all before this
          for (int64_t tile = 0; tile < tiles; ++tile) {
            MicroArgs args;
            args.taps = taps;
            args.k = steps;
            AskAhead(panel.data(), bytes, tile, tiles, &args);
            const char* first = static_cast<const char*>(args.ahead);
            ASSERT_LE(first, asked) << tile << " of " << tiles << " tiles leaves out what is before it";
            if (args.ahead_step <= kLine) asked = std::max(asked, first + taps * steps * args.ahead_step);
            // Steps that are fewer than lines leave some out, and never ask for one twice.
            if (args.ahead_step > kLine) asked = std::max(asked, first + bytes / tiles + 1);
            ASSERT_LE(first + (taps * steps - 1) * args.ahead_step, panel.data() + bytes + taps * steps)
                << tile << " of " << tiles << " tiles goes on behind the panel";
          }
          EXPECT_GE(asked, panel.data() + bytes) << tiles << " tiles of " << taps << " x " << steps << " steps";
        }
      }
    }
  }
}

TEST(NextReads, AreAskedForLineByLineByTheTilesThatRunBefore) {
  constexpr int64_t kStride = 12'288;
  for (int64_t steps : {1, 7, 110, 384}) {
    for (int64_t rows : {1, 16, 240, 880}) {
      for (int64_t bytes : {4, 192, 1000}) {
        const uintptr_t at = (1 << 20) + 20;
        NextReads reads;
        reads.Add(reinterpret_cast<const char*>(at), rows, kStride, bytes);
        MicroArgs args;
        args.k = steps;
        const int64_t lines = (20 + bytes + kLine - 1) / kLine;
        std::vector<int> asked(static_cast<size_t>(rows * lines));
        int64_t calls = 0;
        for (reads.Ask(&args); args.ahead != nullptr; reads.Ask(&args), ++calls) {
          ASSERT_EQ(args.ahead_step, kStride);
          const auto first = static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.ahead) - (1 << 20));
          ASSERT_LT(first % kStride / kLine, lines) << "beside the row";
          for (int64_t row = first / kStride; row < std::min(rows, first / kStride + steps); ++row) {
            ++asked[static_cast<size_t>(row * lines + first % kStride / kLine)];
          }
        }
        EXPECT_EQ(std::ranges::count(asked, 0), 0) << steps << " steps, " << rows << " rows of " << bytes << " bytes";
        EXPECT_EQ(calls, lines * ((rows + steps - 1) / steps));
        EXPECT_EQ(args.ahead_step, 0);
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
