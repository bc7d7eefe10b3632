// See checkpoint_salvage.h.
#include "serialization/checkpoint_salvage.h"

#include <map>

#include "serialization/checkpoint_reader.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

// The bytes of tensors in a temporary file, which goes with this object.
class Spool final : public TensorSource {
 public:
  struct Kept {
    std::string path;
    DType dtype = DType::kInvalid;  // as it was stored
    Dims dims;
    uint64_t bytes = 0, done = 0, at = 0;
  };
  std::map<uint32_t, Kept> kept;    // by their number in the old file
  std::vector<const Kept*> leaves;  // of the new tree

  absl::Status Open(FileSystem* fs, const std::string& beside) {
    WEFT_ASSIGN_OR_RETURN(file_, AtomicFile::Create(fs, beside, {.durability = Durability::kProcess}));
    WEFT_ASSIGN_OR_RETURN(read_, File::Open(fs, file_.temporary_path(), {.read = true, .no_follow = true}));
    return absl::OkStatus();
  }
  void Announce(const TensorRecord& tensor) {
    Kept& t = kept[tensor.id];
    t = {.path = tensor.name, .dtype = tensor.dtype, .dims = tensor.dims, .bytes = tensor.bytes, .done = 0, .at = end_};
    end_ += tensor.bytes;
  }
  absl::Status Add(uint32_t id, uint64_t offset, std::span<const std::byte> data) {
    Kept& t = kept[id];
    WEFT_RETURN_IF_ERROR(file_.file().WriteAt(static_cast<int64_t>(t.at + offset), data));
    t.done += data.size();
    return absl::OkStatus();
  }
  absl::Status Read(uint32_t tensor, uint64_t offset, std::span<std::byte> out) override {
    return read_.ReadAt(static_cast<int64_t>(leaves[tensor]->at + offset), out);
  }

 private:
  AtomicFile file_;  // never committed
  File read_;        // the same
  uint64_t end_ = 0;
};

// Returns the first key of a path as Tree::PathOf writes it, up to a "." that stands by itself; `path` becomes the rest.
std::string TakeKey(std::string_view* path, bool* last) {
  std::string key;
  size_t i = 0;
  for (; i < path->size() && (*path)[i] != '.'; ++i) {
    if ((*path)[i] == '\\' && i + 1 < path->size()) ++i;
    key += (*path)[i];
  }
  *last = i == path->size();
  path->remove_prefix(*last ? i : i + 1);
  return key;
}

absl::Status AddAt(std::string_view path, const Tree::Value& value, Tree* tree) {
  Tree::NodeId at = Tree::root();
  for (;;) {
    bool last = false;
    const std::string key = TakeKey(&path, &last);
    if (last) return tree->Add(at, key, value).status();
    const Tree::NodeId next = tree->Find(at, key);
    if (next != Tree::kNoNode) {
      at = next;
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(at, tree->Add(at, key, Tree::Dict()));
  }
}

// Each tensor of a file whose index is there.
absl::Status ReadEach(CheckpointReader& reader, Spool* spool) {
  std::vector<std::byte, LargeStdAllocator<std::byte>> bytes;
  for (uint32_t id = 0; id < reader.tensor_count(); ++id) {
    TensorRecord record = reader.tensor(id);
    record.id = id;
    spool->Announce(record);
    bytes.resize(record.bytes);
    if (reader.ReadTensor(id, bytes).ok()) WEFT_RETURN_IF_ERROR(spool->Add(id, 0, bytes));
  }
  return absl::OkStatus();
}

// The problem of the file, if there is one, becomes `problem`; what is wrong with the spool is this function's error.
absl::Status ReadFrames(FileSystem* fs, const std::string& path, Spool* spool, HeaderRecord* header,
                        std::string* problem) {
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(const File file, File::OpenToRead(fs, path, &info));
  absl::Status written;
  const StreamHandler handler = {
      .header = [&](const HeaderRecord& read) { return *header = read, absl::OkStatus(); },
      .tensor = [&](const TensorRecord& tensor) { return spool->Announce(tensor), absl::OkStatus(); },
      .piece = [&](uint32_t id, uint64_t offset,
                   std::span<const std::byte> data) { return written = spool->Add(id, offset, data); }};
  const absl::StatusOr<StreamResult> read = ReadCheckpointStream(file.fd(), path, handler, fs);
  WEFT_RETURN_IF_ERROR(written);
  if (absl::IsDataLoss(read.status())) {
    *problem = read.status().message();
    return absl::OkStatus();
  }
  return read.status();
}

}  // namespace

absl::StatusOr<Salvaged> SalvageCheckpoint(const std::string& path, const std::string& to, const SaveOptions& save) {
  FileSystem* const fs = save.fs != nullptr ? save.fs : PosixFileSystem();
  Salvaged result;
  Spool spool;
  Tree tree;
  SaveOptions saved = save;
  HeaderRecord header;
  absl::StatusOr<std::unique_ptr<CheckpointReader>> reader = CheckpointReader::Open(path, {.fs = fs});
  if (!reader.ok() && !absl::IsDataLoss(reader.status())) return reader.status();
  WEFT_RETURN_IF_ERROR(spool.Open(fs, to));
  if (reader.ok()) {
    WEFT_RETURN_IF_ERROR(ReadEach(**reader, &spool));
    header = (*reader)->header();
  } else {
    result.problem = reader.status().message();
    WEFT_RETURN_IF_ERROR(ReadFrames(fs, path, &spool, &header, &result.problem));
  }
  for (const auto& [id, t] : spool.kept) (t.done == t.bytes ? result.whole : result.lost).push_back(t.path);
  if (result.whole.empty()) {
    return absl::DataLossError(
        absl::StrCat("'", path, "': no tensor of it is whole", result.problem.empty() ? "" : ": ", result.problem));
  }
  if (reader.ok() && result.lost.empty()) {
    tree = (*reader)->tree();
    for (const auto& [id, t] : spool.kept) spool.leaves.push_back(&t), tree.Retype(id, t.dtype);
  } else {
    for (const auto& [id, t] : spool.kept) {
      if (t.done != t.bytes) continue;
      WEFT_RETURN_IF_ERROR(AddAt(t.path, Tree::Tensor(t.dtype, t.dims), &tree));
      spool.leaves.push_back(&t);
    }
  }
  if (result.problem.empty() && !result.lost.empty()) result.problem = "some tensors are damaged";
  saved.step = header.step;
  saved.user = header.user;
  WEFT_RETURN_IF_ERROR(SaveCheckpoint(to, tree, spool, saved));
  return result;
}

}  // namespace weft
