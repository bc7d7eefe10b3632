// The pointers of a gathering tile: one of the image for each of its pixels and taps, one of the results for each pixel. Setting
// them takes as long as a small tile's products, so that tiles of one line are told apart from others, and neighbours only move on.
#pragma once

#include <algorithm>

#include "src/backends/cpu/kernels/conv/gather_pixels.h"

namespace weft::cpu {

// A thread's memory while it computes tiles.
struct GatherTables {
  const void** a = nullptr;      // pointers of one block's taps
  int64_t* b_offsets = nullptr;  // into the panel, for joined and single taps
  int64_t* kept = nullptr;       // numbers of the taps that are not all padding
  char* wide = nullptr;          // results in f32 where they shall be narrower
  int64_t wide_stride = 0;       // bytes of a row of them
  const char* from = nullptr;    // what is so many bytes behind the image's beginning
  int64_t behind = 0;
};

// How a tile's pixels lie.
struct TileShape {
  int64_t rows = 0;
  bool in_line = false;  // in one line, all inner taps of all of them inside: they differ by a constant
  bool joined = false;   // inner taps are one run of memory
  bool operator==(const TileShape&) const = default;
};

// The pointers of one tile at a time, of those that go through one block of K.
class TilePointers {
 public:
  TilePointers(const GatherOperands& operands, const Phase& phase, const KBlock& block, const GatherTables& tables)
      : operands_(operands),
        call_(operands.plan.call),
        phase_(phase),
        block_(block),
        tables_(tables),
        source_(call_.types.source_bytes),
        tile_bytes_(operands.plan.TileBytes(phase)),
        pixel_(operands.from.dims[kInner] * source_),
        from_step_(phase.dims[kInner].in_step * pixel_),
        to_step_(tables.wide != nullptr ? tables.wide_stride
                                        : phase.dims[kInner].step * operands.to.dims[kInner] * tile_bytes_),
        one_pointer_(operands.plan.form == MicroForm::kColumns),
        joins_(phase.joinable && (block.tap1 - block.tap0) % phase.inner_taps == 0 &&
               block.tap0 % phase.inner_taps == 0 && block.channel1 - block.channel0 == call_.group_from) {}

  void* const* c() const { return c_; }
  const char* first() const { return static_cast<const char*>(tables_.a[0]); }

  // Joining changes no bits: the same products in the same order.
  TileShape Shape(const PixelCursor& first, int64_t rows) const {
    const bool in_line = InsideLine(first, rows);
    return {rows, in_line, joins_ && (in_line || phase_.dims[kInner].inside)};
  }

  // Sets all, for channels of `from` from `channel` on, and returns how many taps remain. Tiles within a line (nearly all) cost
  // one pixel's arithmetic and an addition a pointer. `wide`: the tile's results in f32 where they shall be narrower.
  int64_t Set(const PixelCursor& first, TileShape shape, int64_t channel, char* wide) {
    const int64_t all = block_.tap1 - block_.tap0, taps = shape.joined ? all / phase_.inner_taps : all;
    shape.in_line ? SetLine(first, shape, taps, channel, wide) : SetEach(first, shape, channel, wide);
    return DropPadding(Pointers(shape.rows), taps);
  }

  // From tiles to the next of the same line, as wide: Set would set the same, so far on.
  void Step(int64_t rows, int64_t tiles, int64_t taps) {
    const int64_t delta = tiles * FromStep(rows), pointers = Pointers(rows);
    for (int64_t t = 0; t < taps; ++t) {
      const void** slot = tables_.a + t * pointers;
      if (slot[0] == operands_.zeros) continue;
      for (int64_t r = 0; r < pointers; ++r) slot[r] = static_cast<const char*>(slot[r]) + delta;
    }
    const int64_t c_step = tiles * ToStep(rows);
    for (int64_t r = 0; r < rows; ++r) c_[r] = static_cast<char*>(c_[r]) + c_step;
  }
  // From so many pixels of a line to the next, in bytes.
  int64_t FromStep(int64_t rows) const { return rows * from_step_; }
  int64_t ToStep(int64_t rows) const { return rows * to_step_; }

 private:
  static constexpr int kInner = PixelCursor::kInner;

  int64_t Pointers(int64_t rows) const { return one_pointer_ ? 1 : rows; }

  bool InsideLine(const PixelCursor& first, int64_t rows) const {
    const PhaseDim& inner = phase_.dims[kInner];
    if (first.inner() + rows > inner.count) return false;
    if (inner.inside) return true;
    const int64_t low = first.inner() * inner.in_step + inner.offsets.front();
    const int64_t high = (first.inner() + rows - 1) * inner.in_step + inner.offsets.back();
    return low >= 0 && high < call_.geometry.dims[kInner].in;
  }

  char* Result(const PixelCursor& cursor) const {
    return static_cast<char*>(call_.to) + cursor.Offset(operands_.to) * tile_bytes_;
  }

  void SetEach(const PixelCursor& first, TileShape shape, int64_t channel, char* wide) {
    PixelCursor cursor = first;
    for (int64_t r = 0; r < shape.rows; ++r) {
      SetPixel(cursor, {shape.rows, false, shape.joined}, channel, tables_.a + r);
      c_[r] = wide != nullptr ? wide + r * tables_.wide_stride : Result(cursor);
      cursor.Advance();
    }
  }

