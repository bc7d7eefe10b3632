// The functions that reduce, reduce_window and scatter combine elements with.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/runtime/host_tensor.h"

namespace weft::ops {

// In the order of the enumerators.
enum class Reducer : int64_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAnd = 4, kOr = 5 };
inline constexpr std::string_view kReducerNames[] = {"sum", "prod", "max", "min", "and", "or"};

// StableHLO's spelling of the operation in the reducer's body.
std::string_view StableHloOf(Reducer reducer);

// The result of an empty reduction: 0, 1, the lowest value, the highest value, all ones, 0. Floats: -inf and inf.
double IdentityDouble(Reducer reducer);
int64_t IdentityInt(Reducer reducer, DType dtype);

// max and min propagate NaN; integers wrap; unsigned types compare as such.
double CombineDouble(Reducer reducer, double x, double y);
int64_t CombineInt(Reducer reducer, DType dtype, int64_t x, int64_t y);

// The identity as a scalar.
HostTensor Identity(Reducer reducer, DType dtype);

// One running value in double or int64, whichever the dtype needs.
class Accumulator {
 public:
  Accumulator(Reducer reducer, DType dtype)
      : reducer_(reducer), dtype_(dtype), number_(IdentityDouble(reducer)), integer_(IdentityInt(reducer, dtype)) {}
  void Take(const HostTensor& x, int64_t i) {
    if (IsFloat(dtype_)) {
      number_ = CombineDouble(reducer_, number_, x.GetDouble(i));
    } else {
      integer_ = CombineInt(reducer_, dtype_, integer_, x.GetInt(i));
    }
  }
  void Store(HostTensor& y, int64_t i) const {
    if (IsFloat(dtype_)) {
      y.SetDouble(i, number_);
    } else {
      y.SetInt(i, integer_);
    }
  }

 private:
  Reducer reducer_;
  DType dtype_;
  double number_;
  int64_t integer_;
};

}  // namespace weft::ops
