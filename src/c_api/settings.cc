// Reading the values of options: the only place of the library that looks at WEFT_ variables, and at those of others that stand for
// one of them.
#include "src/c_api/settings.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/c_api/guard.h"
#include "src/c_api/guess.h"

namespace weft::c_api {
namespace {

static_assert(std::size(kOptions) == static_cast<size_t>(Option::kCount));

absl::StatusOr<std::string> CheckNumber(const OptionRow& row, std::string_view value, std::string_view from) {
  int64_t number, least = 0, most = INT64_MAX;
  if (row.least != nullptr) (void)absl::SimpleAtoi(row.least, &least);
  if (row.most != nullptr) (void)absl::SimpleAtoi(row.most, &most);
  if (!absl::SimpleAtoi(absl::string_view(value.data(), value.size()), &number) || number < least || number > most) {
    const std::string limit = row.most != nullptr ? absl::StrCat("to ", row.most) : "or more";
    return UserError(from, ": '", value, "' is not a number of ", least, " ", limit);
  }
  return absl::StrCat(number);
}

absl::StatusOr<std::string> Check(const OptionRow& row, std::string_view value, std::string_view from) {
  if (value.find('\0') != std::string_view::npos) return UserError(from, ": '", value, "' has a NUL inside");
  if (row.info.type == WEFT_VALUE_INT) return CheckNumber(row, value, from);
  if (row.info.type == WEFT_VALUE_BOOL) {
    if (value == "1" || value == "true" || value == "on") return std::string("1");
    if (value == "0" || value == "false" || value == "off") return std::string("0");
    return UserError(from, ": '", value, "' is neither 0 nor 1");
  }
  if (row.choices == nullptr || value == row.info.default_text) return std::string(value);
  for (std::string_view choice : absl::StrSplit(row.choices, '|')) {
    if (choice == value) return std::string(value);
  }
  return UserError(from, ": '", value, "' is not one of ", absl::StrJoin(absl::StrSplit(row.choices, '|'), ", "));
}

}  // namespace

absl::StatusOr<std::string> CheckOption(Option option, std::string_view value, std::string_view from) {
  return Check(kOptions[static_cast<size_t>(option)], value, from);
}

std::optional<size_t> FindOption(std::string_view name) {
  for (size_t i = 0; i < std::size(kOptions); ++i) {
    if (name == kOptions[i].info.name) return i;
  }
  return std::nullopt;
}

absl::StatusOr<size_t> KnownOption(std::string_view name) {
  if (const std::optional<size_t> found = FindOption(name)) return *found;
  std::vector<std::string_view> names;
  for (const OptionRow& row : kOptions) names.push_back(row.info.name);
  return UserErrorOf(absl::StatusCode::kNotFound, "there is no option '", name, "'", DidYouMean(name, names),
                     "weft_option_list names all");
}

absl::StatusOr<Settings> Settings::Read(const weft_setting* settings, size_t count) {
  if (count > 0 && settings == nullptr) return NullArgument("weft_context_options.settings");
  WEFT_RETURN_IF_ERROR(CheckedLength("weft_context_options.settings", count, kMostEntries));
  Settings result;
  for (size_t i = 0; i < std::size(kOptions); ++i) {
    const OptionRow& row = kOptions[i];
    const char* value = std::getenv(row.info.environment);
    if (value == nullptr) {
      result.values_[i] = row.info.default_text;
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(result.values_[i], Check(row, value, row.info.environment));
    result.sources_[i] = WEFT_OPTION_FROM_ENVIRONMENT;
  }
  for (size_t i = 0; i < count; ++i) {
    WEFT_ASSIGN_OR_RETURN(std::string_view name, Text(settings[i].name, settings[i].name_length, "settings[].name"));
    WEFT_ASSIGN_OR_RETURN(std::string_view value,
                          Text(settings[i].value, settings[i].value_length, "settings[].value"));
    WEFT_ASSIGN_OR_RETURN(const size_t found, KnownOption(name));
    WEFT_ASSIGN_OR_RETURN(std::string checked, Check(kOptions[found], value, absl::StrCat("option ", name)));
    result.set(static_cast<Option>(found), std::move(checked));
  }
  WEFT_RETURN_IF_ERROR(result.ReadOthersVariables());
  return result;
}

absl::Status Settings::ReadOthersVariable(size_t option, std::string_view variable, std::string_view values) {
  const std::string name(variable);
  const char* const said = std::getenv(name.c_str());
  if (said == nullptr || sources_[option] != WEFT_OPTION_FROM_DEFAULT) return absl::OkStatus();
  std::string value = said;
  if (!values.empty()) {
    // Where ours has names, theirs has a number or a truth value.
    if (value == "true" || value == "on") value = "1";
    if (value == "false" || value == "off" || value.empty()) value = "0";
    std::vector<std::string_view> known;
    std::optional<std::string_view> ours;
    for (const std::string_view pair : absl::StrSplit(values, ',')) {
      const size_t equals = pair.find('=');
      known.push_back(pair.substr(0, equals));
      if (known.back() == value) ours = pair.substr(equals + 1);
    }
    if (!ours) {
      return UserError(variable, ": '", said, "' is not one of ", absl::StrJoin(known, ", "), "; the option ",
                       kOptions[option].info.name, " (", kOptions[option].info.environment, ") goes before it");
    }
    if (ours->empty()) return absl::OkStatus();
    value = *ours;
  }
  WEFT_ASSIGN_OR_RETURN(values_[option], Check(kOptions[option], value, variable));
  sources_[option] = WEFT_OPTION_FROM_ENVIRONMENT;
  return absl::OkStatus();
}

absl::Status Settings::ReadOthersVariables() {
  for (size_t i = 0; i < std::size(kOptions); ++i) {
    if (kOptions[i].also == nullptr) continue;
    for (const std::string_view one : absl::StrSplit(kOptions[i].also, ';')) {
      const size_t colon = one.find(':');
      WEFT_RETURN_IF_ERROR(ReadOthersVariable(i, one.substr(0, colon), one.substr(colon + 1)));
    }
  }
  WEFT_RETURN_IF_ERROR(ReadOpByOpVariables());
  constexpr auto kPlatform = static_cast<size_t>(Option::kPlatform);
  const bool chosen = sources_[kPlatform] != WEFT_OPTION_FROM_DEFAULT;
  const char* const device = std::getenv("PJRT_DEVICE");
  if (chosen || device == nullptr) return ReadXrtVariables();
  constexpr std::string_view kDevices[] = {"CPU", "TPU", "GPU", "CUDA", "ROCM"};
  if (std::ranges::find(kDevices, device) == std::end(kDevices)) {
    return UserError("PJRT_DEVICE: '", device, "' is not one of ", absl::StrJoin(kDevices, ", "),
                     "; the option platform (WEFT_PLATFORM) goes before it");
  }
  values_[kPlatform] = absl::AsciiStrToLower(device);
  sources_[kPlatform] = WEFT_OPTION_FROM_ENVIRONMENT;
  return ReadXrtVariables();
}

absl::Status Settings::ReadOpByOpVariables() {
  constexpr auto kOption = static_cast<size_t>(Option::kOpByOp);
  bool wanted[2] = {};
  for (const int barriers : {0, 1}) {
    for (const std::string_view prefix : {"", "XLA_"}) {
      const std::string name = absl::StrCat(prefix, barriers != 0 ? "SYNC" : "GET", "_TENSORS_OPBYOP");
      const char* const said = std::getenv(name.c_str());
      if (said == nullptr || sources_[kOption] != WEFT_OPTION_FROM_DEFAULT) continue;
      const std::string_view value = said;
      const bool on = value == "1" || value == "true", off = value == "0" || value == "false" || value.empty();
      if (!on && !off) {
        return UserError(name, ": '", said, "' is not one of 0, 1; the option op_by_op (WEFT_OP_BY_OP) goes before it");
      }
      wanted[barriers] = wanted[barriers] || on;
    }
  }
  if (!wanted[0] && !wanted[1]) return absl::OkStatus();
  values_[kOption] = wanted[0] && wanted[1] ? "both" : wanted[0] ? "read" : "sync";
  sources_[kOption] = WEFT_OPTION_FROM_ENVIRONMENT;
  return absl::OkStatus();
}

absl::Status Settings::ReadXrtVariables() {
  std::vector<std::string_view> set;
  for (const char* const variable : {"XRT_TPU_CONFIG", "XRT_DEVICE_MAP", "XRT_WORKERS"}) {
    if (std::getenv(variable) != nullptr) set.push_back(variable);
  }
  if (set.empty()) return absl::OkStatus();
  const std::string all = absl::StrCat(absl::StrJoin(set, ", "), set.size() == 1 ? " is" : " are", " set, for XRT");
  const std::string& platform = text(Option::kPlatform);
  if (platform != "tpu") {
    ignored_ = absl::StrCat(all, ", and ignored on the platform ", platform);
    return absl::OkStatus();
  }
  return UserError(
      all, ", which is no more: unset ", set.size() == 1 ? "it" : "them",
      "; the option platform=tpu (WEFT_PLATFORM=tpu, PJRT_DEVICE=TPU) is enough: libtpu finds the TPUs of this "
      "machine, and TPU_VISIBLE_CHIPS picks some of them; nothing is asked of an address");
}

HeldTypes Settings::held() const {
  HeldTypes held;
  const bool bf16 = truth(Option::kUseBf16), downcast = truth(Option::kDowncastBf16);
  if (bf16 || downcast) held.f32 = DType::kBF16;
  if (bf16 || downcast) held.f64 = bf16 ? DType::kBF16 : DType::kF32;
  if (truth(Option::kUse32bitLong)) {
    held.i64 = DType::kI32;
    held.u64 = DType::kU32;
  }
  return held;
}

int64_t Settings::integer(Option option) const {
  int64_t value = 0;
  (void)absl::SimpleAtoi(text(option), &value);
  return value;
}

}  // namespace weft::c_api
