// Checks and counts of the engine's doors that make tensors of bytes.
#pragma once

#include <span>
#include <string_view>

#include "src/lazy/value/data.h"
#include "src/runtime/parts.h"

namespace weft::lazy {

// INVALID_ARGUMENT for a type and dims that no tensor has; `what` begins the text.
absl::Status CheckShape(std::string_view what, DType dtype, std::span<const int64_t> dims);
// Counts buffers that have come from the host, and ends the part of copying.
void CountUpload(Metrics& metrics, const Shards& shards, PartScope* part);

}  // namespace weft::lazy
