// Convolutions that gather (forward, and the input's gradient) on AMX's tiles: a product of a phase's pixels by output channels
// whose K runs over taps, then channels. Where a pixel reads one pixel of the input (1x1), tiles read the input itself. A wider window
// moved by one reads a copy that has its padding: tiles of A are pixels that follow each other there, the ends of lines among
// them, and no tap is copied for itself. Others have rows of A collected 32 pixels at a time, from such a copy a line of
// the window at once, where there can be one.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "src/backends/cpu/kernels/conv/conv_padding.h"
#include "src/backends/cpu/kernels/conv/gathers.h"
#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int kDims = kMaxSpatialDims;

// How tiles of A come from the input.
enum class Reading : uint8_t {
  kTaps,  // collected, tap by tap
  kRuns,  // collected from a padded copy, line by line of the window
  kFlat,  // in place in a padded copy
};

struct Tap {
  int64_t stored = 0;      // its place in the kernel
  int64_t offset = 0;      // of the input, in elements, from where the phase's first output pixel would read
  int64_t at[kDims] = {};  // the same by dimension
};

class Pixels : public TileOperands {
 public:
  Pixels(const CpuTarget& target, const GatherCall& call, const PhaseDim* const* dims, Reading reading)
      : target_(target), call_(call), flat_(reading == Reading::kFlat) {
    int64_t in = call.FromChannels(), out = 1;
    for (int d = kDims - 1; d >= 0; --d) {
      dims_[d] = dims[d];
      in_stride_[d] = in;
      in *= call.geometry.dims[d].in;
      out_stride_[d] = out;
      out *= call.geometry.dims[d].out;
      pixels_ *= dims_[d]->count;
    }
    image_ = in;
    out_image_ = out;
    element_ = BytesOf(call.input);
    word_ = TileWord(element_);
    ListTaps();
    if (reading == Reading::kRuns) run_taps_ = Count(kDims - 1);
    run_ = CeilDiv(run_taps_ * call_.group_from, word_) * word_;
    if (!flat_) return;
    for (int d = 0; d < kDims; ++d) member_rows_ += (dims_[d]->count - 1) * in_stride_[d] / call.FromChannels();
    member_rows_ = CeilDiv(member_rows_ + 1, kTileBlockSide) * kTileBlockSide;
    for (const Tap& tap : taps_) {
      for (int64_t c = 0; c < call.group_from; c += TileK(element_)) steps_.push_back((tap.offset + c) * element_);
    }
  }

  int64_t rows() const { return call_.batch * (flat_ ? member_rows_ : pixels_); }
  int64_t k() const { return std::ssize(taps_) / run_taps_ * run_; }
  // Pixels of the output among all rows.
  double Use() const { return static_cast<double>(pixels_) / static_cast<double>(member_rows_); }
  // Bytes behind the input that tiles may read.
  int64_t Slack() const {
    return flat_ ? std::max<int64_t>(0, (member_rows_ * call_.FromChannels() - image_) * element_ + steps_.back()) : 0;
  }
  void SetGroup(int64_t group) { group_ = group; }

  // Says how tiles read the input where it lies, if they do.
  void PlaceA(TileProduct* product) const {
    product->a_stride = call_.FromChannels() * element_;
    product->a_in_place = flat_ || (IsProduct() && ReadsInPlace(product->a_stride, product->n));
    if (call_.from != nullptr) product->a = static_cast<const char*>(call_.from) + group_ * call_.group_from * element_;
    if (!flat_) return;
    product->a_steps = steps_.data();
    product->member_rows = member_rows_;
    product->member_bytes = image_ * element_;
  }

