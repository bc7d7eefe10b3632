#include "support/loop_eval.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "src/runtime/host_tensor.h"

namespace weft::test {
namespace {

using namespace cpu;  // the loop IR, whose meaning this is

using ir::ScalarOp;

// Floats in f, integers and bools in i (sign- or zero-extended to 64 bits).
struct Cell {
  double f = 0;
  int64_t i = 0;
};

int64_t Wrap(DType dtype, int64_t x) {
  const int bits = IsBool(dtype) ? 1 : BitsOf(dtype);
  if (bits >= 64) return x;
  const uint64_t low = static_cast<uint64_t>(x) & ((uint64_t{1} << bits) - 1);
  if (IsSigned(dtype) && (low >> (bits - 1)) != 0) return static_cast<int64_t>(low | ~((uint64_t{1} << bits) - 1));
  return static_cast<int64_t>(low);
}

double RoundTo(DType dtype, double x) { return dtype == DType::kF32 ? static_cast<float>(x) : x; }

Cell ReadCell(DType dtype, const void* base, int64_t at) {
  HostTensor one(dtype, {});
  const int bytes = BytesOf(dtype);
  std::memcpy(one.mutable_bytes().data(), static_cast<const char*>(base) + at * bytes, bytes);
  Cell c;
  if (IsFloat(dtype)) {
    c.f = one.GetDouble(0);
  } else {
    c.i = IsBool(dtype) ? one.GetInt(0) != 0 : one.GetInt(0);
  }
  return c;
}

void WriteCell(DType dtype, void* base, int64_t at, Cell c) {
  HostTensor one(dtype, {});
  if (IsFloat(dtype)) {
    one.SetDouble(0, c.f);
  } else {
    one.SetInt(0, c.i);
  }
  const int bytes = BytesOf(dtype);
  std::memcpy(static_cast<char*>(base) + at * bytes, one.bytes().data(), bytes);
}

double FloatUnary(ScalarOp op, double x) {
  switch (op) {
    case ScalarOp::kNeg: return -x;
    case ScalarOp::kAbs: return std::fabs(x);
    case ScalarOp::kSign: return std::isnan(x) ? x : x > 0 ? 1 : x < 0 ? -1 : x;
    case ScalarOp::kFloor: return std::floor(x);
    case ScalarOp::kCeil: return std::ceil(x);
    case ScalarOp::kRoundAway: return std::round(x);
    case ScalarOp::kRoundEven: return std::nearbyint(x);
    case ScalarOp::kTrunc: return std::trunc(x);
    case ScalarOp::kSqrt: return std::sqrt(x);
    case ScalarOp::kRsqrt: return 1 / std::sqrt(x);
    case ScalarOp::kCbrt: return std::cbrt(x);
    case ScalarOp::kExp: return std::exp(x);
    case ScalarOp::kExp2: return std::exp2(x);
    case ScalarOp::kExpm1: return std::expm1(x);
    case ScalarOp::kLog: return std::log(x);
    case ScalarOp::kLog2: return std::log2(x);
    case ScalarOp::kLog1p: return std::log1p(x);
    case ScalarOp::kLogistic: return 1 / (1 + std::exp(-x));
    case ScalarOp::kTanh: return std::tanh(x);
    case ScalarOp::kErf: return std::erf(x);
    case ScalarOp::kGelu: return x * std::erfc(-x * M_SQRT1_2) / 2;
    case ScalarOp::kGeluTanh: return x / (1 + std::exp(-std::sqrt(8 / M_PI) * (x + 0.044715 * x * x * x)));
    case ScalarOp::kSilu: return x / (1 + std::exp(-x));
    case ScalarOp::kSin: return std::sin(x);
    case ScalarOp::kCos: return std::cos(x);
    case ScalarOp::kTan: return std::tan(x);
    case ScalarOp::kErfInv: {
      if (!(std::fabs(x) < 1)) return std::fabs(x) == 1 ? std::copysign(HUGE_VAL, x) : std::nan("");
      double low = -6, high = 6;  // bisection: erf is monotone
      for (int i = 0; i < 200; ++i) {
        const double middle = (low + high) / 2;
        (std::erf(middle) < x ? low : high) = middle;
      }
      double y = x == 0 ? x : (low + high) / 2;
      if (std::fabs(x) < 1e-4 && x != 0) y = x * 0.886226925452758;
      return y;
    }
    default: return 0;
  }
}

int64_t IntUnary(DType dtype, ScalarOp op, int64_t x) {
  const int bits = IsBool(dtype) ? 1 : BitsOf(dtype);
  const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  switch (op) {
    case ScalarOp::kNeg: return static_cast<int64_t>(-static_cast<uint64_t>(x));
    case ScalarOp::kAbs: return x < 0 && IsSigned(dtype) ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x;
    case ScalarOp::kSign: return IsSigned(dtype) ? (x > 0) - (x < 0) : x != 0;
    case ScalarOp::kNot: return ~x;
    case ScalarOp::kPopcount: return std::popcount(static_cast<uint64_t>(x) & mask);
    case ScalarOp::kClz: return std::countl_zero(static_cast<uint64_t>(x) & mask) - (64 - bits);
    default: return x;
  }
}

double FloatBinary(ScalarOp op, double x, double y) {
  switch (op) {
    case ScalarOp::kAdd: return x + y;
    case ScalarOp::kSub: return x - y;
    case ScalarOp::kMul: return x * y;
    case ScalarOp::kDiv: return x / y;
    case ScalarOp::kRem: return std::fmod(x, y);
    case ScalarOp::kMin: return std::isnan(x) ? x : std::isnan(y) ? y : std::fmin(x, y);
    case ScalarOp::kMax: return std::isnan(x) ? x : std::isnan(y) ? y : std::fmax(x, y);
    case ScalarOp::kAtan2: return std::atan2(x, y);
    case ScalarOp::kPow: return std::pow(x, y);
    default: return 0;
  }
}

int64_t IntBinary(DType dtype, ScalarOp op, int64_t x, int64_t y) {
  const auto ux = static_cast<uint64_t>(x), uy = static_cast<uint64_t>(y);
  const bool is_signed = IsSigned(dtype);
  const int bits = IsBool(dtype) ? 1 : BitsOf(dtype);
  switch (op) {
    case ScalarOp::kAdd: return IsBool(dtype) ? x | y : static_cast<int64_t>(ux + uy);
    case ScalarOp::kSub: return static_cast<int64_t>(ux - uy);
    case ScalarOp::kMul: return static_cast<int64_t>(ux * uy);
    case ScalarOp::kDiv:
      if (y == 0) return -1;
      if (is_signed && y == -1) return static_cast<int64_t>(-ux);
      return is_signed ? x / y : static_cast<int64_t>(ux / uy);
    case ScalarOp::kRem:
      if (y == 0) return x;
      if (is_signed && y == -1) return 0;
      return is_signed ? x % y : static_cast<int64_t>(ux % uy);
    case ScalarOp::kMin: return is_signed ? std::min(x, y) : static_cast<int64_t>(std::min(ux, uy));
    case ScalarOp::kMax: return is_signed ? std::max(x, y) : static_cast<int64_t>(std::max(ux, uy));
    case ScalarOp::kAnd: return x & y;
    case ScalarOp::kOr: return x | y;
    case ScalarOp::kXor: return x ^ y;
    case ScalarOp::kShl: return uy >= static_cast<uint64_t>(bits) ? 0 : static_cast<int64_t>(ux << uy);
    case ScalarOp::kShrLogical: {
      const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
      return uy >= static_cast<uint64_t>(bits) ? 0 : static_cast<int64_t>((ux & mask) >> uy);
    }
    case ScalarOp::kShrArithmetic: {
      const int64_t wide = bits >= 64 ? x : static_cast<int64_t>(ux << (64 - bits)) >> (64 - bits);
      return wide >> (uy >= static_cast<uint64_t>(bits) ? bits - 1 : static_cast<int64_t>(uy));
    }
    case ScalarOp::kMulHi: return static_cast<int64_t>(((ux & 0xFFFFFFFF) * (uy & 0xFFFFFFFF)) >> 32);
    case ScalarOp::kPow: {
      uint64_t result = 1, base = ux;
      if (is_signed && y < 0) return x == 1 ? 1 : x == -1 ? ((y & 1) != 0 ? -1 : 1) : 0;
      for (uint64_t n = uy; n != 0; n >>= 1, base *= base) result *= (n & 1) != 0 ? base : 1;
      return static_cast<int64_t>(result);
    }
    default: return 0;
  }
}

template <typename T>
bool Compare(ScalarOp op, T x, T y) {
  switch (op) {
    case ScalarOp::kEq: return x == y;
    case ScalarOp::kNe: return x != y;
    case ScalarOp::kLt: return x < y;
    case ScalarOp::kLe: return x <= y;
    case ScalarOp::kGt: return x > y;
    default: return x >= y;
  }
}

int64_t FloatToInt(DType to, double x) {
  HostTensor one(to, {});
  one.SetDouble(0, x);
  return one.GetInt(0);
}

Cell ReduceCell(ops::Reducer op, DType dtype, Cell a, Cell b) {
  static constexpr ScalarOp kOps[] = {ScalarOp::kAdd, ScalarOp::kMul, ScalarOp::kMax,
                                      ScalarOp::kMin, ScalarOp::kAnd, ScalarOp::kOr};
  Cell c;
  const ScalarOp scalar = kOps[static_cast<size_t>(op)];
  if (IsFloat(dtype)) {
    c.f = RoundTo(dtype, FloatBinary(scalar, a.f, b.f));
  } else {
    c.i = Wrap(dtype, IntBinary(dtype, scalar, a.i, b.i));
  }
  return c;
}

class Evaluator {
 public:
  Evaluator(const LoopKernel& kernel, const std::vector<void*>& buffers)
      : kernel_(kernel),
        buffers_(buffers),
        at_(kernel.dims.size(), 0),
        cells_(kernel.exprs.size()),
        reduced_(kernel.reductions.size()),
        carried_(kernel.carries.size()) {}

