#include "src/backends/cpu/kernels/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "src/backends/cpu/kernels/attention/attention_internal.h"
#include "src/backends/cpu/kernels/attention/attention_rows.h"
#include "src/backends/cpu/kernels/attention/attention_tiles.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kQueryBlock = 64, kLeastQueryBlock = 16;
constexpr int64_t kKeyBlock = 512;
// Where blocks past the diagonal are left out, narrower ones leave out more: an eighth of the keys.
constexpr int64_t kLeastCausalBlock = 128, kMostCausalBlock = 256;
// Below this many operations the join of two threads is not repaid.
constexpr double kInlineWork = 200'000;

// How one attention is cut, by its sizes alone: queries and keys into blocks, few queries' keys into parts that are joined.
struct AttentionCut {
  AttentionCut(const CpuTarget& target, const AttentionCall& call);

  int64_t SpaceBytes() const {
    if (parts > 1) return members * parts * PartBytes();
    return KeyMembers(call) * key_blocks * (packed_k + packed_v);
  }
  int64_t MostRows() const { return CeilDiv(query_steps, query_blocks) * query_step; }
  // Bytes of a task's scratch.
  int64_t ScratchBytes() const {
    const int64_t rows = MostRows();
    return rows * (score_stride * (call.dtype == DType::kBF16 && !tiles ? 8 : 4) +
                   (value_stride * (both_at_once ? 3 : 1) + kAttentionLanes) * 4) +
           RoundUp(rows * 4, kAlign) + (tiles ? PackedQueriesBytes(rows, call.width) : 0);
  }

  // Calls f(keys) for the lengths of blocks of keys: two that differ by one step, and the last, which may be ragged.
  template <typename F>
  void ForEachLength(F f) const {
    const int64_t less = key_steps / key_blocks * key_step, last = Keys(key_blocks - 1).size();
    if (key_blocks > 1) f(less);
    if (key_blocks > 1 && key_steps % key_blocks != 0) f(less + key_step);
    f(last);
  }

  Range Keys(int64_t block) const {
    return {CutAt(key_steps, key_blocks, block) * key_step,
            std::min(call.keys, CutAt(key_steps, key_blocks, block + 1) * key_step)};
  }
  Range Queries(int64_t block) const {
    return {CutAt(query_steps, query_blocks, block) * query_step,
            std::min(call.queries, CutAt(query_steps, query_blocks, block + 1) * query_step)};
  }

  // The products of so many queries and keys.
  GemmCall Scores(int64_t rows, int64_t keys) const {
    GemmCall product;
    product.input = call.dtype;
    product.output = DType::kF32;
    product.m = rows;
    product.n = keys;
    product.k = call.width;
    product.a.row_stride = call.q.row_stride;
    product.b.row_stride = 1;
    product.b.col_stride = call.k.row_stride;
    product.c_row_stride = score_stride;
    return product;
  }
  GemmCall Values(int64_t rows, int64_t keys, bool accumulate) const {
    GemmCall product;
    product.input = call.dtype;
    product.output = DType::kF32;
    product.m = rows;
    product.n = call.value_width;
    product.k = keys;
    product.a.row_stride = score_stride;
    product.b.row_stride = call.v.row_stride;
    product.c_row_stride = value_stride;
    product.accumulate = accumulate;
    return product;
  }
  char* PackedK(int64_t key_member, int64_t block) const {
    return static_cast<char*>(call.space) + (key_member * key_blocks + block) * (packed_k + packed_v);
  }
  char* PackedV(int64_t key_member, int64_t block) const { return PackedK(key_member, block) + packed_k; }

  // The bytes of one part of the keys' results for few queries: maxima, sums, values.
  int64_t PartBytes() const { return kFewQueries * (1 + kAttentionLanes + value_stride) * 4; }
  float* Part(int64_t member, int64_t part) const {
    return reinterpret_cast<float*>(static_cast<char*>(call.space) + (member * parts + part) * PartBytes());
  }

  const AttentionCall& call;
  int64_t members = 1, element = 4;
  bool both_at_once = false;
  bool tiles = false;  // AMX's multiply (attention_tiles.h)
  int64_t query_step = 1, query_steps = 1, query_blocks = 1;
  int64_t key_step = kAttentionLanes, key_steps = 1, key_blocks = 1, parts = 1;
  int64_t value_stride = 0, score_stride = 0;
  int64_t packed_k = 0, packed_v = 0;  // bytes of a block

 private:
  void FindPacked(const CpuTarget& target);
};

