// Text of shapes.
#include "src/runtime/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

std::string DimsToString(std::span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims.begin(), dims.end(), ", "), "]");
}

}  // namespace weft
