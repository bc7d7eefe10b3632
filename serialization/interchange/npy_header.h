// Headers of NumPy's .npy files (numpy.lib.format, versions 1 to 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "src/runtime/dtype.h"
#include "src/runtime/shape.h"

namespace weft {

struct NpyType {
  DType dtype;
  std::string_view descr;  // without the byte order
  // NumPy has no such type: the file says only how wide an element is, and a reader has to know.
  bool bare = false;
};
// Returns the dtype that a tensor is written as; nullptr where NumPy and ml_dtypes have nothing. Sub-byte integers are one a byte.
const NpyType* NpyTypeOf(DType dtype);

struct NpyHeader {
  // Two bytes of no type are bf16, as ml_dtypes' are stored; one byte of no type is kU8 with `bare`.
  DType dtype = DType::kInvalid;
  bool bare = false;
  bool swapped = false;  // big-endian
  bool fortran_order = false;
  Dims dims;
  std::string descr;
  uint64_t header_bytes = 0;  // data begins here
  uint64_t data_bytes = 0;
};

inline constexpr size_t kNpyStartBytes = 12;  // enough for NpyHeaderBytes
// Longer headers are of structured types only; NumPy itself refuses them above 10,000.
inline constexpr uint64_t kMaxNpyHeader = 64 << 10;

bool IsNpy(std::span<const std::byte> first);
// How many bytes the whole header has, by its first ones. `what` names the file or member in errors, `size` is how long it is.
absl::StatusOr<uint64_t> NpyHeaderBytes(std::span<const std::byte> first, uint64_t size, const std::string& what);
// Reads the whole header. It refuses by name: objects, texts, structures, dates. The data must be as long as type and shape say.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view bytes, uint64_t size, const std::string& what);

// Version 1.0, a multiple of 64 bytes.
std::string NpyHeaderText(DType dtype, std::span<const int64_t> dims);

// Reorders from columns first, as Fortran has them, to rows first. Both have CountOf(dims) elements and do not overlap.
void RowsFirst(std::span<const std::byte> in, std::span<const int64_t> dims, size_t width, std::span<std::byte> out);

}  // namespace weft