AttentionCut::AttentionCut(const CpuTarget& target, const AttentionCall& call) : call(call) {
  members = Members(call);
  element = BytesOf(call.dtype);
  const bool few = call.queries <= kFewQueries;
  both_at_once = call.dtype == DType::kBF16 && 2 * call.queries <= kFewQueries;
  tiles = call.dtype == DType::kBF16 && target.tiles != TileUnit::kNone && !few;
  if (tiles) query_step = key_step = kTileBlockSide;
  int64_t height = kQueryBlock;
  if (members * CeilDiv(call.queries, height) < kManyTasks) {
    height = std::clamp(RoundUp(CeilDiv(call.queries * members, kManyTasks), 8), kLeastQueryBlock, kQueryBlock);
  }
  query_steps = CeilDiv(call.queries, query_step);
  query_blocks = CeilDiv(query_steps, CeilDiv(height, query_step));
  key_steps = CeilDiv(call.keys, key_step);
  const bool leaves_out = call.causal && !few && !tiles;
  key_blocks =
      CeilDiv(call.keys, leaves_out ? std::clamp(call.keys / 8, kLeastCausalBlock, kMostCausalBlock) : kKeyBlock);
  parts = few && members < kManyTasks ? key_blocks : 1;
  value_stride = RoundUp(call.value_width, kAttentionLanes);
  score_stride = CeilDiv(key_steps, key_blocks) * key_step + kRowGap;
  if (!few) FindPacked(target);
}

void AttentionCut::FindPacked(const CpuTarget& target) {
  bool packs_k = true, packs_v = true;
  ForEachLength([&](int64_t keys) {
    const int64_t k = PackedBytesOfB(target, Scores(MostRows(), keys));
    const int64_t v = PackedBytesOfB(target, Values(MostRows(), keys, true));
    packs_k = packs_k && k > 0;
    packs_v = packs_v && v > 0;
    packed_k = std::max(packed_k, RoundUp(k, kAlign));
    packed_v = std::max(packed_v, RoundUp(v, kAlign));
  });
  // All blocks or none; a product packs for itself what it must.
  if (!packs_k) packed_k = 0;
  if (!packs_v) packed_v = 0;
}

// Scratch of a task.
struct AttentionScratch {
  float *scores = nullptr, *values = nullptr, *most = nullptr, *sums = nullptr, *both = nullptr;
  uint16_t *narrow = nullptr, *rest = nullptr;
  char* queries = nullptr;  // packed

  absl::Status Get(const AttentionCut& cut) {
    char* at = static_cast<char*>(ThreadScratch(ScratchSlot::kLoop, cut.ScratchBytes()));
    if (at == nullptr) return OutOfScratch("scores of attention", cut.ScratchBytes());
    const int64_t rows = cut.MostRows();
    const auto take = [&](int64_t count) {
      float* const taken = reinterpret_cast<float*>(at);
      at += count * 4;
      return taken;
    };
    sums = take(rows * kAttentionLanes);
    values = take(rows * cut.value_stride);
    if (cut.both_at_once) both = take(2 * rows * cut.value_stride);
    most = take(RoundUp(rows * 4, kAlign) / 4);
    scores = take(rows * cut.score_stride);
    queries = at;
    if (cut.call.dtype == DType::kBF16 && !cut.tiles) {
      narrow = reinterpret_cast<uint16_t*>(at);
      rest = narrow + rows * cut.score_stride;
    }
    return absl::OkStatus();
  }
};

// The tasks of an attention, each on the calling thread: a block of queries against all keys, or a part of them.
class AttentionTasks {
 public:
  AttentionTasks(KernelSet& kernels, const AttentionCut& cut)
      : kernels_(kernels), cut_(cut), call_(cut.call), rows_(AttentionKernelsOf(kernels.target().isa)) {}

  absl::Status FetchTiles() {
    if (!cut_.tiles) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(tiles_, cpu::FetchTiles(kernels_.state(), call_.dtype));
    return absl::OkStatus();
  }

