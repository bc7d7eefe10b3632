// Products of few steps of K that are added to what is there: gradients of weights in the loops of recurrent networks. Half of
// such a product's time would go by around its tiles, so all of A's rows that a thread has are packed once, each panel of B
// stays in L1 while they go by it in one call, and tiles ask for the rows that the next one adds to.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kMostSteps = 64;
// The limit of A's bytes, so that a thread's share stays in L2.
constexpr int64_t kMostBytes = 256 << 10;

int64_t RowStride(const GemmCall& call) { return call.c_row_stride != 0 ? call.c_row_stride : call.n; }

// Rows of one of the products: whole tiles, and one of the rows that are left.
struct Stretch {
  size_t product = 0;
  int64_t row = 0, tiles = 0, rest = 0;
};

class Adder {
 public:
  Adder(const CpuTarget& target, std::span<const SumCall> calls, const TypePlan& types)
      : target_(target), calls_(calls), first_(calls[0].product), types_(types) {
    columns_ = ColumnCut::Make(target, types.micro, first_.n);
    rows_ = MicroMaxRows(target, MicroForm::kColumns, columns_.MaxVectors());
    for (const SumCall& call : calls) tiles_ += CeilDiv(call.product.m, rows_);
  }

  absl::Status Fetch(KernelSet::State& state) {
    fns_.resize(static_cast<size_t>(rows_ + 1) * kWidths);
    for (const SumCall& call : calls_) {
      for (const int64_t rows : {call.product.m < rows_ ? int64_t{0} : rows_, call.product.m % rows_}) {
        if (rows == 0) continue;
        for (int nv = columns_.MinVectors(); nv <= columns_.MaxVectors(); ++nv) {
          WEFT_ASSIGN_OR_RETURN(Fn(rows, nv),
                                state.Micro({types_.micro, MicroForm::kColumns, static_cast<int>(rows), nv}));
        }
      }
    }
    return absl::OkStatus();
  }

  void AddNeeds(ScratchNeeds& needs) const {
    needs.Each(ScratchSlot::kPackA, BytesOfA(tiles_));
    needs.Each(ScratchSlot::kPackB, BytesOfPanel());
  }

  absl::Status Run(ThreadPool& pool) {
    pool.ParallelRanges(tiles_, [&](int64_t begin, int64_t end, int) { Part(begin, end); });
    return out_of_memory_.load(std::memory_order_relaxed)
               ? OutOfScratch("a matrix product's packed blocks", BytesOfA(tiles_) + BytesOfPanel())
               : absl::OkStatus();
  }

 private:
  static constexpr size_t kWidths = 4;

  MicroFn*& Fn(int64_t rows, int vectors) {
    return fns_[static_cast<size_t>(rows) * kWidths + static_cast<size_t>(vectors - 1)];
  }
  int64_t BytesOfA(int64_t tiles) const { return tiles * rows_ * first_.k * types_.source_bytes; }
  int64_t BytesOfPanel() const {
    return int64_t{columns_.MaxVectors()} * columns_.lanes * first_.k * types_.source_bytes;
  }

  // Calls fn with the tiles [begin, end) of all products, one product after the other.
  template <typename Fn>
  void ForEachStretch(int64_t begin, int64_t end, Fn fn) const {
    int64_t at = 0;
    for (size_t i = 0; i < calls_.size(); ++i) {
      const int64_t m = calls_[i].product.m, tiles = CeilDiv(m, rows_);
      const int64_t from = std::max(begin - at, int64_t{0}), to = std::min(end - at, tiles);
      if (from < to) {
        const int64_t whole = std::min(to, m / rows_);
        fn(Stretch{i, from * rows_, std::max(whole - from, int64_t{0}), to > whole ? m % rows_ : 0});
      }
      at += tiles;
    }
  }

  void Part(int64_t begin, int64_t end) {
    char* const packed_a = static_cast<char*>(ThreadScratch(ScratchSlot::kPackA, BytesOfA(end - begin)));
    char* const packed_b = static_cast<char*>(ThreadScratch(ScratchSlot::kPackB, BytesOfPanel()));
    if (packed_a == nullptr || packed_b == nullptr) return out_of_memory_.store(true, std::memory_order_relaxed);
    char* to = packed_a;
    ForEachStretch(begin, end, [&](const Stretch& stretch) {
      for (int64_t tile = 0; tile <= stretch.tiles; ++tile) {
        const int64_t rows = tile < stretch.tiles ? rows_ : stretch.rest;
        PackA(calls_[stretch.product].product, stretch.row + tile * rows_, rows, to);
        to += rows * first_.k * types_.source_bytes;
      }
      TakeOver(stretch);
    });
    PieceLook look(static_cast<double>((end - begin) * rows_ * first_.k) * columns_.MaxVectors() * columns_.lanes);
    for (int64_t panel = 0; panel < columns_.panels && !look.Ends(); ++panel) {
      PackPanel(panel, packed_b);
      const char* a = packed_a;
      ForEachStretch(begin, end, [&](const Stretch& stretch) {
        Add(stretch, stretch.row, rows_, stretch.tiles, panel, a, packed_b);
        a += stretch.tiles * rows_ * first_.k * types_.source_bytes;
        Add(stretch, stretch.row + stretch.tiles * rows_, stretch.rest, 1, panel, a, packed_b);
        a += stretch.rest * first_.k * types_.source_bytes;
      });
    }
  }

