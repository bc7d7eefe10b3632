#include "src/backends/cpu/kernels/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/backends/cpu/kernels/attention/attention_internal.h"
#include "src/backends/cpu/kernels/attention/attention_rows.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kQueryBlock = 64, kLeastQueryBlock = 16;
constexpr int64_t kKeyBlock = 512;
// Where blocks past the diagonal are left out, narrower ones leave out more: an eighth of the keys.
constexpr int64_t kLeastCausalBlock = 128, kMostCausalBlock = 256;
// Below this many operations the join of two threads is not repaid.
constexpr double kInlineWork = 200'000;

class Driver {
 public:
  Driver(KernelSet& kernels, const AttentionCall& call)
      : kernels_(&kernels), target_(kernels.target()), call_(call), rows_(AttentionKernelsOf(target_.isa)) {
    Cut();
  }
  Driver(const CpuTarget& target, const AttentionCall& call)
      : target_(target), call_(call), rows_(AttentionKernelsOf(target_.isa)) {
    Cut();
  }

  int64_t SpaceBytes() const {
    if (parts_ > 1) return members_ * parts_ * PartBytes();
    return KeyMembers(call_) * key_blocks_ * (packed_k_ + packed_v_);
  }

  absl::Status Prepare(ScratchNeeds& needs) const {
    ScratchNeeds products;
    for (const int64_t rows : {call_.queries / query_blocks_, CeilDiv(call_.queries, query_blocks_)}) {
      absl::Status status;
      ForEachLength([&](int64_t keys) {
        status.Update(kernels_->PrepareGemm(Scores(rows, keys), 1, products));
        for (const bool accumulate : {false, true}) {
          status.Update(kernels_->PrepareGemm(Values(rows, keys, accumulate), 1, products));
        }
        if (both_at_once_) status.Update(kernels_->PrepareGemm(Values(2 * rows, keys, false), 1, products));
      });
      WEFT_RETURN_IF_ERROR(status);
    }
    AddEach(products, needs);
    needs.Each(ScratchSlot::kLoop, ScratchBytes());
    return absl::OkStatus();
  }

  absl::Status Run(ThreadPool& pool) {
    const double work = 2.0 * static_cast<double>(members_ * call_.queries * call_.keys) *
                        static_cast<double>(call_.width + call_.value_width + 16);
    const auto deal = [&](int64_t count, auto f) {
      if (work < kInlineWork) {
        for (int64_t i = 0; i < count; ++i) f(i);
      } else {
        pool.ParallelFor(count, [&](int64_t i) {
          if (!LaunchEnds()) f(i);
        });
      }
    };
    if (packed_k_ + packed_v_ > 0) {
      deal(KeyMembers(call_) * key_blocks_, [&](int64_t i) { PackKeys(i / key_blocks_, i % key_blocks_); });
    }
    deal(members_ * query_blocks_ * parts_, [&](int64_t i) {
      const int64_t part = i % parts_, task = i / parts_;
      // Where queries see the more keys the later they come, neighbours are a light and a heavy block.
      const int64_t at = task % query_blocks_;
      const int64_t block = at % 2 == 0 ? at / 2 : query_blocks_ - 1 - at / 2;
      Note(RunBlock(task / query_blocks_, block, part));
    });
    if (parts_ > 1) deal(members_, [&](int64_t member) { Note(Join(member)); });
    MutexLock lock(mutex_);
    return failure_;
  }

 private:
  void Cut() {
    members_ = Members(call_);
    element_ = BytesOf(call_.dtype);
    few_ = call_.queries <= kFewQueries;
    both_at_once_ = call_.dtype == DType::kBF16 && 2 * call_.queries <= kFewQueries;
    int64_t height = kQueryBlock;
    if (members_ * CeilDiv(call_.queries, height) < kManyTasks) {
      height = std::clamp(RoundUp(CeilDiv(call_.queries * members_, kManyTasks), 8), kLeastQueryBlock, kQueryBlock);
    }
    query_blocks_ = CeilDiv(call_.queries, height);
    key_steps_ = CeilDiv(call_.keys, kAttentionLanes);
    const bool leaves_out = call_.causal && !few_;
    key_blocks_ =
        CeilDiv(call_.keys, leaves_out ? std::clamp(call_.keys / 8, kLeastCausalBlock, kMostCausalBlock) : kKeyBlock);
    parts_ = few_ && members_ < kManyTasks ? key_blocks_ : 1;
    value_stride_ = RoundUp(call_.value_width, kAttentionLanes);
    score_stride_ = CeilDiv(key_steps_, key_blocks_) * kAttentionLanes + kRowGap;
    if (few_) return;
    bool packs_k = true, packs_v = true;
    ForEachLength([&](int64_t keys) {
      const int64_t k = PackedBytesOfB(target_, Scores(MostRows(), keys));
      const int64_t v = PackedBytesOfB(target_, Values(MostRows(), keys, true));
      packs_k = packs_k && k > 0;
      packs_v = packs_v && v > 0;
      packed_k_ = std::max(packed_k_, RoundUp(k, kAlign));
      packed_v_ = std::max(packed_v_, RoundUp(v, kAlign));
    });
    // All blocks or none; a product packs for itself what it must.
    if (!packs_k) packed_k_ = 0;
    if (!packs_v) packed_v_ = 0;
  }

