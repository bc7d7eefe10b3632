#include "src/backends/cpu/kernels/micro.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace weft::cpu {
namespace {

TEST(AskAhead, SharesAPanelAmongTheTilesThatReadTheOneBefore) {
  constexpr int64_t kLine = 64;
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

}  // namespace
}  // namespace weft::cpu
