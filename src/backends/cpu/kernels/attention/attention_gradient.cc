// Attention's gradient, a strip of some queries at a time: their scores against all the keys that they see lie in
// cache, transposed (attention_columns.h), so that what follows reads them along their rows: S^T = k q^T, whose
// exponentials by their sums are P^T; dP^T = v g^T; dS^T = P^T (dP^T - the sum of their products) scale; then dv += P^T
// g, dk += dS^T q and dq^T = k^T dS^T. Five products, and each score is computed once.
#include <algorithm>
#include <cstring>
#include <limits>

#include "src/backends/cpu/kernels/attention/attention_columns.h"
#include "src/backends/cpu/kernels/attention/attention_internal.h"
#include "src/backends/cpu/kernels/attention/attention_rows.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kStrip = 64;   // queries
constexpr int64_t kChunk = 128;  // keys whose scores are in the first cache from a product to what follows it
// Parts of a task that adds up what tasks have found.
constexpr int64_t kJoinPieces = 8;
constexpr int64_t kFloatsAlign = kAlign / 4;

// Calls f with the chunks of keys before `end`.
template <typename F>
absl::Status ForEachChunk(int64_t end, F f) {
  const int64_t steps = CeilDiv(end, kAttentionLanes), chunks = CeilDiv(end, kChunk);
  for (int64_t i = 0; i < chunks && !LaunchEnds(); ++i) {
    const Range keys = {CutAt(steps, chunks, i) * kAttentionLanes,
                        std::min(end, CutAt(steps, chunks, i + 1) * kAttentionLanes)};
    WEFT_RETURN_IF_ERROR(f(keys));
  }
  return absl::OkStatus();
}

// Scratch of a task.
struct GradientScratch {
  float *scores = nullptr, *slopes = nullptr, *turned = nullptr, *mask = nullptr, *dq = nullptr;
  float *most = nullptr, *sums = nullptr, *along = nullptr;
  float *q = nullptr, *g = nullptr;  // as f32, where they are not
  char *packed_q = nullptr, *packed_g = nullptr;
  int64_t bytes = 0;
};

// How one gradient is cut, by its sizes alone: queries into strips, which the tasks of a member take in turns.
struct GradientCut {
  explicit GradientCut(const AttentionGradientCall& gradient) : gradient(gradient), call(gradient.call) {
    members = KeyMembers(call);
    element = BytesOf(call.dtype);
    strips = CeilDiv(call.queries, kStrip);
    parts = std::clamp<int64_t>(CeilDiv(kManyTasks, members), 1, call.group * strips);
    most_rows = CeilDiv(call.queries, strips);
    most_columns = RoundUp(most_rows, kAttentionLanes);
    turned_stride = RoundUp(call.keys, kAttentionLanes) + kRowGap;
  }

  int64_t SpaceBytes() const { return parts > 1 ? members * parts * PartFloats() * 4 : 0; }

  // Keys of which one of the queries before `end` sees some; whole steps, unless there are no more.
  int64_t SeenBefore(int64_t end) const {
    if (!call.causal) return call.keys;
    return std::min(call.keys, RoundUp(std::max<int64_t>(SeenByFirst(call) + end - 1, 0), kAttentionLanes));
  }
  // Calls f with every length that a chunk may have.
  template <typename F>
  void ForEachLength(F f) const {
    const int64_t missing = RoundUp(call.keys, kAttentionLanes) - call.keys;
    for (int64_t keys = kAttentionLanes; keys <= kChunk && keys - missing <= call.keys; keys += kAttentionLanes) {
      f(std::min(keys, call.keys));
      if (missing > 0) f(keys - missing);
    }
  }

