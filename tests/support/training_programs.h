// Whole training steps as programs: forward, loss, gradients and optimizer update in one function, as the engine records
// them. The learning rate lies in the argument block.
#pragma once

#include "tests/support/op_programs.h"

namespace weft::test {

// 784-512-256-10, relu, cross entropy, plain SGD. Results: loss, then the new parameters.
absl::StatusOr<OpProgram> MlpStep(int64_t batch);
// 3x3 valid convolutions 1-32-64 on 28x28, max-pool 2, 9216-128-10, momentum. Results: loss, parameters, velocities.
absl::StatusOr<OpProgram> CnnStep(int64_t batch);

}  // namespace weft::test
