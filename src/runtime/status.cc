// Details of errors.
#include "src/runtime/status.h"

namespace weft {

absl::Status WithText(const absl::Status& status, std::string_view text) {
  if (status.ok()) return status;
  absl::Status made(status.code(), text);  // nobody shares it
  status.ForEachPayload([&](std::string_view key, const absl::Cord& value) { made.SetPayload(key, value); });
  return made;
}

absl::Status WithDetail(const absl::Status& status, std::string_view key, std::string_view value) {
  absl::Status made = WithText(status, status.message());
  // A cord takes over a string in one allocation; it would copy a long text in several, and leak the first where the
  // next fails.
  if (!made.ok()) made.SetPayload(key, absl::Cord(std::string(value)));
  return made;
}

}  // namespace weft
