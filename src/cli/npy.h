// Elements in memory, and which of their types .npy files have: what `weft run` shows. The library reads and writes the files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft.h"

namespace weft::cli {

struct Array {
  weft_dtype dtype = WEFT_F32;
  std::vector<int64_t> dims;
  std::string bytes;  // dense, row-major
};

// Tells whether files can hold the type; the functions below take no other.
bool HasNpy(weft_dtype dtype);

// The type of that name, "f32"; false if there is none.
bool TypeOfName(std::string_view name, weft_dtype* out);

// Tells whether files hold the type's elements as bytes of no type.
bool IsBareByte(weft_dtype dtype);

// The type as it is written elsewhere: "f32[2,3]".
std::string TypeText(weft_dtype dtype, const int64_t* dims, size_t rank);

}  // namespace weft::cli
