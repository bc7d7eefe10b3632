// See dataset_tar.h. The archive's reader knows members, the reader of NumPy's files knows arrays; here they meet.
#include "src/c_api/dataset_tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "serialization/interchange/npy_header.h"
#include "src/data/tar.h"
#include "src/data/whole_file.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/status.h"

namespace weft::c_api {
namespace {

// WebDataset's extensions of whole numbers.
constexpr std::array<std::string_view, 6> kNumbers = {"cls", "count", "id", "index", "inx", "class"};

struct Value {
  DType dtype = DType::kU8;
  Dims dims;
  std::string_view bytes;  // dense, in the archive or in `own`
  std::string own;
};

absl::StatusOr<Value> ArrayOf(std::string_view file, const std::string& what) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(file));
  if (!IsNpy(bytes) || file.size() < kNpyStartBytes) return UserError(what, " is no array of NumPy");
  WEFT_ASSIGN_OR_RETURN(const uint64_t header_bytes, NpyHeaderBytes(bytes.first(kNpyStartBytes), file.size(), what));
  if (header_bytes > file.size()) return absl::DataLossError(absl::StrCat(what, " is cut off in its header"));
  WEFT_ASSIGN_OR_RETURN(const NpyHeader header,
                        ParseNpyHeader(file.substr(0, static_cast<size_t>(header_bytes)), file.size(), what));
  Value value;
  value.dtype = header.dtype;
  value.dims = header.dims;
  value.bytes = file.substr(static_cast<size_t>(header.header_bytes), static_cast<size_t>(header.data_bytes));
  const auto width = static_cast<size_t>(BytesOf(header.dtype));
  if (header.fortran_order && header.dims.size() > 1) {
    value.own.resize(value.bytes.size());
    RowsFirst(std::as_bytes(std::span(value.bytes)), header.dims, width, std::as_writable_bytes(std::span(value.own)));
  }
  if (header.swapped && width > 1) {
    if (value.own.empty()) value.own = std::string(value.bytes);
    const size_t part = IsComplex(header.dtype) ? width / 2 : width;
    for (size_t at = 0; at < value.own.size(); at += part)
      std::reverse(value.own.begin() + at, value.own.begin() + at + part);
  }
  if (!value.own.empty()) value.bytes = value.own;
  return value;
}

absl::StatusOr<Value> ValueOf(const data::TarPart& part, const std::string& what) {
  const std::string_view extension = std::string_view(part.extension).substr(part.extension.rfind('.') + 1);
  if (extension == "npy") return ArrayOf(part.bytes, what);
  Value value;
  if (std::ranges::find(kNumbers, extension) != kNumbers.end()) {
    const std::string_view text = absl::StripAsciiWhitespace(part.bytes);
    int64_t number = 0;
    const std::from_chars_result read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) {
      return UserError(what, " is no whole number: '", text.substr(0, 40), "'");
    }
    value.dtype = DType::kI64;
    value.own.assign(reinterpret_cast<const char*>(&number), sizeof(number));
    value.bytes = value.own;
    return value;
  }
  value.dims = {static_cast<int64_t>(part.bytes.size())};
  value.bytes = part.bytes;
  return value;
}

struct Column {
  std::string extension;
  DType dtype = DType::kU8;
  Dims dims;
  std::string bytes;
};

absl::Status Append(const data::TarItem& item, const data::TarItem& first, const std::string& path, Column* column) {
  const auto part = std::ranges::find(item.parts, column->extension, &data::TarPart::extension);
  if (part == item.parts.end()) {
    return UserError("'", path, "': the item '", item.key, "' has no .", column->extension, ", which '", first.key,
                     "' has");
  }
  const std::string what = absl::StrCat("'", path, "': ", item.key, ".", column->extension);
  WEFT_ASSIGN_OR_RETURN(Value value, ValueOf(*part, what));
  if (&item == &first) {
    column->dtype = value.dtype;
    column->dims = value.dims;
  } else if (value.dtype != column->dtype || value.dims != column->dims) {
    return UserError(what, " is ", NameOf(value.dtype), DimsToString(value.dims), ", that of '", first.key, "' is ",
                     NameOf(column->dtype), DimsToString(column->dims),
                     "; decode such parts in a function of yours (weft_dataset_create)");
  }
  column->bytes.append(value.own.empty() ? value.bytes : std::string_view(value.own));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Ref<data::Dataset>> OpenTarItems(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, data::ReadWholeFile(PosixFileSystem(), path));
  WEFT_ASSIGN_OR_RETURN(const std::vector<data::TarItem> items, data::ReadTar(path, bytes));
  if (items.empty()) return UserError("'", path, "' has no files");
  if (!MachineHas(static_cast<int64_t>(bytes.size()))) {
    return absl::ResourceExhaustedError(
        absl::StrCat("'", path, "' takes ", bytes.size(), " bytes again, which the machine has no memory for"));
  }
  std::vector<Column> columns;
  for (const data::TarPart& part : items[0].parts) columns.push_back({part.extension, DType::kU8, {}, {}});
  std::ranges::sort(columns, {}, &Column::extension);
  for (const data::TarItem& item : items) {
    for (Column& column : columns) WEFT_RETURN_IF_ERROR(Append(item, items[0], path, &column));
    if (item.parts.size() != columns.size()) {
      return UserError("'", path, "': the item '", item.key, "' has ", item.parts.size(), " parts, '", items[0].key,
                       "' has ", columns.size());
    }
  }
  std::vector<data::NamedTensor> fields;
  for (Column& column : columns) {
    Dims dims = {static_cast<int64_t>(items.size())};
    dims.insert(dims.end(), column.dims.begin(), column.dims.end());
    if (dims.size() > kMaxRank) return UserError("'", path, "': .", column.extension, " has rank ", column.dims.size());
    fields.push_back(
        {column.extension, HostTensor(column.dtype, std::move(dims), std::as_bytes(std::span(column.bytes)))});
    column.bytes = {};
  }
  return data::FromTensors(std::move(fields));
}

}  // namespace weft::c_api
