// Any bytes as an old PyTorch file, whose pickles stand plainly in it. Starts from a valid one with a tensor, a view and numbers.
#include "tests/fuzz/tensor_file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return weft::testing::ReadTensorFile(data, size);
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  return weft::testing::Mutate(weft::FileFormat::kPyTorch, data, size, max_size);
}