  absl::Status PackKeys(int64_t key_member, int64_t block) {
    const AttentionOffsets at = OffsetsOf(call_, call_.out, key_member * call_.group);
    const Range keys = cut_.Keys(block);
    const int64_t rows = CeilDiv(call_.queries, cut_.query_blocks);
    GemmCall scores = cut_.Scores(rows, keys.size()), values = cut_.Values(rows, keys.size(), true);
    scores.b.data = At(call_.k.data, (at.k + keys.begin * call_.k.row_stride) * cut_.element);
    values.b.data = At(call_.v.data, (at.v + keys.begin * call_.v.row_stride) * cut_.element);
    if (cut_.packed_k > 0) WEFT_RETURN_IF_ERROR(kernels_.PackB(scores, cut_.PackedK(key_member, block), alone_));
    if (cut_.packed_v > 0) WEFT_RETURN_IF_ERROR(kernels_.PackB(values, cut_.PackedV(key_member, block), alone_));
    return absl::OkStatus();
  }

  // All heads that share one of k and v.
  absl::Status RunMember(int64_t key_member) {
    for (int64_t b = 0; b < cut_.key_blocks; ++b) WEFT_RETURN_IF_ERROR(PackKeys(key_member, b));
    for (int64_t i = 0; i < call_.group * cut_.query_blocks; ++i) {
      const int64_t member = key_member * call_.group + i / cut_.query_blocks;
      WEFT_RETURN_IF_ERROR(RunBlock(member, i % cut_.query_blocks, 0));
    }
    return absl::OkStatus();
  }