  // Rows of keys (or values) times queries (or cotangents), transposed and packed.
  GemmCall Scores(int64_t rows, int64_t keys) const { return Turned(call.k, call.q, call.width, rows, keys); }
  GemmCall Slopes(int64_t rows, int64_t keys) const { return Turned(call.v, gradient.g, call.value_width, rows, keys); }
  GemmCall Turned(const AttentionMatrix& a, const AttentionMatrix& b, int64_t width, int64_t rows, int64_t keys) const {
    GemmCall product;
    product.input = call.dtype;
    product.output = DType::kF32;
    product.m = keys;
    product.n = rows;
    product.k = width;
    product.a.row_stride = a.row_stride;
    product.b.row_stride = 1;
    product.b.col_stride = b.row_stride;
    product.b_packed = true;
    product.c_row_stride = RoundUp(rows, kAttentionLanes);
    return product;
  }
  // Adds the products of scores with queries (or cotangents) to the keys' sums.
  GemmCall Sums(int64_t width, int64_t rows, int64_t keys) const {
    GemmCall product;
    product.m = keys;
    product.n = width;
    product.k = rows;
    product.a.row_stride = RoundUp(rows, kAttentionLanes);
    product.b.row_stride = width;
    product.c_row_stride = width;
    product.accumulate = true;
    return product;
  }
  // Keys times scores, both transposed.
  GemmCall Queries(int64_t rows, int64_t keys, bool accumulate) const {
    GemmCall product;
    product.m = call.width;
    product.n = rows;
    product.k = keys;
    product.a.row_stride = turned_stride;
    product.b.row_stride = RoundUp(rows, kAttentionLanes);
    product.c_row_stride = RoundUp(rows, kAttentionLanes);
    product.accumulate = accumulate;
    return product;
  }

  // A task's scratch from there on; null: its bytes alone.
  GradientScratch Lay(const CpuTarget& target, char* from) const {
    GradientScratch space;
    const auto take = [&](int64_t bytes) {
      char* const taken = from == nullptr ? nullptr : from + space.bytes;
      space.bytes += RoundUp(bytes, kAlign);
      return taken;
    };
    const auto floats = [&](int64_t count) { return reinterpret_cast<float*>(take(count * 4)); };
    space.scores = floats(call.keys * most_columns);
    space.slopes = floats(call.keys * most_columns);
    space.turned = floats(call.width * turned_stride);
    space.dq = floats(call.width * most_columns);
    space.most = floats(most_columns);
    space.sums = floats(most_columns);
    space.along = floats(most_columns);
    if (call.has_mask) space.mask = floats(kChunk * most_columns);
    if (call.dtype != DType::kF32) {
      space.q = floats(most_rows * call.width);
      space.g = floats(most_rows * call.value_width);
    }
    space.packed_q = take(PackedBytesOfB(target, Scores(most_rows, kChunk)));
    space.packed_g = take(PackedBytesOfB(target, Slopes(most_rows, kChunk)));
    return space;
  }

  int64_t PartFloats() const {
    return RoundUp(call.keys * call.width, kFloatsAlign) + RoundUp(call.keys * call.value_width, kFloatsAlign);
  }
  // Where a task adds up the cotangents of its keys and of its values.
  float* KeySums(int64_t member, int64_t part) const {
    if (parts == 1) return gradient.dk + member * call.keys * call.width;
    return static_cast<float*>(call.space) + (member * parts + part) * PartFloats();
  }
  float* ValueSums(int64_t member, int64_t part) const {
    if (parts == 1) return gradient.dv + member * call.keys * call.value_width;
    return KeySums(member, part) + RoundUp(call.keys * call.width, kFloatsAlign);
  }

  PackKind Widening() const { return call.dtype == DType::kF32 ? PackKind::kF32 : PackKind::kWidenBF16; }

  const AttentionGradientCall& gradient;
  const AttentionCall& call;
  int64_t members = 1, element = 4;  // members: of k and v
  int64_t strips = 1, parts = 1;     // parts: tasks of a member
  int64_t most_rows = 0, most_columns = 0, turned_stride = 0;
};