  void Run() { Parallel(0); }

 private:
  void Parallel(size_t d) {
    if (d < kernel_.parallel_dims()) {
      for (int64_t i = 0; i < kernel_.dims[d].size; ++i) {
        at_[d] = i;
        Parallel(d + 1);
      }
      return;
    }
    for (size_t k = 0; k < reduced_.size(); ++k) reduced_[k] = Identity(kernel_.reductions[k]);
    if (!carried_.empty() && kernel_.ReducedCount() > 0) Compute();
    for (size_t k = 0; k < carried_.size(); ++k) carried_[k] = cells_[kernel_.carries[k].start];
    for (int stage = 0; stage < kernel_.stages; ++stage) Reduced(d, stage);
    for (size_t i = kernel_.parallel_dims(); i < at_.size(); ++i) at_[i] = 0;
    Compute();
    for (const Store& s : kernel_.stores) {
      if (s.row) Write(s);
    }
  }

  void Reduced(size_t d, int stage) {
    if (d < kernel_.dims.size()) {
      const Dim& dim = kernel_.dims[d];
      int64_t size = dim.size;
      if (dim.chunk_dim >= 0) size = std::min(size, dim.total - at_[dim.chunk_dim] * size);
      for (int64_t i = 0; i < size; ++i) {
        at_[d] = i;
        Reduced(d + 1, stage);
      }
      return;
    }
    Compute();
    for (size_t k = 0; k < reduced_.size(); ++k) {
      const Reduction& r = kernel_.reductions[k];
      if (r.stage == stage) reduced_[k] = ReduceCell(r.op, r.dtype, reduced_[k], cells_[r.expr]);
    }
    for (const Store& s : kernel_.stores) {
      if (!s.row && s.stage == stage) Write(s);
    }
    for (size_t k = 0; k < carried_.size(); ++k) carried_[k] = cells_[kernel_.carries[k].next];
  }

