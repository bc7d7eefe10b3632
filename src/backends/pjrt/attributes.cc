// See attributes.h.
#include "src/backends/pjrt/attributes.h"

#include <cmath>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/runtime/json_text.h"

namespace weft::pjrt {
namespace {

std::string JsonOf(const api::NamedValue& value) {
  using enum api::NamedValue::Kind;
  const bool points = value.kind == kString || value.kind == kInt64List;
  if (points && value.value_size > 0 && value.string == nullptr) return "null";
  switch (value.kind) {
    case kString: return JsonText({value.string, value.value_size});
    case kInt64: return absl::StrCat(value.integer);
    case kInt64List: return absl::StrCat("[", absl::StrJoin(std::span(value.integers, value.value_size), ", "), "]");
    case kFloat: return std::isfinite(value.number) ? absl::StrCat(value.number) : "null";
    case kBool: return value.flag ? "true" : "false";
  }
  return "null";
}

void Append(const api::NamedValue* values, size_t count, std::string* to) {
  for (const api::NamedValue& value : std::span(values, count)) {
    if (value.name == nullptr) continue;
    absl::StrAppend(to, ", ", JsonText({value.name, value.name_size}), ": ", JsonOf(value));
  }
}

}  // namespace

std::string AttributesOf(const Plugin& plugin, api::DeviceDescription* description) {
  std::string all = absl::StrCat("{\"pjrt_version\": ", JsonText(plugin.version()));
  api::PluginAttributes its;
  if (plugin.Call(api::Function::kPluginAttributes, &its).ok()) Append(its.attributes, its.num_attributes, &all);
  api::DescriptionAttributes device{.description = description};
  if (description != nullptr && plugin.Call(api::Function::kDeviceDescriptionAttributes, &device).ok())
    Append(device.attributes, device.num_attributes, &all);
  return all + "}";
}

}  // namespace weft::pjrt
