// Any bytes as a .npy file: a sentence, or an array that can be read. Starts from a valid one.
#include "tests/fuzz/tensor_file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return weft::testing::ReadTensorFile(data, size);
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  return weft::testing::Mutate(weft::FileFormat::kNpy, data, size, max_size);
}
