// Messages of Protocol Buffers that plugins give, as far as Weft reads them: numbers, texts, lists of numbers, messages inside.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::pjrt {

// Reads the fields of a message one after the other. Lists of numbers come packed or not.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}
  // Goes to the next field; false at the end, and where the bytes are no message.
  bool Next() {
    if (bytes_.empty()) return false;
    uint64_t tag = 0;
    if (!Varint(&bytes_, &tag)) return Fail();
    number_ = static_cast<int>(tag >> 3 & 0xffff);
    values_.clear();
    content_ = {};
    uint64_t value = 0;
    if ((tag & 7) == 0) {
      if (!Varint(&bytes_, &value)) return Fail();
      values_.push_back(static_cast<int64_t>(value));
      return true;
    }
    if ((tag & 7) != 2 || !Varint(&bytes_, &value) || value > bytes_.size()) return Fail();
    content_ = bytes_.substr(0, value);
    bytes_.remove_prefix(value);
    return true;
  }
  int number() const { return number_; }
  // A field that is a number; 0 of others.
  int64_t value() const { return values_.empty() ? 0 : values_[0]; }
  // A field that is text or a message; empty of others.
  std::string_view content() const { return content_; }
  // Appends the numbers of a field that is a list of them.
  void AppendTo(std::vector<int64_t>* list) {
    list->insert(list->end(), values_.begin(), values_.end());
    uint64_t value = 0;
    for (std::string_view rest = std::exchange(content_, {}); !rest.empty();) {
      if (!Varint(&rest, &value)) {
        Fail();
        return;
      }
      list->push_back(static_cast<int64_t>(value));
    }
  }
  bool ok() const { return ok_; }

 private:
  bool Fail() { return ok_ = false; }
  static bool Varint(std::string_view* bytes, uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes->front());
      bytes->remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  std::string_view bytes_, content_;
  std::vector<int64_t> values_;
  int number_ = 0;
  bool ok_ = true;
};

}  // namespace weft::pjrt
