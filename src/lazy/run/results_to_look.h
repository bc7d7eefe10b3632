// ResultsToLook says which results of a program the option first_bad has to read.
#pragma once

#include <vector>

#include "src/ir/function.h"

namespace weft::lazy {

// One answer a result. False where a number that is NaN or infinite shows in another result at the same place: only sums, products,
// differences, negations, stop_gradient and quotients with it as the dividend lie between, which make neither finite (0 times infinity is NaN). Of AdamW's three
// results these are the first moments, which the parameters show.
std::vector<bool> ResultsToLook(const ir::Function& function);

}  // namespace weft::lazy
