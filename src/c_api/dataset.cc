// weft_dataset_*: items behind a caller's function, in memory, in tensors, in files.
#include "src/data/dataset.h"

#include <algorithm>
#include <string>
#include <vector>

#include "serialization/interchange/tensor_file.h"
#include "src/c_api/callbacks.h"
#include "src/c_api/data_objects.h"
#include "src/c_api/dataset_tar.h"
#include "src/c_api/options.h"
#include "src/data/csv.h"
#include "src/data/idx.h"
#include "src/data/tar.h"
#include "src/data/tfrecord.h"
#include "src/data/whole_file.h"
#include "src/runtime/machine_memory.h"
#include "weft.h"

namespace weft::c_api {
namespace {

constexpr int64_t kMostThreads = 1 << 16;

absl::StatusOr<std::vector<data::Field>> FieldsOf(const weft_tensor_info* fields, uint64_t count) {
  WEFT_RETURN_IF_ERROR(CheckedLength("field_count", count, kMostEntries));
  if (count == 0) return UserError("field_count is 0; an item has at least one field");
  WEFT_NOT_NULL(fields);
  std::vector<data::Field> made;
  for (uint64_t f = 0; f < count; ++f) {
    WEFT_ASSIGN_OR_RETURN(const DType dtype, CheckedDType(fields[f].dtype));
    if (fields[f].rank >= kMaxRank) {
      return UserError("field ", f, " has rank ", fields[f].rank, "; at most ", kMaxRank - 1, " are allowed");
    }
    WEFT_RETURN_IF_ERROR(CheckedBytes(dtype, fields[f].dims, fields[f].rank).status());
    WEFT_ASSIGN_OR_RETURN(made.emplace_back(), data::MakeField("", dtype, {fields[f].dims, fields[f].rank}));
  }
  return made;
}

// Items that a function of the caller's reads.
class CallbackDataset final : public data::Dataset {
 public:
  CallbackDataset(const weft_dataset_options& options, std::vector<data::Field> fields, std::shared_ptr<UserData> data)
      : Dataset(options.count, std::move(fields), options.most_at_once), options_(options), data_(std::move(data)) {}

  absl::Status Read(std::span<const int64_t> items, std::span<std::byte* const> into,
                    std::span<uint64_t> written) override {
    std::vector<weft_rows> rows(into.size());
    for (size_t f = 0; f < rows.size(); ++f) {
      const auto row_bytes = static_cast<uint64_t>(fields()[f].row_bytes);
      rows[f] = {.data = into[f], .size = row_bytes * items.size(), .row_bytes = row_bytes};
    }
    weft_error* error = nullptr;
    {
      const CallingOut out;
      error = options_.read(options_.user_data, items.data(), items.size(), rows.data(), rows.size());
    }
    if (error != nullptr) return TakeError(error);
    for (size_t f = 0; f < rows.size(); ++f) written[f] = rows[f].size;
    return absl::OkStatus();
  }

 private:
  const weft_dataset_options options_;
  const std::shared_ptr<UserData> data_;
};

absl::Status Give(absl::StatusOr<Ref<data::Dataset>> dataset, weft_dataset** out) {
  WEFT_RETURN_IF_ERROR(dataset.status());
  WEFT_ASSIGN_OR_RETURN(*out, Make<weft_dataset>(*std::move(dataset)));
  return absl::OkStatus();
}

// --- Files ----------------------------------------------------------------------------------------------------------------

enum class Kind : uint8_t { kIdx, kTable, kTensors, kExamples, kTar };

absl::StatusOr<Kind> KindOf(const std::string& path) {
  constexpr size_t kOfText = 16;  // first bytes that tell a text
  WEFT_ASSIGN_OR_RETURN(const std::string first, data::ReadFirstBytes(PosixFileSystem(), path, data::kTarBlock));
  if (data::IsTfRecord(first)) return Kind::kExamples;
  if (data::IsTar(first)) return Kind::kTar;
  const size_t count = std::min(first.size(), kOfText);
  const auto is = [&](size_t i, unsigned char byte) {
    return i < count && static_cast<unsigned char>(first[i]) == byte;
  };
  if ((is(0, 0x1F) && is(1, 0x8B)) || (is(0, 0) && is(1, 0) && count >= 4 && first[2] >= 8 && first[2] <= 14)) {
    return Kind::kIdx;
  }
  const auto of_text = [](char letter) {
    const auto c = static_cast<unsigned char>(letter);
    return c >= 0x20 || c == '\t' || c == '\r' || c == '\n';
  };
  const bool known = is(0, 0x93) || is(0, 0xD7) || (is(0, 'P') && is(1, 'K')) || (is(0, 'G') && is(1, 'G'));
  return !known && std::all_of(first.begin(), first.begin() + count, of_text) ? Kind::kTable : Kind::kTensors;
}

absl::StatusOr<data::CsvOptions> ReadCsvOptions(const weft_csv_options* options) {
  weft_csv_options read = WEFT_CSV_OPTIONS_INIT;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof read, "weft_csv_options", &read));
  data::CsvOptions csv;
  if (read.dtype != 0) {
    WEFT_ASSIGN_OR_RETURN(csv.dtype, CheckedDType(read.dtype));
  }
  if (read.separator != 0) {
    const int32_t c = read.separator;
    if (c < '\t' || c > 126 || c == '"' || c == '\n' || c == '\r' || (c >= '0' && c <= '9')) {
      return UserError("separator is ", c,
                       "; it is the number of an ASCII character that no number, line or quotation is made of");
    }
    csv.separator = static_cast<char>(c);
  }
  return csv;
}

