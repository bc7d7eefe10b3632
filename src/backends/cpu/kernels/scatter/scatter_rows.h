// Rows of updates that are combined into rows of a result: the inner loops of scatter, one set per instruction set. The launch room
// says where the rows lie, and deals them to threads. Updates of one row come in their order, so threads change no bits.
#pragma once

#include <cstdint>

#include "src/backends/cpu/jit/isa.h"
#include "src/runtime/dtype.h"

namespace weft::cpu {

enum class Combine : int64_t { kSum, kProduct, kMax, kMin, kAnd, kOr, kSet };  // as ops::Reducer counts, and kSet

// Some rows, in the order of the updates.
struct RowBlock {
  void* result = nullptr;         // its first element
  const void* updates = nullptr;  // the first element of row 0
  void* lost = nullptr;           // laid out like the result; of pairs, sums and what they lost side by side
  const int64_t* to = nullptr;    // by row: the element of the result at which it begins
  const int32_t* rows = nullptr;  // which ones
  int64_t count = 0;              // of `rows`
  int64_t step = 0;               // elements of the updates from row to row
  int64_t run = 0;                // elements of a row
};
using CombineRows = void (*)(const RowBlock&);

// Elements that one number each places, in the order of the updates.
struct PointRun {
  void* result = nullptr;         // the place of number 0 for the first update
  const void* updates = nullptr;  // the first one
  void* lost = nullptr;           // laid out like the result; of pairs, sums and what they lost side by side
  const void* indices = nullptr;  // the first number; numbers below 0 and from `limit` on are left out
  int64_t count = 0, limit = 0;
  int64_t index_step = 0, step = 0;  // elements from one to the next of the indices, and of the updates
  int64_t stride = 0, along = 0;     // elements of the result from number to number, and from update to update
};
using CombinePoints = void (*)(const PointRun&);

// The rows of a result that updates name, row by row: `items` are pairs of a row and an update, sorted by both.
struct SortedRows {
  DType dtype = DType::kF32;
  Combine how = Combine::kSum;    // of bf16 and f16 a sum or a product, which f32 holds until it is rounded; else a sum
  bool keeps_lost = false;        // what rounding takes from a sum is taken from its next term
  const void* rate = nullptr;     // of f32 or f64: the sum of terms times this is taken from what is there
  void* result = nullptr;         // the first column of row 0
  const void* updates = nullptr;  // the first column of update 0
  const uint32_t* items = nullptr;
  int64_t count = 0, ahead = 0;  // items to do, and items that lie behind them
  int64_t unit = 0, step = 0;    // elements from row to row of the result, and of the updates
  int64_t columns = 0;           // elements of a row
  bool (*ends)() = nullptr;      // tells between some thousand elements whether to stop
  void (*widen)(DType from, const uint16_t* in, int64_t count, float* out) = nullptr;  // of bf16 and f16
  void (*narrow)(DType to, const float* in, int64_t count, uint16_t* out) = nullptr;
};

struct ScatterKernels {
  // Null for what they do not serve: sums and products of bf16 and f16, which are rounded once. kSet serves unsigned integers.
  CombineRows (*combine)(DType dtype, Combine how) = nullptr;
  // Sums of f32 or f64 that keep what rounding takes: beside each sum, where rows are elements, or in an array of its own.
  CombineRows (*add_beside)(DType dtype) = nullptr;
  CombineRows (*add_apart)(DType dtype) = nullptr;
  void (*sorted)(const SortedRows&) = nullptr;
};
extern const ScatterKernels kScatterPortable, kScatterAvx2;

// The same of single elements, which vectors do not help, for indices of 32 or 64 bits. Null where a number is rounded once.
CombinePoints PointsOf(DType dtype, Combine how, bool wide_index);
CombinePoints AddPointsBeside(DType dtype, bool wide_index);
CombinePoints AddPointsApart(DType dtype, bool wide_index);

// The loops for a CpuTarget's isa. Memory is what bounds them: 512 bits gain nothing.
inline const ScatterKernels& ScatterKernelsOf(Isa vectors) {
  return vectors == Isa::kAvx512 || vectors == Isa::kAvx2 ? kScatterAvx2 : kScatterPortable;
}

}  // namespace weft::cpu
