// Scalar rules evaluated at once on one element: floats in double rounded to the dtype after each step,
// integers in their own width. The CPU compiler's loop vocabulary, made obvious.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "src/ir/scalar.h"
#include "src/ops/reducer.h"

namespace weft::test {

class PlainScalarBuilder final : public ir::ScalarBuilder {
 public:
  using ScalarValue = ir::ScalarValue;
  using ScalarOp = ir::ScalarOp;

  ScalarValue Load(const HostTensor& x, int64_t i) {
    HostTensor element(x.dtype(), {});
    const size_t size = BytesOf(x.dtype());
    std::memcpy(element.mutable_bytes().data(), x.bytes().data() + i * size, size);
    return Keep(std::move(element));
  }
  const HostTensor& Get(ScalarValue v) const { return values_[v.id]; }

  ScalarValue Unary(ScalarOp op, ScalarValue x) override {
    const DType dtype = x.dtype;
    if (op == ScalarOp::kIsFinite) return Bool(std::isfinite(Number(x)));
    if (op == ScalarOp::kIsNan) return Bool(std::isnan(Number(x)));
    if (IsFloat(dtype)) return Float(dtype, FloatUnary(op, Number(x)));
    return Int(dtype, IntUnary(op, dtype, Integer(x)));
  }

  ScalarValue Binary(ScalarOp op, ScalarValue x, ScalarValue y) override {
    if (op >= ScalarOp::kEq && op <= ScalarOp::kGe) {
      if (IsFloat(x.dtype)) return Bool(Compare(op, Number(x), Number(y)));
      if (IsUnsigned(x.dtype)) {
        return Bool(Compare(op, static_cast<uint64_t>(Integer(x)), static_cast<uint64_t>(Integer(y))));
      }
      return Bool(Compare(op, Integer(x), Integer(y)));
    }
    if (IsFloat(x.dtype)) return Float(x.dtype, FloatBinary(op, Number(x), Number(y)));
    return Int(x.dtype, IntBinary(op, x.dtype, Integer(x), Integer(y)));
  }

  ScalarValue Select(ScalarValue condition, ScalarValue x, ScalarValue y) override {
    return Integer(condition) != 0 ? x : y;
  }
  ScalarValue Fma(ScalarValue x, ScalarValue y, ScalarValue z) override {
    return Float(x.dtype, std::fma(Number(x), Number(y), Number(z)));
  }
  ScalarValue Constant(DType dtype, double value) override { return Float(dtype, value); }
  ScalarValue IntConstant(DType dtype, int64_t value) override { return Int(dtype, value); }
  ScalarValue Convert(ScalarValue x, DType to) override {
    if (to == DType::kBool) return Bool(IsFloat(x.dtype) ? Number(x) != 0 : Integer(x) != 0);
    if (IsFloat(x.dtype)) return Float(to, Number(x));
    if (!IsFloat(to)) return Int(to, Integer(x));
    const int64_t image = Integer(x);
    const bool wide = x.dtype == DType::kU64;
    if (to == DType::kF32)
      return Float(to, wide ? static_cast<float>(static_cast<uint64_t>(image)) : static_cast<float>(image));
    return Float(to, Number(x));
  }
  ScalarValue Bitcast(ScalarValue x, DType to) override {
    HostTensor value(to, {});
    std::memcpy(value.mutable_bytes().data(), Get(x).bytes().data(), BytesOf(to));
    return Keep(std::move(value));
  }

 private:
  ScalarValue Keep(HostTensor value) {
    values_.push_back(std::move(value));
    return {static_cast<uint32_t>(values_.size() - 1), values_.back().dtype()};
  }
  ScalarValue Float(DType dtype, double x) {
    HostTensor value(dtype, {});
    value.SetDouble(0, x);
    return Keep(std::move(value));
  }
  ScalarValue Int(DType dtype, int64_t x) {
    HostTensor value(dtype, {});
    value.SetInt(0, x);
    return Keep(std::move(value));
  }
  ScalarValue Bool(bool x) { return Int(DType::kBool, x); }
  double Number(ScalarValue v) const { return values_[v.id].GetDouble(0); }
  int64_t Integer(ScalarValue v) const { return values_[v.id].GetInt(0); }

  template <typename T>
  static bool Compare(ScalarOp op, T x, T y) {
    switch (op) {
      case ScalarOp::kEq:
        return x == y;
      case ScalarOp::kNe:
        return x != y;
      case ScalarOp::kLt:
        return x < y;
      case ScalarOp::kLe:
        return x <= y;
      case ScalarOp::kGt:
        return x > y;
      default:
        return x >= y;
    }
  }

  static double FloatUnary(ScalarOp op, double x);
  static double FloatBinary(ScalarOp op, double x, double y);
  static int64_t IntUnary(ScalarOp op, DType dtype, int64_t x);
  static int64_t IntBinary(ScalarOp op, DType dtype, int64_t x, int64_t y);

  std::vector<HostTensor> values_;
};

}  // namespace weft::test
