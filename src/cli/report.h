// A command's output, gathered once and printed for people or as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace weft::cli {

struct Value;
using List = std::vector<Value>;
using Fields = std::vector<std::pair<std::string, Value>>;  // in the order they are printed

struct Value {
  Value(std::string text) : data(std::move(text)) {}
  Value(std::string_view text) : data(std::string(text)) {}
  Value(const char* text) : data(std::string(text)) {}
  Value(int64_t number) : data(number) {}
  Value(bool truth) : data(truth) {}
  Value(List list) : data(std::move(list)) {}
  Value(Fields fields) : data(std::move(fields)) {}

  std::variant<std::string, int64_t, bool, List, Fields> data;
};

std::string ToJson(const Value& value);
// Fields on lines of their own, those of fields indented; a list of records or sentences has one a line. Numbers whose name ends
// in "bytes" are also said in MiB.
std::string ToText(const Fields& fields);
// Whichever was asked for, to stdout.
void Print(const Fields& fields, bool json);

}  // namespace weft::cli
