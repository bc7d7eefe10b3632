// The slope of a product of elements.
#pragma once

#include "src/ops/build.h"

namespace weft::ops {

// g times the slope of the product of x along `axes`, in x's shape; g has size 1 there. Made of multiplications alone,
// never a division: right whichever elements are 0, and so are the derivatives of what it records, to any order.
//
// The elements are multiplied as a tree, halves of an axis with each other, and the cotangent comes back down it: each
// element meets the product of all others in log2(n) factors. For n elements an axis: at most 9 nodes a level, log2(n)
// levels rounded up; about 7 n elements written; the next order costs about three times that.
ir::Value ProductGradient(ir::Builder& b, const ir::Value& x, const ir::Value& g, const ir::Ints& axes);

}  // namespace weft::ops
