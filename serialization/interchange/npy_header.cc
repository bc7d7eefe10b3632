// See npy_header.h.
#include "serialization/interchange/npy_header.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "serialization/framing.h"
#include "serialization/interchange/tensor_file.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;

// The first of a dtype is what is written.
constexpr NpyType kTypes[] = {{DType::kBool, "b1"},
                              {DType::kI8, "i1"},
                              {DType::kI16, "i2"},
                              {DType::kI32, "i4"},
                              {DType::kI64, "i8"},
                              {DType::kU8, "u1"},
                              {DType::kU16, "u2"},
                              {DType::kU32, "u4"},
                              {DType::kU64, "u8"},
                              {DType::kF16, "f2"},
                              {DType::kF32, "f4"},
                              {DType::kF64, "f8"},
                              {DType::kC64, "c8"},
                              {DType::kC128, "c16"},
                              {DType::kBF16, "V2"},
                              {DType::kF8E5M2, "V1", true},
                              {DType::kF8E5M2, "f1"},  // of ml_dtypes, which no reader of NumPy's knows
                              {DType::kF8E3M4, "V1", true},
                              {DType::kF8E4M3, "V1", true},
                              {DType::kF8E4M3B11FNUZ, "V1", true},
                              {DType::kF8E4M3FN, "V1", true},
                              {DType::kF8E4M3FNUZ, "V1", true},
                              {DType::kF8E5M2FNUZ, "V1", true},
                              {DType::kF8E8M0FNU, "V1", true},
                              {DType::kI2, "V1", true},
                              {DType::kI4, "V1", true},
                              {DType::kU2, "V1", true},
                              {DType::kU4, "V1", true}};

// Reads the header, which is a Python dictionary on one line.
class Header {
 public:
  explicit Header(std::string_view text) : rest_(text) {}
  bool Take(char c) {
    Spaces();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool Word(std::string_view word) {
    Spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool String(std::string_view* out) {
    Spaces();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    if (quote != '\'' && quote != '"') return false;
    const size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) return false;
    *out = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return true;
  }
  bool Number(int64_t* out) {
    Spaces();
    size_t digits = 0;
    for (*out = 0; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      if (__builtin_mul_overflow(*out, int64_t{10}, out)) return false;
      if (__builtin_add_overflow(*out, int64_t{rest_[digits] - '0'}, out)) return false;
    }
    rest_.remove_prefix(digits);
    Word("L");  // of Python 2
    return digits > 0;
  }
  bool AtEnd() {
    Spaces();
    return rest_.empty();
  }
  bool Next(char c) {
    Spaces();
    return rest_.starts_with(c);
  }

 private:
  void Spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }
  std::string_view rest_;
};

struct Fields {
  std::string_view descr;
  bool structured = false;
  bool fortran_order = false;
  Dims dims;
};

bool ReadShape(Header& header, Dims* dims) {
  if (!header.Take('(')) return false;
  while (!header.Take(')')) {
    int64_t dim = 0;
    if (dims->size() == kMaxRank || !header.Number(&dim)) return false;
    dims->push_back(dim);
    if (!header.Take(',')) return header.Take(')');
  }
  return true;
}

// A header with a structured type is known for what it is by the list that stands there, and read no further.
bool ReadFields(Header header, Fields* fields) {
  bool descr = false, order = false, shape = false;
  if (!header.Take('{')) return false;
  while (!header.Take('}')) {
    std::string_view key;
    if (!header.String(&key) || !header.Take(':')) return false;
    bool& seen = key == "descr" ? descr : key == "fortran_order" ? order : shape;
    if (std::exchange(seen, true)) return false;
    if (key == "descr") {
      if (header.Next('[') || header.Next('(')) return fields->structured = true;
      if (!header.String(&fields->descr)) return false;
    } else if (key == "fortran_order") {
      fields->fortran_order = header.Word("True");
      if (!fields->fortran_order && !header.Word("False")) return false;
    } else if (key != "shape" || !ReadShape(header, &fields->dims)) {
      return false;
    }
    if (!header.Take(',') && !header.Next('}')) return false;
  }
  return descr && order && shape && !fields->descr.empty() && header.AtEnd();
}

// Why elements of a kind are not read.
std::string_view WhatItHolds(char kind) {
  switch (kind) {
    case 'O': return "Python objects, which only running pickled code would give";
    case 'U':
    case 'S':
    case 'a':
    case 'T': return "text";
    case 'M':
    case 'm': return "dates or times";
    default: return "elements that Weft has no type for";
  }
}

}  // namespace

const NpyType* NpyTypeOf(DType dtype) {
  const auto found = std::ranges::find(kTypes, dtype, &NpyType::dtype);
  return found == std::end(kTypes) ? nullptr : found;
}

