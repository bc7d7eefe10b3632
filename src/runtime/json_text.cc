// See json_text.h.
#include "src/runtime/json_text.h"

#include "absl/strings/str_cat.h"

namespace weft {

std::string JsonText(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppend(&out, "\\u", absl::Hex(static_cast<unsigned>(c), absl::kZeroPad4));
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace weft
