// See conv_columns.h. A pixel's column has, for each input channel, what each tap reads there (im2col), so that
//   y^T = W columns^T,   columns of dx = dy W,   dW = dy^T columns.
// Padding is zeros in the columns, multiplied with like any number, so that infinities and NaN of the forward pass and of dW follow from
// the products. Of dx they do not: positions of dx add up the pixels that read them, not those that the definition's zeros stand for.
#include "src/backends/cpu/kernels/conv/conv_columns.h"

#include <algorithm>
#include <vector>

#include "src/backends/cpu/kernels/chosen.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// So many output channels to a pixel, at least, and elements of w: else what is moved to make columns is not small beside w.
constexpr int64_t kLeastChannelsEach = 2, kLeastElements = 1 << 15;
// Fewer elements are copied faster than another thread begins.
constexpr int64_t kInlineElements = 32 << 10;

class Columns {
 public:
  Columns(const ConvCall& call, Direction direction)
      : call_(call),
        direction_(direction),
        geometry_(PadRank(call.spatial_rank, call.dims)),
        pixels_(call.batch * geometry_.out),
        taps_(geometry_.window),
        depth_(taps_ * call.in_channels) {}

  absl::Status Run(KernelSet& kernels, const Duty& duty) {
    if (pixels_ * depth_ * call_.out_channels == 0) return UserError("convolution by columns of which there are none");
    if (duty.pool == nullptr) {
      Chose("conv columns");
      duty.needs->Once(ScratchSlot::kWiden, Bytes());
      return kernels.PrepareGemm(Product(), duty.threads, *duty.needs);
    }
    columns_ = static_cast<float*>(ThreadScratch(ScratchSlot::kWiden, Bytes()));
    if (columns_ == nullptr) return OutOfScratch("a convolution's columns", Bytes());
    if (direction_ != Direction::kData) Gather(*duty.pool);
    WEFT_RETURN_IF_ERROR(kernels.Gemm(Product(), *duty.pool));
    if (direction_ == Direction::kForward) TurnResults();
    if (direction_ == Direction::kData) Scatter(*duty.pool);
    if (direction_ != Direction::kWeights) Finish();
    return absl::OkStatus();
  }

 private:
  int64_t Bytes() const {
    const int64_t results = direction_ == Direction::kForward ? pixels_ * call_.out_channels : 0;
    return (pixels_ * depth_ + results) * static_cast<int64_t>(sizeof(float));
  }
  float* results() const { return columns_ + pixels_ * depth_; }  // of the forward pass, [out channels, pixels]

  GemmCall Product() const {
    GemmCall product;
    const int64_t outs = call_.out_channels;
    const MatrixView w = {call_.w, depth_, 1, {}};
    switch (direction_) {
      case Direction::kForward:
        product.m = outs, product.n = pixels_, product.k = depth_;
        product.a = w;
        product.b = {columns_, 1, depth_, {}};
        product.c = columns_ == nullptr ? nullptr : results();
        break;
      case Direction::kData:
        product.m = pixels_, product.n = depth_, product.k = outs;
        product.a = {call_.y, outs, 1, {}};
        product.b = w;
        product.c = columns_;
        break;
      case Direction::kWeights:
        product.m = outs, product.n = depth_, product.k = pixels_;
        product.a = {call_.y, 1, outs, {}};
        product.b = {columns_, depth_, 1, {}};
        product.c = const_cast<void*>(call_.w);
        product.epilogue = call_.epilogue;
        break;
    }
    return product;
  }

  // The first channel of the pixel of x that a stored tap reads at an output pixel; -1 for padding.
  int64_t Read(int64_t pixel, int64_t stored_tap) const {
    Odometer out, tap;
    out.Set(pixel % geometry_.out, [&](int d) { return geometry_.dims[d].out; });
    tap.Set(stored_tap, [&](int d) { return geometry_.dims[d].window; });
    int64_t at = pixel / geometry_.out;
    for (int d = 0; d < kMaxSpatialDims; ++d) {
      const SpatialDim& dim = geometry_.dims[d];
      const int64_t position = InputPosition(dim, out.at[d], WeightTap(dim, tap.at[d]));
      if (position < 0) return -1;
      at = at * dim.in + position;
    }
    return at * call_.in_channels;
  }

