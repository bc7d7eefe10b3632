// Winograd's convolution over blocks of tiles: patches of the input are transformed, each of the 36 points is a product with the
// kernel's panels of that point on register tiles, and the sums become pixels while they are in cache. See conv_winograd.h.
#include "src/backends/cpu/kernels/conv/conv_winograd.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "src/backends/cpu/kernels/conv/gathers.h"
#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int kPoints = kWinogradPoints, kTile = kWinogradTile, kPatch = kWinogradPatch, kTaps = 9;
constexpr int kY = kMaxSpatialDims - 2, kX = kMaxSpatialDims - 1;
// Where it is faster. With fewer channels the transforms are not repaid. A kernel is transformed once for all tiles, mostly in every
// call: fewer do not repay that, nor that its 36 points are read where the definition reads nine taps. (A forward kernel of few tiles
// is most often a weight that stays packed.)
constexpr int64_t kLeastChannels = 16, kLeastTiles = 32, kLeastTilesForward = 16;
// Tiles of 4x4 take a quarter of the products; at edges less of them is used.
constexpr int64_t kLeastPixelsOfTile = 8;
// Tiles of a block: their points, of the input and of 64 channels of sums, stay in L2 for up to 64 input channels; with more, each of
// the kernel's panels, which come from further away, is used so often.
constexpr int64_t kBlockTiles = 48;
// Output channels whose sums are there together.
constexpr int64_t kChunkChannels = 64;
// Steps of K of a panel that are transformed together.
constexpr int64_t kPackSteps = 16;
// Rows of memory a multiple of 4 KiB apart would all fall into one set of L1.
constexpr int64_t kApart = 16;
// Less than this does not repay a join of two threads: multiply-adds, and bytes to be packed.
constexpr int64_t kInlineWork = 100'000, kInlineBytes = 64 << 10;

const WinogradKernels& KernelsOf(Isa vectors) {
  switch (vectors) {
    case Isa::kAvx512: return kWinogradAvx512;
    case Isa::kAvx2: return kWinogradAvx2;
    default: return kWinogradPortable;
  }
}

bool IsThree(const SpatialDim& dim) {
  return dim.window == 3 && dim.stride == 1 && dim.lhs_dilation == 1 && dim.rhs_dilation == 1;
}

// Images that are convolved each by itself: the batch, and dimensions without a window.
int64_t Images(const GatherCall& call) {
  int64_t images = call.batch;
  for (int d = 0; d < kY; ++d) images *= call.geometry.dims[d].in;
  return images;
}

int64_t TilesOf(const GatherCall& call) {
  return Images(call) * CeilDiv(call.geometry.dims[kY].out, kTile) * CeilDiv(call.geometry.dims[kX].out, kTile);
}

// The kernel: for each point all panels, for each panel its rows of K.
struct Packing {
  const CpuTarget& target;
  const GatherCall& call;
  ColumnCut columns = ColumnCut::Make(target, MicroType::kF32, call.group_to);

  int64_t Width(int64_t panel) const { return static_cast<int64_t>(columns.Vectors(panel)) * columns.lanes; }
  int64_t Step() const { return call.group_from * columns.vectors * columns.lanes; }  // from point to point
  int64_t Offset(int64_t panel) const { return call.group_from * columns.First(panel) * columns.lanes; }
  int64_t Bytes() const { return kPoints * Step() * 4; }
  static constexpr int64_t kMostWidth = 4 * 16;
  static constexpr int64_t kSpaceBytes = kTaps * kPackSteps * kMostWidth * 4;
  // Units of work: a few rows of one panel, at all points.
  int64_t Units() const { return columns.panels * CeilDiv(call.group_from, kPackSteps); }

