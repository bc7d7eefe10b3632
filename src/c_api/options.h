// Options structs across versions: the library reads the smaller size, and refuses a longer struct whose unknown tail says
// something.
#pragma once

#include <cstddef>

#include "src/runtime/status.h"

namespace weft::c_api {

// Copies the caller's struct (null = all defaults) to `out`, which has `known` bytes. The known part of a longer struct
// is copied too; only a struct_size that cannot be one leaves all defaults.
absl::Status ReadOptions(const void* options, size_t known, std::string_view name, void* out);
// UNIMPLEMENTED for bits of the struct's `present` that no field of this version has.
absl::Status CheckPresent(std::string_view name, uint64_t present, uint64_t known);
// Fills the caller's struct up to the size it names.
absl::Status WriteStruct(const void* value, size_t known, std::string_view name, void* out);
// Zero but for struct_size.
void InitStruct(void* options, size_t size);

}  // namespace weft::c_api
