// Drives convolution across channels: cuts every output line into runs of pixels that see the same taps, so that padding
// costs nothing, and hands them to the loops of conv_depthwise.h. Input lines are read in place where lanes and
// channels agree; else (halves, several channels a group) each thread keeps the lines under its window widened and
// spread to one value per lane.
#include "src/backends/cpu/kernels/conv/conv_depthwise.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/backends/cpu/kernels/conv/conv_gather.h"
#include "src/backends/cpu/kernels/conv/gathers.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/parallel_pieces.h"

namespace weft::cpu {
namespace {

constexpr int kInner = kMaxSpatialDims - 1;
constexpr int64_t kInlineProducts = 100'000;      // below it a parallel region costs more than it saves
constexpr int64_t kLineBytes = 128 << 10;         // of an output line's piece: the lines under its window stay in L2
constexpr int64_t kSpreadBytes = 256 << 10;       // of a thread's spread lines, likewise
constexpr int64_t kShortestPiece = 16;            // pixels
constexpr int64_t kMaxParts = 32;                 // sums of a kernel's gradient, added in order
constexpr int64_t kPartProducts = 200'000;        // work that is worth sums of its own
constexpr int64_t kPartBytes = int64_t{8} << 20;  // of all of them

int64_t CeilDivSigned(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

// Output pixels first, first + step, … along the innermost dimension; the i-th reads position at + i * in_step per tap.
struct PixelRun {
  struct Tap {
    int64_t stored = 0, at = 0;
  };
  int64_t first = 0, step = 1, count = 0, in_step = 1;
  std::vector<Tap> taps;
  bool lacks_first = false, lacks_last = false;  // see ChannelRun
};

std::vector<PixelRun> MakeRuns(const SpatialDim& dim) {
  std::vector<PixelRun> runs;
  const int64_t period = dim.lhs_dilation / std::gcd(dim.lhs_dilation, dim.stride);
  const int64_t in_step = period * dim.stride / dim.lhs_dilation;
  struct Reach {
    int64_t stored, at, begin, end;  // valid for pixels [begin, end) of the phase
  };
  std::vector<Reach> reaches;
  std::vector<int64_t> ends;
  for (int64_t phase = 0; phase < std::min(period, dim.out); ++phase) {
    const int64_t count = CeilDiv(dim.out - phase, period);
    reaches.clear();
    ends = {0, count};
    for (int64_t tap = 0; tap < dim.window; ++tap) {
      const int64_t spread = phase * dim.stride - dim.pad_lo + tap * dim.rhs_dilation;
      if (spread % dim.lhs_dilation != 0) continue;
      const int64_t at = spread / dim.lhs_dilation;
      const int64_t begin = std::max<int64_t>(0, CeilDivSigned(-at, in_step));
      const int64_t end = std::min(count, CeilDivSigned(dim.in - at, in_step));
      if (begin >= end) continue;
      reaches.push_back({WeightTap(dim, tap), at, begin, end});
      ends.push_back(begin);
      ends.push_back(end);
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    for (size_t i = 0; i + 1 < ends.size(); ++i) {
      PixelRun run{phase + ends[i] * period, period, ends[i + 1] - ends[i], in_step, {}};
      for (const Reach& reach : reaches) {
        if (reach.begin <= ends[i] && ends[i] < reach.end)
          run.taps.push_back({reach.stored, reach.at + ends[i] * in_step});
      }
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

// The channels of one direction: each of the groups reads `depth` and gives `lanes`.
struct GroupedChannels {
  int64_t groups, depth, lanes;
};

// One direction seen as lanes: every lane (an output channel of the gather) reads `depth` channels of its group. T is
// what is computed in, f32 or f64.
template <typename T>
class Channels {
 public:
  Channels(const ChannelKernels& kernels, DType input, int64_t batch, const Geometry& geometry,
           const GroupedChannels& channels, const void* from, bool direct = false)
      : kernels_(kernels),
        input_(input),
        batch_(batch),
        geometry_(geometry),
        depth_(channels.depth),
        from_channels_(channels.groups * channels.depth),
        lanes_(channels.groups * channels.lanes),
        from_(static_cast<const char*>(from)) {
    if constexpr (std::is_same_v<T, float>) {
      loops_ = kernels.f32;
    } else {
      loops_ = kernels.f64;
    }
    const int64_t depth = depth_, group_lanes = channels.lanes;
    read_bytes_ = direct ? BytesOf(input) : static_cast<int64_t>(sizeof(T));
    widens_ = BytesOf(input) != read_bytes_;
    spreads_ = depth > 1 || group_lanes > 1;
    pixel_ = depth * lanes_;
    if (spreads_) {
      index_.resize(pixel_);
      for (int64_t i = 0; i < pixel_; ++i) {
        index_[i] = static_cast<int32_t>(i % lanes_ / group_lanes * depth + i / lanes_);
      }
    }
    runs_ = MakeRuns(inner());
    if (depth == 1 && inner().lhs_dilation == 1 && inner().rhs_dilation == 1) rows_of_three_ = inner().stride;
    lines_ = geometry.out / std::max<int64_t>(1, inner().out);
    outer_taps_ = geometry.window / inner().window;
    for (int d = 0; d < kInner; ++d) {
      const SpatialDim& dim = geometry.dims[d];
      // Lines that one output line reads lie this close together, so that remainders tell them apart.
      near_[d] = std::min(dim.in, (dim.window - 1) * dim.rhs_dilation / dim.lhs_dilation + 1);
      slots_ *= near_[d];
    }
    const int64_t wanted = copies() ? kSpreadBytes / std::max<int64_t>(1, slots_ * pixel_ * Bytes()) *
                                          inner().lhs_dilation / inner().stride
                                    : kLineBytes / std::max<int64_t>(1, lanes_ * Bytes());
    pieces_ = CeilDiv(std::max<int64_t>(1, inner().out), std::max(kShortestPiece, wanted));
    for (int64_t p = 0; copies() && p < pieces_; ++p) {
      const auto [begin, end] = Positions(p);
      longest_ = std::max(longest_, end - begin);
    }
  }

  // One run of those that see rows of three and of the pixels beside them whose taps are those of which padding hides one.
  void JoinEdges() {
    if (rows_of_three_ == 0 || inner().window != 3) return;
    const auto middle =
        std::find_if(runs_.begin(), runs_.end(), [](const PixelRun& run) { return run.taps.size() == 3; });
    if (middle == runs_.end()) return;
    const auto edge = [&](const PixelRun& run, int tap) {
      return run.count == 1 && run.taps.size() == 2 && run.taps[0].stored == middle->taps[tap].stored;
    };
    const int64_t at = middle - runs_.begin(), runs = std::ssize(runs_);
    middle->lacks_last = at + 1 < runs && edge(middle[1], 0);
    middle->lacks_first = at > 0 && edge(middle[-1], 1);
    middle->count += middle->lacks_last + middle->lacks_first;
    if (middle->lacks_last) runs_.erase(middle + 1);
    if (!middle->lacks_first) return;
    middle->first -= 1;
    for (PixelRun::Tap& tap : middle->taps) tap.at -= middle->in_step;
    runs_.erase(middle - 1);
  }

  const SpatialDim& inner() const { return geometry_.dims[kInner]; }
  bool copies() const { return widens_ || spreads_; }
  int64_t units() const { return batch_ * lines_ * pieces_; }
  int64_t Products() const { return batch_ * geometry_.out * geometry_.window * pixel_; }
  int64_t weights() const { return geometry_.window * pixel_; }
  int64_t piece_pixels() const { return CeilDiv(inner().out, pieces_); }

  // The scratch of one share of a region.
  struct Share {
    const T** x = nullptr;
    T** w = nullptr;
    const T** outer = nullptr;        // lines that outer taps read, position 0
    int64_t* outer_stored = nullptr;  // those taps, as W counts them
    int64_t* tags = nullptr;          // which line a slot holds
    T* slots = nullptr;
    float* wide = nullptr;  // one line widened and not yet spread
    T* row = nullptr;       // one piece of an output line in T
    int64_t image = -1;     // batch member and piece that the slots belong to
  };
  void AddNeeds(ScratchNeeds& needs) const {
    needs.Each(ScratchSlot::kTables, TableBytes());
    if (copies()) needs.Each(ScratchSlot::kPackA, SlotBytes());
    if (widens_ && spreads_) needs.Each(ScratchSlot::kWiden, WideBytes());
    needs.Each(ScratchSlot::kOutput, RowBytes());
  }
  bool MakeShare(Share* share) const {
    const int64_t taps = geometry_.window * depth_;
    char* tables = static_cast<char*>(ThreadScratch(ScratchSlot::kTables, TableBytes()));
    if (tables == nullptr) return false;
    share->x = reinterpret_cast<const T**>(tables);
    share->w = reinterpret_cast<T**>(tables + taps * 8);
    share->outer = reinterpret_cast<const T**>(tables + 2 * taps * 8);
    share->outer_stored = reinterpret_cast<int64_t*>(tables + (2 * taps + outer_taps_) * 8);
    share->tags = share->outer_stored + outer_taps_;
    if (copies()) {
      share->slots = static_cast<T*>(ThreadScratch(ScratchSlot::kPackA, SlotBytes()));
      if (share->slots == nullptr) return false;
    }
    if (widens_ && spreads_) {
      share->wide = static_cast<float*>(ThreadScratch(ScratchSlot::kWiden, WideBytes()));
      if (share->wide == nullptr) return false;
    }
    share->row = static_cast<T*>(ThreadScratch(ScratchSlot::kOutput, RowBytes()));
    return share->row != nullptr;
  }

  struct Unit {
    int64_t member = 0, piece = 0, line = 0;
    int64_t begin = 0, end = 0;  // output pixels of the line
    int64_t row = 0;             // the first of them among all output pixels
  };
  // Lines of a piece follow each other, so that a thread's consecutive units share spread lines.
  Unit UnitAt(int64_t index) const {
    Unit unit;
    unit.line = index % lines_;
    unit.piece = index / lines_ % pieces_;
    unit.member = index / lines_ / pieces_;
    unit.begin = CutAt(inner().out, pieces_, unit.piece);
    unit.end = CutAt(inner().out, pieces_, unit.piece + 1);
    unit.row = (unit.member * lines_ + unit.line) * inner().out + unit.begin;
    return unit;
  }

  // Calls visit(run) for runs that cover the unit's pixels, `y` being the first of them and `w` the kernel in lanes, its
  // taps so far apart.
  template <typename Visit>
  void ForEachRun(Share& share, const Unit& unit, T* w, int64_t w_step, T* y, Visit visit) const {
    const int64_t outer = OuterTaps(share, unit);
    for (const PixelRun& pixels : runs_) {
      const int64_t i0 = std::max<int64_t>(0, CeilDivSigned(unit.begin - pixels.first, pixels.step));
      const int64_t i1 = std::min(pixels.count, CeilDivSigned(unit.end - pixels.first, pixels.step));
      if (i0 >= i1) continue;
      ChannelRun<T> run;
      for (int64_t o = 0; o < outer; ++o) {
        for (const PixelRun::Tap& tap : pixels.taps) {
          const T* const x = At(share.outer[o], (tap.at + i0 * pixels.in_step) * pixel_);
          T* const weights = w + (share.outer_stored[o] * inner().window + tap.stored) * w_step;
          for (int64_t k = 0; k < depth_; ++k) {
            share.x[run.taps] = At(x, k * lanes_);
            share.w[run.taps++] = weights + k * lanes_;
          }
        }
      }
      run.x = share.x;
      run.w = share.w;
      run.y = y + (pixels.first + i0 * pixels.step - unit.begin) * lanes_;
      run.pixels = i1 - i0;
      run.x_step = pixels.in_step * pixel_;
      run.y_step = pixels.step * lanes_;
      run.channels = lanes_;
      run.halves = read_bytes_ == 2;
      run.lacks_first = pixels.lacks_first && i0 == 0;
      run.lacks_last = pixels.lacks_last && i1 == pixels.count;
      run.stride = pixels.taps.size() == 3 && run.taps > 0 ? rows_of_three_ : 0;
      visit(run);
    }
  }

 private:
  static constexpr int64_t Bytes() { return sizeof(T); }
  // Pointers to what is read are T's by name, whatever it is.
  const T* At(const T* from, int64_t elements) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(from) + elements * read_bytes_);
  }
  int64_t TableBytes() const { return (2 * geometry_.window * depth_ + 2 * outer_taps_ + slots_) * 8; }
  int64_t SlotBytes() const { return slots_ * longest_ * pixel_ * Bytes() + 64; }
  int64_t WideBytes() const { return longest_ * from_channels_ * 4 + 64; }
  int64_t RowBytes() const { return piece_pixels() * lanes_ * Bytes() + 64; }

  // Input positions along the innermost dimension that a piece reads.
  std::pair<int64_t, int64_t> Positions(int64_t piece) const {
    const SpatialDim& dim = inner();
    const int64_t begin = CutAt(dim.out, pieces_, piece), end = CutAt(dim.out, pieces_, piece + 1);
    if (begin == end) return {0, 0};
    const int64_t low = CeilDivSigned(begin * dim.stride - dim.pad_lo, dim.lhs_dilation);
    const int64_t last = (end - 1) * dim.stride - dim.pad_lo + (dim.window - 1) * dim.rhs_dilation;
    const int64_t high = CeilDivSigned(last + 1, dim.lhs_dilation);
    return {std::clamp<int64_t>(low, 0, dim.in), std::clamp<int64_t>(std::max(low, high), 0, dim.in)};
  }

  // The outer taps of the unit's line that read no padding; returns how many.
  int64_t OuterTaps(Share& share, const Unit& unit) const {
    const int64_t image = unit.member * pieces_ + unit.piece;
    if (share.image != image) {
      share.image = image;
      std::fill(share.tags, share.tags + slots_, -1);
    }
    Odometer o;
    o.Set(unit.line, [&](int d) { return d == kInner ? 1 : geometry_.dims[d].out; });
    int64_t count = 0;
    for (int64_t tap = 0; tap < outer_taps_; ++tap) {
      Odometer t;
      t.Set(tap, [&](int d) { return d == kInner ? 1 : geometry_.dims[d].window; });
      int64_t line = 0, stored = 0, slot = 0;
      bool inside = true;
      for (int d = 0; d < kInner && inside; ++d) {
        const int64_t at = InputPosition(geometry_.dims[d], o.at[d], t.at[d]);
        inside = at >= 0;
        if (!inside) break;
        line = line * geometry_.dims[d].in + at;
        slot = slot * near_[d] + at % near_[d];
        stored = stored * geometry_.dims[d].window + WeightTap(geometry_.dims[d], t.at[d]);
      }
      if (!inside) continue;
      share.outer_stored[count] = stored;
      share.outer[count++] = Line(share, unit, line, slot);
    }
    return count;
  }

  // Position 0 of an input line, as lanes read it.
  const T* Line(Share& share, const Unit& unit, int64_t line, int64_t slot) const {
    const int64_t start = (unit.member * (geometry_.in / std::max<int64_t>(1, inner().in)) + line) * inner().in;
    if (!copies()) return At(reinterpret_cast<const T*>(from_), start * pixel_);
    const auto [begin, end] = Positions(unit.piece);
    T* const held = share.slots + slot * longest_ * pixel_;
    if (share.tags[slot] != line) {
      share.tags[slot] = line;
      const char* source = from_ + (start + begin) * from_channels_ * BytesOf(input_);
      if constexpr (std::is_same_v<T, float>) {
        if (widens_) {
          float* wide = spreads_ ? share.wide : held;
          kernels_.halves->widen(input_, reinterpret_cast<const uint16_t*>(source), (end - begin) * from_channels_,
                                 wide);
          source = reinterpret_cast<const char*>(wide);
        }
      }
      if (spreads_) {
        loops_.spread({reinterpret_cast<const T*>(source), held, end - begin, from_channels_, pixel_, index_.data()});
      }
    }
    return held - begin * pixel_;
  }

  const ChannelKernels& kernels_;
  ChannelKernels::Of<T> loops_;
  DType input_;
  int64_t batch_;
  Geometry geometry_;
  int64_t depth_, from_channels_, lanes_;
  const char* from_;
  bool widens_ = false, spreads_ = false;
  int64_t read_bytes_ = sizeof(T);  // of an element that loops read
  int64_t rows_of_three_ = 0;       // ChannelRun::stride where runs see three taps
  int64_t pixel_ = 0;               // elements of an input pixel, as lanes read it: depth x lanes
  std::vector<int32_t> index_;      // the channel that each of them is
  std::vector<PixelRun> runs_;
  int64_t lines_ = 0, outer_taps_ = 1, slots_ = 1, pieces_ = 1;
  int64_t longest_ = 0;  // input positions that a piece reads, at most
  int64_t near_[kInner] = {};
};

// `whole`: neighbours share what a thread has copied.
template <typename Fn>
void Deal(int64_t count, int64_t products, bool whole, ThreadPool& pool, Fn fn) {
  if (products < kInlineProducts) {
    fn(0, count, 0);
  } else {
    constexpr int64_t kPieceProducts = 20'000, kMostPieces = 64;
    const int64_t pieces = whole ? 1 : std::min(kMostPieces, products / kPieceProducts / pool.threads());
    ParallelPieces(pool, count, pieces, fn);
  }
}

// Tells whether the epilogue runs where sums are in registers. Loops there round as if a NaN had no low digits; sums of
// bf16 have none, and the other numbers are checked.
bool Ends(const GatherCall& call) {
  if (call.ending.kind != EndingKind::kAffine || (call.output != DType::kF32 && call.output != DType::kBF16))
    return false;
  if (call.output == DType::kF32) return call.input == DType::kF32;
  for (const float* numbers : {call.ending.factor, call.ending.summand}) {
    if (std::any_of(numbers, numbers + call.ToChannels(), [](float x) { return x != x; })) return false;
  }
  return true;
}

constexpr char kWhat[] = "a convolution's lines and sums";

// The kernel as [tap, channel of the group, lane], taps `tap_lanes` apart; halves are widened behind its `count` elements.
template <typename T>
void MoveKernel(const ChannelKernels& kernels, const GatherCall& call, bool pairs, int64_t tap_lanes, int64_t count,
                T* w) {
  const int64_t taps = call.geometry.window;
  const T* source = static_cast<const T*>(call.weights);
  if constexpr (std::is_same_v<T, float>) {
    const auto* const narrow = static_cast<const uint16_t*>(call.weights);
    for (int64_t tap = 0; pairs && tap < taps; ++tap) {
      kernels.pair_row(narrow + tap * call.tap_stride, call.ToChannels(), w + tap * tap_lanes);
    }
    if (pairs) return;
    if (BytesOf(call.input) != sizeof(T)) {
      kernels.halves->widen(call.input, narrow, count, w + count);
      source = w + count;
    }
  }
  for (int64_t tap = 0; tap < taps; ++tap) {
    for (int64_t k = 0; k < call.group_from; ++k) {
      for (int64_t g = 0; g < call.groups; ++g) {
        const T* from = source + tap * call.tap_stride + k * call.from_stride + g * call.group_stride;
        for (int64_t o = 0; o < call.group_to; ++o) *w++ = from[o * call.to_stride];
      }
    }
  }
}

template <typename T>
absl::Status Gather(const ChannelKernels& kernels, const ChannelKernels::Of<T>& loops, bool converts,
                    const GatherCall& call, const Duty& duty) {
  const int64_t lanes = call.ToChannels();
  // A bf16 is widened where it is read, if lanes and channels agree.
  const bool direct =
      std::is_same_v<T, float> && call.input == DType::kBF16 && call.group_from == 1 && call.group_to == 1;
  Channels<T> channels(kernels, call.input, call.batch, call.geometry, {call.groups, call.group_from, call.group_to},
                       call.from, direct);
  const bool halves = BytesOf(call.input) != sizeof(T), narrow = BytesOf(call.output) != sizeof(T);
  // The kernel often lies as lanes read it.
  const bool moves = halves || call.tap_stride != call.group_from * lanes ||
                     (call.group_from > 1 && call.from_stride != lanes) || call.group_stride != call.group_to ||
                     (call.group_to > 1 && call.to_stride != 1);
  const int64_t count = channels.weights(), taps = call.geometry.window;
  const int64_t weight_bytes = 2 * (count + taps * kernels.pairs) * static_cast<int64_t>(sizeof(T));
  if (duty.pool == nullptr) {
    if (moves) duty.needs->Once(ScratchSlot::kShared, weight_bytes);
    channels.AddNeeds(*duty.needs);
    return absl::OkStatus();
  }
  const bool ends = Ends(call);
  const bool pairs = direct && ends && call.output == DType::kBF16 && kernels.gather_pairs != nullptr &&
                     lanes >= kernels.pairs && call.group_stride == 1;
  auto* const gather_pairs = pairs && converts && call.DenormalsVanish() ? GatherPairsBF16 : kernels.gather_pairs;
  if (pairs) channels.JoinEdges();
  const int64_t tap_lanes = pairs ? CeilDiv(lanes, kernels.pairs) * kernels.pairs : call.group_from * lanes;
  T* w = static_cast<T*>(const_cast<void*>(call.weights));
  if (moves) {
    w = static_cast<T*>(ThreadScratch(ScratchSlot::kShared, weight_bytes));
    if (w == nullptr) return OutOfScratch(kWhat, weight_bytes);
    MoveKernel(kernels, call, pairs, tap_lanes, count, w);
  }
  void* const to = ends ? call.ending.to : call.to;
  std::atomic<bool> out_of_memory{false};
  Deal(channels.units(), channels.Products(), channels.copies(), *duty.pool, [&](int64_t begin, int64_t end, int) {
    typename Channels<T>::Share share;
    if (!channels.MakeShare(&share)) {
      out_of_memory.store(true, std::memory_order_relaxed);
      return;
    }
    for (int64_t i = begin; i < end && !LaunchEnds(); ++i) {
      const auto unit = channels.UnitAt(i);
      T* const y = narrow ? share.row : static_cast<T*>(to) + unit.row * lanes;
      channels.ForEachRun(share, unit, w, tap_lanes, y, [&](ChannelRun<T>& run) {
        if (narrow) {
          run.narrow = static_cast<uint16_t*>(to) + unit.row * lanes + (run.y - y);
          run.narrow_to = call.output;
        }
        if (ends) run.ending = call.ending;
        if constexpr (std::is_same_v<T, float>) {
          if (pairs) return gather_pairs(run);
        }
        loops.gather(run);
      });
      const int64_t pixels = unit.end - unit.begin;
      if (call.epilogue.run != nullptr && !ends)
        call.epilogue.run(call.epilogue.context, 0, unit.row, pixels, 0, lanes);
    }
  });
  return out_of_memory.load(std::memory_order_relaxed) ? OutOfScratch(kWhat, 0) : absl::OkStatus();
}

template <typename T>
absl::Status Weights(const ChannelKernels& kernels, const ChannelKernels::Of<T>& loops, const ConvCall& call,
                     const Duty& duty) {
  const int64_t lanes = call.out_channels, depth = call.in_channels / call.feature_groups;
  const Channels<T> channels(kernels, call.input, call.batch, PadRank(call.spatial_rank, call.dims),
                             {call.feature_groups, depth, lanes / call.feature_groups}, call.x);
  const bool halves = BytesOf(call.input) != sizeof(T), narrow = BytesOf(call.output) != sizeof(T);
  const int64_t size = channels.weights(), units = channels.units();
  // By the call's shape alone, so that any number of threads gives the same bits.
  const int64_t parts = std::clamp<int64_t>(std::min({units, kMaxParts, channels.Products() / kPartProducts,
                                                      kPartBytes / static_cast<int64_t>(size * sizeof(T))}),
                                            1, kMaxParts);
  const int64_t bytes = parts * size * static_cast<int64_t>(sizeof(T));
  if (duty.pool == nullptr) {
    duty.needs->Once(ScratchSlot::kShared, bytes);
    channels.AddNeeds(*duty.needs);
    return absl::OkStatus();
  }
  T* const sums = static_cast<T*>(ThreadScratch(ScratchSlot::kShared, bytes));
  if (sums == nullptr) return OutOfScratch(kWhat, bytes);
  std::atomic<bool> out_of_memory{false};
  Deal(parts, channels.Products(), true, *duty.pool, [&](int64_t begin, int64_t end, int) {
    typename Channels<T>::Share share;
    if (!channels.MakeShare(&share)) {
      out_of_memory.store(true, std::memory_order_relaxed);
      return;
    }
    for (int64_t part = begin; part < end; ++part) {
      T* const own = sums + part * size;
      std::fill(own, own + size, T{});
      for (int64_t i = CutAt(units, parts, part); i < CutAt(units, parts, part + 1) && !LaunchEnds(); ++i) {
        const auto unit = channels.UnitAt(i);
        T* y = share.row;
        if constexpr (std::is_same_v<T, float>) {
          const int64_t count = (unit.end - unit.begin) * lanes;
          if (halves)
            kernels.halves->widen(call.input, static_cast<const uint16_t*>(call.y) + unit.row * lanes, count, y);
        }
        if (!halves) y = static_cast<T*>(call.y) + unit.row * lanes;
        channels.ForEachRun(share, unit, own, depth * lanes, y, loops.weights);
      }
    }
  });
  if (out_of_memory.load(std::memory_order_relaxed)) return OutOfScratch(kWhat, 0);
  void* const w = const_cast<void*>(call.w);
  Deal(size, parts * size, true, *duty.pool, [&](int64_t begin, int64_t end, int) {
    T* const total = narrow ? sums : static_cast<T*>(w);
    if (!narrow) std::copy(sums + begin, sums + end, total + begin);
    for (int64_t part = 1; part < parts; ++part) {
      const T* const own = sums + part * size;
      for (int64_t i = begin; i < end; ++i) total[i] += own[i];
    }
    if constexpr (std::is_same_v<T, float>) {
      if (narrow) kernels.halves->narrow(call.output, sums + begin, end - begin, static_cast<uint16_t*>(w) + begin);
    }
  });
  const Epilogue& epilogue = call.epilogue;
  if (epilogue.run != nullptr) epilogue.run(epilogue.context, 0, 0, size / lanes, 0, lanes);
  return absl::OkStatus();
}

// Groups of a few channels fill a fraction of a register tile: then lanes are channels.
bool Serves(DType input, DType output, int64_t groups, int64_t group_from, int64_t group_to) {
  const bool half = input == DType::kBF16 || input == DType::kF16;
  const bool same = input == output && (half || input == DType::kF32 || input == DType::kF64);
  return (same || (half && output == DType::kF32)) && groups > 1 && group_from * group_to > 0 &&
         (group_from == 1 || group_from * group_to < 64);
}
constexpr char kWhyNot[] = "there is one group, or groups have many channels, or the types are not floats";

const char* RefusesGather(const Gathering& gathering) {
  const GatherCall& call = gathering.gather;
  return Serves(call.input, call.output, call.groups, call.group_from, call.group_to) ? nullptr : kWhyNot;
}
const char* RefusesGradient(const KernelGradient& gradient) {
  const ConvCall& call = gradient.call;
  const int64_t groups = call.feature_groups;
  return Serves(call.input, call.output, groups, call.in_channels / groups, call.out_channels / groups) ? nullptr
                                                                                                        : kWhyNot;
}

// The operands as they are in memory: halves are widened line by line.
absl::Status Run(const Gathering& gathering, KernelSet::State& state, const Duty& duty) {
  const GatherCall& call = gathering.gather;
  const ChannelKernels& kernels = ChannelKernelsOf(state.target().isa);
  const bool converts = state.target().has_bf16_dot;
  return call.input == DType::kF64 ? Gather<double>(kernels, kernels.f64, converts, call, duty)
                                   : Gather<float>(kernels, kernels.f32, converts, call, duty);
}
absl::Status RunGradient(const KernelGradient& gradient, KernelSet::State& state, const Duty& duty) {
  const ConvCall& call = gradient.call;
  const ChannelKernels& kernels = ChannelKernelsOf(state.target().isa);
  return call.input == DType::kF64 ? Weights<double>(kernels, kernels.f64, call, duty)
                                   : Weights<float>(kernels, kernels.f32, call, duty);
}

}  // namespace

const ChannelKernels& ChannelKernelsOf(Isa vectors) {
  switch (vectors) {
    case Isa::kAvx512: return kChannelsAvx512;
    case Isa::kAvx2: return kChannelsAvx2;
    default: return kChannelsPortable;
  }
}

constinit const GatherImplementation kGatherDepthwise = {
    .name = "conv depthwise", .refuses = RefusesGather, .run = Run};
constinit const KernelGradientImplementation kKernelGradientDepthwise = {"conv depthwise", RefusesGradient,
                                                                         RunGradient};

}  // namespace weft::cpu
