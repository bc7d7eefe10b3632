// Which backends a context gets, by the option "platform".
#pragma once

#include <memory>
#include <vector>

#include "src/backends/backend.h"
#include "src/c_api/settings.h"
#include "src/ops/custom/functions.h"
#include "src/runtime/backend_services.h"

namespace weft::c_api {

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> MakeBackends(const Settings& settings,
                                                                   std::shared_ptr<ops::CustomFunctions> custom,
                                                                   const BackendServices& services);

}  // namespace weft::c_api
