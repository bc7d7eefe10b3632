// Reads safetensors files, one or the shards of an index. See safetensors.h.
#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "serialization/framing.h"
#include "serialization/interchange/json.h"
#include "serialization/interchange/safetensors.h"
#include "serialization/interchange/safetensors_header.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr size_t kMostShards = 4096;  // each is an open file
constexpr uint64_t kMostIndexBytes = 100'000'000;

class SafetensorsFile final : public ForeignFile {
 public:
  SafetensorsFile() : ForeignFile(FileFormat::kSafetensors) {}

  absl::Status OpenOne(FileSystem* fs, const std::string& path) {
    path_ = path;
    WEFT_RETURN_IF_ERROR(AddFile(fs, path, nullptr));
    return Ready();
  }
  absl::Status OpenIndex(FileSystem* fs, const std::string& path);

  absl::Status ReadStored(uint32_t id, std::span<std::byte> out) override {
    return files_[file_of_[id]].ReadAt(static_cast<int64_t>(tensors_[id].offset), out);
  }
  std::optional<Lying> LyingAt(uint32_t id) const override {
    if (!tensors_[id].loadable) return std::nullopt;
    return Lying{&files_[file_of_[id]], tensors_[id].offset, sizes_[file_of_[id]]};
  }

 protected:
  absl::Status Read(uint32_t id, std::span<std::byte> out) override { return ReadStored(id, out); }
  bool HasParts(uint32_t) const override { return true; }
  absl::Status Part(uint32_t id, uint64_t offset, std::span<std::byte> out) override {
    return files_[file_of_[id]].ReadAt(static_cast<int64_t>(tensors_[id].offset + offset), out);
  }

 private:
  // `wanted` is the names that an index has for this file; null takes what there is.
  absl::Status AddFile(FileSystem* fs, const std::string& path, const absl::flat_hash_set<std::string>* wanted);
  absl::Status AddTied();
  absl::Status Ready() {
    WEFT_RETURN_IF_ERROR(AddTied());
    Finish();
    return absl::OkStatus();
  }

  std::vector<File> files_;
  std::vector<uint64_t> sizes_;    // of each file
  std::vector<uint32_t> file_of_;  // of each tensor
};

absl::Status SafetensorsFile::AddFile(FileSystem* fs, const std::string& path,
                                      const absl::flat_hash_set<std::string>* wanted) {
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(File file, File::OpenToRead(fs, path, &info));
  const auto bytes = static_cast<uint64_t>(info.size);
  WEFT_ASSIGN_OR_RETURN(SafetensorsHeader header, ReadSafetensorsHeader(file, bytes));
  for (SafetensorsHeader::Tensor& t : header.tensors) {
    if (wanted != nullptr && !wanted->contains(t.name)) {
      return absl::DataLossError(absl::StrCat("'", path, "': it holds tensor '", Shown(t.name), "', which '", path_,
                                              "' does not have in this file"));
    }
    ForeignTensor tensor{.dtype = t.type->dtype, .offset = t.begin, .file_bytes = t.end - t.begin, .dims = t.dims};
    if (tensor.dtype == DType::kInvalid) {
      tensor.loadable = false;
      tensor.encoding = absl::StrCat(t.type->name, DimsToString(t.dims));
      tensor.dtype = DType::kU8;
      tensor.dims = {static_cast<int64_t>(tensor.file_bytes)};
    }
    WEFT_RETURN_IF_ERROR(AddTensor(Tree::root(), t.name, std::move(tensor)));
    file_of_.push_back(static_cast<uint32_t>(files_.size()));
  }
  if (wanted != nullptr && wanted->size() != header.tensors.size()) {
    for (const std::string& name : *wanted) {
      if (tree_.Find(Tree::root(), name) == Tree::kNoNode) {
        return absl::DataLossError(
            absl::StrCat("'", path, "': tensor '", name, "', which '", path_, "' has in this file, is not in it"));
      }
    }
  }
  for (const auto& [key, value] : header.metadata) {
    if (metadata_.Find(Tree::root(), key) != Tree::kNoNode) continue;  // of an earlier shard
    WEFT_RETURN_IF_ERROR(AddMetadata(&metadata_, key, value, path));
    if (key == "step") header_.step = StepOf(value);
  }
  file_bytes_ += bytes;
  files_.push_back(std::move(file));
  sizes_.push_back(bytes);
  return absl::OkStatus();
}

// A tensor that was stored once: metadata has its further names, each with the name that is stored.
absl::Status SafetensorsFile::AddTied() {
  const Tree::Node& words = metadata_.node(Tree::root());
  for (Tree::NodeId at = words.first_child; at != Tree::kNoNode; at = metadata_.node(at).next_sibling) {
    const Tree::Node& word = metadata_.node(at);
    const Tree::NodeId stored = tree_.Find(Tree::root(), word.text);
    if (stored == Tree::kNoNode || tree_.Find(Tree::root(), word.key) != Tree::kNoNode) continue;
    if (tree_.node(stored).kind != Tree::Kind::kTensor) continue;
    WEFT_RETURN_IF_ERROR(Add(Tree::root(), word.key, Tree::Alias(stored)).status());
  }
  return absl::OkStatus();
}

