// What a program must give, and how exactly: the reference's results on the graph as recorded, with bounds found by
// running it again and again with every rounding made worse.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/ir/function.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/status.h"

namespace weft::test {

// Each further run multiplies whatever an operation rounds by random factors as large as the operation's tolerance, and
// sums and products see their operands disturbed as well. A result may differ by a few times what the runs do among
// themselves: where the numbers are well conditioned that is the tolerance, where they are not (a cancellation, a
// comparison of equals, an overflow) it is what such an error does to them. Exact operations on exact values stay exact.
class Expectation {
 public:
  static absl::StatusOr<Expectation> Of(Ref<const ir::Function> function, std::vector<HostTensor> arguments);

  const std::vector<HostTensor>& values() const { return want_; }
  // "" or the first difference. Before it says that there is one it makes many more runs.
  absl::StatusOr<std::string> Differences(std::span<const HostTensor> got);

 private:
  struct Bound {
    std::vector<double> spread;  // of floats; how far the runs went from want
    std::vector<uint8_t> loose;  // runs disagreed about NaN, infinity or an integer
  };
  absl::Status Disturb(int runs);
  std::string Check(std::span<const HostTensor> got) const;

  Ref<const ir::Function> function_;  // composites without a reference of their own expanded
  std::vector<HostTensor> arguments_;
  std::vector<HostTensor> want_;
  std::vector<Bound> bounds_;
  int runs_ = 0;
};

}  // namespace weft::test
