// Any bytes as a .npy file: a sentence, or an array that is written and read again as the same.
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "src/cli/npy.cc"  // of the program `weft`, which is no library

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::cli::Array array, again;
  if (!weft::cli::ParseNpy({reinterpret_cast<const char*>(data), size}, WEFT_F32, &array).empty()) return 0;
  if (!weft::cli::ParseNpy(weft::cli::NpyOf(array), array.dtype, &again).empty()) std::abort();
  if (again.dtype != array.dtype || again.dims != array.dims || again.bytes != array.bytes) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  constexpr weft_dtype kDTypes[] = {WEFT_BOOL, WEFT_I8, WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_U64, WEFT_F64};
  if (size < 64) {
    weft::cli::Array array{kDTypes[seed % std::size(kDTypes)], {2, seed % 3}, {}};
    array.bytes.resize(2 * (seed % 3) * (array.dtype >> 11 & 31));  // bits of an element, in bytes
    const std::string file = weft::cli::NpyOf(array);
    if (file.size() <= max_size) {
      std::memcpy(data, file.data(), file.size());
      return file.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
