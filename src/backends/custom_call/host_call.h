// A custom operation where values lie in the host's memory and no program calls it: the reference's, and the engine's own where a
// device cannot call.
#pragma once

#include <memory>
#include <span>

#include "src/ir/attr.h"
#include "src/ops/custom/functions.h"
#include "src/runtime/host_tensor.h"

namespace weft::custom {

// One call of the function that the attributes of a `custom_call` name, on this thread alone: the caller's code runs, so no lock is
// held and nobody waits for the thread under one. Absent operands are null; the results have their types. NOT_FOUND or
// INVALID_ARGUMENT if what is registered is not what the attributes say; else what the function returned.
absl::Status CallOnHost(const ir::Attrs& attrs, std::span<const HostTensor* const> operands,
                        std::span<HostTensor> results, const std::shared_ptr<ops::CustomFunctions>& registered);

}  // namespace weft::custom
