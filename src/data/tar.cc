// See tar.h. A member is a header of 512 bytes and its data, filled up to whole blocks; two empty blocks end the archive.
#include "src/data/tar.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "src/runtime/status.h"

namespace weft::data {
namespace {

// Places in a header.
struct Place {
  size_t at, size;
};
constexpr Place kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 5}, kPrefix{345, 155};
constexpr size_t kType = 156;

std::string_view TextAt(std::string_view block, Place place) {
  const std::string_view field = block.substr(place.at, place.size);
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

// Octal digits between blanks; or, with the first bit set, a binary number as GNU writes large ones.
std::optional<uint64_t> NumberAt(std::string_view block, Place place) {
  std::string_view field = block.substr(place.at, place.size);
  if ((static_cast<uint8_t>(field[0]) & 0x80) != 0) {
    uint64_t value = static_cast<uint8_t>(field[0]) & 0x7F;
    for (const char c : field.substr(1)) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | static_cast<uint8_t>(c);
    }
    return value;
  }
  field = absl::StripAsciiWhitespace(TextAt(block, place));
  uint64_t value = 0;
  const std::from_chars_result read = std::from_chars(field.data(), field.data() + field.size(), value, 8);
  if (field.empty()) return 0;
  if (read.ec != std::errc() || read.ptr != field.data() + field.size()) return std::nullopt;
  return value;
}

bool HasChecksum(std::string_view block) {
  uint64_t sum = 0;
  int64_t of_signs = 0;  // some old programs add signed bytes
  for (size_t i = 0; i < kTarBlock; ++i) {
    const bool blank = i >= kChecksum.at && i < kChecksum.at + kChecksum.size;
    const char c = blank ? ' ' : block[i];
    sum += static_cast<uint8_t>(c);
    of_signs += static_cast<signed char>(c);
  }
  const std::optional<uint64_t> said = NumberAt(block, kChecksum);
  return said.has_value() && (*said == sum || (of_signs >= 0 && *said == static_cast<uint64_t>(of_signs)));
}

// The headers before a member's own say this of it.
struct Extended {
  std::optional<std::string> path;
  std::optional<uint64_t> size;
};

// Records "LENGTH KEY=VALUE\n" of a pax header. False where it is damaged.
bool ReadPax(std::string_view records, Extended* extended) {
  while (!records.empty() && records.front() != '\0') {
    size_t length = 0;
    const std::from_chars_result read = std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<size_t>(read.ptr - records.data());
    if (read.ec != std::errc() || length > records.size() || length < digits + 3 || records[digits] != ' ' ||
        records[length - 1] != '\n') {
      return false;
    }
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") extended->path = std::string(value);
    if (key == "size") {
      uint64_t size = 0;
      const std::from_chars_result number = std::from_chars(value.data(), value.data() + value.size(), size);
      if (number.ec != std::errc() || number.ptr != value.data() + value.size()) return false;
      extended->size = size;
    }
    records.remove_prefix(length);
  }
  return true;
}

std::string PathIn(std::string_view block) {
  const std::string_view prefix =
      TextAt(block, kMagic) == "ustar" && block[kMagic.at + 5] == '\0' ? TextAt(block, kPrefix) : "";
  return prefix.empty() ? std::string(TextAt(block, kName)) : absl::StrCat(prefix, "/", TextAt(block, kName));
}

class Grouping {
 public:
  explicit Grouping(const std::string& path) : path_(path) {}

  absl::Status Add(const std::string& name, std::string_view bytes) {
    const size_t slash = name.rfind('/');
    const size_t dot = name.find('.', slash == std::string::npos ? 0 : slash + 1);
    if (dot == std::string::npos) {
      return UserError("'", path_, "': the member '", name,
                       "' has no extension, which says what part of an item it is");
    }
    std::string key = name.substr(0, dot), extension = absl::AsciiStrToLower(name.substr(dot + 1));
    if (items_.empty() || items_.back().key != key) items_.push_back({std::move(key), {}});
    std::vector<TarPart>& parts = items_.back().parts;
    if (std::ranges::any_of(parts, [&](const TarPart& part) { return part.extension == extension; })) {
      return UserError("'", path_, "': the member '", name, "' comes twice");
    }
    parts.push_back({std::move(extension), bytes});
    return absl::OkStatus();
  }
  std::vector<TarItem> Take() { return std::move(items_); }

 private:
  const std::string& path_;
  std::vector<TarItem> items_;
};

}  // namespace

bool IsTar(std::string_view first) {
  return first.size() >= kTarBlock && first[0] != '\0' && HasChecksum(first.substr(0, kTarBlock));
}

absl::StatusOr<std::vector<TarItem>> ReadTar(const std::string& path, std::string_view bytes) {
  const auto damaged = [&](size_t at, std::string_view what) {
    return absl::DataLossError(absl::StrCat("'", path, "': ", what, " at byte ", at));
  };
  Grouping grouping(path);
  Extended extended;
  size_t at = 0;
  while (at < bytes.size()) {
    const std::string_view rest = bytes.substr(at);
    if (rest.size() < kTarBlock) return damaged(at, "a header is cut off");
    const std::string_view block = rest.substr(0, kTarBlock);
    if (std::ranges::all_of(block, [](char c) { return c == '\0'; })) break;
    if (!HasChecksum(block)) return damaged(at, "the checksum of a header does not match");
    const char type = block[kType];
    const bool file = type == '0' || type == '\0' || type == '7';
    const std::optional<uint64_t> said = NumberAt(block, kSize);
    const std::optional<uint64_t> size = file && extended.size.has_value() ? extended.size : said;
    if (!size.has_value()) return damaged(at, "a header says no size");
    if (*size > rest.size() - kTarBlock) return damaged(at, "a member is cut off");
    const std::string_view data = rest.substr(kTarBlock, static_cast<size_t>(*size));
    if (type == 'x') {
      if (!ReadPax(data, &extended)) return damaged(at, "an extended header cannot be read");
    } else if (type == 'L') {
      extended.path = std::string(data.substr(0, std::min(data.find('\0'), data.size())));
    } else {
      const std::string name = extended.path.value_or(PathIn(block));
      if (file && !name.ends_with('/')) WEFT_RETURN_IF_ERROR(grouping.Add(name, data));
      extended = {};
    }
    at += kTarBlock + std::min((data.size() + kTarBlock - 1) / kTarBlock * kTarBlock, rest.size() - kTarBlock);
  }
  return grouping.Take();
}

}  // namespace weft::data
