// See npy.h.
#include "src/cli/npy.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace weft::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;
constexpr size_t kMostDims = 32;  // NumPy's own limit

struct Kind {
  weft_dtype dtype;
  std::string_view name;
  std::string_view descr;  // without the byte order
};
constexpr Kind kKinds[] = {{WEFT_BOOL, "bool", "b1"},
                           {WEFT_I8, "i8", "i1"},
                           {WEFT_I16, "i16", "i2"},
                           {WEFT_I32, "i32", "i4"},
                           {WEFT_I64, "i64", "i8"},
                           {WEFT_U8, "u8", "u1"},
                           {WEFT_U16, "u16", "u2"},
                           {WEFT_U32, "u32", "u4"},
                           {WEFT_U64, "u64", "u8"},
                           {WEFT_F16, "f16", "f2"},
                           {WEFT_F32, "f32", "f4"},
                           {WEFT_F64, "f64", "f8"},
                           {WEFT_BF16, "bf16", "V2"},
                           {WEFT_C64, "c64", "c8"},
                           {WEFT_C128, "c128", "c16"},
                           {WEFT_F8E3M4, "f8e3m4", "V1"},
                           {WEFT_F8E4M3, "f8e4m3", "V1"},
                           {WEFT_F8E4M3B11FNUZ, "f8e4m3b11fnuz", "V1"},
                           {WEFT_F8E4M3FN, "f8e4m3fn", "V1"},
                           {WEFT_F8E4M3FNUZ, "f8e4m3fnuz", "V1"},
                           {WEFT_F8E5M2, "f8e5m2", "V1"},
                           {WEFT_F8E5M2, "f8e5m2", "f1"},
                           {WEFT_F8E5M2FNUZ, "f8e5m2fnuz", "V1"},
                           {WEFT_F8E8M0FNU, "f8e8m0fnu", "V1"},
                           {WEFT_I2, "i2", "V1"},
                           {WEFT_I4, "i4", "V1"},
                           {WEFT_U2, "u2", "V1"},
                           {WEFT_U4, "u4", "V1"}};

const Kind& KindOf(weft_dtype dtype) { return *std::ranges::find(kKinds, dtype, &Kind::dtype); }
size_t WidthOf(const Kind& kind) {
  size_t width = 0;
  for (const char digit : kind.descr.substr(1)) width = 10 * width + static_cast<size_t>(digit - '0');
  return width;
}

// Of a Python dictionary of one line, which the header is.
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
    return digits > 0;
  }

 private:
  void Spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }
  std::string_view rest_;
};

struct Fields {
  std::string_view descr;
  bool fortran_order = false;
  std::vector<int64_t> dims;
};

bool ReadShape(Header& header, std::vector<int64_t>* dims) {
  if (!header.Take('(')) return false;
  while (!header.Take(')')) {
    if (dims->size() > kMostDims || !header.Number(&dims->emplace_back())) return false;
    if (!header.Take(',')) return header.Take(')');
  }
  return true;
}

bool ReadHeader(Header header, Fields* fields) {
  bool descr = false, order = false, shape = false;
  if (!header.Take('{')) return false;
  while (!header.Take('}')) {
    std::string_view key;
    if (!header.String(&key) || !header.Take(':')) return false;
    bool& seen = key == "descr" ? descr : key == "fortran_order" ? order : shape;
    if (std::exchange(seen, true)) return false;
    if (key == "descr") {
      if (!header.String(&fields->descr)) return false;
    } else if (key == "fortran_order") {
      fields->fortran_order = header.Word("True");
      if (!fields->fortran_order && !header.Word("False")) return false;
    } else if (key != "shape" || !ReadShape(header, &fields->dims)) {
      return false;
    }
    header.Take(',');
  }
  return descr && order && shape && !fields->descr.empty();
}

// The header's text, and behind it the data.
bool Split(std::string_view content, std::string_view* header, std::string_view* data) {
  const size_t size_bytes = content.size() > 8 && content[6] > 1 ? 4 : 2;
  if (!content.starts_with(kMagic) || content.size() < 8 + size_bytes || content[6] < 1 || content[6] > 3) return false;
  size_t size = 0;
  for (size_t i = 0; i < size_bytes; ++i) size |= size_t{static_cast<unsigned char>(content[8 + i])} << (8 * i);
  content.remove_prefix(8 + size_bytes);
  if (content.size() < size) return false;
  *header = content.substr(0, size);
  *data = content.substr(size);
  return true;
}

