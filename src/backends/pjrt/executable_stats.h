// A plugin's figures of a compiled program.
#pragma once

#include "src/backends/backend.h"
#include "src/backends/pjrt/plugin.h"

namespace weft::pjrt {

// Figures that the plugin does not know stay as they are.
void AddStats(const Plugin& plugin, api::Executable* executable, ExecutableStats* stats);

}  // namespace weft::pjrt
