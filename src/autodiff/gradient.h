// Reverse-mode differentiation of recorded graphs, from the operations' own rules. Seen by lazy; sees ops and ir.
#pragma once

#include <span>
#include <vector>

#include "src/ir/builder.h"
#include "src/ir/function.h"

namespace weft::autodiff {

// d output / d wrt[i], one value of wrt[i]'s type each, as new nodes through `b`. Without a seed, output must be a float
// with one element; a seed is the cotangent of output and has its type. A wrt that output does not depend on gets zeros. Of
// a complex wrt x + iy it is d/dx + i d/dy, as in PyTorch; seeds, and all of OpGradient, are so, too.
// Composites with a gradient stay whole; those without one are expanded and differentiated. Operations whose result is
// not differentiable (comparisons, integers, stop_gradient) stop the walk.
//
// Linear in the nodes between wrt and output, iterative: nodes older than every wrt are never visited, so a training
// loop that never passes a barrier does not pay for its past.
absl::StatusOr<std::vector<ir::Value>> Gradient(ir::Builder& b, const ir::Value& output, std::span<const ir::Value> wrt,
                                                ir::Value seed = {});

// The same of several outputs, each with its cotangent or none; empty where nothing flows. Walks, and marks, the nodes of the
// graph, which must be the caller's own: no recorded ones. Complex cotangents are the conjugates here, in and out, as in JAX: that
// is what the sweep and all rules have. A change is then Re(g dz), the product that rules for real numbers are written for, and two
// sweeps transpose. `seen`, if any: the outputs whose derivatives agree with those of the gradients, where functions have rules of
// their own (ops::Settler); the outputs themselves elsewhere.
absl::Status Gradients(ir::Builder& b, std::span<const ir::Value> outputs, std::span<const ir::Value> seeds,
                       std::span<const ir::Value> wrt, std::span<ir::Value> gradients, std::span<ir::Value> seen = {});

// One operation's reverse step, whether or not anything was recorded: the cotangents of `inputs` from its inputs, attributes,
// results and the cotangents of the results. Results may be missing (all of them, or single ones): what a rule needs of them is
// computed again. A missing cotangent is a zero. Empty values come out where nothing is wanted and where no gradient flows.
struct OpGradientCall {
  const ir::OpDef& op;
  std::span<const ir::Value> inputs;  // as a caller gives them: not broadcast; absent optional ones are empty
  ir::Attrs attrs;
  std::span<const ir::Value> results;     // none at all, or one each
  std::span<const ir::Value> cotangents;  // one for each result
  std::span<const bool> wanted;           // one for each input
};
absl::StatusOr<std::vector<ir::Value>> OpGradient(ir::Builder& b, OpGradientCall call);

// Gradient rules call these for the functions that their nodes carry: see ir::RegionGradientFn and ir::RegionSplitFn.
absl::StatusOr<Ref<const ir::Function>> RegionGradient(const ir::Function& region, std::span<const bool> wanted);
absl::StatusOr<Ref<const ir::SplitGradient>> RegionSplit(const ir::Function& region, std::span<const bool> wanted,
                                                         std::span<const bool> given);

}  // namespace weft::autodiff
