// Images of few channels are read from a copy that has their padding: then a tile's taps are runs of memory everywhere, and the
// kernel's gradient has rows of several taps to a tile. The copy is a channel's worth of work, the convolution a window's.
// Tiles that gather have lines of it made just before they read them (PaddedLines); others a copy of all (Pad).
#pragma once

#include "src/backends/cpu/kernels/conv/conv_phases.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

bool PadsFirst(const CpuTarget& target, const ConvCall& call, const TypePlan& types, bool forward);

// The image with its padding, line by line; lines count through the batch.
class PaddedImage {
 public:
  PaddedImage(const ConvCall& call, int64_t source_bytes);

  int64_t line_bytes() const { return line_; }
  int64_t lines() const { return batch_ * image_lines_; }
  int64_t image_lines() const { return image_lines_; }  // of one member
  // Tells whether lines are short enough to be made several at a time in a near cache, and follow each other as windows
  // move.
  bool Flows() const;
  void Copy(int64_t begin, int64_t end, char* to) const;

 private:
  Geometry from_, to_;
  const char* x_;
  int64_t batch_, pixel_, line_ = 0, image_lines_ = 0;
};
// `call` over the padded image, wherever that lies.
void TakePadding(ConvCall* call);
// A copy of all, behind which so many bytes may be read, too.
absl::StatusOr<const void*> Pad(const PaddedImage& image, const Duty& duty, int64_t slack = 0);

// The lines that tiles of one thread read next, in memory of its own.
class PaddedLines {
 public:
  // How many tiles may run on lines that are made together.
  static int64_t Tiles(const Phase& phase);

  // `rows`: of a tile, at most. Without an image there is nothing to do.
  PaddedLines(const PaddedImage* image, const Phase& phase, int rows) : image_(image), phase_(phase), rows_(rows) {}
  void Need(ScratchNeeds& needs) const;
  bool Reserve();
  // Makes what output pixels [row0, row1) read, of Tiles() tiles at most. Returns where it lies; the image would begin `behind`
  // bytes before.
  const char* Make(int64_t row0, int64_t row1, int64_t* behind);

 private:
  // Lines that are there at once.
  int64_t Most() const;

  const PaddedImage* image_;
  const Phase& phase_;
  int rows_;
  char* memory_ = nullptr;
  int64_t first_ = 0, end_ = 0;  // what is there
};

}  // namespace weft::cpu