  void PackA(int64_t row, int64_t rows, int64_t k0, int64_t length, char* out) const override {
    alignas(64) char line[kMostBytes + kTileRowBytes];  // what a pixel reads; runs are copied in whole rows of tiles
    const int64_t tiles = CeilDiv(rows, kTileSide), part = kMostBytes / element_;
    for (int64_t k = 0; k < length; k += part) {
      const int64_t count = std::min(part, length - k), steps = TileSteps(count, element_);
      char* const to = out + k / TileK(element_) * tiles * kTileBytes;
      Place place = Seek(row);
      for (int64_t r = 0; r < tiles * kTileSide; ++r) {
        if (r < rows) {
          Collect(place, k0 + k, count, line);
          std::memset(line + count * element_, 0, steps * kTileRowBytes - count * element_);
          Advance(place);
        } else if (r == rows) {
          std::memset(line, 0, steps * kTileRowBytes);
        }
        char* at = to + r / kTileSide * kTileBytes + r % kTileSide * kTileRowBytes;
        for (int64_t s = 0; s < steps; ++s, at += tiles * kTileBytes)
          std::memcpy(at, line + s * kTileRowBytes, kTileRowBytes);
      }
    }
  }

  void PackB(int64_t column, int64_t columns, int64_t k0, int64_t length, char* out) const override {
    const int64_t base = group_ * call_.group_stride + column * call_.to_stride;
    // Taps of whole words lie in K as they do alone.
    const bool alone = call_.group_from % word_ == 0 || run_taps_ == 1;
    const int64_t run = alone ? run_ / run_taps_ : run_;
    for (int64_t k = 0; k < length;) {
      const int64_t t = (k0 + k) / run, c = (k0 + k) % run, count = std::min(run - c, length - k);
      char* const to = out + k / word_ * kTileSide * 4;
      if (alone) {
        const int64_t first = base + taps_[t].stored * call_.tap_stride + c * call_.from_stride;
        PackRows({static_cast<const char*>(call_.weights) + first * element_, call_.from_stride, call_.to_stride},
                 std::min(count, call_.group_from - c), columns, to);
      } else {
        PackRun(base, t, c, count, columns, to);
      }
      k += count;
    }
    const int64_t written = length / word_ * kTileSide * 4;
    std::memset(out + written, 0, TileSteps(length, element_) * kTileBytes - written);
  }

  void ResultRows(int64_t row, int64_t rows, int64_t* to) const override {
    if (flat_) return FlatRows(row, rows, to);
    Place place = Seek(row);
    for (int64_t i = 0; i < rows; ++i, Advance(place)) to[i] = ResultOf(place);
  }

  // The way back from PackB of all columns of a group: elements to where they lay. Marks the taps that are there.
  void UnpackB(const char* packed, char* weights, std::vector<bool>* seen) const {
    for (const Tap& tap : taps_) (*seen)[static_cast<size_t>(tap.stored)] = true;
    for (int64_t i = 0; weights != nullptr && i < call_.group_to * k(); ++i) {
      const int64_t column = i / k(), at = i % k(), c = at % run_;
      if (c >= run_taps_ * call_.group_from) continue;
      const Tap& tap = taps_[at / run_ * run_taps_ + c / call_.group_from];
      const int64_t from = column / kTileSide * TilePackedBytes(k(), kTileSide, element_) +
                           (at / word_ * kTileSide + column % kTileSide) * 4 + at % word_ * element_;
      const int64_t to = group_ * call_.group_stride + column * call_.to_stride + tap.stored * call_.tap_stride +
                         c % call_.group_from * call_.from_stride;
      std::memcpy(weights + to * element_, packed + from, element_);
    }
  }

  // Says what decides how a kernel is packed, beside the strides of the kernel.
  void AddForm(std::vector<int64_t>* form) const {
    form->insert(form->end(), {run_taps_, run_});
    for (const Tap& tap : taps_) form->push_back(tap.stored);
  }

 private:
  static constexpr int64_t kMostBytes = 4096;  // of a line of A

  struct Place {
    int64_t member = 0;
    int64_t at[kDims] = {};
  };

  void ListTaps() {
    const int64_t sizes[kDims] = {Count(0), Count(1), Count(2), Count(3)};
    const int64_t count = sizes[0] * sizes[1] * sizes[2] * sizes[3];
    for (int64_t t = 0; t < count; ++t) {
      Odometer index;
      index.Set(t, [&](int d) { return sizes[d]; });
      Tap tap;
      for (int d = 0; d < kDims; ++d) {
        const SpatialDim& dim = call_.geometry.dims[d];
        const auto i = static_cast<size_t>(index.at[d]);
        tap.stored = tap.stored * dim.window + WeightTap(dim, dims_[d]->taps[i]);
        tap.at[d] = dims_[d]->offsets[i];
        tap.offset += tap.at[d] * in_stride_[d];
      }
      taps_.push_back(tap);
    }
  }
  int64_t Count(int d) const { return static_cast<int64_t>(dims_[d]->taps.size()); }

