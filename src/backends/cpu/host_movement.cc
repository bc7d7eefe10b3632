// Copies and data movement on the launch list, and the slow general forms of what has no generated code.
#include <algorithm>
#include <cstring>

#include "src/backends/cpu/host_kernels.h"

namespace weft::cpu {
namespace {

// params: bytes. Buffers: from, to.
absl::Status RunCopy(const HostCall& call) {
  const int64_t bytes = call.params[0];
  constexpr int64_t kPiece = 256 << 10;
  const char* from = static_cast<const char*>(call.buffers[0]);
  char* to = static_cast<char*>(call.buffers[1]);
  call.pool.ParallelFor((bytes + kPiece - 1) / kPiece, [&](int64_t i) {
    std::memcpy(to + i * kPiece, from + i * kPiece, std::min(kPiece, bytes - i * kPiece));
  });
  return absl::OkStatus();
}

constexpr HostKernel kKernels[] = {
    {"copy", RunCopy},
};

}  // namespace

std::span<const HostKernel> MovementKernels() { return kKernels; }

}  // namespace weft::cpu
