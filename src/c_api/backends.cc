// The list of backends: one line each.
#include "src/c_api/backends.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "src/backends/cpu/cpu_backend.h"
#include "src/backends/pjrt/pjrt_backend.h"
#include "src/backends/reference/reference_backend.h"

namespace weft::c_api {
namespace {

cpu::CodeWatch WatchOf(const Settings& settings) {
  constexpr std::string_view kPerfFiles[] = {"off", "map", "jitdump"};
  const auto* const file = std::ranges::find(kPerfFiles, settings.text(Option::kPerfMap));
  return {.perf = static_cast<cpu::PerfFile>(file - kPerfFiles), .gdb = settings.truth(Option::kGdb)};
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> MakeBackends(const Settings& settings,
                                                                   std::shared_ptr<ops::CustomFunctions> custom,
                                                                   const BackendServices& services) {
  std::vector<std::unique_ptr<Backend>> backends;
  const std::string& platform = settings.text(Option::kPlatform);
  if (platform == "cpu") {
    WEFT_ASSIGN_OR_RETURN(
        std::unique_ptr<Backend> cpu,
        cpu::CpuBackend::Create({.devices = settings.integer(Option::kDevices),
                                 .threads = static_cast<int>(settings.integer(Option::kThreads)),
                                 .compile_threads = static_cast<int>(settings.integer(Option::kCompileThreads)),
                                 .isa = settings.text(Option::kIsa),
                                 .custom = std::move(custom),
                                 .watch = WatchOf(settings),
                                 .services = services}));
    backends.push_back(std::move(cpu));
  }
  if (platform == "reference")
    backends.push_back(NewReferenceBackend(std::move(custom), services, settings.integer(Option::kDevices)));
  const std::string& topology = settings.text(Option::kTopology);
  if (!backends.empty()) {
    if (topology.empty()) return backends;
    return UserErrorOf(absl::StatusCode::kUnimplemented, "option topology is '", topology, "', but the platform ",
                       platform, " compiles for this machine alone; 'tpu' does for others");
  }
  const std::string& plugin = settings.text(Option::kPlugin);
  if (platform == "pjrt" && plugin.empty()) {
    return UserError("platform pjrt wants the option plugin (WEFT_PLUGIN), the path of a PJRT plugin's library");
  }
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<Backend> accelerator,
      pjrt::NewPjrtBackend({.plugin = plugin,
                            .platform = platform,
                            .plugin_options = settings.text(Option::kPluginOptions),
                            .topology = topology,
                            .reads_zeros = settings.text(Option::kOnRead) == "zeros",
                            .matmul_precision = absl::AsciiStrToUpper(settings.text(Option::kMatmulPrecision)),
                            .launch_deadline_ms = settings.integer(Option::kLaunchDeadlineMs),
                            .start_deadline_ms = settings.integer(Option::kStartDeadlineMs),
                            .services = services}));
  backends.push_back(std::move(accelerator));
  return backends;
}

}  // namespace weft::c_api
