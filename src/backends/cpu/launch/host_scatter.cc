// Scatter on the launch list. Each place of the result belongs to one thread, which takes the updates in their order, so threads
// change no bits. Rows go by the loops of kernels/scatter/scatter_rows.h.
#include "src/backends/cpu/launch/host_scatter.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "src/backends/cpu/kernels/scatter/scatter_rows.h"
#include "src/backends/cpu/kernels/scratch.h"
#include "src/backends/cpu/kernels/tiles/halves.h"
#include "src/backends/cpu/launch/box_rows.h"
#include "src/backends/cpu/launch/box_walk.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/launch/merge_sort.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kBlock = 1024;            // boxes that are looked up at once
constexpr int64_t kInlineBytes = 64 << 10;  // of updates, which one thread adds as quickly
constexpr int64_t kLine = 64;               // bytes that no two threads should write

DType UnsignedOf(int64_t bytes) {
  switch (bytes) {
    case 1: return DType::kU8;
    case 2: return DType::kU16;
    case 4: return DType::kU32;
    case 8: return DType::kU64;
    default: return DType::kInvalid;
  }
}

// Sets what the rows of a block lost to 0.
template <typename T>
void Clear(const RowBlock& b) {
  for (int64_t i = 0; i < b.count; ++i) std::fill_n(static_cast<T*>(b.lost) + b.to[b.rows[i]], b.run, T{0});
}

// --- updates in their order

struct Scatter {
  const BoxCall& call;
  std::span<void* const> tensors;
  const char* updates;
  char* result;
  char* lost;  // null: forgotten
  int64_t bytes;

  int64_t LostBytes() const { return (call.lost == BoxCall::kOfRegion ? 1 : call.lost) * bytes; }  // of an element
};

// How two of them combine: rows, and where elements are placed by one number of 32 or 64 bits each, these.
struct Combiner {
  CombineRows rows = nullptr;
  CombinePoints points = nullptr;
};

// How rows are dealt to threads: by parts that share no place, by columns, or by places.
enum class Deal { kOne, kRegions, kColumns, kPlaces };

Deal DealOf(const Scatter& s, const BoxRows& r, bool points, int64_t threads) {
  constexpr int64_t kManyThreads = 4;  // that each look at all elements, and take theirs, sooner than one takes all
  const int64_t row = r.run * s.bytes, regions = r.pieces * r.regions;
  if (threads == 1 || r.boxes * r.pieces * row < kInlineBytes) return Deal::kOne;
  if (regions >= threads) return Deal::kRegions;
  if (points && threads < kManyThreads) return Deal::kOne;
  if (s.call.lost == BoxCall::kOfRegion) return Deal::kRegions;
  if (row >= 2 * kLine * threads && r.PlacesOf().rows < 16 * threads) return Deal::kColumns;
  return r.boxes > 1 ? Deal::kPlaces : Deal::kOne;
}

class RowsInOrder {
 public:
  RowsInOrder(const Scatter& s, const BoxRows& rows, bool points, int64_t threads)
      : s_(s), r_(rows), deal_(DealOf(s, rows, points, threads)), shares_(deal_ == Deal::kOne ? 1 : threads) {
    // Neighbouring places that share a line go to one thread.
    while ((int64_t{2} << shift_) <= std::max(r_.run, 2 * kLine / s_.bytes)) ++shift_;
  }

  void Run(ThreadPool& pool, const Combiner& with, bool clears = false) const {
    if (shares_ == 1) return Share(with, 0, clears);
    pool.ParallelFor(shares_, [&](int64_t share) { Share(with, share, clears); });
  }

 private:
  struct Columns {
    int64_t first = 0, count = 0;
  };