// The tasks of a gradient, each on the calling thread: some strips of a member, or a piece of what they have found together.
class GradientTasks {
 public:
  GradientTasks(KernelSet& kernels, const GradientCut& cut)
      : kernels_(kernels),
        cut_(cut),
        gradient_(cut.gradient),
        call_(cut.call),
        columns_(AttentionColumnKernelsOf(kernels.target().isa)) {}

  absl::Status RunPart(int64_t member, int64_t part) {
    const int64_t bytes = cut_.Lay(kernels_.target(), nullptr).bytes;
    char* const scratch = static_cast<char*>(ThreadScratch(ScratchSlot::kLoop, bytes));
    if (scratch == nullptr) return OutOfScratch("scores of attention's gradient", bytes);
    const GradientScratch space = cut_.Lay(kernels_.target(), scratch);
    const AttentionOffsets at = OffsetsOf(call_, gradient_.g, member * call_.group);
    std::fill_n(cut_.KeySums(member, part), call_.keys * call_.width, 0.0F);
    std::fill_n(cut_.ValueSums(member, part), call_.keys * call_.value_width, 0.0F);
    Pack(kernels_.target(), cut_.Widening(), {At(call_.k.data, at.k * cut_.element), 1, call_.k.row_stride},
         call_.width, call_.keys, cut_.turned_stride, space.turned);
    for (int64_t i = part; i < call_.group * cut_.strips && !LaunchEnds(); i += cut_.parts) {
      WEFT_RETURN_IF_ERROR(RunStrip(member, part, i / cut_.strips, i % cut_.strips, space));
    }
    return absl::OkStatus();
  }

