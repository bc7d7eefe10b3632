// Data sets in memory, and side by side.
#include "src/data/dataset.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/runtime/status.h"

namespace weft::data {
namespace {

class MemoryDataset final : public Dataset {
 public:
  MemoryDataset(int64_t count, std::vector<Field> fields, std::vector<const std::byte*> rows,
                std::shared_ptr<void> keep)
      : Dataset(count, std::move(fields)), rows_(std::move(rows)), keep_(std::move(keep)) {}

  absl::Status Read(std::span<const int64_t> items, std::span<std::byte* const> into,
                    std::span<uint64_t> written) override {
    for (size_t f = 0; f < rows_.size(); ++f) {
      const auto bytes = static_cast<size_t>(fields()[f].row_bytes);
      std::byte* to = into[f];
      if (bytes != 0) {
        for (const int64_t item : items) {
          std::memcpy(to, rows_[f] + static_cast<size_t>(item) * bytes, bytes);
          to += bytes;
        }
      }
      written[f] = items.size() * bytes;
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<const std::byte*> rows_;
  const std::shared_ptr<void> keep_;
};

class ZippedDataset final : public Dataset {
 public:
  ZippedDataset(std::vector<Field> fields, int64_t most_at_once, std::vector<Ref<Dataset>> parts)
      : Dataset(parts.front()->count(), std::move(fields), most_at_once), parts_(std::move(parts)) {}

  absl::Status Read(std::span<const int64_t> items, std::span<std::byte* const> into,
                    std::span<uint64_t> written) override {
    for (const Ref<Dataset>& part : parts_) {
      const size_t count = part->fields().size();
      WEFT_RETURN_IF_ERROR(part->Read(items, into.first(count), written.first(count)));
      into = into.subspan(count);
      written = written.subspan(count);
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<Ref<Dataset>> parts_;
};

class JoinedDataset final : public Dataset {
 public:
  JoinedDataset(int64_t count, int64_t most_at_once, std::vector<int64_t> ends, std::vector<Ref<Dataset>> parts)
      : Dataset(count, parts.front()->fields(), most_at_once), ends_(std::move(ends)), parts_(std::move(parts)) {}

  absl::Status Read(std::span<const int64_t> items, std::span<std::byte* const> into,
                    std::span<uint64_t> written) override {
    std::ranges::fill(written, 0);
    std::vector<int64_t> own;
    std::vector<std::byte*> to(into.begin(), into.end());
    std::vector<uint64_t> bytes(written.size());
    for (size_t i = 0; i < items.size();) {
      const size_t part = PartOf(items[i]);
      own.clear();
      for (; i < items.size() && PartOf(items[i]) == part; ++i) own.push_back(items[i] - Begin(part));
      WEFT_RETURN_IF_ERROR(parts_[part]->Read(own, to, bytes));
      for (size_t f = 0; f < to.size(); ++f) {
        to[f] += own.size() * static_cast<size_t>(fields()[f].row_bytes);
        written[f] += bytes[f];
      }
    }
    return absl::OkStatus();
  }

 private:
  int64_t Begin(size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }
  size_t PartOf(int64_t item) const {
    return static_cast<size_t>(std::ranges::upper_bound(ends_, item) - ends_.begin());
  }

  const std::vector<int64_t> ends_;  // of the parts, in items
  const std::vector<Ref<Dataset>> parts_;
};

}  // namespace

absl::StatusOr<Field> MakeField(std::string name, DType dtype, std::span<const int64_t> dims) {
  if (dims.size() >= kMaxRank) {
    return UserError("field '", name, "' has rank ", dims.size(), "; at most ", kMaxRank - 1, " are allowed");
  }
  if (BitsOf(dtype) < 8)
    return UserError("field '", name, "' is of ", NameOf(dtype), "; elements of fields have whole bytes");
  const std::optional<int64_t> count = CheckedCount(dims);
  if (!count || *count > kMostElements) {
    return UserError("field '", name, "' has the shape ", DimsToString(dims), ", whose bytes cannot be counted");
  }
  return Field{std::move(name), dtype, Dims(dims.begin(), dims.end()), *count * BytesOf(dtype)};
}

int64_t Dataset::bytes_of_item() const {
  int64_t bytes = 0;
  for (const Field& field : fields_) bytes += field.row_bytes;
  return bytes;
}

absl::StatusOr<Ref<Dataset>> FromMemory(int64_t count, std::vector<Column> columns, std::shared_ptr<void> keep) {
  if (count < 0) return UserError("count is ", count);
  if (columns.empty()) return UserError("a data set needs a field");
  std::vector<Field> fields;
  std::vector<const std::byte*> rows;
  for (size_t i = 0; i < columns.size(); ++i) {
    const Field& field = columns[i].field;
    int64_t wanted = 0;
    const bool countable = !__builtin_mul_overflow(count, field.row_bytes, &wanted);
    if (!countable || static_cast<uint64_t>(wanted) != columns[i].bytes.size()) {
      return UserError("field ", i, " has ", columns[i].bytes.size(), " bytes; ", count, " items of ",
                       NameOf(field.dtype), DimsToString(field.dims), " take ",
                       countable ? absl::StrCat(wanted) : "more than can be counted");
    }
    rows.push_back(columns[i].bytes.data());
    fields.push_back(std::move(columns[i].field));
  }
  return Ref<Dataset>(new MemoryDataset(count, std::move(fields), std::move(rows), std::move(keep)));
}

absl::StatusOr<Ref<Dataset>> FromTensors(std::vector<NamedTensor> tensors) {
  auto kept = std::make_shared<std::vector<NamedTensor>>(std::move(tensors));
  std::vector<Column> columns;
  int64_t count = 0;
  for (NamedTensor& one : *kept) {
    const Dims& dims = one.tensor.dims();
    if (dims.empty()) {
      return UserError("field ", columns.size(), " is a scalar; items are the parts along the first dimension");
    }
    if (columns.empty()) count = dims[0];
    if (dims[0] != count) {
      return UserError("field ", columns.size(), " has ", dims[0], " items, field 0 has ", count);
    }
    WEFT_ASSIGN_OR_RETURN(Field field, MakeField(one.name, one.tensor.dtype(), std::span(dims).subspan(1)));
    columns.push_back({std::move(field), one.tensor.bytes()});
  }
  return FromMemory(count, std::move(columns), std::move(kept));
}

absl::StatusOr<Ref<Dataset>> Zip(std::vector<Ref<Dataset>> datasets) {
  if (datasets.empty()) return UserError("there are no data sets");
  std::vector<Field> fields;
  int64_t most = 0;
  for (size_t i = 0; i < datasets.size(); ++i) {
    const Dataset& part = *datasets[i];
    if (part.count() != datasets[0]->count()) {
      return UserError("data set ", i, " has ", part.count(), " items, data set 0 has ", datasets[0]->count());
    }
    fields.insert(fields.end(), part.fields().begin(), part.fields().end());
    if (part.most_at_once() != 0) most = most == 0 ? part.most_at_once() : std::min(most, part.most_at_once());
  }
  return Ref<Dataset>(new ZippedDataset(std::move(fields), most, std::move(datasets)));
}

absl::StatusOr<Ref<Dataset>> Join(std::vector<Ref<Dataset>> datasets, std::span<const std::string> names) {
  if (datasets.empty()) return UserError("there are no data sets");
  if (datasets.size() == 1) return std::move(datasets[0]);
  int64_t count = 0, most = 0;
  std::vector<int64_t> ends;
  for (size_t i = 0; i < datasets.size(); ++i) {
    const Dataset& part = *datasets[i];
    const std::vector<Field>& fields = part.fields();
    const std::vector<Field>& first = datasets[0]->fields();
    if (fields.size() != first.size()) {
      return UserError("'", names[i], "' has ", fields.size(), " fields, '", names[0], "' has ", first.size());
    }
    for (size_t f = 0; f < fields.size(); ++f) {
      const Field &a = fields[f], &b = first[f];
      if (a.name == b.name && a.dtype == b.dtype && a.dims == b.dims) continue;
      return UserError("field ", f, " is '", a.name, "', ", NameOf(a.dtype), DimsToString(a.dims), ", in '", names[i],
                       "' and '", b.name, "', ", NameOf(b.dtype), DimsToString(b.dims), ", in '", names[0], "'");
    }
    if (__builtin_add_overflow(count, part.count(), &count)) return UserError("more items than can be counted");
    ends.push_back(count);
    if (part.most_at_once() != 0) most = most == 0 ? part.most_at_once() : std::min(most, part.most_at_once());
  }
  return Ref<Dataset>(new JoinedDataset(count, most, std::move(ends), std::move(datasets)));
}

std::string ItemsText(std::span<const int64_t> items) {
  constexpr size_t kShown = 4;
  if (items.empty()) return "a batch";
  std::string text = items.size() == 1 ? "item " : "items ";
  for (size_t i = 0; i < std::min(items.size(), kShown); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", items[i]);
  if (items.size() > kShown) absl::StrAppend(&text, " and ", items.size() - kShown, " more");
  return text;
}

}  // namespace weft::data
