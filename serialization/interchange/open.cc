// Which reader a file gets: by its first bytes, of a ZIP archive by its members.
#include <algorithm>
#include <cstring>

#include "serialization/checkpoint_reader.h"
#include "serialization/interchange/gguf.h"
#include "serialization/interchange/npy_header.h"
#include "serialization/interchange/numpy.h"
#include "serialization/interchange/pytorch.h"
#include "serialization/interchange/safetensors.h"
#include "serialization/interchange/tensor_file.h"
#include "serialization/retention.h"
#include "src/runtime/file_kind.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

// Weft's own checkpoint with that face.
class WeftFile final : public TensorFile {
 public:
  explicit WeftFile(std::unique_ptr<CheckpointReader> reader) : reader_(std::move(reader)) {}
  FileFormat format() const override { return FileFormat::kWeft; }
  const HeaderRecord& header() const override { return reader_->header(); }
  absl::Status LoadAll() override { return reader_->LoadAll(); }
  bool Knows(uint32_t id) const override { return reader_->Knows(id); }
  const Tree& tree() const override { return reader_->tree(); }
  size_t tensor_count() const override { return reader_->tensor_count(); }
  FileTensor tensor(uint32_t id) const override {
    const TensorRecord& t = reader_->tensor(id);
    return {t.name, t.dtype, t.logical, t.dims, t.bytes, t.bytes, {}, true};
  }
  absl::StatusOr<std::optional<uint32_t>> Find(std::string_view name) override { return reader_->Find(name); }
  uint64_t tensor_bytes() const override { return reader_->tensor_bytes(); }
  uint64_t file_bytes() const override { return reader_->file_bytes(); }
  absl::StatusOr<Tree> Metadata() const override {
    Tree words;
    for (const auto& [key, value] : header().user) {
      WEFT_RETURN_IF_ERROR(
          words.Add(Tree::root(), key, IsCleanText(value) ? Tree::Text(value) : Tree::Bytes(value)).status());
    }
    return words;
  }
  absl::Status ReadTensor(uint32_t id, std::span<std::byte> out) override { return reader_->ReadTensor(id, out); }
  absl::Status ReadStored(uint32_t id, std::span<std::byte> out) override { return reader_->ReadTensor(id, out); }
  absl::Status ReadPart(uint32_t id, uint64_t offset, std::span<std::byte> out) override {
    return reader_->ReadPart(id, offset, out);
  }
  std::optional<Lying> LyingAt(uint32_t id) const override {
    const IndexRecord& entry = reader_->entry(id);
    if (!entry.is_whole()) return std::nullopt;  // small, where a copy costs less than a page; or in parts
    return Lying{&reader_->file(), entry.payload, reader_->file_bytes()};
  }
  absl::Status CheckBytes(uint32_t id, std::span<const std::byte> bytes) override {
    return reader_->CheckBytes(id, bytes);
  }
  absl::Status Verify() override { return reader_->VerifyPayloads(); }

 private:
  const std::unique_ptr<CheckpointReader> reader_;
};

bool IsTar(const File& file, uint64_t file_bytes) {
  constexpr std::string_view kMagic = "ustar";
  constexpr uint64_t kMagicAt = 257;
  char found[kMagic.size()];
  if (file_bytes < kMagicAt + sizeof(found)) return false;
  return file.ReadAt(kMagicAt, std::as_writable_bytes(std::span(found))).ok() &&
         std::string_view(found, sizeof(found)) == kMagic;
}

absl::StatusOr<std::unique_ptr<TensorFile>> OpenArchive(File file, uint64_t file_bytes) {
  WEFT_ASSIGN_OR_RETURN(std::vector<ZipMember> members, ReadZipDirectory(file, file_bytes));
  if (IsPyTorchArchive(members)) return OpenPyTorchArchive(std::move(file), file_bytes, std::move(members));
  return OpenNpz(std::move(file), file_bytes, std::move(members));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorFile>> OpenTensorFile(const std::string& given, const OpenOptions& options) {
  std::string path = given;
  FileSystem* const fs = options.fs != nullptr ? options.fs : PosixFileSystem();
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(File file, File::OpenToRead(fs, path, &info));
  std::byte raw[std::max(kSniffedBytes, kMostPointerBytes)];
  std::span<std::byte> first;
  const auto look = [&](size_t most) {
    first = std::span(raw, std::min<uint64_t>(static_cast<uint64_t>(info.size), most));
    return file.ReadAt(0, first);
  };
  const auto text_of = [&] { return std::string_view(reinterpret_cast<const char*>(raw), first.size()); };
  WEFT_RETURN_IF_ERROR(look(kSniffedBytes));
  if (IsPointer(text_of())) {
    WEFT_RETURN_IF_ERROR(look(kMostPointerBytes));
    WEFT_ASSIGN_OR_RETURN(const std::string name, NameInPointer(text_of(), path));
    path = JoinPath(DirectoryOf(path), name);
    absl::StatusOr<File> named = File::OpenToRead(fs, path, &info);
    if (!named.ok()) {
      return WithText(named.status(), absl::StrCat("'", given, "' points to it: ", named.status().message()));
    }
    file = *std::move(named);
    WEFT_RETURN_IF_ERROR(look(kSniffedBytes));
    if (IsPointer(text_of())) return UserError("'", given, "' points to '", path, "', which is a pointer itself");
  }
  const std::string_view text = text_of();
  const auto file_bytes = static_cast<uint64_t>(info.size);
  if (text.starts_with("GGUF")) return OpenGguf(fs, path);
  if (IsOldPyTorch(first)) return OpenOldPyTorch(std::move(file), file_bytes);
  if (IsNpy(first)) return OpenNpy(fs, path);
  if (text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06")) return OpenArchive(std::move(file), file_bytes);
  if (IsSafetensors(first, file_bytes)) return OpenSafetensors(fs, path);
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && text[start] == '{') return OpenSafetensorsIndex(fs, path);
  if (IsTar(file, file_bytes)) {
    return NotForWeft(path, "a tar archive, as PyTorch before 0.1.10 wrote them; load and save it with PyTorch");
  }
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointReader> reader, CheckpointReader::Open(path, options));
  return std::make_unique<WeftFile>(std::move(reader));
}

}  // namespace weft
