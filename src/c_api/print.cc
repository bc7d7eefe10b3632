// NumPy's layout: one common number format, brackets by nesting, edges only for large arrays, lines of limited width.
#include "src/c_api/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/runtime/number_text.h"

namespace weft::c_api {
namespace {

// Tells whether the digits stand for this value and no other of its dtype, which has at most 16 bits.
bool ReadsBack(const std::string& digits, double value, DType dtype) {
  HostTensor back(dtype, {});
  double read = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), read);
  back.SetDouble(0, read);
  return back.GetDouble(0) == value;
}

// The fewest digits that read back as the same value of its dtype, in either notation: "1.25e-05", "0.25".
std::string Shortest(double value, DType dtype, bool scientific) {
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  if (dtype == DType::kF64 || dtype == DType::kF32) {
    char buffer[400];
    const auto end = dtype == DType::kF64
                         ? std::to_chars(buffer, buffer + sizeof(buffer), value, format)
                         : std::to_chars(buffer, buffer + sizeof(buffer), static_cast<float>(value), format);
    return std::string(buffer, end.ptr);
  }
  // Five digits are enough for f16; the smallest values that are written in full have some zeros before.
  std::string text;
  for (int digits = 0; digits < 24; ++digits) {
    text = NumberText(value, format, digits);
    if (ReadsBack(text, value, dtype)) break;
  }
  return text;
}

// A finite float: the shortest that reads back the same, or `precision` digits after the point if that is shorter.
// Always has a point, never closing zeros: "1.", "0.25".
std::string Fixed(double value, DType dtype, int precision) {
  std::string text = Shortest(value, dtype, false);
  const size_t point = text.find('.');
  if (point == std::string::npos) return text + ".";
  if (text.size() - point - 1 > static_cast<size_t>(precision)) {
    text = NumberText(value, std::chars_format::fixed, precision);
    if (text.find('.') == std::string::npos) text += '.';
  }
  while (text.back() == '0') text.pop_back();
  return text;
}

// "1.50e+10", or "1.e+10" without any.
std::string WithDigits(double value, int digits) {
  std::string text = NumberText(value, std::chars_format::scientific, digits);
  if (digits == 0) text.insert(text.find('e'), 1, '.');
  return text;
}

// "1.5e+10": the mantissa as Fixed gives it.
std::string Scientific(double value, DType dtype, int precision) {
  std::string text = Shortest(value, dtype, true);
  size_t e = text.find('e');
  if (e > static_cast<size_t>(precision) + 2 + (text[0] == '-' ? 1 : 0)) {
    text = WithDigits(value, precision);
    e = text.find('e');
  }
  std::string mantissa = text.substr(0, e);
  if (mantissa.find('.') == std::string::npos) mantissa += '.';
  while (mantissa.back() == '0') mantissa.pop_back();
  return mantissa + text.substr(e);
}

// All elements as words of one width.
// `signs`: what is not negative has a plus.
std::vector<std::string> Words(const HostTensor& shown, int precision, bool signs) {
  const int64_t count = shown.count();
  std::vector<std::string> words(static_cast<size_t>(count));
  const DType dtype = shown.dtype();
  if (!IsFloat(dtype)) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t v = shown.GetInt(i);
      words[i] = IsBool(dtype)          ? (v != 0 ? "True" : "False")
                 : dtype == DType::kU64 ? std::to_string(static_cast<uint64_t>(v))
                                        : std::to_string(v);
    }
    size_t width = IsBool(dtype) && !shown.dims().empty() ? 5 : 0;  // "False", also if there is none
    for (const std::string& word : words) width = std::max(width, word.size());
    for (std::string& word : words) word.insert(0, width - word.size(), ' ');
    return words;
  }
  double largest = 0, smallest = INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    const double v = std::fabs(shown.GetDouble(i));
    if (!std::isfinite(v) || v == 0) continue;
    largest = std::max(largest, v);
    smallest = std::min(smallest, v);
  }
  const bool scientific = largest != 0 && (largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000);
  size_t left = 0, right = 0;  // widths before and after the point
  for (int64_t i = 0; i < count; ++i) {
    const double v = shown.GetDouble(i);
    if (!std::isfinite(v)) continue;
    words[i] = scientific ? Scientific(v, dtype, precision) : Fixed(v, dtype, precision);
    if (signs && words[i][0] != '-') words[i].insert(0, 1, '+');
    const size_t point = words[i].find('.');
    left = std::max(left, point);
    const size_t end = scientific ? words[i].find('e') : words[i].size();
    right = std::max(right, end - point - 1);
  }
  size_t width = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::string& word = words[i];
    if (word.empty()) continue;
    const size_t point = word.find('.');
    // Scientific mantissas get the digits that the longest one has, fixed ones blanks.
    if (scientific) {
      word = WithDigits(shown.GetDouble(i), static_cast<int>(right));
      if (signs && word[0] != '-') word.insert(0, 1, '+');
    } else {
      word.insert(word.size(), right - (word.size() - point - 1), ' ');
    }
    word.insert(0, left - point, ' ');
    width = std::max(width, word.size());
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!words[i].empty()) continue;
    const double v = shown.GetDouble(i);
    words[i] = std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
    if (signs && words[i][0] != '-') words[i].insert(0, 1, '+');
    width = std::max(width, words[i].size());
  }
  for (std::string& word : words) word.insert(0, width - word.size(), ' ');
  return words;
}