  // `clears`: what a region's sums lose is in scratch, and nothing at first.
  void Share(const Combiner& with, int64_t share, bool clears) const {
    const int64_t boxes = r_.boxes / r_.regions, regions = r_.pieces * r_.regions;
    int64_t region = 0, last = regions;
    Columns columns = {0, r_.run};
    if (deal_ == Deal::kRegions) {
      region = regions * share / shares_;
      last = regions * (share + 1) / shares_;
    }
    if (deal_ == Deal::kColumns) {
      const int64_t line = kLine / s_.bytes;
      columns.first = r_.run * share / shares_ / line * line;
      if (share + 1 < shares_) columns.count = r_.run * (share + 1) / shares_ / line * line;
      columns.count -= columns.first;
    }
    const int64_t lost_bytes = clears ? r_.RegionElements() * s_.bytes : 0;
    char* const scratch = clears ? static_cast<char*>(ThreadScratch(ScratchSlot::kSums, lost_bytes)) : nullptr;
    if (clears && scratch == nullptr) return;  // the launch says so
    PieceLook look(static_cast<double>(boxes * (columns.count * s_.bytes + 8)));
    for (int64_t next = region; region < last && !look.Ends(); region = next) {
      const int64_t piece = region / r_.regions, first = region % r_.regions;
      next = clears ? region + 1 : std::min(last, region - first + r_.regions);
      const BoxRows::Piece at = r_.PieceAt(piece);
      char* lost = s_.lost + at.operand * s_.LostBytes();
      if (clears) {
        std::memset(scratch, 0, static_cast<size_t>(lost_bytes));
        lost = scratch - r_.RegionAt(first) * s_.bytes;
      }
      const int64_t begin = first * boxes, end = (first + next - region) * boxes;
      if (with.points != nullptr && deal_ != Deal::kPlaces) {
        Points(with.points, at, lost, begin, end);
      } else {
        Boxes(with.rows, at, lost, {begin, end}, columns, share);
      }
    }
  }

  bool Has(int64_t share, int64_t place) const {
    if (deal_ != Deal::kPlaces) return true;
    const uint32_t spread = static_cast<uint32_t>(place >> shift_) * 0x9E3779B1u;  // regular patterns, too
    return static_cast<int64_t>(static_cast<uint64_t>(spread) * static_cast<uint64_t>(shares_) >> 32) == share;
  }

  struct Range {
    int64_t begin = 0, end = 0;
  };
  void Boxes(CombineRows combine, const BoxRows::Piece& at, char* lost, Range boxes, Columns columns,
             int64_t share) const {
    int64_t to[kBlock];
    int32_t rows[kBlock];
    PieceLook look(static_cast<double>(kBlock * (columns.count * s_.bytes + 8)));
    for (int64_t begin = boxes.begin; begin < boxes.end; begin += kBlock) {
      if (look.Ends()) return;
      const int64_t count = std::min(kBlock, boxes.end - begin);
      r_.Find(s_.tensors, s_.call.index_type, begin, count, to);
      RowBlock block;
      for (int64_t i = 0; i < count; ++i) {
        rows[block.count] = static_cast<int32_t>(i);
        block.count += to[i] >= 0 && Has(share, to[i]);
      }
      block.result = s_.result + (at.operand + columns.first) * s_.bytes;
      block.updates = s_.updates + (at.box + begin * r_.step + columns.first) * s_.bytes;
      block.lost = lost + columns.first * LostBytes();
      block.to = to;
      block.rows = rows;
      block.step = r_.step;
      block.run = columns.count;
      combine(block);
    }
  }

  void Points(CombinePoints combine, const BoxRows::Piece& at, char* lost, int64_t begin, int64_t end) const {
    constexpr int64_t kAtOnce = 1 << 16;
    const BoxCall::Component& k = r_.corner[0];
    const int64_t length = r_.batch.empty() ? 1 : r_.batch.back().size, index_bytes = BytesOf(s_.call.index_type);
    PieceLook look(static_cast<double>(std::min(length, kAtOnce) * 8));
    PointRun run;
    run.limit = k.limit;
    run.index_step = r_.index_step;
    run.step = r_.step;
    run.stride = k.operand_stride;
    run.along = r_.batch.empty() ? 0 : r_.batch.back().operand_stride;
    for (int64_t n = begin; n < end && !look.Ends(); n += run.count) {
      const int64_t base = r_.BaseOf(n);
      run.count = std::min({end - n, length - n % length, kAtOnce});
      run.result = s_.result + (at.operand + base) * s_.bytes;
      run.updates = s_.updates + (at.box + n * r_.step) * s_.bytes;
      run.lost = lost + base * LostBytes();
      run.indices = static_cast<const char*>(s_.tensors[k.tensor]) + (n * r_.index_step + k.offset) * index_bytes;
      combine(run);
    }
  }
  int64_t LostBytes() const { return s_.LostBytes(); }

  const Scatter& s_;
  const BoxRows& r_;
  const Deal deal_;
  const int64_t shares_;
  int shift_ = 0;
};

