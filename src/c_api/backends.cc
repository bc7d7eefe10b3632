// The list of backends: one line each.
#include "src/c_api/backends.h"

#include "src/backends/cpu/cpu_backend.h"
#include "src/backends/reference/reference_backend.h"

namespace weft::c_api {

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> MakeBackends(const Settings& settings) {
  std::vector<std::unique_ptr<Backend>> backends;
  const std::string& platform = settings.text(Option::kPlatform);
  if (platform == "cpu") {
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Backend> cpu,
                          cpu::CpuBackend::Create({.threads = static_cast<int>(settings.integer(Option::kThreads)),
                                                   .isa = settings.text(Option::kIsa)}));
    backends.push_back(std::move(cpu));
  }
  if (platform == "reference") backends.push_back(NewReferenceBackend());
  if (backends.empty())
    return UserErrorOf(absl::StatusCode::kUnimplemented, "platform ", platform, " is not in this build");
  return backends;
}

}  // namespace weft::c_api