absl::StatusOr<Ref<data::Dataset>> OpenTable(const std::string& path, const data::CsvOptions& options) {
  WEFT_ASSIGN_OR_RETURN(data::CsvTable table, data::ReadCsv(PosixFileSystem(), path, options));
  std::vector<data::NamedTensor> fields;
  fields.push_back({"", std::move(table.rows)});
  return data::FromTensors(std::move(fields));
}

absl::StatusOr<Ref<data::Dataset>> OpenTensors(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorFile> file, OpenTensorFile(path));
  if (file->tensor_count() == 0) return UserError("'", path, "' has no tensors");
  if (!MachineHas(static_cast<int64_t>(file->tensor_bytes()))) {
    return absl::ResourceExhaustedError(absl::StrCat("'", path, "' has ", file->tensor_bytes(),
                                                     " bytes of tensors, which the machine has no memory for"));
  }
  std::vector<data::NamedTensor> fields;
  for (uint32_t id = 0; id < file->tensor_count(); ++id) {
    const FileTensor tensor = file->tensor(id);
    if (!tensor.loadable || tensor.logical != tensor.dtype || BitsOf(tensor.dtype) < 8) {
      return NotForWeft(
          path, "tensor '", tensor.name, "' (", tensor.encoding.empty() ? NameOf(tensor.logical) : tensor.encoding,
          ") cannot be a field; load it with weft_checkpoint_reader_load, and make a data set of the tensor");
    }
    HostTensor values(tensor.dtype, Dims(tensor.dims.begin(), tensor.dims.end()));
    WEFT_RETURN_IF_ERROR(file->ReadTensor(id, values.mutable_bytes()));
    fields.push_back({std::string(tensor.name), std::move(values)});
  }
  return data::FromTensors(std::move(fields));
}

absl::StatusOr<Ref<data::Dataset>> OpenExamples(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, data::ReadWholeFile(PosixFileSystem(), path));
  WEFT_ASSIGN_OR_RETURN(std::vector<data::NamedTensor> fields, data::ReadExamples(path, bytes));
  return data::FromTensors(std::move(fields));
}

absl::StatusOr<Ref<data::Dataset>> OpenOne(const std::string& path, const data::CsvOptions& csv) {
  WEFT_ASSIGN_OR_RETURN(const Kind kind, KindOf(path));
  if (kind == Kind::kExamples) return OpenExamples(path);
  if (kind == Kind::kTar) return OpenTarItems(path);
  if (kind == Kind::kTable) return OpenTable(path, csv);
  if (kind == Kind::kTensors) return OpenTensors(path);
  WEFT_ASSIGN_OR_RETURN(HostTensor values, ReadIdx(PosixFileSystem(), path));
  std::vector<data::NamedTensor> fields;
  fields.push_back({"", std::move(values)});
  return data::FromTensors(std::move(fields));
}

absl::StatusOr<Ref<data::Dataset>> Open(const std::string& path, const data::CsvOptions& csv) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> files, data::FilesOf(PosixFileSystem(), path));
  std::vector<Ref<data::Dataset>> parts;
  for (const std::string& file : files) {
    WEFT_ASSIGN_OR_RETURN(parts.emplace_back(), OpenOne(file, csv));
  }
  return data::Join(std::move(parts), files);
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_dataset_create(const weft_dataset_options* options, weft_dataset** out) noexcept {
  return Guard([&]() -> absl::Status {
    weft_dataset_options read = WEFT_DATASET_OPTIONS_INIT;
    const absl::Status status = ReadOptions(options, sizeof read, "weft_dataset_options", &read);
    auto data = UserData::Share(read.user_data, read.release);
    WEFT_RETURN_IF_ERROR(status);
    WEFT_NOT_NULL(out);
    WEFT_NOT_NULL(options);
    if (read.read == nullptr) return NullArgument("options->read");
    if (read.count < 0) return UserError("count is ", read.count, "; it is how many items there are");
    if (read.most_at_once < 0 || read.most_at_once > kMostThreads) {
      return UserError("most_at_once is ", read.most_at_once, "; it is from 0 (any number) to ", kMostThreads);
    }
    WEFT_ASSIGN_OR_RETURN(std::vector<data::Field> fields, FieldsOf(read.fields, read.field_count));
    return Give(Ref<data::Dataset>(new CallbackDataset(read, std::move(fields), std::move(data))), out);
  });
}

