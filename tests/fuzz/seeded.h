// Short inputs become one that is valid, from which mutations lead further than from nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

inline size_t SeededOrMutated(std::string_view valid, size_t least, uint8_t* data, size_t size, size_t max_size) {
  if (size >= least || max_size < valid.size()) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, valid.data(), valid.size());
  return valid.size();
}