  void PackA(const GemmCall& call, int64_t row, int64_t rows, char* to) const {
    const char* const from = static_cast<const char*>(call.a.data) + row * call.a.row_stride * types_.source_bytes;
    if (rows > 0) Pack(target_, types_.pack, {from, call.a.col_stride, call.a.row_stride}, call.k, rows, rows, to);
  }
  void PackPanel(int64_t panel, char* to) const {
    const int64_t column = columns_.First(panel) * columns_.lanes;
    const char* const from =
        static_cast<const char*>(first_.b.data) + column * first_.b.col_stride * types_.source_bytes;
    Pack(target_, types_.pack, {from, first_.b.row_stride, first_.b.col_stride}, first_.k, columns_.Columns(panel),
         int64_t{columns_.Vectors(panel)} * columns_.lanes, to);
  }

  // Where the sums so far lie elsewhere.
  void TakeOver(const Stretch& stretch) const {
    const SumCall& call = calls_[stretch.product];
    if (call.before == call.product.c) return;
    const int64_t bytes = RowStride(call.product) * types_.accumulator_bytes;
    for (int64_t row = stretch.row; row < stretch.row + stretch.tiles * rows_ + stretch.rest; ++row) {
      std::memcpy(static_cast<char*>(call.product.c) + row * bytes, static_cast<const char*>(call.before) + row * bytes,
                  static_cast<size_t>(call.product.n * types_.accumulator_bytes));
    }
  }

  void Add(const Stretch& stretch, int64_t row, int64_t rows, int64_t tiles, int64_t panel, const char* a,
           const char* b) {
    if (rows == 0 || tiles == 0) return;
    const GemmCall& call = calls_[stretch.product].product;
    const int64_t stride = RowStride(call) * types_.accumulator_bytes, zero = 0;
    std::array<void*, 16> c;
    for (int64_t r = 0; r < rows; ++r) c[static_cast<size_t>(r)] = static_cast<char*>(call.c) + (row + r) * stride;
    const void* const pointer = a;
    MicroArgs args;
    args.k = call.k;
    args.a = &pointer;
    args.a_stride = rows * types_.source_bytes;
    args.a_step = rows * call.k * types_.source_bytes;
    args.b = b;
    args.b_offsets = &zero;
    args.b_stride = int64_t{columns_.Vectors(panel)} * columns_.lanes * types_.source_bytes;
    args.c = c.data();
    args.c_offset = columns_.First(panel) * columns_.lanes * types_.accumulator_bytes;
    args.c_step = rows * stride;
    args.tiles = tiles;
    args.asks_c = 1;
    args.last_lanes = columns_.LastLanes(panel);
    args.accumulate = 1;
    Fn(rows, columns_.Vectors(panel))(&args);
  }

  const CpuTarget& target_;
  const std::span<const SumCall> calls_;
  const GemmCall& first_;
  const TypePlan& types_;
  ColumnCut columns_;
  int64_t rows_ = 1, tiles_ = 0;  // of a tile; of all products
  std::vector<MicroFn*> fns_;
  std::atomic<bool> out_of_memory_{false};
};

absl::Status Check(const CpuTarget& target, std::span<const SumCall> calls, TypePlan* types) {
  const GemmCall& first = calls[0].product;
  for (const SumCall& call : calls) {
    const GemmCall& one = call.product;
    const bool alike = one.n == first.n && one.k == first.k && one.input == first.input &&
                       one.b.row_stride == first.b.row_stride && one.b.col_stride == first.b.col_stride;
    if (!alike || !AddsSums(target, one) || !PlanTypes(target, one.input, one.output, types)) {
      return InternalError("sums of products that differ, or of what no tile adds");
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool AddsSums(const CpuTarget& target, const GemmCall& call) {
  TypePlan types;
  if (!PlanTypes(target, call.input, call.output, &types) || !types.direct || IsIntegers(types.micro) ||
      HasFewRows(call, types)) {
    return false;
  }
  const bool fits = call.k <= kMostSteps && call.m * call.k * types.source_bytes <= kMostBytes;
  return fits && call.k > 0 && call.m > 0 && call.n > 0 && call.batch_rank == 0 && !call.b_packed;
}

absl::Status KernelSet::AddSums(std::span<const SumCall> calls, ThreadPool& pool) {
  if (calls.empty()) return absl::OkStatus();
  TypePlan types;
  WEFT_RETURN_IF_ERROR(Check(target(), calls, &types));
  Adder adder(target(), calls, types);
  WEFT_RETURN_IF_ERROR(adder.Fetch(*state_));
  return adder.Run(pool);
}

absl::Status KernelSet::PrepareSums(std::span<const SumCall> calls, ScratchNeeds& needs) {
  if (calls.empty()) return absl::OkStatus();
  TypePlan types;
  WEFT_RETURN_IF_ERROR(Check(target(), calls, &types));
  Adder adder(target(), calls, types);
  adder.AddNeeds(needs);
  return adder.Fetch(*state_);
}

}  // namespace weft::cpu