  // Every pixel reads the pixel of the same number, and that is inside.
  bool IsProduct() const {
    if (taps_.size() != 1 || taps_[0].offset != 0 || call_.group_from % word_ != 0) return false;
    for (int d = 0; d < kDims; ++d) {
      const SpatialDim& dim = call_.geometry.dims[d];
      if (dims_[d]->in_step != 1 || dims_[d]->step != 1 || !dims_[d]->inside || dim.in != dims_[d]->count) return false;
    }
    return true;
  }

  Place Seek(int64_t row) const {
    Place place;
    place.member = row / pixels_;
    int64_t rest = row % pixels_;
    for (int d = kDims - 1; d >= 0; --d) {
      place.at[d] = rest % dims_[d]->count;
      rest /= dims_[d]->count;
    }
    return place;
  }
  void Advance(Place& place) const {
    for (int d = kDims - 1; d >= 0; --d) {
      if (++place.at[d] < dims_[d]->count) return;
      place.at[d] = 0;
    }
    ++place.member;
  }
  int64_t Start(const Place& place) const {
    int64_t offset = place.member * image_;
    for (int d = 0; d < kDims; ++d) offset += place.at[d] * dims_[d]->in_step * in_stride_[d];
    return offset;
  }
  int64_t ResultOf(const Place& place) const {
    int64_t pixel = place.member * out_image_;
    for (int d = 0; d < kDims; ++d) pixel += (dims_[d]->first + place.at[d] * dims_[d]->step) * out_stride_[d];
    return pixel;
  }
  // Rows are pixels of the padded input: -1 for those from which no output pixel begins to read.
  void FlatRows(int64_t row, int64_t rows, int64_t* to) const {
    Place place;
    place.member = row / member_rows_;
    int64_t rest = row % member_rows_;
    for (int d = kDims - 1; d >= 0; --d) {
      place.at[d] = rest % call_.geometry.dims[d].in;
      rest /= call_.geometry.dims[d].in;
    }
    for (int64_t i = 0; i < rows; ++i) {
      bool some = rest == 0;
      for (int d = 0; d < kDims; ++d) some = some && place.at[d] < dims_[d]->count;
      to[i] = some ? ResultOf(place) : -1;
      int d = kDims - 1;
      for (; d >= 0 && ++place.at[d] == call_.geometry.dims[d].in; --d) place.at[d] = 0;
      if (d < 0) ++rest;
    }
  }
  // Tells whether all taps lie inside the image; the first and last offsets of a dimension are its smallest and
  // largest.
  bool Inside(const Place& place) const {
    for (int d = 0; d < kDims; ++d) {
      if (dims_[d]->inside) continue;
      const int64_t at = place.at[d] * dims_[d]->in_step;
      if (at + dims_[d]->offsets.front() < 0 || at + dims_[d]->offsets.back() >= call_.geometry.dims[d].in)
        return false;
    }
    return true;
  }
  bool TapInside(const Place& place, const Tap& tap) const {
    for (int d = 0; d < kDims; ++d) {
      const int64_t at = place.at[d] * dims_[d]->in_step + tap.at[d];
      if (at < 0 || at >= call_.geometry.dims[d].in) return false;
    }
    return true;
  }

