// Bytes as a gzip file.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weft {

// RFC 1952, one member without a name or a time, so that equal bytes give equal files.
absl::StatusOr<std::string> Gzip(std::string_view bytes);

}  // namespace weft
