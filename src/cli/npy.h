// Arrays of NumPy's .npy files (numpy.lib.format, versions 1 to 3): what `weft run` reads and writes.
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

// Whether files can hold it; the functions below take no other.
bool HasNpy(weft_dtype dtype);

// Whether files hold its elements as bytes of no type.
bool IsBareByte(weft_dtype dtype);

// The type as it is written elsewhere: "f32[2,3]".
std::string TypeText(weft_dtype dtype, const int64_t* dims, size_t rank);

// Empty and *out, or what is wrong with the file's content. NumPy has no bfloat16 of its own: two bytes of no type ("V2", as
// ml_dtypes' are stored) count as one, and one byte of no type ("V1") as the f8 or sub-byte integer that is `wanted`. What is
// allocated is in proportion to the content.
std::string ParseNpy(std::string_view content, weft_dtype wanted, Array* out);

// The file's content: version 1.0, the data at a multiple of 64 bytes.
std::string NpyOf(const Array& array);

}  // namespace weft::cli
