// The state of an optimizer in parts over the processes of a job.
#pragma once

#include <memory>

#include "src/c_api/job_object.h"
#include "src/lazy/state_parts.h"
#include "src/ops/custom/functions.h"

namespace weft::c_api {

// Null for a job of one process, whose part is the whole. `functions`: those of the optimizer's context.
std::shared_ptr<const lazy::StateParts> PartsOver(Ref<const JobObject> job,
                                                  std::shared_ptr<ops::CustomFunctions> functions);

}  // namespace weft::c_api
