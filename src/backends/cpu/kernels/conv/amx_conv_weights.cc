// The gradient of a convolution's kernel on AMX's tiles: rows are (tap, input channel), columns output channels, K all output
// pixels. Rows of A are the input's pixels as a tap sees them, collected 32 channels wide and transposed; B is dy as it is.
#include <algorithm>
#include <cstring>
#include <vector>

#include "src/backends/cpu/kernels/conv/gathers.h"
#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int kDims = kMaxSpatialDims;
constexpr int kInner = kDims - 1;
constexpr int64_t kElement = 2;  // bf16: integers have no gradients

class Gradient : public TileOperands {
 public:
  Gradient(const CpuTarget& target, const ConvCall& call)
      : target_(target), call_(call), geometry_(PadRank(call.spatial_rank, call.dims)) {
    channels_ = call.in_channels / call.feature_groups;
    group_columns_ = call.out_channels / call.feature_groups;
    int64_t stride = call.in_channels;
    for (int d = kDims - 1; d >= 0; --d) {
      in_stride_[d] = stride;
      stride *= geometry_.dims[d].in;
    }
    image_ = stride;
  }

  int64_t rows() const { return geometry_.window * channels_; }
  int64_t columns() const { return group_columns_; }
  int64_t k() const { return call_.batch * geometry_.out; }
  void SetGroup(int64_t group) { group_ = group; }

  void PackA(int64_t row, int64_t rows, int64_t k0, int64_t length, char* out) const override {
    constexpr int64_t kPart = 128;  // pixels: 8 KiB
    alignas(64) uint16_t part[kPart * kTileBlockSide];
    const int64_t tiles = CeilDiv(rows, kTileSide);
    for (int64_t k = 0; k < length; k += kPart) {
      const int64_t pixels = std::min(kPart, length - k);
      for (int64_t r = 0; r < rows;) {
        const int64_t tap = (row + r) / channels_, channel = (row + r) % channels_;
        const int64_t count = std::min(channels_ - channel, rows - r);
        CollectTap(tap, channel, count, k0 + k, pixels, part + r);
        r += count;
      }
      PackTileRows(target_, kElement, {part, kTileBlockSide, 1}, rows, pixels,
                   out + k / TileK(kElement) * tiles * kTileBytes);
    }
  }

  void PackB(int64_t column, int64_t columns, int64_t k0, int64_t length, char* out) const override {
    const uint16_t* from =
        static_cast<const uint16_t*>(call_.y) + k0 * call_.out_channels + group_ * group_columns_ + column;
    PackTileColumns(target_, kElement, {from, call_.out_channels, 1}, columns, length, out);
  }

 private:
  // `count` channels of what a stored tap reads for output pixels [pixel, pixel + pixels), a row of 32 each.
  void CollectTap(int64_t stored, int64_t channel, int64_t count, int64_t pixel, int64_t pixels, uint16_t* to) const {
    Odometer taps;
    taps.Set(stored, [&](int d) { return geometry_.dims[d].window; });
    for (int d = 0; d < kDims; ++d) taps.at[d] = WeightTap(geometry_.dims[d], taps.at[d]);
    const uint16_t* from = static_cast<const uint16_t*>(call_.x) + group_ * channels_ + channel;
    const SpatialDim& inner = geometry_.dims[kInner];
    for (int64_t done = 0; done < pixels;) {  // line after line
      const int64_t first = (pixel + done) % inner.out, run = std::min(inner.out - first, pixels - done);
      const int64_t line = LineOffset((pixel + done) / inner.out, taps);
      for (int64_t i = 0; i < run; ++i, ++done) {
        const int64_t at = line < 0 ? -1 : InputPosition(inner, first + i, taps.at[kInner]);
        uint16_t* row = to + done * kTileBlockSide;
        if (at < 0) {
          std::memset(row, 0, static_cast<size_t>(count) * 2);
        } else if (count == kTileBlockSide) {
          std::memcpy(row, from + line + at * in_stride_[kInner], kTileBlockSide * 2);
        } else {
          std::memcpy(row, from + line + at * in_stride_[kInner], static_cast<size_t>(count) * 2);
        }
      }
    }
  }

  // Where the input's line begins that an output line reads through this tap; -1 on padding.
  int64_t LineOffset(int64_t line, const Odometer& taps) const {
    int64_t offset = 0;
    for (int d = kInner - 1; d >= 0; --d) {
      const SpatialDim& dim = geometry_.dims[d];
      const int64_t at = InputPosition(dim, line % dim.out, taps.at[d]);
      if (at < 0) return -1;
      line /= dim.out;
      offset += at * in_stride_[d];
    }
    return line * image_ + offset;
  }

  const CpuTarget& target_;
  const ConvCall& call_;
  const Geometry geometry_;
  int64_t channels_ = 0, group_columns_ = 0;  // of a group, of x and of y
  int64_t in_stride_[kDims] = {};
  int64_t image_ = 0;
  int64_t group_ = 0;
};

const char* Refuses(const KernelGradient& gradient) {
  const ConvCall& call = gradient.call;
  return AmxServes(gradient.target, call.input, call.output) ? nullptr : "the target has no AMX tiles for the types";
}

absl::Status Run(const KernelGradient& asked, KernelSet::State& state, const Duty& duty) {
  const ConvCall& call = asked.call;
  Gradient gradient(state.target(), call);
  if (gradient.rows() * gradient.columns() == 0) return absl::OkStatus();
  for (int64_t group = 0; group < call.feature_groups; ++group) {
    gradient.SetGroup(group);
    TileProduct product;
    product.operands = &gradient;
    product.m = gradient.rows();
    product.n = gradient.columns();
    product.k = gradient.k();
    product.output = call.output;
    product.c_stride = call.out_channels;
    product.column0 = group * gradient.columns();
    if (call.w != nullptr) {
      product.c = static_cast<char*>(const_cast<void*>(call.w)) + product.column0 * BytesOf(call.output);
    }
    product.epilogue = call.epilogue;
    WEFT_RETURN_IF_ERROR(RunTiles(state, product, duty));
    if (duty.pool == nullptr) break;  // groups are alike
  }
  return absl::OkStatus();
}

}  // namespace

constinit const KernelGradientImplementation kKernelGradientAmx = {"conv amx", Refuses, Run};

}  // namespace weft::cpu
