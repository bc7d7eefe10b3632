// Tensor types of GGUF: how many elements a block has, how many bytes, and what its elements are. The layouts are those of ggml
// (ggml-common.h, "blocks"); values equal those of the Python package gguf, bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "src/runtime/dtype.h"

namespace weft {

struct GgufType {
  uint32_t number;
  std::string_view name;
  int elements;                                                    // of a block
  int bytes;                                                       // of a block
  DType dtype;                                                     // as it is loaded; kInvalid: not loaded
  void (*dequantize)(const uint8_t* block, float* out) = nullptr;  // nullptr: elements stand plainly
};
const GgufType* FindGgufType(uint32_t number);
// The type whose elements stand plainly as `dtype`; nullptr if GGUF has none.
const GgufType* PlainGgufType(DType dtype);

// Whole blocks to f32.
void Dequantize(const GgufType& type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace weft
