// Convolutions that gather (forward, and the input's gradient) on AMX's tiles: a product of a phase's pixels by output channels
// whose K runs over taps, then channels. Rows of A are collected 32 pixels at a time, half a megabyte at most; where a pixel
// reads one pixel of the input (1x1), tiles read the input itself.
#include <algorithm>
#include <cstring>
#include <vector>

#include "src/backends/cpu/kernels/conv/gathers.h"
#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int kDims = kMaxSpatialDims;

struct Tap {
  int64_t stored = 0;      // its place in the kernel
  int64_t offset = 0;      // of the input, in elements, from where the phase's first output pixel would read
  int64_t at[kDims] = {};  // the same by dimension
};

class Pixels : public TileOperands {
 public:
  Pixels(const CpuTarget& target, const GatherCall& call, const PhaseDim* const* dims) : target_(target), call_(call) {
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
    channels_ = CeilDiv(call.group_from, word_) * word_;
    ListTaps();
  }

  int64_t rows() const { return call_.batch * pixels_; }
  int64_t k() const { return static_cast<int64_t>(taps_.size()) * channels_; }
  void SetGroup(int64_t group) { group_ = group; }

  // Every pixel reads the pixel of the same number, and that is inside.
  bool IsProduct() const {
    if (taps_.size() != 1 || taps_[0].offset != 0 || call_.group_from % word_ != 0) return false;
    for (int d = 0; d < kDims; ++d) {
      const SpatialDim& dim = call_.geometry.dims[d];
      if (dims_[d]->in_step != 1 || dims_[d]->step != 1 || !dims_[d]->inside || dim.in != dims_[d]->count) return false;
    }
    return true;
  }
  int64_t GroupOffset() const { return group_ * call_.group_from; }

  void PackA(int64_t row, int64_t rows, int64_t k0, int64_t length, char* out) const override {
    const int64_t tiles = CeilDiv(rows, kTileSide), step_bytes = tiles * kTileBytes;
    Place place = Seek(row);
    for (int64_t r = 0; r < tiles * kTileSide; ++r) {
      char* to = out + r / kTileSide * kTileBytes + r % kTileSide * kTileRowBytes;
      int64_t k = 0;
      if (r < rows) {
        const bool inside = Inside(place);
        const char* from = static_cast<const char*>(call_.from);
        const int64_t start = Start(place) + GroupOffset();
        for (int64_t t = k0 / channels_, c = k0 % channels_; k < length; ++t, c = 0) {
          const int64_t count = std::min(channels_ - c, length - k);
          const bool here = inside || TapInside(place, taps_[t]);
          CopyRun(here ? from + (start + taps_[t].offset + c) * element_ : nullptr,
                  std::min(count, call_.group_from - c) * element_, count * element_, k * element_, step_bytes, to);
          k += count;
        }
        Advance(place);
      }
      CopyRun(nullptr, 0, TileSteps(length, element_) * kTileRowBytes - k * element_, k * element_, step_bytes, to);
    }
  }

  void PackB(int64_t column, int64_t columns, int64_t k0, int64_t length, char* out) const override {
    const int64_t base = group_ * call_.group_stride + column * call_.to_stride;
    for (int64_t k = 0; k < length;) {
      const int64_t t = (k0 + k) / channels_, c = (k0 + k) % channels_, count = std::min(channels_ - c, length - k);
      const int64_t first = base + taps_[t].stored * call_.tap_stride + c * call_.from_stride;
      Pack(target_, element_ == 1 ? PackKind::kQuads : PackKind::kPairs,
           {static_cast<const char*>(call_.weights) + first * element_, call_.from_stride, call_.to_stride},
           std::min(count, call_.group_from - c), columns, kTileSide, out + k / word_ * kTileSide * 4);
      k += count;
    }
    const int64_t written = length / word_ * kTileSide * 4;
    std::memset(out + written, 0, TileSteps(length, element_) * kTileBytes - written);
  }

