// Loading and storing element types for the plain loops: halves widen to f32, integers wrap, bool is or-of-ands.
#pragma once

#include <cstdint>
#include <type_traits>

#include "src/backends/cpu/kernels/tiles/pack.h"

namespace weft::cpu {

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

template <typename T>
struct ElementRule {
  using Sum = T;
  static Sum Load(T value) { return value; }
  static T Store(Sum sum) { return sum; }
  static Sum Add(Sum a, Sum b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
  static Sum Multiply(Sum a, Sum b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
template <>
struct ElementRule<BF16> : ElementRule<float> {
  static float Load(BF16 value) { return WidenBF16(value.bits); }
  static BF16 Store(float sum) { return {NarrowBF16(sum)}; }
};
template <>
struct ElementRule<F16> : ElementRule<float> {
  static float Load(F16 value) { return WidenF16(value.bits); }
  static F16 Store(float sum) { return {NarrowF16(sum)}; }
};
template <>
struct ElementRule<Bool> {
  using Sum = uint8_t;
  static Sum Load(Bool value) { return value.value != 0; }
  static Bool Store(Sum sum) { return {sum}; }
  static Sum Add(Sum a, Sum b) { return a | b; }
  static Sum Multiply(Sum a, Sum b) { return a & b; }
};

// The rule by which products of In are accumulated for a result of Out: integers are accumulated in Out.
template <typename In, typename Out>
struct PairRule : ElementRule<In> {};
template <typename In, typename Out>
  requires(std::is_integral_v<In> && std::is_integral_v<Out> && !std::is_same_v<In, Out>)
struct PairRule<In, Out> : ElementRule<Out> {
  static Out Load(In value) { return value; }
};

// Calls visit.template operator()<T>() for the type's C++ counterpart; false for types without one.
template <typename Visit>
bool VisitElement(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kF32: visit.template operator()<float>(); return true;
    case DType::kF64: visit.template operator()<double>(); return true;
    case DType::kBF16: visit.template operator()<BF16>(); return true;
    case DType::kF16: visit.template operator()<F16>(); return true;
    case DType::kI8: visit.template operator()<int8_t>(); return true;
    case DType::kI16: visit.template operator()<int16_t>(); return true;
    case DType::kI32: visit.template operator()<int32_t>(); return true;
    case DType::kI64: visit.template operator()<int64_t>(); return true;
    case DType::kU8: visit.template operator()<uint8_t>(); return true;
    case DType::kU16: visit.template operator()<uint16_t>(); return true;
    case DType::kU32: visit.template operator()<uint32_t>(); return true;
    case DType::kU64: visit.template operator()<uint64_t>(); return true;
    case DType::kBool: visit.template operator()<Bool>(); return true;
    default: return false;
  }
}

}  // namespace weft::cpu
