// Programs on any device with a PJRT plugin: libtpu.so, the CUDA plugin, XLA:CPU.
#pragma once

#include <memory>
#include <string>

#include "src/backends/backend.h"
#include "src/backends/pjrt/plugin.h"
#include "src/runtime/backend_services.h"

namespace weft::pjrt {

struct Options {
  std::string plugin;          // path of the plugin's library; empty: the one that FindPlugin finds
  std::string platform;        // "tpu", "gpu", "cuda", "rocm", or "pjrt", any; what its devices are called: "tpu:0"
  std::string plugin_options;  // for CreateOptions
  std::string topology;        // compile for devices that need not be there: "v5e:2x2"
  bool reads_zeros = false;    // with a topology: reads give zeros, and are no error
  std::string matmul_precision = "HIGHEST";  // ir::StableHloOptions::precision
  int64_t launch_deadline_ms = 0;            // of each launch and copy of a device; 0: none
  int64_t start_deadline_ms = 0;             // of loading and initialising the plugin, and of its client; 0: none
  BackendServices services = {};             // the budget's limit holds for tensors and temporaries of each device
};

// DLPack's number for devices that it has no name for.
inline constexpr int32_t kDlExtDev = 12;

// INVALID_ARGUMENT where the plugin's own platform is another than the one that was asked for.
absl::Status CheckPlatform(const Plugin& plugin, std::string_view platform, std::string_view plugins);

// Names everything that compiled code depends on, for a topology or a client's description of its own.
Target TargetOf(const Plugin& plugin, std::string_view devices, std::string_view precision);

// Errors say where a plugin was looked for, what is wrong with it, or that it has no devices here.
absl::StatusOr<std::unique_ptr<Backend>> NewPjrtBackend(const Options& options);

}  // namespace weft::pjrt
