// Programs on any device with a PJRT plugin: libtpu.so, the CUDA plugin, XLA:CPU.
#pragma once

#include <memory>
#include <string>

#include "src/backends/backend.h"

namespace weft::pjrt {

struct Options {
  std::string plugin;    // path of the plugin's library
  std::string platform;  // what its devices are called: "pjrt:0"
};

// Errors say what is wrong with the plugin, or that it has no devices here.
absl::StatusOr<std::unique_ptr<Backend>> NewPjrtBackend(const Options& options);

}  // namespace weft::pjrt