// Boxes that may lie half outside, and those that may overlap: one after another on one thread.
void CombineOneByOne(const Scatter& s, CombineRows combine) {
  const int64_t zero = 0;
  const int32_t first = 0;
  ForEachRunInside(s.call, s.tensors, [&](int64_t to, int64_t from, int64_t run) {
    RowBlock block;
    block.result = s.result + to * s.bytes;
    block.updates = s.updates + from * s.bytes;
    block.lost = s.lost + to * s.LostBytes();
    block.to = &zero;
    block.rows = &first;
    block.count = 1;
    block.run = run;
    combine(block);
  });
}

// The loops for a call; of floats that are rounded once, none.
Combiner CombinerOf(const Scatter& s, const std::optional<BoxRows>& rows, Isa isa) {
  const ScatterKernels& kernels = ScatterKernelsOf(isa);
  const BoxCall& c = s.call;
  const auto how = static_cast<Combine>(std::clamp<int64_t>(c.reducer, 0, BoxCall::kSet));
  const DType dtype = how == Combine::kSet ? UnsignedOf(s.bytes) : c.dtype;
  const bool wide = c.index_type == DType::kI64;
  const bool points =
      rows && rows->run == 1 && rows->corner.size() == 1 && !c.move_inside && (wide || c.index_type == DType::kI32);
  Combiner with;
  if (c.lost == BoxCall::kForgotten) {
    with.rows = kernels.combine(dtype, how);
    if (points) with.points = PointsOf(dtype, how, wide);
  } else if (c.lost == BoxCall::kBeside) {
    with.rows = kernels.add_beside(c.dtype);
    if (points) with.points = AddPointsBeside(c.dtype, wide);
  } else {
    with.rows = kernels.add_apart(c.dtype);
    if (points) with.points = AddPointsApart(c.dtype, wide);
  }
  return with;
}

// Sums and what they lost, side by side while terms are added.
template <typename T>
void AddBeside(const Scatter& s, ThreadPool& pool, absl::FunctionRef<void()> add) {
  T* const result = reinterpret_cast<T*>(s.result);
  T* const sums = reinterpret_cast<T*>(s.lost);
  const auto all = [&](auto one) {
    constexpr int64_t kAtOnce = 1 << 14;
    const int64_t elements = s.call.elements;
    pool.ParallelFor((elements + kAtOnce - 1) / kAtOnce, [&](int64_t p) {
      if (LaunchEnds()) return;
      const int64_t end = std::min(elements, (p + 1) * kAtOnce);
      for (int64_t i = p * kAtOnce; i < end; ++i) one(i);
    });
  };
  all([&](int64_t i) {
    sums[2 * i] = result[i];
    sums[2 * i + 1] = 0;
  });
  add();
  all([&](int64_t i) { result[i] = sums[2 * i]; });
}

void ClearAll(const Scatter& s, ThreadPool& pool) {
  constexpr int64_t kAtOnce = 256 << 10;
  const int64_t bytes = s.call.elements * s.bytes;
  pool.ParallelFor((bytes + kAtOnce - 1) / kAtOnce, [&](int64_t p) {
    if (!LaunchEnds())
      std::memset(s.lost + p * kAtOnce, 0, static_cast<size_t>(std::min(kAtOnce, bytes - p * kAtOnce)));
  });
}

// --- updates by the rows that they name

using Item = Keyed<uint32_t>;

// The numbers of rows that boxes are, in place of the elements where they begin.
struct RowNumbers {
  RowNumbers(const BoxRows& boxes, const BoxRows::Places& places, DType index_type, std::span<void* const> tensors)
      : rows(boxes), unit(places.unit), index_type(index_type), tensors(tensors) {
    for (BoxCall::Along& b : rows.batch) b.operand_stride /= unit;
    for (BoxCall::Component& k : rows.corner) k.operand_stride /= unit;
  }
  void Find(int64_t begin, int64_t count, int64_t* to) const { rows.Find(tensors, index_type, begin, count, to); }

  BoxRows rows;
  int64_t unit;
  DType index_type;
  std::span<void* const> tensors;
};