  void Join(int64_t member, int64_t piece) const {
    const auto join = [&](int64_t count, auto sums, float* to) {
      const int64_t begin = CutAt(count, kJoinPieces, piece), end = CutAt(count, kJoinPieces, piece + 1);
      std::memcpy(to + begin, sums(0) + begin, static_cast<size_t>(end - begin) * 4);
      for (int64_t p = 1; p < cut_.parts; ++p) {
        const float* const from = sums(p);
        for (int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    };
    const int64_t of_k = call_.keys * call_.width, of_v = call_.keys * call_.value_width;
    join(of_k, [&](int64_t p) { return cut_.KeySums(member, p); }, gradient_.dk + member * of_k);
    join(of_v, [&](int64_t p) { return cut_.ValueSums(member, p); }, gradient_.dv + member * of_v);
  }

 private:
  absl::Status RunStrip(int64_t member, int64_t part, int64_t head, int64_t strip, const GradientScratch& space) {
    const int64_t of_queries = member * call_.group + head;
    const AttentionOffsets at = OffsetsOf(call_, gradient_.g, of_queries);
    const Range queries = {CutAt(call_.queries, cut_.strips, strip), CutAt(call_.queries, cut_.strips, strip + 1)};
    const int64_t rows = queries.size(), columns = RoundUp(rows, kAttentionLanes);
    const int64_t end = cut_.SeenBefore(queries.end);
    float* const dq = gradient_.dq + (of_queries * call_.queries + queries.begin) * call_.width;
    if (end == 0) {
      std::fill_n(dq, rows * call_.width, 0.0F);
      return absl::OkStatus();
    }
    const char* const q = At(call_.q.data, (at.q + queries.begin * call_.q.row_stride) * cut_.element);
    const char* const g = At(gradient_.g.data, (at.written + queries.begin * gradient_.g.row_stride) * cut_.element);
    GemmCall scores = cut_.Scores(rows, kChunk), slopes = cut_.Slopes(rows, kChunk);
    scores.b.data = q;
    slopes.b.data = g;
    WEFT_RETURN_IF_ERROR(kernels_.PackB(scores, space.packed_q, alone_));
    WEFT_RETURN_IF_ERROR(kernels_.PackB(slopes, space.packed_g, alone_));
    scores.b.data = space.packed_q;
    slopes.b.data = space.packed_g;
    std::fill_n(space.most, columns, -std::numeric_limits<float>::infinity());
    std::fill_n(space.sums, columns, 0.0F);
    std::fill_n(space.along, columns, 0.0F);

    AttentionColumns run;
    run.columns = columns;
    run.scale = call_.scale;
    run.most = space.most;
    run.sums = space.sums;
    run.along = space.along;
    const auto see = [&](const Range& keys) {
      run.rows = keys.size();
      run.scores = space.scores + keys.begin * columns;
      run.slopes = space.slopes + keys.begin * columns;
    };
    WEFT_RETURN_IF_ERROR(ForEachChunk(end, [&](const Range& keys) -> absl::Status {
      see(keys);
      scores.m = keys.size();
      scores.a.data = At(call_.k.data, (at.k + keys.begin * call_.k.row_stride) * cut_.element);
      scores.c = run.scores;
      WEFT_RETURN_IF_ERROR(kernels_.Gemm(scores, alone_));
      SetMask(at, queries, keys, space.mask, &run);
      run.hidden = call_.causal ? keys.begin + 1 - SeenByFirst(call_) - queries.begin : -keys.size();
      columns_.scale(run);
      return absl::OkStatus();
    }));
    WEFT_RETURN_IF_ERROR(ForEachChunk(end, [&](const Range& keys) -> absl::Status {
      see(keys);
      columns_.exponentials(run);
      slopes.m = keys.size();
      slopes.a.data = At(call_.v.data, (at.v + keys.begin * call_.v.row_stride) * cut_.element);
      slopes.c = run.slopes;
      WEFT_RETURN_IF_ERROR(kernels_.Gemm(slopes, alone_));
      columns_.along(run);
      return absl::OkStatus();
    }));
    Divide(space, columns);

    GemmCall of_k = cut_.Sums(call_.width, rows, kChunk), of_v = cut_.Sums(call_.value_width, rows, kChunk);
    SetFactor(q, call_.q.row_stride, rows, call_.width, space.q, &of_k);
    SetFactor(g, gradient_.g.row_stride, rows, call_.value_width, space.g, &of_v);
    WEFT_RETURN_IF_ERROR(ForEachChunk(end, [&](const Range& keys) -> absl::Status {
      see(keys);
      columns_.slopes(run);
      of_v.m = of_k.m = keys.size();
      of_v.a.data = run.scores;
      of_v.c = cut_.ValueSums(member, part) + keys.begin * call_.value_width;
      WEFT_RETURN_IF_ERROR(kernels_.Gemm(of_v, alone_));
      of_k.a.data = run.slopes;
      of_k.c = cut_.KeySums(member, part) + keys.begin * call_.width;
      WEFT_RETURN_IF_ERROR(kernels_.Gemm(of_k, alone_));
      GemmCall of_q = cut_.Queries(rows, keys.size(), keys.begin > 0);
      of_q.a.data = space.turned + keys.begin;
      of_q.b.data = run.slopes;
      of_q.c = space.dq;
      return kernels_.Gemm(of_q, alone_);
    }));
    Pack(kernels_.target(), PackKind::kF32, {space.dq, 1, columns}, rows, call_.width, call_.width, dq);
    return absl::OkStatus();
  }

  // Sums become factors. The largest exponential of a query is 1, so that a sum of 0 is of one that sees no key.
  static void Divide(const GradientScratch& space, int64_t columns) {
    for (int64_t i = 0; i < columns; ++i) {
      space.sums[i] = space.sums[i] == 0 ? 0 : 1 / space.sums[i];
      space.along[i] *= space.sums[i];
    }
  }

  // Rows of q or g as a factor in f32.
  void SetFactor(const char* data, int64_t row_stride, int64_t rows, int64_t width, float* wide, GemmCall* call) const {
    if (wide == nullptr) {
      call->b.data = data;
      call->b.row_stride = row_stride;
    } else {
      Pack(kernels_.target(), cut_.Widening(), {data, row_stride, 1}, rows, width, width, wide);
      call->b.data = wide;
    }
  }

  // In the order of scores that are transposed.
  void SetMask(const AttentionOffsets& at, const Range& queries, const Range& keys, float* turned,
               AttentionColumns* run) const {
    if (!call_.has_mask) return;
    const int64_t row_stride = call_.mask.row_stride, column_stride = call_.mask_column_stride;
    const int64_t first = at.mask + queries.begin * row_stride + keys.begin * column_stride;
    run->mask = turned;
    run->mask_one = row_stride == 0;
    run->mask_stride = run->mask_one ? 1 : run->columns;
    const int64_t count = run->mask_one ? 1 : queries.size();
    for (int64_t r = 0; r < keys.size(); ++r) {
      float* const row = turned + r * run->mask_stride;
      for (int64_t c = 0; c < count; ++c) {
        const int64_t i = first + r * column_stride + c * row_stride;
        row[c] = call_.dtype == DType::kF32 ? static_cast<const float*>(call_.mask.data)[i]
                                            : WidenBF16(static_cast<const uint16_t*>(call_.mask.data)[i]);
      }
    }
  }

  KernelSet& kernels_;
  const GradientCut& cut_;
  const AttentionGradientCall& gradient_;
  const AttentionCall& call_;
  const AttentionColumnKernels& columns_;
  ThreadPool alone_{1};  // of products inside a task
};

class Driver {
 public:
  Driver(KernelSet& kernels, const AttentionGradientCall& gradient)
      : kernels_(kernels), cut_(gradient), tasks_(kernels, cut_) {}

  absl::Status Prepare(ScratchNeeds& needs) const {
    ScratchNeeds products;
    absl::Status status;
    const auto prepare = [&](const GemmCall& call) { status.Update(kernels_.PrepareGemm(call, 1, products)); };
    cut_.ForEachLength([&](int64_t keys) {
      for (const int64_t rows : {cut_.call.queries / cut_.strips, cut_.most_rows}) {
        prepare(cut_.Scores(rows, keys));
        prepare(cut_.Slopes(rows, keys));
        prepare(cut_.Sums(cut_.call.width, rows, keys));
        prepare(cut_.Sums(cut_.call.value_width, rows, keys));
        for (const bool accumulate : {false, true}) prepare(cut_.Queries(rows, keys, accumulate));
      }
    });
    WEFT_RETURN_IF_ERROR(status);
    AddEach(products, needs);
    needs.Each(ScratchSlot::kLoop, cut_.Lay(kernels_.target(), nullptr).bytes);
    return absl::OkStatus();
  }

  absl::Status Run(ThreadPool& pool) {
    pool.ParallelFor(cut_.members * cut_.parts, [&](int64_t i) {
      if (!LaunchEnds()) failure_.Note(tasks_.RunPart(i / cut_.parts, i % cut_.parts));
    });
    if (cut_.parts > 1) {
      pool.ParallelFor(cut_.members * kJoinPieces, [&](int64_t i) {
        if (!LaunchEnds()) tasks_.Join(i / kJoinPieces, i % kJoinPieces);
      });
    }
    return failure_.status();
  }

 private:
  KernelSet& kernels_;
  const GradientCut cut_;
  GradientTasks tasks_;
  TaskFailure failure_;
};

}  // namespace

const AttentionColumnKernels& AttentionColumnKernelsOf(Isa vectors) {
  switch (vectors) {
    case Isa::kAvx512: return kAttentionColumnsAvx512;
    case Isa::kAvx2: return kAttentionColumnsAvx2;
    default: return kAttentionColumnsPortable;
  }
}

int64_t AttentionGradientSpace(const AttentionGradientCall& call) { return GradientCut(call).SpaceBytes(); }

absl::Status RunAttentionGradient(KernelSet& kernels, const AttentionGradientCall& call, ThreadPool& pool) {
  return Driver(kernels, call).Run(pool);
}

absl::Status PrepareAttentionGradient(KernelSet& kernels, const AttentionGradientCall& call, ScratchNeeds& needs) {
  return Driver(kernels, call).Prepare(needs);
}

}  // namespace weft::cpu
