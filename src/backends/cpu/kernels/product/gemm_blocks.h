// The computing of a product on register tiles: any tiles of its rows by any panels of its columns, on the calling thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "src/backends/cpu/kernels/product/gemm_cuts.h"

namespace weft::cpu {

struct Coming;

// One batch member's pointers.
struct GemmMember {
  int64_t index = 0;
  const char* a = nullptr;
  const char* b = nullptr;
  char* c = nullptr;       // where tiles write: the caller's C, or f32 space when the output is narrower
  int64_t c_stride = 0;    // bytes
  char* result = nullptr;  // the caller's C
};

// B as a product packs it.
class PanelsOfB {
 public:
  PanelsOfB(const CpuTarget& target, const GemmPlan& plan, const MatrixView& b) : target_(target), plan_(plan), b_(b) {}

  // Packs these panels of a block of the matrix at `from`, laid out after each other from panel `first` on, which is at `out`.
  void Pack(const char* from, int64_t block, int64_t first, Range panels, char* out) const;

 private:
  const CpuTarget& target_;
  const GemmPlan& plan_;
  const MatrixView& b_;
};

// Scratch, and what could not be had of it. Any thread.
class GemmScratch {
 public:
  void* Get(ScratchSlot slot, int64_t bytes);
  absl::Status status() const;

 private:
  std::atomic<bool> out_of_memory_{false};
  std::atomic<int64_t> wanted_{0};
};

// One block of K of panels that others packed; none: all of K, and who computes packs.
struct SharedPanels {
  const char* packed = nullptr;
  int64_t block = 0;
};

// Any number of threads may compute at once, each its own part of C.
class GemmBlocks {
 public:
  GemmBlocks(const CpuTarget& target, const GemmCall& call, const GemmPlan& plan);

  const GemmCuts& cuts() const { return cuts_; }
  const PanelsOfB& panels_of_b() const { return panels_of_b_; }
  GemmScratch& scratch() { return scratch_; }

  GemmMember Locate(int64_t index) const;
  // Tiles of rows x panels, and the epilogue.
  void Compute(const GemmMember& member, Range tiles, Range panels, SharedPanels shared = {});

 private:
  // Panels that tiles pass together, of one block of K.
  struct Chunk {
    int64_t block = 0;
    Range panels;
    const char* packed = nullptr;  // unless they are read in place
  };
  void ComputePacked(const GemmMember& member, Range tiles, const Chunk& chunk);
  void ComputeChunk(const GemmMember& member, Range tiles, const Chunk& chunk, Coming& next, const char* rows_of_a);

  const CpuTarget& target_;
  const GemmCuts cuts_;
  const PanelsOfB panels_of_b_;
  const bool looks_;  // whether the launch ends
  GemmScratch scratch_;
};

}  // namespace weft::cpu