  absl::Status RunBlock(int64_t member, int64_t block, int64_t part) {
    AttentionScratch space;
    WEFT_RETURN_IF_ERROR(space.Get(cut_));
    const AttentionOffsets at = OffsetsOf(call_, call_.out, member);
    const Range queries = cut_.Queries(block);
    const int64_t rows = queries.size();
    std::fill_n(space.most, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(space.sums, rows * kAttentionLanes, 0.0F);
    const int64_t first = cut_.parts > 1 ? part : 0, last = cut_.parts > 1 ? part + 1 : cut_.key_blocks;
    // Keys before this one are seen by the last of the queries.
    const int64_t end = SeenByFirst(call_) + queries.end - 1;
    const char* const q = At(call_.q.data, (at.q + queries.begin * call_.q.row_stride) * cut_.element);
    std::optional<TileScope> scope;
    if (cut_.tiles) {
      PackQueries(q, call_.q.row_stride * cut_.element, rows, call_.width, space.queries);
      scope.emplace(tiles_);
    }
    bool accumulate = false;
    for (int64_t b = first; b < last && cut_.Keys(b).begin < end && !LaunchEnds(); ++b) {
      const Range keys = cut_.Keys(b);
      const AttentionRows run = RowsOf(at, queries, keys, space, accumulate);
      if (cut_.tiles) {
        const AttentionTiles tiles = {tiles_, space.queries, call_.width, call_.value_width};
        tiles.Scores(run, cut_.PackedK(member / call_.group, b));
        rows_.halves(run);
        tiles.Values(run, cut_.PackedV(member / call_.group, b), space.values);
        accumulate = true;
        continue;
      }
      GemmCall scores = cut_.Scores(rows, keys.size()), values = cut_.Values(rows, keys.size(), accumulate);
      scores.a.data = q;
      scores.c = space.scores;
      scores.b_packed = cut_.packed_k > 0;
      values.b_packed = cut_.packed_v > 0;
      scores.b.data = scores.b_packed ? cut_.PackedK(member / call_.group, b)
                                      : At(call_.k.data, (at.k + keys.begin * call_.k.row_stride) * cut_.element);
      values.b.data = values.b_packed ? cut_.PackedV(member / call_.group, b)
                                      : At(call_.v.data, (at.v + keys.begin * call_.v.row_stride) * cut_.element);
      WEFT_RETURN_IF_ERROR(kernels_.Gemm(scores, alone_));
      rows_.exponentials(run);
      if (cut_.both_at_once) {
        WEFT_RETURN_IF_ERROR(AddBoth(values.b, keys.size(), accumulate, space));
        accumulate = true;
        continue;
      }
      values.a.data = space.narrow != nullptr ? static_cast<const void*>(space.narrow) : space.scores;
      values.c = space.values;
      WEFT_RETURN_IF_ERROR(kernels_.Gemm(values, alone_));
      accumulate = true;
      if (space.rest == nullptr) continue;
      // Exponentials of eight digits alone would be seen in the result: bf16's attention is rounded once, at its end.
      values.a.data = space.rest;
      values.accumulate = true;
      WEFT_RETURN_IF_ERROR(kernels_.Gemm(values, alone_));
    }
    if (!accumulate) std::fill_n(space.values, rows * cut_.value_stride, 0.0F);
    if (cut_.parts == 1) {
      Finish(at, queries, space.values, space.sums);
    } else {
      float* const kept = cut_.Part(member, part);
      std::memcpy(kept, space.most, static_cast<size_t>(rows) * 4);
      std::memcpy(kept + kFewQueries, space.sums, static_cast<size_t>(rows * kAttentionLanes) * 4);
      std::memcpy(kept + kFewQueries * (1 + kAttentionLanes), space.values,
                  static_cast<size_t>(rows * cut_.value_stride) * 4);
    }
    return absl::OkStatus();
  }

  absl::Status Join(int64_t member) {
    AttentionScratch space;
    WEFT_RETURN_IF_ERROR(space.Get(cut_));
    const int64_t rows = call_.queries;
    std::fill_n(space.sums, rows * kAttentionLanes, 0.0F);
    std::fill_n(space.values, rows * cut_.value_stride, 0.0F);
    for (int64_t r = 0; r < rows; ++r) {
      float most = -std::numeric_limits<float>::infinity();
      for (int64_t p = 0; p < cut_.parts; ++p) most = std::max(most, cut_.Part(member, p)[r]);
      if (most == -std::numeric_limits<float>::infinity()) most = 0;
      for (int64_t p = 0; p < cut_.parts; ++p) {
        const float* const part = cut_.Part(member, p);
        const float* const sums = part + kFewQueries + r * kAttentionLanes;
        const float* const values = part + kFewQueries * (1 + kAttentionLanes) + r * cut_.value_stride;
        float factors[kAttentionLanes];
        std::fill_n(factors, kAttentionLanes, part[r] - most);
        rows_.exp(factors, factors, kAttentionLanes);
        for (int64_t i = 0; i < kAttentionLanes; ++i) space.sums[r * kAttentionLanes + i] += factors[0] * sums[i];
        for (int64_t i = 0; i < cut_.value_stride; ++i)
          space.values[r * cut_.value_stride + i] += factors[0] * values[i];
      }
    }
    Finish(OffsetsOf(call_, call_.out, member), {0, rows}, space.values, space.sums);
    return absl::OkStatus();
  }

 private:
  // Multiplies few queries' exponentials, and their rounding errors, by the values, which are read once: `rest` lies
  // behind `narrow`, as more rows of it.
  absl::Status AddBoth(const MatrixView& of_values, int64_t keys, bool accumulate, const AttentionScratch& space) {
    const int64_t rows = call_.queries;
    GemmCall both = cut_.Values(2 * rows, keys, false);
    both.a.data = space.narrow;
    both.b = of_values;
    both.c = space.both;
    WEFT_RETURN_IF_ERROR(kernels_.Gemm(both, alone_));
    for (int64_t r = 0; r < rows; ++r) {
      float* const to = space.values + r * cut_.value_stride;
      const float* const first = space.both + r * cut_.value_stride;
      const float* const second = first + rows * cut_.value_stride;
      for (int64_t i = 0; i < call_.value_width; ++i) to[i] = (accumulate ? to[i] : 0.0F) + (first[i] + second[i]);
    }
    return absl::OkStatus();
  }

  // The scores of queries and keys that are in scratch; `accumulate`: there are earlier keys.
  AttentionRows RowsOf(const AttentionOffsets& at, const Range& queries, const Range& keys,
                       const AttentionScratch& space, bool accumulate) const {
    AttentionRows run;
    run.scores = space.scores;
    run.stride = cut_.score_stride;
    run.rows = queries.size();
    run.columns = keys.size();
    run.seen = call_.causal ? SeenByFirst(call_) + queries.begin - keys.begin : keys.size();
    run.scale = call_.scale;
    run.narrow = space.narrow;
    run.rest = space.rest;
    run.most = space.most;
    run.sums = space.sums;
    if (accumulate) run.values = space.values;
    run.value_stride = cut_.value_stride;
    if (!call_.has_mask) return run;
    const bool bf16 = call_.dtype == DType::kBF16;
    run.mask =
        At(call_.mask.data,
           (at.mask + queries.begin * call_.mask.row_stride + keys.begin * call_.mask_column_stride) * cut_.element);
    run.mask_stride = call_.mask.row_stride;
    run.mask_bf16 = bf16;
    run.kind = call_.mask_column_stride == 0 ? AttentionMask::kOne : bf16 ? AttentionMask::kBF16 : AttentionMask::kF32;
    return run;
  }

  void Finish(const AttentionOffsets& at, const Range& queries, const float* values, const float* sums) const {
    AttentionResult run;
    run.values = values;
    run.sums = sums;
    run.value_stride = cut_.value_stride;
    run.rows = queries.size();
    run.width = call_.value_width;
    run.out = const_cast<char*>(At(call_.out.data, (at.written + queries.begin * call_.out.row_stride) * cut_.element));
    run.out_stride = call_.out.row_stride;
    run.bf16 = call_.dtype == DType::kBF16;
    run.nan_if_unseen = call_.nan_if_unseen;
    (cut_.tiles ? rows_.finish_halves : rows_.finish)(run);
  }

  KernelSet& kernels_;
  const AttentionCut& cut_;
  const AttentionCall& call_;
  const AttentionKernels& rows_;
  TileSet tiles_;        // where tiles multiply
  ThreadPool alone_{1};  // of products inside a task
};

class Driver {
 public:
  Driver(KernelSet& kernels, const AttentionCall& call)
      : kernels_(kernels), call_(call), cut_(kernels.target(), call), tasks_(kernels, cut_) {}

