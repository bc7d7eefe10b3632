// One face for every file that holds tensors, whoever's format it is: what the C API's reader hands out. Opening checks the
// table of contents against the file's length before memory is asked for; reading a tensor checks what the format lets it
// check. Nothing is mapped: a file that shrinks under the reader gives an error, not a signal.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/checkpoint_reader.h"
#include "serialization/checkpoint_schema.h"
#include "serialization/tree.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/io.h"
#include "src/runtime/status.h"

namespace weft {

// Numbers of the C interface (weft_file_format).
enum class FileFormat : uint32_t { kWeft = 0, kSafetensors = 1, kNpy = 2, kNpz = 3, kPyTorch = 4, kGguf = 5 };
// "safetensors"
std::string_view NameOf(FileFormat format);

// One tensor of a file; what it shows lives as long as the reader.
struct FileTensor {
  std::string_view name;            // keys joined by ".", as they stand
  DType dtype = DType::kInvalid;    // of what ReadTensor gives
  DType logical = DType::kInvalid;  // as the user sees it: the same, but for a mode's (runtime/held_types.h)
  std::span<const int64_t> dims;
  uint64_t bytes = 0;       // that ReadTensor gives: dense and row-major; 4-bit types two in a byte
  uint64_t file_bytes = 0;  // that it takes in the file
  // How the file holds it, where that is not plainly `dtype`: "Q4_K", "F4[2, 8]", ">f4". A tensor that cannot be loaded is
  // listed as the u8 of its bytes.
  std::string_view encoding;
  bool loadable = true;
};

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  virtual FileFormat format() const = 0;
  virtual const HeaderRecord& header() const = 0;  // step, time, producer; nothing of the rest is used
  // Reads what is known of all tensors, once. Before it tree() is empty and tensor(id) is known only of what Find found.
  virtual absl::Status LoadAll() { return absl::OkStatus(); }
  virtual bool Knows(uint32_t /*id*/) const { return true; }
  virtual const Tree& tree() const = 0;  // tensor leaf i is tensor(i)
  virtual size_t tensor_count() const = 0;
  virtual FileTensor tensor(uint32_t id) const = 0;
  // Finds a tensor by name, or by path as Tree::PathOf writes it; an alias gives the tensor that it stands for.
  virtual absl::StatusOr<std::optional<uint32_t>> Find(std::string_view name) = 0;
  virtual uint64_t tensor_bytes() const = 0;
  virtual uint64_t file_bytes() const = 0;  // of all files where there are several
  virtual absl::StatusOr<Tree> Metadata() const = 0;

  // The whole tensor into `out`, which has tensor(id).bytes bytes. On error the contents of `out` are undefined.
  virtual absl::Status ReadTensor(uint32_t id, std::span<std::byte> out) = 0;
  // A part of what ReadTensor gives, from `offset` on. Parts that come in order, each of some multiple of 4,096 bytes or the
  // tensor's end, cost what they are long in most formats; elsewhere the tensor is read whole and kept until its end is asked for.
  virtual absl::Status ReadPart(uint32_t id, uint64_t offset, std::span<std::byte> out) = 0;
  // The place in a file where the bytes of ReadTensor lie as they are, one after the other; a mapped file has them there.
  struct Lying {
    const File* file = nullptr;
    uint64_t offset = 0;
    uint64_t file_bytes = 0;
  };
  virtual std::optional<Lying> LyingAt(uint32_t /*id*/) const { return std::nullopt; }
  // Checks all bytes of a tensor that somebody found there as ReadTensor would.
  virtual absl::Status CheckBytes(uint32_t id, std::span<const std::byte> bytes) = 0;
  // Reads its bytes as they lie in the file, tensor(id).file_bytes of them.
  virtual absl::Status ReadStored(uint32_t id, std::span<std::byte> out) = 0;
  // Reads every payload once and checks what can be checked.
  virtual absl::Status Verify() = 0;
};

// The bytes of the file decide its format, not its name. INVALID_ARGUMENT says what a file is
// that holds no tensors that can be read.
// `options.verify` is for Weft's own; the others have no checksums, but for the archives, which check theirs.
absl::StatusOr<std::unique_ptr<TensorFile>> OpenTensorFile(const std::string& path, const OpenOptions& options = {});

