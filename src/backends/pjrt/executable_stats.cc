// See executable_stats.h.
#include "src/backends/pjrt/executable_stats.h"

namespace weft::pjrt {

ExecutableStats StatsOf(const Plugin& plugin, api::Executable* executable) {
  ExecutableStats stats;
  stats.kernels = 1;
  api::ExecutableNumber size{.executable = executable};
  if (plugin.Call(api::Function::kExecutableSizeOfGeneratedCode, &size).ok() && size.number > 0)
    stats.code_bytes = size.number;
  api::CompiledMemoryStats memory{.executable = executable};
  if (plugin.Call(api::Function::kExecutableGetCompiledMemoryStats, &memory).ok())
    stats.temporary_bytes = memory.temporaries;
  api::CostAnalysis cost{.executable = executable};
  if (!plugin.Call(api::Function::kExecutableGetCostAnalysis, &cost).ok()) return stats;
  for (size_t i = 0; i < cost.num_properties; ++i) {
    const api::NamedValue& property = cost.properties[i];
    if (property.kind != api::NamedValue::Kind::kFloat) continue;
    const std::string_view name(property.name, property.name_size);
    if (name == "flops") stats.flops = property.number;
    if (name == "bytes accessed") stats.bytes_accessed = property.number;
  }
  return stats;
}

}  // namespace weft::pjrt
