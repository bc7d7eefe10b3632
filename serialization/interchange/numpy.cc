// See numpy.h.
#include "serialization/interchange/numpy.h"

#include <algorithm>

#include "serialization/framing.h"
#include "serialization/interchange/npy_header.h"
#include "src/runtime/narrow.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr std::string_view kOnly = "arr_0";
constexpr std::string_view kSuffix = ".npy";

ForeignTensor TensorOf(const NpyHeader& header) {
  ForeignTensor tensor{.dtype = header.dtype,
                       .loadable = !header.bare,
                       .offset = header.header_bytes,
                       .file_bytes = header.data_bytes,
                       .dims = header.dims};
  if (header.bare || header.swapped) tensor.encoding = header.descr;
  return tensor;
}

// An array's elements as Weft has them, from those of the file.
void Arrange(const NpyHeader& header, std::span<std::byte> elements, std::span<std::byte> out) {
  const auto width = static_cast<size_t>(BytesOf(header.dtype));
  if (header.swapped) SwapBytes(elements, IsComplex(header.dtype) ? width / 2 : width);
  if (elements.data() != out.data()) RowsFirst(elements, header.dims, width, out);
}

// Tells whether the elements lie in another order than Weft's.
bool IsTurned(const NpyHeader& header) { return header.fortran_order && header.dims.size() > 1; }

class NpyFile final : public ForeignFile {
 public:
  NpyFile() : ForeignFile(FileFormat::kNpy) {}

  absl::Status Open(FileSystem* fs, const std::string& path) {
    path_ = path;
    FileInfo info;
    WEFT_ASSIGN_OR_RETURN(file_, File::OpenToRead(fs, path, &info));
    file_bytes_ = static_cast<uint64_t>(info.size);
    std::vector<std::byte> bytes(std::min<uint64_t>(kNpyStartBytes, file_bytes_));
    WEFT_RETURN_IF_ERROR(file_.ReadAt(0, bytes));
    WEFT_ASSIGN_OR_RETURN(const uint64_t length, NpyHeaderBytes(bytes, file_bytes_, path));
    std::string text(length, '\0');
    WEFT_RETURN_IF_ERROR(file_.ReadAt(0, std::as_writable_bytes(std::span(text))));
    WEFT_ASSIGN_OR_RETURN(array_, ParseNpyHeader(text, file_bytes_, path));
    WEFT_RETURN_IF_ERROR(AddTensor(Tree::root(), kOnly, TensorOf(array_)));
    Finish();
    return absl::OkStatus();
  }
  absl::Status ReadStored(uint32_t, std::span<std::byte> out) override {
    return file_.ReadAt(static_cast<int64_t>(array_.header_bytes), out);
  }
  std::optional<Lying> LyingAt(uint32_t id) const override {
    const bool as_it_is = tensors_[id].loadable && !array_.swapped && (!array_.fortran_order || array_.dims.size() < 2);
    if (!as_it_is) return std::nullopt;
    return Lying{&file_, array_.header_bytes, file_bytes_};
  }

 protected:
  absl::Status Read(uint32_t id, std::span<std::byte> out) override {
    if (!IsTurned(array_)) {
      WEFT_RETURN_IF_ERROR(ReadStored(id, out));
      return Arrange(array_, out, out), absl::OkStatus();
    }
    std::vector<std::byte> elements(out.size());
    WEFT_RETURN_IF_ERROR(ReadStored(id, elements));
    return Arrange(array_, elements, out), absl::OkStatus();
  }
  bool HasParts(uint32_t) const override { return !IsTurned(array_); }
  absl::Status Part(uint32_t, uint64_t offset, std::span<std::byte> out) override {
    WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(array_.header_bytes + offset), out));
    return Arrange(array_, out, out), absl::OkStatus();
  }

 private:
  File file_;
  NpyHeader array_;
};

class NpzFile final : public ForeignFile {
 public:
  NpzFile() : ForeignFile(FileFormat::kNpz) {}

  absl::Status Open(File file, uint64_t file_bytes, std::vector<ZipMember> members) {
    path_ = file.path();
    file_ = std::move(file);
    file_bytes_ = file_bytes;
    for (ZipMember& member : members) {
      if (member.name.ends_with('/') && member.bytes == 0) continue;  // a folder
      WEFT_RETURN_IF_ERROR(AddMember(std::move(member)));
    }
    Finish();
    return absl::OkStatus();
  }
  absl::Status ReadStored(uint32_t id, std::span<std::byte> out) override {
    ZipStream stream;
    WEFT_RETURN_IF_ERROR(stream.Open(&file_, members_[id], WhatIs(members_[id])));
    WEFT_RETURN_IF_ERROR(stream.Skip(arrays_[id].header_bytes));
    WEFT_RETURN_IF_ERROR(stream.Read(out));
    return stream.Finish();
  }