weft_error* weft_dataset_from_memory(int64_t count, const weft_tensor_info* fields, const weft_rows* rows,
                                     size_t field_count, void* user_data, weft_release_fn release,
                                     weft_dataset** out) noexcept {
  return Guard([&]() -> absl::Status {
    auto data = UserData::Share(user_data, release);
    WEFT_NOT_NULL(out);
    if (count < 0) return UserError("count is ", count, "; it is how many items there are");
    WEFT_ASSIGN_OR_RETURN(std::vector<data::Field> made, FieldsOf(fields, field_count));
    WEFT_NOT_NULL(rows);
    std::vector<data::Column> columns;
    for (size_t f = 0; f < field_count; ++f) {
      if (rows[f].data == nullptr && rows[f].size > 0) return NullArgument(absl::StrCat("rows[", f, "].data"));
      columns.push_back({std::move(made[f]), {static_cast<const std::byte*>(rows[f].data), rows[f].size}});
    }
    return Give(data::FromMemory(count, std::move(columns), std::move(data)), out);
  });
}

weft_error* weft_dataset_from_tensors(weft_tensor* const* tensors, size_t count, weft_dataset** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    TensorList list;
    WEFT_RETURN_IF_ERROR(GetTensors(tensors, count, "tensors", &list));
    if (count == 0) return UserError("count is 0; an item has at least one field");
    std::vector<data::NamedTensor> fields;
    for (size_t i = 0; i < count; ++i) {
      HostTensor values(list[i]->dtype(), list[i]->dims());
      WEFT_RETURN_IF_ERROR(list[i]->engine().ToHost(list[i], values.mutable_bytes()));
      fields.push_back({"", std::move(values)});
    }
    return Give(data::FromTensors(std::move(fields)), out);
  });
}

weft_error* weft_dataset_open(const char* path, size_t path_length, const weft_csv_options* csv,
                              weft_dataset** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_NOT_NULL(path);
    WEFT_ASSIGN_OR_RETURN(const std::string file, Path(path, path_length));
    WEFT_ASSIGN_OR_RETURN(const data::CsvOptions options, ReadCsvOptions(csv));
    return Give(Open(file, options), out);
  });
}

weft_error* weft_dataset_zip(weft_dataset* const* datasets, size_t count, weft_dataset** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_RETURN_IF_ERROR(CheckedLength("datasets", count, kMostEntries));
    if (count > 0) WEFT_NOT_NULL(datasets);
    std::vector<Ref<data::Dataset>> parts;
    for (size_t i = 0; i < count; ++i) {
      WEFT_ASSIGN_OR_RETURN(const Pin<data::Dataset> part, Get(datasets[i], absl::StrCat("datasets[", i, "]")));
      parts.push_back(part.Share());
    }
    return Give(data::Zip(std::move(parts)), out);
  });
}

weft_error* weft_dataset_count(weft_dataset* dataset, int64_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(const Pin<data::Dataset> object, Get(dataset, "dataset"));
    *out_count = object->count();
    return absl::OkStatus();
  });
}

weft_error* weft_dataset_field_count(weft_dataset* dataset, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(const Pin<data::Dataset> object, Get(dataset, "dataset"));
    *out_count = object->fields().size();
    return absl::OkStatus();
  });
}

weft_error* weft_dataset_field(weft_dataset* dataset, size_t index, weft_tensor_info* out, const char** out_name,
                               size_t* out_length) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(const Pin<data::Dataset> object, Get(dataset, "dataset"));
    const std::vector<data::Field>& fields = object->fields();
    if (index >= fields.size()) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "field ", index, " of a data set that has ", fields.size());
    }
    *out = InfoOf(fields[index].dtype, fields[index].dims);
    if (out_name != nullptr) *out_name = fields[index].name.c_str();
    if (out_length != nullptr) *out_length = fields[index].name.size();
    return absl::OkStatus();
  });
}

void weft_dataset_retain(weft_dataset* dataset) noexcept { RetainHandle(dataset, HandleType::kDataset); }
void weft_dataset_release(weft_dataset* dataset) noexcept { ReleaseHandle(dataset, HandleType::kDataset); }

}  // extern "C"
