// Scaled dot-product attention on the launch list.
#include <bit>

#include "src/backends/cpu/kernels/attention/attention.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

template <typename Matrix, typename F>
void ForEachMatrixField(Matrix& matrix, F f) {
  f(matrix.offset);
  f(matrix.row_stride);
  for (auto& v : matrix.batch_strides) f(v);
}

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
  f(c.group);
  for (auto* matrix : {&c.q, &c.k, &c.v, &c.mask, &c.out}) ForEachMatrixField(*matrix, f);
  f(c.mask_column_stride);
  f(c.has_mask);
  f(c.causal);
  f(c.lead);
  f(c.nan_if_unseen);
}

// The fields of its gradient: the forward's, then the strides of the cotangent.
template <typename Call, typename F>
void ForEachGradientField(Call& c, F f) {
  ForEachField(c.call, f);
  ForEachMatrixField(c.g, f);
}

absl::StatusOr<AttentionGradientCall> DecodeGradient(std::span<const int64_t> params) {
  AttentionGradientCall call;
  size_t at = 0;
  ForEachGradientField(call, [&]<typename T>(T& field) {
    if (at < params.size()) field = static_cast<T>(params[at]);
    ++at;
  });
  if (params.size() != at + 1) return absl::DataLossError("attention of other parameters");
  call.call.scale = static_cast<float>(std::bit_cast<double>(params[at]));
  return call;
}
absl::StatusOr<AttentionCall> Decode(std::span<const int64_t> params) {
  WEFT_ASSIGN_OR_RETURN(const AttentionGradientCall call, DecodeGradient(params));
  return call.call;
}

void Read(const HostCall& call, size_t buffer, DType dtype, AttentionMatrix* matrix) {
  matrix->data = static_cast<const char*>(call.buffers[buffer]) + matrix->offset * BytesOf(dtype);
}

// Buffers: q, k, v, a mask if there is one, then the result and space.
absl::Status Run(const HostCall& call) {
  WEFT_ASSIGN_OR_RETURN(AttentionCall c, Decode(call.params));
  size_t next = 0;
  for (AttentionMatrix* x : {&c.q, &c.k, &c.v}) Read(call, next++, c.dtype, x);
  if (c.has_mask) c.mask.data = call.buffers[next++];
  c.out.data = call.buffers[next++];
  c.space = call.buffers[next++];
  return RunAttention(call.kernels, c, call.pool);
}
absl::Status Prepare(const HostPreparation& call) {
  WEFT_ASSIGN_OR_RETURN(const AttentionCall c, Decode(call.params));
  return PrepareAttention(call.kernels, c, call.needs);
}

// Buffers: q, k, v, the cotangent, a mask if there is one, then the three results and space.
absl::Status RunGradient(const HostCall& call) {
  WEFT_ASSIGN_OR_RETURN(AttentionGradientCall c, DecodeGradient(call.params));
  size_t next = 0;
  for (AttentionMatrix* x : {&c.call.q, &c.call.k, &c.call.v, &c.g}) Read(call, next++, c.call.dtype, x);
  if (c.call.has_mask) c.call.mask.data = call.buffers[next++];
  for (float** result : {&c.dq, &c.dk, &c.dv}) *result = static_cast<float*>(call.buffers[next++]);
  c.call.space = call.buffers[next++];
  return RunAttentionGradient(call.kernels, c, call.pool);
}
absl::Status PrepareGradient(const HostPreparation& call) {
  WEFT_ASSIGN_OR_RETURN(const AttentionGradientCall c, DecodeGradient(call.params));
  return PrepareAttentionGradient(call.kernels, c, call.needs);
}

constexpr HostKernel kKernels[] = {{"attention", Run, Prepare}, {"attention_gradient", RunGradient, PrepareGradient}};

}  // namespace

std::vector<int64_t> EncodeAttention(const AttentionGradientCall& c) {
  std::vector<int64_t> out;
  ForEachGradientField(c, [&](const auto& field) { out.push_back(static_cast<int64_t>(field)); });
  out.push_back(std::bit_cast<int64_t>(static_cast<double>(c.call.scale)));
  return out;
}

std::span<const HostKernel> AttentionHostKernels() { return kKernels; }

}  // namespace weft::cpu