  void Pack(int64_t unit, float* space, float* packed) const {
    const int64_t panel = unit % columns.panels, first = unit / columns.panels * kPackSteps;
    const int64_t steps = std::min(kPackSteps, call.group_from - first), width = Width(panel);
    const float* const base = static_cast<const float*>(call.weights) + first * call.from_stride +
                              columns.First(panel) * columns.lanes * call.to_stride;
    for (int64_t tap = 0; tap < kTaps; ++tap) {
      const int64_t stored =
          WeightTap(call.geometry.dims[kY], tap / 3) * 3 + WeightTap(call.geometry.dims[kX], tap % 3);
      cpu::Pack(target, PackKind::kF32, {base + stored * call.tap_stride, call.from_stride, call.to_stride}, steps,
                columns.Columns(panel), width, space + tap * steps * width);
    }
    KernelsOf(target.isa).taps(space, steps * width, steps * width, packed + Offset(panel) + first * width, Step());
  }
  // False without memory for `space`.
  bool PackAll(void* packed, ThreadPool& pool) const {
    std::atomic<bool> enough{true};
    const auto pack = [&](int64_t begin, int64_t end, int) {
      float* const space = static_cast<float*>(ThreadScratch(ScratchSlot::kOutput, kSpaceBytes));
      if (space == nullptr) return enough.store(false, std::memory_order_relaxed);
      for (int64_t unit = begin; unit < end; ++unit) Pack(unit, space, static_cast<float*>(packed));
    };
    if (Bytes() < kInlineBytes) {
      pack(0, Units(), 0);
    } else {
      pool.ParallelRanges(Units(), pack);
    }
    return enough.load(std::memory_order_relaxed);
  }
};

class Winograd {
 public:
  Winograd(KernelSet::State& state, const GatherCall& call, int threads)
      : state_(state),
        call_(call),
        packing_{state.target(), call},
        columns_(packing_.columns),
        kernels_(KernelsOf(state.target().isa)),
        y_(call.geometry.dims[kY]),
        x_(call.geometry.dims[kX]),
        lines_(CeilDiv(y_.out, kTile)),
        line_(CeilDiv(x_.out, kTile)),
        tiles_(TilesOf(call)) {
    rows_ = MicroMaxRows(state.target(), MicroForm::kRows, columns_.MaxVectors());
    chunk_ = std::max<int64_t>(1, kChunkChannels / (columns_.MaxVectors() * columns_.lanes));
    chunk_width_ = std::min(chunk_, columns_.panels) * columns_.MaxVectors() * columns_.lanes;
    blocks_ = std::min(tiles_, CeilDiv(CeilDiv(tiles_, kBlockTiles), threads) * threads);
    most_ = CeilDiv(tiles_, blocks_);
    input_step_ = most_ * call.group_from + kApart;
    sums_step_ = most_ * chunk_width_ + kApart;
  }

  absl::Status Run(const Duty& duty) {
    for (const int64_t block : {tiles_ / blocks_, most_}) {
      const int64_t parts = CeilDiv(block, rows_);
      for (int64_t rows = block / parts; rows <= CeilDiv(block, parts); ++rows) {
        for (int vectors = columns_.MinVectors(); vectors <= columns_.MaxVectors(); ++vectors) {
          WEFT_ASSIGN_OR_RETURN(fn_[rows][vectors - columns_.MinVectors()],
                                state_.Micro({.mr = static_cast<int>(rows), .nv = vectors}));
        }
      }
    }
    if (duty.pool == nullptr) {
      if (call_.packed == nullptr) {
        duty.needs->Once(ScratchSlot::kShared, packing_.Bytes());
        duty.needs->Each(ScratchSlot::kOutput, Packing::kSpaceBytes);
      }
      duty.needs->Each(ScratchSlot::kPackA, InputBytes());
      duty.needs->Each(ScratchSlot::kPackB, SumsBytes());
      duty.needs->Each(ScratchSlot::kTables, TableBytes());
      return absl::OkStatus();
    }
    packed_ = static_cast<const float*>(call_.packed);
    if (packed_ == nullptr) {
      void* const shared = ThreadScratch(ScratchSlot::kShared, packing_.Bytes());
      if (shared == nullptr || !packing_.PackAll(shared, *duty.pool))
        return OutOfScratch("a convolution's transformed kernel", packing_.Bytes());
      packed_ = static_cast<const float*>(shared);
    }
    if (tiles_ * kPoints * call_.group_from * call_.group_to < kInlineWork || duty.pool->threads() == 1) {
      RunBlocks(0, blocks_);
    } else {
      duty.pool->ParallelRanges(blocks_, [&](int64_t begin, int64_t end, int) { RunBlocks(begin, end); });
    }
    return out_of_memory_.load(std::memory_order_relaxed)
               ? OutOfScratch("a convolution's transformed input", InputBytes())
               : absl::OkStatus();
  }

 private:
  int64_t InputBytes() const { return kPoints * input_step_ * 4; }
  int64_t SumsBytes() const { return kPoints * sums_step_ * 4; }
  // A pixel of zeros for what is padding, and one for results that nobody wants.
  int64_t TableBytes() const { return (call_.group_from + chunk_width_) * 4; }

