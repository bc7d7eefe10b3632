// vmap: a function of one example as a function of many.
#pragma once

#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::transforms {

// The randomness of the numbers that a function draws for its examples.
enum class Randomness : uint8_t {
  kDifferent,  // each example draws from a stream of its own
  kSame,       // all examples draw the same
  kError,      // refused
};

// In place of an axis: the tensor has no examples, they all share it.
inline constexpr int64_t kNotMapped = std::numeric_limits<int64_t>::max();

struct VmapCall {
  const ir::Function& function;
  bool draws = false;  // its last parameter is a stream of random numbers
  int64_t size = 0;    // examples
  // The axis along which the examples lie, for each parameter but the stream, or kNotMapped. Negative ones count from
  // the end of a shape that has the axis already.
  std::span<const int64_t> in_axes;
  std::span<const int64_t> out_axes;  // the same for each result
  Randomness randomness = Randomness::kDifferent;
};

// Each example's results are what the function gives for it. Operations go over all examples at once by their rules
// (ir::BatchFn) or element by element; what has no such way goes over them one after the other, in a loop; these are told in `loops`,
// by name. A result that is the same for all examples is repeated, unless its axis is kNotMapped.
absl::StatusOr<Ref<const ir::Function>> Vmap(const VmapCall& call, std::vector<std::string_view>* loops = nullptr);

}  // namespace weft::transforms
