// See executable_stats.h.
#include "src/backends/pjrt/executable_stats.h"

#include <algorithm>

namespace weft::pjrt {

void AddStats(const Plugin& plugin, api::Executable* executable, ExecutableStats* stats) {
  api::ExecutableNumber size{.executable = executable};
  if (plugin.Call(api::Function::kExecutableSizeOfGeneratedCode, &size).ok() && size.number > 0)
    stats->code_bytes = size.number;
  api::CompiledMemoryStats memory{.executable = executable};
  if (plugin.Call(api::Function::kExecutableGetCompiledMemoryStats, &memory).ok()) {
    stats->temporary_bytes = std::max<int64_t>(0, memory.temporaries);
    stats->argument_bytes = memory.arguments;
    stats->alias_bytes = memory.aliases;
  }
  api::CostAnalysis cost{.executable = executable};
  if (!plugin.Call(api::Function::kExecutableGetCostAnalysis, &cost).ok()) return;
  for (size_t i = 0; i < cost.num_properties; ++i) {
    const api::NamedValue& property = cost.properties[i];
    if (property.name == nullptr) continue;
    const double number = property.number;
    // NaN and -1 say that nobody knows.
    if (property.kind != api::NamedValue::Kind::kFloat || !(number >= 0 && number < 0x1p63)) continue;
    const std::string_view name(property.name, property.name_size);
    if (name == "flops") stats->flops = static_cast<int64_t>(number);
    if (name == "bytes accessed") stats->bytes_accessed = static_cast<int64_t>(number);
  }
}

}  // namespace weft::pjrt
