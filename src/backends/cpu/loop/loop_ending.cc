// See loop_ending.h.
#include "src/backends/cpu/loop/loop_ending.h"

#include <bit>
#include <cmath>

namespace weft::cpu {
namespace {

using ir::ScalarOp;

class Matcher {
 public:
  Matcher(const LoopKernel& kernel, uint32_t product) : kernel_(kernel), product_(product) {}

  bool Match(LoopEnding* ending) {
    if (kernel_.stores.size() != 1 || kernel_.dims.size() != 2) return false;
    const Store& store = kernel_.stores[0];
    type_ = store.access.dtype;
    if (type_ != DType::kF32 && type_ != DType::kBF16) return false;
    ending->to = static_cast<int32_t>(store.access.buffer);
    uint32_t e = store.expr;
    // Bounds are values of the type, so it does not matter on which side of them values are rounded.
    SkipRound(&e);
    if (SkipBound(ScalarOp::kMin, &e, &ending->most) && !(ending->most > 0)) return false;
    SkipRound(&e);
    if (SkipBound(ScalarOp::kMax, &e, &ending->least) && std::bit_cast<uint32_t>(ending->least) != 0) return false;
    SkipRound(&e);
    if (Affine(e, ending)) return true;
    const Expr& sum = At(e);
    if (sum.kind != ExprKind::kBinary || sum.op != ScalarOp::kAdd) return false;
    for (int side = 0; side < 2; ++side) {
      uint32_t inner = sum.args[side];
      const bool rounded = SkipRound(&inner) || type_ == DType::kF32;
      ending->added = Whole(sum.args[1 - side]);
      if (rounded && ending->added >= 0 && Affine(inner, ending)) return true;
    }
    return false;
  }

 private:
  const Expr& At(uint32_t e) const { return kernel_.exprs[e]; }

  bool SkipRound(uint32_t* e) const {
    if (At(*e).kind != ExprKind::kRound || At(*e).storage != type_) return false;
    *e = At(*e).args[0];
    return true;
  }

  // Past a minimum or maximum with a constant that the type has.
  bool SkipBound(ScalarOp op, uint32_t* e, float* bound) const {
    const Expr& x = At(*e);
    if (x.kind != ExprKind::kBinary || x.op != op || x.dtype != DType::kF32) return false;
    for (int side = 0; side < 2; ++side) {
      const Expr& constant = At(x.args[side]);
      if (constant.kind != ExprKind::kConstant || !std::isfinite(constant.number)) continue;
      const auto value = static_cast<float>(constant.number);
      if (type_ == DType::kBF16 && (std::bit_cast<uint32_t>(value) & 0xFFFF) != 0) return false;
      *bound = value;
      *e = x.args[1 - side];
      return true;
    }
    return false;
  }

  // product * factor + summand
  bool Affine(uint32_t e, LoopEnding* ending) const {
    const Expr& sum = At(e);
    if (sum.kind != ExprKind::kBinary || sum.op != ScalarOp::kAdd || sum.dtype != DType::kF32) return false;
    for (int side = 0; side < 2; ++side) {
      const Expr& scaled = At(sum.args[side]);
      ending->summand = OfColumn(sum.args[1 - side]);
      if (ending->summand < 0 || scaled.kind != ExprKind::kBinary || scaled.op != ScalarOp::kMul) continue;
      for (int other = 0; other < 2; ++other) {
        ending->factor = OfColumn(scaled.args[1 - other]);
        if (ending->factor >= 0 && IsProduct(scaled.args[other])) return true;
      }
    }
    return false;
  }

  const Access* Load(uint32_t e) const { return At(e).kind == ExprKind::kLoad ? &kernel_.loads[At(e).index] : nullptr; }
  bool IsProduct(uint32_t e) const {
    const Access* a = Load(e);
    return a != nullptr && a->buffer == product_ && a->dtype == type_;
  }
  // The buffer of an f32 number a column; -1.
  int32_t OfColumn(uint32_t e) const {
    const Access* a = Load(e);
    const bool is =
        a != nullptr && a->dtype == DType::kF32 && a->offset == 0 && a->strides[0] == 0 && a->strides[1] == 1;
    return is && a->buffer != product_ ? static_cast<int32_t>(a->buffer) : -1;
  }
  // The buffer of something that lies as the product does; -1.
  int32_t Whole(uint32_t e) const {
    const Access* a = Load(e);
    const bool is = a != nullptr && a->dtype == type_ && a->offset == 0 && a->strides[0] == kernel_.dims[1].size &&
                    a->strides[1] == 1;
    return is && a->buffer != product_ ? static_cast<int32_t>(a->buffer) : -1;
  }

  const LoopKernel& kernel_;
  const uint32_t product_;
  DType type_ = DType::kF32;
};

}  // namespace

bool ToEnding(const LoopKernel& kernel, uint32_t product, LoopEnding* ending) {
  LoopEnding found;
  if (!Matcher(kernel, product).Match(&found)) return false;
  *ending = found;
  return true;
}

}  // namespace weft::cpu
