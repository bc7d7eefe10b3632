// A function with a gradient of its own: what belongs to what.
#pragma once

#include <vector>

#include "src/ir/rewrite.h"
#include "src/ops/families.h"
#include "src/runtime/hash_map.h"

namespace weft::ops {

// The function, forward and backward, each with the values that it captures behind its inputs. Forward takes the function's inputs and gives its
// results and, behind them, residuals; backward takes the residuals and one cotangent for each float result, and gives one for
// each float input.
struct CustomParts {
  const ir::Function &function, &forward, &backward;
  size_t inputs;     // of the function and of forward
  size_t residuals;  // backward's first inputs

  size_t own(const ir::Function& of) const { return of.parameters().size() - inputs; }
  size_t backward_inputs() const;
};

// The parts where they fit each other; else what is wrong. `taken`: inputs of forward and of backward, where the caller knows them.
struct TakenInputs {
  size_t forward, backward;
};
absl::StatusOr<CustomParts> CustomPartsOf(ir::RegionSpan regions, size_t inputs, const TakenInputs* taken = nullptr);

bool HasRule(const ir::Node& node);
// Returns the operands of such a node with which forward is called where its gradient is taken, as positions.
absl::StatusOr<std::vector<size_t>> ForwardPlaces(const ir::Node& node);

// The result of a custom rule is differentiated as it was computed: by forward and backward, functions like any other,
// in reverse and forward mode (JAX's custom_vjp: there, forward runs in the place of the function once a gradient is
// taken). So a gradient by a rule must not read the function's results, whose derivative would be the rule again, but
// forward's, and values computed of those. A settled node computes the same by the same function; its derivatives are
// those of forward. In one program both are one value.
bool IsSettled(const ir::Node& node);

// Thread rule: one thread.
class Settler {
 public:
  // Tells whether the node, or a function that it runs, has a rule by which no gradient was taken yet.
  bool Needs(const ir::Node& node);
  bool Carries(const ir::Function& function);
  // The node on these operands, and all that it runs, settled.
  Ref<const ir::Node> Settled(const ir::Node& node, ir::Values operands);

 private:
  Ref<const ir::Function> Settled(const ir::Function& function);

  HashMap<const ir::Function*, bool> carries_;
};

}  // namespace weft::ops
