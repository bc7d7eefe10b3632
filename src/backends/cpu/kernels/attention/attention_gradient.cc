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
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kStrip = 64;   // queries
constexpr int64_t kChunk = 128;  // keys whose scores are in the first cache from a product to what follows it
// Parts of a task that adds up what tasks have found.
constexpr int64_t kJoinPieces = 8;
constexpr int64_t kFloatsAlign = kAlign / 4;

class Driver {
 public:
  explicit Driver(const AttentionGradientCall& gradient) : gradient_(gradient), call_(gradient.call) {
    members_ = KeyMembers(call_);
    element_ = BytesOf(call_.dtype);
    strips_ = CeilDiv(call_.queries, kStrip);
    parts_ = std::clamp<int64_t>(CeilDiv(kManyTasks, members_), 1, call_.group * strips_);
    most_rows_ = CeilDiv(call_.queries, strips_);
    most_columns_ = RoundUp(most_rows_, kAttentionLanes);
    turned_stride_ = RoundUp(call_.keys, kAttentionLanes) + kRowGap;
  }

  int64_t SpaceBytes() const { return parts_ > 1 ? members_ * parts_ * PartFloats() * 4 : 0; }

  absl::Status Prepare(KernelSet& kernels, ScratchNeeds& needs) const {
    ScratchNeeds products;
    absl::Status status;
    const auto prepare = [&](const GemmCall& call) { status.Update(kernels.PrepareGemm(call, 1, products)); };
    ForEachLength([&](int64_t keys) {
      for (const int64_t rows : {call_.queries / strips_, most_rows_}) {
        prepare(Scores(rows, keys));
        prepare(Slopes(rows, keys));
        prepare(Sums(call_.width, rows, keys));
        prepare(Sums(call_.value_width, rows, keys));
        for (const bool accumulate : {false, true}) prepare(Queries(rows, keys, accumulate));
      }
    });
    WEFT_RETURN_IF_ERROR(status);
    AddEach(products, needs);
    needs.Each(ScratchSlot::kLoop, Lay(kernels.target(), nullptr).bytes);
    return absl::OkStatus();
  }

  absl::Status Run(KernelSet& kernels, ThreadPool& pool) {
    kernels_ = &kernels;
    columns_ = &AttentionColumnKernelsOf(kernels.target().isa);
    pool.ParallelFor(members_ * parts_, [&](int64_t i) {
      if (!LaunchEnds()) Note(RunPart(i / parts_, i % parts_));
    });
    if (parts_ > 1) {
      pool.ParallelFor(members_ * kJoinPieces, [&](int64_t i) {
        if (!LaunchEnds()) Join(i / kJoinPieces, i % kJoinPieces);
      });
    }
    MutexLock lock(mutex_);
    return failure_;
  }

 private:
  // Keys of which one of the queries before `end` sees some; whole steps, unless there are no more.
  int64_t SeenBefore(int64_t end) const {
    if (!call_.causal) return call_.keys;
    return std::min(call_.keys, RoundUp(std::max<int64_t>(SeenByFirst(call_) + end - 1, 0), kAttentionLanes));
  }
  // Calls f with the chunks of keys before `end`.
  template <typename F>
  absl::Status ForEachChunk(int64_t end, F f) const {
    const int64_t steps = CeilDiv(end, kAttentionLanes), chunks = CeilDiv(end, kChunk);
    for (int64_t i = 0; i < chunks && !LaunchEnds(); ++i) {
      const Range keys = {CutAt(steps, chunks, i) * kAttentionLanes,
                          std::min(end, CutAt(steps, chunks, i + 1) * kAttentionLanes)};
      WEFT_RETURN_IF_ERROR(f(keys));
    }
    return absl::OkStatus();
  }
  // Calls f with every length that a chunk may have.
  template <typename F>
  void ForEachLength(F f) const {
    const int64_t missing = RoundUp(call_.keys, kAttentionLanes) - call_.keys;
    for (int64_t keys = kAttentionLanes; keys <= kChunk && keys - missing <= call_.keys; keys += kAttentionLanes) {
      f(std::min(keys, call_.keys));
      if (missing > 0) f(keys - missing);
    }
  }

