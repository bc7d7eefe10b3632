// Cuts a function's gradient in two: what needs no cotangent, and the rest.
#pragma once

#include <span>
#include <vector>

#include "src/ir/function.h"

namespace weft::autodiff {

// `function`: on nodes of its own, which become forward's. `seeds`: parameters, the cotangents that come in. `gradients`: of the
// function's parameters and the seeds. `settled`: the function is not the one that was asked about, and forward stands in for that
// also where backward reads nothing of what is inside.
Ref<const ir::SplitGradient> Split(const ir::Function& function, std::span<const ir::Value> seeds,
                                   std::vector<ir::Value> gradients, bool settled = false);

}  // namespace weft::autodiff