class RowScatter {
 public:
  // `from`: updates are rows of another tensor, which a gather would have copied; null: they lie one after another.
  RowScatter(const HostCall& call, const BoxCall& c, const BoxRows& rows, const RowSort& sort,
             const RowNumbers* from = nullptr)
      : c_(c),
        rows_(rows),
        keys_(rows, sort.places, c.index_type, call.buffers.subspan(1, 1)),
        sort_(sort),
        from_(from),
        pool_(call.pool),
        kernels_(call.kernels.target().isa) {
    updates_ = static_cast<const char*>(call.buffers[0]);
    if (call.buffers.size() > 4 && from == nullptr) rate_ = call.buffers[2];
    result_ = static_cast<char*>(call.buffers[call.buffers.size() - 2]);
    items_ = static_cast<Item*>(call.buffers.back());
    other_ = items_ + sort.boxes;
    counts_ = reinterpret_cast<uint32_t*>(other_ + sort.boxes);
  }

  void Run() {
    const bool small = rows_.boxes * rows_.pieces * rows_.run * BytesOf(c_.dtype) < kInlineBytes;
    const auto deal = [&](int64_t count, auto f) {
      if (small) {
        for (int64_t i = 0; i < count; ++i) f(i);
      } else {
        pool_.ParallelFor(count, f);
      }
    };
    deal(sort_.parts, [&](int64_t p) { NameRows(p); });
    if (LaunchEnds()) return;  // positions may be anything
    count_ = sort_.boxes;
    for (int64_t p = 0; p < sort_.parts; ++p) count_ -= parts_[p].outside;
    if (!AreSorted()) {
      AddUp();
      deal(sort_.parts, [&](int64_t p) { FillBuckets(p); });
      if (LaunchEnds()) return;
      deal(sort_.buckets, [&](int64_t b) { SortBucket(b); });
      if (LaunchEnds()) return;
    }
    const int64_t shares = small ? 1 : pool_.threads();
    deal(shares, [&](int64_t share) { AddShare(share, shares); });
  }

 private:
  struct Part {
    uint32_t first = 0, last = 0;
    int64_t outside = 0;
    bool sorted = true;
  };
  int64_t BeginOf(int64_t part) const { return sort_.boxes * part / sort_.parts; }
  uint32_t* CountsOf(int64_t part) const { return counts_ + part * sort_.buckets; }

