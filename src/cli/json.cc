// See json.h.
#include "src/cli/json.h"

#define JSON_NO_IO 1
#include <nlohmann/json.hpp>

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostDepth = 64;

bool FromJson(const Json& from, int depth, Value* out) {
  if (depth > kMostDepth) return false;
  if (from.is_object()) {
    Fields fields;
    for (const auto& [name, field] : from.items()) {
      fields.emplace_back(name, Value(""));
      if (!FromJson(field, depth + 1, &fields.back().second)) return false;
    }
    return *out = Value(std::move(fields)), true;
  }
  if (from.is_array()) {
    List list;
    for (const Json& one : from) {
      list.emplace_back("");
      if (!FromJson(one, depth + 1, &list.back())) return false;
    }
    return *out = Value(std::move(list)), true;
  }
  if (from.is_boolean()) return *out = Value(from.get<bool>()), true;
  if (from.is_null()) return *out = Value(""), true;
  if (from.is_string()) return *out = Value(from.get<std::string>()), true;
  const bool whole = from.is_number_unsigned() ? from.get<uint64_t>() <= INT64_MAX : from.is_number_integer();
  return *out = whole ? Value(from.get<int64_t>()) : Value(from.dump()), true;
}

}  // namespace

bool FromJson(std::string_view text, Value* out) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return !json.is_discarded() && FromJson(json, 0, out);
}

const Fields& FieldsOf(const Value& value) {
  static const Fields kNone;
  const auto* fields = std::get_if<Fields>(&value.data);
  return fields != nullptr ? *fields : kNone;
}

const Value* FieldOf(const Value& value, std::string_view name) {
  for (const auto& [key, field] : FieldsOf(value)) {
    if (key == name) return &field;
  }
  return nullptr;
}

}  // namespace weft::cli