  struct Tile {
    int64_t image, y, x;  // of output pixels
  };
  Tile At(int64_t tile) const { return {tile / (lines_ * line_), tile / line_ % lines_ * kTile, tile % line_ * kTile}; }

  void RunBlocks(int64_t begin, int64_t end) {
    float* const input = static_cast<float*>(ThreadScratch(ScratchSlot::kPackA, InputBytes()));
    float* const sums = static_cast<float*>(ThreadScratch(ScratchSlot::kPackB, SumsBytes()));
    float* const zeros = static_cast<float*>(ThreadScratch(ScratchSlot::kTables, TableBytes()));
    if (input == nullptr || sums == nullptr || zeros == nullptr) {
      return out_of_memory_.store(true, std::memory_order_relaxed);
    }
    std::memset(zeros, 0, static_cast<size_t>(call_.group_from) * 4);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t tile0 = CutAt(tiles_, blocks_, block), tile1 = CutAt(tiles_, blocks_, block + 1);
      for (int64_t tile = tile0; tile < tile1; ++tile)
        Transform(tile, input + (tile - tile0) * call_.group_from, zeros);
      for (int64_t panel = 0; panel < columns_.panels; panel += chunk_) {
        if (LaunchEnds()) return;
        const int64_t panel_end = std::min(columns_.panels, panel + chunk_);
        Multiply(tile1 - tile0, panel, panel_end, input, sums);
        const int64_t first = columns_.First(panel) * columns_.lanes;
        const int64_t channels = std::min(columns_.First(panel_end) * columns_.lanes, call_.group_to) - first;
        for (int64_t tile = tile0; tile < tile1; ++tile) {
          Place(tile, sums + (tile - tile0) * chunk_width_, first, channels, zeros + call_.group_from);
        }
        Finish(tile0, tile1, first, channels);
      }
    }
  }

  void Transform(int64_t tile, float* to, const float* zeros) const {
    const Tile at = At(tile);
    const float* const image = static_cast<const float*>(call_.from) + at.image * y_.in * x_.in * call_.group_from;
    const float* pixels[kPoints];
    for (int64_t i = 0; i < kPatch; ++i) {
      const int64_t y = at.y + i - y_.pad_lo;
      for (int64_t j = 0; j < kPatch; ++j) {
        const int64_t x = at.x + j - x_.pad_lo;
        const bool inside = y >= 0 && y < y_.in && x >= 0 && x < x_.in;
        pixels[i * kPatch + j] = inside ? image + (y * x_.in + x) * call_.group_from : zeros;
      }
    }
    kernels_.input(pixels, call_.group_from, to, input_step_);
  }

  // At every point: the block's rows of transformed input times the kernel's panels.
  void Multiply(int64_t count, int64_t panel_begin, int64_t panel_end, const float* input, float* sums) const {
    const int64_t parts = CeilDiv(count, rows_), first = columns_.First(panel_begin);
    const int64_t no_offset = 0;
    const void* a[16];
    void* c[16];
    MicroArgs args;
    args.k = call_.group_from;
    args.a = a;
    args.b_offsets = &no_offset;
    args.c = c;
    args.last_lanes = columns_.lanes;
    for (int64_t point = 0; point < kPoints; ++point) {
      for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        args.b = packed_ + point * packing_.Step() + packing_.Offset(panel);
        args.b_stride = packing_.Width(panel) * 4;
        args.c_offset = (columns_.First(panel) - first) * columns_.lanes * 4;
        for (int64_t part = 0; part < parts; ++part) {
          const int64_t row0 = CutAt(count, parts, part), rows = CutAt(count, parts, part + 1) - row0;
          for (int64_t r = 0; r < rows; ++r) {
            a[r] = input + point * input_step_ + (row0 + r) * call_.group_from;
            c[r] = sums + point * sums_step_ + (row0 + r) * chunk_width_;
          }
          fn_[rows][columns_.Vectors(panel) - columns_.MinVectors()](&args);
        }
      }
    }
  }

  float* Pixel(const Tile& at, int64_t y, int64_t x, int64_t channel) const {
    return static_cast<float*>(call_.to) + ((at.image * y_.out + at.y + y) * x_.out + at.x + x) * call_.group_to +
           channel;
  }
  void Place(int64_t tile, const float* sums, int64_t channel, int64_t channels, float* nowhere) const {
    const Tile at = At(tile);
    float* pixels[kTile * kTile];
    for (int64_t y = 0; y < kTile; ++y) {
      for (int64_t x = 0; x < kTile; ++x) {
        const bool inside = at.y + y < y_.out && at.x + x < x_.out;
        pixels[y * kTile + x] = inside ? Pixel(at, y, x, channel) : nowhere;
      }
    }
    kernels_.output(sums, sums_step_, channels, pixels);
  }

  // The epilogue, over the lines of neighbouring tiles.
  void Finish(int64_t tile0, int64_t tile1, int64_t channel, int64_t channels) const {
    if (call_.epilogue.run == nullptr) return;
    for (int64_t tile = tile0; tile < tile1;) {
      const Tile at = At(tile);
      const int64_t count = std::min(tile1 - tile, line_ - at.x / kTile);
      const int64_t pixels = std::min(count * kTile, x_.out - at.x);
      for (int64_t y = at.y; y < std::min(at.y + kTile, y_.out); ++y) {
        call_.epilogue.run(call_.epilogue.context, 0, (at.image * y_.out + y) * x_.out + at.x, pixels, channel,
                           channels);
      }
      tile += count;
    }
  }

  KernelSet::State& state_;
  const GatherCall& call_;
  const Packing packing_;
  const ColumnCut& columns_;
  const WinogradKernels& kernels_;
  const SpatialDim &y_, &x_;
  const int64_t lines_, line_, tiles_;  // of tiles: lines of an image, tiles of a line, all
  int64_t rows_ = 1;                    // of a register tile, at most
  int64_t chunk_ = 1, chunk_width_ = 0;
  int64_t blocks_ = 1, most_ = 1;  // of tiles, and the most tiles of one
  int64_t input_step_ = 0, sums_step_ = 0;
  MicroFn* fn_[16][2] = {};
  const float* packed_ = nullptr;
  std::atomic<bool> out_of_memory_{false};
};