  // Elements [k0, k0 + length) of K of a pixel. Up to a row of a tile behind them is written, too.
  void Collect(const Place& place, int64_t k0, int64_t length, char* line) const {
    const bool inside = Inside(place);
    const int64_t start = Start(place) + group_ * call_.group_from, all = run_taps_ * call_.group_from;
    const char* const from = static_cast<const char*>(call_.from);
    const char* const end = from + call_.batch * image_ * element_;
    for (int64_t k = 0, t = k0 / run_, c = k0 % run_; k < length; ++t, c = 0) {
      const Tap& tap = taps_[t * run_taps_];
      const int64_t count = std::min(run_ - c, length - k);
      const int64_t real = inside || TapInside(place, tap) ? std::clamp<int64_t>(all - c, 0, count) : 0;
      CopyRun(from + (start + tap.offset + c) * element_, real * element_, end, line + k * element_);
      std::memset(line + (k + real) * element_, 0, (count - real) * element_);
      k += count;
    }
  }
  // In whole rows of tiles, but where memory ends.
  static void CopyRun(const char* from, int64_t bytes, const char* end, char* to) {
    while (bytes > 0 && end - from >= kTileRowBytes) {
      std::memcpy(to, from, kTileRowBytes);
      from += kTileRowBytes;
      to += kTileRowBytes;
      bytes -= kTileRowBytes;
    }
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  void PackRows(const PackSource& source, int64_t length, int64_t columns, char* to) const {
    Pack(target_, element_ == 1 ? PackKind::kQuads : PackKind::kPairs, source, length, columns, kTileSide, to);
  }
  // Elements [c, c + count) of a run of taps whose channels fill no words.
  void PackRun(int64_t base, int64_t run, int64_t c, int64_t count, int64_t columns, char* to) const {
    constexpr int64_t kRows = 64;
    char rows[kRows * kTileSide * 2];
    for (int64_t done = 0; done < count; done += kRows) {
      const int64_t some = std::min(kRows, count - done);
      const int64_t real = std::clamp<int64_t>(run_taps_ * call_.group_from - c - done, 0, some);
      for (int64_t i = 0; i < real; ++i) {
        const int64_t at = c + done + i;
        const int64_t first = base + at % call_.group_from * call_.from_stride +
                              taps_[run * run_taps_ + at / call_.group_from].stored * call_.tap_stride;
        for (int64_t j = 0; j < columns; ++j) {
          std::memcpy(rows + (i * kTileSide + j) * element_,
                      static_cast<const char*>(call_.weights) + (first + j * call_.to_stride) * element_, element_);
        }
      }
      PackRows({rows, kTileSide, 1}, real, columns, to + done / word_ * kTileSide * 4);
    }
  }

  const CpuTarget& target_;
  const GatherCall& call_;
  const bool flat_;
  const PhaseDim* dims_[kDims] = {};
  int64_t in_stride_[kDims] = {}, out_stride_[kDims] = {};  // elements; pixels
  int64_t image_ = 0, out_image_ = 0;
  int64_t pixels_ = 1;              // of the phase, per batch member
  int64_t element_ = 2, word_ = 2;  // bytes of an element, and elements of a word of B
  // Taps that are collected as one, and their elements in K: whole words.
  int64_t run_taps_ = 1, run_ = 0;
  int64_t member_rows_ = 0;  // kFlat: pixels of the padded input, whole blocks of rows
  int64_t group_ = 0;
  std::vector<Tap> taps_;
  std::vector<int64_t> steps_;  // kFlat: where each step of K begins, in bytes
};

// The call as it is computed: over a padded copy, where there is to be one, and by phases.
class TileConv {
 public:
  TileConv(const CpuTarget& target, const GatherCall& call) : target_(target), call_(call) {
    if (CanCopy()) {
      Geometry& geometry = call_.geometry;
      ConvCall image;
      image.batch = call.batch;
      image.in_channels = call.FromChannels();
      image.spatial_rank = kDims;
      image.dims = geometry.dims;
      image.x = call.from;
      TakePadding(&image);
      std::swap(geometry.dims, image.dims);  // the image has the padding still to be taken
      geometry = PadRank(kDims, geometry.dims);
      Split();
      reading_ = Choose();
      if (reading_ != Reading::kTaps) {
        image_.emplace(image, BytesOf(call.input));
        return;
      }
      geometry = PadRank(kDims, image.dims);
    }
    Split();
  }

  int64_t phases() const { return phases_; }
  Pixels PhaseAt(int64_t phase) const { return PhaseAt(phase, reading_); }

  // Makes the copy, if there is one.
  absl::Status CopyImage(const Duty& duty) {
    if (!image_.has_value()) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(call_.from, Pad(*image_, duty, PhaseAt(0).Slack()));
    return absl::OkStatus();
  }