// A tensor of another's file. Usually 100 to 2,000 a file.
struct ForeignTensor {
  DType dtype = DType::kInvalid;
  bool loadable = true;
  uint64_t bytes = 0;   // as FileTensor has them
  uint64_t offset = 0;  // in its file
  uint64_t file_bytes = 0;
  Dims dims;
  std::string name, encoding;
};

// The readers of other people's formats share this base: they fill these fields and are finished by Finish.
class ForeignFile : public TensorFile {
 public:
  FileFormat format() const final { return format_; }
  const HeaderRecord& header() const final { return header_; }
  const Tree& tree() const final { return tree_; }
  size_t tensor_count() const final { return tensors_.size(); }
  FileTensor tensor(uint32_t id) const final;
  absl::StatusOr<std::optional<uint32_t>> Find(std::string_view name) final;
  uint64_t tensor_bytes() const final { return total_; }
  uint64_t file_bytes() const final { return file_bytes_; }
  absl::StatusOr<Tree> Metadata() const override { return metadata_; }
  absl::Status ReadTensor(uint32_t id, std::span<std::byte> out) final;
  absl::Status ReadPart(uint32_t id, uint64_t offset, std::span<std::byte> out) final;
  absl::Status CheckBytes(uint32_t id, std::span<const std::byte> bytes) final;
  absl::Status ReadStored(uint32_t id, std::span<std::byte> out) override = 0;
  absl::Status Verify() override;

 protected:
  explicit ForeignFile(FileFormat format) : format_(format) {}
  // The tensor as `dtype`, of tensors_[id].bytes bytes. Bools are looked at afterwards.
  virtual absl::Status Read(uint32_t id, std::span<std::byte> out) = 0;
  // Tells whether Part gives this tensor's parts, of multiples of 4,096 bytes or up to its end. Parts in order are the
  // cheap ones.
  virtual bool HasParts(uint32_t) const { return false; }
  virtual absl::Status Part(uint32_t, uint64_t, std::span<std::byte>) {
    return InternalError("a tensor without parts");
  }
  // Adds the leaf and its record; the record's dtype and dims are the leaf's. Errors name the file.
  absl::Status AddTensor(Tree::NodeId parent, std::string_view key, ForeignTensor tensor);
  // A key of a dict under which nothing stands yet and which may be a key.
  absl::StatusOr<Tree::NodeId> Add(Tree::NodeId parent, std::string_view key, const Tree::Value& value);
  // After the last tensor: names by which they are found. Names that would be equal become paths.
  void Finish();
  const std::string& path() const { return path_; }
  // UNIMPLEMENTED of a tensor that cannot be loaded.
  absl::Status CheckLoadable(uint32_t id) const;

  std::string path_;
  HeaderRecord header_;
  Tree tree_, metadata_;
  std::vector<ForeignTensor> tensors_;
  uint64_t file_bytes_ = 0;

 private:
  const FileFormat format_;
  uint64_t total_ = 0;
  std::optional<uint32_t> kept_id_;  // whose bytes kept_ has, for the parts of a tensor that is read whole
  std::vector<std::byte, LargeStdAllocator<std::byte>> kept_;
  absl::flat_hash_map<std::string_view, uint32_t> by_name_;  // views of tensors_, which changes no more
};

// "f32[2,3]", for error texts.
std::string TypeText(DType dtype, std::span<const int64_t> dims);
// UNIMPLEMENTED: the file is well, but holds what Weft has nothing for. "'file': tensor 'x' …"
template <typename... Text>
absl::Status NotForWeft(const std::string& file, const Text&... text) {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "'", file, "': ", text...);
}
// Returns text of a file for use in errors: the first 200 of any bytes.
std::string Shown(std::string_view text);
// A metadata value: text where it is clean, bytes otherwise.
absl::Status AddMetadata(Tree* metadata, std::string_view key, std::string_view value, const std::string& file);
// A whole number that stands in metadata as text; 0 where it is none.
int64_t StepOf(std::string_view text);
// Turns every element's bytes round.
void SwapBytes(std::span<std::byte> bytes, size_t width);

}  // namespace weft
