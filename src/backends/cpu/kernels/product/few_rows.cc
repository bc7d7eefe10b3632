// Products of few rows: whole members, columns or stretches of K are dealt out, so that every thread streams its own part
// of B. See few_rows.h.
#include "src/backends/cpu/kernels/product/few_rows.h"

#include <algorithm>
#include <atomic>

#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/backends/cpu/kernels/product/product.h"
#include "src/backends/cpu/kernels/tiles/pairwise.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// With more rows arithmetic decides, and packing is repaid.
constexpr int64_t kFewRows = 8;
// The limit of rows where B can be read in place, by rows of B: more sums than registers hold go to a near cache and
// back, which register tiles need not.
constexpr int64_t kFewInPlace = 4;
// A smaller B that can be read in place is in a near cache, and register tiles that keep their sums over all of K are
// quicker.
constexpr int64_t kLeastDirectBytes = 64 << 10;
// Less of B is read before a second thread has woken.
constexpr int64_t kInlineBytes = 64 << 10;
// Columns that are dealt out together: whole tiles of every instruction set.
constexpr int64_t kUnitAcross = 64, kUnitAlong = 8;
// B with fewer columns is dealt out along K instead, at least so many bytes a part: its rows are too short to stream
// halves of them.
constexpr int64_t kNarrowAcross = 1024, kNarrowAlong = 64;
constexpr int64_t kPartBytes = 64 << 10;
// The bytes of B between two looks whether the launch ends: they take some ten milliseconds.
constexpr int64_t kMostAtOnce = 128 << 20;
constexpr int64_t kMaxParts = 8;
// Steps of K whose sums are added as they come; sums of more such stretches are added in pairs.
constexpr int64_t kStretch = 2048;

// One column: the transposed product has one row, and its result lies in memory as this one's does.
bool Turns(const GemmCall& call) {
  return call.n == 1 && call.m > kFewRows && (call.c_row_stride == 0 || call.c_row_stride == 1);
}
GemmCall Turned(const GemmCall& call) {
  GemmCall turned = call;
  std::swap(turned.m, turned.n);
  std::swap(turned.a, turned.b);
  std::swap(turned.a.row_stride, turned.a.col_stride);
  std::swap(turned.b.row_stride, turned.b.col_stride);
  turned.c_row_stride = turned.n;
  return turned;
}

bool IsAlong(const GemmCall& call) { return call.b.row_stride == 1 && (call.b.col_stride != 1 || call.n == 1); }

template <typename T, typename A = T>
class Stream {
 public:
  Stream(const FewRowsKernels::Of<T, A>& loops, const GemmCall& call, const TypePlan& types, bool turned)
      : call_(call), types_(types), turned_(turned), along_(IsAlong(call)), loop_(along_ ? loops.along : loops.across) {
    copies_a_ = types.source_bytes != sizeof(A) || (call.a.col_stride != 1 && call.k > 1);
    c_stride_ = call.c_row_stride != 0 ? call.c_row_stride : call.n;
    members_ = Members(call);
    bytes_ = call.k * call.n * types.source_bytes;
    if (members_ == 1 && call.n < (along_ ? kNarrowAlong : kNarrowAcross)) {
      parts_ = std::clamp<int64_t>(std::min(bytes_ / kPartBytes, call.k / 64), 1, kMaxParts);
    }
  }

  absl::Status Run(const Duty& duty) {
    const int threads = duty.pool != nullptr ? duty.pool->threads() : duty.threads;
    const bool splits = threads > 1 && bytes_ * members_ >= kInlineBytes;
    const bool deals = splits && (members_ >= 2 * threads || bytes_ < kInlineBytes);
    if (duty.pool == nullptr) {
      Needs(*duty.needs, deals);
      return absl::OkStatus();
    }
    if (deals) {
      duty.pool->ParallelRanges(members_, [&](int64_t begin, int64_t end, int) {
        PieceLook look(static_cast<double>(bytes_));
        for (int64_t i = begin; i < end && !look.Ends(); ++i) RunMember(i, nullptr);
      });
    } else {
      for (int64_t i = 0; i < members_; ++i) RunMember(i, splits ? duty.pool : nullptr);
    }
    const int64_t wanted = wanted_.load(std::memory_order_relaxed);
    return wanted == 0 ? absl::OkStatus() : OutOfScratch("a matrix product's rows", wanted);
  }

 private:
  int64_t RowBytes() const { return call_.m * call_.k * static_cast<int64_t>(sizeof(A)); }
  int64_t SumBytes() const { return call_.m * call_.n * static_cast<int64_t>(sizeof(T)); }
  // Behind the first, for a part's stretches.
  int64_t MoreSums() const { return PairwiseBuffers(CeilDiv(CeilDiv(call_.k, parts_), kStretch)) - 1; }
  int64_t SumsBytes() const { return (parts_ > 1 ? parts_ * (1 + MoreSums()) : MoreSums()) * SumBytes(); }