 protected:
  absl::Status Read(uint32_t id, std::span<std::byte> out) override {
    if (!IsTurned(arrays_[id])) {
      WEFT_RETURN_IF_ERROR(ReadStored(id, out));
      return Arrange(arrays_[id], out, out), absl::OkStatus();
    }
    std::vector<std::byte> elements(out.size());
    WEFT_RETURN_IF_ERROR(ReadStored(id, elements));
    return Arrange(arrays_[id], elements, out), absl::OkStatus();
  }
  // A member is a stream, which goes on where the part before ended.
  bool HasParts(uint32_t id) const override { return !IsTurned(arrays_[id]); }
  absl::Status Part(uint32_t id, uint64_t offset, std::span<std::byte> out) override {
    if (stream_ == nullptr || stream_id_ != id || stream_at_ != offset) {
      stream_ = std::make_unique<ZipStream>();
      stream_id_ = id;
      WEFT_RETURN_IF_ERROR(stream_->Open(&file_, members_[id], WhatIs(members_[id])));
      WEFT_RETURN_IF_ERROR(stream_->Skip(arrays_[id].header_bytes + offset));
    }
    WEFT_RETURN_IF_ERROR(stream_->Read(out));
    stream_at_ = offset + out.size();
    if (stream_at_ == tensors_[id].bytes) {
      WEFT_RETURN_IF_ERROR(stream_->Finish());
      stream_.reset();
    }
    return Arrange(arrays_[id], out, out), absl::OkStatus();
  }

 private:
  std::string WhatIs(const ZipMember& member) const { return absl::StrCat(path_, "/", member.name); }

  absl::Status AddMember(ZipMember member) {
    const std::string what = WhatIs(member);
    std::string_view name = member.name;
    if (!name.ends_with(kSuffix)) return NotForWeft(path_, "member '", name, "' is no array of NumPy's (.npy)");
    name.remove_suffix(kSuffix.size());
    ZipStream stream;
    WEFT_RETURN_IF_ERROR(stream.Open(&file_, member, what));
    std::vector<std::byte> start(std::min<uint64_t>(kNpyStartBytes, member.bytes));
    WEFT_RETURN_IF_ERROR(stream.Read(start));
    WEFT_ASSIGN_OR_RETURN(const uint64_t length, NpyHeaderBytes(start, member.bytes, what));
    std::string text(reinterpret_cast<const char*>(start.data()), start.size());
    text.resize(length);
    WEFT_RETURN_IF_ERROR(
        stream.Read(std::as_writable_bytes(std::span(text)).subspan(std::min<uint64_t>(start.size(), length))));
    WEFT_ASSIGN_OR_RETURN(NpyHeader array, ParseNpyHeader(text, member.bytes, what));
    ForeignTensor tensor = TensorOf(array);
    tensor.file_bytes = array.data_bytes;
    WEFT_RETURN_IF_ERROR(AddTensor(Tree::root(), name, std::move(tensor)));
    arrays_.push_back(std::move(array));
    members_.push_back(std::move(member));
    return absl::OkStatus();
  }

  File file_;
  std::vector<ZipMember> members_;  // of each tensor
  std::vector<NpyHeader> arrays_;
  std::unique_ptr<ZipStream> stream_;  // of the tensor whose parts are being read
  uint32_t stream_id_ = 0;
  uint64_t stream_at_ = 0;
};

// A tensor's elements to `write`, sub-byte ones one a byte.
absl::Status WriteElements(const FlatTensor& tensor, PieceReader& pieces,
                           const std::function<absl::Status(std::span<const std::byte>)>& write) {
  const int bits = BitsOf(tensor.dtype);
  if (bits >= 8) return pieces.Each(tensor, write);
  auto left = static_cast<uint64_t>(CountOf(tensor.dims));
  return pieces.Each(tensor, [&](std::span<std::byte> packed) {
    std::vector<std::byte> elements(std::min<uint64_t>(left, packed.size() * (8 / static_cast<unsigned>(bits))));
    Unpack(tensor.dtype, packed, elements);
    left -= elements.size();
    return write(elements);
  });
}

uint64_t BytesInFile(const FlatTensor& tensor) {
  return BitsOf(tensor.dtype) >= 8 ? tensor.bytes : static_cast<uint64_t>(CountOf(tensor.dims));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorFile>> OpenNpy(FileSystem* fs, const std::string& path) {
  auto file = std::make_unique<NpyFile>();
  WEFT_RETURN_IF_ERROR(file->Open(fs, path));
  return file;
}

absl::StatusOr<std::unique_ptr<TensorFile>> OpenNpz(File file, uint64_t file_bytes, std::vector<ZipMember> members) {
  auto npz = std::make_unique<NpzFile>();
  WEFT_RETURN_IF_ERROR(npz->Open(std::move(file), file_bytes, std::move(members)));
  return npz;
}

absl::Status WriteNpy(File& file, const FlatTree& flat, TensorSource& source, const SaveOptions& options) {
  const FlatTensor& tensor = flat.tensors[0];
  const std::string header = NpyHeaderText(tensor.dtype, tensor.dims);
  WEFT_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(header))));
  PieceReader pieces(flat, source, options);
  return WriteElements(tensor, pieces, [&](std::span<const std::byte> piece) { return file.Write(piece); });
}

absl::Status WriteNpz(File& file, const FlatTree& flat, TensorSource& source, const SaveOptions& options) {
  PieceReader pieces(flat, source, options);
  ZipWriter zip(&file);
  for (const FlatTensor& tensor : flat.tensors) {
    const std::string header = NpyHeaderText(tensor.dtype, tensor.dims);
    zip.Begin(absl::StrCat(tensor.name, kSuffix), header.size() + BytesInFile(tensor));
    WEFT_RETURN_IF_ERROR(zip.Write(std::as_bytes(std::span(header))));
    WEFT_RETURN_IF_ERROR(
        WriteElements(tensor, pieces, [&](std::span<const std::byte> piece) { return zip.Write(piece); }));
    WEFT_RETURN_IF_ERROR(zip.End());
  }
  return zip.Finish();
}

}  // namespace weft
