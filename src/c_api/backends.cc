// The list of backends: one line each.
#include "src/c_api/backends.h"

namespace weft::c_api {

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> MakeBackends(const Settings& settings) {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "platform ", settings.text(Option::kPlatform), " is not in this build");
}

}  // namespace weft::c_api
