// The sums of collectives: elementwise over the inputs of all members, in the order of their ranks, so that a group of the same
// size gives the same bits however the work is cut.
#pragma once

#include <cstdint>
#include <span>

#include "src/distributed/collective.h"

namespace weft::distributed {

// Sum and product: every type. Min and max: all but complex ones. And, or: integers (bitwise) and bool. For bool, sum
// and max are or, product and min are and, as in StableHLO.
bool HasReduction(DType dtype, Reduction reduction);

// output[i] = inputs[0][i] . inputs[1][i] . …, `count` elements; at least one input. f16, bf16 and f8 are combined in f32 and
// rounded once; integers wrap to their width; min and max give NaN where an element is NaN, and -0 is below 0. The output may be
// one of the inputs. Thread rule: any; computes in the caller's floating-point environment.
void Reduce(DType dtype, Reduction reduction, std::span<const void* const> inputs, void* output, int64_t count);

}  // namespace weft::distributed
