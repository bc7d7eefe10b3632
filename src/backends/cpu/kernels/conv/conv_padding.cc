// See conv_padding.h.
#include "src/backends/cpu/kernels/conv/conv_padding.h"

#include <algorithm>
#include <cstring>

#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int kInner = kMaxSpatialDims - 1;

// Returns the distance from the first line that a window reads to the last.
int64_t Reach(const PhaseDim& dim) { return dim.offsets.back() - dim.offsets.front(); }

}  // namespace

bool PadsFirst(const CpuTarget& target, const ConvCall& call, const TypePlan& types, bool forward) {
  constexpr int64_t kFewChannels = 4;
  // Pairs of an odd number of channels fill runs of taps, not each tap by itself; gradients of kernels widen them.
  const bool pairs = forward && types.pack == PackKind::kPairs && !AmxServes(target, call.input, call.output);
  bool pads = false, plain = (types.direct || pairs) && call.feature_groups == 1 && call.in_channels <= kFewChannels &&
                             call.batch * call.in_channels > 0;
  for (int d = 0; d < call.spatial_rank; ++d) {
    const SpatialDim& dim = call.dims[d];
    plain = plain && dim.lhs_dilation == 1 && dim.pad_lo >= 0 && dim.pad_hi >= 0;
    plain = plain && dim.in + dim.pad_lo + dim.pad_hi > 0;  // there is something to copy
    pads = pads || dim.pad_lo > 0 || dim.pad_hi > 0;
  }
  return plain && pads;
}

void TakePadding(ConvCall* call) {
  for (int d = 0; d < call->spatial_rank; ++d) {
    SpatialDim& dim = call->dims[d];
    dim.in += dim.pad_lo + dim.pad_hi;
    dim.pad_lo = dim.pad_hi = 0;
  }
}

PaddedImage::PaddedImage(const ConvCall& call, int64_t source_bytes)
    : from_(PadRank(call.spatial_rank, call.dims)),
      x_(static_cast<const char*>(call.x)),
      batch_(call.batch),
      pixel_(call.in_channels * source_bytes) {
  ConvCall padded = call;
  TakePadding(&padded);
  to_ = PadRank(padded.spatial_rank, padded.dims);
  line_ = to_.dims[kInner].in * pixel_;
  image_lines_ = to_.in / to_.dims[kInner].in;
}

bool PaddedImage::Flows() const {
  constexpr int64_t kMostBytes = 8 << 10;
  const auto alone = [&](int d) { return to_.dims[d].in == 1 && to_.dims[d].window == 1; };
  const int64_t reach = (to_.dims[kInner - 1].window - 1) * to_.dims[kInner - 1].rhs_dilation;
  return to_.dims[kInner].window > 1 && line_ <= kMostBytes && reach <= to_.dims[kInner - 1].stride * 8 && alone(0) &&
         alone(1);
}

void PaddedImage::Copy(int64_t begin, int64_t end, char* to) const {
  const SpatialDim& inner = from_.dims[kInner];
  const int64_t low = inner.pad_lo * pixel_, middle = inner.in * pixel_;
  int64_t member = begin / image_lines_;
  Odometer at;  // turned by hand: a division takes as long as a short line
  at.Set(begin % image_lines_, [&](int d) { return d == kInner ? 1 : to_.dims[d].in; });
  for (int64_t i = begin; i < end; ++i, to += line_) {
    int64_t source = member;
    bool inside = true;
    for (int d = 0; d < kInner; ++d) {
      const int64_t position = at.at[d] - from_.dims[d].pad_lo;
      inside = inside && position >= 0 && position < from_.dims[d].in;
      source = source * from_.dims[d].in + position;
    }
    if (inside) {
      std::memset(to, 0, low);
      std::memcpy(to + low, x_ + source * middle, middle);
      std::memset(to + low + middle, 0, line_ - low - middle);
    } else {
      std::memset(to, 0, line_);
    }
    int d = kInner - 1;
    for (; d >= 0 && ++at.at[d] == to_.dims[d].in; --d) at.at[d] = 0;
    if (d < 0) ++member;
  }
}

absl::StatusOr<const void*> Pad(const PaddedImage& image, const Duty& duty, int64_t slack) {
  const int64_t bytes = image.lines() * image.line_bytes() + slack;
  if (duty.pool == nullptr) {
    duty.needs->Once(ScratchSlot::kWiden, bytes);
    return nullptr;
  }
  char* const memory = static_cast<char*>(ThreadScratch(ScratchSlot::kWiden, bytes));
  if (memory == nullptr) return OutOfScratch("a padded copy of a convolution's input", bytes);
  duty.pool->ParallelRanges(image.lines(), [&](int64_t begin, int64_t end, int) {
    image.Copy(begin, end, memory + begin * image.line_bytes());
  });
  return memory;
}

int64_t PaddedLines::Tiles(const Phase& phase) {
  constexpr int64_t kLines = 8;  // of results: what a window of lines reaches beyond them is little
  return kLines * std::max<int64_t>(1, phase.line_tiles);
}

int64_t PaddedLines::Most() const {
  const PhaseDim& dim = phase_.dims[kInner - 1];
  const int64_t lines = (Tiles(phase_) * rows_ - 1) / phase_.dims[kInner].count + 2;
  // The reach of a window comes at the end, and again where tiles go on to another member.
  return (lines - 1) * dim.in_step + 1 + Reach(dim) * (lines / dim.count + 2);
}

void PaddedLines::Need(ScratchNeeds& needs) const {
  if (image_ != nullptr) needs.Each(ScratchSlot::kWiden, Most() * image_->line_bytes());
}

bool PaddedLines::Reserve() {
  if (image_ == nullptr) return true;
  memory_ = static_cast<char*>(ThreadScratch(ScratchSlot::kWiden, Most() * image_->line_bytes()));
  return memory_ != nullptr;
}

const char* PaddedLines::Make(int64_t row0, int64_t row1, int64_t* behind) {
  const PhaseDim& dim = phase_.dims[kInner - 1];
  const auto first = [&](int64_t row) {
    const int64_t member = row / phase_.pixels, at = row % phase_.pixels / phase_.dims[kInner].count;
    return member * image_->image_lines() + at * dim.in_step + dim.offsets.front();
  };
  const int64_t line = image_->line_bytes(), begin = first(row0), end = first(row1 - 1) + Reach(dim) + 1;
  if (begin < first_ || begin >= end_) first_ = end_ = begin;
  if (end - first_ > Most()) {  // those that are read again go to the front
    std::memmove(memory_, memory_ + (begin - first_) * line, (end_ - begin) * line);
    first_ = begin;
  }
  if (end > end_) {
    image_->Copy(end_, end, memory_ + (end_ - first_) * line);
    end_ = end;
  }
  *behind = first_ * line;
  return memory_;
}

}  // namespace weft::cpu