  // Rows of keys (or values) times queries (or cotangents), transposed and packed.
  GemmCall Scores(int64_t rows, int64_t keys) const { return Turned(call_.k, call_.q, call_.width, rows, keys); }
  GemmCall Slopes(int64_t rows, int64_t keys) const {
    return Turned(call_.v, gradient_.g, call_.value_width, rows, keys);
  }
  GemmCall Turned(const AttentionMatrix& a, const AttentionMatrix& b, int64_t width, int64_t rows, int64_t keys) const {
    GemmCall call;
    call.input = call_.dtype;
    call.output = DType::kF32;
    call.m = keys;
    call.n = rows;
    call.k = width;
    call.a.row_stride = a.row_stride;
    call.b.row_stride = 1;
    call.b.col_stride = b.row_stride;
    call.b_packed = true;
    call.c_row_stride = RoundUp(rows, kAttentionLanes);
    return call;
  }
  // Adds the products of scores with queries (or cotangents) to the keys' sums.
  GemmCall Sums(int64_t width, int64_t rows, int64_t keys) const {
    GemmCall call;
    call.m = keys;
    call.n = width;
    call.k = rows;
    call.a.row_stride = RoundUp(rows, kAttentionLanes);
    call.b.row_stride = width;
    call.c_row_stride = width;
    call.accumulate = true;
    return call;
  }
  // Keys times scores, both transposed.
  GemmCall Queries(int64_t rows, int64_t keys, bool accumulate) const {
    GemmCall call;
    call.m = call_.width;
    call.n = rows;
    call.k = keys;
    call.a.row_stride = turned_stride_;
    call.b.row_stride = RoundUp(rows, kAttentionLanes);
    call.c_row_stride = RoundUp(rows, kAttentionLanes);
    call.accumulate = accumulate;
    return call;
  }

  // Scratch of a task.
  struct Space {
    float *scores = nullptr, *slopes = nullptr, *turned = nullptr, *mask = nullptr, *dq = nullptr;
    float *most = nullptr, *sums = nullptr, *along = nullptr;
    float *q = nullptr, *g = nullptr;  // as f32, where they are not
    char *packed_q = nullptr, *packed_g = nullptr;
    int64_t bytes = 0;
  };
  Space Lay(const CpuTarget& target, char* from) const {
    Space space;
    const auto take = [&](int64_t bytes) {
      char* const taken = from == nullptr ? nullptr : from + space.bytes;
      space.bytes += RoundUp(bytes, kAlign);
      return taken;
    };
    const auto floats = [&](int64_t count) { return reinterpret_cast<float*>(take(count * 4)); };
    space.scores = floats(call_.keys * most_columns_);
    space.slopes = floats(call_.keys * most_columns_);
    space.turned = floats(call_.width * turned_stride_);
    space.dq = floats(call_.width * most_columns_);
    space.most = floats(most_columns_);
    space.sums = floats(most_columns_);
    space.along = floats(most_columns_);
    if (call_.has_mask) space.mask = floats(kChunk * most_columns_);
    if (call_.dtype != DType::kF32) {
      space.q = floats(most_rows_ * call_.width);
      space.g = floats(most_rows_ * call_.value_width);
    }
    space.packed_q = take(PackedBytesOfB(target, Scores(most_rows_, kChunk)));
    space.packed_g = take(PackedBytesOfB(target, Slopes(most_rows_, kChunk)));
    return space;
  }

  int64_t PartFloats() const {
    return RoundUp(call_.keys * call_.width, kFloatsAlign) + RoundUp(call_.keys * call_.value_width, kFloatsAlign);
  }
  // Where a task adds up the cotangents of its keys and of its values.
  float* KeySums(int64_t member, int64_t part) const {
    if (parts_ == 1) return gradient_.dk + member * call_.keys * call_.width;
    return static_cast<float*>(call_.space) + (member * parts_ + part) * PartFloats();
  }
  float* ValueSums(int64_t member, int64_t part) const {
    if (parts_ == 1) return gradient_.dv + member * call_.keys * call_.value_width;
    return KeySums(member, part) + RoundUp(call_.keys * call_.width, kFloatsAlign);
  }

