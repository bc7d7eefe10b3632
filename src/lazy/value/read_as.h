// Bytes of values as the caller sees them, whatever the device holds (runtime/held_types.h).
#pragma once

#include <span>

#include "src/backends/backend.h"
#include "src/lazy/value/data.h"

namespace weft::lazy {

// Bytes [from, from + out.size()) of the value in elements of `dtype`. Waits for the buffer.
absl::Status ReadAs(Buffer& buffer, DType dtype, int64_t from, std::span<std::byte> out);

// The same of a value in words, which are of the type that the caller sees, `type`; `dtype` may be what would be held.
void ReadWordsAs(const Data& data, const ir::Type& type, DType dtype, int64_t from, std::span<std::byte> out);

}  // namespace weft::lazy