// "1.5-2.j": both parts as floats are, then j, before the blanks that fill the second one.
std::vector<std::string> ComplexWords(const HostTensor& shown, int precision) {
  std::vector<std::string> words = Words(shown.Part(0), precision, false);
  const std::vector<std::string> imaginary = Words(shown.Part(1), precision, true);
  for (size_t i = 0; i < words.size(); ++i) {
    std::string part = imaginary[i];
    part.insert(part.find_last_not_of(' ') + 1, 1, 'j');
    words[i] += part;
  }
  return words;
}

struct Layout {
  const std::vector<std::string>& words;
  Dims shown;                // entries shown along each dimension
  std::vector<int64_t> gap;  // where "..." stands among them; -1: everything is shown
  int64_t width;

  static void Extend(std::string& text, std::string& line, const std::string& word, int64_t width,
                     const std::string& indent) {
    if (static_cast<int64_t>(line.size() + word.size()) > width && line.size() > indent.size()) {
      while (!line.empty() && line.back() == ' ') line.pop_back();
      text += line + "\n";
      line = indent;
    }
    line += word;
  }

  // Entries from word number `at`; the text begins with its bracket.
  std::string Write(size_t axis, size_t& at, const std::string& indent, int64_t room) const {
    std::string text;
    const int64_t n = shown[axis];
    if (axis + 1 == shown.size()) {
      std::string line = indent;
      for (int64_t i = 0; i < n; ++i) {
        if (i == gap[axis]) {
          Extend(text, line, "...", room - 1, indent);
          line += ' ';
        }
        Extend(text, line, words[at++], room - 1, indent);
        if (i + 1 < n) line += ' ';
      }
      text += line;
    } else {
      const std::string separator(shown.size() - axis - 1, '\n');
      for (int64_t i = 0; i < n; ++i) {
        if (i == gap[axis]) text += indent + "..." + separator;
        text += indent + Write(axis + 1, at, indent + " ", room - 1);
        if (i + 1 < n) text += separator;
      }
    }
    return "[" + text.substr(indent.size()) + "]";
  }
};

}  // namespace

absl::StatusOr<std::string> FormatTensor(DType dtype, const Dims& dims, const PrintOptions& options,
                                         const ReadElements& read) {
  if (CountOf(dims) == 0) return "[]";
  const bool summarise = CountOf(dims) > options.threshold;
  Dims shown;
  std::vector<int64_t> gap;
  for (int64_t dim : dims) {
    const bool cut = summarise && dim > 2 * options.edge_items;
    shown.push_back(cut ? 2 * options.edge_items : dim);
    gap.push_back(cut ? options.edge_items : -1);
  }
  HostTensor values(dtype, shown);
  // Innermost runs: everything before a gap is contiguous, and so is everything after it.
  const Dims strides = StridesOf(dims);
  const int64_t row = shown.empty() ? 1 : shown.back();
  const int64_t rows = CountOf(shown) / row;
  const size_t size = static_cast<size_t>(BytesOf(dtype));
  for (int64_t r = 0; r < rows; ++r) {
    int64_t first = 0, rest = r;
    for (size_t d = shown.size(); d-- > 1;) {
      const size_t axis = d - 1;
      int64_t index = rest % shown[axis];
      rest /= shown[axis];
      if (gap[axis] >= 0 && index >= gap[axis]) index += dims[axis] - shown[axis];
      first += index * strides[axis];
    }
    std::byte* to = values.mutable_bytes().data() + static_cast<size_t>(r * row) * size;
    const int64_t head = shown.empty() || gap.back() < 0 ? row : gap.back();
    WEFT_RETURN_IF_ERROR(read(first, head, {to, static_cast<size_t>(head) * size}));
    if (head < row) {
      WEFT_RETURN_IF_ERROR(read(first + dims.back() - (row - head), row - head,
                                {to + static_cast<size_t>(head) * size, static_cast<size_t>(row - head) * size}));
    }
  }
  const auto precision = static_cast<int>(options.precision);
  const std::vector<std::string> words =
      IsComplex(dtype) ? ComplexWords(values, precision) : Words(values, precision, false);
  if (dims.empty()) return words[0];
  size_t at = 0;
  return Layout{words, shown, gap, options.line_width}.Write(0, at, " ", options.line_width);
}

}  // namespace weft::c_api
