// Reading, writing and initialising versioned structs.
#include "src/c_api/options.h"

#include <algorithm>
#include <cstring>

namespace weft::c_api {
namespace {

constexpr size_t kPrefix = sizeof(size_t) + sizeof(void*);

absl::StatusOr<size_t> SizeOf(const void* options, std::string_view name) {
  size_t size;
  std::memcpy(&size, options, sizeof(size));
  if (size < kPrefix || size > 65536) {
    return UserError(name, ".struct_size is ", size, "; start from its _INIT macro or its _init function");
  }
  return size;
}

}  // namespace

absl::Status ReadOptions(const void* options, size_t known, std::string_view name, void* out) {
  std::memset(out, 0, known);
  std::memcpy(out, &known, sizeof(known));
  if (options == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const size_t size, SizeOf(options, name));
  const char* bytes = static_cast<const char*>(options);
  std::memcpy(out, options, std::min(size, known));
  for (size_t i = known; i < size; ++i) {
    if (bytes[i] != 0) {
      return UserErrorOf(absl::StatusCode::kUnimplemented, name, " of ", size, " bytes sets something at offset ", i,
                         "; this version of Weft knows the first ", known, " bytes");
    }
  }
  const void* next;
  std::memcpy(&next, bytes + sizeof(size_t), sizeof(next));
  if (next != nullptr)
    return UserErrorOf(absl::StatusCode::kUnimplemented, name,
                       ".next is not NULL; this version knows no extensions of it");
  return absl::OkStatus();
}

absl::Status CheckPresent(std::string_view name, uint64_t present, uint64_t known) {
  if ((present & ~known) == 0) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kUnimplemented, name, ".present has bits (0x", absl::Hex(present & ~known),
                     ") that this version does not know");
}

absl::Status WriteStruct(const void* value, size_t known, std::string_view name, void* out) {
  WEFT_ASSIGN_OR_RETURN(const size_t size, SizeOf(out, name));
  char* bytes = static_cast<char*>(out);
  std::memset(bytes + sizeof(size_t), 0, size - sizeof(size_t));
  if (size > kPrefix) {
    std::memcpy(bytes + kPrefix, static_cast<const char*>(value) + kPrefix, std::min(size, known) - kPrefix);
  }
  return absl::OkStatus();
}

void InitStruct(void* options, size_t size) {
  if (options == nullptr || size < kPrefix) return;
  std::memset(options, 0, size);
  std::memcpy(options, &size, sizeof(size));
}

}  // namespace weft::c_api