  absl::Status Prepare(ScratchNeeds& needs) {
    needs.Each(ScratchSlot::kLoop, cut_.ScratchBytes());
    if (cut_.tiles) return tasks_.FetchTiles();
    ScratchNeeds products;
    for (const int64_t rows : {call_.queries / cut_.query_blocks, CeilDiv(call_.queries, cut_.query_blocks)}) {
      absl::Status status;
      cut_.ForEachLength([&](int64_t keys) {
        status.Update(kernels_.PrepareGemm(cut_.Scores(rows, keys), 1, products));
        for (const bool accumulate : {false, true}) {
          status.Update(kernels_.PrepareGemm(cut_.Values(rows, keys, accumulate), 1, products));
        }
        if (cut_.both_at_once) status.Update(kernels_.PrepareGemm(cut_.Values(2 * rows, keys, false), 1, products));
      });
      WEFT_RETURN_IF_ERROR(status);
    }
    AddEach(products, needs);
    return absl::OkStatus();
  }

  absl::Status Run(ThreadPool& pool) {
    WEFT_RETURN_IF_ERROR(tasks_.FetchTiles());
    const double work = 2.0 * static_cast<double>(cut_.members * call_.queries * call_.keys) *
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
    // A task is a whole key head where these are many and short: the thread that packs its keys reads them.
    if (cut_.tiles && call_.group * cut_.query_blocks <= kManyTasks && KeyMembers(call_) >= 4 * pool.threads()) {
      deal(KeyMembers(call_), [&](int64_t i) { failure_.Note(tasks_.RunMember(i)); });
      return failure_.status();
    }
    if (cut_.packed_k + cut_.packed_v > 0) {
      deal(KeyMembers(call_) * cut_.key_blocks,
           [&](int64_t i) { failure_.Note(tasks_.PackKeys(i / cut_.key_blocks, i % cut_.key_blocks)); });
    }
    deal(cut_.members * cut_.query_blocks * cut_.parts, [&](int64_t i) {
      const int64_t part = i % cut_.parts, task = i / cut_.parts;
      // Where queries see the more keys the later they come, neighbours are a light and a heavy block.
      const int64_t at = task % cut_.query_blocks;
      const int64_t block = at % 2 == 0 ? at / 2 : cut_.query_blocks - 1 - at / 2;
      failure_.Note(tasks_.RunBlock(task / cut_.query_blocks, block, part));
    });
    if (cut_.parts > 1) deal(cut_.members, [&](int64_t member) { failure_.Note(tasks_.Join(member)); });
    return failure_.status();
  }

 private:
  KernelSet& kernels_;
  const AttentionCall& call_;
  const AttentionCut cut_;
  AttentionTasks tasks_;
  TaskFailure failure_;
};

}  // namespace

const AttentionKernels& AttentionKernelsOf(Isa vectors) {
  switch (vectors) {
    case Isa::kAvx512: return kAttentionAvx512;
    case Isa::kAvx2: return kAttentionAvx2;
    default: return kAttentionPortable;
  }
}

int64_t AttentionSpace(const CpuTarget& target, const AttentionCall& call) {
  return AttentionCut(target, call).SpaceBytes();
}

absl::Status RunAttention(KernelSet& kernels, const AttentionCall& call, ThreadPool& pool) {
  return Driver(kernels, call).Run(pool);
}

absl::Status PrepareAttention(KernelSet& kernels, const AttentionCall& call, ScratchNeeds& needs) {
  return Driver(kernels, call).Prepare(needs);
}

}  // namespace weft::cpu
