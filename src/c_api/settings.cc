// The table of options, and reading their values.
#include "src/c_api/settings.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/c_api/guard.h"

namespace weft::c_api {
namespace {

// In the order of Option. `choices` of a text option, separated by "|"; empty: anything.
struct Row {
  weft_option_info info;
  const char* choices;
  int64_t highest = INT64_MAX;  // of a number
};

constexpr Row kRows[] = {
    {{"mode", "WEFT_MODE", WEFT_VALUE_TEXT, 0, "lazy", "how recorded operations run: lazy, eager or debug"},
     "lazy|eager|debug"},
    {{"platform", "WEFT_PLATFORM", WEFT_VALUE_TEXT, 0, "cpu", "who computes: cpu, or reference (slow, the oracle)"},
     "cpu|reference"},
    {{"seed", "WEFT_SEED", WEFT_VALUE_INT, 0, "0", "first state of the random stream"}, ""},
    {{"isa", "WEFT_ISA", WEFT_VALUE_TEXT, 0, "",
      "forces a CPU path: avx512, avx2 or portable; empty: the best this machine has"},
     "|avx512|avx2|portable"},
    {{"threads", "WEFT_THREADS", WEFT_VALUE_INT, 0, "0",
      "threads that compute, of all contexts together; 0: one per core"},
     "",
     1024},
    {{"max_pending_nodes", "WEFT_MAX_PENDING_NODES", WEFT_VALUE_INT, 0, "20000",
      "nodes after which a graph is cut; 0: never"},
     ""},
    {{"max_pending_bytes", "WEFT_MAX_PENDING_BYTES", WEFT_VALUE_INT, 0, "68719476736",
      "bytes of recorded results after which a graph is cut; 0: never"},
     ""},
    {{"repetition_nodes", "WEFT_REPETITION_NODES", WEFT_VALUE_INT, 0, "1000",
      "nodes after which a repeating sequence is cut between two rounds; 0: never"},
     ""},
    {{"cache_mode", "WEFT_CACHE_MODE", WEFT_VALUE_TEXT, 0, "write", "compiled programs on disk: off, read or write"},
     "off|read|write"},
    {{"cache_dir", "WEFT_CACHE_DIR", WEFT_VALUE_TEXT, 0, "",
      "folder of compiled programs; empty: weft in XDG_CACHE_HOME or ~/.cache"},
     ""},
    {{"cache_max_bytes", "WEFT_CACHE_MAX_BYTES", WEFT_VALUE_INT, 0, "4294967296",
      "size at which the least recently used programs go"},
     ""},
    {{"verify_between_passes", "WEFT_VERIFY_BETWEEN_PASSES", WEFT_VALUE_BOOL, 0, "0",
      "checks the program after every compiler pass"},
     ""},
    {{"log", "WEFT_LOG", WEFT_VALUE_TEXT, 0, "off",
      "without a hook, records of this level and above go to standard error: debug, info, warning, error or off"},
     "debug|info|warning|error|off"},
    {{"hash_bits", "WEFT_HASH_BITS", WEFT_VALUE_INT, 0, "128",
      "bits of a program's key that are looked at, for tests of the comparison behind it"},
     "",
     128},
};
static_assert(std::size(kRows) == static_cast<size_t>(Option::kCount));

absl::StatusOr<std::string> Check(const Row& row, std::string_view value, std::string_view from) {
  switch (row.info.type) {
    case WEFT_VALUE_INT: {
      int64_t number;
      if (!absl::SimpleAtoi(absl::string_view(value.data(), value.size()), &number) || number < 0) {
        return UserError(from, ": '", value, "' is not a number of 0 or more");
      }
      if (number > row.highest) return UserError(from, ": '", value, "' is above ", row.highest);
      return std::string(value);
    }
    case WEFT_VALUE_BOOL:
      if (value == "1" || value == "true" || value == "on") return std::string("1");
      if (value == "0" || value == "false" || value == "off") return std::string("0");
      return UserError(from, ": '", value, "' is neither 0 nor 1");
    default: {
      const std::string_view choices = row.choices;
      if (choices.empty()) return std::string(value);
      for (std::string_view choice : absl::StrSplit(choices, '|')) {
        if (choice == value) return std::string(value);
      }
      return UserError(from, ": '", value, "' is not one of ",
                       absl::StrJoin(absl::StrSplit(choices, '|', absl::SkipEmpty()), ", "));
    }
  }
}

}  // namespace

std::span<const weft_option_info> AllOptions() {
  static const auto* const infos = [] {
    auto* list = new std::vector<weft_option_info>;
    for (const Row& row : kRows) list->push_back(row.info);
    return list;
  }();
  return *infos;
}

std::optional<size_t> FindOption(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (name == kRows[i].info.name) return i;
  }
  return std::nullopt;
}

absl::StatusOr<Settings> Settings::Read(const weft_setting* settings, size_t count) {
  if (count > 0 && settings == nullptr) return NullArgument("weft_context_options.settings");
  WEFT_RETURN_IF_ERROR(CheckedLength("weft_context_options.settings", count, kMostEntries));
  Settings result;
  for (size_t i = 0; i < std::size(kRows); ++i) {
    const char* value = std::getenv(kRows[i].info.environment);
    if (value == nullptr) {
      result.values_[i] = kRows[i].info.default_text;
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(result.values_[i], Check(kRows[i], value, kRows[i].info.environment));
  }
  for (size_t i = 0; i < count; ++i) {
    WEFT_ASSIGN_OR_RETURN(std::string_view name, Text(settings[i].name, settings[i].name_length, "settings[].name"));
    WEFT_ASSIGN_OR_RETURN(std::string_view value,
                          Text(settings[i].value, settings[i].value_length, "settings[].value"));
    const std::optional<size_t> found = FindOption(name);
    if (!found) {
      std::string names;
      for (const Row& row : kRows) absl::StrAppend(&names, names.empty() ? "" : ", ", row.info.name);
      return UserErrorOf(absl::StatusCode::kNotFound, "there is no option '", name, "'; there are ", names);
    }
    WEFT_ASSIGN_OR_RETURN(result.values_[*found], Check(kRows[*found], value, absl::StrCat("option ", name)));
  }
  return result;
}

int64_t Settings::integer(Option option) const {
  int64_t value = 0;
  (void)absl::SimpleAtoi(text(option), &value);
  return value;
}

}  // namespace weft::c_api
