// Any bytes as a GGUF file. Starts from a small valid one: values of several kinds, a plain and a quantised tensor.
#include "tests/fuzz/tensor_file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return weft::testing::ReadTensorFile(data, size);
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  return weft::testing::Mutate(weft::FileFormat::kGguf, data, size, max_size);
}
