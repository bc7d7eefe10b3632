// Scaled dot-product attention, softmax(q k^T scale + mask) v, in blocks that stay in cache: the scores of 64 queries and a
// few hundred keys at a time, with the running maximum and sum of each query (Milakov and Gimelshein 2018; Dao et al. 2022).
// The products are KernelSet::Gemm's.
#pragma once

#include <array>
#include <cstdint>

#include "src/backends/cpu/kernels/kernels.h"

namespace weft::cpu {

// So few queries read k and v once, from memory: nothing is packed, and the work is partitioned by keys where heads are
// few.
inline constexpr int64_t kFewQueries = 8;

// One of a batch of matrices whose rows are contiguous. Strides count elements.
struct AttentionMatrix {
  const void* data = nullptr;
  int64_t offset = 0;  // of the first element in what is read
  int64_t row_stride = 0;
  std::array<int64_t, kMaxBatchDims> batch_strides = {};
};

// f32 or bf16 for all; sums are f32. No size is 0. Bits depend on the sizes and the target, never on the number of threads.
struct AttentionCall {
  DType dtype = DType::kF32;
  int64_t queries = 0, keys = 0, width = 0, value_width = 0;
  int batch_rank = 0;
  std::array<int64_t, kMaxBatchDims> batch_sizes = {};
  // The number of neighbours along the last batch dimension that share one of k and v, of which there are that many
  // times fewer.
  int64_t group = 1;
  AttentionMatrix q, k, v, mask;   // mask: added to the scores; strides of 0 repeat it
  int64_t mask_column_stride = 1;  // or 0
  bool has_mask = false;
  bool causal = false;
  int64_t lead = 0;            // where causal: query i sees keys before i + 1 + lead
  bool nan_if_unseen = false;  // what a query gives that sees no key; otherwise, and in the gradient, 0
  float scale = 1;
  AttentionMatrix out;
  void* space = nullptr;  // AttentionSpace bytes
};

// Bytes for AttentionCall::space: k and v in the order that tiles read them, or partial results.
int64_t AttentionSpace(const CpuTarget& target, const AttentionCall& call);
absl::Status RunAttention(KernelSet& kernels, const AttentionCall& call, ThreadPool& pool);
// Prepares a run; see KernelSet::PrepareGemm.
absl::Status PrepareAttention(KernelSet& kernels, const AttentionCall& call, ScratchNeeds& needs);

// The cotangents of q, k and v by that of the result, in f32, dense as their operands are: the scores of some queries and all
// the keys that these see, at a time. call.out is not there.
struct AttentionGradientCall {
  AttentionCall call;
  AttentionMatrix g;  // of the type of q
  float *dq = nullptr, *dk = nullptr, *dv = nullptr;
};
int64_t AttentionGradientSpace(const AttentionGradientCall& call);
absl::Status RunAttentionGradient(KernelSet& kernels, const AttentionGradientCall& call, ThreadPool& pool);
absl::Status PrepareAttentionGradient(KernelSet& kernels, const AttentionGradientCall& call, ScratchNeeds& needs);

}  // namespace weft::cpu
