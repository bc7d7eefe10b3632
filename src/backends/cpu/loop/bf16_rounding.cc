// See bf16_rounding.h. For f64, "high" are the digits that become f32's high half. Arithmetic treats operands by x86's
// rule: the NaN of an operand made quiet, else a NaN whose low digits are zeros; LLVM's constants have them, too.
#include "src/backends/cpu/loop/bf16_rounding.h"

#include <bit>
#include <cmath>

namespace weft::cpu {
namespace {

using ir::ScalarOp;

struct Known {
  bool high = false;   // a NaN has its digits in the high half
  bool quiet = false;  // a NaN is quiet
  bool exact = false;  // the value is one of bf16
  bool fixed = false;  // LLVM may see a constant
};

Known Both(const Known& x, const Known& y) { return {x.high && y.high, x.quiet && y.quiet, x.exact && y.exact}; }

Known OfConstant(const Expr& e) {
  const bool number = !std::isnan(e.number);
  const float value = static_cast<float>(e.number);
  return {number, number, number && value == e.number && (std::bit_cast<uint32_t>(value) & 0xFFFF) == 0};
}

// LLVM knows that x times 1 is x, which stays signalling.
Known OfArithmetic(const Known& all, bool any_fixed) { return {all.high, all.quiet || !any_fixed}; }

Known OfOperation(const Expr& e, const std::vector<Known>& known) {
  Known all = known[e.args[0]];
  bool any_fixed = all.fixed;
  for (int k = 1; k < 3 && e.args[k] != kNoExpr; ++k) {
    all = Both(all, known[e.args[k]]);
    any_fixed = any_fixed || known[e.args[k]].fixed;
  }
  if (e.kind == ExprKind::kFma) return OfArithmetic(all, any_fixed);
  switch (e.op) {
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kMul:
    case ScalarOp::kDiv:
    case ScalarOp::kSqrt:
    case ScalarOp::kRsqrt: return OfArithmetic(all, any_fixed);
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kMin:
    case ScalarOp::kMax: return all;  // one of the arguments, but for its sign
    case ScalarOp::kExp:
    case ScalarOp::kExp2:
    case ScalarOp::kTanh:
    case ScalarOp::kLogistic:
    case ScalarOp::kSilu:
    case ScalarOp::kGelu:
    case ScalarOp::kGeluTanh:
      // Arithmetic and selects; of f64 in full they may be libm's.
      if (e.dtype == DType::kF64 && e.storage == DType::kInvalid) return {};
      return {all.high, all.quiet};
    default: return {};
  }
}

Known OfConvert(DType from, const Known& x) {
  if (IsFloat(from)) return x;
  return {true, true, IsBool(from) || BitsOf(from) == 8};
}

Known OfReduced(const Reduction& r, const Known& x) {
  switch (r.op) {
    case ops::Reducer::kMax:
    case ops::Reducer::kMin: return {x.high, x.quiet, x.exact};
    case ops::Reducer::kSum:
    case ops::Reducer::kProd: return {x.high, x.quiet};
    default: return {};
  }
}

Known OfExpr(const LoopKernel& kernel, const Expr& e, const std::vector<Known>& known) {
  switch (e.kind) {
    case ExprKind::kLoad: {
      const bool bf16 = kernel.loads[e.index].dtype == DType::kBF16;
      return {bf16, false, bf16};
    }
    case ExprKind::kConstant: return OfConstant(e);
    case ExprKind::kUnary:
    case ExprKind::kBinary:
    case ExprKind::kFma: return OfOperation(e, known);
    case ExprKind::kSelect: return Both(known[e.args[1]], known[e.args[2]]);
    case ExprKind::kConvert: return OfConvert(kernel.exprs[e.args[0]].dtype, known[e.args[0]]);
    case ExprKind::kRound: return e.storage == DType::kBF16 ? Known{true, true, true} : Known{};
    case ExprKind::kReduced: {
      const Reduction& r = kernel.reductions[e.index];
      return OfReduced(r, known[r.expr]);
    }
    default: return {};
  }
}

// A constant, or what constants alone make.
bool MayBeFixed(const Expr& e, const std::vector<Known>& known) {
  if (e.kind == ExprKind::kConstant) return true;
  if (e.args[0] == kNoExpr) return false;
  if (e.kind == ExprKind::kSelect) return known[e.args[1]].fixed || known[e.args[2]].fixed;
  bool all = true;
  for (uint32_t arg : e.args) all = all && (arg == kNoExpr || known[arg].fixed);
  return all;
}

std::vector<bool> FunctionsOf(const LoopKernel& kernel, const std::vector<Known>& known) {
  std::vector<bool> functions;
  for (const Expr& e : kernel.exprs) {
    const bool function = e.kind == ExprKind::kUnary && ir::FactsOf(e.op).function;
    functions.push_back(function && e.dtype == DType::kF32 && known[e.args[0]].exact);
  }
  for (const Expr& e : kernel.exprs) {
    if (e.kind == ExprKind::kRound && e.storage == DType::kBF16) continue;
    for (uint32_t arg : e.args) {
      if (arg != kNoExpr) functions[arg] = false;
    }
  }
  for (const Store& s : kernel.stores) {
    if (s.access.dtype != DType::kBF16) functions[s.expr] = false;
  }
  for (const Reduction& r : kernel.reductions) functions[r.expr] = false;
  for (const Carry& c : kernel.carries) functions[c.start] = functions[c.next] = false;
  return functions;
}

}  // namespace

BF16Facts BF16FactsOf(const LoopKernel& kernel) {
  BF16Facts facts;
  std::vector<Known> known;
  for (const Expr& e : kernel.exprs) {
    Known k = IsFloat(e.dtype) ? OfExpr(kernel, e, known) : Known{};
    k.fixed = MayBeFixed(e, known);
    const bool high = k.high && k.quiet;
    facts.rounding.push_back(high && k.exact ? BF16Rounding::kNone
                             : high          ? BF16Rounding::kHighNan
                                             : BF16Rounding::kAny);
    known.push_back(k);
  }
  facts.function = FunctionsOf(kernel, known);
  return facts;
}

}  // namespace weft::cpu