  void Needs(ScratchNeeds& needs, bool deals) const {
    const auto add = [&](ScratchSlot slot, int64_t bytes) {
      deals ? needs.Each(slot, bytes) : needs.Once(slot, bytes);
    };
    if (copies_a_) add(ScratchSlot::kPackA, RowBytes());
    if (types_.narrow) add(ScratchSlot::kOutput, SumBytes());
    if (SumsBytes() > 0) add(ScratchSlot::kShared, SumsBytes());
  }

  template <typename Element>
  Element* Scratch(ScratchSlot slot, int64_t bytes) {
    void* const memory = ThreadScratch(slot, bytes);
    if (memory == nullptr) wanted_.store(bytes, std::memory_order_relaxed);
    return static_cast<Element*>(memory);
  }

  void RunMember(int64_t index, ThreadPool* pool) {
    const MemberOffsets at = OffsetsOf(call_, index);
    FewRows<T, A> run;
    run.rows = call_.m;
    run.a_stride = call_.a.row_stride;
    run.b = static_cast<const char*>(call_.b.data) + at.b * types_.source_bytes;
    run.b_stride = along_ ? call_.b.col_stride : call_.b.row_stride;
    const char* a = static_cast<const char*>(call_.a.data) + at.a * types_.source_bytes;
    run.a = reinterpret_cast<const A*>(a);
    if (copies_a_) {
      A* const rows = Scratch<A>(ScratchSlot::kPackA, RowBytes());
      if (rows == nullptr) return;
      CopyRows(a, rows);
      run.a = rows;
      run.a_stride = call_.k;
    }
    char* const result = static_cast<char*>(call_.c) + at.c * BytesOf(call_.output);
    run.c = reinterpret_cast<T*>(result);
    run.c_stride = c_stride_;
    if (types_.narrow) {
      run.c = Scratch<T>(ScratchSlot::kOutput, SumBytes());
      if (run.c == nullptr) return;
      run.c_stride = call_.n;
    }
    T* sums = nullptr;
    if (SumsBytes() > 0) {
      sums = Scratch<T>(ScratchSlot::kShared, SumsBytes());
      if (sums == nullptr) return;
    }
    if (parts_ > 1) return RunParts(run, index, result, sums, pool);
    const int64_t unit = along_ ? kUnitAlong : kUnitAcross;
    Deal(pool, CeilDiv(call_.n, unit), [&](int64_t begin, int64_t end, int) {
      // All at once, but what takes tens of milliseconds.
      const int64_t unit_bytes = unit * call_.k * types_.source_bytes;
      const int64_t pieces = CeilDiv((end - begin) * unit_bytes, kMostAtOnce);
      for (int64_t piece = 0; piece < pieces && !LaunchEnds(); ++piece) {
        FewRows<T, A> share = run;
        share.k = call_.k;
        share.begin = (begin + CutAt(end - begin, pieces, piece)) * unit;
        share.end = std::min(call_.n, (begin + CutAt(end - begin, pieces, piece + 1)) * unit);
        Sum(share, sums);
        Finish(share, index, result);
      }
    });
  }

  // Returns the run from a step of K on.
  FewRows<T, A> From(const FewRows<T, A>& run, int64_t k) const {
    FewRows<T, A> later = run;
    later.a += k;
    later.b = static_cast<const char*>(run.b) + k * call_.b.row_stride * types_.source_bytes;
    return later;
  }

  // A share's columns over its K. `more` holds sums as large as C, of which others have other columns.
  void Sum(const FewRows<T, A>& share, T* more) const {
    const auto at = [&](int64_t buffer) { return buffer == 0 ? share.c : more + (buffer - 1) * call_.m * call_.n; };
    const auto stride = [&](int64_t buffer) { return buffer == 0 ? share.c_stride : call_.n; };
    PieceLook look(static_cast<double>(kStretch * (share.end - share.begin) * types_.source_bytes));
    bool ends = false;
    SumPairwise(
        CeilDiv(share.k, kStretch),
        [&](int64_t stretch, int64_t buffer) {
          if (stretch > 0 && !ends) ends = look.Ends();
          if (ends) return;
          FewRows<T, A> part = From(share, stretch * kStretch);
          part.k = std::min(kStretch, share.k - stretch * kStretch);
          part.c = at(buffer);
          part.c_stride = stride(buffer);
          loop_(part);
        },
        [&](int64_t to, int64_t from) {
          if (ends) return;
          for (int64_t row = 0; row < call_.m; ++row) {
            T* const sum = at(to) + row * stride(to);
            const T* const part = at(from) + row * stride(from);
            for (int64_t j = share.begin; j < share.end; ++j) sum[j] += part[j];
          }
        });
  }

