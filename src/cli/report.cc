// See report.h.
#include "src/cli/report.h"

#include <algorithm>

namespace weft::cli {
namespace {

// Bytes of the UTF-8 character that text begins with; 0 if it is none. Paths and variables may hold anything.
size_t CharacterBytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t bytes = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  return bytes;
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const size_t bytes = CharacterBytes(text.substr(at));
    if (bytes != 1) {
      out += bytes == 0 ? "\\ufffd" : std::string(text.substr(at, bytes));
      at += bytes == 0 ? 0 : bytes - 1;
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      out += std::string("\\u00") + kDigits[static_cast<size_t>(c) >> 4] + kDigits[static_cast<size_t>(c) & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

// A scalar or a list of scalars on one line.
std::string InLine(std::string_view name, const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  if (const auto* truth = std::get_if<bool>(&value.data)) return *truth ? "yes" : "no";
  if (const auto* number = std::get_if<int64_t>(&value.data)) {
    std::string out = std::to_string(*number);
    if (name.ends_with("bytes") && *number >= 1 << 20) out += " (" + std::to_string(*number >> 20) + " MiB)";
    return out;
  }
  std::string out;
  if (std::get<List>(value.data).empty()) return "none";
  for (const Value& element : std::get<List>(value.data)) out += (out.empty() ? "" : ", ") + InLine("", element);
  return out;
}

// Records and sentences, which want a line each.
bool IsTable(const Value& value) {
  const auto* list = std::get_if<List>(&value.data);
  if (list == nullptr || list->empty()) return false;
  const auto* text = std::get_if<std::string>(&list->front().data);
  return text != nullptr ? text->find(' ') != std::string::npos : std::holds_alternative<Fields>(list->front().data);
}

std::string Padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// Columns as wide as their widest entry, but for the last.
std::string Table(const List& records, const std::string& indent) {
  std::vector<size_t> widths;
  std::vector<Fields> rows;
  for (const Value& record : records) {
    const auto* record_fields = std::get_if<Fields>(&record.data);
    rows.push_back(record_fields != nullptr ? *record_fields : Fields{{"", record}});
    const Fields& fields = rows.back();
    widths.resize(std::max(widths.size(), fields.size()));
    for (size_t i = 0; i < fields.size(); ++i) {
      widths[i] = std::max(widths[i], InLine(fields[i].first, fields[i].second).size());
    }
  }
  std::string out;
  for (const Fields& fields : rows) {
    std::string line = indent;
    for (size_t i = 0; i < fields.size(); ++i) line += Padded(InLine(fields[i].first, fields[i].second), widths[i] + 2);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string Lines(const Fields& fields, const std::string& indent) {
  size_t width = 0;
  for (const auto& [name, value] : fields) width = std::max(width, name.size());
  std::string out;
  for (const auto& [name, value] : fields) {
    if (const auto* inner = std::get_if<Fields>(&value.data)) {
      out += indent + name + "\n" + Lines(*inner, indent + "  ");
    } else if (IsTable(value)) {
      out += indent + name + "\n" + Table(std::get<List>(value.data), indent + "  ");
    } else {
      out += indent + Padded(name, width) + "  " + InLine(name, value) + "\n";
    }
  }
  return out;
}

}  // namespace

std::string ToJson(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return Quoted(*text);
  if (const auto* number = std::get_if<int64_t>(&value.data)) return std::to_string(*number);
  if (const auto* truth = std::get_if<bool>(&value.data)) return *truth ? "true" : "false";
  std::string out;
  if (const auto* list = std::get_if<List>(&value.data)) {
    for (const Value& element : *list) out += (out.empty() ? "" : ", ") + ToJson(element);
    return "[" + out + "]";
  }
  for (const auto& [name, field] : std::get<Fields>(value.data)) {
    out += (out.empty() ? "" : ", ") + Quoted(name) + ": " + ToJson(field);
  }
  return "{" + out + "}";
}

std::string ToText(const Fields& fields) { return Lines(fields, ""); }

void Print(const Fields& fields, bool json) {
  const std::string text = json ? ToJson(fields) + "\n" : ToText(fields);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace weft::cli
