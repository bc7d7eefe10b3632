// See tfrecord.h. A record is its length, a checksum of the length, its bytes, a checksum of these; numbers are little-endian.
#include "src/data/tfrecord.h"

#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/crc/crc32c.h"
#include "src/runtime/status.h"

namespace weft::data {
namespace {

// The checksum of a record is rotated and shifted, so that a record of a record's checksum is none.
uint32_t Masked(std::string_view bytes) {
  const auto crc = static_cast<uint32_t>(absl::ComputeCrc32c(bytes));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}
template <typename T>
T Little(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// Fields of a message of Protocol Buffers, one after the other. Nothing is read past the end.
class Message {
 public:
  explicit Message(std::string_view bytes) : bytes_(bytes) {}
  enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  bool done() const { return bytes_.empty(); }
  // The next field's number and kind, and its bytes (of a length-delimited one without the length). False: the message is damaged.
  bool Next(uint32_t* number, uint32_t* wire, std::string_view* value) {
    uint64_t tag = 0, length = 0;
    if (!Varint(&tag) || tag >> 32 != 0) return false;
    *number = static_cast<uint32_t>(tag >> 3);
    *wire = static_cast<uint32_t>(tag & 7);
    const std::string_view before = bytes_;
    switch (*wire) {
      case kVarint:
        if (!Varint(&length)) return false;
        *value = before.substr(0, before.size() - bytes_.size());
        return *number != 0;
      case kFixed64: length = 8; break;
      case kFixed32: length = 4; break;
      case kBytes:
        if (!Varint(&length)) return false;
        break;
      default: return false;
    }
    if (*number == 0 || length > bytes_.size()) return false;
    *value = bytes_.substr(0, static_cast<size_t>(length));
    bytes_.remove_prefix(static_cast<size_t>(length));
    return true;
  }
  bool Varint(uint64_t* value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

 private:
  std::string_view bytes_;
};

// One feature of one record: its values, dense.
struct Feature {
  DType dtype = DType::kInvalid;  // none: it has no list
  int64_t count = 0;
  int64_t length = 0;  // of each text
  bool ragged = false;
  std::string values;
};

// Gives each value of a list, its field 1, to `read`; false where one is refused or the list is cut short.
template <typename Read>
bool EachValue(std::string_view list, Read read) {
  Message message(list);
  uint32_t number = 0, wire = 0;
  std::string_view value;
  while (!message.done()) {
    if (!message.Next(&number, &wire, &value) || (number == 1 && !read(wire, value))) return false;
  }
  return true;
}

bool ReadFloats(std::string_view list, Feature* feature) {
  const bool whole = EachValue(list, [&](uint32_t wire, std::string_view value) {
    if (wire != Message::kFixed32 && (wire != Message::kBytes || value.size() % 4 != 0)) return false;
    feature->values.append(value);
    return true;
  });
  feature->count = static_cast<int64_t>(feature->values.size() / 4);
  return whole;
}

bool ReadIntegers(std::string_view list, Feature* feature) {
  return EachValue(list, [&](uint32_t wire, std::string_view value) {
    if (wire != Message::kVarint && wire != Message::kBytes) return false;
    Message packed(value);
    while (!packed.done()) {
      uint64_t integer = 0;
      if (!packed.Varint(&integer)) return false;
      feature->values.append(reinterpret_cast<const char*>(&integer), sizeof(integer));
      ++feature->count;
    }
    return true;
  });
}

bool ReadTexts(std::string_view list, Feature* feature) {
  return EachValue(list, [&](uint32_t wire, std::string_view value) {
    if (wire != Message::kBytes) return false;
    const auto length = static_cast<int64_t>(value.size());
    if (feature->count++ == 0) feature->length = length;
    feature->ragged = feature->ragged || feature->length != length;
    feature->values.append(value);
    return true;
  });
}

bool ReadFeature(std::string_view bytes, Feature* feature) {
  Message message(bytes);
  uint32_t number = 0, wire = 0;
  std::string_view value;
  while (!message.done()) {
    if (!message.Next(&number, &wire, &value)) return false;
    if (wire != Message::kBytes || number > 3) continue;
    *feature = {};  // the last list counts
    feature->dtype = number == 1 ? DType::kU8 : number == 2 ? DType::kF32 : DType::kI64;
    const bool read = number == 1   ? ReadTexts(value, feature)
                      : number == 2 ? ReadFloats(value, feature)
                                    : ReadIntegers(value, feature);
    if (!read) return false;
  }
  return true;
}

// Calls use(key, feature bytes) for each feature of an Example; of two with one key the last counts.
template <typename Use>
bool ForEachFeature(std::string_view example, Use use) {
  Message message(example);
  uint32_t number = 0, wire = 0;
  std::string_view features, entry;
  while (!message.done()) {
    if (!message.Next(&number, &wire, &features)) return false;
    if (number != 1 || wire != Message::kBytes) continue;
    Message map(features);
    while (!map.done()) {
      if (!map.Next(&number, &wire, &entry)) return false;
      if (number != 1 || wire != Message::kBytes) continue;
      Message pair(entry);
      std::string_view key, value, part;
      while (!pair.done()) {
        if (!pair.Next(&number, &wire, &part)) return false;
        if (wire != Message::kBytes) continue;
        if (number == 1) key = part;
        if (number == 2) value = part;
      }
      use(key, value);
    }
  }
  return true;
}

struct Column {
  DType dtype = DType::kInvalid;
  int64_t count = 0, length = 0;
  std::string bytes;
};
std::string_view ListName(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float_list";
    case DType::kI64: return "int64_list";
    case DType::kU8: return "bytes_list";
    default: return "no list";
  }
}

// The features that all records have in common, and the values so far.
class Columns {
 public:
  explicit Columns(const std::string& path) : path_(path) {}

  absl::Status Add(std::string_view example) {
    std::map<std::string, Feature, std::less<>> features;
    bool good = true;
    good = ForEachFeature(example,
                          [&](std::string_view key, std::string_view bytes) {
                            good = good && ReadFeature(bytes, &features[std::string(key)]);
                          }) &&
           good;
    if (!good) {
      return UserError("'", path_, "', record ", records_,
                       " is no tf.train.Example; a data set of other records comes from weft_dataset_create");
    }
    if (records_ == 0) {
      if (features.empty()) return UserError("'", path_, "', record 0 has no features");
      for (const auto& [key, feature] : features) columns_[key] = {feature.dtype, feature.count, feature.length, {}};
    }
    for (auto& [key, column] : columns_) {
      const auto found = features.find(key);
      if (found == features.end()) return UserError(Where(key), "it is not there; record 0 has it");
      WEFT_RETURN_IF_ERROR(Append(key, found->second, &column));
    }
    for (const auto& [key, feature] : features) {
      if (!columns_.contains(key)) return UserError(Where(key), "record 0 does not have it");
    }
    ++records_;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<NamedTensor>> Take() {
    if (records_ == 0) return UserError("'", path_, "' has no records");
    std::vector<NamedTensor> tensors;
    for (auto& [key, column] : columns_) {
      Dims dims = {records_};
      if (column.count != 1) dims.push_back(column.count);
      if (column.dtype == DType::kU8) dims.push_back(column.length);
      tensors.push_back({key, HostTensor(column.dtype, std::move(dims), std::as_bytes(std::span(column.bytes)))});
      column.bytes = {};
    }
    return tensors;
  }

 private:
  std::string Where(std::string_view key) const {
    return absl::StrCat("'", path_, "', record ", records_, ", feature '", key, "': ");
  }
  absl::Status Append(std::string_view key, const Feature& feature, Column* column) const {
    if (feature.dtype == DType::kInvalid) return UserError(Where(key), "it has no values");
    if (feature.dtype != column->dtype) {
      return UserError(Where(key), ListName(feature.dtype), "; record 0 has ", ListName(column->dtype));
    }
    if (feature.count != column->count) {
      return UserError(Where(key), feature.count, " values; record 0 has ", column->count);
    }
    if (feature.ragged || feature.length != column->length) {
      return UserError(Where(key), "its texts are not all as long as record 0's first, ", column->length,
                       " bytes; decode them in a function of yours (weft_dataset_create)");
    }
    column->bytes.append(feature.values);
    return absl::OkStatus();
  }

  const std::string& path_;
  int64_t records_ = 0;
  std::map<std::string, Column, std::less<>> columns_;
};

}  // namespace

bool IsTfRecord(std::string_view first) {
  return first.size() >= kTfRecordStart && Little<uint32_t>(first.substr(8)) == Masked(first.substr(0, 8));
}

absl::StatusOr<std::vector<NamedTensor>> ReadExamples(const std::string& path, std::string_view bytes) {
  Columns columns(path);
  const auto damaged = [&](size_t at, std::string_view what) {
    return absl::DataLossError(absl::StrCat("'", path, "': ", what, " at byte ", at));
  };
  for (size_t at = 0; at < bytes.size();) {
    const std::string_view rest = bytes.substr(at);
    if (rest.size() < kTfRecordStart) return damaged(at, "a record is cut off");
    if (!IsTfRecord(rest)) return damaged(at, "the checksum of a record's length does not match");
    const auto length = Little<uint64_t>(rest);
    if (length > rest.size() - kTfRecordStart || rest.size() - kTfRecordStart - length < 4) {
      return damaged(at, "a record is cut off");
    }
    const std::string_view record = rest.substr(kTfRecordStart, static_cast<size_t>(length));
    if (Little<uint32_t>(rest.substr(kTfRecordStart + record.size())) != Masked(record)) {
      return damaged(at, "the checksum of a record does not match");
    }
    WEFT_RETURN_IF_ERROR(columns.Add(record));
    at += kTfRecordStart + record.size() + 4;
  }
  return columns.Take();
}

}  // namespace weft::data
