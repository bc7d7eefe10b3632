// A plugin's own profiler, PJRT's extension: its XSpace, of what devices did while a trace was on, becomes lanes of the trace.
#pragma once

#include <memory>
#include <string_view>

#include "src/backends/pjrt/plugin.h"
#include "src/runtime/log.h"
#include "src/runtime/trace.h"

namespace weft::pjrt {

// Null: the plugin has no profiler. A profiler that fails is a warning, and the trace goes on without it.
std::unique_ptr<TraceSource> NewProfiler(const Plugin& plugin, LogHook log);

// The lanes of an XSpace message, whose times are of CLOCK_REALTIME; `shift` is what MonotonicNow is later. A lane is a line of a plane
// that has spans. INTERNAL for bytes that are no such message.
absl::StatusOr<TraceRecord> ReadXSpace(std::string_view bytes, int64_t shift);

}  // namespace weft::pjrt
