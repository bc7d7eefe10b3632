// See tensor_file.h.
#include "serialization/interchange/tensor_file.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "serialization/framing.h"
#include "src/runtime/status.h"

namespace weft {

std::string_view NameOf(FileFormat format) {
  constexpr std::string_view kNames[] = {"weft", "safetensors", "npy", "npz", "pytorch", "gguf"};
  return kNames[static_cast<size_t>(format)];
}

FileTensor ForeignFile::tensor(uint32_t id) const {
  const ForeignTensor& t = tensors_[id];
  return {t.name, t.dtype, t.dtype, t.dims, t.bytes, t.file_bytes, t.encoding, t.loadable};
}

absl::StatusOr<std::optional<uint32_t>> ForeignFile::Find(std::string_view name) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return found->second;
  Tree::NodeId node = tree_.Find(Tree::root(), name);  // an alias's name, as it stands
  if (node == Tree::kNoNode) node = tree_.FindPath(name);
  if (node == Tree::kNoNode) return std::nullopt;
  const Tree::Node& at = tree_.node(tree_.Resolve(node));
  if (at.kind != Tree::Kind::kTensor) return std::nullopt;
  return at.tensor;
}

absl::StatusOr<Tree::NodeId> ForeignFile::Add(Tree::NodeId parent, std::string_view key, const Tree::Value& value) {
  absl::StatusOr<Tree::NodeId> added = tree_.Add(parent, key, value);
  if (added.ok()) return added;
  return absl::DataLossError(absl::StrCat("'", path_, "': ", added.status().message()));
}

absl::Status ForeignFile::AddTensor(Tree::NodeId parent, std::string_view key, ForeignTensor tensor) {
  const std::optional<uint64_t> bytes = StoredBytes(tensor.dtype, tensor.dims);
  if (!bytes.has_value() || tensor.dims.size() > kMaxRank) {
    return absl::DataLossError(absl::StrCat("'", path_, "': tensor '", Shown(key), "' of ",
                                            TypeText(tensor.dtype, tensor.dims),
                                            " has more bytes or dimensions than a tensor can have"));
  }
  tensor.bytes = *bytes;
  WEFT_RETURN_IF_ERROR(Add(parent, key, Tree::Tensor(tensor.dtype, tensor.dims)).status());
  total_ += tensor.bytes;
  tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

void ForeignFile::Finish() {
  // Two equal names do not say which tensor is meant: both become paths, in which no two are equal.
  tree_.ForEachPath([&](Tree::NodeId id, const std::string& path) {
    const Tree::Node& node = tree_.node(id);
    if (node.kind != Tree::Kind::kTensor) return;
    std::string name;
    for (size_t i = 0; i < path.size(); ++i) {
      if (path[i] == '\\' && i + 1 < path.size()) ++i;
      name += path[i];
    }
    tensors_[node.tensor].name = std::move(name);
  });
  std::vector<uint32_t> same;
  for (uint32_t id = 0; id < tensors_.size(); ++id) {
    const auto [at, added] = by_name_.emplace(tensors_[id].name, id);
    if (!added) same.insert(same.end(), {at->second, id});
  }
  if (same.empty()) return;
  by_name_.clear();
  for (const uint32_t id : same) tensors_[id].name = tree_.PathOf(tree_.tensors()[id].node);
  for (uint32_t id = 0; id < tensors_.size(); ++id) by_name_.emplace(tensors_[id].name, id);
}

absl::Status ForeignFile::CheckLoadable(uint32_t id) const {
  const ForeignTensor& t = tensors_[id];
  if (t.loadable) return absl::OkStatus();
  return NotForWeft(path_, "tensor '", t.name, "' is stored as ", t.encoding,
                    ", which Weft has no type for; weft_checkpoint_reader_load_as with WEFT_U8 gives its bytes");
}

absl::Status ForeignFile::ReadTensor(uint32_t id, std::span<std::byte> out) {
  if (id >= tensors_.size()) {
    return UserError("'", path_, "' has ", tensors_.size(), " tensors; there is no number ", id);
  }
  const ForeignTensor& t = tensors_[id];
  if (out.size() != t.bytes) {
    return UserError("tensor '", t.name, "' has ", t.bytes, " bytes, the memory for it ", out.size());
  }
  WEFT_RETURN_IF_ERROR(CheckLoadable(id));
  WEFT_RETURN_IF_ERROR(Read(id, out));
  return CheckBytes(id, out);
}

absl::Status ForeignFile::ReadPart(uint32_t id, uint64_t offset, std::span<std::byte> out) {
  const ForeignTensor& t = tensors_[id];
  if (offset > t.bytes || out.size() > t.bytes - offset) {
    return InternalError("bytes ", offset, " to ", offset + out.size(), " of tensor '", t.name, "' of ", t.bytes);
  }
  WEFT_RETURN_IF_ERROR(CheckLoadable(id));
  constexpr uint64_t kUnit = 4096;
  const bool ends = offset + out.size() == t.bytes;
  if (const std::optional<Lying> lying = LyingAt(id)) {
    WEFT_RETURN_IF_ERROR(lying->file->ReadAt(static_cast<int64_t>(lying->offset + offset), out));
    return CheckBytes(id, out);
  }
  if (HasParts(id) && offset % kUnit == 0 && (ends || out.size() % kUnit == 0)) {
    WEFT_RETURN_IF_ERROR(Part(id, offset, out));
    return CheckBytes(id, out);
  }
  if (kept_id_ != id) {
    kept_id_.reset();
    kept_.resize(t.bytes);
    WEFT_RETURN_IF_ERROR(ReadTensor(id, kept_));
    kept_id_ = id;
  }
  if (!out.empty()) std::memcpy(out.data(), kept_.data() + offset, out.size());
  if (!ends) return absl::OkStatus();
  kept_id_.reset();
  kept_ = {};
  return absl::OkStatus();
}

absl::Status ForeignFile::CheckBytes(uint32_t id, std::span<const std::byte> bytes) {
  const ForeignTensor& t = tensors_[id];
  if (t.dtype != DType::kBool) return absl::OkStatus();
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return static_cast<uint8_t>(b) > 1; });
  if (bad == bytes.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("'", path_, "': tensor '", t.name, "' of bool holds the byte ",
                                          static_cast<int>(*bad), "; only 0 and 1 are allowed"));
}

