// Backends say by this how a launch that failed left the memory that it took over.
#pragma once

#include <new>
#include <string_view>

#include "src/runtime/status.h"

namespace weft {

// A detail of the outcome: what the launch was to take over is as it was before. Without it, nobody knows.
inline constexpr std::string_view kPayloadIntact = "weft.intact";

// The outcome with that detail, if it is a failure; where there is no memory to say so, it is not said.
inline absl::Status Intact(absl::Status outcome) {
  if (outcome.ok()) return outcome;
  try {
    return WithDetail(outcome, kPayloadIntact, "");
  } catch (const std::bad_alloc&) {
  }
  return outcome;
}

}  // namespace weft