// {"metadata": …, "weight_map": {"tensor": "file", …}}
class IndexBuilder final : public JsonEvents {
 public:
  explicit IndexBuilder(const std::string& file) : file_(file) {}
  // Files in the order of the text, with what each is to hold.
  std::vector<std::pair<std::string, absl::flat_hash_set<std::string>>> files;

  absl::Status BeginObject() override {
    if (++depth_ == 2 && key_ == "weight_map") {
      if (in_map_ || !files.empty()) return Bad("weight_map stands in it twice");
      in_map_ = true;
    } else if (in_map_) {
      return Bad("tensor '", Shown(key_), "' stands in no file, but in an object");
    }
    return absl::OkStatus();
  }
  absl::Status EndObject() override {
    if (depth_-- == 2) in_map_ = false;
    return absl::OkStatus();
  }
  absl::Status BeginArray() override {
    if (depth_++ == 0) return Bad("it is an array");
    return in_map_ ? Bad("tensor '", Shown(key_), "' stands in an array") : absl::OkStatus();
  }
  absl::Status EndArray() override { return --depth_, absl::OkStatus(); }
  absl::Status Key(std::string key) override { return key_ = std::move(key), absl::OkStatus(); }
  absl::Status String(std::string value) override {
    if (!in_map_) return absl::OkStatus();
    if (value.empty() || value == "." || value == ".." || value.size() > 255 || !IsCleanText(value) ||
        value.find('/') != std::string::npos) {
      return Bad("tensor '", Shown(key_), "' stands in '", Shown(value),
                 "'; shards are files of the index's own folder");
    }
    if (!names_.insert(key_).second) return Bad("tensor '", Shown(key_), "' stands in it twice");
    const auto [at, added] = places_.emplace(value, files.size());
    if (added) {
      if (files.size() == kMostShards) return Bad("it names more than ", kMostShards, " files");
      files.emplace_back(std::move(value), absl::flat_hash_set<std::string>());
    }
    files[at->second].second.insert(key_);
    return absl::OkStatus();
  }
  absl::Status Unsigned(uint64_t) override { return Other("a number"); }
  absl::Status Other(std::string_view what) override {
    return in_map_ ? Bad("tensor '", Shown(key_), "' stands in ", what, ", not in a file") : absl::OkStatus();
  }
  template <typename... Text>
  absl::Status Bad(const Text&... text) const {
    return absl::DataLossError(absl::StrCat("'", file_, "': the index of shards: ", text...));
  }

 private:
  const std::string& file_;
  int depth_ = 0;
  bool in_map_ = false;
  std::string key_;
  absl::flat_hash_set<std::string> names_;
  absl::flat_hash_map<std::string, size_t> places_;
};

absl::Status SafetensorsFile::OpenIndex(FileSystem* fs, const std::string& path) {
  path_ = path;
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(const File file, File::OpenToRead(fs, path, &info));
  const auto bytes = static_cast<uint64_t>(info.size);
  if (bytes > kMostIndexBytes) {
    return Damaged(path, 0, "an index of shards has at most ", kMostIndexBytes, " bytes; this file has ", bytes);
  }
  std::string text(bytes, '\0');
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  IndexBuilder index(path);
  constexpr int kDepth = 16;  // "metadata" may hold anything
  WEFT_RETURN_IF_ERROR(ReadJson(text, kDepth, index, path, 0));
  if (index.files.empty()) return index.Bad("it has no weight_map with tensors, so it is none");
  file_bytes_ = bytes;
  for (const auto& [name, tensors] : index.files) {
    WEFT_RETURN_IF_ERROR(AddFile(fs, JoinPath(DirectoryOf(path), name), &tensors));
  }
  return Ready();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorFile>> OpenSafetensors(FileSystem* fs, const std::string& path) {
  auto file = std::make_unique<SafetensorsFile>();
  WEFT_RETURN_IF_ERROR(file->OpenOne(fs, path));
  return file;
}

absl::StatusOr<std::unique_ptr<TensorFile>> OpenSafetensorsIndex(FileSystem* fs, const std::string& path) {
  auto file = std::make_unique<SafetensorsFile>();
  WEFT_RETURN_IF_ERROR(file->OpenIndex(fs, path));
  return file;
}

bool IsSafetensors(std::span<const std::byte> first, uint64_t file_bytes) {
  if (first.size() < 9 || first[8] != std::byte{'{'}) return false;
  uint64_t length = 0;
  std::memcpy(&length, first.data(), sizeof(length));
  return length >= 2 && length >> 56 == 0 && file_bytes >= 10;
}

}  // namespace weft