absl::Status ForeignFile::Verify() {
  std::vector<std::byte> bytes;
  for (uint32_t id = 0; id < tensors_.size(); ++id) {
    if (!tensors_[id].loadable) continue;
    bytes.resize(tensors_[id].bytes);
    WEFT_RETURN_IF_ERROR(ReadTensor(id, bytes));
  }
  return absl::OkStatus();
}

std::string TypeText(DType dtype, std::span<const int64_t> dims) {
  return absl::StrCat(NameOf(dtype), DimsToString(dims));
}

std::string Shown(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string shown(text.substr(0, kMost));
  if (IsCleanText(shown)) return shown;
  for (char& c : shown) {
    if (c < 0x20 || c == 0x7F) c = '?';  // signed: bytes from 0x80 on are negative
  }
  return shown;
}

absl::Status AddMetadata(Tree* metadata, std::string_view key, std::string_view value, const std::string& file) {
  const absl::Status status =
      metadata->Add(Tree::root(), key, IsCleanText(value) ? Tree::Text(value) : Tree::Bytes(value)).status();
  if (status.ok()) return status;
  return absl::DataLossError(absl::StrCat("'", file, "': metadata: ", status.message()));
}

int64_t StepOf(std::string_view text) {
  int64_t step = 0;
  return absl::SimpleAtoi(text, &step) ? step : 0;
}

void SwapBytes(std::span<std::byte> bytes, size_t width) {
  for (size_t at = 0; width > 1 && at + width <= bytes.size(); at += width) {
    std::reverse(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(at + width));
  }
}

}  // namespace weft
