// The header of one safetensors file, checked: every tensor's type, shape and bytes fit each other, and all of them cover the
// data without holes or overlap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/runtime/dtype.h"
#include "src/runtime/io.h"
#include "src/runtime/shape.h"

namespace weft {

// One of the format's types; those that Weft has no type for have kInvalid.
struct SafetensorsType {
  std::string_view name;
  DType dtype;
  int bits;
};
const SafetensorsType* FindSafetensorsType(std::string_view name);
// nullptr where the format has none.
const SafetensorsType* SafetensorsTypeOf(DType dtype);

struct SafetensorsHeader {
  struct Tensor {
    std::string name;
    const SafetensorsType* type = nullptr;
    Dims dims;
    uint64_t begin = 0, end = 0;  // in the file
  };
  std::vector<Tensor> tensors;                                // in the order of the text
  std::vector<std::pair<std::string, std::string>> metadata;  // in the order of the text
};

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // as the reference has it

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const File& file, uint64_t file_bytes);

}  // namespace weft
