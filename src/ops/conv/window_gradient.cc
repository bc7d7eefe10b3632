// See window_gradient.h.
#include "src/ops/conv/window_gradient.h"

#include "src/ops/elementwise/special.h"
#include "src/ops/nan.h"
#include "src/ops/reduce/product.h"

namespace weft::ops {

using namespace ir;

namespace {

// The elements under windows along one dimension: [out, size] places of it, the last one, behind all elements, for padding.
struct Under {
  int64_t in, out, size;
  HostTensor places;
  HostTensor inside;  // bool
};

absl::StatusOr<Under> UnderOf(const Window& w, size_t dimension) {
  constexpr int64_t kMostPlaces = int64_t{1} << 26;  // they are a literal
  const int64_t out = w.out();
  if ((out > 0 && w.size > kMostPlaces / out) || w.in >= INT32_MAX) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the gradient of the ", out, " windows of ", w.size,
                       " in dimension ", dimension, " has too many places; there may be 2^26 a dimension");
  }
  Under under{w.in, out, w.size, HostTensor(DType::kI32, {out, w.size}), HostTensor(DType::kBool, {out, w.size})};
  for (int64_t at = 0; at < out; ++at) {
    for (int64_t tap = 0; tap < w.size; ++tap) {
      const int64_t index = w.Index(at, tap);
      under.places.SetInt(at * w.size + tap, index < 0 ? w.in : index);
      under.inside.SetInt(at * w.size + tap, index >= 0);
    }
  }
  return under;
}

Ints Ones(size_t rank, size_t at, int64_t count) {
  Ints ones(rank, 0);
  ones[at] = count;
  return ones;
}

// x as [out, size, out, size, …], with `beyond` where there is padding.
Value Written(Builder& b, Value x, std::span<const Under> all, double beyond) {
  for (size_t d = all.size(); d-- > 0 && x;) {
    const size_t rank = x.dims().size();
    x = Pad(b, x, beyond, Ints(rank, 0), Ones(rank, d, 1), Ints(rank, 0));
    x = Call(b, kOp_take, {x, Constant(b, HostTensor(all[d].places))}, {static_cast<int64_t>(d)});
  }
  return x;
}

// The sum of what is written of each element.
Value Gathered(Builder& b, Value y, std::span<const Under> all) {
  for (size_t d = 0; d < all.size() && y; ++d) {
    const Under& under = all[d];
    Dims dims = y.dims();
    dims.erase(dims.begin() + static_cast<ptrdiff_t>(d) + 1);
    dims[d] = under.out * under.size;
    Dims into = dims;
    into[d] = under.in + 1;
    HostTensor places(DType::kI32, {dims[d]});
    for (int64_t i = 0; i < dims[d]; ++i) places.SetInt(i, under.places.GetInt(i));
    y = Call(b, kOp_index_add, {Full(b, y.dtype(), into, 0), Constant(b, std::move(places)), Reshape(b, y, dims)},
             {static_cast<int64_t>(d), 1.0});
    if (y) y = Pad(b, y, 0, Ints(into.size(), 0), Ones(into.size(), d, -1), Ints(into.size(), 0));
  }
  return y;
}

// g where the first of a window's extremes is, else 0.
Value AtExtremes(Builder& b, const Value& written, const Value& g, bool largest, std::span<const Under> all) {
  const Dims dims = written.dims();
  const size_t n = all.size();
  Ints order, taps;
  Dims joined;
  int64_t count = 1;
  Value inside;
  for (size_t d = 0; d < n; ++d) {
    const auto at = static_cast<int64_t>(2 * d);
    const Value own = BroadcastInDim(b, Constant(b, HostTensor(all[d].inside)), dims, {at, at + 1});
    inside = inside ? And(b, inside, own) : own;
    order.push_back(at);
    joined.push_back(all[d].out);
    count *= all[d].size;
  }
  if (!inside) return FullLike(b, written, 0);
  for (size_t d = 0; d < n; ++d) order.push_back(static_cast<int64_t>(2 * d + 1));
  joined.push_back(count);
  const auto last = static_cast<int64_t>(n);
  const auto row = [&](const Value& v) { return Reshape(b, Transpose(b, v, order), joined); };
  const Value x = row(written), there = row(inside);
  const Value best = Unreduce(b, Reduce(b, x, largest ? Reducer::kMax : Reducer::kMin, {last}), joined, Ints{last});
  const Value won = And(b, there, Either(b, Compare(b, Direction::kEq, x, best), IsNan(b, x)));
  const Value number = Iota(b, DType::kI32, joined, last);
  const Value first =
      Reduce(b, Select(b, won, number, FullLike(b, number, static_cast<double>(count))), Reducer::kMin, {last});
  const Value chosen = Compare(b, Direction::kEq, number, Unreduce(b, first, joined, Ints{last}));
  const Value slope = Select(b, chosen, Unreduce(b, g, joined, Ints{last}), FullLike(b, x, 0));
  Dims apart(joined.begin(), joined.end() - 1);
  Ints back(2 * n);
  for (size_t d = 0; d < n; ++d) apart.push_back(all[d].size);
  for (size_t d = 0; d < order.size(); ++d) back[order[d]] = static_cast<int64_t>(d);
  return Transpose(b, Reshape(b, slope, apart), back);
}

}  // namespace

absl::StatusOr<Value> UnderGradient(Builder& b, const Value& x, const Value& g, Reducer reducer,
                                    std::span<const Window> windows) {
  std::vector<Under> all;
  Dims spread;
  Ints taps;
  for (size_t d = 0; d < windows.size(); ++d) {
    WEFT_ASSIGN_OR_RETURN(Under under, UnderOf(windows[d], d));
    spread.insert(spread.end(), {under.out, 1});
    taps.push_back(static_cast<int64_t>(2 * d + 1));
    all.push_back(std::move(under));
  }
  if (x.type().count() == 0 || g.type().count() == 0) return FullLike(b, x, 0);
  const Value written = Written(b, x, all, IdentityDouble(reducer));
  if (!written) return b.status();
  const Value slopes = reducer == Reducer::kProd ? ProductGradient(b, written, Reshape(b, g, spread), taps)
                                                 : AtExtremes(b, written, g, reducer == Reducer::kMax, all);
  const Value sum = Gathered(b, slopes, all);
  if (!sum) return b.status();
  return sum;
}

}  // namespace weft::ops
