// The object behind weft_checkpoint_reader: a file of tensors, how its owner wants it read, and how its tensors become the
// engine's.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "serialization/file_map.h"
#include "serialization/interchange/tensor_file.h"
#include "src/c_api/context.h"
#include "src/c_api/tree_object.h"
#include "src/runtime/interruptible.h"
#include "src/runtime/mutex.h"
#include "weft.h"

namespace weft::c_api {

struct ReaderOptions {
  Verify verify = Verify::kUse;
  weft_open_mode mode = WEFT_OPEN_COPY;
  uint64_t memory_budget = 0;  // bytes of tensors that one call may make; 0: what the machine has
};

absl::StatusOr<ReaderOptions> ReadOpenOptions(const weft_open_options* options);

// Bytes as a file holds them to values of `logical`, each element in bytes of its own.
void ToValues(DType stored, DType logical, std::span<const std::byte> bytes, std::span<std::byte> out);

// Ends what this call reads when weft_cancel asks for it.
inline Interruptible UntilCancelled(lazy::Engine& engine) {
  lazy::Services& services = engine.services();
  return Interruptible([&services, before = services.cancels()] { return services.Interrupted(before); });
}

// Thread rule: any thread; payloads are read one after the other.
class ReaderObject final : public RefCounted {
 public:
  static absl::StatusOr<Ref<ReaderObject>> Open(Context& context, const char* path, size_t length,
                                                const ReaderOptions& options);
  // `files` is where the path leads to.
  static absl::StatusOr<Ref<ReaderObject>> Open(Context& context, const std::string& path, const ReaderOptions& options,
                                                std::shared_ptr<FileSystem> files);
  ReaderObject(std::shared_ptr<FileSystem> files, std::unique_ptr<TensorFile> reader, Ref<lazy::Engine> engine,
               const ReaderOptions& options)
      : engine(std::move(engine)), files_(std::move(files)), reader_(std::move(reader)), options_(options) {}

  FileFormat format() const { return reader_->format(); }
  size_t tensor_count() const { return reader_->tensor_count(); }
  bool maps() const { return options_.mode != WEFT_OPEN_COPY; }
  // The file as Open has read it; it never changes.
  const TensorFile& reader() const { return *reader_; }
  // The file's tree; reads what is not known yet.
  absl::StatusOr<const Tree*> WholeTree();
  // A tensor's description by its number; reads what is not known yet. Lives as long as the reader.
  absl::StatusOr<FileTensor> Tensor(uint32_t id);
  // The number of a path's tensor; nullopt if there is none.
  absl::StatusOr<std::optional<uint32_t>> Look(std::string_view name);
  // The same; NOT_FOUND guesses what was meant.
  absl::StatusOr<uint32_t> Find(const char* path, size_t length);

  absl::StatusOr<Ref<lazy::Tensor>> Load(uint32_t id, const lazy::Where& device);
  // As the caller says: bytes of no type as a type of theirs, or the bytes as they lie in the file.
  absl::StatusOr<Ref<lazy::Tensor>> LoadAs(uint32_t id, DType dtype, const lazy::Where& device);
  // A box of it: starts[d] to starts[d] + sizes[d] of each dimension.
  absl::StatusOr<Ref<lazy::Tensor>> LoadBox(uint32_t id, std::span<const int64_t> starts,
                                            std::span<const int64_t> sizes, const lazy::Where& device);
  // Elements of it from `first` on, in one dimension; what is behind its end is 0.
  absl::StatusOr<Ref<lazy::Tensor>> LoadRange(uint32_t id, int64_t first, int64_t count, const lazy::Where& device);
  // On a mesh, of which each device gets its box and reads what touches it; `spec` "": all of it.
  absl::StatusOr<Ref<lazy::Tensor>> LoadOnMesh(uint32_t id, const lazy::DeviceMesh& mesh, std::string_view spec);
  // Every tensor, in the order of the file, in the file's tree.
  absl::StatusOr<Ref<TreeObject>> LoadTree(weft_device* device);
  // RESOURCE_EXHAUSTED where a call would make more bytes of tensors than its owner allows.
  absl::Status CheckBudget(uint64_t bytes, std::string_view what) const;
  // The bytes of a tensor as values of `record.logical`, each element in bytes of its own.
  absl::Status ReadValues(uint32_t id, const FileTensor& record, std::span<std::byte> out);
  // The same of a box, which the tensor has.
  absl::Status ReadBoxValues(uint32_t id, const FileTensor& record, std::span<const int64_t> starts,
                             std::span<const int64_t> sizes, std::span<std::byte> out);

  const Ref<lazy::Engine> engine;

 private:
  absl::Status Read(uint32_t id, std::span<std::byte> out);
  absl::Status ReadBox(uint32_t id, const FileTensor& record, std::span<const int64_t> starts,
                       std::span<const int64_t> sizes, std::span<std::byte> out);
  // The tensor without a copy; null where it has to be copied.
  absl::StatusOr<Ref<lazy::Tensor>> Map(uint32_t id, const FileTensor& record, const lazy::Where& device);
  absl::StatusOr<Ref<FileMap>> MapOf(const TensorFile::Lying& lying) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;                              // of what reading changes
  const std::shared_ptr<FileSystem> files_;  // null: the system's
  const std::unique_ptr<TensorFile> reader_;
  const ReaderOptions options_;
  absl::flat_hash_map<const File*, Ref<FileMap>> maps_ ABSL_GUARDED_BY(mutex_);  // null: cannot be mapped
};
template <>
struct HandleTraits<weft_checkpoint_reader> {
  using Object = ReaderObject;
  static constexpr HandleType kType = HandleType::kReader;
  static const ForkGuard* ForkOf(const ReaderObject& object) { return &object.engine->services().fork(); }
};

}  // namespace weft::c_api
