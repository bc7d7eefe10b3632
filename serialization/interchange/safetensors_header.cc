// See safetensors_header.h.
#include "serialization/interchange/safetensors_header.h"

#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "serialization/framing.h"
#include "serialization/interchange/json.h"
#include "serialization/interchange/tensor_file.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr uint64_t kLengthBytes = 8;

constexpr SafetensorsType kTypes[] = {
    {"F64", DType::kF64, 64},
    {"F32", DType::kF32, 32},
    {"F16", DType::kF16, 16},
    {"BF16", DType::kBF16, 16},
    {"I64", DType::kI64, 64},
    {"I32", DType::kI32, 32},
    {"I16", DType::kI16, 16},
    {"I8", DType::kI8, 8},
    {"U64", DType::kU64, 64},
    {"U32", DType::kU32, 32},
    {"U16", DType::kU16, 16},
    {"U8", DType::kU8, 8},
    {"BOOL", DType::kBool, 8},
    {"C64", DType::kC64, 64},
    {"F8_E4M3", DType::kF8E4M3FN, 8},
    {"F8_E5M2", DType::kF8E5M2, 8},
    {"F8_E8M0", DType::kF8E8M0FNU, 8},
    {"F8_E4M3FNUZ", DType::kF8E4M3FNUZ, 8},
    {"F8_E5M2FNUZ", DType::kF8E5M2FNUZ, 8},
    {"F6_E2M3", DType::kInvalid, 6},
    {"F6_E3M2", DType::kInvalid, 6},
    {"F4", DType::kInvalid, 4},
};

