// One pass over the bytes of the file: cells become numbers as they are found.
#include "src/data/csv.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "src/data/whole_file.h"
#include "src/runtime/status.h"

namespace weft::data {
namespace {

constexpr size_t kMaxFileBytes = size_t{4} << 30;
constexpr int64_t kMostColumns = 1 << 20;

// Cells of one line after the other.
class Lines {
 public:
  Lines(const std::string& path, std::string_view text, char separator)
      : path_(path), text_(text), separator_(separator) {}

  // False at the end. Empty lines are passed over.
  absl::StatusOr<bool> Next(std::vector<std::string>* cells) {
    cells->clear();
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) line_ += text_[at_++] == '\n';
    if (at_ == text_.size()) return false;
    ++line_;
    while (true) {
      WEFT_RETURN_IF_ERROR(Cell(&cells->emplace_back()));
      if (at_ == text_.size()) return true;
      const char end = text_[at_++];
      if (end == separator_) continue;
      if (end == '\r' && at_ < text_.size() && text_[at_] == '\n') ++at_;
      return true;
    }
  }
  int64_t line() const { return line_; }

 private:
  bool AtEndOfCell() const {
    return at_ == text_.size() || text_[at_] == separator_ || text_[at_] == '\n' || text_[at_] == '\r';
  }
  absl::Status Cell(std::string* cell) {
    if (at_ == text_.size() || text_[at_] != '"') {
      while (!AtEndOfCell()) cell->push_back(text_[at_++]);
      return absl::OkStatus();
    }
    for (++at_;; ++at_) {
      if (at_ == text_.size()) return UserError("'", path_, "', line ", line_, ": a quotation mark is never closed");
      if (text_[at_] == '"' && (++at_ == text_.size() || text_[at_] != '"')) break;  // two stand for one
      cell->push_back(text_[at_]);
    }
    if (AtEndOfCell()) return absl::OkStatus();
    return UserError("'", path_, "', line ", line_, ": text after a closing quotation mark");
  }

  const std::string& path_;
  const std::string_view text_;
  const char separator_;
  size_t at_ = 0;
  int64_t line_ = 0;
};

std::string_view Trimmed(std::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

template <typename T>
bool Parse(std::string_view cell, T* number) {
  const std::string_view text = Trimmed(cell);
  const char* const end = text.data() + text.size();
  if constexpr (std::is_floating_point_v<T>) {
    const absl::from_chars_result result = absl::from_chars(text.data(), end, *number);
    const bool tiny = result.ec == std::errc::result_out_of_range && *number > -1 && *number < 1;  // rounds to 0
    return !text.empty() && (result.ec == std::errc() || tiny) && result.ptr == end;
  } else {
    const std::from_chars_result result = std::from_chars(text.data(), end, *number);
    return !text.empty() && result.ec == std::errc() && result.ptr == end;
  }
}

template <typename T>
absl::Status ReadRows(const std::string& path, Lines& lines, DType dtype, CsvTable* table) {
  std::vector<T> numbers;
  std::vector<std::string> cells;
  int64_t columns = 0, rows = 0;
  for (bool first = true;; first = false) {
    WEFT_ASSIGN_OR_RETURN(const bool more, lines.Next(&cells));
    if (!more) break;
    if (first) {
      columns = static_cast<int64_t>(cells.size());
      if (columns > kMostColumns) return UserError("'", path, "' has ", columns, " columns");
      double number;
      if (std::ranges::none_of(cells, [&](const std::string& cell) { return Parse(cell, &number); })) {
        table->names = cells;
        continue;
      }
    }
    if (static_cast<int64_t>(cells.size()) != columns) {
      return UserError("'", path, "', line ", lines.line(), ": ", cells.size(), " cells; the first line has ", columns);
    }
    for (int64_t c = 0; c < columns; ++c) {
      T number;
      if (!Parse(cells[static_cast<size_t>(c)], &number)) {
        return UserError("'", path, "', line ", lines.line(), ", column ", c + 1, ": '",
                         std::string_view(cells[static_cast<size_t>(c)]).substr(0, 40), "' is no ", NameOf(dtype));
      }
      numbers.push_back(number);
    }
    ++rows;
  }
  if (columns == 0 || rows == 0) return UserError("'", path, "' has no line of numbers");
  table->rows = HostTensor(dtype, {rows, columns}, std::as_bytes(std::span(numbers)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CsvTable> ReadCsv(FileSystem* fs, const std::string& path, const CsvOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const std::string raw, ReadWholeFile(fs, path));
  if (raw.size() > kMaxFileBytes) {
    return UserError("'", path, "' is ", raw.size(), " bytes; tables of at most ", kMaxFileBytes, " are read");
  }
  std::string_view text = raw;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a mark of UTF-8
  Lines lines(path, text, options.separator);
  CsvTable table;
  switch (options.dtype) {
    case DType::kF32: WEFT_RETURN_IF_ERROR(ReadRows<float>(path, lines, options.dtype, &table)); break;
    case DType::kF64: WEFT_RETURN_IF_ERROR(ReadRows<double>(path, lines, options.dtype, &table)); break;
    case DType::kI32: WEFT_RETURN_IF_ERROR(ReadRows<int32_t>(path, lines, options.dtype, &table)); break;
    case DType::kI64: WEFT_RETURN_IF_ERROR(ReadRows<int64_t>(path, lines, options.dtype, &table)); break;
    default: return UserError("a table's dtype is f32, f64, i32 or i64, not ", NameOf(options.dtype));
  }
  return table;
}

}  // namespace weft::data
