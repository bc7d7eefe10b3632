#include "src/backends/cpu/kernels/gemm_ahead.h"

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

TEST(RowsAhead, AreAskedForByTheTilesThatRunBeforeTheyArePacked) {
  for (int64_t calls : {1, 16, 80, 1000}) {
    for (int64_t steps : {1, 7, 110, 384, 440}) {
      for (int64_t rows : {1, 16, 240, 880}) {
        for (int64_t lines : {1, 3, 28}) {
          const RowsAhead ahead{1 << 20, rows, 12'288, lines};
          MicroArgs args;
          args.k = steps;
          if (!ahead.CutSteps(calls, &args)) {
            EXPECT_TRUE((rows + calls - 1) / calls > RowsAhead::kMostTaps / 2 || steps <= 7) << calls << " " << steps << " " << rows;
            continue;
          }
          ASSERT_EQ(args.taps * args.k, steps);
          std::vector<int64_t> asked(static_cast<size_t>(rows * lines));
          for (int64_t call = 0; call < calls; ++call) {
            ahead.Ask(call, &args);
            for (int64_t tap = 0; tap < args.taps; ++tap) {
              for (int64_t step = 0; step < args.k; ++step) {
                const int64_t at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.ahead) - ahead.first) +
                                   tap * args.ahead_tap + step * args.ahead_step;
                const int64_t row = at / ahead.stride, line = at % ahead.stride / kLine;
                ASSERT_GE(at, 0);
                ASSERT_LE(line, lines + args.k / kLine) << "goes on behind the row";
                if (row < rows && line < lines) ++asked[row * lines + line];
              }
            }
          }
          // Steps that are fewer than lines leave some of each row out.
          const int64_t missing = std::ranges::count(asked, 0);
          EXPECT_LE(missing, args.k < lines ? rows * (lines - args.k) : 0)
              << calls << " calls of " << args.taps << " x " << args.k << " steps, " << rows << " rows of " << lines;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
