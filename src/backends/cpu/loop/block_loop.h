// Elementwise loops over one block of a product's result, from the parameters of the loop over all of it. These are
// LoopPlan::params of a kernel with two dimensions, rows and columns, and no reductions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/backends/cpu/loop/codegen.h"

namespace weft::cpu {

// Tells whether there are as many integers as such a loop has, whatever they are.
bool IsBlockLoop(std::span<const int64_t> params);

// Tells whether a kernel walks a rows x columns result element by element and reads buffer `product` only at the same
// place, so that any block of it can be done as soon as the product's block is. `kernel` comes back with two
// dimensions.
bool ToBlockLoop(LoopKernel& kernel, int64_t rows, int64_t columns, uint32_t product);
// The same of a kernel that walks rows x columns / parts and reads `product` there in some of its equal parts, side by side.
// How many parts; 0 where it is no such kernel.
int64_t PartsOfProduct(const LoopKernel& kernel, int64_t rows, int64_t columns, uint32_t product);

// Runs the block. Bits do not depend on how the result is cut.
struct BlockLoop {
  LoopFn* fn = nullptr;
  void* const* buffers = nullptr;
  std::span<const int64_t> params;
  size_t buffer_count = 0;
  int32_t product = -1;  // the buffer that nothing else reads, if that is so: the product may leave it out

  // The columns of the loop over everything.
  int64_t columns() const;

  // `c` stands for the product's buffer if it is not null.
  void Run(int64_t row0, int64_t rows, int64_t col0, int64_t cols, const void* c = nullptr) const;
};

}  // namespace weft::cpu
