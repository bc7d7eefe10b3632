// IDX decoding: the compressed file is read whole (Fashion-MNIST: 26 MB), the payload is inflated straight into place.
#include "src/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "src/runtime/file_kind.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

// Anything larger is not an MNIST-like file but a mistake or an attack.
constexpr int64_t kMaxFileBytes = int64_t{4} << 30;

// Bytes of the (inflated) stream in order.
class Stream {
 public:
  Stream(const std::string& path, std::vector<std::byte> raw) : path_(path), raw_(std::move(raw)) {}
  ~Stream() {
    if (gzip_) inflateEnd(&z_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  absl::Status Open() {
    gzip_ = raw_.size() >= 2 && raw_[0] == std::byte{0x1F} && raw_[1] == std::byte{0x8B};
    if (!gzip_) return absl::OkStatus();
    if (inflateInit2(&z_, 15 + 16) != Z_OK) {
      gzip_ = false;
      return absl::ResourceExhaustedError("zlib could not allocate its window");
    }
    return absl::OkStatus();
  }

  // Returns how many bytes there were, at most out.size().
  absl::StatusOr<size_t> Read(std::span<std::byte> out) {
    size_t done = 0;
    while (done < out.size()) {
      const size_t room = std::min<size_t>(out.size() - done, 1u << 30);
      if (!gzip_) {
        const size_t n = std::min(room, raw_.size() - at_);
        if (n == 0) break;
        std::memcpy(out.data() + done, raw_.data() + at_, n);
        at_ += n;
        done += n;
        continue;
      }
      if (ended_) break;
      const size_t in = std::min<size_t>(raw_.size() - at_, 1u << 30);
      z_.next_in = reinterpret_cast<Bytef*>(raw_.data() + at_);
      z_.avail_in = static_cast<uInt>(in);
      z_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      z_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&z_, Z_NO_FLUSH);
      at_ += in - z_.avail_in;
      done += room - z_.avail_out;
      if (result == Z_STREAM_END) {
        ended_ = true;
      } else if (result == Z_BUF_ERROR || (result == Z_OK && in == 0)) {
        return absl::DataLossError(
            absl::StrCat("'", path_, "': the gzip stream ends early, after ", z_.total_out, " bytes"));
      } else if (result != Z_OK) {
        return absl::DataLossError(absl::StrCat("'", path_, "': damaged gzip stream at byte ", at_, " (",
                                                z_.msg == nullptr ? "unknown" : z_.msg, ")"));
      }
    }
    return done;
  }

 private:
  std::string path_;
  std::vector<std::byte> raw_;
  size_t at_ = 0;
  bool gzip_ = false;
  bool ended_ = false;
  z_stream z_ = {};
};

DType TypeOf(uint8_t code) {
  switch (code) {
    case 0x08: return DType::kU8;
    case 0x09: return DType::kI8;
    case 0x0B: return DType::kI16;
    case 0x0C: return DType::kI32;
    case 0x0D: return DType::kF32;
    case 0x0E: return DType::kF64;
    default: return DType::kInvalid;
  }
}

absl::Status ReadExactly(Stream& stream, const std::string& path, std::string_view what, std::span<std::byte> out) {
  WEFT_ASSIGN_OR_RETURN(size_t got, stream.Read(out));
  if (got == out.size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("'", path, "' is not a whole IDX file: ", what, " needs ", out.size(),
                                          " bytes, ", got, " are there"));
}

}  // namespace

absl::StatusOr<HostTensor> ReadIdx(FileSystem* fs, const std::string& path) {
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(File file, File::OpenToRead(fs, path, &info));
  if (info.size > kMaxFileBytes) {
    return UserError("'", path, "' is not an IDX file: it is ", info.size, " bytes, at most ", kMaxFileBytes,
                     " are expected");
  }
  std::vector<std::byte> raw(info.size);
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, raw));
  const std::string of_another_kind = ItIs(std::span(raw).first(std::min(raw.size(), kSniffedBytes)));
  const int64_t stored = info.size;
  Stream stream(path, std::move(raw));
  WEFT_RETURN_IF_ERROR(stream.Open());

  uint8_t magic[4];
  WEFT_RETURN_IF_ERROR(ReadExactly(stream, path, "the header", std::as_writable_bytes(std::span(magic))));
  const DType dtype = TypeOf(magic[2]);
  if (magic[0] != 0 || magic[1] != 0 || dtype == DType::kInvalid || magic[3] == 0 || magic[3] > kMaxRank) {
    return absl::DataLossError(absl::StrCat(
        "'", path, "' is not an IDX file: the first four bytes are ", magic[0], " ", magic[1], " ", magic[2], " ",
        magic[3], "; expected 0 0, an element type (8, 9, 11 to 14) and a rank", of_another_kind));
  }
  Dims dims;
  for (int i = 0; i < magic[3]; ++i) {
    uint8_t be[4];
    WEFT_RETURN_IF_ERROR(ReadExactly(stream, path, "the header", std::as_writable_bytes(std::span(be))));
    dims.push_back((int64_t{be[0]} << 24) | (be[1] << 16) | (be[2] << 8) | be[3]);
  }
  // Deflate never expands beyond 1032:1, so the stored size bounds what can be there before anything is allocated.
  const std::optional<int64_t> count = CheckedCount(dims);
  if (!count || *count > kMaxFileBytes || *count * BytesOf(dtype) > stored * 1032) {
    return absl::DataLossError(absl::StrCat("'", path, "' claims the shape ", DimsToString(dims), ", which its ",
                                            stored, " bytes cannot hold"));
  }
  HostTensor tensor(dtype, dims);
  WEFT_RETURN_IF_ERROR(ReadExactly(stream, path, "the data", tensor.mutable_bytes()));
  std::byte extra[1];
  WEFT_ASSIGN_OR_RETURN(size_t more, stream.Read(extra));
  if (more != 0) return absl::DataLossError(absl::StrCat("'", path, "' has bytes after its data"));

  const int width = BytesOf(dtype);  // payload elements are big-endian
  if (width > 1) {
    std::byte* at = tensor.mutable_bytes().data();
    for (int64_t i = 0; i < *count; ++i) std::reverse(at + i * width, at + (i + 1) * width);
  }
  return tensor;
}

}  // namespace weft
