// var and std share this code.
#include "src/ops/reduce/variance.h"

#include <algorithm>
#include <cmath>

#include "src/ops/complex.h"

namespace weft::ops {

using namespace ir;

absl::Status InferVariance(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferReduction(call, results));
  const double fraction = Attr<kVarianceAttrs, "fraction">(call.attrs);
  if (!std::isfinite(fraction)) return UserError("fraction is ", fraction, "; it must be finite");
  results->back().dtype = PartOf(results->back().dtype);
  return absl::OkStatus();
}

absl::StatusOr<Value> ComplexVariance(Builder& b, const Value& x, const Attrs& attrs) {
  const Planes parts = PlanesOf(b, x);
  return Add(b, Call(b, kOp_var, {parts.re}, attrs), Call(b, kOp_var, {parts.im}, attrs));
}

absl::StatusOr<Value> ComplexVarianceGradient(Builder& b, const Value& x, const Value& g, const Attrs& attrs) {
  const Planes parts = PlanesOf(b, x);
  WEFT_ASSIGN_OR_RETURN(const Spread re, SpreadOf(b, parts.re, attrs));
  WEFT_ASSIGN_OR_RETURN(const Spread im, SpreadOf(b, parts.im, attrs));
  WEFT_RETURN_IF_ERROR(b.status());
  const Value each = Mul(b, Reshape(b, g, re.square.scale.dims()), 2 * re.share);
  return ComplexFrom(b, {Mul(b, re.centered, each), Neg(b, Mul(b, im.centered, each))});
}

Value MeanSquare::Inverse(Builder& b, double epsilon) const {
  return Mul(b, Rsqrt(b, Add(b, mean, Mul(b, Mul(b, scale, epsilon), scale))), scale);
}

Value MeanSquare::Plain(Builder& b) const { return Div(b, Div(b, mean, scale), scale); }

MeanSquare InRange(Builder& b, const SquareCall& call, absl::FunctionRef<Value(const Value&)> spread,
                   absl::FunctionRef<Value(const Value&)> reduce) {
  const auto& [x, mean, plain, epsilon] = call;
  if (!plain || !b.ok()) return {};
  // Means above `most` may have lost elements to infinity, those below `least` digits to denormal numbers. With the factors
  // squares of all numbers are far from both, and so is the cube of the root, which slopes are made of. Elements of `large` mean have
  // no small distances from it but 0, and cannot be multiplied.
  struct Range {
    double most, least, down, up, large;
  };
  const Range range = plain.dtype() == DType::kF64 ? Range{0x1p1022, 0x1p-900, 0x1p-700, 0x1p700, 0x1p200}
                                                   : Range{0x1p126, 0x1p-100, 0x1p-80, 0x1p80, 0x1p40};
  const Value one = FullLike(b, plain, 1);
  Value factor = Select(b, Compare(b, Direction::kGt, plain, range.most), FullLike(b, plain, range.down), one);
  if (epsilon < range.least * 0x1p24) {
    Value small = Compare(b, Direction::kLt, plain, range.least);
    if (mean) small = And(b, small, Compare(b, Direction::kLt, Abs(b, mean), range.large));
    factor = Select(b, small, FullLike(b, plain, range.up), factor);
  }
  Value scaled = Mul(b, x, spread(factor));
  if (mean) scaled = Sub(b, scaled, spread(Mul(b, mean, factor)));
  return {Select(b, Compare(b, Direction::kEq, factor, one), plain, reduce(Square(b, scaled))), factor};
}

MeanSquare InRange(Builder& b, const SquareCall& call, absl::FunctionRef<Value(const Value&)> reduce) {
  return InRange(b, call, [](const Value& v) { return v; }, reduce);
}

absl::StatusOr<Spread> SpreadOf(Builder& b, const Value& x, const Attrs& attrs) {
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AxesOrAll(attrs, AttrPosition<kVarianceAttrs, "dims">(), x.dims().size()));
  WEFT_ASSIGN_OR_RETURN(const int64_t count, ReducedCount(attrs, x.dims()));
  Value mean = Mul(b, ReduceKeep(b, x, Reducer::kSum, axes), 1.0 / static_cast<double>(count));
  if (!b.ok()) return b.status();
  Spread spread;
  spread.dims = Attr<kVarianceAttrs, "keepdims">(attrs) ? mean.dims() : Without(x.dims(), axes);
  spread.centered = Sub(b, x, mean);
  // Over 0 or less there is no variance: NaN where nothing is left to be divided, else infinity, as NumPy and PyTorch have it.
  const double divisor =
      std::max(0.0, static_cast<double>(count) - static_cast<double>(Attr<kVarianceAttrs, "correction">(attrs)) -
                        Attr<kVarianceAttrs, "fraction">(attrs));
  spread.share = 1.0 / divisor;
  const auto reduce = [&](const Value& y) { return Mul(b, ReduceKeep(b, y, Reducer::kSum, axes), spread.share); };
  const Value plain = reduce(Square(b, spread.centered));
  if (divisor > 0) {
    spread.square = InRange(b, {x, mean, plain}, reduce);
  } else if (b.ok()) {
    spread.square = {plain, FullLike(b, plain, 1)};  // infinite whatever the squares are
  }
  return spread;
}

}  // namespace weft::ops