  void Gather(ThreadPool& pool) const {
    const auto* const x = static_cast<const float*>(call_.x);
    Share(pool, pixels_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * taps_; i < end * taps_; ++i) {
        const int64_t from = Read(i / taps_, i % taps_);
        float* const to = columns_ + i / taps_ * depth_ + i % taps_;
        for (int64_t c = 0; c < call_.in_channels; ++c) to[c * taps_] = from < 0 ? 0.0f : x[from + c];
      }
    });
  }

  // Each position of dx adds up in the order of pixels and taps, whichever thread has its channels.
  void Scatter(ThreadPool& pool) const {
    auto* const x = static_cast<float*>(const_cast<void*>(call_.x));
    Share(pool, call_.in_channels, [&](int64_t begin, int64_t end) {
      for (int64_t at = 0; at < call_.batch * geometry_.in; ++at) {
        std::fill(x + at * call_.in_channels + begin, x + at * call_.in_channels + end, 0.0f);
      }
      for (int64_t i = 0; i < pixels_ * taps_; ++i) {
        const int64_t to = Read(i / taps_, i % taps_);
        const float* const from = columns_ + i / taps_ * depth_ + i % taps_;
        for (int64_t c = begin; c < end && to >= 0; ++c) x[to + c] += from[c * taps_];
      }
    });
  }

  void TurnResults() const {
    auto* const y = static_cast<float*>(call_.y);
    for (int64_t p = 0; p < pixels_; ++p) {
      for (int64_t o = 0; o < call_.out_channels; ++o) y[p * call_.out_channels + o] = results()[o * pixels_ + p];
    }
  }

  template <typename Body>
  void Share(ThreadPool& pool, int64_t count, Body&& body) const {
    if (pixels_ * depth_ < kInlineElements) return body(0, count);
    pool.ParallelRanges(count, [&](int64_t begin, int64_t end, int) { body(begin, end); });
  }

  // The epilogue runs over all results at once: they are few.
  void Finish() const {
    const bool forward = direction_ == Direction::kForward;
    const int64_t rows = forward ? pixels_ : call_.batch * geometry_.in;
    const int64_t channels = forward ? call_.out_channels : call_.in_channels;
    const auto run = [&](const Epilogue& epilogue) {
      if (epilogue.run != nullptr) epilogue.run(epilogue.context, 0, 0, rows, 0, channels);
    };
    // An element of w that is not finite leaves none finite of its tap and channel, whatever it is multiplied with: the first column
    // tells whether there may be any.
    if (forward || !MeetsZeros(call_, direction_) || !AnyNotFinite(call_.input, columns_, depth_)) {
      return run(call_.epilogue);
    }
    std::vector<uint8_t> marks(static_cast<size_t>(MarkCount(call_, direction_)));
    MarkNotFinite(call_, direction_, marks.data());
    NaNOfZeros nans(call_, direction_, marks.data());
    run(nans.epilogue());
  }

  const ConvCall& call_;
  const Direction direction_;
  const Geometry geometry_;
  const int64_t pixels_, taps_, depth_;  // depth: elements of a column
  float* columns_ = nullptr;             // [pixels, in channels, taps]
};

bool ServesTypes(const ConvCall& call) {
  return call.input == DType::kF32 && call.output == DType::kF32 && call.feature_groups == 1 && call.batch_groups == 1;
}

}  // namespace

bool TakesColumns(const ConvCall& call) {
  const Geometry geometry = PadRank(call.spatial_rank, call.dims);
  const int64_t pixels = call.batch * geometry.out, elements = geometry.window * call.in_channels * call.out_channels;
  return ServesTypes(call) && pixels > 0 && elements >= kLeastElements &&
         pixels <= call.out_channels / kLeastChannelsEach;
}

absl::Status RunColumns(KernelSet& kernels, const ConvCall& call, Direction direction, const Duty& duty) {
  WEFT_RETURN_IF_ERROR(CheckConv(call));
  if (!ServesTypes(call) || !call.w_out_first || call.w_packed) {
    return UserError("convolution by columns: f32, one group, and a kernel whose output channels come first");
  }
  return Columns(call, direction).Run(kernels, duty);
}

}  // namespace weft::cpu