  // Calls f(keys) for the lengths of blocks of keys: two that differ by one step, and the last, which may be ragged.
  template <typename F>
  void ForEachLength(F f) const {
    const int64_t less = key_steps_ / key_blocks_ * kAttentionLanes, last = Keys(key_blocks_ - 1).size();
    if (key_blocks_ > 1) f(less);
    if (key_blocks_ > 1 && key_steps_ % key_blocks_ != 0) f(less + kAttentionLanes);
    f(last);
  }

  Range Keys(int64_t block) const {
    return {CutAt(key_steps_, key_blocks_, block) * kAttentionLanes,
            std::min(call_.keys, CutAt(key_steps_, key_blocks_, block + 1) * kAttentionLanes)};
  }
  Range Queries(int64_t block) const {
    return {CutAt(call_.queries, query_blocks_, block), CutAt(call_.queries, query_blocks_, block + 1)};
  }

  GemmCall Scores(int64_t rows, int64_t keys) const {
    GemmCall call;
    call.input = call_.dtype;
    call.output = DType::kF32;
    call.m = rows;
    call.n = keys;
    call.k = call_.width;
    call.a.row_stride = call_.q.row_stride;
    call.b.row_stride = 1;
    call.b.col_stride = call_.k.row_stride;
    call.c_row_stride = score_stride_;
    return call;
  }
  GemmCall Values(int64_t rows, int64_t keys, bool accumulate) const {
    GemmCall call;
    call.input = call_.dtype;
    call.output = DType::kF32;
    call.m = rows;
    call.n = call_.value_width;
    call.k = keys;
    call.a.row_stride = score_stride_;
    call.b.row_stride = call_.v.row_stride;
    call.c_row_stride = value_stride_;
    call.accumulate = accumulate;
    return call;
  }
  char* PackedK(int64_t key_member, int64_t block) const {
    return static_cast<char*>(call_.space) + (key_member * key_blocks_ + block) * (packed_k_ + packed_v_);
  }
  char* PackedV(int64_t key_member, int64_t block) const { return PackedK(key_member, block) + packed_k_; }

  void PackKeys(int64_t key_member, int64_t block) {
    const AttentionOffsets at = OffsetsOf(call_, call_.out, key_member * call_.group);
    const Range keys = Keys(block);
    const int64_t rows = CeilDiv(call_.queries, query_blocks_);
    GemmCall scores = Scores(rows, keys.size()), values = Values(rows, keys.size(), true);
    scores.b.data = At(call_.k.data, (at.k + keys.begin * call_.k.row_stride) * element_);
    values.b.data = At(call_.v.data, (at.v + keys.begin * call_.v.row_stride) * element_);
    if (packed_k_ > 0) Note(kernels_->PackB(scores, PackedK(key_member, block), alone_));
    if (packed_v_ > 0) Note(kernels_->PackB(values, PackedV(key_member, block), alone_));
  }

  // Scratch of a task.
  struct Space {
    float *scores = nullptr, *values = nullptr, *most = nullptr, *sums = nullptr, *both = nullptr;
    uint16_t *narrow = nullptr, *rest = nullptr;
  };
  int64_t MostRows() const { return CeilDiv(call_.queries, query_blocks_); }
  int64_t ScratchBytes() const {
    const int64_t rows = MostRows();
    return rows * (score_stride_ * (call_.dtype == DType::kBF16 ? 8 : 4) +
                   (value_stride_ * (both_at_once_ ? 3 : 1) + kAttentionLanes) * 4) +
           RoundUp(rows * 4, kAlign);
  }
  absl::Status Get(Space* space) const {
    char* at = static_cast<char*>(ThreadScratch(ScratchSlot::kLoop, ScratchBytes()));
    if (at == nullptr) return OutOfScratch("scores of attention", ScratchBytes());
    const int64_t rows = MostRows();
    const auto take = [&](int64_t count) {
      float* const taken = reinterpret_cast<float*>(at);
      at += count * 4;
      return taken;
    };
    space->sums = take(rows * kAttentionLanes);
    space->values = take(rows * value_stride_);
    if (both_at_once_) space->both = take(2 * rows * value_stride_);
    space->most = take(RoundUp(rows * 4, kAlign) / 4);
    space->scores = take(rows * score_stride_);
    if (call_.dtype == DType::kBF16) {
      space->narrow = reinterpret_cast<uint16_t*>(at);
      space->rest = space->narrow + rows * score_stride_;
    }
    return absl::OkStatus();
  }

