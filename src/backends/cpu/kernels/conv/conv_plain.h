// Convolutions by plain loops: integers, batch groups, odd pairs of types, which register tiles do not serve.
#pragma once

#include "absl/status/status.h"
#include "src/backends/cpu/kernels/kernels.h"

namespace weft::cpu {

absl::Status PlainConv(const ConvCall& call, ThreadPool& pool);
absl::Status PlainConvBackwardData(const ConvCall& call, ThreadPool& pool);
absl::Status PlainConvBackwardWeights(const ConvCall& call, ThreadPool& pool);

}  // namespace weft::cpu
