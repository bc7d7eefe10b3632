// `weft doctor`: makes a context as any program would and says what came of it.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "src/cli/command.h"
#include "src/cli/json.h"
#include "src/cli/library.h"
#include "src/cli/machine.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

std::vector<weft_option_info> Options() {
  size_t count = 0;
  (void)MessageOf(weft_option_list(nullptr, 0, &count));
  std::vector<weft_option_info> options(count);
  (void)MessageOf(weft_option_list(options.data(), options.size(), &count));
  return options;
}

const char* Detail(const char* option, const char* key) {
  return weft_option_detail(option, WEFT_STRLEN, key, WEFT_STRLEN);
}

// A context that nothing is remembered of, with one option set; the message if there cannot be one.
std::string TryContext(const char* option, const std::string& value) {
  const weft_setting settings[] = {{"platform", WEFT_STRLEN, "cpu", WEFT_STRLEN},
                                   {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {option, WEFT_STRLEN, value.c_str(), value.size()}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  options.settings = settings;
  options.setting_count = std::size(settings);
  weft_context* context = nullptr;
  std::string message = MessageOf(weft_context_create(&options, &context));
  const Context owner(context);
  return message;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// Gathers the report. Faults go to `problems`, oddities to `notes`.
struct Doctor {
  Context context;
  List problems, notes;

  void Open() {
    weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
    options.min_log_level = WEFT_LOG_INFO;
    options.log_user_data = this;
    options.log = [](void* self, weft_log_level level, const char* text, size_t length) {
      auto* const doctor = static_cast<Doctor*>(self);
      (level < WEFT_LOG_WARNING ? doctor->notes : doctor->problems).push_back(std::string(text, length));
    };
    weft_context* made = nullptr;
    if (std::string message = MessageOf(weft_context_create(&options, &made)); !message.empty()) {
      problems.push_back("no context can be made: " + message);
    }
    context.reset(made);
  }

  // Empty without a context, as everything below.
  std::string ValueOf(const char* option) {
    weft_blob* value = nullptr;
    if (context == nullptr) return "";
    (void)MessageOf(weft_context_option(context.get(), option, WEFT_STRLEN, &value));
    const Blob owner(value);
    return value == nullptr ? "" : std::string(static_cast<const char*>(weft_blob_data(value)), weft_blob_size(value));
  }

  Fields Isa() {
    std::string chosen = "none";
    const std::vector<std::string> kind = Split(DeviceText(&weft_device_kind), ' ');
    List possible;
    for (const std::string& isa : Split(Detail("isa", "choices"), '|')) {
      if (std::find(kind.begin(), kind.end(), isa) != kind.end()) chosen = isa;
      if (TryContext("isa", isa).empty()) possible.push_back(isa);
    }
    return {{"chosen", chosen}, {"possible", possible}};
  }

  List Devices() {
    List rows;
    size_t count = 0;
    if (context != nullptr) (void)MessageOf(weft_device_count(context.get(), &count));
    weft_blob* metrics = nullptr;
    if (context != nullptr) (void)MessageOf(weft_metrics_json(context.get(), &metrics));
    const Blob owner(metrics);
    const std::string_view all =
        metrics == nullptr
            ? std::string_view()
            : std::string_view(static_cast<const char*>(weft_blob_data(metrics)), weft_blob_size(metrics));
    for (size_t i = 0; i < count; ++i) {
      const std::string name = DeviceText(&weft_device_name, i);
      Fields row{{"name", name}, {"kind", DeviceText(&weft_device_kind, i)}};
      if (std::string coordinates = CoordinatesIn(all, name); !coordinates.empty()) {
        row.emplace_back("coords", std::move(coordinates));
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  // "0, 1": where a device is among those of its machine, as the metrics have it; empty where its plugin does not tell.
  static std::string CoordinatesIn(std::string_view metrics, const std::string& device) {
    constexpr std::string_view kBegin = "{\"device\": ", kName = "\"coords\": [";
    const size_t at = metrics.find(std::string(kBegin) + "\"" + device + "\"");
    if (at == metrics.npos) return "";
    std::string_view its = metrics.substr(at + kBegin.size());
    its = its.substr(0, its.find(kBegin));
    const size_t list = its.find(kName);
    if (list == its.npos) return "";
    its.remove_prefix(list + kName.size());
    return std::string(its.substr(0, its.find(']')));
  }

  std::string DeviceText(weft_error* (*ask)(weft_device*, const char**, size_t*) noexcept, size_t number = 0) {
    weft_device* device = nullptr;
    if (context == nullptr || !MessageOf(weft_device_at(context.get(), number, &device)).empty()) return "";
    const Device owner(device);
    const char* text = "";
    (void)MessageOf(ask(device, &text, nullptr));
    return text;
  }

  Fields CacheReport() {
    weft_cache* cache = nullptr;
    if (context != nullptr) (void)MessageOf(weft_context_cache(context.get(), &cache));
    const Cache owner(cache);
    const char* folder = "";
    if (cache != nullptr) (void)MessageOf(weft_cache_dir(cache, &folder, nullptr));
    const CacheFolder seen = *folder == '\0' ? CacheFolder() : LookAt(folder);
    return {{"folder", folder},          {"mode", ValueOf("cache_mode")}, {"exists", seen.exists},
            {"writable", seen.writable}, {"entries", seen.entries},       {"bytes", seen.bytes}};
  }

  List OptionsReport(const std::vector<weft_option_info>& options) {
    List rows;
    for (const weft_option_info& option : options) {
      weft_option_source source = WEFT_OPTION_FROM_DEFAULT;
      if (context == nullptr) break;
      (void)MessageOf(weft_context_option_source(context.get(), option.name, WEFT_STRLEN, &source));
      const bool said = source == WEFT_OPTION_FROM_ENVIRONMENT;
      rows.push_back(Fields{{"name", option.name},
                            {"value", ValueOf(option.name)},
                            {"source", said ? std::string("environment: ") + option.environment : "default"}});
      if (const char* why = Detail(option.name, "deprecated"); said && why != nullptr) {
        notes.push_back(std::string(option.environment) + " is deprecated: " + why);
      }
    }
    return rows;
  }

  // Variables of PyTorch/XLA that nothing here reads: no option by another name, and not the package torch_xla.
  void LookAtXla() {
    static constexpr std::string_view kPrefixes[] = {"XLA_", "PT_XLA_", "XLAC_"};
    static constexpr std::string_view kRead[] = {"XLA_FLAGS", "XLA_USE_F16", "XLA_ALWAYS_ALLREDUCE", "XLA_EMIT_STEPLOG",
                                                 "XLA_METRICS_FILE"};
    size_t length = 0;
    const char* const text = weft_api_json(&length);
    Value api("");
    if (!FromJson({text, length}, &api)) return;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view name(*variable, std::strcspn(*variable, "="));
      const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
      if (std::ranges::none_of(kPrefixes, begins) || std::ranges::find(kRead, name) != std::end(kRead)) continue;
      const auto reads = [&](const Value& option) {
        const Value* const also = FieldOf(option, "also");
        return also != nullptr && FieldOf(*also, name) != nullptr;
      };
      if (std::ranges::any_of(ListIn(FieldsOf(api), "options"), reads)) continue;
      notes.push_back(std::string(name) + " is set, for PyTorch/XLA, and has no meaning here");
    }
  }

  // Variables that look like ours and are nobody's, probably misspelt.
  void LookAtEnvironment(const std::vector<weft_option_info>& options) {
    constexpr std::string_view kPrefix = "WEFT_";
    std::vector<std::string_view> names;
    for (const weft_option_info& option : options)
      names.push_back(std::string_view(option.environment).substr(kPrefix.size()));
    for (char** variable = environ; *variable != nullptr; ++variable) {
      std::string_view name(*variable, std::strcspn(*variable, "="));
      if (!name.starts_with(kPrefix)) continue;
      name.remove_prefix(kPrefix.size());
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      const std::string_view nearest = Nearest(name, names);
      if (nearest.empty()) continue;
      notes.push_back("WEFT_" + std::string(name) + " is set and no option; did you mean WEFT_" + std::string(nearest) +
                      "?");
    }
  }
};

// Reports who this process would be in a job, by which rule, and why the rules before did not apply.
int ExamineJob() {
  weft_blob* found = nullptr;
  if (const std::string message = MessageOf(weft_job_find(nullptr, &found)); !message.empty()) {
    std::fprintf(stderr, "weft doctor: %s\n", message.c_str());
    return kFailed;
  }
  const Blob owner(found);
  std::printf("%.*s\n", static_cast<int>(weft_blob_size(found)), static_cast<const char*>(weft_blob_data(found)));
  return kDone;
}

int Examine(const Arguments& arguments) {
  if (arguments.has("--job")) return ExamineJob();
  Doctor doctor;
  doctor.Open();
  const std::vector<weft_option_info> options = Options();
  Fields cpu = CpuFields();
  cpu.emplace_back("isa", doctor.Isa());
  Fields report = {{"weft", VersionFields()},
                   {"device", Fields{{"name", doctor.DeviceText(&weft_device_name)},
                                     {"kind", doctor.DeviceText(&weft_device_kind)}}},
                   {"devices", doctor.Devices()},
                   {"cpu", std::move(cpu)},
                   {"memory", MemoryFields()},
                   {"cache", doctor.CacheReport()},
                   {"options", doctor.OptionsReport(options)}};
  doctor.LookAtEnvironment(options);
  doctor.LookAtXla();
  doctor.context.reset();  // may warn, too
  const bool well = doctor.problems.empty();
  report.emplace_back("notes", std::move(doctor.notes));
  report.emplace_back("problems", std::move(doctor.problems));
  report.emplace_back("ok", well);
  Print(report, arguments.has("--json"));
  return well ? kDone : kFailed;
}

const Registration kDoctor({.name = "doctor",
                            .summary = "this machine, what Weft makes of it, the compile cache, options in effect",
                            .flags = {{"--json", "as one JSON object"},
                                      {"--job",
                                       "only who this process would be in a job, and which rule says so; JSON"}},
                            .execute = Examine});

}  // namespace
}  // namespace weft::cli
