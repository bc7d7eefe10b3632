// Any bytes as an .npz archive. Starts from a valid one; checksums of stored members are mended, so that mutations reach the arrays.
#include "tests/fuzz/tensor_file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return weft::testing::ReadTensorFile(data, size);
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  return weft::testing::Mutate(weft::FileFormat::kNpz, data, size, max_size);
}
