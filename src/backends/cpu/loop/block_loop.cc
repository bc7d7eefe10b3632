// See block_loop.h. A block is the same loop with other sizes and with offsets that begin at its corner.
#include "src/backends/cpu/loop/block_loop.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"

namespace weft::cpu {
namespace {

// Positions in LoopPlan::params with two dimensions: sizes, elements of a task, totals of chunks, then an offset and two
// strides for each access, then the length of a cached row (none here).
enum { kRows, kColumns, kBlock, kTotals, kAccesses = kTotals + 2 };
constexpr int64_t kAccess = 3;

// Element by element, each by itself.
bool IsPlain(const LoopKernel& kernel) {
  const auto plain = [](const Dim& d) { return !d.reduce && d.chunk_dim < 0 && d.total == 0; };
  return !kernel.reduces() && kernel.stages == 1 && std::ranges::all_of(kernel.dims, plain);
}

}  // namespace

bool IsBlockLoop(std::span<const int64_t> params) {
  return params.size() > kAccesses && (params.size() - kAccesses - 1) % kAccess == 0 && params[kRows] >= 0 &&
         params[kColumns] >= 0;
}

bool ToBlockLoop(LoopKernel& kernel, int64_t rows, int64_t columns, uint32_t product) {
  if (!IsPlain(kernel)) return false;
  const auto each = [&](auto fn) {
    for (Access& a : kernel.loads) fn(a);
    for (Access& a : kernel.indices) fn(a);
    for (Store& s : kernel.stores) fn(s.access);
  };
  const LoopKernel original = kernel;
  if (kernel.dims.size() == 1 && kernel.dims[0].size == rows * columns) {
    each([&](Access& a) { a.strides = {a.strides[0] * columns, a.strides[0]}; });
    kernel.dims = {Dim{rows}, Dim{columns}};
  } else if (kernel.dims.size() != 2 || kernel.dims[0].size != rows || kernel.dims[1].size != columns) {
    return false;
  }
  kernel.vector_dim = 1;
  const auto in_place = [&](const Access& a) { return a.offset == 0 && a.strides[1] == 1 && a.strides[0] == columns; };
  bool reads = false, fits = true;
  for (const Access& a : kernel.loads) {
    if (a.buffer != product) continue;
    reads = true;
    fits = fits && in_place(a);
  }
  for (const Store& s : kernel.stores) fits = fits && !s.row && s.access.buffer != product && in_place(s.access);
  if (reads && fits) {
    kernel.product = static_cast<int32_t>(product);
    return true;
  }
  kernel = original;
  return false;
}

int64_t PartsOfProduct(const LoopKernel& kernel, int64_t rows, int64_t columns, uint32_t product) {
  if (!IsPlain(kernel) || kernel.vector_dim != 1 || kernel.dims.size() != 2 || kernel.dims[0].size != rows) return 0;
  const int64_t width = kernel.dims[1].size;
  if (width == 0 || width == columns || columns % width != 0) return 0;
  const auto stands = [&](const Access& a, int64_t row) { return a.strides[1] == 1 && a.strides[0] == row; };
  bool reads = false;
  for (const Access& a : kernel.loads) {
    if (a.buffer != product) continue;
    reads = true;
    if (!stands(a, columns) || a.offset < 0 || a.offset >= columns || a.offset % width != 0) return 0;
  }
  for (const Access& a : kernel.indices) {
    if (a.buffer == product) return 0;
  }
  for (const Store& s : kernel.stores) {
    if (s.row || s.access.buffer == product || s.access.offset != 0 || !stands(s.access, width)) return 0;
  }
  return reads ? columns / width : 0;
}

int64_t BlockLoop::columns() const { return params[kColumns]; }

void BlockLoop::Run(int64_t row0, int64_t rows, int64_t col0, int64_t cols, const void* c) const {
  absl::InlinedVector<void*, 16> moved;
  if (c != nullptr) {
    moved.assign(buffers, buffers + buffer_count);
    moved[product] = const_cast<void*>(c);
  }
  absl::InlinedVector<int64_t, 96> block(params.begin(), params.end());
  const size_t end = params.size() - 1;
  // Whole rows that all accesses walk as one run are one long row.
  bool one_run = cols == params[kColumns];
  for (size_t a = kAccesses; a < end; a += kAccess) {
    block[a] += row0 * params[a + 1] + col0 * params[a + 2];
    one_run = one_run && params[a + 1] == params[a + 2] * cols;
  }
  block[kRows] = one_run ? 1 : rows;
  block[kColumns] = one_run ? rows * cols : cols;
  block[kBlock] = ElementsOfTask(block[kColumns]);
  const int64_t pieces = (block[kColumns] + block[kBlock] - 1) / block[kBlock];
  fn(c != nullptr ? moved.data() : buffers, block.data(), 0, block[kRows] * pieces, nullptr);
}

}  // namespace weft::cpu
