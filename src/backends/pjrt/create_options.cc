// See create_options.h.
#include "src/backends/pjrt/create_options.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace weft::pjrt {
namespace {

constexpr int64_t kMostCpuDevices = 65536;

}  // namespace

absl::StatusOr<CreateOptions> CreateOptions::Parse(std::string_view text) {
  CreateOptions options;
  options.text_ = text;
  for (const std::string_view one : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const size_t equals = one.find('=');
    if (equals == one.npos || equals == 0) {
      return UserError("option plugin_options: '", one, "' is not name=value");
    }
    const std::string_view name = one.substr(0, equals), value = one.substr(equals + 1);
    // XLA's plugin for CPUs ends the process over any other number, and over what is none.
    int64_t devices = 0;
    if (name == "cpu_device_count" &&
        (!absl::SimpleAtoi(value, &devices) || devices < 1 || devices > kMostCpuDevices)) {
      return UserError("option plugin_options: cpu_device_count is '", value, "'; it is an integer of 1 to ",
                       kMostCpuDevices);
    }
    options.all_.emplace_back(name, value);
  }
  return options;
}

void CreateOptions::Default(std::string_view name, std::string_view value) {
  if (std::ranges::any_of(all_, [&](const auto& one) { return one.first == name; })) return;
  absl::StrAppend(&text_, text_.empty() ? "" : ",", name, "=", value);
  all_.emplace_back(name, value);
}

std::vector<api::NamedValue> CreateOptions::NamedValues() const {
  using Kind = api::NamedValue::Kind;
  std::vector<api::NamedValue> values;
  for (const auto& [name, text] : all_) {
    api::NamedValue& value = values.emplace_back();
    value.head.struct_size = offsetof(api::NamedValue, value_size) + sizeof(value.value_size);
    value.name = name.data();
    value.name_size = name.size();
    value.value_size = 1;
    if (text == "true" || text == "false") {
      value.kind = Kind::kBool;
      value.flag = text == "true";
    } else if (absl::SimpleAtoi(text, &value.integer)) {
      value.kind = Kind::kInt64;
    } else if (absl::SimpleAtof(text, &value.number)) {
      value.kind = Kind::kFloat;
    } else {
      const bool quoted = text.size() > 1 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0];
      value.kind = Kind::kString;
      value.string = text.data() + (quoted ? 1 : 0);
      value.value_size = text.size() - (quoted ? 2 : 0);
    }
  }
  return values;
}

absl::Status CreateOptions::Explain(const absl::Status& status) const {
  if (status.ok() || all_.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), " (plugin_options: ", text_, ")"));
}

}  // namespace weft::pjrt
