// The ends of a gathering convolution's results, where tiles do not do it: zeros where nothing is added, narrowing, the epilogue.
#pragma once

#include "src/backends/cpu/kernels/conv/gather_pixels.h"

namespace weft::cpu {

// The results in the columns of some panels.
class GatherResults {
 public:
  GatherResults(const GatherOperands& operands, Range panels)
      : operands_(operands), plan_(operands.plan), call_(plan_.call), channels_(operands.Channels(panels)) {}

  // Rows of a phase whose sums are done: zeroed or narrowed where that is due, then the epilogue, unless tiles did it. `wide`:
  // their sums in f32, or null.
  void Finish(const Phase& phase, Range rows, const char* wide) const;
  // The epilogue of output pixels that lie in order.
  void Follow(int64_t row, int64_t rows) const {
    call_.epilogue.run(call_.epilogue.context, 0, row, rows, channels_.begin, channels_.size());
  }
  // The same of one, by where it lies.
  void FollowAt(const void* c) const {
    const int64_t bytes = call_.ToChannels() * plan_.ResultBytes();
    Follow((static_cast<const char*>(c) - static_cast<const char*>(call_.to)) / bytes, 1);
  }

 private:
  // Output pixels that no tap reaches (a gradient of skipped input).
  void Zero(const Phase& phase, Range rows) const;
  void NarrowRows(const Phase& phase, Range rows, const char* wide) const;

  const GatherOperands& operands_;
  const GatherPlan& plan_;
  const GatherCall& call_;
  const Range channels_;
};

}  // namespace weft::cpu
