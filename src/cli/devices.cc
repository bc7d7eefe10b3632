// `weft devices`: the devices of each platform that can be had here, with where they are and their memory.
#include <cstdio>

#include "src/cli/command.h"
#include "src/cli/json.h"
#include "src/cli/library.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

// "1024 bytes in use, no limit"
std::string MemoryText(const weft_memory_stats& stats) {
  const std::string limit = stats.bytes_limit == 0 ? ", no limit" : " of " + std::to_string(stats.bytes_limit);
  return std::to_string(stats.bytes_in_use) + " bytes in use" + limit;
}

// Tells whether the option plugin names one, in a setting or a variable.
bool HasPlugin() {
  Context context;
  weft_blob* value = nullptr;
  if (!MessageOf(CreateWithoutCache(&context)).empty()) return false;
  (void)MessageOf(weft_context_option(context.get(), "plugin", WEFT_STRLEN, &value));
  const Blob owner(value);
  return value != nullptr && weft_blob_size(value) > 0;
}

// The rows of one platform's devices; a row that says why where there are none.
void AddDevices(std::string_view platform, std::string_view plugin, bool json, List* rows) {
  weft_setting settings[3] = {{"platform", WEFT_STRLEN, platform.data(), platform.size()},
                              {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                              {"plugin", WEFT_STRLEN, plugin.data(), plugin.size()}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  options.settings = settings;
  options.setting_count = plugin.empty() ? 2 : 3;
  weft_context* made = nullptr;
  std::string problem = MessageOf(weft_context_create(&options, &made));
  const Context context(made);
  size_t count = 0;
  if (problem.empty()) problem = MessageOf(weft_device_count(made, &count));
  weft_blob* blob = nullptr;
  if (problem.empty()) problem = MessageOf(weft_metrics_json(made, &blob));
  const Blob owner(blob);
  if (!problem.empty()) {
    rows->push_back(Fields{{"platform", platform}, {"problem", problem}});
    return;
  }
  Value metrics("");
  const char* const text = static_cast<const char*>(weft_blob_data(blob));
  static const List kNone;
  const List* memory = &kNone;
  if (FromJson({text, weft_blob_size(blob)}, &metrics)) memory = &ListIn(FieldsOf(metrics), "memory");
  for (size_t i = 0; i < count; ++i) {
    weft_device* device = nullptr;
    const char *name = "", *kind = "";
    if (!MessageOf(weft_device_at(made, i, &device)).empty()) continue;
    const Device keep(device);
    (void)MessageOf(weft_device_name(device, &name, nullptr));
    (void)MessageOf(weft_device_kind(device, &kind, nullptr));
    weft_memory_stats stats = WEFT_MEMORY_STATS_INIT;
    (void)MessageOf(weft_device_memory(device, &stats));
    Fields row = {{"name", name}, {"kind", kind}};
    if (json) {
      row.emplace_back("bytes_in_use", static_cast<int64_t>(stats.bytes_in_use));
      row.emplace_back("peak_bytes", static_cast<int64_t>(stats.peak_bytes));
      row.emplace_back("limit_bytes", static_cast<int64_t>(stats.bytes_limit));
    } else {
      row.emplace_back("memory", MemoryText(stats));
    }
    for (const Value& each : *memory) {
      const Value* const attributes = FieldOf(each, "attributes");
      if (TextIn(FieldsOf(each), "device") != name || attributes == nullptr) continue;
      const Value* const coords = FieldOf(*attributes, "coords");
      if (coords != nullptr) row.emplace_back("coords", json ? *coords : Value("at " + ToJson(*coords)));
    }
    rows->push_back(std::move(row));
  }
}

int Execute(const Arguments& arguments) {
  List rows;
  const bool json = arguments.has("--json");
  const std::string_view plugin = arguments.value("--plugin", "");
  if (plugin.empty()) {
    AddDevices("cpu", "", json, &rows);
    AddDevices("reference", "", json, &rows);
  }
  if (!plugin.empty() || HasPlugin()) AddDevices("pjrt", plugin, json, &rows);
  bool well = true;
  for (const Value& row : rows) well = well && FieldOf(row, "problem") == nullptr;
  Print({{"devices", std::move(rows)}}, json);
  return well ? kDone : kFailed;
}

const Registration kDevices(
    {.name = "devices",
     .summary = "every device of each platform, and of the plugin that WEFT_PLUGIN names: where it is, its memory",
     .parameter = "",
     .flags = {{"--plugin", "only those of this PJRT plugin", "PATH"}, {"--json", "as one JSON object"}},
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
