// Every operation's samples as small programs: the call and, where floats flow, its gradient. For tests that run all
// operations through something (the passes, a backend, another implementation).
#pragma once

#include <string>
#include <vector>

#include "src/ir/function.h"
#include "src/ir/op_def.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/status.h"

namespace weft::test {

struct OpProgram {
  std::string name;   // "softmax #1 f32"
  std::string group;  // "softmax"
  bool random = false;
  ir::Module module;                // as recorded, composites whole
  std::vector<HostTensor> inputs;   // parameters' values: the operands, then one cotangent per float result
  size_t forward_results = 0;       // the results after these are gradients, one per float operand
  ir::Tolerance tolerance;          // the largest of the operations in it
};

// Each sample in f32 where the operation takes it, else in the sample's first type; with `all_types` the first two
// samples in every other type too.
absl::StatusOr<std::vector<OpProgram>> OpPrograms(bool all_types = false);
// The same for one operation and one type for T; without gradients the forward results alone.
absl::StatusOr<OpProgram> MakeOpProgram(const ir::OpDef& op, const ir::Sample& sample, DType dtype, std::string name,
                                        bool gradients = true);

}  // namespace weft::test
