// Scaled dot-product attention on the launch list.
#include <bit>

#include "src/backends/cpu/kernels/attention.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// Calls f for every integer of the call, in the order of EncodeAttention.
template <typename Call, typename F>
void ForEachField(Call& c, F f) {
  f(c.dtype);
  f(c.queries);
  f(c.keys);
  f(c.width);
  f(c.value_width);
  f(c.batch_rank);
  for (auto& v : c.batch_sizes) f(v);
  for (auto* matrix : {&c.q, &c.k, &c.v, &c.mask, &c.out}) {
    f(matrix->row_stride);
    for (auto& v : matrix->batch_strides) f(v);
  }
  f(c.mask_column_stride);
  f(c.has_mask);
  f(c.causal);
}

absl::StatusOr<AttentionCall> Decode(std::span<const int64_t> params) {
  AttentionCall call;
  size_t at = 0;
  ForEachField(call, [&]<typename T>(T& field) {
    if (at < params.size()) field = static_cast<T>(params[at]);
    ++at;
  });
  if (params.size() != at + 1) return absl::DataLossError("attention of other parameters");
  call.scale = static_cast<float>(std::bit_cast<double>(params[at]));
  return call;
}

// Buffers: q, k, v, a mask if there is one, then the result and space.
absl::Status Run(const HostCall& call) {
  WEFT_ASSIGN_OR_RETURN(AttentionCall c, Decode(call.params));
  size_t next = 0;
  c.q.data = call.buffers[next++];
  c.k.data = call.buffers[next++];
  c.v.data = call.buffers[next++];
  if (c.has_mask) c.mask.data = call.buffers[next++];
  c.out.data = call.buffers[next++];
  c.space = call.buffers[next++];
  return RunAttention(call.kernels, c, call.pool);
}
absl::Status Prepare(const HostPreparation& call) {
  WEFT_ASSIGN_OR_RETURN(const AttentionCall c, Decode(call.params));
  return PrepareAttention(call.kernels, c, call.needs);
}

constexpr HostKernel kKernels[] = {{"attention", Run, Prepare}};

}  // namespace

std::vector<int64_t> EncodeAttention(const AttentionCall& c) {
  std::vector<int64_t> out;
  ForEachField(c, [&](const auto& field) { out.push_back(static_cast<int64_t>(field)); });
  out.push_back(std::bit_cast<int64_t>(static_cast<double>(c.scale)));
  return out;
}

std::span<const HostKernel> AttentionKernelList() { return kKernels; }

}  // namespace weft::cpu
