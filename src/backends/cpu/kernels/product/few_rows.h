// Matrix products whose A has few rows read all of B for a handful of sums: memory decides, not arithmetic. So B is never
// packed, but streamed where it lies, every byte once. These are the inner loops, one set per instruction set;
// few_rows.cc drives them.
#pragma once

#include <cstdint>

namespace weft::cpu {

// An element of factors that are multiplied as pairs along K.
struct PairBF16 {
  uint16_t bits;
};

// C = A B for columns [begin, end). T is what is summed; B holds T, halves that are widened as they are read, or what A holds.
// Strides count elements.
template <typename T, typename A = T>
struct FewRows {
  int64_t rows = 0, k = 0, begin = 0, end = 0;
  const A* a = nullptr;  // unit stride along K
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0;  // from row to row of B where those are contiguous, else from column to column
  T* c = nullptr;
  int64_t c_stride = 0;
};

struct FewRowsKernels {
  template <typename T, typename A = T>
  struct Of {
    void (*across)(const FewRows<T, A>&) = nullptr;  // B's rows are contiguous: a lane is a column
    void (*along)(const FewRows<T, A>&) = nullptr;   // its columns are: a lane is a step of K
  };
  Of<float> f32, bf16, f16;
  Of<double> f64;
};
extern const FewRowsKernels kFewRowsPortable, kFewRowsAvx2, kFewRowsAvx512;
// Where CpuTarget::has_bf16_dot.
extern const FewRowsKernels::Of<float, PairBF16> kFewRowsPairs;

}  // namespace weft::cpu