 private:
  // Tells whether a padded copy is all that there is to reading past the image.
  bool CanCopy() {
    bool windows = false, some = call_.batch > 0 && call_.FromChannels() > 0;
    for (SpatialDim& dim : call_.geometry.dims) {
      windows = windows || dim.window > 1;
      some = some && dim.lhs_dilation == 1 && dim.pad_lo >= 0 && dim.in > 0 && dim.out > 0;
      dim.pad_hi = std::max<int64_t>(
          0, (dim.out - 1) * dim.stride + (dim.window - 1) * dim.rhs_dilation + 1 - dim.in - dim.pad_lo);
    }
    return windows && some;
  }
  Reading Choose() const {
    constexpr double kLeastUse = 0.6;
    constexpr int64_t kMostFlatK = 32768;  // above, K is cut into products by themselves
    const SpatialDim& inner = call_.geometry.dims[kDims - 1];
    bool by_one = true;
    for (const SpatialDim& dim : call_.geometry.dims) by_one = by_one && dim.stride == 1;
    if (by_one && call_.group_from % TileK(BytesOf(call_.input)) == 0) {
      const Pixels flat = PhaseAt(0, Reading::kFlat);
      if (flat.Use() >= kLeastUse && flat.k() <= kMostFlatK) return Reading::kFlat;
    }
    return call_.groups == 1 && inner.window > 1 && inner.rhs_dilation == 1 ? Reading::kRuns : Reading::kTaps;
  }
  void Split() {
    phases_ = 1;
    for (int d = 0; d < kDims; ++d) {
      split_[d] = SplitDim(call_.geometry.dims[d]);
      phases_ *= std::ssize(split_[d]);
    }
  }
  Pixels PhaseAt(int64_t phase, Reading reading) const {
    Odometer index;
    index.Set(phase, [&](int d) { return std::ssize(split_[d]); });
    const PhaseDim* dims[kDims];
    for (int d = 0; d < kDims; ++d) dims[d] = &split_[d][static_cast<size_t>(index.at[d])];
    return Pixels(target_, call_, dims, reading);
  }

