// The list of backends: one line each.
#include "src/c_api/backends.h"

#include "src/backends/cpu/cpu_backend.h"
#include "src/backends/pjrt/pjrt_backend.h"
#include "src/backends/reference/reference_backend.h"

namespace weft::c_api {

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> MakeBackends(const Settings& settings) {
  std::vector<std::unique_ptr<Backend>> backends;
  const std::string& platform = settings.text(Option::kPlatform);
  const int64_t memory_limit = settings.integer(Option::kMemoryLimit);
  if (platform == "cpu") {
    WEFT_ASSIGN_OR_RETURN(
        std::unique_ptr<Backend> cpu,
        cpu::CpuBackend::Create({.threads = static_cast<int>(settings.integer(Option::kThreads)),
                                 .compile_threads = static_cast<int>(settings.integer(Option::kCompileThreads)),
                                 .memory_limit = memory_limit,
                                 .isa = settings.text(Option::kIsa)}));
    backends.push_back(std::move(cpu));
  }
  if (memory_limit > 0 && backends.empty()) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "option memory_limit is ", memory_limit, ", but the platform ",
                       platform, " keeps no limit; 'cpu' does");
  }
  if (platform == "reference") backends.push_back(NewReferenceBackend());
  if (platform == "pjrt") {
    const std::string& plugin = settings.text(Option::kPlugin);
    if (plugin.empty()) {
      return UserError("platform pjrt wants the option plugin (WEFT_PLUGIN), the path of a PJRT plugin's library");
    }
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Backend> pjrt,
                          pjrt::NewPjrtBackend({.plugin = plugin, .platform = platform}));
    backends.push_back(std::move(pjrt));
  }
  if (backends.empty())
    return UserErrorOf(absl::StatusCode::kUnimplemented, "platform ", platform, " is not in this build");
  return backends;
}

}  // namespace weft::c_api
