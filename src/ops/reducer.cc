// Identities and combinations of the reducers.
#include "src/ops/reducer.h"

#include <cmath>
#include <limits>

#include "src/runtime/narrow.h"

namespace weft::ops {

std::string_view StableHloOf(Reducer reducer) {
  constexpr std::string_view kNames[] = {"add", "multiply", "maximum", "minimum", "and", "or"};
  return kNames[static_cast<size_t>(reducer)];
}

double IdentityDouble(Reducer reducer) {
  switch (reducer) {
    case Reducer::kProd: return 1;
    case Reducer::kMax: return -std::numeric_limits<double>::infinity();
    case Reducer::kMin: return std::numeric_limits<double>::infinity();
    default: return 0;
  }
}

int64_t IdentityInt(Reducer reducer, DType dtype) {
  const int bits = BitsOf(dtype);
  const bool is_bool = IsBool(dtype);
  const uint64_t ones = is_bool ? 1 : bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  switch (reducer) {
    case Reducer::kProd: return 1;
    case Reducer::kAnd: return static_cast<int64_t>(ones);
    case Reducer::kMax: return IsSigned(dtype) && !is_bool ? -static_cast<int64_t>(ones >> 1) - 1 : 0;
    case Reducer::kMin: return static_cast<int64_t>(IsSigned(dtype) && !is_bool ? ones >> 1 : ones);
    default: return 0;
  }
}

double CombineDouble(Reducer reducer, double x, double y) {
  switch (reducer) {
    case Reducer::kSum: return x + y;
    case Reducer::kProd: return x * y;
    // -0 is below 0.
    case Reducer::kMax: return std::isnan(x) || std::isnan(y) ? NAN : x > y || (x == y && !std::signbit(x)) ? x : y;
    case Reducer::kMin: return std::isnan(x) || std::isnan(y) ? NAN : x < y || (x == y && std::signbit(x)) ? x : y;
    default: return NAN;  // the shape rules refuse and, or of floats
  }
}

int64_t CombineInt(Reducer reducer, DType dtype, int64_t x, int64_t y) {
  const auto a = static_cast<uint64_t>(x), b = static_cast<uint64_t>(y);
  const bool less = IsUnsigned(dtype) ? a < b : x < y;
  switch (reducer) {
    case Reducer::kSum: return IsBool(dtype) ? x | y : static_cast<int64_t>(a + b);
    case Reducer::kProd: return IsBool(dtype) ? x & y : static_cast<int64_t>(a * b);
    case Reducer::kMax: return less ? y : x;
    case Reducer::kMin: return less ? x : y;
    case Reducer::kAnd: return x & y;
    case Reducer::kOr: return x | y;
  }
  return 0;
}

HostTensor Identity(Reducer reducer, DType dtype) {
  HostTensor value(dtype, {});
  Accumulator(reducer, dtype).Store(value, 0);
  if (IsNarrow(dtype) && IsFloat(dtype) &&
      std::isnan(value.GetDouble(0))) {  // no infinity of that sign: the last number
    const bool max = reducer == Reducer::kMax, scale = dtype == DType::kF8E8M0FNU;
    const int code = scale ? (max ? 0 : 0xFE) : SmallFloatOf(dtype).most | (max ? 0x80 : 0);
    value.mutable_bytes()[0] = static_cast<std::byte>(code);
  }
  return value;
}

}  // namespace weft::ops
