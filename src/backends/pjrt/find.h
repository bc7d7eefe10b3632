// Where a platform's plugin is on this machine. Looks at the environment and at folders; runs nothing and loads nothing.
#pragma once

#include <string>
#include <string_view>

#include "src/runtime/status.h"

namespace weft::pjrt {

// The path of the plugin of "tpu", "gpu", "cuda" or "rocm": of the variable TPU_LIBRARY_PATH (tpu), of the Python environments in
// VIRTUAL_ENV and CONDA_PREFIX, of the python3 on PATH and of the system, then of the folders that the loader searches. NOT_FOUND
// lists where was looked and how to get one.
absl::StatusOr<std::string> FindPlugin(std::string_view platform);

// Tells whether a plugin that calls its platform `plugins` is one for `platform`; "pjrt" takes any.
bool IsFor(std::string_view platform, std::string_view plugins);

}  // namespace weft::pjrt
