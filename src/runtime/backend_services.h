// A context gives its backends these services. A backend may outlive the engine, by launches that still run, and so
// holds them.
#pragma once

#include <memory>

#include "src/runtime/log.h"
#include "src/runtime/memory_budget.h"
#include "src/runtime/metrics.h"
#include "src/runtime/trace.h"

namespace weft {

struct BackendServices {
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
  std::shared_ptr<Trace> trace = std::make_shared<Trace>(metrics->id());  // of these metrics
  // Any thread may write, with any lock held but the log's own: messages are delivered later.
  LogHook log;
  // The option memory_limit, for backends that count what they allocate.
  std::shared_ptr<MemoryBudget> budget = std::make_shared<MemoryBudget>(0);
};

}  // namespace weft
