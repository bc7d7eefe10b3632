// The list of backends: one line each.
#include "src/c_api/backends.h"

#include "src/backends/reference/reference_backend.h"

namespace weft::c_api {

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> MakeBackends(const Settings& settings) {
  std::vector<std::unique_ptr<Backend>> backends;
  const std::string& platform = settings.text(Option::kPlatform);
  if (platform == "reference") backends.push_back(NewReferenceBackend());
  if (backends.empty()) return UserErrorOf(absl::StatusCode::kUnimplemented, "platform ", platform, " is not in this build");
  return backends;
}

}  // namespace weft::c_api