  static Cell Identity(const Reduction& r) {
    Cell c;
    const double inf = std::numeric_limits<double>::infinity();
    switch (r.op) {
      case ops::Reducer::kSum:
      case ops::Reducer::kOr: break;
      case ops::Reducer::kProd: c.f = 1, c.i = 1; break;
      case ops::Reducer::kMax:
        c.f = -inf;
        c.i = IsSigned(r.dtype) ? Wrap(r.dtype, static_cast<int64_t>(uint64_t{1} << (BitsOf(r.dtype) - 1))) : 0;
        break;
      case ops::Reducer::kMin:
        c.f = inf;
        c.i = IsSigned(r.dtype) ? ~Wrap(r.dtype, static_cast<int64_t>(uint64_t{1} << (BitsOf(r.dtype) - 1)))
                                : Wrap(r.dtype, -1);
        break;
      case ops::Reducer::kAnd: c.i = Wrap(r.dtype, -1); break;
    }
    return c;
  }

  int64_t Position(const Access& a) const {
    int64_t p = a.offset;
    for (size_t d = 0; d < at_.size(); ++d) p += at_[d] * a.strides[d];
    return p;
  }

  void Write(const Store& s) {
    WriteCell(s.access.dtype, buffers_[s.access.buffer], Position(s.access), cells_[s.expr]);
  }

  void Compute() {
    for (size_t i = 0; i < kernel_.exprs.size(); ++i) cells_[i] = One(kernel_.exprs[i]);
  }