// Bytes of a tensor, nullopt where they are no whole number or beyond 64 bits.
std::optional<uint64_t> BytesOf(const SafetensorsType& type, std::span<const int64_t> dims) {
  const std::optional<int64_t> count = CheckedCount(dims);
  uint64_t bits = 0;
  if (!count || __builtin_mul_overflow(static_cast<uint64_t>(*count), static_cast<uint64_t>(type.bits), &bits)) {
    return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

// Builds the header from the JSON's events. Where it is: outside, among the tensors, in the metadata, in one tensor, in one
// of its lists, or in a field that the format does not have, which is passed over.
class Builder final : public JsonEvents {
 public:
  Builder(const std::string& file, SafetensorsHeader* header) : file_(file), header_(header) {}

  absl::Status BeginObject() override {
    switch (place_) {
      case Place::kOutside: return Go(Place::kTensors);
      case Place::kTensors:
        if (key_ == "__metadata__") return Go(Place::kMetadata);
        header_->tensors.push_back({.name = std::move(key_)});
        seen_ = 0;
        return Go(Place::kTensor);
      case Place::kTensor: return Pass();
      case Place::kPassed: return ++passed_, absl::OkStatus();
      default: return Wrong("an object");
    }
  }
  absl::Status EndObject() override {
    switch (place_) {
      case Place::kTensors: return Go(Place::kOutside);
      case Place::kMetadata: return Go(Place::kTensors);
      case Place::kTensor: place_ = Place::kTensors; return Whole();
      default: return Passed();
    }
  }
  absl::Status BeginArray() override {
    if (place_ == Place::kPassed) return ++passed_, absl::OkStatus();
    if (place_ != Place::kTensor) return Wrong("an array");
    if (key_ == "shape") return seen_ |= kShape, Go(Place::kShape);
    if (key_ == "data_offsets") return seen_ |= kOffsets, offsets_.clear(), Go(Place::kOffsets);
    return Pass();
  }
  absl::Status EndArray() override {
    if (place_ == Place::kShape || place_ == Place::kOffsets) return Go(Place::kTensor);
    return Passed();
  }
  absl::Status Key(std::string key) override {
    key_ = std::move(key);
    if (place_ == Place::kPassed) return absl::OkStatus();
    if (place_ == Place::kTensor) {
      const int field = key_ == "dtype" ? kDType : key_ == "shape" ? kShape : key_ == "data_offsets" ? kOffsets : 0;
      if (field & seen_) return Bad("tensor '", Shown(header_->tensors.back().name), "' has ", Shown(key_), " twice");
      return absl::OkStatus();
    }
    auto& names = place_ == Place::kMetadata ? words_ : names_;
    if (names.insert(key_).second) return absl::OkStatus();
    return Bad("'", Shown(key_), "' stands in the header twice");
  }
  absl::Status String(std::string value) override {
    if (place_ == Place::kPassed) return absl::OkStatus();
    if (place_ == Place::kMetadata) return header_->metadata.emplace_back(key_, std::move(value)), absl::OkStatus();
    if (place_ != Place::kTensor || key_ == "shape" || key_ == "data_offsets") return Wrong("a text");
    if (key_ != "dtype") return absl::OkStatus();
    seen_ |= kDType;
    header_->tensors.back().type = FindSafetensorsType(value);
    if (header_->tensors.back().type != nullptr) return absl::OkStatus();
    return Bad("tensor '", Shown(header_->tensors.back().name), "' has the type '", Shown(value),
               "', which the format does not have");
  }
  absl::Status Unsigned(uint64_t value) override {
    if (place_ == Place::kPassed) return absl::OkStatus();
    if (place_ == Place::kShape) {
      Dims& dims = header_->tensors.back().dims;
      if (dims.size() == kMaxRank || value > static_cast<uint64_t>(INT64_MAX)) {
        return Bad("tensor '", Shown(header_->tensors.back().name), "' has more than ", kMaxRank,
                   " dimensions, or one beyond 2^63");
      }
      return dims.push_back(static_cast<int64_t>(value)), absl::OkStatus();
    }
    if (place_ == Place::kOffsets && offsets_.size() < 3) return offsets_.push_back(value), absl::OkStatus();
    if (place_ == Place::kTensor && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets")
      return absl::OkStatus();
    return Wrong("a number");
  }
  absl::Status Other(std::string_view what) override {
    const bool field = key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
    if (place_ == Place::kPassed || (place_ == Place::kTensor && !field)) return absl::OkStatus();
    return Wrong(what);
  }

 private:
  enum class Place { kOutside, kTensors, kMetadata, kTensor, kShape, kOffsets, kPassed };
  static constexpr int kDType = 1, kShape = 2, kOffsets = 4;

  absl::Status Go(Place place) { return place_ = place, absl::OkStatus(); }
  absl::Status Pass() { return passed_ = 1, Go(Place::kPassed); }
  absl::Status Passed() { return --passed_ == 0 ? Go(Place::kTensor) : absl::OkStatus(); }
  template <typename... Text>
  absl::Status Bad(const Text&... text) const {
    return Damaged(file_, kLengthBytes, "the header: ", text...);
  }
  absl::Status Wrong(std::string_view what) const {
    switch (place_) {
      case Place::kOutside: return Bad("it is ", what, ", not an object of tensors");
      case Place::kMetadata: return Bad("metadata '", Shown(key_), "' is ", what, "; metadata is text");
      case Place::kTensors:
        return Bad("'", Shown(key_), "' is ", what, ", not an object of dtype, shape and data_offsets");
      default:
        return Bad("tensor '", Shown(header_->tensors.back().name), "': '", key_, "' holds ", what,
                   "; dtype is a text, shape a list of whole numbers, data_offsets two of them");
    }
  }
  absl::Status Whole() {
    SafetensorsHeader::Tensor& t = header_->tensors.back();
    if (seen_ != (kDType | kShape | kOffsets) || offsets_.size() != 2) {
      return Bad("tensor '", Shown(t.name), "' has no dtype, no shape, or no data_offsets of two numbers");
    }
    t.begin = offsets_[0];
    t.end = offsets_[1];
    const std::optional<uint64_t> bytes = BytesOf(*t.type, t.dims);
    if (!bytes || t.end < t.begin || t.end - t.begin != *bytes) {
      return Bad(
          "tensor '", Shown(t.name), "' of ", t.type->name, DimsToString(t.dims), " lies at ", t.begin, " to ", t.end,
          bytes ? absl::StrCat("; it has ", *bytes, " bytes") : "; its bytes are beyond 64 bits or no whole number");
    }
    return absl::OkStatus();
  }

  const std::string& file_;
  SafetensorsHeader* const header_;
  Place place_ = Place::kOutside;
  int seen_ = 0;         // of the tensor's fields
  uint64_t passed_ = 0;  // objects and arrays that are open in what is passed over
  std::string key_;
  std::vector<uint64_t> offsets_;
  absl::flat_hash_set<std::string> names_, words_;
};

// All tensors together are the data: from its first byte to its last, without holes.
absl::Status CheckCover(const SafetensorsHeader& header, uint64_t data_bytes, uint64_t data_begin,
                        const std::string& file) {
  std::vector<uint32_t> order(header.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(header.tensors[a].begin, header.tensors[a].end) <
           std::pair(header.tensors[b].begin, header.tensors[b].end);
  });
  uint64_t expected = 0;
  for (const uint32_t i : order) {
    const SafetensorsHeader::Tensor& t = header.tensors[i];
    if (t.begin != expected) {
      return Damaged(file, data_begin + expected, "tensor '", Shown(t.name), "' begins at ", t.begin, " of the data, ",
                     t.begin < expected ? "inside" : "not at the end of", " the one before, which ends at ", expected);
    }
    if (t.end > data_bytes) {
      return Damaged(file, data_begin + t.begin, "tensor '", Shown(t.name), "' ends at ", t.end, " of ", data_bytes,
                     " bytes of data");
    }
    expected = t.end;
  }
  if (expected == data_bytes) return absl::OkStatus();
  return Damaged(file, data_begin + expected, "behind the last tensor are ", data_bytes - expected, " bytes more");
}

}  // namespace

const SafetensorsType* FindSafetensorsType(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &SafetensorsType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

const SafetensorsType* SafetensorsTypeOf(DType dtype) {
  const auto found = std::ranges::find(kTypes, dtype, &SafetensorsType::dtype);
  return found == std::end(kTypes) || dtype == DType::kInvalid ? nullptr : found;
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const File& file, uint64_t file_bytes) {
  const std::string& path = file.path();
  uint8_t raw[kLengthBytes];
  if (file_bytes < kLengthBytes + 2) return Damaged(path, file_bytes, "the file ends here, before a header");
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(raw))));
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | raw[i];
  if (length > kMaxSafetensorsHeader || length > file_bytes - kLengthBytes) {
    return Damaged(path, 0, "the header is said to have ", length, " bytes; the file has ", file_bytes,
                   ", and a header at most ", kMaxSafetensorsHeader);
  }
  std::string text(length, '\0');
  WEFT_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(text))));
  if (!text.starts_with('{')) return Damaged(path, kLengthBytes, "the header does not begin with '{'");
  SafetensorsHeader header;
  Builder builder(path, &header);
  constexpr int kDepth = 8;  // three are the format's own, the rest is for fields that it does not have
  WEFT_RETURN_IF_ERROR(ReadJson(text, kDepth, builder, path, kLengthBytes));
  const uint64_t data_begin = kLengthBytes + length;
  WEFT_RETURN_IF_ERROR(CheckCover(header, file_bytes - data_begin, data_begin, path));
  for (SafetensorsHeader::Tensor& t : header.tensors) {
    t.begin += data_begin;
    t.end += data_begin;
  }
  return header;
}

}  // namespace weft