bool IsNpy(std::span<const std::byte> first) {
  return first.size() >= kMagic.size() && std::memcmp(first.data(), kMagic.data(), kMagic.size()) == 0;
}

absl::StatusOr<uint64_t> NpyHeaderBytes(std::span<const std::byte> first, uint64_t size, const std::string& what) {
  const auto byte = [&](size_t i) { return static_cast<uint64_t>(first[i]); };
  if (!IsNpy(first) || first.size() < 10) return Damaged(what, 0, "no .npy header stands here");
  if (byte(6) < 1 || byte(6) > 3) {
    return NotForWeft(what, "an .npy file of version ", byte(6), ".", byte(7), "; Weft reads versions 1 to 3");
  }
  const size_t start = byte(6) == 1 ? 10 : 12;
  if (first.size() < start) return Damaged(what, first.size(), "the .npy header ends here");
  uint64_t length = byte(8) | byte(9) << 8;
  if (start == 12) length |= byte(10) << 16 | byte(11) << 24;
  if (length > size || start > size - length || length > kMaxNpyHeader) {
    return Damaged(what, 8, "the .npy header is said to have ", length, " bytes; there are ", size,
                   ", and a header has at most ", kMaxNpyHeader);
  }
  return start + length;
}

absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view bytes, uint64_t size, const std::string& what) {
  const size_t start = bytes[6] == 1 ? 10 : 12;
  Fields fields;
  if (!ReadFields(Header(bytes.substr(start)), &fields)) {
    return Damaged(what, start, "the .npy header is no dictionary of descr, fortran_order and shape (of at most ",
                   kMaxRank, " dimensions)");
  }
  if (fields.structured) return NotForWeft(what, "it holds structures; save each field as an array of its own");
  NpyHeader header;
  header.descr = Shown(fields.descr);
  const char order = fields.descr[0];
  const std::string_view descr = fields.descr.substr(1);
  const auto* type = std::ranges::find(kTypes, descr, &NpyType::descr);
  if (type == std::end(kTypes) || std::string_view("<>|=").find(order) == std::string_view::npos) {
    return NotForWeft(what, "it holds ", WhatItHolds(descr.empty() ? '?' : descr[0]), ": '", header.descr, "'");
  }
  header.dtype = type->bare ? DType::kU8 : type->dtype;
  header.bare = type->bare;
  header.swapped = order == '>' && BytesOf(header.dtype) > 1;
  header.fortran_order = fields.fortran_order;
  header.dims = fields.dims;
  header.header_bytes = bytes.size();
  const std::optional<int64_t> count = CheckedCount(header.dims);
  if (!count ||
      __builtin_mul_overflow(static_cast<uint64_t>(*count), uint64_t(BytesOf(header.dtype)), &header.data_bytes)) {
    return Damaged(what, start, "the shape ", DimsToString(header.dims), " has more elements than 64 bits count");
  }
  if (header.data_bytes != size - header.header_bytes) {
    return Damaged(what, header.header_bytes, "there are ", size - header.header_bytes, " bytes of data; '",
                   header.descr, "' of shape ", DimsToString(header.dims), " has ", header.data_bytes);
  }
  return header;
}

std::string NpyHeaderText(DType dtype, std::span<const int64_t> dims) {
  const NpyType& type = *NpyTypeOf(dtype);
  std::string header =
      absl::StrCat("{'descr': '", BytesOf(dtype) == 1 ? "|" : "<", type.descr, "', 'fortran_order': False, 'shape': (");
  for (const int64_t dim : dims) absl::StrAppend(&header, dim, ", ");
  header += "), }";
  constexpr size_t kBefore = 10;  // magic, version, length
  header.resize((kBefore + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment - kBefore, ' ');
  header.back() = '\n';
  std::string text(kMagic);
  text += {'\1', '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  return text + header;
}

void RowsFirst(std::span<const std::byte> in, std::span<const int64_t> dims, size_t width, std::span<std::byte> out) {
  Dims strides(dims.size(), 1);  // of the columns-first elements
  for (size_t i = 1; i < dims.size(); ++i) strides[i] = strides[i - 1] * dims[i - 1];
  Dims index(dims.size(), 0);
  int64_t from = 0;
  for (size_t to = 0; to + width <= out.size(); to += width) {
    std::memcpy(out.data() + to, in.data() + static_cast<size_t>(from) * width, width);
    for (size_t i = dims.size(); i-- > 0;) {
      from += strides[i];
      if (++index[i] < dims[i]) break;
      from -= strides[i] * dims[i];
      index[i] = 0;
    }
  }
}

}  // namespace weft