  // Parts of K, each with sums of its own, which are added in their order.
  void RunParts(const FewRows<T, A>& run, int64_t index, char* result, T* sums, ThreadPool* pool) {
    const int64_t size = call_.m * call_.n;
    Deal(pool, parts_, [&](int64_t begin, int64_t end, int) {
      for (int64_t part = begin; part < end && !LaunchEnds(); ++part) {
        const int64_t k = CutAt(call_.k, parts_, part);
        FewRows<T, A> share = From(run, k);
        share.k = CutAt(call_.k, parts_, part + 1) - k;
        share.end = call_.n;
        share.c = sums + part * size;
        share.c_stride = call_.n;
        Sum(share, sums + (parts_ + part * MoreSums()) * size);
      }
    });
    for (int64_t row = 0; row < call_.m; ++row) {
      T* const total = run.c + row * run.c_stride;
      std::copy_n(sums + row * call_.n, call_.n, total);
      for (int64_t part = 1; part < parts_; ++part) {
        const T* const own = sums + part * size + row * call_.n;
        for (int64_t j = 0; j < call_.n; ++j) total[j] += own[j];
      }
    }
    FewRows<T, A> whole = run;
    whole.end = call_.n;
    Finish(whole, index, result);
  }

  template <typename Fn>
  static void Deal(ThreadPool* pool, int64_t count, Fn fn) {
    if (pool == nullptr) {
      fn(0, count, 0);
    } else {
      pool->ParallelRanges(count, fn);
    }
  }

  void CopyRows(const char* a, A* rows) const {
    for (int64_t r = 0; r < call_.m; ++r) {
      for (int64_t i = 0; i < call_.k; ++i) {
        const char* const from = a + (r * call_.a.row_stride + i * call_.a.col_stride) * types_.source_bytes;
        if constexpr (std::is_same_v<A, float>) {
          if (types_.source_bytes == 2) {
            const uint16_t bits = *reinterpret_cast<const uint16_t*>(from);
            rows[r * call_.k + i] = call_.input == DType::kBF16 ? WidenBF16(bits) : WidenF16(bits);
            continue;
          }
        }
        rows[r * call_.k + i] = *reinterpret_cast<const A*>(from);
      }
    }
  }

  // Columns [begin, end) have their sums.
  void Finish(const FewRows<T, A>& run, int64_t index, char* result) const {
    const int64_t columns = run.end - run.begin;
    if constexpr (std::is_same_v<T, float>) {
      if (types_.narrow) {
        Narrow(call_.output, run.c + run.begin, run.c_stride, result + run.begin * 2, c_stride_, call_.m, columns);
      }
    }
    const Epilogue& epilogue = call_.epilogue;
    const int64_t row = turned_ ? run.begin : 0, rows = turned_ ? columns : call_.m;
    const int64_t column = turned_ ? 0 : run.begin, count = turned_ ? 1 : columns;
    if (epilogue.consume != nullptr) {
      epilogue.consume(epilogue.context, result, row, rows, column, count);
    } else if (epilogue.run != nullptr) {
      epilogue.run(epilogue.context, index, row, rows, column, count);
    }
  }

  const GemmCall& call_;
  const TypePlan& types_;
  const bool turned_, along_;
  void (*const loop_)(const FewRows<T, A>&);
  bool copies_a_ = false;
  int64_t c_stride_ = 0, members_ = 1;
  int64_t bytes_ = 0;  // of a member's B
  int64_t parts_ = 1;
  std::atomic<int64_t> wanted_{0};
};

const FewRowsKernels& KernelsOf(const CpuTarget& target) {
  switch (target.isa) {
    case Isa::kAvx512: return kFewRowsAvx512;
    case Isa::kAvx2: return kFewRowsAvx2;
    default: return kFewRowsPortable;
  }
}

const char* Refuses(const Product& product) {
  if (product.amx || !product.registers) return "no register tile serves the types, or AMX's do";
  return HasFewRows(product.call, product.types) ? nullptr : "A has many rows, or tiles read B in place";
}

absl::Status Run(const Product& product, KernelSet&, KernelSet::State&, const Duty& duty) {
  const bool turned = Turns(product.call);
  const GemmCall call = turned ? Turned(product.call) : product.call;
  const TypePlan& types = product.types;
  const FewRowsKernels& kernels = KernelsOf(product.target);
  if (types.pack == PackKind::kPairs) return Stream<float, PairBF16>(kFewRowsPairs, call, types, turned).Run(duty);
  if (types.source_bytes == 8) return Stream<double>(kernels.f64, call, types, turned).Run(duty);
  const auto& loops = call.input == DType::kF32 ? kernels.f32 : call.input == DType::kBF16 ? kernels.bf16 : kernels.f16;
  return Stream<float>(loops, call, types, turned).Run(duty);
}

}  // namespace

bool HasFewRows(const GemmCall& original, const TypePlan& types) {
  if (original.accumulate || original.b_packed || IsIntegers(types.micro)) return false;
  const GemmCall call = Turns(original) ? Turned(original) : original;
  if (call.m > kFewRows) return false;
  if (IsAlong(call)) return true;
  if (call.b.col_stride != 1) return false;
  if (!types.direct) return true;  // tiles would widen all of it first
  return call.m <= kFewInPlace && call.k * call.n * types.source_bytes >= kLeastDirectBytes;
}

constinit const ProductImplementation kProductFewRows = {"gemm few rows", Refuses, Run};

}  // namespace weft::cpu