// By its types, its shape and its permission alone.
bool Serves(const GatherCall& call) {
  if (call.winograd == UseWinograd::kNever) return false;
  bool fits = call.input == DType::kF32 && call.output == DType::kF32 && call.groups == 1 && TilesOf(call) > 0 &&
              call.group_from > 0 && call.group_to > 0 && IsThree(call.geometry.dims[kY]) &&
              IsThree(call.geometry.dims[kX]);
  for (int d = 0; d < kY; ++d) fits = fits && HasNoWindow(call.geometry.dims[d]);
  if (!fits || call.winograd == UseWinograd::kWhereItFits) return fits;
  const int64_t tiles = TilesOf(call), pixels = Images(call) * call.geometry.dims[kY].out * call.geometry.dims[kX].out;
  return call.group_from >= kLeastChannels && call.group_to >= kLeastChannels && tiles * kLeastPixelsOfTile <= pixels &&
         tiles >= (call.forward ? kLeastTilesForward : kLeastTiles);
}

const char* Refuses(const Gathering& gathering) {
  return gathering.tiles && Serves(gathering.gather) ? nullptr : "it is not allowed, does not fit, or is not worth it";
}

absl::Status Run(const Gathering& gathering, KernelSet::State& state, const Duty& duty) {
  const int threads = duty.pool != nullptr ? duty.pool->threads() : duty.threads;
  return Winograd(state, gathering.gather, threads).Run(duty);
}

int64_t PackedBytes(const Gathering& gathering) { return Packing{gathering.target, gathering.gather}.Bytes(); }
std::vector<int64_t> PackedForm(const Gathering& gathering) {
  const GatherCall& call = gathering.gather;
  // No other form begins so.
  constexpr int64_t kTransformed = -1;
  const Packing packing{gathering.target, call};
  return {kTransformed,
          packing.columns.lanes,
          packing.columns.panels,
          call.group_from,
          call.group_to,
          call.from_stride,
          call.to_stride,
          call.tap_stride,
          call.geometry.dims[kY].reversed,
          call.geometry.dims[kX].reversed};
}
absl::Status PackKernel(const Gathering& gathering, char* packed, ThreadPool& pool) {
  const Packing packing{gathering.target, gathering.gather};
  return packing.PackAll(packed, pool) ? absl::OkStatus()
                                       : OutOfScratch("a convolution's transformed kernel", Packing::kSpaceBytes);
}

}  // namespace

constinit const GatherImplementation kGatherWinograd = {.name = "conv winograd",
                                                        .refuses = Refuses,
                                                        .run = Run,
                                                        .packed_bytes = PackedBytes,
                                                        .packed_form = PackedForm,
                                                        .pack = PackKernel};

}  // namespace weft::cpu