  // Makes the items of one part of the boxes, and counts them by bucket.
  void NameRows(int64_t p) {
    const int64_t begin = BeginOf(p), end = BeginOf(p + 1);
    uint32_t* const counts = CountsOf(p);
    std::fill_n(counts, sort_.buckets, 0);
    Part part;
    int64_t to[kBlock], from[kBlock];
    PieceLook look(kBlock * 8);
    for (int64_t n = begin; n < end; n += kBlock) {
      if (look.Ends()) return;
      const int64_t count = std::min(kBlock, end - n);
      keys_.Find(n, count, to);
      if (from_ != nullptr) from_->Find(n, count, from);
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t row = static_cast<uint32_t>(to[i] < 0 ? sort_.places.rows : to[i]);
        items_[n + i] = {row, static_cast<uint32_t>(from_ != nullptr ? from[i] : n + i)};
        ++counts[row >> sort_.shift];
        part.outside += to[i] < 0;
        part.sorted &= row >= part.last;
        part.last = row;
      }
    }
    if (begin < end) part.first = items_[begin].key;
    parts_[static_cast<size_t>(p)] = part;
  }

  bool AreSorted() const {
    for (int64_t p = 0; p < sort_.parts; ++p) {
      if (!parts_[p].sorted || (p > 0 && parts_[p].first < parts_[p - 1].last)) return false;
    }
    return true;
  }

  // Turns counts into places: bucket by bucket, in each part by part.
  void AddUp() {
    uint32_t sum = 0;
    for (int64_t b = 0; b < sort_.buckets; ++b) {
      for (int64_t p = 0; p < sort_.parts; ++p) sum += std::exchange(CountsOf(p)[b], sum);
    }
  }

  void FillBuckets(int64_t p) {
    uint32_t* const next = CountsOf(p);
    InPieces(BeginOf(p), BeginOf(p + 1), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) other_[next[items_[n].key >> sort_.shift]++] = items_[n];
    });
  }

  // The last part's counts have become the ends of buckets.
  void SortBucket(int64_t b) {
    constexpr int kCountedBits = 9;
    const uint32_t* const ends = CountsOf(sort_.parts - 1);
    const int64_t begin = b > 0 ? ends[b - 1] : 0, n = ends[b] - begin;
    Item *const from = other_ + begin, *const to = items_ + begin;
    if (sort_.shift <= kCountedBits && n <= kSortedAtOnce) {  // row by row
      uint32_t next[1 << kCountedBits];
      const uint32_t rows = 1u << sort_.shift, mask = rows - 1;
      std::fill_n(next, rows, 0);
      for (int64_t i = 0; i < n; ++i) ++next[from[i].key & mask];
      uint32_t sum = 0;
      for (uint32_t r = 0; r < rows; ++r) sum += std::exchange(next[r], sum);
      for (int64_t i = 0; i < n; ++i) to[next[from[i].key & mask]++] = from[i];
      return;
    }
    constexpr int64_t kFew = 48;  // which are sorted sooner than digits are counted
    const auto less = [](const Item& x, const Item& y) { return x.key < y.key; };
    const Item* const sorted = n < kFew ? MergeSort(from, to, n, less) : RadixSort(from, to, n, (sort_.shift + 7) / 8);
    if (!LaunchEnds() && sorted != to) CopyItems(sorted, to, 0, n);
  }

  // Where a share begins: among the items of one row, which several threads may have, at a column.
  struct Cut {
    int64_t first = 0, last = 0, column = 0;
  };
  Cut CutAt(int64_t share, int64_t shares) const {
    const int64_t at = count_ * share / shares, line = kLine / BytesOf(c_.dtype);
    if (at >= count_) return {count_, count_, 0};
    const auto less = [](const Item& a, const Item& b) { return a.key < b.key; };
    const auto [first, last] = std::equal_range(items_, items_ + count_, items_[at], less);
    Cut cut{first - items_, last - items_, 0};
    cut.column = rows_.run * (at - cut.first) / (cut.last - cut.first) / line * line;
    return cut;
  }

  void AddShare(int64_t share, int64_t shares) const {
    int64_t piece = 0, pieces = rows_.pieces;
    if (pieces >= shares) {
      piece = pieces * share / shares;
      pieces = pieces * (share + 1) / shares;
      share = 0;
      shares = 1;
    }
    const Cut from = CutAt(share, shares), to = CutAt(share + 1, shares);
    for (; piece < pieces && !LaunchEnds(); ++piece) {
      const BoxRows::Piece at = rows_.PieceAt(piece);
      if (from.first == to.first) {
        Add(at, from.first, from.last, from.column, to.column);
        continue;
      }
      if (from.column > 0) Add(at, from.first, from.last, from.column, rows_.run);
      Add(at, from.column > 0 ? from.last : from.first, to.first, 0, rows_.run);
      Add(at, to.first, to.last, 0, to.column);
    }
  }

  // Adds up columns [column, end) of some whole groups of items.
  void Add(const BoxRows::Piece& at, int64_t first, int64_t last, int64_t column, int64_t end) const {
    if (first >= last || column >= end) return;
    const int64_t bytes = BytesOf(c_.dtype);
    SortedRows s;
    s.dtype = c_.dtype;
    s.how = static_cast<Combine>(c_.reducer);
    s.keeps_lost = c_.lost != BoxCall::kForgotten;
    s.rate = rate_;
    s.result = result_ + (at.operand + column) * bytes;
    s.updates = updates_ + (at.box + column) * bytes;
    s.items = &items_[first].key;
    s.count = last - first;
    s.ahead = count_ - last;
    s.unit = sort_.places.unit;
    s.step = from_ != nullptr ? from_->unit : rows_.step;
    s.columns = end - column;
    s.ends = LaunchEnds;
    s.widen = HalvesKernelsOf(kernels_).widen;
    s.narrow = HalvesKernelsOf(kernels_).narrow;
    ScatterKernelsOf(kernels_).sorted(s);
  }

  const BoxCall& c_;
  const BoxRows& rows_;
  const RowNumbers keys_;
  const RowSort& sort_;
  const RowNumbers* const from_;
  ThreadPool& pool_;
  const Isa kernels_;
  const char* updates_;
  const void* rate_ = nullptr;
  char* result_;
  Item *items_, *other_;
  uint32_t* counts_;
  std::array<Part, RowSort::kMostParts> parts_;
  int64_t count_ = 0;  // of the items that lie inside
};

}  // namespace