  int64_t ResultRow(int64_t row) const override {
    const Place place = Seek(row);
    int64_t pixel = place.member * out_image_;
    for (int d = 0; d < kDims; ++d) pixel += (dims_[d]->first + place.at[d] * dims_[d]->step) * out_stride_[d];
    return pixel;
  }

 private:
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

  // `count` bytes of a row from its byte `at` on, of which `real` come from memory (null: none) and the rest are zeros.
  static void CopyRun(const char* from, int64_t real, int64_t count, int64_t at, int64_t step_bytes, char* row) {
    if (from == nullptr) real = 0;
    for (int64_t done = 0; done < count;) {
      char* to = row + (at + done) / kTileRowBytes * step_bytes + (at + done) % kTileRowBytes;
      const int64_t piece = std::min(kTileRowBytes - (at + done) % kTileRowBytes, count - done);
      const int64_t copied = std::clamp<int64_t>(real - done, 0, piece);
      if (copied == kTileRowBytes) {
        std::memcpy(to, from + done, kTileRowBytes);
      } else {
        if (copied > 0) std::memcpy(to, from + done, copied);
        std::memset(to + copied, 0, piece - copied);
      }
      done += piece;
    }
  }

  const CpuTarget& target_;
  const GatherCall& call_;
  const PhaseDim* dims_[kDims] = {};
  int64_t in_stride_[kDims] = {}, out_stride_[kDims] = {};  // elements; pixels
  int64_t image_ = 0, out_image_ = 0;
  int64_t pixels_ = 1;              // of the phase, per batch member
  int64_t element_ = 2, word_ = 2;  // bytes of an element, and elements of a word of B
  int64_t channels_ = 0;            // of a tap in K: whole words, so that they stay within it
  int64_t group_ = 0;
  std::vector<Tap> taps_;
};

absl::Status RunPhase(KernelSet::State& state, const GatherCall& call, Pixels& pixels, bool scattered,
                      const Duty& duty) {
  if (pixels.rows() == 0) return absl::OkStatus();
  for (int64_t group = 0; group < call.groups; ++group) {
    pixels.SetGroup(group);
    TileProduct product;
    product.operands = &pixels;
    product.m = pixels.rows();
    product.n = call.group_to;
    product.k = pixels.k();
    product.a_stride = call.FromChannels() * BytesOf(call.input);
    product.a_in_place = pixels.IsProduct() && ReadsInPlace(product.a_stride, product.n);
    if (call.from != nullptr)
      product.a = static_cast<const char*>(call.from) + pixels.GroupOffset() * product.element();
    product.input = call.input;
    product.output = call.output;
    product.c_stride = call.ToChannels();
    product.column0 = group * call.group_to;
    if (call.to != nullptr) product.c = static_cast<char*>(call.to) + product.column0 * BytesOf(call.output);
    product.scattered = scattered;
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
  absl::InlinedVector<PhaseDim, 1> split[kDims];
  int64_t phases = 1;
  for (int d = 0; d < kDims; ++d) {
    split[d] = SplitDim(call.geometry.dims[d]);
    phases *= static_cast<int64_t>(split[d].size());
  }
  for (int64_t p = 0; p < phases; ++p) {
    Odometer index;
    index.Set(p, [&](int d) { return static_cast<int64_t>(split[d].size()); });
    const PhaseDim* dims[kDims];
    for (int d = 0; d < kDims; ++d) dims[d] = &split[d][static_cast<size_t>(index.at[d])];
    Pixels pixels(state.target(), call, dims);
    WEFT_RETURN_IF_ERROR(RunPhase(state, call, pixels, phases > 1, duty));
  }
  return absl::OkStatus();
}

}  // namespace

constinit const GatherImplementation kGatherAmx = {.name = "conv amx", .refuses = Refuses, .run = Run};

}  // namespace weft::cpu