// The columns first, as Fortran has them, to the rows first.
std::string RowMajor(std::string_view data, const std::vector<int64_t>& dims, size_t width) {
  std::string out(data.size(), '\0');
  std::vector<int64_t> index(dims.size(), 0);
  for (size_t to = 0; to < out.size(); to += width) {
    int64_t from = 0;
    for (size_t i = dims.size(); i-- > 0;) from = from * dims[i] + index[i];
    std::copy_n(data.begin() + from * static_cast<int64_t>(width), width, out.begin() + static_cast<int64_t>(to));
    for (size_t i = dims.size(); i-- > 0 && ++index[i] == dims[i];) index[i] = 0;
  }
  return out;
}

}  // namespace

bool HasNpy(weft_dtype dtype) { return std::ranges::find(kKinds, dtype, &Kind::dtype) != std::end(kKinds); }

bool IsBareByte(weft_dtype dtype) { return KindOf(dtype).descr == "V1"; }

std::string TypeText(weft_dtype dtype, const int64_t* dims, size_t rank) {
  std::string text(KindOf(dtype).name);
  text += '[';
  for (size_t i = 0; i < rank; ++i) text += (i > 0 ? "," : "") + std::to_string(dims[i]);
  return text + ']';
}

std::string ParseNpy(std::string_view content, weft_dtype wanted, Array* out) {
  std::string_view header, data;
  Fields fields;
  if (!Split(content, &header, &data)) return "is no .npy file of version 1, 2 or 3";
  if (!ReadHeader(Header(header), &fields)) {
    return "has a header that is no dictionary of descr, fortran_order and shape: " +
           std::string(header.substr(0, 200));
  }
  const char order = fields.descr[0];
  const std::string_view descr = std::string_view(fields.descr).substr(1);
  auto kind = std::ranges::find_if(kKinds, [&](const Kind& k) { return k.dtype == wanted && k.descr == descr; });
  if (kind == std::end(kKinds)) kind = std::ranges::find(kKinds, descr, &Kind::descr);
  if (kind == std::end(kKinds) || (order == '>' && WidthOf(*kind) > 1) ||
      std::string_view("<>|=").find(order) == std::string_view::npos) {
    return "has elements '" + std::string(fields.descr.substr(0, 200)) +
           "'; little-endian numbers and bools can be read";
  }
  const size_t width = WidthOf(*kind);
  auto size = static_cast<int64_t>(width);
  if (fields.dims.size() > kMostDims) return "has more than 32 dimensions";
  for (int64_t dim : fields.dims) {
    if (__builtin_mul_overflow(size, dim, &size)) return "has a size beyond 64 bits";
  }
  const std::string type = TypeText(kind->dtype, fields.dims.data(), fields.dims.size());
  if (static_cast<size_t>(size) != data.size()) {
    return "has " + std::to_string(data.size()) + " bytes of data; " + type + " has " + std::to_string(size);
  }
  if (kind->dtype == WEFT_BOOL && data.find_first_not_of(std::string_view("\0\1", 2)) != std::string_view::npos) {
    return "has bools that are neither 0 nor 1";
  }
  out->dtype = kind->dtype;
  out->bytes = fields.fortran_order ? RowMajor(data, fields.dims, width) : std::string(data);
  out->dims = std::move(fields.dims);
  return "";
}

std::string NpyOf(const Array& array) {
  const Kind& kind = KindOf(array.dtype);
  std::string header = "{'descr': '";
  header += WidthOf(kind) == 1 ? '|' : '<';
  header += kind.descr;
  header += "', 'fortran_order': False, 'shape': (";
  for (int64_t dim : array.dims) header += std::to_string(dim) + ", ";
  header += "), }";
  constexpr size_t kBefore = 10;  // magic, version, size
  header.resize((kBefore + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment - kBefore, ' ');
  header.back() = '\n';
  std::string content(kMagic);
  content += {'\1', '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  return content + header + array.bytes;
}

}  // namespace weft::cli