  Cell One(const Expr& e) const {
    const auto arg = [&](int k) { return cells_[e.args[k]]; };
    const auto type = [&](int k) { return kernel_.exprs[e.args[k]].dtype; };
    Cell c;
    switch (e.kind) {
      case ExprKind::kLoad: {
        const Access& a = kernel_.loads[e.index];
        return ReadCell(a.dtype, buffers_[a.buffer], Position(a));
      }
      case ExprKind::kIndex: c.i = Position(kernel_.indices[e.index]); break;
      case ExprKind::kConstant: c.f = e.number, c.i = Wrap(e.dtype, e.integer); break;
      case ExprKind::kReduced: return reduced_[e.index];
      case ExprKind::kCarried:
      case ExprKind::kFolded: return carried_[e.index];
      case ExprKind::kUnary:
        if (e.op == ScalarOp::kIsNan) {
          c.i = std::isnan(arg(0).f);
        } else if (e.op == ScalarOp::kIsFinite) {
          c.i = std::isfinite(arg(0).f);
        } else if (IsFloat(e.dtype)) {
          c.f = RoundTo(e.dtype, FloatUnary(e.op, arg(0).f));
        } else {
          c.i = Wrap(e.dtype, IntUnary(e.dtype, e.op, arg(0).i));
        }
        break;
      case ExprKind::kBinary:
        if (e.op >= ScalarOp::kEq && e.op <= ScalarOp::kGe) {
          c.i = IsFloat(type(0))    ? Compare(e.op, arg(0).f, arg(1).f)
                : IsSigned(type(0)) ? Compare(e.op, arg(0).i, arg(1).i)
                                    : Compare(e.op, static_cast<uint64_t>(arg(0).i), static_cast<uint64_t>(arg(1).i));
        } else if (IsFloat(e.dtype)) {
          c.f = RoundTo(e.dtype, FloatBinary(e.op, arg(0).f, arg(1).f));
        } else {
          c.i = Wrap(e.dtype, IntBinary(e.dtype, e.op, arg(0).i, arg(1).i));
        }
        break;
      case ExprKind::kSelect: return arg(0).i != 0 ? arg(1) : arg(2);
      case ExprKind::kFma:
        c.f = e.dtype == DType::kF32 ? std::fmaf(arg(0).f, arg(1).f, arg(2).f) : std::fma(arg(0).f, arg(1).f, arg(2).f);
        c.i = Wrap(e.dtype, IntBinary(e.dtype, ScalarOp::kAdd, IntBinary(e.dtype, ScalarOp::kMul, arg(0).i, arg(1).i),
                                      arg(2).i));
        break;
      case ExprKind::kConvert:
        if (IsBool(e.dtype)) {
          c.i = IsFloat(type(0)) ? arg(0).f != 0 : arg(0).i != 0;
        } else if (IsFloat(e.dtype)) {
          // The long double holds every integer.
          const long double exact = IsFloat(type(0))         ? arg(0).f
                                    : type(0) == DType::kU64 ? static_cast<long double>(static_cast<uint64_t>(arg(0).i))
                                                             : static_cast<long double>(arg(0).i);
          c.f = e.dtype == DType::kF32 ? static_cast<float>(exact) : static_cast<double>(exact);
          if (e.storage != DType::kInvalid && c.f != exact && !std::isnan(c.f)) {  // to odd
            auto near = static_cast<float>(c.f);
            if (std::fabs(c.f) > std::fabs(exact)) near = std::nextafterf(near, 0);
            c.f = std::bit_cast<float>(std::bit_cast<uint32_t>(near) | 1);
          }
        } else {
          c.i = IsFloat(type(0)) ? FloatToInt(e.dtype, arg(0).f) : Wrap(e.dtype, arg(0).i);
        }
        break;
      case ExprKind::kBitcast: {
        int64_t bits = arg(0).i;
        if (type(0) == DType::kF32) bits = std::bit_cast<int32_t>(static_cast<float>(arg(0).f));
        if (type(0) == DType::kF64) bits = std::bit_cast<int64_t>(arg(0).f);
        if (e.dtype == DType::kF32) {
          c.f = std::bit_cast<float>(static_cast<uint32_t>(bits));
        } else if (e.dtype == DType::kF64) {
          c.f = std::bit_cast<double>(bits);
        } else {
          c.i = Wrap(e.dtype, bits);
        }
        break;
      }
      case ExprKind::kRound: {
        HostTensor one(e.storage, {});
        one.SetDouble(0, arg(0).f);
        c.f = one.GetDouble(0);
        break;
      }
    }
    return c;
  }

  const LoopKernel& kernel_;
  const std::vector<void*>& buffers_;
  std::vector<int64_t> at_;
  std::vector<Cell> cells_;
  std::vector<Cell> reduced_, carried_;
};

}  // namespace

void EvaluateLoop(const LoopKernel& kernel, const std::vector<void*>& buffers) { Evaluator(kernel, buffers).Run(); }

}  // namespace weft::test
