// Which backends a context gets, by the option "platform".
#pragma once

#include <memory>
#include <vector>

#include "src/backends/backend.h"
#include "src/c_api/settings.h"
#include "src/ops/custom/functions.h"

namespace weft::c_api {

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> MakeBackends(const Settings& settings,
                                                                   std::shared_ptr<ops::CustomFunctions> custom);

}  // namespace weft::c_api