  PackKind Widening() const { return call_.dtype == DType::kF32 ? PackKind::kF32 : PackKind::kWidenBF16; }

  absl::Status RunPart(int64_t member, int64_t part) {
    const int64_t bytes = Lay(kernels_->target(), nullptr).bytes;
    char* const scratch = static_cast<char*>(ThreadScratch(ScratchSlot::kLoop, bytes));
    if (scratch == nullptr) return OutOfScratch("scores of attention's gradient", bytes);
    const Space space = Lay(kernels_->target(), scratch);
    const AttentionOffsets at = OffsetsOf(call_, gradient_.g, member * call_.group);
    std::fill_n(KeySums(member, part), call_.keys * call_.width, 0.0F);
    std::fill_n(ValueSums(member, part), call_.keys * call_.value_width, 0.0F);
    Pack(kernels_->target(), Widening(), {At(call_.k.data, at.k * element_), 1, call_.k.row_stride}, call_.width,
         call_.keys, turned_stride_, space.turned);
    for (int64_t i = part; i < call_.group * strips_ && !LaunchEnds(); i += parts_) {
      WEFT_RETURN_IF_ERROR(RunStrip(member, part, i / strips_, i % strips_, space));
    }
    return absl::OkStatus();
  }

  absl::Status RunStrip(int64_t member, int64_t part, int64_t head, int64_t strip, const Space& space) {
    const int64_t of_queries = member * call_.group + head;
    const AttentionOffsets at = OffsetsOf(call_, gradient_.g, of_queries);
    const Range queries = {CutAt(call_.queries, strips_, strip), CutAt(call_.queries, strips_, strip + 1)};
    const int64_t rows = queries.size(), columns = RoundUp(rows, kAttentionLanes);
    const int64_t end = SeenBefore(queries.end);
    float* const dq = gradient_.dq + (of_queries * call_.queries + queries.begin) * call_.width;
    if (end == 0) {
      std::fill_n(dq, rows * call_.width, 0.0F);
      return absl::OkStatus();
    }
    const char* const q = At(call_.q.data, (at.q + queries.begin * call_.q.row_stride) * element_);
    const char* const g = At(gradient_.g.data, (at.written + queries.begin * gradient_.g.row_stride) * element_);
    GemmCall scores = Scores(rows, kChunk), slopes = Slopes(rows, kChunk);
    scores.b.data = q;
    slopes.b.data = g;
    WEFT_RETURN_IF_ERROR(kernels_->PackB(scores, space.packed_q, alone_));
    WEFT_RETURN_IF_ERROR(kernels_->PackB(slopes, space.packed_g, alone_));
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
      scores.a.data = At(call_.k.data, (at.k + keys.begin * call_.k.row_stride) * element_);
      scores.c = run.scores;
      WEFT_RETURN_IF_ERROR(kernels_->Gemm(scores, alone_));
      SetMask(at, queries, keys, space.mask, &run);
      run.hidden = call_.causal ? keys.begin + 1 - SeenByFirst(call_) - queries.begin : -keys.size();
      columns_->scale(run);
      return absl::OkStatus();
    }));
    WEFT_RETURN_IF_ERROR(ForEachChunk(end, [&](const Range& keys) -> absl::Status {
      see(keys);
      columns_->exponentials(run);
      slopes.m = keys.size();
      slopes.a.data = At(call_.v.data, (at.v + keys.begin * call_.v.row_stride) * element_);
      slopes.c = run.slopes;
      WEFT_RETURN_IF_ERROR(kernels_->Gemm(slopes, alone_));
      columns_->along(run);
      return absl::OkStatus();
    }));
    Divide(space, columns);

    GemmCall of_k = Sums(call_.width, rows, kChunk), of_v = Sums(call_.value_width, rows, kChunk);
    SetFactor(q, call_.q.row_stride, rows, call_.width, space.q, &of_k);
    SetFactor(g, gradient_.g.row_stride, rows, call_.value_width, space.g, &of_v);
    WEFT_RETURN_IF_ERROR(ForEachChunk(end, [&](const Range& keys) -> absl::Status {
      see(keys);
      columns_->slopes(run);
      of_v.m = of_k.m = keys.size();
      of_v.a.data = run.scores;
      of_v.c = ValueSums(member, part) + keys.begin * call_.value_width;
      WEFT_RETURN_IF_ERROR(kernels_->Gemm(of_v, alone_));
      of_k.a.data = run.slopes;
      of_k.c = KeySums(member, part) + keys.begin * call_.width;
      WEFT_RETURN_IF_ERROR(kernels_->Gemm(of_k, alone_));
      GemmCall of_q = Queries(rows, keys.size(), keys.begin > 0);
      of_q.a.data = space.turned + keys.begin;
      of_q.b.data = run.slopes;
      of_q.c = space.dq;
      return kernels_->Gemm(of_q, alone_);
    }));
    Pack(kernels_->target(), PackKind::kF32, {space.dq, 1, columns}, rows, call_.width, call_.width, dq);
    return absl::OkStatus();
  }

  // Sums become factors. The largest exponential of a query is 1, so that a sum of 0 is of one that sees no key.
  static void Divide(const Space& space, int64_t columns) {
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
      Pack(kernels_->target(), Widening(), {data, row_stride, 1}, rows, width, width, wide);
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

  void Join(int64_t member, int64_t piece) const {
    const auto join = [&](int64_t count, float* (Driver::*sums)(int64_t, int64_t) const, float* to) {
      const int64_t begin = CutAt(count, kJoinPieces, piece), end = CutAt(count, kJoinPieces, piece + 1);
      std::memcpy(to + begin, (this->*sums)(member, 0) + begin, static_cast<size_t>(end - begin) * 4);
      for (int64_t p = 1; p < parts_; ++p) {
        const float* const from = (this->*sums)(member, p);
        for (int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    };
    const int64_t of_k = call_.keys * call_.width, of_v = call_.keys * call_.value_width;
    join(of_k, &Driver::KeySums, gradient_.dk + member * of_k);
    join(of_v, &Driver::ValueSums, gradient_.dv + member * of_v);
  }

  void Note(absl::Status status) {
    if (status.ok()) return;
    MutexLock lock(mutex_);
    failure_ = std::move(status);
  }

  KernelSet* kernels_ = nullptr;
  const AttentionColumnKernels* columns_ = nullptr;
  const AttentionGradientCall& gradient_;
  const AttentionCall& call_;
  int64_t members_ = 1, element_ = 4;  // members: of k and v
  int64_t strips_ = 1, parts_ = 1;     // parts: tasks of a member, which take the strips of its heads in turns
  int64_t most_rows_ = 0, most_columns_ = 0, turned_stride_ = 0;
  ThreadPool alone_{1};  // of products inside a task
  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

const AttentionColumnKernels& AttentionColumnKernelsOf(Isa vectors) {
  switch (vectors) {
    case Isa::kAvx512: return kAttentionColumnsAvx512;
    case Isa::kAvx2: return kAttentionColumnsAvx2;
    default: return kAttentionColumnsPortable;
  }
}

int64_t AttentionGradientSpace(const AttentionGradientCall& call) { return Driver(call).SpaceBytes(); }

absl::Status RunAttentionGradient(KernelSet& kernels, const AttentionGradientCall& call, ThreadPool& pool) {
  return Driver(call).Run(kernels, pool);
}

absl::Status PrepareAttentionGradient(KernelSet& kernels, const AttentionGradientCall& call, ScratchNeeds& needs) {
  return Driver(call).Prepare(kernels, needs);
}

}  // namespace weft::cpu
