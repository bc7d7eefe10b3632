// Work in parts on threads of its own.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace weft {

// Calls part(0) to part(count - 1) on up to so many threads, this one among them; with fewer where the machine gives no thread. The
// others are started for the call: a region of the pool that runs kernels would hold up every launch for as long as this takes. The
// first failure counts; after it no part begins. A part that finds no memory is RESOURCE_EXHAUSTED.
absl::Status OnThreads(size_t count, int threads, absl::FunctionRef<absl::Status(size_t)> part);

}  // namespace weft
