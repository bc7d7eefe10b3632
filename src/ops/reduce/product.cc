// Up the tree of products, keeping its halves; down it with the cotangent.
#include "src/ops/reduce/product.h"

#include <vector>

namespace weft::ops {

using namespace ir;

namespace {

// One multiplication of the tree: the elements before the middle of the axis with those after it, whose last partner is
// 1 where there is an odd one.
struct Level {
  int64_t axis;
  int64_t size;
  Value low, high;
};

Value Part(Builder& b, const Value& x, int64_t axis, int64_t start, int64_t limit) {
  if (!x) return {};
  Ints from(x.dims().size(), 0), to = ToInts(x.dims());
  from[axis] = start;
  to[axis] = limit;
  return Slice(b, x, from, to, Ints(x.dims().size(), 1));
}

}  // namespace

Value ProductGradient(Builder& b, const Value& x, const Value& g, const Ints& axes) {
  if (!x || !g) return {};
  if (x.type().count() == 0) return FullLike(b, x, 0);
  Value product = x;
  std::vector<Level> levels;
  for (int64_t axis : axes) {
    while (product && product.dims()[axis] > 1) {
      const int64_t size = product.dims()[axis], half = (size + 1) / 2;
      Level level{axis, size, Part(b, product, axis, 0, half), Part(b, product, axis, half, size)};
      if (size % 2 != 0) {
        const Ints none(x.dims().size(), 0);
        Ints one = none;
        one[axis] = 1;
        level.high = Pad(b, level.high, 1, none, one, none);
      }
      product = Mul(b, level.low, level.high);
      levels.push_back(std::move(level));
    }
  }
  Value slope = g;
  for (size_t k = levels.size(); k-- > 0;) {
    const Level& level = levels[k];
    Value low = Mul(b, slope, level.high), high = Mul(b, slope, level.low);
    if (level.size % 2 != 0) high = Part(b, high, level.axis, 0, level.size / 2);
    slope = Call(b, kOp_concatenate, {low, high}, {level.axis});
  }
  return slope;
}

}  // namespace weft::ops
