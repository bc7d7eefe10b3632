// Numbers as text, the same in every locale: what printf and its kin write depends on what the process calls setlocale with.
#pragma once

#include <charconv>
#include <cstddef>
#include <string>

namespace weft {

// Writes as printf's %.*f, %.*e and %.*g do in the locale "C"; `number` as it is, float or double.
template <typename Float>
std::string NumberText(Float number, std::chars_format format, int precision) {
  char buffer[512];  // %f of the largest double: 309 digits before the point, and at most 24 behind it here
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, number, format, precision);
  return std::string(buffer, error == std::errc() ? end : buffer);
}

// `number` with so many digits behind the point.
inline std::string FixedText(double number, int digits) { return NumberText(number, std::chars_format::fixed, digits); }
// `text` at the right end of a column.
inline std::string Right(std::string text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

}  // namespace weft
