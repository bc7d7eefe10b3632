// The passes every backend shares, in order: recorded operations in, simplified primitives and claimed composites out.
#pragma once

#include <functional>
#include <string_view>

#include "src/ir/function.h"
#include "src/runtime/held_types.h"
#include "src/runtime/status.h"

namespace weft::passes {

struct PipelineOptions {
  // Runs ir::Verify before the first pass and after each one. In tests always; costs about as much as a pass.
  bool verify_between = false;
  // The types that the device holds in place of those that the module was recorded in.
  HeldTypes held;
  // Composites that the backend runs whole; null claims none.
  std::function<bool(const ir::Node& composite)> claims;
  // Sees the module as given ("input") and after every pass.
  std::function<void(std::string_view pass, const ir::Module& module)> dump;
};

absl::StatusOr<ir::Module> RunPipeline(ir::Module module, const PipelineOptions& options);

}  // namespace weft::passes