  absl::Status RunBlock(int64_t member, int64_t block, int64_t part) {
    Space space;
    WEFT_RETURN_IF_ERROR(Get(&space));
    const AttentionOffsets at = OffsetsOf(call_, call_.out, member);
    const Range queries = Queries(block);
    const int64_t rows = queries.size();
    std::fill_n(space.most, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(space.sums, rows * kAttentionLanes, 0.0F);
    const int64_t first = parts_ > 1 ? part : 0, last = parts_ > 1 ? part + 1 : key_blocks_;
    // Keys before this one are seen by the last of the queries.
    const int64_t end = SeenByFirst(call_) + queries.end - 1;
    bool accumulate = false;
    for (int64_t b = first; b < last && Keys(b).begin < end && !LaunchEnds(); ++b) {
      const Range keys = Keys(b);
      GemmCall scores = Scores(rows, keys.size()), values = Values(rows, keys.size(), accumulate);
      scores.a.data = At(call_.q.data, (at.q + queries.begin * call_.q.row_stride) * element_);
      scores.c = space.scores;
      scores.b_packed = packed_k_ > 0;
      values.b_packed = packed_v_ > 0;
      scores.b.data = scores.b_packed ? PackedK(member / call_.group, b)
                                      : At(call_.k.data, (at.k + keys.begin * call_.k.row_stride) * element_);
      values.b.data = values.b_packed ? PackedV(member / call_.group, b)
                                      : At(call_.v.data, (at.v + keys.begin * call_.v.row_stride) * element_);
      WEFT_RETURN_IF_ERROR(kernels_->Gemm(scores, alone_));
      AttentionRows run;
      run.scores = space.scores;
      run.stride = score_stride_;
      run.rows = rows;
      run.columns = keys.size();
      run.seen = call_.causal ? SeenByFirst(call_) + queries.begin - keys.begin : keys.size();
      run.scale = call_.scale;
      SetMask(at, queries, keys, &run);
      run.narrow = space.narrow;
      run.rest = space.rest;
      run.most = space.most;
      run.sums = space.sums;
      if (accumulate) run.values = space.values;
      run.value_stride = value_stride_;
      rows_.exponentials(run);
      if (both_at_once_) {
        WEFT_RETURN_IF_ERROR(AddBoth(values.b, keys.size(), accumulate, space));
        accumulate = true;
        continue;
      }
      values.a.data = space.narrow != nullptr ? static_cast<const void*>(space.narrow) : space.scores;
      values.c = space.values;
      WEFT_RETURN_IF_ERROR(kernels_->Gemm(values, alone_));
      accumulate = true;
      if (space.rest == nullptr) continue;
      // Exponentials of eight digits alone would be seen in the result: bf16's attention is rounded once, at its end.
      values.a.data = space.rest;
      values.accumulate = true;
      WEFT_RETURN_IF_ERROR(kernels_->Gemm(values, alone_));
    }
    if (!accumulate) std::fill_n(space.values, rows * value_stride_, 0.0F);
    if (parts_ == 1) {
      Finish(at, queries, space.values, space.sums);
    } else {
      float* const kept = Part(member, part);
      std::memcpy(kept, space.most, static_cast<size_t>(rows) * 4);
      std::memcpy(kept + kFewQueries, space.sums, static_cast<size_t>(rows * kAttentionLanes) * 4);
      std::memcpy(kept + kFewQueries * (1 + kAttentionLanes), space.values,
                  static_cast<size_t>(rows * value_stride_) * 4);
    }
    return absl::OkStatus();
  }

  // Multiplies few queries' exponentials, and their rounding errors, by the values, which are read once: `rest` lies
  // behind `narrow`, as more rows of it.
  absl::Status AddBoth(const MatrixView& of_values, int64_t keys, bool accumulate, const Space& space) {
    const int64_t rows = call_.queries;
    GemmCall both = Values(2 * rows, keys, false);
    both.a.data = space.narrow;
    both.b = of_values;
    both.c = space.both;
    WEFT_RETURN_IF_ERROR(kernels_->Gemm(both, alone_));
    for (int64_t r = 0; r < rows; ++r) {
      float* const to = space.values + r * value_stride_;
      const float* const first = space.both + r * value_stride_;
      const float* const second = first + rows * value_stride_;
      for (int64_t i = 0; i < call_.value_width; ++i) to[i] = (accumulate ? to[i] : 0.0F) + (first[i] + second[i]);
    }
    return absl::OkStatus();
  }

  void SetMask(const AttentionOffsets& at, const Range& queries, const Range& keys, AttentionRows* run) const {
    if (!call_.has_mask) return;
    const bool bf16 = call_.dtype == DType::kBF16;
    run->mask =
        At(call_.mask.data,
           (at.mask + queries.begin * call_.mask.row_stride + keys.begin * call_.mask_column_stride) * element_);
    run->mask_stride = call_.mask.row_stride;
    run->mask_bf16 = bf16;
    run->kind = call_.mask_column_stride == 0 ? AttentionMask::kOne : bf16 ? AttentionMask::kBF16 : AttentionMask::kF32;
  }

  void Finish(const AttentionOffsets& at, const Range& queries, const float* values, const float* sums) const {
    AttentionResult run;
    run.values = values;
    run.sums = sums;
    run.value_stride = value_stride_;
    run.rows = queries.size();
    run.width = call_.value_width;
    run.out = const_cast<char*>(At(call_.out.data, (at.written + queries.begin * call_.out.row_stride) * element_));
    run.out_stride = call_.out.row_stride;
    run.bf16 = call_.dtype == DType::kBF16;
    run.nan_if_unseen = call_.nan_if_unseen;
    rows_.finish(run);
  }

  // The bytes of one part of the keys' results for few queries: maxima, sums, values.
  int64_t PartBytes() const { return kFewQueries * (1 + kAttentionLanes + value_stride_) * 4; }
  float* Part(int64_t member, int64_t part) const {
    return reinterpret_cast<float*>(static_cast<char*>(call_.space) + (member * parts_ + part) * PartBytes());
  }
  absl::Status Join(int64_t member) {
    Space space;
    WEFT_RETURN_IF_ERROR(Get(&space));
    const int64_t rows = call_.queries;
    std::fill_n(space.sums, rows * kAttentionLanes, 0.0F);
    std::fill_n(space.values, rows * value_stride_, 0.0F);
    for (int64_t r = 0; r < rows; ++r) {
      float most = -std::numeric_limits<float>::infinity();
      for (int64_t p = 0; p < parts_; ++p) most = std::max(most, Part(member, p)[r]);
      if (most == -std::numeric_limits<float>::infinity()) most = 0;
      for (int64_t p = 0; p < parts_; ++p) {
        const float* const part = Part(member, p);
        const float* const sums = part + kFewQueries + r * kAttentionLanes;
        const float* const values = part + kFewQueries * (1 + kAttentionLanes) + r * value_stride_;
        float factors[kAttentionLanes];
        std::fill_n(factors, kAttentionLanes, part[r] - most);
        rows_.exp(factors, factors, kAttentionLanes);
        for (int64_t i = 0; i < kAttentionLanes; ++i) space.sums[r * kAttentionLanes + i] += factors[0] * sums[i];
        for (int64_t i = 0; i < value_stride_; ++i) space.values[r * value_stride_ + i] += factors[0] * values[i];
      }
    }
    Finish(OffsetsOf(call_, call_.out, member), {0, rows}, space.values, space.sums);
    return absl::OkStatus();
  }

  void Note(absl::Status status) {
    if (status.ok()) return;
    MutexLock lock(mutex_);
    failure_ = std::move(status);
  }

  KernelSet* kernels_ = nullptr;
  const CpuTarget& target_;
  const AttentionCall& call_;
  const AttentionKernels& rows_;
  int64_t members_ = 1, element_ = 4;
  bool few_ = false, both_at_once_ = false;
  int64_t query_blocks_ = 1, key_steps_ = 1, key_blocks_ = 1, parts_ = 1;
  int64_t value_stride_ = 0, score_stride_ = 0;
  int64_t packed_k_ = 0, packed_v_ = 0;  // bytes of a block
  ThreadPool alone_{1};                  // of products inside a task
  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

const AttentionKernels& AttentionKernelsOf(Isa vectors) {
  switch (vectors) {
    case Isa::kAvx512: return kAttentionAvx512;
    case Isa::kAvx2: return kAttentionAvx2;
    default: return kAttentionPortable;
  }
}

int64_t AttentionSpace(const CpuTarget& target, const AttentionCall& call) { return Driver(target, call).SpaceBytes(); }

absl::Status RunAttention(KernelSet& kernels, const AttentionCall& call, ThreadPool& pool) {
  return Driver(kernels, call).Run(pool);
}

absl::Status PrepareAttention(KernelSet& kernels, const AttentionCall& call, ScratchNeeds& needs) {
  return Driver(kernels, call).Prepare(needs);
}

}  // namespace weft::cpu