  void SetLine(const PixelCursor& first, TileShape shape, int64_t taps, int64_t channel, char* wide) {
    const int64_t pointers = Pointers(shape.rows);
    SetPixel(first, {pointers, true, shape.joined}, channel, tables_.a);
    const char* const zeros = operands_.zeros;
    for (int64_t t = 0; t < taps; ++t) {
      const void** slot = tables_.a + t * pointers;
      const char* base = static_cast<const char*>(slot[0]);
      const int64_t step = base == zeros ? 0 : from_step_;
      for (int64_t r = 1; r < pointers; ++r) slot[r] = base + r * step;
    }
    char* base = wide != nullptr ? wide : Result(first);
    for (int64_t r = 0; r < shape.rows; ++r) c_[r] = base + r * to_step_;
  }

  // One pixel's pointers for a block's taps, or the first inner ones of joined runs: as many slots between taps as `shape` has
  // rows. Padding points at zeros.
  void SetPixel(const PixelCursor& cursor, TileShape shape, int64_t channel, const void** slot) const {
    const PhaseDim& inner = phase_.dims[kInner];
    const int64_t n2 = static_cast<int64_t>(phase_.dims[2].taps.size());
    const int64_t n1 = static_cast<int64_t>(phase_.dims[1].taps.size());
    const int64_t inner_at = cursor.inner() * inner.in_step;
    const int64_t inner_size = call_.geometry.dims[kInner].in;
    const int64_t base = cursor.member() * operands_.from.member + channel;
    int64_t outer = block_.tap0 == 0 ? 0 : block_.tap0 / phase_.inner_taps;
    int64_t tap[kInner] = {0, 0, 0};  // as odometers turn: a division takes as long as a row of a small tile
    if (outer != 0) {
      tap[0] = outer / (n1 * n2);
      tap[1] = outer / n2 % n1;
      tap[2] = outer % n2;
    }
    const auto next = [&] {
      ++outer;
      if (++tap[2] < n2) return;
      tap[2] = 0;
      if (++tap[1] < n1) return;
      tap[1] = 0;
      ++tap[0];
    };
    for (int64_t flat = block_.tap0; flat < block_.tap1; next()) {
      const int64_t outer_end = std::min(block_.tap1, (outer + 1) * phase_.inner_taps);
      int64_t offset = base;
      bool inside = true;
      for (int d = 0; d < kInner; ++d) {
        const PhaseDim& dim = phase_.dims[d];
        if (dim.count == 1 && dim.offsets[tap[d]] == 0) continue;  // absent leading dimensions
        const int64_t at = cursor.at(d) * dim.in_step + dim.offsets[tap[d]];
        inside &= at >= 0 && at < call_.geometry.dims[d].in;
        offset += at * operands_.from.dims[d];
      }
      const char* const zeros = operands_.zeros;
      if (!inside) {
        const int64_t end = shape.joined ? flat + 1 : outer_end;
        for (; flat < end; ++flat) {
          *slot = zeros;
          slot += shape.rows;
        }
        flat = outer_end;
        continue;
      }
      const char* const line = tables_.from + (offset * source_ - tables_.behind);
      if (shape.joined) {
        *slot = line + (inner_at + inner.offsets[0]) * pixel_;
        slot += shape.rows;
        flat = outer_end;
        continue;
      }
      for (; flat < outer_end; ++flat) {
        const int64_t at = inner_at + inner.offsets[flat - outer * phase_.inner_taps];
        *slot = at >= 0 && at < inner_size ? line + at * pixel_ : zeros;
        slot += shape.rows;
      }
    }
  }

  // Taps that lie in the padding for all of a tile's pixels add nothing (in a gradient of 3x3 over lines of 24, one line
  // in thirteen): moves the others to the front of `a`, their numbers to `kept`, and returns how many there are. In a
  // tile's first block one is left, for the zeros that it writes.
  int64_t DropPadding(int64_t pointers, int64_t taps) const {
    const void** const a = tables_.a;
    const bool first = !block_.Adds();
    int64_t count = 0;
    for (; phase_.within && count < taps; ++count) tables_.kept[count] = count;
    for (int64_t t = count; t < taps; ++t) {
      const void** from = a + t * pointers;
      bool padding = true;
      for (int64_t r = 0; r < pointers && padding; ++r) padding = from[r] == operands_.zeros;
      if (padding && !(first && t == taps - 1 && count == 0)) continue;
      if (count < t) std::copy(from, from + pointers, a + count * pointers);
      tables_.kept[count++] = t;
    }
    return count;
  }

  const GatherOperands& operands_;
  const GatherCall& call_;
  const Phase& phase_;
  const KBlock& block_;
  const GatherTables& tables_;
  // Bytes of an element of the image, of a result as tiles write it, and of a pixel; from a pixel of a line to the next.
  const int64_t source_, tile_bytes_, pixel_;
  const int64_t from_step_, to_step_;
  const bool one_pointer_;
  const bool joins_;  // inner taps, where a tile's pixels allow it
  void* c_[16];
};

}  // namespace weft::cpu
