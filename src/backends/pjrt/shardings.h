// The results that a program leaves open, and the plugin's answer how its partitioner has cut them: PJRT's extension
// Shardings, in plugins from 0.91 on.
#pragma once

#include <optional>
#include <string_view>

#include "src/backends/pjrt/plugin.h"
#include "src/backends/pjrt/program.h"
#include "src/ir/function.h"

namespace weft::pjrt {

// Tells whether the plugin says how results lie.
bool TellsShardings(const Plugin& plugin);

// Asks how the results lie that the program leaves open, and writes it into the program, with the type of one device's part.
// False: of some it cannot be said by the axes of the mesh, in even pieces, or the plugin does not say it; those are open still.
absl::StatusOr<bool> AskShardings(const Plugin& plugin, api::Executable* executable, Program* program);

// The module with what the program knows of its results; of what is open, whole.
ir::Module WithoutOpenResults(const ir::Module& module, const Program& program);

// The sharding of a value of this type, of an xla.OpSharding's bytes for the slots of the mesh; nothing where axes do not say it.
std::optional<ir::Sharding> ReadOpSharding(std::string_view bytes, const ir::Mesh& mesh, const ir::Type& type);

}  // namespace weft::pjrt
