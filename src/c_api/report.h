// Everything that a context counts, as text.
#pragma once

#include <string>

#include "src/lazy/engine.h"
#include "weft_metrics.h"

namespace weft::c_api {

absl::StatusOr<std::string> RenderMetrics(const lazy::Engine& engine, weft_metrics_format format);

}  // namespace weft::c_api
