// Where the pixels and the channels of a gathering convolution lie in memory: distances, a walk through a phase's output pixels,
// the packed kernel's panels. All threads read the same.
#pragma once

#include <vector>

#include "src/backends/cpu/kernels/conv/conv_panels.h"

namespace weft::cpu {

// How far the pixels of an image lie apart, in elements.
struct ImageStrides {
  // `size`: which of a dimension's sizes is this image's.
  ImageStrides(const Geometry& geometry, int64_t SpatialDim::* size, int64_t channels) : member(channels) {
    for (int d = kMaxSpatialDims - 1; d >= 0; --d) {
      dims[d] = member;
      member *= geometry.dims[d].*size;
    }
  }

  int64_t dims[kMaxSpatialDims];
  int64_t member;  // from one of the batch to the next
};

// An output pixel of a phase, and the walk to those after it, as an odometer over (member, positions) turns.
class PixelCursor {
 public:
  static constexpr int kInner = kMaxSpatialDims - 1;

  PixelCursor(const Phase& phase, int64_t row) : phase_(phase), member_(row / phase.pixels) {
    int64_t rest = row % phase.pixels;
    for (int d = kInner; d >= 0; --d) {
      at_[d] = rest % phase.dims[d].count;
      rest /= phase.dims[d].count;
    }
  }

  int64_t member() const { return member_; }
  int64_t at(int d) const { return at_[d]; }
  int64_t inner() const { return at_[kInner]; }

  void Advance() {
    for (int d = kInner; d >= 0; --d) {
      if (++at_[d] < phase_.dims[d].count) return;
      at_[d] = 0;
    }
    ++member_;
  }
  void AdvanceBy(int64_t rows) {
    at_[kInner] += rows;
    while (at_[kInner] >= phase_.dims[kInner].count) {
      at_[kInner] -= phase_.dims[kInner].count;
      int d = kInner - 1;
      for (; d >= 0; --d) {
        if (++at_[d] < phase_.dims[d].count) break;
        at_[d] = 0;
      }
      if (d < 0) ++member_;
    }
  }
  // Elements before the pixel in the image that is written.
  int64_t Offset(const ImageStrides& to) const {
    int64_t offset = member_ * to.member;
    for (int d = 0; d <= kInner; ++d) {
      offset += (phase_.dims[d].first + at_[d] * phase_.dims[d].step) * to.dims[d];
    }
    return offset;
  }

 private:
  const Phase& phase_;
  int64_t member_;
  int64_t at_[kMaxSpatialDims];
};

// A panel of the packed kernel, found by its number over all groups; tiles are too short for the divisions that find it.
struct PanelPlace {
  int64_t group = 0;
  int64_t first = 0, end = 0;  // channels
  int64_t last_lanes = 0;
  int vectors = 0;
  int64_t before = 0;  // bytes of a packed step
};

// The operands of a gathering convolution that runs.
struct GatherOperands {
  // `zeros`: as many as a tile reads of padding.
  GatherOperands(const GatherPlan& plan, const char* packed, const char* zeros)
      : plan(plan),
        from(plan.call.geometry, &SpatialDim::in, plan.call.FromChannels()),
        to(plan.call.geometry, &SpatialDim::out, plan.call.ToChannels()),
        packed(packed),
        zeros(zeros),
        denormals_vanish(plan.call.types.narrow && plan.call.ending.kind != EndingKind::kNone &&
                         plan.call.DenormalsVanish()),
        panels(static_cast<size_t>(plan.Panels())) {
    const ColumnCut& columns = plan.columns;
    for (int64_t flat = 0; flat < plan.Panels(); ++flat) {
      const int64_t group = flat / columns.panels, panel = flat % columns.panels;
      const int64_t first = group * plan.call.group_to + columns.First(panel) * columns.lanes;
      panels[flat] = {group,
                      first,
                      first + columns.Columns(panel),
                      columns.LastLanes(panel),
                      columns.Vectors(panel),
                      (group * columns.vectors + columns.First(panel)) * columns.lanes * plan.element()};
    }
  }

  // The channels of panels that follow each other.
  Range Channels(Range these) const { return {panels[these.begin].first, panels[these.end - 1].end}; }

  const GatherPlan& plan;
  const ImageStrides from, to;
  const char* const packed;
  const char* const zeros;
  const bool denormals_vanish;  // in the ending
  std::vector<PanelPlace> panels;
};

}  // namespace weft::cpu