  const CpuTarget& target_;
  GatherCall call_;
  Reading reading_ = Reading::kTaps;
  std::optional<PaddedImage> image_;
  absl::InlinedVector<PhaseDim, 1> split_[kDims];
  int64_t phases_ = 1;
};

int64_t PackedGroupBytes(const GatherCall& call, const Pixels& pixels) {
  return TilePackedBytes(pixels.k(), call.group_to, BytesOf(call.input));
}

// `packed`: the phase's kernel where it is packed; null: it is to be.
absl::Status RunPhase(KernelSet::State& state, const GatherCall& call, Pixels& pixels, bool scattered,
                      const char* packed, const Duty& duty) {
  if (pixels.rows() == 0) return absl::OkStatus();
  for (int64_t group = 0; group < call.groups; ++group) {
    pixels.SetGroup(group);
    TileProduct product;
    product.operands = &pixels;
    product.m = pixels.rows();
    product.n = call.group_to;
    product.k = pixels.k();
    product.input = call.input;
    product.output = call.output;
    pixels.PlaceA(&product);
    product.b_packed = packed != nullptr;
    if (product.b_packed) product.b = packed + group * PackedGroupBytes(call, pixels);
    product.c_stride = call.ToChannels();
    product.column0 = group * call.group_to;
    if (call.to != nullptr) product.c = static_cast<char*>(call.to) + product.column0 * BytesOf(call.output);
    product.scattered = scattered || product.a_steps != nullptr;
    product.epilogue = call.epilogue;
    WEFT_RETURN_IF_ERROR(RunTiles(state, product, duty));
    if (duty.pool == nullptr) break;  // groups are alike
  }
  return absl::OkStatus();
}

const char* Refuses(const Gathering& gathering) {
  const GatherCall& call = gathering.gather;
  return AmxServes(gathering.target, call.input, call.output) ? nullptr : "the target has no AMX tiles for the types";
}

absl::Status Run(const Gathering& gathering, KernelSet::State& state, const Duty& duty) {
  const GatherCall& call = gathering.gather;
  if (call.batch * call.geometry.out * call.ToChannels() == 0) return absl::OkStatus();
  TileConv conv(state.target(), call);
  WEFT_RETURN_IF_ERROR(conv.CopyImage(duty));
  const char* packed = static_cast<const char*>(call.packed);
  for (int64_t p = 0; p < conv.phases(); ++p) {
    Pixels pixels = conv.PhaseAt(p);
    WEFT_RETURN_IF_ERROR(RunPhase(state, call, pixels, conv.phases() > 1, packed, duty));
    if (packed != nullptr) packed += call.groups * PackedGroupBytes(call, pixels);
  }
  return absl::OkStatus();
}

int64_t PackedBytes(const Gathering& gathering) {
  const GatherCall& call = gathering.gather;
  const TileConv conv(gathering.target, call);
  int64_t bytes = 0;
  for (int64_t p = 0; p < conv.phases(); ++p) bytes += call.groups * PackedGroupBytes(call, conv.PhaseAt(p));
  return bytes;
}
std::vector<int64_t> PackedForm(const Gathering& gathering) {
  constexpr int64_t kTileForm = -1;
  const GatherCall& call = gathering.gather;
  const TileConv conv(gathering.target, call);
  std::vector<int64_t> form = {kTileForm,      call.groups,       call.group_from,
                               call.group_to,  call.tap_stride,   call.from_stride,
                               call.to_stride, call.group_stride, call.geometry.window};  // taps that have marks
  for (int64_t p = 0; p < conv.phases(); ++p) conv.PhaseAt(p).AddForm(&form);
  return form;
}
absl::Status PackKernel(const Gathering& gathering, char* packed, ThreadPool& pool) {
  const GatherCall& call = gathering.gather;
  const TileConv conv(gathering.target, call);
  const int64_t tiles = CeilDiv(call.group_to, kTileSide);
  for (int64_t p = 0; p < conv.phases(); ++p) {
    const Pixels phase = conv.PhaseAt(p);
    const int64_t bytes = TilePackedBytes(phase.k(), kTileSide, BytesOf(call.input));
    pool.ParallelRanges(call.groups * tiles, [&](int64_t begin, int64_t end, int) {
      Pixels pixels = phase;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = i % tiles * kTileSide;
        pixels.SetGroup(i / tiles);
        pixels.PackB(column, std::min(kTileSide, call.group_to - column), 0, phase.k(), packed + i * bytes);
      }
    });
    packed += call.groups * PackedGroupBytes(call, phase);
  }
  return absl::OkStatus();
}

// Returns the elements that are written, or, where `weights` is null, would be: of all taps, or none.
int64_t UnpackAll(const Gathering& gathering, const char* packed, char* weights) {
  const GatherCall& call = gathering.gather;
  const TileConv conv(gathering.target, call);
  std::vector<bool> seen(static_cast<size_t>(call.geometry.window));
  for (int64_t p = 0; p < conv.phases(); ++p) {
    Pixels pixels = conv.PhaseAt(p);
    for (int64_t group = 0; group < call.groups; ++group) {
      pixels.SetGroup(group);
      pixels.UnpackB(packed, weights, &seen);
      if (packed != nullptr) packed += PackedGroupBytes(call, pixels);
    }
  }
  const bool all = std::ranges::find(seen, false) == seen.end();
  return all ? call.geometry.window * call.groups * call.group_from * call.group_to : 0;
}
int64_t Unpackable(const Gathering& gathering) { return UnpackAll(gathering, nullptr, nullptr); }
void Unpack(const Gathering& gathering, const char* packed, char* weights) { UnpackAll(gathering, packed, weights); }

}  // namespace

constinit const GatherImplementation kGatherAmx = {.name = "conv amx",
                                                   .refuses = Refuses,
                                                   .run = Run,
                                                   .packed_bytes = PackedBytes,
                                                   .packed_form = PackedForm,
                                                   .pack = PackKernel,
                                                   .unpackable = Unpackable,
                                                   .unpack = Unpack};

}  // namespace weft::cpu
