// Factors of matrices on the launch list: LAPACK on the buffers where they lie, small batches dealt to the pool.
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/linalg/factors.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// Buffers: planes of operands, planes of results.
absl::Status RunFactors(const HostCall& call) {
  const std::span<const int64_t> p = call.params;
  if (p.size() != 8 || p[7] < 0 || p[7] > static_cast<int64_t>(call.buffers.size())) {
    return absl::DataLossError("factors of matrices with other parameters");
  }
  const linalg::Job job{.kind = static_cast<linalg::Kind>(p[0]),
                        .mode = p[1],
                        .wide = p[2] != 0,
                        .complex = p[3] != 0,
                        .batch = p[4],
                        .rows = p[5],
                        .columns = p[6]};
  std::vector<const void*> operands(call.buffers.begin(), call.buffers.begin() + p[7]);
  return linalg::Run(job, operands, call.buffers.subspan(static_cast<size_t>(p[7])), &call.pool);
}

constexpr HostKernel kKernels[] = {{"matrix_factors", RunFactors}};

}  // namespace

std::span<const HostKernel> FactorsHostKernels() { return kKernels; }

}  // namespace weft::cpu