// Buffers: updates, index tensors…, result (which holds the operand already), space for what sums lose.
absl::Status RunScatter(const HostCall& call) {
  const BoxCall c = DecodeBoxes(call.params);
  const bool has_space = HasSpace(c);
  const auto tensors = call.buffers.subspan(1, call.buffers.size() - 2 - has_space);
  const Scatter s{c,
                  tensors,
                  static_cast<const char*>(call.buffers[0]),
                  static_cast<char*>(call.buffers[tensors.size() + 1]),
                  has_space ? static_cast<char*>(call.buffers.back()) : nullptr,
                  BytesOf(c.dtype)};
  std::optional<BoxRows> rows = RowsOf(c, c.move_inside);
  if (rows && c.move_inside && rows->boxes > 1) rows.reset();  // such boxes may overlap by halves
  if (rows && rows->boxes * rows->pieces * rows->run == 0) return absl::OkStatus();
  const Combiner with = CombinerOf(s, rows, call.kernels.target().isa);
  if (with.rows == nullptr || (!rows && c.lost == BoxCall::kOfRegion))
    return InternalError("scatter of ", NameOf(c.dtype), " by reducer ", c.reducer);
  const auto each = [&](const Combiner& combiner) {
    if (!rows) return CombineOneByOne(s, combiner.rows);
    RowsInOrder(s, *rows, combiner.points != nullptr, call.pool.threads())
        .Run(call.pool, combiner, c.lost == BoxCall::kOfRegion);
  };
  const auto in_type = [&](auto run) { c.dtype == DType::kF64 ? run(double{}) : run(float{}); };
  if (c.lost == BoxCall::kBeside) {
    in_type([&]<typename T>(T) { AddBeside<T>(s, call.pool, [&] { each(with); }); });
    return absl::OkStatus();
  }
  if (c.lost == BoxCall::kApart) {
    const bool all = rows && 2 * c.elements <= rows->boxes * rows->pieces * rows->run;
    all ? ClearAll(s, call.pool) : in_type([&]<typename T>(T) { each({Clear<T>, nullptr}); });
  }
  each(with);
  return absl::OkStatus();
}

absl::Status PrepareScatter(const HostPreparation& call) {
  const BoxCall c = DecodeBoxes(call.params);
  if (c.lost != BoxCall::kOfRegion) return absl::OkStatus();
  const std::optional<BoxRows> rows = RowsOf(c, false);
  if (!rows) return InternalError("a scatter of regions that are none");
  call.needs.Each(ScratchSlot::kSums, rows->RegionElements() * BytesOf(c.dtype));
  return absl::OkStatus();
}

// Buffers: updates, indices, of a step the rate, result (which holds the operand already), space.
absl::Status RunScatterRows(const HostCall& call) {
  const BoxCall c = DecodeBoxes(call.params);
  const std::optional<BoxRows> rows = RowsOf(c, false);
  const std::optional<RowSort> sort = rows ? SortOf(*rows) : std::nullopt;
  if (!sort || !IsFloat(c.dtype)) return InternalError("a scatter of rows that are none");
  if (rows->boxes * rows->pieces * rows->run > 0) RowScatter(call, c, *rows, *sort).Run();
  return absl::OkStatus();
}

// Params: how many of the scatter's boxes, these, and the gather's boxes. Buffers: operand of the gather, indices, the gather's
// indices, result (which holds the scatter's operand already), space.
absl::Status RunScatterGathered(const HostCall& call) {
  const auto params = call.params.subspan(1);
  const auto n = static_cast<size_t>(std::clamp<int64_t>(call.params[0], 0, static_cast<int64_t>(params.size())));
  const BoxCall c = DecodeBoxes(params.first(n)), g = DecodeBoxes(params.subspan(n));
  const std::optional<BoxRows> rows = RowsOf(c, false), from = RowsOf(g, true);
  const std::optional<RowSort> sort = rows ? SortOf(*rows) : std::nullopt;
  if (!sort || !from || from->boxes != rows->boxes || !IsFloat(c.dtype))
    return InternalError("a scatter of gathered rows that are none");
  const RowNumbers numbers(*from, from->PlacesOf(), g.index_type, call.buffers.subspan(2, 1));
  if (rows->boxes * rows->run > 0) RowScatter(call, c, *rows, *sort, &numbers).Run();
  return absl::OkStatus();
}

}  // namespace weft::cpu
