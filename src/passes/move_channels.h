// Channels-first programs in the order that a backend's kernels of convolution and pooling read. For backends that lay tensors out
// themselves; plugins get the program as it was written.
#pragma once

#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::passes {

// Moves the channels of values between convolutions and pooling last, where that saves more copies than the transposes
// at the edges cost. A moved node is computed on permuted operands by the same operation, a transpose gives its old
// order to users that need it, and convolutions read through transposes by other dimension numbers. Parameters and
// results keep their shapes, and every result its bits: sums whose order a layout would change (reduce) stay in the
// order of the unmoved dimensions. The same within the functions that nodes carry, each once.
absl::StatusOr<Ref<const ir::Function>> MoveChannels(const ir::Function& function);

}  // namespace weft::passes
